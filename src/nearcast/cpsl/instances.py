"""Instances: what flows through the detection graph, and the events they become.

An instance is a plain event, or a composition of instances. Compositions are hulls in time
and in space; the spatial hull is computed when somebody asks for it, and once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.cpsl.lineage import Lineage
from nearcast.errors import ValidationError
from nearcast.kernels import geometry
from nearcast.kernels.arrange import frozen
from nearcast.matcher.places import shape_floats
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Box, Location, Point, Polygon

__all__ = [
    "Bindings",
    "CompositeEvent",
    "Detection",
    "GlobeInstance",
    "Instance",
    "Known",
    "Open",
    "Shape",
    "compose",
    "merged",
]

#: kind and floats, as in `nearcast.kernels.geometry`.
Shape: TypeAlias = tuple[int, npt.NDArray[np.float64]]
#: What variables stand for: `&x` a typed value, `$x` the serial of an instance.
Bindings: TypeAlias = Mapping[str, Any]
#: A comparison that waits for its variable: left value, test, variable.
Open: TypeAlias = tuple[Any, Any, str]
#: What instances know together: their bindings, and the comparisons that still wait.
Known: TypeAlias = tuple[Bindings, tuple[Open, ...]]

_NO_BINDINGS: Bindings = {}
_NOTHING_KNOWN: Known = (_NO_BINDINGS, ())
_NO_VALUES: Mapping[str, Value] = MappingProxyType({})
_NO_WORDS: frozenset[str] = frozenset()


class Instance:
    """One occurrence of an expression. Equal serials mean the same occurrence."""

    __slots__ = ("_shape", "bindings", "end", "event", "members", "opens", "serial", "start")

    def __init__(
        self,
        serial: int,
        start: Micros,
        end: Micros,
        event: Event | None = None,
        members: tuple[Instance, ...] = (),
        bindings: Bindings = _NO_BINDINGS,
        opens: tuple[Open, ...] = (),
    ) -> None:
        self.serial = serial
        self.start = start
        self.end = end
        self.event = event
        self.members = members
        self.bindings = bindings
        self.opens = opens
        self._shape: Shape | bool | None = False

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.serial, self.start, self.end, self.event, self.members)
        return (type(self), (*fields, dict(self.bindings), self.opens))

    def bound(self, name: str) -> Instance:
        """The same occurrence, known as `$name;` too."""
        bindings = {**self.bindings, "$" + name: self.serial}
        return self.knowing(bindings, self.opens)

    def knowing(self, bindings: Bindings, opens: tuple[Open, ...]) -> Instance:
        """The same occurrence with other bindings."""
        twin = type(self)(
            self.serial, self.start, self.end, self.event, self.members, bindings, opens
        )
        twin._shape = self._shape
        return twin

    @property
    def point(self) -> Point | None:
        """The place of a plain event that is at a point."""
        event = self.event
        if event is None:
            return None
        location = event.location
        return location if isinstance(location, Point) else None

    @property
    def shape(self) -> Shape | None:
        """The place: the event's own, or the convex hull of the members'. Computed once."""
        shape = self._shape
        if isinstance(shape, bool):
            shape = self._shape = self._find_shape()
        return shape

    def _find_shape(self) -> Shape | None:
        if self.event is not None:
            location = self.event.location
            if location is None:
                return None
            kind, floats = shape_floats(location)
            return kind, np.array(floats)
        shapes = [shape for member in self.members if (shape := member.shape) is not None]
        return self._hull(shapes)

    def _hull(self, shapes: list[Shape]) -> Shape | None:
        return hull_of(shapes)

    def events(self) -> list[Event]:
        """The plain events this is made of, each once, in time order (then in order of arrival)."""
        if self.event is not None:
            return [self.event]
        found: dict[tuple[Micros, Micros, int], Event] = {}
        waiting: list[Instance] = list(self.members)
        while waiting:
            instance = waiting.pop()
            if instance.event is not None:
                found[instance.end, instance.start, instance.serial] = instance.event
            else:
                waiting += instance.members
        return [found[key] for key in sorted(found)]


class GlobeInstance(Instance):
    """An instance on the globe: a hull is taken round the first place, whatever the longitude."""

    __slots__ = ()

    def _hull(self, shapes: list[Shape]) -> Shape | None:
        if len(shapes) < 2:
            return hull_of(shapes)
        middle = float(corners(shapes[0])[0, 0])
        turned = []
        for shape in shapes:
            ring = corners(shape)
            turns = round((middle - float(ring[0, 0])) / 360.0)
            turned.append(shape_of(ring + np.array([360.0 * turns, 0.0])))
        return hull_of(turned)


def compose(
    serial: int,
    members: tuple[Instance, ...],
    bindings: Bindings = _NO_BINDINGS,
    opens: tuple[Open, ...] = (),
) -> Instance:
    """The hull of some instances."""
    start, end = members[0].start, members[0].end
    for member in members[1:]:
        if member.start < start:
            start = member.start
        if member.end > end:
            end = member.end
    return type(members[0])(serial, start, end, None, members, bindings, opens)


def merged(instances: Sequence[Instance]) -> Known | None:
    """What instances know together; None if they disagree.

    Two instances that are one occurrence agree only through a common variable: an event is
    not its own partner.
    """
    if len(instances) == 2:  # nearly always, and nearly always nothing in common
        first, second = instances
        if first.serial != second.serial and not (first.opens or second.opens):
            if not (first.bindings or second.bindings):
                return _NOTHING_KNOWN
            if first.bindings.keys().isdisjoint(second.bindings):
                return {**first.bindings, **second.bindings}, ()
    bindings: dict[str, Any] = {}
    opens: list[Open] = []
    for at, instance in enumerate(instances):
        for other in instances[:at]:
            if other.serial == instance.serial and not _share_variable(other, instance):
                return None
        for name, value in instance.bindings.items():
            if bindings.setdefault(name, value) != value:
                return None
        opens += instance.opens
    if not opens:
        return bindings, ()
    waiting: list[Open] = []
    for left, test, name in opens:
        if name not in bindings:
            waiting.append((left, test, name))
        elif not test.holds(left, bindings[name]):
            return None
    return bindings, tuple(waiting)


def _share_variable(first: Instance, second: Instance) -> bool:
    return any(name[0] == "$" and name in second.bindings for name in first.bindings)


def hull_of(shapes: Sequence[Shape]) -> Shape | None:
    """The convex hull of shapes; on the globe their longitudes must already be side by side."""
    if not shapes:
        return None
    if len(shapes) == 1 and shapes[0][0] != geometry.POLYGON:
        return shapes[0]
    from nearcast.cpsl import kernels

    points = np.concatenate([corners(shape) for shape in shapes])
    return shape_of(kernels.convex_hull(frozen(points)))


def corners(shape: Shape) -> npt.NDArray[np.float64]:
    """The vertices of a shape's exterior, one row each."""
    kind, floats = shape
    if kind == geometry.POINT:
        return floats.reshape(1, 2)
    polygon = geometry.as_polygon(kind, floats, 0)
    first = 1 + int(polygon[0])
    found: npt.NDArray[np.float64] = polygon[first : first + 2 * int(polygon[1])].reshape(-1, 2)
    return found


def shape_of(ring: npt.NDArray[np.float64]) -> Shape:
    """A ring of vertices as a shape; one vertex is a point, two are a segment."""
    if len(ring) == 1:
        return geometry.POINT, ring[0].copy()
    return geometry.POLYGON, np.concatenate([[1.0, float(len(ring))], ring.ravel()])


class CompositeEvent(Event):
    """A detection: an event with the composite it comes from and the events it is made of.

    `parts` are their ids in time order. `attributes` are the values of the composite's `&`
    variables, `location` is the hull of the parts' places: a segment, which no location can
    be, is given as its bounding box.
    """

    __slots__ = ("composite_id", "lineage", "parts")
    composite_id: str
    lineage: Lineage
    """What a nested detector says that it is made of at whatever remove; others leave it out."""
    parts: tuple[str, ...]

    def __init__(
        self,
        id: str,
        composite_id: str,
        parts: Iterable[str],
        attributes: Mapping[str, Value | None] = _NO_VALUES,
        location: Location | None = None,
        start: Micros | None = None,
        end: Micros | None = None,
        expires: Micros | None = None,
    ) -> None:
        # What a detector makes needs no second look: `Event.__init__` would double the cost.
        put = object.__setattr__
        put(self, "id", id)
        put(self, "composite_id", composite_id)
        put(self, "parts", tuple(parts))
        put(self, "attributes", attributes)
        put(self, "keywords", _NO_WORDS)
        put(self, "location", location)
        put(self, "start", start)
        put(self, "end", end)
        put(self, "expires", expires)
        put(self, "source", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompositeEvent) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((CompositeEvent, self.id))

    def __repr__(self) -> str:
        return f"CompositeEvent(id={self.id!r}, parts={self.parts!r}, end={self.end!r})"

    def __reduce__(self) -> tuple[object, ...]:
        place = (dict(self.attributes), self.location, self.start, self.end, self.expires)
        return (CompositeEvent, (self.id, self.composite_id, self.parts, *place))


class Detection(CompositeEvent):
    """A composite event as a detector makes it: it works out what people ask it for.

    Most detections are told apart by their composite alone, or sent on; what else is said of
    them follows from the instance.
    """

    __slots__ = ("_made", "_place")
    _made: tuple[str, int, Instance]
    _place: Location | None

    def __init__(self, composite_id: str, number: int, instance: Instance) -> None:
        _put_made(self, (composite_id, number, instance))

    @property
    def composite_id(self) -> str:  # type: ignore[override]
        """The composite it comes from."""
        return self._made[0]

    @property
    def id(self) -> str:
        """The composite's id and how many it had with this one."""
        return f"{self._made[0]}#{self._made[1]}"

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        """The ids of its plain events in time order."""
        return tuple([event.id for event in self._made[2].events()])

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The values of the composite's `&` variables."""
        known = self._made[2].bindings
        values = {name[1:]: value[1] for name, value in known.items() if name[0] == "&"}
        return MappingProxyType(values) if values else _NO_VALUES

    @property
    def keywords(self) -> frozenset[str]:
        """None."""
        return _NO_WORDS

    @property
    def location(self) -> Location | None:
        """The hull of the parts' places, computed when first asked for."""
        try:
            found = self._place
        except AttributeError:
            found = location_of(self._made[2])
            object.__setattr__(self, "_place", found)
        return found

    @property
    def start(self) -> Micros:
        """When its first part started."""
        return self._made[2].start

    @property
    def end(self) -> Micros:
        """When its last part ended."""
        return self._made[2].end

    @property
    def expires(self) -> None:
        """Never."""

    @property
    def source(self) -> None:
        """None: its composite's id is in its own."""


_put_made: Any = vars(Detection)["_made"].__set__


def location_of(instance: Instance) -> Location | None:
    """The place of an instance as an event's location."""
    events = instance.events()
    placed = [event.location for event in events if event.location is not None]
    if len(placed) < 2:
        return placed[0] if placed else None
    shape = instance.shape
    assert shape is not None
    ring = corners(shape)
    if len(ring) == 1:
        return Point(float(ring[0, 0]), float(ring[0, 1]))
    if len(ring) > 2:
        try:
            return Polygon([(float(x), float(y)) for x, y in ring])
        except ValidationError:
            pass  # too thin to be an area
    (xmin, ymin), (xmax, ymax) = ring.min(axis=0).tolist(), ring.max(axis=0).tolist()
    if isinstance(instance, GlobeInstance):
        xmin, xmax = (
            x - 360.0 if x > 180.0 else x + 360.0 if x < -180.0 else x for x in (xmin, xmax)
        )
    return Box(xmin, ymin, xmax, ymax)
