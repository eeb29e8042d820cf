"""`event-matching`: one event, or many, against the subscriptions.

Sweeps over the number of subscriptions and their predicates, the width of intervals, the
size of events and the popularity of attributes: MO-Tree's figures 4 and 5 and its table 5,
DI-Tree's figures 3 to 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import Case, Team, all_at_once, contenders, one_by_one
from nearcast.bench.experiments.scores import Row, checklist, claim, growth_claims, judged, rows
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Trial
from nearcast.datasets import workload

__all__ = ["EXPERIMENT"]

CALL = "the call itself: one subscription, which matches"
ONE_CORE = ", one core"

#: What is swept for each workload, and what else differs from its defaults meanwhile.
#: DI-Tree varies k with m = 30 and w = 0.8, so that there is something to match.
_SWEEPS: dict[str, dict[str, dict[str, Any]]] = {
    "mo": {"n": {}, "k": {}, "alpha": {}},
    "di": {"n": {}, "k": {"m": 30, "w": 0.8}, "w": {}, "m": {}, "alpha": {}},
}
#: Where whole batches are measured too: with everybody, or with those that are good at it.
_BATCHES = {("mo", "n"), ("mo", "k"), ("di", "n")}
_SMALL_BATCHES = {("di", "w"), ("di", "alpha")}
#: Answers are bounded, for they are kept and compared.
_MOST_IDS, _MOST_PAIRS = 1_000_000, 6_000_000

_AXIS_LABELS = {
    "n": "subscriptions",
    "k": "predicates of a subscription",
    "w": "width of an interval",
    "m": "attributes of an event",
    "alpha": "Zipf exponent of the attributes",
}
_FIGURES = {
    ("mo", "n"): "MO-Tree, figure 4",
    ("mo", "k"): "MO-Tree, figure 5",
    ("mo", "alpha"): "MO-Tree, table 5",
    ("di", "n"): "DI-Tree, figure 3",
    ("di", "k"): "DI-Tree, figure 4",
    ("di", "w"): "DI-Tree, figure 5",
    ("di", "m"): "DI-Tree, figure 6",
    ("di", "alpha"): "DI-Tree, figure 7",
}


def one(name: str, axis: str) -> str:
    """The operation: one event at a time."""
    return f"{name}: one event at a time, by {axis}"


def batch(name: str, axis: str) -> str:
    """The operation: a batch of events."""
    return f"{name}: a batch of events, by {axis}"


def _trials(plan: Plan) -> Iterator[Trial]:
    yield _call(plan)
    for name in plan.texts("workloads"):
        for axis in _SWEEPS[name]:
            if axis in plan.texts("sweeps"):
                for value in _values(plan, name, axis):
                    yield from _point(plan, name, axis, value)


def _values(plan: Plan, name: str, axis: str) -> Sequence[Scalar]:
    """The points of a sweep; the size of all other sweeps is among the sizes."""
    if axis == "n":
        return sorted({*plan.numbers("sizes"), plan.number("n")})
    return plan.settings[f"{name}_k" if axis == "k" else axis]


def _point(plan: Plan, name: str, axis: str, value: Scalar) -> Iterator[Trial]:
    rows_ = int(value) if axis == "n" else plan.number("n")
    given = dict(_SWEEPS[name][axis]) if axis == "n" else {**_SWEEPS[name][axis], axis: value}
    if axis == "m":
        given["attributes"] = max(20, *plan.numbers("m"))
    source = workload(name, seed=plan.seed, **given, **_data(plan, name))
    drawn = Case.draw(source, rows_, max(plan.number("batch"), plan.number("events")), plan.seed)
    few = drawn.first(plan.number("events")).within(_MOST_IDS)
    point: dict[str, Scalar] = {"n": rows_, axis: value}
    team = Team(drawn)
    for group in team.groups(plan.texts(f"{name}_indexes")):
        singly = contenders(group, partial(one_by_one, few, team.matcher))
        yield Trial(one(name, axis), singly, lambda: few.truth, point, few.events.num_rows, "event")
        many = _batch_case(plan, drawn, name, axis)
        together = _batchers(plan, team, many, group, name, axis) if many is not None else ()
        if many is not None and together:
            size = many.events.num_rows
            truth = partial(getattr, many, "truth")
            yield Trial(batch(name, axis), together, truth, point, size, "event", at_most=5)
        team.release()


def _data(plan: Plan, name: str) -> dict[str, Any]:
    """Where the places of mo and the values of di come from."""
    if name == "di":
        return {"values": plan.texts("di_values")[0]}
    place = plan.texts("mo_source")[0]
    return {"source": None if place == "made" else place}


def _batch_case(plan: Plan, drawn: Case, name: str, axis: str) -> Case | None:
    """The case of the batches at this point; None where only single events are measured."""
    if (name, axis) in _BATCHES:
        return drawn.first(plan.number("batch")).within(_MOST_PAIRS)
    if (name, axis) in _SMALL_BATCHES:
        return drawn.first(plan.number("small_batch")).within(_MOST_PAIRS)
    return None


def _batchers(
    plan: Plan, team: Team, case: Case, group: Sequence[str], name: str, axis: str
) -> tuple[Contender, ...]:
    """Whoever can do batches well, with all cores and with one; or everybody but the scan."""
    small = (name, axis) in _SMALL_BATCHES
    able = [index for index in group if index != "scan" or not small]
    if not small:
        able = [index for index in able if index in plan.texts("batchers")]
    opened = partial(all_at_once, case, team.matcher)
    alone = contenders(able, partial(opened, threads=1), ONE_CORE)
    return contenders(able, opened) + alone


def _call(plan: Plan) -> Trial:
    """What a match costs when there is nothing to search: encoding, the call, the id."""
    case = Case.draw(workload("mo", seed=plan.seed), 1, 1, plan.seed)
    case = Case(case.space, case.subscriptions, case.sure, case.sure.slice(0, 0))
    many = _repeated(case, plan.number("calls"))
    team = Team(Case(case.space, case.subscriptions, many, case.sure))
    indexes = plan.texts("mo_indexes")
    return Trial(
        CALL,
        contenders(indexes, partial(one_by_one, team.case, team.matcher)),
        lambda: team.case.truth,
        {},
        team.case.events.num_rows,
        "event",
    )


def _repeated(case: Case, times: int) -> Any:
    """One event many times over, each under a name of its own."""
    (row,) = case.events.to_pylist()
    return type(case.events).from_pylist(
        [{**row, "id": f"e{i}"} for i in range(times)], schema=case.events.schema
    )


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims = [
        *_call_claims(measurements),
        *(c for row in rows(measurements, one("mo", "k")) for c in _mo_claims(measurements, row)),
        *(c for row in judged(measurements, one("di", "n")) for c in _di_claims(measurements, row)),
        *_sweep_claims(measurements),
        *(c for name in _SWEEPS for c in growth_claims(measurements, one(name, "n"))),
    ]
    return checklist(claims)


def _call_claims(measurements: Sequence[Measurement]) -> list[Claim]:
    return [
        Claim(f"the call from Python, {m.contender}", m.item_s * 1e6, "µs", 30, "at most")
        for m in measurements
        if m.operation == CALL and m.contender == "pivot"
    ]


def _mo_claims(measurements: Sequence[Measurement], row: Row) -> list[Claim]:
    k = int(row.point["k"])
    label = f"mo, K = {k}"
    least = {10: 4.0, 4: 2.5}.get(k)
    asked = k in (4, 6, 10)
    pairs = {
        ("scan", "mo-tree"): least,
        ("scan", "pivot"): 60.0 if asked else None,
        ("mo-tree", "pivot"): 10.0 if asked else None,
    }
    return [
        *_scan_claims(row, label, 7.0),
        *(
            found
            for (slow, fast), target in pairs.items()
            for found in claim(
                row, f"{label}: {slow} / {fast}", row.ratio([slow], [fast]), "×", target
            )
        ),
        *_batch_claims(measurements, row, batch("mo", "k"), label, 150 if asked else None),
    ]


def _di_claims(measurements: Sequence[Measurement], row: Row) -> list[Claim]:
    label = "di, k = 10, w = 0.4"
    mine = [name for name in row.by_contender if name.startswith("di-tree")]
    targets = {"scan": 8.0, "rein": 3.5, "tama": 3.5, "op-index": 10.0}
    return [
        *_scan_claims(row, label, 18.0),
        *(
            found
            for other, least in targets.items()
            for found in claim(
                row, f"{label}: {other} / di-tree", row.ratio([other], mine), "×", least
            )
        ),
        *claim(row, f"{label}: scan / pivot", row.ratio(["scan"], ["pivot"]), "×", 50),
        *_batch_claims(measurements, row, batch("di", "n"), label, 120),
    ]


def _scan_claims(row: Row, label: str, most_ns: float) -> list[Claim]:
    """The yardstick must be a good one, or the ratios mean nothing."""
    scan = row.by_contender.get("scan")
    each = None if scan is None else scan.item_s / int(row.point["n"]) * 1e9
    target = most_ns if not label.startswith("mo") or row.point.get("k") == 10 else None
    return claim(row, f"{label}: scan, a subscription", each, "ns", target, "at most")


def _batch_claims(
    measurements: Sequence[Measurement], row: Row, operation: str, label: str, least: float | None
) -> list[Claim]:
    """A batch with pivot beside one event at a time with the scan, per event."""
    scan = row.by_contender.get("scan")
    same = next((r for r in rows(measurements, operation) if r.point == row.point), None)
    if scan is None or same is None:
        return []
    claims = []
    for name, target in (("pivot", least), (f"pivot{ONE_CORE}", None)):
        ran = same.by_contender.get(name)
        value = None if ran is None else scan.item_s / ran.item_s
        what = f"{label}: scan / a batch with {name}"
        claims += claim(row, what, value, "×", target)
    return claims


def _sweep_claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """Where the data suits others, pivot must not be far behind."""
    claims = []
    for axis, asked in (("w", (0.1, 0.8)), ("alpha", None)):
        for how in (one, batch):
            for row in rows(measurements, how("di", axis)):
                if asked is None or row.point[axis] in asked:
                    claims += _behind(row, f"{how('di', axis)} = {row.point[axis]}")
    return claims


def _behind(row: Row, label: str) -> list[Claim]:
    """Pivot beside the best exact other index."""
    others = [
        name
        for name, m in row.by_contender.items()
        if name.partition(",")[0] not in ("pivot", "scan")
        and not m.approximate
        and not name.endswith(ONE_CORE)
    ]
    best = row.best(others)
    if best is None:
        return []
    what = f"{label}: pivot / {best.contender}, the best other"
    return claim(row, what, row.ratio(["pivot"], [best.contender]), "×", 1.05, "at most")


def _figures() -> tuple[Figure, ...]:
    found = []
    for (name, axis), source in _FIGURES.items():
        for how, slug in ((one, "one"), (batch, "batch")):
            found.append(
                Figure(
                    f"{name}-{slug}-{axis}",
                    f"{how(name, axis)} ({source})",
                    how(name, axis),
                    x=axis,
                    x_label=_AXIS_LABELS[axis],
                    log_x=axis == "n",
                    log_y=True,
                )
            )
    return tuple(found)


_MO = ("scan", "pivot", "mo-tree", "tama", "op-index", "r-star-tree", "quad-tree")
_DI = (
    *("scan", "pivot", "di-tree", "rein", "tama", "op-index"),
    *("ada-rein", "pem", "k-index"),
)

EXPERIMENT = Experiment(
    name="event-matching",
    summary="one event, or a batch, against the subscriptions: every index, every sweep",
    settings=(
        Setting("n", (100_000,), (300,), "subscriptions in all sweeps but that over sizes"),
        Setting("sizes", (10_000, 30_000, 100_000), (200,), "numbers of subscriptions to sweep"),
        Setting("workloads", ("mo", "di"), ("mo", "di"), "whose sweeps"),
        Setting("sweeps", ("n", "k", "w", "m", "alpha"), ("n", "k", "w", "m", "alpha"), "which"),
        Setting("mo_k", (4, 6, 8, 10), (10,), "predicates, the square counting as two"),
        Setting("di_k", (2, 4, 6, 8, 10), (4,), "predicates"),
        Setting("w", (0.1, 0.2, 0.4, 0.6, 0.8), (0.8,), "widths of the intervals of di"),
        Setting("m", (20, 40, 60, 80), (30,), "attributes of an event of di, out of the most"),
        Setting("alpha", (0.0, 0.25, 0.5, 0.75, 1.0), (0.5,), "Zipf exponents of attributes"),
        Setting("mo_source", ("made",), ("made",), "made, or a file of pick-ups"),
        Setting("di_values", ("uniform",), ("uniform",), "uniform, or sp500: stocks' prices"),
        Setting("events", (50,), (5,), "how many to match one at a time"),
        Setting("calls", (2000,), (20,), "calls with nothing to search"),
        Setting("batch", (10_000,), (20,), "how many to match in a batch"),
        Setting("small_batch", (512,), (20,), "the same where every index takes part"),
        Setting("mo_indexes", _MO, _MO, "contenders on mo, the yardstick first"),
        Setting("di_indexes", _DI, _DI, "contenders on di, the yardstick first"),
        Setting("batchers", ("pivot", "mo-tree", "di-tree"), ("pivot",), "who takes large batches"),
    ),
    trials=_trials,
    claims=_claims,
    figures=_figures(),
)
