"""What contenders are given: subscriptions, events, and the truth about them.

Matchers over one case are built once and shared by all trials of a point (`Team`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.bench.trial import Contender, Task, Timed
from nearcast.bench.truth import sure_events, true_matches
from nearcast.datasets import Workload
from nearcast.index import registry
from nearcast.index.base import EventBatch, MatchReport, Pairs
from nearcast.jit import parallel_threads
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Circle, Point, Region, Space
from nearcast.model.subscriptions import Subscription

__all__ = [
    "BareMatcher",
    "Case",
    "Team",
    "adding",
    "all_at_once",
    "contenders",
    "event_object",
    "groups",
    "one_by_one",
    "pair_table",
    "subscription_object",
]

_SURE = 50
_SAMPLE_EVENTS = 5
_SAMPLE_ROWS = 20_000
#: What matchers that are compared may take together.
_MOST_BYTES = 12_000_000_000
#: No index is expected to take more for one subscription; below, nothing is estimated.
_LARGE = 4000


class BareMatcher(Matcher):
    """A matcher that shows an approximate index as it is; its threads can be chosen late."""

    def _verified(
        self,
        pairs: Pairs,
        batch: EventBatch,
        nows: npt.NDArray[np.int64],
        view: Sequence[Event],
    ) -> Pairs:
        return pairs if self.entry.approximate else super()._verified(pairs, batch, nows, view)

    def match_with(self, events: pa.Table, threads: int | None) -> pa.Table:
        """`match_events` on so many threads; None for all there are."""
        self._threads = parallel_threads() if threads is None else threads
        return self.match_events(events)


@dataclass(frozen=True)
class Case:
    """Subscriptions, events to time, and events that some subscription is sure to want."""

    space: Space
    subscriptions: pa.Table
    events: pa.Table
    sure: pa.Table

    @classmethod
    def draw(cls, source: Workload, rows: int, events: int, seed: int) -> Case:
        """The first rows and events of the source; as many sure events, but at most 50."""
        subscriptions = source.subscription_table(rows).combine_chunks()
        drawn = source.event_table(events).combine_chunks()
        sure = sure_events(subscriptions, drawn.slice(0, _SURE), seed)
        return cls(source.space, subscriptions, drawn, sure)

    def first(self, events: int) -> Case:
        """The same case with fewer events."""
        return replace(self, events=self.events.slice(0, events))

    def within(self, pairs: int) -> Case:
        """The same case with so few events that about so many pairs match, but some events."""
        sample = true_matches(self.subscriptions, self.events.slice(0, _SAMPLE_EVENTS))
        each = sample.num_rows / max(1, min(_SAMPLE_EVENTS, self.events.num_rows))
        most = max(_SAMPLE_EVENTS, int(pairs / max(each, 1e-9)))
        slimmer = self if most >= self.events.num_rows else self.first(most)
        sure = max(1, int(pairs / max(each, 1.0)))
        return replace(slimmer, sure=self.sure.slice(0, sure))

    @cached_property
    def truth(self) -> pa.Table:
        """Who wants the timed events and the sure ones."""
        return true_matches(self.subscriptions, pa.concat_tables([self.events, self.sure]))

    @cached_property
    def objects(self) -> list[Event]:
        """The timed events as values."""
        return [event_object(row) for row in self.events.to_pylist()]

    def filled(self, index: str, **options: Any) -> BareMatcher:
        """A matcher with all subscriptions."""
        matcher = BareMatcher(index=index, space=self.space, **options)
        matcher.add_subscriptions(self.subscriptions)
        matcher.prepare()  # indexes are compared, not how long they are put off
        return matcher


@dataclass(frozen=True)
class Team:
    """Matchers over the same subscriptions, each built when first asked for."""

    case: Case
    held: dict[str, BareMatcher] = field(default_factory=dict)

    def matcher(self, index: str) -> BareMatcher:
        """The matcher with this index."""
        if index not in self.held:
            self.held[index] = self.case.filled(index)
        return self.held[index]

    def release(self) -> None:
        """Let all of them go."""
        self.held.clear()

    def groups(self, indexes: Sequence[str]) -> list[list[str]]:
        """Indexes that fit into memory together; see `groups`."""
        few = replace(self.case, subscriptions=self.case.subscriptions.slice(0, _SAMPLE_ROWS))
        size = few.subscriptions.num_rows

        def weigh(index: str) -> float:
            return float(few.filled(index).memory()["total"] / size)

        return groups(indexes, self.case.subscriptions.num_rows, weigh)

    def reports(self, index: str) -> list[MatchReport]:
        """How much work each event is for this index."""
        matcher = self.matcher(index)
        return [matcher.match_report(event)[1] for event in self.case.objects]


def groups(
    indexes: Sequence[str],
    rows: int,
    weigh: Callable[[str], float],
    most_bytes: int = _MOST_BYTES,
) -> list[list[str]]:
    """Indexes that fit into memory together; the first one, the yardstick, is in each group.

    Where all might not fit, `weigh` says how many bytes a row takes in each.
    """
    if rows * len(indexes) * _LARGE <= most_bytes:
        return [list(indexes)]
    yardstick, *others = indexes
    first = taken = weigh(yardstick) * rows
    found = [[yardstick]]
    for index in others:
        more = weigh(index) * rows
        if taken + more > most_bytes and len(found[-1]) > 1:
            found.append([yardstick])
            taken = first
        found[-1].append(index)
        taken += more
    return found


def contenders(
    indexes: Iterable[str], opened: Callable[[str], Task], suffix: str = ""
) -> tuple[Contender, ...]:
    """One contender an index; approximate ones are marked as such."""
    return tuple(
        Contender(index + suffix, partial(opened, index), registry.entry(index).approximate)
        for index in indexes
    )


def adding(case: Case, subscriptions: pa.Table, index: str) -> Task:
    """Fill a fresh matcher in every repetition; the last one is asked and weighed."""
    held = [BareMatcher(index=index, space=case.space)]

    def before() -> None:
        held[0] = BareMatcher(index=index, space=case.space)

    def run() -> BareMatcher:
        held[0].add_subscriptions(subscriptions)
        held[0].prepare()  # an index that was put off is no index added
        return held[0]

    def answer(matcher: BareMatcher) -> pa.Table:
        return matcher.match_events(pa.concat_tables([case.events, case.sure]))

    def memory() -> dict[str, int]:
        return held[0].memory()

    return Task(run, before=before, answer=answer, memory=memory, close=held.clear)


def one_by_one(case: Case, filled: Callable[[str], BareMatcher], index: str) -> Task:
    """The call from Python counts: each event is an object, and its ids come as a list."""
    matcher = filled(index)

    def run() -> Timed:
        spent, found = 0.0, []
        for event in case.objects:
            began = perf_counter()
            ids = matcher.match_event(event)
            spent += perf_counter() - began
            # Strings are let go before the next event comes, as a service would: to keep those of
            # all events is to fetch fresh pages for every answer. One string of them all is the
            # least that can be kept: an Arrow array would drive the matcher out of the cache.
            # (An id of a workload that had a zero byte would fail the comparison.)
            found.append("\0".join(ids))
            del ids
        return Timed(spent, found)

    def answer(found: list[str]) -> pa.Table:
        lists = [ids.split("\0") if ids else [] for ids in found]
        timed = pair_table([event.id for event in case.objects], lists)
        return pa.concat_tables([timed, matcher.match_events(case.sure)])

    return Task(run, answer=answer, memory=matcher.memory)


def all_at_once(
    case: Case, filled: Callable[[str], BareMatcher], index: str, threads: int | None = None
) -> Task:
    """A whole batch, Arrow in and Arrow out."""
    matcher = filled(index)

    def answer(found: pa.Table) -> pa.Table:
        return pa.concat_tables([found, matcher.match_events(case.sure)])

    return Task(
        lambda: matcher.match_with(case.events, threads), answer=answer, memory=matcher.memory
    )


def pair_table(event_ids: Sequence[str], subscription_ids: Sequence[Sequence[str]]) -> pa.Table:
    """Matches, event by event, as the table that `match_events` would give."""
    events = [id for id, many in zip(event_ids, subscription_ids, strict=True) for _ in many]
    wanted = list(chain.from_iterable(subscription_ids))
    columns = {"event_id": events, "subscription_id": wanted}
    return pa.table({name: pa.array(ids, pa.string()) for name, ids in columns.items()})


def event_object(row: dict[str, Any]) -> Event:
    """A row of an event table as a value."""
    known = {name: value for name, value in row["attributes"].items() if value is not None}
    place = Point(row["lon"], row["lat"]) if "lon" in row else None
    return Event(id=row["id"], attributes=known, location=place)


def subscription_object(row: dict[str, Any], expires: int | None = None) -> Subscription:
    """A row of a subscription table as a value; its intervals are written as CQL2 and parsed."""
    where = " AND ".join(_test(**interval) for interval in row["intervals"])
    region: Region | None = None
    if "xmin" in row:
        region = Box(*(row[side] for side in ("xmin", "ymin", "xmax", "ymax")))
    elif "radius_m" in row:
        region = Circle(row["lon"], row["lat"], row["radius_m"])
    return Subscription(id=row["id"], where=where or None, region=region, expires=expires)


def _test(attribute: str, low: float, high: float) -> str:
    """An interval as CQL2."""
    if math.isinf(low):
        return f'"{attribute}" <= {high!r}'
    return f'"{attribute}" >= {low!r}' if math.isinf(high) else (
        f'"{attribute}" BETWEEN {low!r} AND {high!r}'
    )  # fmt: skip
