"""`subscription-matching`: one subscription against the live events.

Sweeps over the number of events, the predicates of a subscription, its radius and the popularity
of attributes, and over the leaf size of BEQ-Tree: MO-Tree's figures 6 and 7 and the other half of
its table 5, Elaps' figures 8 and 15. `source` puts them where people were picked up, and the
workload `elaps` has words with frequencies for attributes and circles for squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import contenders, groups, pair_table, subscription_object
from nearcast.bench.experiments.scores import checklist, claim, growth_claims, judged
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.bench.truth import sure_events, true_live_events
from nearcast.datasets import Workload, workload
from nearcast.matcher import Matcher
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["EXPERIMENT"]

SPLIT = "one subscription against the live events, by what it asks"
LEAVES = "one subscription against the live events, by BEQ-Tree's leaf size"
_SAMPLE = 20_000
_BEQ = "beq-tree, E_max = "


def one(axis: str) -> str:
    """The operation: one subscription at a time."""
    return f"one subscription against the live events, by {axis}"


@dataclass(frozen=True)
class _Case:
    """Live events, and subscriptions each of which is sure to want some."""

    space: Space
    subscriptions: pa.Table
    events: pa.Table

    @classmethod
    def draw(cls, source: Workload, events: int, subscriptions: int, seed: int) -> _Case:
        wanted = source.subscription_table(subscriptions).combine_chunks()
        drawn = source.event_table(events).combine_chunks()
        sure = sure_events(wanted, drawn.slice(0, min(subscriptions, events)), seed)
        return cls(source.space, wanted, pa.concat_tables([drawn, sure]).combine_chunks())

    @cached_property
    def truth(self) -> pa.Table:
        return true_live_events(self.subscriptions, self.events, self.space)

    @cached_property
    def objects(self) -> list[Subscription]:
        return [subscription_object(row) for row in self.subscriptions.to_pylist()]

    def filled(self, index: str, events: pa.Table, **options: Any) -> Matcher:
        matcher = Matcher(index=index, space=self.space, **options)
        matcher.add_events(events)
        return matcher

    def groups(self, indexes: Sequence[str]) -> list[list[str]]:
        """Indexes that fit into memory together."""
        sample = self.events.slice(0, _SAMPLE)

        def weigh(index: str) -> float:
            return float(self.filled(index, sample).memory()["total"] / sample.num_rows)

        return groups(indexes, self.events.num_rows, weigh)

    def opened(self, index: str, **options: Any) -> Task:
        """One subscription after the other; the call from Python counts."""
        matcher = self.filled(index, self.events, **options)

        def run() -> list[list[str]]:
            return [matcher.match_subscription(wanted) for wanted in self.objects]

        def answer(found: list[list[str]]) -> pa.Table:
            table = pair_table([wanted.id for wanted in self.objects], found)
            return table.rename_columns(["subscription_id", "event_id"])

        return Task(run, answer=answer, memory=matcher.memory)

    def trial(
        self, operation: str, among: tuple[Contender, ...], point: dict[str, Scalar]
    ) -> Trial:
        return Trial(operation, among, lambda: self.truth, point, len(self.objects), "subscription")


def _trials(plan: Plan) -> Iterator[Trial]:
    sweeps = plan.texts("sweeps")
    for axis in ("n", "k", "radius", "alpha"):
        if axis in sweeps:
            for value in _values(plan, axis):
                yield from _point(plan, axis, value)
    if "split" in sweeps:
        yield from _split(plan)
    if "e_max" in sweeps:
        yield _leaves(plan)


def _values(plan: Plan, axis: str) -> Sequence[Scalar]:
    if axis == "n":
        return sorted({*plan.numbers("sizes"), plan.number("n")})
    return plan.settings[axis]


def _point(plan: Plan, axis: str, value: Scalar) -> Iterator[Trial]:
    given: dict[str, Any] = {}
    if axis == "k":
        k = int(value)
        given |= {"predicates": (k, k)} if _worded(plan) else {"k": k}
    if axis == "alpha":
        given["alpha"] = float(value)
    if axis == "radius":
        radius = float(value)
        given |= {"radius_m": radius} if _worded(plan) else {"r_m": (radius, radius)}
    size = int(value) if axis == "n" else plan.number("n")
    case = _case(plan, size, **given)
    for group in case.groups(plan.texts("indexes")):
        yield case.trial(one(axis), contenders(group, case.opened), {"n": size, axis: value})


def _case(plan: Plan, size: int, **given: Any) -> _Case:
    place = plan.texts("source")[0]
    real = None if place == "made" else place
    source = workload(plan.texts("workload")[0], seed=plan.seed, source=real, **given)
    return _Case.draw(source, size, plan.number("subscriptions"), plan.seed)


def _split(plan: Plan) -> Iterator[Trial]:
    """The question whole, its predicates alone, and its region alone."""
    size = plan.number("n")
    case = _case(plan, size)
    nothing = pa.array([[]] * case.subscriptions.num_rows, case.subscriptions["intervals"].type)
    at = case.subscriptions.schema.get_field_index("intervals")
    parts = {
        "whole": case.subscriptions,
        "Boolean": case.subscriptions.select(["id", "intervals"]),
        "spatial": case.subscriptions.set_column(at, "intervals", nothing),
    }
    for asked, subscriptions in parts.items():
        part = _Case(case.space, subscriptions, case.events)
        for group in part.groups(plan.texts("indexes")):
            yield part.trial(SPLIT, contenders(group, part.opened), {"n": size, "asked": asked})


def _worded(plan: Plan) -> bool:
    """Whether attributes are words with their frequencies, and regions circles."""
    return plan.texts("workload") == ("elaps",)


def _leaves(plan: Plan) -> Trial:
    """BEQ-Tree at every leaf size takes turns with those that are held against its best."""
    size = plan.number("n")
    case = _case(plan, size)
    trees = tuple(
        Contender(f"{_BEQ}{most:,}", partial(case.opened, "beq-tree", e_max=most))
        for most in plan.numbers("e_max")
    )
    others = contenders(
        [index for index in plan.texts("indexes") if index in ("mo-tree", "pivot")], case.opened
    )
    return case.trial(LEAVES, trees + others, {"n": size})


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims = []
    for row in judged(measurements, LEAVES):
        best = row.best(name for name in row.by_contender if name.startswith(_BEQ))
        for index, least in (("mo-tree", 10), ("pivot", 20)):
            if best is not None:
                what = f"{best.contender} (its best) / {index}"
                claims += claim(row, what, row.ratio([best.contender], [index]), "×", least)
    return checklist(claims + growth_claims(measurements, one("n")))


_SWEEPS = ("n", "k", "radius", "alpha", "split", "e_max")
_INDEXES = (
    *("scan", "pivot", "mo-tree", "beq-tree"),
    *("quad-tree", "r-star-tree", "k-index", "op-index"),
)

EXPERIMENT = Experiment(
    name="subscription-matching",
    summary="one subscription against the live events: by number, predicates, radius, leaf size",
    settings=(
        Setting("n", (100_000,), (300,), "live events in all sweeps but that over sizes"),
        Setting("sizes", (10_000, 30_000, 100_000), (200,), "numbers of events to sweep"),
        Setting("sweeps", _SWEEPS, _SWEEPS, "which"),
        Setting("k", (4, 6, 8, 10), (6,), "predicates, the square counting as two"),
        Setting("radius", (500, 1000, 2000, 4000, 8000), (2000,), "half-sides in metres"),
        Setting("alpha", (0.0, 0.25, 0.5, 0.75, 1.0), (0.5,), "Zipf's α of the attributes"),
        Setting("workload", ("mo",), ("mo",), "mo, or elaps: words with frequencies, circles"),
        Setting("source", ("made",), ("made",), "made, or a file of pick-ups (docs/datasets.md)"),
        Setting("e_max", (64, 256, 1024, 4096, 16384, 60_000), (64, 256), "events of a leaf"),
        Setting("subscriptions", (100,), (5,), "how many to match, one at a time"),
        Setting("indexes", _INDEXES, _INDEXES, "contenders"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure(
            "n",
            "One subscription by number of events (MO-Tree, figure 6; Elaps, figure 8)",
            one("n"),
            x="n",
            x_label="live events",
            log_x=True,
            log_y=True,
        ),
        Figure(
            "k",
            "One subscription by its predicates (MO-Tree, figure 7; Elaps, figure 8)",
            one("k"),
            x="k",
            x_label="predicates of a subscription",
            log_y=True,
        ),
        Figure(
            "radius",
            "One subscription by its radius (Elaps, figure 8)",
            one("radius"),
            x="radius",
            x_label="half the side of its square (m)",
            log_y=True,
        ),
        Figure(
            "alpha",
            "One subscription by the popularity of attributes (MO-Tree, table 5)",
            one("alpha"),
            x="alpha",
            x_label="Zipf's α",
            log_y=True,
        ),
        Figure(
            "split",
            "One subscription, its predicates and its region alone (Elaps, figure 8)",
            SPLIT,
            x="asked",
            x_label="what is asked",
            log_y=True,
        ),
        Figure("leaves", "One subscription by BEQ-Tree's leaf size (Elaps, figure 15a)", LEAVES),
        Figure(
            "leaves-build",
            "Adding all events by BEQ-Tree's leaf size (Elaps, figure 15b)",
            LEAVES,
            "build_s",
        ),
    ),
)
