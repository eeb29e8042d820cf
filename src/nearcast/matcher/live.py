"""The two sides of a matcher: standing subscriptions and live events, with their ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER, NEVER
from nearcast.index.base import EventBatch, Rows
from nearcast.index.clause_runs import ClauseRuns
from nearcast.index.clauses import NO_EXTRA, ClauseBatch, ClauseStore, batch_of
from nearcast.index.columns import grown
from nearcast.index.events import EventStore
from nearcast.kernels.plain import BOXED, DENIED, NOWHERE, pack_standing, replace_beside
from nearcast.kernels.rows import pick
from nearcast.kernels.verify import few_spots_within, spots_within
from nearcast.matcher.encode import EncodedClause, EncodedEvent, Plain
from nearcast.matcher.extended import RowTree
from nearcast.matcher.ids import IdTable
from nearcast.matcher.places import search_boxes
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Box, Circle, Point, Polygon, Space
from nearcast.model.schema import Schema, X, Y

__all__ = ["Live", "Spots", "Standing"]

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]

#: Rows for which it is worth while to let others have the GIL.
_MANY = 4096
_NO_ROWS = np.empty(0, np.int32)
#: Bytes of an id that kernels of plain changes take; nobody should have longer ones.
_LINE = 64
_NO_PACK: tuple[tuple[Any, ...], Any] = (None,) * 8, None


class Hidden(NamedTuple):
    """Subscriptions that stand in their places and are not seen yet."""

    ids: IdTable
    rows: Rows
    owners: I4


class Staged(NamedTuple):
    """A change that nobody sees yet."""

    old: int
    """The row that goes, −1: none."""
    new: int
    """The row that comes, −1: none."""
    slot: int
    """The slot that becomes free with it, −1: none."""


class Spots(NamedTuple):
    """Live events with a place: their numbers, x and y; by position those that are no points."""

    numbers: I4
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    extended: dict[int, Box | Polygon]


class Standing:
    """Subscriptions: ids, expiry and their clause rows."""

    def __init__(self) -> None:
        self.store = ClauseStore()
        self.ids = IdTable("subscription", "use update_subscription to replace it")
        self.expires = np.empty(0, np.int64)
        self.expiring = False
        """Whether any subscription so far has an end."""
        self._row = np.empty(0, np.int32)
        """The only row of a slot; −1: none; −2: see `_several`."""
        self._several: dict[int, list[int]] = {}
        self._several_rows = 0
        self._in_step = True
        """Whether every row so far has the number of its slot: one clause each, none removed."""
        self._begin()

    def _begin(self) -> None:
        """What is not kept when this is: the tree, packed anew when asked for, and what passes."""
        self.staged: deque[Staged] = deque()
        """What `settle` is to let be seen."""
        self._settled: deque[Staged] = deque()
        """What it has: old rows and slots may be used again."""
        self._half_settled = False
        """Whether `settle` was interrupted."""
        self.tree = RowTree(self._boxes)
        self._line = bytearray(_LINE)
        """The id that a kernel is given; within `change` there is one at a time."""
        self._packed = _NO_PACK
        """Arrays, and the same as one, see `_pack`."""

    def __getstate__(self) -> dict[str, Any]:
        assert not self.staged
        assert not self._settled
        passing = {"staged", "_settled", "_half_settled", "tree", "_line", "_packed"}
        return {name: value for name, value in vars(self).items() if name not in passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    # -- beside who matches ----------------------------------------------------

    # One thread stages while others match, or one of them settles. So stores and ids are
    # changed by who stages only, the index by who settles only, and what was used by something
    # that may still be seen is not used again before it was settled.

    def stage(self, many: Iterable[tuple[str, int | None, EncodedClause]]) -> None:
        """Add subscriptions of one clause each, to be seen from `settle` on, all at once."""
        self.recycle()  # before a slot is chosen: others become free
        coming: list[Staged] = []
        slots: list[int] = []
        try:
            for id, expires, clause in many:
                slot = self.ids.next_slot
                if slot >= self._row.size:
                    self.expires = grown(self.expires, slot + 1)
                    self._row = grown(self._row, slot + 1)
                self.expires[slot] = FOREVER if expires is None else expires
                self.expiring = self.expiring or expires is not None
                row = self.store.append(slot, *clause)
                coming.append(Staged(-1, row, -1))
                self._in_step = self._in_step and row == slot
                self._row[slot] = row
                slots.append(self.ids.add(id))  # last: who finds it may look
        except BaseException:  # no memory, or an interrupt: none of them comes
            for staged in coming:
                self.store.release(staged.new)
            for slot in slots:
                self.ids.forget(slot)
                self.ids.free(slot)
            raise
        self.staged.extend(coming)
        self._let_go_of_tables()

    def stage_other(self, slot: int, clause: EncodedClause) -> None:
        """Replace the one clause of a subscription, to be seen from `settle` on."""
        self.recycle()
        old = self._row.item(slot)
        row = self.store.append(slot, *clause)
        self._stage(old, row, slot)

    def _stage(self, old: int, row: int, slot: int) -> None:
        self._in_step = self._in_step and row == slot
        self._row[slot] = row
        self.staged.append(Staged(old, row, -1))

    def stage_plain(self, id: str, expires: int | None, plain: Plain, schema: Schema) -> bool:
        """The same for a plain one; whether that could be done."""
        given = self._given(id, expires, plain)
        if given is None:
            return False
        numbers, place = plain
        size = numbers.shape[1] + (0 if place[0] == NOWHERE else 2)
        row = self._left_row(size, place[0])
        fresh = row < 0
        if fresh:
            if place[0] > BOXED:
                return False
            row = self.store.take_plain(size)
        slot, old = replace_beside(self._pack(schema), self.store.table.attr, *given, row)
        if slot < 0:
            if fresh:
                self.store.release(row)
            return self._refused(slot, id)
        if not fresh:
            self._settled.popleft()
        self._stage(old, row, slot)
        return True

    def _left_row(self, size: int, kind: int) -> int:
        """The row that was left first, if such a clause fits into it; −1 if not."""
        settled, t = self._settled, self.store.table
        while settled:
            row, _, slot = settled[0]
            like = row >= 0 and slot < 0 and t.count.item(row) == size
            if like and (t.extra.item(row) == NO_EXTRA) == (kind <= BOXED):
                return row
            self._recycle_one()
        return -1

    def _refused(self, why: int, id: str) -> bool:
        if why == DENIED:
            raise self.ids.unknown(id)
        return False

    def stage_removal(self, slot: int) -> None:
        """Forget a subscription of one clause, which is seen until `settle`."""
        self.recycle()
        self.ids.forget(slot)
        self.staged.append(Staged(int(self._row[slot]), -1, slot))

    def settle(self, exchange: Callable[[Rows, Rows], None]) -> None:
        """Let what was staged be seen, while nobody looks; the index exchanges rows for others.

        If that fails halfway, it is all done again.
        """
        done = len(self.staged)
        going, coming = self._balance(done)
        self._half_settled, again = True, self._half_settled
        exchange(np.concatenate([going, coming]) if again else going, coming)
        self.tree.touch(going)
        self.tree.touch(coming)
        self._half_settled = False
        for _ in range(done):
            self._settled.append(self.staged[0])
            self.staged.popleft()

    def _balance(self, done: int) -> tuple[Rows, Rows]:
        """The rows that go and those that come with so many of the staged changes."""
        if done == 1:
            old, new, _ = self.staged[0]
            return _rows_of_one(old), _rows_of_one(new)
        coming: dict[int, None] = {}
        going: list[int] = []
        for at in range(done):
            old, new, _ = self.staged[at]
            if old in coming:  # nobody has seen it
                del coming[old]
            elif old >= 0:
                going.append(old)
            if new >= 0:
                coming[new] = None
        return np.array(going, np.int32), np.array([*coming], np.int32)

    def recycle(self) -> None:
        """Let rows and slots be used again that nobody sees any more; for who stages."""
        while self._settled:
            self._recycle_one()

    def _recycle_one(self) -> None:
        old, _, slot = self._settled.popleft()
        if old >= 0:
            self.store.release(old)
        if slot >= 0:
            self.ids.free(slot)

    # -- while nobody looks ----------------------------------------------------

    def add_plain(
        self, id: str, expires: int | None, plain: Plain, schema: Schema, tiles: Any
    ) -> bool:
        """Add a subscription in one step, to the index too; whether that could be done."""
        given = self._given(id, expires, plain)
        if given is None:
            return False
        ids, store, place = self.ids, self.store, plain[1]
        size = plain[0].shape[1] + (0 if place[0] == NOWHERE else 2)
        slot = ids.make_room(_LINE)
        row, at = store.take(size)
        side = NO_EXTRA
        try:
            if slot >= self._row.size:
                self.expires = grown(self.expires, slot + 1)
                self._row = grown(self._row, slot + 1)
            if place[0] > BOXED:
                side = store.take_circle(*place[1:4])
            pack = self._pack(schema)  # now that no array will be replaced
            used, node, odd = tiles.add_plain(
                row, pack, store.table.attr, *given, ids.used, slot, at, row, side
            )
        except BaseException:  # no memory, or an interrupt: it does not come
            ids.take_back(id, slot)
            tiles.remove_clauses(np.array([row], np.int32))  # if it had come already
            self._put_back(row, at, size, side)
            raise
        if used < 0:
            self._put_back(row, at, size, side)
            if used == DENIED:
                raise ids.denied(id)
            return False
        ids.entered(id, slot, used)
        self.expiring = self.expiring or expires is not None
        self._in_step = self._in_step and row == slot
        self._finish(row, node, odd, tiles)
        return True

    def _put_back(self, row: int, at: int, size: int, side: int) -> None:
        self.store.put_back(row, at, size)
        if side != NO_EXTRA:
            self.store.put_back_circle(side)

    def move_plain(
        self, id: str, expires: int | None, plain: Plain, schema: Schema, tiles: Any
    ) -> bool:
        """Replace the one clause of a subscription likewise; raises UnknownIdError."""
        given = self._given(id, expires, plain)
        if given is None:
            return False
        row, node, odd = tiles.move_plain(self._pack(schema), self.store.table.attr, *given)
        if row < 0:
            return self._refused(row, id)
        self._finish(row, node, odd, tiles)
        return True

    def remove_plain(self, id: str, schema: Schema, tiles: Any) -> bool:
        """Forget a subscription of one plain clause likewise; raises UnknownIdError."""
        id_size = self._put(id)
        if id_size < 0:
            return False
        slot, row, start, length, cell = tiles.remove_plain(self._pack(schema), id_size)
        if slot < 0:
            return self._refused(slot, id)
        self.store.put_back(row, start, length)
        self.ids.left(slot, cell)
        self.tree.touch((row,))
        return True

    def _given(self, id: str, expires: int | None, plain: Plain) -> tuple[Any, ...] | None:
        """What the kernels of plain changes take, but for arrays; None if it is not for them."""
        numbers, place = plain
        id_size = self._put(id)
        if id_size < 0 or (place[0] > BOXED and self.store.residuals):
            return None
        until = FOREVER if expires is None else expires
        return id_size, until, numbers, *place, self.store.columns

    def _put(self, id: str) -> int:
        """Write an id where kernels find it; its size, −1 for a long one."""
        data = id.encode()
        size = len(data)
        if size > _LINE:
            return -1
        self._line[:size] = data
        return size

    def _pack(self, schema: Schema) -> Any:
        """What kernels of plain changes see; kept as long as no array is replaced."""
        t = self.store.table
        now = (t, *self.ids.arrays, self.expires, self._row, schema.low, schema.high)
        arrays, pack = self._packed
        if not all(map(is_, now, arrays)):
            pack = pack_standing(
                t.start, t.count, t.low, t.high, t.owner, t.extra, *now[1:],
                t.word_count, t.shape_start, t.shape_count, t.shape,
                np.frombuffer(self._line, np.uint8),
            )  # fmt: skip
            self._packed = now, pack
        return pack

    def _let_go_of_tables(self) -> None:
        """Do not keep tables that were replaced: the next single change may be long in coming."""
        if self._packed[0][0] is not self.store.table:
            self._packed = _NO_PACK

    def _finish(self, row: int, node: int, odd: bool, tiles: Any) -> None:
        self.tree.touch((row,))
        if node >= 0:
            try:
                tiles.enter_late(row, node, odd)
            except BaseException:  # no memory, or an interrupt: to be done again
                self.staged.append(Staged(-1, row, -1))
                self._half_settled = True
                raise

    def add(self, id: str, expires: int | None, clauses: Sequence[EncodedClause]) -> Rows:
        """Add one subscription; returns its rows."""
        slot = self.ids.add(id)
        rows = [self.store.append(slot, *clause) for clause in clauses]
        self._let_go_of_tables()
        self._enter(slot, expires, rows)
        return np.array(rows, np.int32)

    def _enter(self, slot: int, expires: int | None, rows: list[int]) -> None:
        self.expires = grown(self.expires, self.ids.slots)
        self._row = grown(self._row, self.ids.slots)
        self.expires[slot] = FOREVER if expires is None else expires
        self.expiring = self.expiring or expires is not None
        self._in_step = self._in_step and rows in ([slot], [])
        if len(rows) == 1:
            self._row[slot] = rows[0]
        elif not rows:
            self._row[slot] = -1
        else:
            self._row[slot] = -2
            self._several[slot] = rows
            self._several_rows += len(rows)
        self.tree.touch(rows)

    def extend(self, pieces: Sequence[ClauseBatch], runs: Sequence[ClauseRuns]) -> Rows:
        """Put many clauses in their places, where nobody sees them before they are shown.

        They come as pieces, or as runs that may wait.
        """
        self._packed = _NO_PACK  # arrays are replaced, perhaps long before the next single change
        if runs:
            rows = self.store.put_off(runs)
            if rows is not None:
                return rows
            pieces = [batch_of(each) for each in runs]
        self.store.reserve(sum(p.size for p in pieces), sum(p.attr.size for p in pieces))
        hidden = [p._replace(owner=np.full(p.size, -1, np.int32)) for p in pieces]
        return np.concatenate([_NO_ROWS, *(self.store.extend(piece) for piece in hidden)])

    def add_many(
        self, ids: IdTable, expires: I8, positions: I4 | None, rows: Rows, slots: I4
    ) -> Hidden:
        """Enter subscriptions whose clauses `extend` put into rows and whose ids have slots.

        `positions` say of which of them each row is; None: one row each, in their order.
        `ids` are the table, or a copy of it that will be.
        """
        self.expires = grown(self.expires, ids.slots)
        self._row = grown(self._row, ids.slots)
        self.expires[_span(slots)] = expires
        self.expiring = self.expiring or bool((expires != FOREVER).any())
        owners = slots if positions is None else slots[positions]
        self._in_step = self._in_step and np.array_equal(rows, owners)
        if positions is None:
            self._row[_span(slots)] = rows
            return Hidden(ids, rows, owners)
        self._row[slots] = -1
        if positions.size > slots.size or not _ascending(positions):
            counts = np.bincount(positions, minlength=slots.size)
            several = counts[positions] > 1
            for slot, row in zip(owners[several].tolist(), rows[several].tolist(), strict=True):
                self._several.setdefault(slot, []).append(row)
                self._several_rows += 1
            self._row[owners] = np.where(several, -2, rows)
        else:
            self._row[owners] = rows
        return Hidden(ids, rows, owners)

    def forget(self, first: int, free: list[int], slots: I4) -> None:
        """Undo as much of `add_many` as was done, before which there were these free rows."""
        if self.store.take_back(first):
            return
        taken = set(free).difference(self.store.free_rows())
        for row in (*taken, *range(first, self.store.rows)):
            self.store.release(row)
        for slot in slots.tolist():
            self._several_rows -= len(self._several.pop(slot, ()))

    def show(self, hidden: Hidden) -> None:
        """Let what `add_many` entered be seen."""
        rows = hidden.rows
        self.ids = hidden.ids
        self.store.own(rows, hidden.owners)
        if rows.size > 4096:
            self.tree.forget()
        else:
            self.tree.touch(rows.tolist())

    def slots_of(self, rows: Rows) -> Rows:
        """The subscriptions of clause rows; perhaps the same array."""
        return rows if self._in_step else _picked(self.store.table.owner, rows)

    def rows_of(self, slot: int) -> list[int]:
        """The clause rows of a subscription."""
        row = int(self._row[slot])
        if row >= 0:
            return [row]
        return [] if row == -1 else self._several[slot]

    def remove(self, slot: int) -> None:
        """Free a subscription's rows and its id."""
        rows = self.rows_of(slot)
        for row in rows:
            self.store.release(row)
        self.tree.touch(rows)
        self._several_rows -= len(self._several.pop(slot, ()))
        self.ids.remove(slot)

    @property
    def one_row_each(self) -> bool:
        """Whether no subscription has several rows, so that no pair can come twice."""
        return not self._several

    def _boxes(self) -> tuple[I4, npt.NDArray[np.float64]]:
        """Rows with a region, and their boxes."""
        return self.store.placed(self.store.live_rows())

    def memory(self) -> dict[str, int]:
        """Bytes by part."""
        t = self.store.table
        regions = sum(int(a.nbytes) for a in (t.shape, t.shape_start, t.shape_count))
        ids = self.ids.memory_bytes() + int(self.expires.nbytes) + int(self._row.nbytes)
        several = 200 * len(self._several) + 36 * self._several_rows
        return {
            "clauses": self.store.memory_bytes() - regions + several,
            "regions": regions,
            "ids": ids,
        }

    def check_invariants(self) -> None:
        """Ids, rows and owners agree."""
        self.store.check_invariants()
        self.ids.check_invariants()
        owned: list[int] = []
        for slot in set(range(self.ids.slots)) - set(self.ids.free_slots()):
            rows = self.rows_of(slot)
            assert all(self.store.table.owner[row] == slot for row in rows)
            owned += rows
        assert sorted(owned) == self.store.live_rows().tolist()


class Live:
    """Live events: ids and rows; extended locations stand beside."""

    def __init__(self, schema: Schema, space: Space) -> None:
        self.store = EventStore()
        self.ids = IdTable("event", "remove it first")
        self._schema = schema
        self._space = space
        self._row = np.empty(0, np.int32)
        self.extended: dict[int, Box | Polygon] = {}
        """Row → location, where it is not a point."""
        self._corners = 0
        self.now = NEVER
        """The latest time that anybody gave."""
        self._begin()

    def _begin(self) -> None:
        """What is not kept when this is: the tree, packed anew when asked for, and a lock."""
        self.tree = RowTree(self._boxes)
        self._telling = Lock()

    def __getstate__(self) -> dict[str, Any]:
        passing = {"tree", "_telling"}
        return {name: value for name, value in vars(self).items() if name not in passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def add(self, event: Event, encoded: EncodedEvent) -> int:
        """Add one event; returns its row."""
        slot = self.ids.add(event.id)
        self._row = grown(self._row, self.ids.slots)
        row = self.store.append(slot, *encoded, event.expires)
        self._row[slot] = row
        if isinstance(event.location, Box | Polygon):
            self.extended[row] = event.location
            self._corners += _corners(event.location)
            self.tree.touch([row])
        return row

    def add_many(self, slots: I4, batch: EventBatch, expires: I8) -> Rows:
        """Enter many events with point locations whose ids have slots."""
        self._row = grown(self._row, self.ids.slots)
        rows = self.store.extend(slots, batch, expires)
        self._row[slots] = rows
        return rows

    def slots_of(self, rows: Rows) -> I4:
        """The slots of event rows."""
        return _picked(self.store.table.slot, rows)

    def spots(self, rows: Rows) -> Spots:
        """The places of event rows; those without one are left out, extended ones come last."""
        t = self.store.table
        first = t.start[rows]
        pointed = t.count[rows] >= 2
        pointed[pointed] = t.attr[first[pointed]] == X
        points, others = rows[pointed], _NO_ROWS
        extended: dict[int, Box | Polygon] = {}
        if self.extended and points.size < rows.size:
            others = np.array([e for e in rows[~pointed].tolist() if e in self.extended], np.int32)
            extended = {points.size + i: self.extended[e] for i, e in enumerate(others.tolist())}
        x, y = np.full((2, points.size + others.size), np.nan)
        x[: points.size], y[: points.size] = t.value[first[pointed]], t.value[first[pointed] + 1]
        return Spots(self.slots_of(np.concatenate([points, others])), x, y, extended)

    def spots_within(self, rows: Rows, circle: Circle, now: int, space: Space) -> Spots:
        """The places of those event rows that are points in a circle and have not expired."""
        given = circle.x, circle.y, circle.radius_m, space == "globe"
        within = spots_within if rows.size > _MANY else few_spots_within
        slots, x, y = within(self.store.table, rows, now, *given)
        return Spots(slots, x, y, {})

    def row_of(self, slot: int) -> int:
        """The row of an event."""
        return int(self._row[slot])

    def at(self, now: int) -> int:
        """The time to match at: `now`, but not before the latest that anybody gave."""
        if now > self.now:
            with self._telling:  # several may match at once
                self.now = max(self.now, now)
        return self.now

    def expired(self, slot: int) -> bool:
        """Whether an event has expired, as far as time has come."""
        return bool(self.store.table.expires[self._row[slot]] <= self.now)

    def remove(self, slot: int) -> None:
        """Free an event's row and its id."""
        row = int(self._row[slot])
        location = self.extended.pop(row, None)
        if location is not None:
            self._corners -= _corners(location)
            self.tree.touch([row])
        self.store.release(row)
        self.ids.remove(slot)

    def _boxes(self) -> tuple[I4, npt.NDArray[np.float64]]:
        found = [
            (row, box)
            for row, location in self.extended.items()
            for box in search_boxes(location, self._space)
        ]
        rows = np.array([row for row, _ in found], np.int32)
        return rows, np.array([box for _, box in found], np.float64).reshape(-1, 4)

    def event(self, row: int) -> Event:
        """The event of a row, decoded; numbers come back as floats, times are left out."""
        t = self.store.table
        start, stop = int(t.start[row]), int(t.start[row]) + int(t.count[row])
        attributes: dict[str, Value] = {}
        place: dict[int, float] = {}
        pairs: Iterable[Any] = zip(
            t.attr[start:stop].tolist(), t.value[start:stop].tolist(), strict=True
        )
        for column, value in pairs:
            if column in (X, Y):
                place[column] = value
                continue
            name, type_ = self._schema.columns[column]
            if type_ == "string":
                attributes[name] = self._schema.string_of(int(value))
            elif type_ != "letters":  # those say nothing that the string does not
                attributes[name] = bool(value) if type_ == "bool" else value
        first = int(t.word_start[row])
        words = t.word[first : first + int(t.word_count[row])].tolist()
        location = Point(place[X], place[Y]) if place else self.extended.get(row)
        return Event(
            id=self.ids.id_of(int(t.slot[row])),
            attributes=attributes,
            keywords=frozenset(self._schema.word_of(code) for code in words),
            location=location,
        )

    def memory_bytes(self) -> int:
        """Bytes of stores, ids and extended locations."""
        beside = 300 * len(self.extended) + 120 * self._corners
        return beside + self.store.memory_bytes() + self.ids.memory_bytes() + self._row.nbytes

    def check_invariants(self) -> None:
        """Ids and rows agree."""
        self.store.check_invariants()
        self.ids.check_invariants()
        for row in self.store.live_rows().tolist():
            assert self._row[self.store.table.slot[row]] == row


def _rows_of_one(row: int) -> Rows:
    return np.array((row,), np.int32) if row >= 0 else _NO_ROWS


def _span(slots: I4) -> slice | I4:
    """The same as a slice, if they follow each other: memory is then written as it lies."""
    size = slots.size
    if size and int(slots[-1]) - int(slots[0]) == size - 1 and _ascending(slots):
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return slots


def _ascending(numbers: I4) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def _picked(values: I4, rows: Rows) -> I4:
    if rows.size > _MANY:
        return values[rows]
    out = np.empty(rows.size, np.int32)
    pick(values, rows, out)
    return out


def _corners(location: Box | Polygon) -> int:
    return 4 if isinstance(location, Box) else sum(len(ring) for ring in location.rings)
