"""`ablation`: what each idea brings.

DI-Tree's five variants by the width of intervals (its figure 2; one has bitsets as printed).
For `pivot`, whose parts cannot be switched off one by one, its lead over the scan is taken
apart: the tree of hulls leaves so many subscriptions fewer to look at, and the bit lines and
codes of a tile look at each so many times faster. And what sharing the way through the tree
brings, by the size of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import Case, Team, all_at_once, contenders, one_by_one
from nearcast.bench.experiments.scores import rows
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.datasets import workload

__all__ = ["EXPERIMENT"]

VARIANTS = "di: DI-Tree's variants, by w"
_VARIANTS = ("di-tree", "di-tree:fn", "di-tree:f", "di-tree:b", "di-tree:bo")
_NAMES = {
    "di-tree": "fDI-Tree-o",
    "di-tree:f": "fDI-Tree",
    "di-tree:b": "bDI-Tree",
    "di-tree:bo": "bDI-Tree-o",
    "di-tree:fn": "fDI-Tree-o, as printed",
}
_MOST_IDS, _MOST_PAIRS = 1_000_000, 3_000_000


def funnel(name: str) -> str:
    """The operation: one event, and what each part of pivot leaves."""
    return f"{name}: what pivot looks at for one event"


def sharing(name: str) -> str:
    """The operation: batches of pivot."""
    return f"{name}: pivot, by the size of a batch"


def _trials(plan: Plan) -> Iterator[Trial]:
    for width in plan.settings["w"]:
        yield from _variants(plan, float(width))
    for name in plan.texts("workloads"):
        for size in plan.numbers("sizes"):
            yield from _funnel(plan, name, size)
        yield from _sharing(plan, name)


def _variants(plan: Plan, width: float) -> Iterator[Trial]:
    source = workload("di", seed=plan.seed, w=width)
    case = Case.draw(source, plan.number("n"), plan.number("events"), plan.seed).within(_MOST_IDS)
    team = Team(case)
    among = contenders(_VARIANTS, partial(one_by_one, case, team.matcher))
    named = tuple(Contender(_NAMES[c.name], c.open, c.approximate) for c in among)
    point: dict[str, Scalar] = {"n": plan.number("n"), "w": width}
    truth = partial(getattr, case, "truth")
    yield Trial(VARIANTS, named, truth, point, case.events.num_rows, "event")
    team.release()


def _funnel(plan: Plan, name: str, size: int) -> Iterator[Trial]:
    """Time, with the mean number of nodes visited, subscriptions in visited tiles, matches."""
    source = workload(name, seed=plan.seed)
    case = Case.draw(source, size, plan.number("events"), plan.seed).within(_MOST_IDS)
    team = Team(case)
    reports = team.reports("pivot")
    point: dict[str, Scalar] = {
        "n": size,
        "nodes": round(fmean(report.nodes for report in reports), 1),
        "in tiles": round(fmean(report.candidates for report in reports), 1),
        "matches": round(fmean(report.matches for report in reports), 1),
    }
    among = contenders(("scan", "pivot"), partial(one_by_one, case, team.matcher))
    truth = partial(getattr, case, "truth")
    yield Trial(funnel(name), among, truth, point, case.events.num_rows, "event")
    team.release()


def _sharing(plan: Plan, name: str) -> Iterator[Trial]:
    """The same events in pieces: one thread, so that nothing else is shared."""
    source = workload(name, seed=plan.seed)
    most = max(plan.numbers("batches"))
    drawn = Case.draw(source, plan.number("n"), most, plan.seed).within(_MOST_PAIRS)
    team = Team(drawn)
    for size in sorted(plan.numbers("batches")):
        case = drawn.first(size)
        among = (
            Contender("match_events", partial(all_at_once, case, team.matcher, "pivot", 1)),
            Contender("match_event, one by one", partial(_singly, case, team)),
        )
        point: dict[str, Scalar] = {"n": plan.number("n"), "batch": case.events.num_rows}
        truth = partial(getattr, case, "truth")
        yield Trial(sharing(name), among, truth, point, case.events.num_rows, "event")
    team.release()


def _singly(case: Case, team: Team) -> Task:
    return one_by_one(case, team.matcher, "pivot")


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    return [
        *_variant_claims(measurements),
        *(
            found
            for name in ("mo", "di")
            for found in (*_funnel_claims(measurements, name), *_sharing_claims(measurements, name))
        ),
    ]


def _variant_claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """What bitsets save on average; the paper says 60.8 % and 40.57 %."""
    claims = []
    for plain, better in (("fDI-Tree", "fDI-Tree-o"), ("bDI-Tree", "bDI-Tree-o")):
        ratios = [row.ratio([better], [plain]) for row in rows(measurements, VARIANTS)]
        saved = [1 - ratio for ratio in ratios if ratio is not None]
        if saved:
            what = f"time that bitsets save: {better} instead of {plain}, mean over w"
            claims.append(Claim(what, 100 * fmean(saved), "%"))
    return claims


def _funnel_claims(measurements: Sequence[Measurement], name: str) -> list[Claim]:
    """Lead over the scan = fewer to look at (the tree) × each looked at faster (the tiles)."""
    claims = []
    for row in rows(measurements, funnel(name)):
        n, seen = int(row.point["n"]), float(row.point["in tiles"])
        lead = row.ratio(["scan"], ["pivot"])
        if lead is None or seen == 0:
            continue
        label = f"{name}, n = {n:,}"
        each = "of it by the tiles: each faster, the call included"
        claims += [
            Claim(f"{label}: in the tiles that the tree leaves", 100 * seen / n, "%"),
            Claim(f"{label}: of them matches", 100 * float(row.point["matches"]) / seen, "%"),
            Claim(f"{label}: lead of pivot over scan", lead, "×"),
            Claim(f"{label}: of it by the tree: fewer to look at", n / seen, "×"),
            Claim(f"{label}: {each}", lead * seen / n, "×"),
        ]
    return claims


def _sharing_claims(measurements: Sequence[Measurement], name: str) -> list[Claim]:
    claims = []
    for row in rows(measurements, sharing(name)):
        gain = row.ratio(["match_event, one by one"], ["match_events"])
        if gain is not None:
            what = f"{name}: a batch of {row.point['batch']:,} / one by one, one core"
            claims.append(Claim(what, gain, "× as fast"))
    return claims


EXPERIMENT = Experiment(
    name="ablation",
    summary="DI-Tree's variants; what the tree and the tiles of pivot bring; batch sizes",
    settings=(
        Setting("n", (100_000,), (300,), "subscriptions"),
        Setting("sizes", (10_000, 100_000), (300,), "subscriptions, for what pivot looks at"),
        Setting("w", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), (0.4,), "widths"),
        Setting("workloads", ("mo", "di"), ("mo", "di"), "for pivot"),
        Setting("events", (50,), (5,), "how many to match one at a time"),
        Setting("batches", (1, 8, 64, 512, 4096), (1, 10), "sizes of a batch"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure(
            "di-variants",
            "DI-Tree's variants by the width of intervals (DI-Tree, figure 2)",
            VARIANTS,
            x="w",
            x_label="width of an interval",
        ),
        *(
            Figure(
                f"{name}-sharing",
                sharing(name),
                sharing(name),
                x="batch",
                x_label="events of a batch",
                log_x=True,
                log_y=True,
            )
            for name in ("mo", "di")
        ),
    ),
)
