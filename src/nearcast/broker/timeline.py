"""Event time: where it stands, how far an event may be off, and what ends when."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import chain, groupby, repeat
from operator import gt, itemgetter
from typing import Literal, NamedTuple, TypeAlias, get_args

from nearcast.clock import NEVER, Micros, Time, format_micros, to_micros
from nearcast.errors import ValidationError
from nearcast.model.durations import format_seconds, to_duration
from nearcast.model.events import Event

__all__ = ["Clock", "Kind", "Timeline", "span"]

#: Reads the time in microseconds, such as `nearcast.clock.system_now`.
Clock: TypeAlias = Callable[[], Micros]
Kind: TypeAlias = Literal["subscription", "event", "fence", "composite", "release"]
Entry: TypeAlias = tuple[Micros, int, Kind, str]
_kind = itemgetter(2)
_ids = _any = itemgetter(3)  # of a run
_FEW = 64  # entries of what is gone that are not worth the clearing


class _Run(NamedTuple):
    """Some of one kind that end in this order."""

    kind: Kind
    ats: Sequence[Micros]
    numbers: Sequence[int]
    ids: Sequence[str]

    def cut(self, now: Micros) -> tuple[_Run, _Run | None]:
        """What has ended by then, and the rest."""
        stop = bisect_right(self.ats, now)
        if stop == len(self.ats):
            return self, None
        kind, ats, numbers, ids = self
        first = _Run(kind, ats[:stop], numbers[:stop], ids[:stop])
        return first, _Run(kind, ats[stop:], numbers[stop:], ids[stop:])

    def entries(self) -> Iterator[Entry]:
        """One by one."""
        return zip(self.ats, self.numbers, repeat(self.kind), self.ids)


class Timeline:
    """The broker's time. It never goes back, whatever a clock or an event says."""

    def __init__(
        self, clock: Clock | None, lateness: object, max_ahead: object, longest: object = None
    ) -> None:
        if clock is not None and not callable(clock):
            raise ValidationError("clock", clock, "give a function that returns microseconds")
        self.clock = clock
        self.lateness = None if lateness is None else span(lateness, "lateness")
        self.max_ahead = span(max_ahead, "max_ahead")
        self.longest = None if longest is None else span(longest, "longest")
        self.now: Micros | None = None
        self._queue: deque[Entry] = deque()
        """In order: what ends after all that came before it, as most events do."""
        self._runs: deque[_Run] = deque()
        """What came together and in order, each behind the one before."""
        self._ends: list[Entry] = []
        """A heap of the others. What `_due` does not confirm is of something gone or renewed."""
        self._due: dict[Kind, dict[str, int]] = {kind: {} for kind in get_args(Kind)}
        """The number of the entry that counts, if that is none of a run."""
        self._void: dict[Kind, dict[str, int]] = {kind: {} for kind in get_args(Kind)}
        """Up to which number entries of runs do not count: those are the fewest."""
        self._in_runs = 0
        self._count = 0

    @property
    def hold(self) -> Micros:
        """How long patterns wait for late events."""
        return self.lateness or 0

    def present(self) -> Micros | None:
        """What time it is: the clock's, or where time has come to; None before the first."""
        if self.clock is None:
            return self.now
        read = to_micros(self.clock(), "clock")
        return read if self.now is None else max(read, self.now)

    def interval(self, event: Event, present: Micros | None) -> tuple[Micros, Micros]:
        """When an event happens; what it does not say is now. Refused if that is too far off."""
        end = event.end
        if end is None:
            end = self.end_of(event, present)
        start = end if event.start is None else event.start
        if self.longest is not None and end - start > self.longest:
            raise ValidationError(
                "end", format_micros(end),
                f"it lasts {format_seconds(end - start)} s and longest is "
                f"{format_seconds(self.longest)} s; raise Broker(longest=…)",
            )  # fmt: skip
        if present is None:
            return start, end
        if self.clock is not None and end > present + self.max_ahead:
            ahead = format_seconds(end - present)
            limit = format_seconds(self.max_ahead)
            raise ValidationError(
                "end", format_micros(end),
                f"it lies {ahead} s ahead of the clock and max_ahead is {limit} s; how long an "
                "event holds is `expires`",
            )  # fmt: skip
        if self.lateness is not None and end < present - self.lateness:
            behind = format_seconds(present - end)
            limit = format_seconds(self.lateness)
            raise ValidationError(
                "end", format_micros(end),
                f"it comes {behind} s late and lateness is {limit} s; raise Broker(lateness=…)",
            )  # fmt: skip
        return start, end

    @staticmethod
    def end_of(event: Event, present: Micros | None) -> Micros:
        """When an event ends that came at a moment: then, if it does not say."""
        if event.end is not None:
            return event.end
        return max((at for at in (present, event.start) if at is not None), default=0)

    def target(self, to: Time | None) -> Micros:
        """Where `advance` goes."""
        if self.clock is None:
            if to is None:
                raise ValidationError("to", None, "say when, for this broker has no clock")
            moment = to_micros(to, "to")
            return moment if self.now is None else max(moment, self.now)
        present = self.present()
        assert present is not None
        if to is not None and to_micros(to, "to") > present:
            raise ValidationError("to", to, "this broker follows its clock; leave `to` out")
        return present

    # -- what ends ---------------------------------------------------------------

    def ends(self, at: Micros | None, kind: Kind, id: str) -> None:
        """Something expires at a moment, whatever was said before; None is never.

        O(log n), and O(1) for what ends after the others.
        """
        due = self._due[kind]
        if id in due or self._runs:
            self.forget(kind, id)
        if at is not None:
            self._enter(at, kind, id)

    def _enter(self, at: Micros, kind: Kind, id: str) -> None:
        """Something that is new ends at a moment."""
        self._count += 1
        self._due[kind][id] = self._count
        queue = self._queue
        while queue and at < queue[-1][0]:  # of those that last long each waits here once
            heappush(self._ends, queue.pop())
        queue.append((at, self._count, kind, id))

    def ends_all(self, ats: Sequence[Micros], kind: Kind, ids: Sequence[str]) -> None:
        """`ends` for each of many that are new; those that come in order stay together.

        What ends with the others of its run costs no more than its place in it.
        """
        last = self._runs[-1].ats[-1] if self._runs else NEVER
        if ats and (ats[0] < last or any(map(gt, ats, ats[1:]))):
            for at, id in zip(ats, ids, strict=True):
                self._enter(at, kind, id)
            return
        if not ats:
            return
        numbers = range(self._count + 1, self._count + 1 + len(ats))
        self._runs.append(_Run(kind, ats, numbers, ids))
        self._in_runs += len(ats)
        self._count += len(ats)

    def forget(self, kind: Kind, id: str) -> None:
        """Something is gone before its time. O(1), now and then O(what is left)."""
        if self._due[kind].pop(id, None) is None:
            if not self._runs:
                return
            self._void[kind][id] = self._count
        void = sum(map(len, self._void.values()))
        holding = sum(map(len, self._due.values())) + max(0, self._in_runs - void)
        if len(self) + void > _FEW + 2 * holding:
            self._clear()

    def _clear(self) -> None:
        """Keep the entries that count."""
        self._ends = [*filter(self._holds, chain(self._queue, self._ends))]
        self._queue.clear()
        heapify(self._ends)
        self._runs = deque(filter(_any, map(self._counting, self._runs)))
        self._in_runs = sum(map(len, map(_ids, self._runs)))
        for known in self._void.values():
            known.clear()

    def _counting(self, run: _Run) -> _Run:
        """Those of a run that are not gone or renewed."""
        void = self._void[run.kind]
        if not void:
            return run
        ats, numbers, ids = [], [], []
        for at, number, id in zip(run.ats, run.numbers, run.ids, strict=True):
            if void.get(id, 0) < number:
                ats.append(at)
                numbers.append(number)
                ids.append(id)
        return _Run(run.kind, ats, numbers, ids)

    def ended(self, now: Micros) -> list[tuple[Kind, Sequence[str]]]:
        """What has expired by `now`, in order: some of one kind, then some of another."""
        over: list[Entry] = []
        queue, ends, runs = self._queue, self._ends, self._runs
        while queue and queue[0][0] <= now:
            over.append(queue.popleft())
        alone = not over
        if ends and ends[0][0] <= now:
            while ends and ends[0][0] <= now:
                over.append(heappop(ends))
            over.sort()
            alone = False
        found: list[tuple[Kind, Sequence[str]]] = []
        while runs and runs[0].ats[0] <= now:
            run, rest = runs.popleft().cut(now)
            if rest is not None:
                runs.appendleft(rest)
            self._in_runs -= len(run.ids)
            run = self._counting(run)
            if alone:
                found.append((run.kind, run.ids))
            else:
                self._due[run.kind].update(zip(run.ids, run.numbers, strict=True))
                over = [*merge(over, run.entries())]
        if not runs:
            for known in self._void.values():
                known.clear()
        for kind, entries in groupby(over, _kind):
            due, ids = self._due[kind], []
            for entry in entries:
                if self._holds(entry):
                    del due[entry[3]]
                    ids.append(entry[3])
            found.append((kind, ids))
        return [some for some in found if some[1]]

    def _holds(self, entry: Entry) -> bool:
        _, number, kind, id = entry
        return self._due[kind].get(id) == number

    def __len__(self) -> int:
        """How many entries are kept, those of what is gone among them."""
        return len(self._queue) + len(self._ends) + self._in_runs

    @property
    def moment(self) -> Micros:
        """Time as a number; before the first it is earlier than everything."""
        return NEVER if self.now is None else self.now


def span(value: object, field: str) -> Micros:
    """A duration that is not negative, in microseconds."""
    found = to_duration(value, field)
    if found < 0:
        raise ValidationError(field, value, "a duration is not negative")
    return found
