"""`memory`: bytes per subscription by index and number, with the stores that matchers share.

Subscriptions alone on both workloads, and as many events beside them, where indexes that
hold both stand against pairs of indexes that hold one each: MO-Tree's figure 12, DI-Tree's
figure 8c. Nothing here is compared by its time, so one contender at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import Case, adding, contenders
from nearcast.bench.experiments.scores import checklist, claim, judged, rows
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.datasets import workload
from nearcast.index import registry
from nearcast.matcher import Matcher

__all__ = ["EXPERIMENT"]

BOTH = "mo: subscriptions and as many live events"

_EVENTS = 10
_MOST_BYTES = {"pivot": 400, "mo-tree": 350}
_FIVE_MILLION, _FOUR_GB = 5_000_000, 4.0


def alone(name: str) -> str:
    """The operation: subscriptions, and nothing else."""
    return f"{name}: subscriptions in memory"


def _trials(plan: Plan) -> Iterator[Trial]:
    for name in plan.texts("workloads"):
        for size in plan.numbers("n"):
            source = workload(name, seed=plan.seed, k=10)
            case = Case.draw(source, size, _EVENTS, plan.seed).within(1_000_000)
            opened = partial(adding, case, case.subscriptions)
            for contender in contenders(plan.texts(f"{name}_indexes"), opened):
                yield _trial(alone(name), contender, case, size)
            if name == "mo":
                events = source.event_table(size).combine_chunks()
                for team in plan.texts("both"):
                    opened_both = partial(_both, case, events, team.split("+"))
                    yield _trial(BOTH, Contender(team, opened_both), case, size)


def _trial(operation: str, contender: Contender, case: Case, size: int) -> Trial:
    point: dict[str, Scalar] = {"n": size}
    truth = partial(getattr, case, "truth")
    return Trial(operation, (contender,), truth, point, size, "subscription", at_most=1)


def _both(case: Case, events: pa.Table, indexes: list[str]) -> Task:
    """Subscriptions in the first index and events in the last, which may be the same."""
    held: list[Matcher] = []

    def before() -> None:
        held[:] = [Matcher(index=index, space=case.space) for index in indexes]

    def run() -> Matcher:
        held[0].add_subscriptions(case.subscriptions)
        held[0].prepare()  # what is weighed has its index
        held[-1].add_events(events)
        return held[0]

    def answer(matcher: Matcher) -> pa.Table:
        return matcher.match_events(pa.concat_tables([case.events, case.sure]))

    def memory() -> dict[str, int]:
        parts = [matcher.memory() for matcher in held]
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    return Task(run, before=before, answer=answer, memory=memory, close=held.clear)


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for name in ("mo", "di"):
        for row in judged(measurements, alone(name)):
            for m in row.by_contender.values():
                each = m.memory["total"] / m.work
                most = _MOST_BYTES.get(m.contender)
                what = f"{alone(name)}, {m.contender}"
                claims += claim(row, what, each, "bytes a subscription", most, "at most")
    for row in rows(measurements, alone("mo")):
        for m in row.by_contender.values():
            if m.work >= _FIVE_MILLION and m.contender in _MOST_BYTES:
                what = f"{alone('mo')}, {m.contender}, all of it"
                size = m.memory["total"] / 1e9
                claims += claim(row, what, size, "GB", _FOUR_GB, "at most")
    for row in judged(measurements, BOTH):
        for m in row.by_contender.values():
            each = m.memory["total"] / m.work
            claims += claim(row, f"{BOTH}, {m.contender}", each, "bytes a pair")
    return checklist(claims)


_MO = ("scan", "pivot", "mo-tree", "tama", "op-index", "r-star-tree", "quad-tree")
_DI = ("scan", "pivot", *(n for n in registry.names(subscriptions=True) if n.startswith("di-")))
_DI += ("rein", "ada-rein", "tama", "op-index", "pem", "k-index")
_BOTH = ("pivot", "mo-tree", "r-star-tree", "tama+beq-tree", "op-index+beq-tree")

EXPERIMENT = Experiment(
    name="memory",
    summary="bytes per subscription by index and number, shared stores included",
    settings=(
        Setting("n", (10_000, 100_000), (200,), "numbers of subscriptions"),
        Setting("workloads", ("mo", "di"), ("mo", "di"), "of 10 predicates"),
        Setting("mo_indexes", _MO, _MO, "contenders on mo"),
        Setting("di_indexes", _DI, _DI, "contenders on di"),
        Setting("both", _BOTH, _BOTH, "who holds subscriptions and events; a pair has a plus"),
    ),
    trials=_trials,
    claims=_claims,
    figures=tuple(
        Figure(
            slug,
            f"{operation} ({source})",
            operation,
            "item_bytes",
            x="n",
            x_label="subscriptions",
            log_x=True,
        )
        for slug, operation, source in (
            ("mo", alone("mo"), "MO-Tree, figure 12"),
            ("di", alone("di"), "DI-Tree, figure 8c"),
            ("both", BOTH, "MO-Tree, figure 12"),
        )
    ),
)
