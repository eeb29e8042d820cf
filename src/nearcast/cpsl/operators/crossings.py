"""`ENTER`, `EXIT`, `DWELL`, `APPROACH`: what objects do at a border.

An object is what the `&` variables of the operand stand for; an instance of the operand that is
somewhere is a position of it. Who is in and who is out the fence operator knows
(`nearcast.fences.borders`): `Positions` feeds it, for all borders over one operand at once, and
hands each transition to the `Border` it happened at. Here is kept only what detections are made
of: the position since which an object is outside or inside.

For an object that never came near a border that is its first position, which all borders share.
So the state is a row for each object, and one more for each border that it has been at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nearcast.clock import Micros
from nearcast.cpsl.instances import Instance, corners
from nearcast.cpsl.operators.node import Node, Run
from nearcast.cpsl.operators.repetition import Key, key_of, together
from nearcast.cpsl.operators.spatial import region_shape
from nearcast.fences.borders import DOUBTED, ENTERED, LEFT, Borders
from nearcast.model.geometry import Circle, Location, Point, Polygon

__all__ = ["BORDERS", "Border", "Positions"]

#: The kinds of plans that are borders.
BORDERS = ("enter", "exit", "dwell", "approach")


def _place_of(instance: Instance) -> Location | None:
    """Where an instance is: a plain event's own place, or the hull of several, be it flat."""
    if instance.event is not None:
        return instance.event.location
    shape = instance.shape
    if shape is None:
        return None
    ring = list(map(tuple, corners(shape).tolist()))
    return Point(*ring[0]) if len(ring) == 1 else Polygon.checked(tuple(ring), ())


class _Track:
    """An object: its row, when it was seen last, and a position of it.

    That is its first one; in `recent`, its last.
    """

    __slots__ = ("end", "row", "seen")

    def __init__(self, row: int, end: Micros, seen: Instance) -> None:
        self.row = row
        self.end = end
        self.seen = seen


class Positions(Node):
    """The objects that an operand speaks of, for all borders over it that came together.

    At most `max_pending` of them: then the one that was silent longest is forgotten.
    """

    __slots__ = ("borders", "group", "mode", "tracks", "watching")
    stateful = True

    def __init__(
        self, names: tuple[str | None, ...], height: int, mode: str, borders: Borders
    ) -> None:
        super().__init__(names, height, 0)
        self.mode = mode
        self.borders = borders
        self.group = borders.open_group()
        self.tracks: dict[Key, _Track] = {}  # who was seen last comes last
        self.watching: dict[int, Border] = {}

    def watch(self, border: Border, globe: bool) -> None:
        """A border begins, before the first position."""
        border.row = self.borders.add(self.group, **border.ground(globe))
        border.positions = self
        self.watching[border.row] = border

    def unwatch(self, border: Border) -> None:
        """A border is over; the last one closes the place."""
        del self.watching[border.row]
        self.borders.remove(border.row)
        if not self.watching:
            for track in self.tracks.values():
                self.borders.close_track(track.row)
            self.tracks.clear()
            self.borders.close_group(self.group)

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        place = _place_of(instance)
        if place is None:
            return
        key = key_of(instance)
        track = self.tracks.pop(key, None)
        before = None
        if track is None:
            if len(self.tracks) >= run.max_pending:
                self._forget_one(run)
            track = _Track(self.borders.open_track(self.group), instance.end, instance)
        elif instance.end < track.end:
            self.tracks[key] = track
            return
        else:
            before = track.seen
        self.tracks[key] = track
        track.end = instance.end
        for row, what in self.borders.take(track.row, instance.end, place):
            self.watching[row].told(what, key, before, instance, run)
        if self.mode == "recent":
            track.seen = instance

    def _forget_one(self, run: Run) -> None:
        key = next(iter(self.tracks))
        self.borders.close_track(self.tracks.pop(key).row)
        for border in self.watching.values():
            border.forget(key)
        run.overflow()

    def keys(self) -> dict[int, Key]:
        """The objects by row."""
        return {track.row: key for key, track in self.tracks.items()}

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return [(0, track.seen) for track in self.tracks.values()]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return [(key, track.end, track.seen) for key, track in self.tracks.items()] or None

    def clear(self) -> None:
        """Forget everything that waits here."""
        for track in self.tracks.values():
            self.borders.close_track(track.row)
        self.tracks.clear()

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        for key, end, seen in state:
            self.tracks[key] = _Track(self.borders.open_track(self.group, end), end, seen)


class _Visit(NamedTuple):
    """An object is inside: who came from where, until when it must stay, and whose turn it is."""

    opener: Instance
    closer: Instance
    due: Micros
    age: int
    turn: int


class Border(Node):
    """One of the four operators: fires when an object crosses, or has stayed.

    The opener of a crossing is the position since which the object was on the other side; in
    `recent` the last one there.
    """

    __slots__ = ("_armed", "_since", "_tokens", "_visits", "kind", "mode", "params", "positions",
                 "row")  # fmt: skip
    stateful = True

    def __init__(
        self, height: int, tie: int, kind: str, params: tuple[Any, ...], mode: str
    ) -> None:
        super().__init__((None,), height, tie)
        self.kind = kind
        self.params = params
        self.mode = mode
        self.row = -1
        self.positions: Positions | None = None
        self._since: dict[Key, Instance | None] = {}
        """Where an object is that does not stand at the track's own position: since when it is on
        the side from which a crossing begins; None where that is not known."""
        self._visits: dict[Key, _Visit] = {}
        self._armed: dict[Key, int] = {}
        """The token of the one timer that an object has at most, of dwells."""
        self._tokens: dict[int, Key] = {}

    def ground(self, globe: bool) -> dict[str, Any]:
        """What the fence operator wants to know."""
        margin = self.params[1]
        wider = self.params[2] if self.kind == "approach" else 0.0
        doubts = self.kind != "exit"
        ring = list(map(tuple, corners(region_shape(self.params[0])).tolist()))
        if len(ring) == 1:
            x, y = ring[0]
            turned = (x + 180.0) % 360.0 - 180.0 if globe and abs(x) > 180.0 else x
            region = Circle(turned, y, wider)
            return {"region": region, "margin_m": margin, "doubts": doubts}
        polygon = Polygon.checked(tuple(ring), ())
        return {"region": polygon, "margin_m": margin, "wider_m": wider, "doubts": doubts}

    # -- what happens ----------------------------------------------------------------

    def told(
        self, what: int, key: Key, before: Instance | None, instance: Instance, run: Run
    ) -> None:
        """A transition of an object by a position; `before` is the one that its track had."""
        recent = self.mode == "recent"
        if self.kind == "exit":
            if what == ENTERED:
                if not recent:
                    self._since[key] = instance
            else:
                opener = before if recent else self._since.pop(key)
                assert opener is not None
                run.emit(self, together([opener, instance], key, run))
            return
        if what == ENTERED:
            opener = self._since.pop(key, before)
            if opener is not None:
                self._entered(key, opener, instance, run)
            return
        if what == LEFT:
            self._visits.pop(key, None)
        if what == DOUBTED:
            self._since[key] = None
        elif recent:
            self._since.pop(key, None)
        else:
            self._since[key] = instance

    def _entered(self, key: Key, opener: Instance, closer: Instance, run: Run) -> None:
        if self.kind != "dwell":
            run.emit(self, together([opener, closer], key, run))
            return
        due = closer.end + self.params[2]
        visit = _Visit(opener, closer, due, run.step, run.turn())
        if due < run.now:
            self._fire(key, visit, run)
            return
        self._visits[key] = visit
        if key not in self._armed:
            self._arm(key, visit, run)

    def _arm(self, key: Key, visit: _Visit, run: Run) -> None:
        self._armed[key] = visit.turn
        self._tokens[visit.turn] = key
        run.wake(visit.due, self, visit.age, visit.turn, visit.turn)

    def timed(self, token: int, run: Run) -> None:
        """A time event that the node asked for: of this visit, or of one that is over."""
        key = self._tokens.pop(token, None)
        if key is None:
            return  # of an object that was forgotten
        del self._armed[key]
        visit = self._visits.get(key)
        if visit is None:
            return
        if visit.turn != token:
            self._arm(key, visit, run)
            return
        del self._visits[key]
        self._fire(key, visit, run)

    def _fire(self, key: Key, visit: _Visit, run: Run) -> None:
        whole = together([visit.opener, visit.closer], key, run)
        whole.end = visit.due
        run.emit(self, whole)

    def forget(self, key: Key) -> None:
        """Nothing is known of an object any more."""
        self._since.pop(key, None)
        self._visits.pop(key, None)
        self._tokens.pop(self._armed.pop(key, -1), None)

    # -- state -----------------------------------------------------------------------

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        found = [(0, instance) for instance in self._since.values() if instance is not None]
        for visit in self._visits.values():
            found += [(0, visit.opener), (0, visit.closer)]
        return found

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        assert self.positions is not None
        keys = self.positions.keys()
        held = [(keys[row], inside) for row, inside in self.positions.borders.held(self.row)]
        visits = [(key, tuple(visit)) for key, visit in self._visits.items()]
        parts = (held, list(self._since.items()), visits, list(self._armed.items()))
        return parts if any(parts) else None

    def clear(self) -> None:
        """Forget everything that waits here."""
        for known in (self._since, self._visits, self._armed, self._tokens):
            known.clear()

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave; the positions have theirs already."""
        assert self.positions is not None
        held, since, visits, armed = state
        for key, inside in reversed(held):
            self.positions.borders.recall(self.row, self.positions.tracks[key].row, inside)
        self._since = dict(since)
        self._visits = {key: _Visit(*visit) for key, visit in visits}
        self._armed = dict(armed)
        self._tokens = {token: key for key, token in armed}

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        assert self.positions is not None
        objects = self.positions.tracks
        assert self._since.keys() <= objects.keys(), "knows an object that is forgotten"
        for key, visit in self._visits.items():
            assert visit.due >= now, "waits though its stay is over"
            assert key in self._armed, "nobody will tell when its stay is over"
        assert len(self._tokens) == len(self._armed)
