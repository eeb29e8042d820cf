"""The fences of a watch by rows: numbers instead of values, from which each can be said again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from nearcast.clock import FOREVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Group, Groups, key_of
from nearcast.fences.kernels import ground
from nearcast.fences.kernels import tables as t
from nearcast.fences.regions import boxes_of, region_of, roaming_floats
from nearcast.index.columns import Spans
from nearcast.matcher.ids import IdTable
from nearcast.matcher.places import Bounds, shape_floats
from nearcast.model.fences import TRANSITIONS, Fence
from nearcast.model.geometry import Around, Space
from nearcast.model.terms import Terms

__all__ = ["Roll", "micros"]

_MICROSECOND = timedelta(microseconds=1)
#: Fences that were told of lately, whose names are kept as strings: 20 MB.
_MOST_TOLD = 131_072


class Roll:
    """Fences in and out of the arrays. A fence takes some 350 bytes, where its value takes 900."""

    def __init__(self, space: Space, arrays: Arrays, groups: Groups) -> None:
        self._space: Space = space
        self._arrays = arrays
        self._groups = groups
        self._ids = IdTable("fence", "remove it first")
        self._floats, self._boxes, self._runs = Spans(), Spans(), Spans()
        self._classes: list[int] = []
        """Rows of classes that are free."""
        self._class_count = 0
        self._subscribers = Subscribers()
        self._group_of: dict[int, Group] = {}
        """By the row of a group."""
        self._roaming: dict[int, Around] = {}
        self._terms: dict[int, Terms] = {}
        self._told: dict[int, tuple[str, str | None]] = {}
        self.numbered = 0
        """How many fences there ever were."""

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._ids.get(id) >= 0

    def rows(self) -> Iterator[int]:
        """The rows of all, in the order in which they came."""
        tables = self._arrays.tables
        used = tables.fences[: self._ids.slots, t.GROUP] >= 0
        rows = used.nonzero()[0]
        return iter(rows[tables.terms[rows, t.NUMBER].argsort()].tolist())

    def row_of(self, id: str) -> int:
        """The row of a fence that is there."""
        return self._ids.find(id)

    def group_of(self, row: int) -> Group:
        """What counts for a fence."""
        return self._group_of[int(self._arrays.tables.fences[row, t.GROUP])]

    def named(self, row: int) -> tuple[str, str | None]:
        """The id of a fence, and whose it is."""
        found = self._told.get(row)
        if found is None:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            who = self._subscribers.name_of(self._arrays.tables.fences.item(row, t.WHO))
            found = self._told[row] = self._ids.id_of(row), who
        return found

    def named_all(self, rows: Sequence[int]) -> list[tuple[str, str | None]]:
        """`named` of each."""
        try:
            return [*map(self._told.__getitem__, rows)]
        except KeyError:
            return [*map(self.named, rows)]

    def fence(self, row: int) -> Fence:
        """The fence of a row, said anew."""
        tables = self._arrays.tables
        kind, offset, group, flags, *_, who = tables.fences[row].tolist()
        dwell, lost, _, _, _, ends = tables.terms[row].tolist()
        region = self._roaming.get(row) or region_of(kind, tables.floats, offset)
        return Fence.said(
            self._ids.id_of(row), self._subscribers.name_of(who), self._group_of[group].key,
            self._group_of[group].filter, region,
            frozenset(name for bit, name in enumerate(TRANSITIONS) if flags >> bit & 1),
            float(tables.margins[row]), _span(dwell), _span(lost),
            None if ends == FOREVER else ends, self._terms.get(row),
        )  # fmt: skip

    # -- in ------------------------------------------------------------------------

    def open(self, fence: Fence) -> Group:
        """A new group, for a fence whose positions none counts yet."""
        group = self._groups.add(key_of(fence), fence.filter)
        self._arrays.reserve(groups=group.row + 1)
        row = self._arrays.tables.groups[group.row]
        row[:] = 0
        row[[t.OUT_HEAD, t.CLASS_HEAD, t.LONGEST, t.WIDTH]] = -1
        return group

    def enter(self, fence: Fence, group: Group, seq: int, now: Micros) -> int:
        """The row of a new fence, which stands in the grid from now on if it stays there."""
        region, around = fence.region, isinstance(fence.region, Around)
        flags = sum(1 << TRANSITIONS.index(name) for name in fence.on)
        if fence.margin_m and flags & (t.CROSS | t.OUTSIDE):
            flags |= t.DOUBTS
        if isinstance(region, Around):
            kind, floats = roaming_floats(region)
            boxes: list[Bounds] = []
            flags |= t.TURNS if region.turns else 0
        else:
            kind, floats = shape_floats(region)
            margin = fence.margin_m if flags & t.DOUBTS else 0.0
            boxes = boxes_of(region, margin, self._space)
        row = self._ids.add(fence.id)
        twice = 2 if flags & t.CROSS else 1
        reserved = 3 if around else len(boxes)
        offset = self._floats.take(len(floats))
        box, run = self._boxes.take(reserved), self._runs.take(reserved * twice)
        self._arrays.reserve(
            fences=row + 1, terms=row + 1, margins=row + 1, floats=self._floats.used,
            boxes=self._boxes.used, entries=4 * self._runs.used,
        )  # fmt: skip
        self._arrays.cells(4 * reserved * twice)
        tables = self._arrays.tables
        self.numbered += 1
        tables.fences[row] = (
            kind, offset, group.row, flags, -1, not around, -1, -1, box, len(boxes), run,
            self._subscribers.number_of(fence.subscriber),
        )  # fmt: skip
        tables.terms[row] = (
            micros(fence.dwell), micros(fence.lost), seq, now, self.numbered,
            FOREVER if fence.expires is None else fence.expires,
        )  # fmt: skip
        tables.margins[row] = fence.margin_m
        tables.floats[offset : offset + len(floats)] = floats
        for i, bounds in enumerate(boxes):
            tables.boxes[box + i] = bounds
        if isinstance(region, Around):
            self._roaming[row] = region
        else:
            ground.stand(self._arrays.packed, row)
        if fence.terms is not None:
            self._terms[row] = fence.terms
        self._group_of[group.row] = group
        group.members += 1
        tables.groups[group.row, t.MEMBERS] += 1
        if flags & t.OUTSIDE:
            tables.fences[row, t.OUT_NEXT] = tables.groups[group.row, t.OUT_HEAD]
            tables.groups[group.row, t.OUT_HEAD] = row
            tables.groups[group.row, t.OUTS] += 1
        if fence.lost is not None:
            self._classify(row, group, micros(fence.lost))
        self._set_longest(group)
        return row

    def _classify(self, row: int, group: Group, span: int) -> None:
        """Enter a fence into the class of those that wait as long for a sign of life."""
        kind, count = group.spans.get(span, (-1, 0))
        if kind < 0:
            kind = self._classes.pop() if self._classes else self._class_count
            self._class_count = max(self._class_count, kind + 1)
            self._arrays.reserve(classes=kind + 1)
        tables = self._arrays.tables
        if not count:
            tables.classes[kind] = span, -1, -1
            group.spans[span] = kind, 0
            self._chain(group)
        tables.fences[row, t.CLASS_NEXT] = tables.classes[kind, t.FIRST]
        tables.classes[kind, t.FIRST] = row
        group.spans[span] = kind, count + 1

    def _chain(self, group: Group) -> None:
        """Link the classes of a group, shortest first."""
        tables = self._arrays.tables
        after = -1
        for span in sorted(group.spans, reverse=True):
            kind, _ = group.spans[span]
            tables.classes[kind, t.CLASS_AFTER] = after
            after = kind
        tables.groups[group.row, t.CLASS_HEAD] = after

    def _set_longest(self, group: Group) -> None:
        waiting = sum(count for _, count in group.spans.values())
        all_wait = group.members == waiting and waiting > 0
        longest = max(group.spans) if all_wait else -1
        self._arrays.tables.groups[group.row, t.LONGEST] = longest

    # -- out -----------------------------------------------------------------------

    def leave(self, fence: Fence, row: int) -> Group:
        """A fence is over, and its pairs are; the group it was of, be it without members now."""
        group = self._groups.get(key_of(fence))
        assert group is not None
        tables = self._arrays.tables
        ground.leave(self._arrays.packed, row)
        kind = -1
        if fence.lost is not None:
            span = micros(fence.lost)
            kind, count = group.spans[span]
            group.spans[span] = kind, count - 1
        ground.unlist(self._arrays.packed, row, kind)
        if kind >= 0 and not group.spans[span][1]:
            del group.spans[span]
            self._classes.append(kind)
            self._chain(group)
        self._give_back(fence, row)
        self._subscribers.leave(int(tables.fences[row, t.WHO]))
        tables.fences[row, t.GROUP] = -1
        self._told.pop(row, None)
        self._roaming.pop(row, None)
        self._terms.pop(row, None)
        self._ids.remove(row)
        group.members -= 1
        tables.groups[group.row, t.MEMBERS] -= 1
        self._set_longest(group)
        return group

    def _give_back(self, fence: Fence, row: int) -> None:
        tables = self._arrays.tables
        offset, box, run = tables.fences[row, [t.OFFSET, t.BOX, t.RUN]].tolist()
        if isinstance(fence.region, Around):
            size, reserved = len(roaming_floats(fence.region)[1]), 3
        else:
            size = len(shape_floats(fence.region)[1])
            margin = fence.margin_m if tables.fences[row, t.FLAGS] & t.DOUBTS else 0.0
            reserved = len(boxes_of(fence.region, margin, self._space))
        twice = 2 if tables.fences[row, t.FLAGS] & t.CROSS else 1
        self._floats.give_back(offset, size)
        self._boxes.give_back(box, reserved)
        self._runs.give_back(run, reserved * twice)

    def nbytes(self) -> int:
        """Bytes of ids."""
        return self._ids.memory_bytes()


class Subscribers:
    """Names as numbers, as long as somebody has them; −1 for nobody."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def number_of(self, name: str | None) -> int:
        """The number of a name, for one more fence."""
        if name is None:
            return -1
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                self._counts.append(0)
            self._numbers[name] = number
        self._counts[number] += 1
        return number

    def name_of(self, number: int) -> str | None:
        """Whose number it is."""
        return None if number < 0 else self._names[number]

    def leave(self, number: int) -> None:
        """One fence less."""
        if number < 0:
            return
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._names[number]]
            self._names[number] = ""
            self._free.append(number)


def micros(span: timedelta | None) -> Micros:
    """Microseconds; −1 for none."""
    return -1 if span is None else span // _MICROSECOND


def _span(length: int) -> Any:
    return None if length < 0 else timedelta(microseconds=length)
