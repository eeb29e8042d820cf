"""The detection graph: equal sub-expressions once, instances upwards, detections at the roots.

Composites share a node when expression, mode, bindings and inputs are equal; nodes that wait
for something are shared only by composites registered at the same point of the stream,
so that nobody sees what happened before they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from nearcast.clock import Micros
from nearcast.cpsl.compile import Plan, speaks_of
from nearcast.cpsl.dispatch import Dispatch
from nearcast.cpsl.instances import Instance
from nearcast.cpsl.leaves import Leaf
from nearcast.cpsl.location_index import LocationIndex
from nearcast.cpsl.operators.constraints import Constraints
from nearcast.cpsl.operators.crossings import BORDERS, Border, Positions
from nearcast.cpsl.operators.filters import SPATIAL
from nearcast.cpsl.operators.joining import Joining
from nearcast.cpsl.operators.joint import Joint
from nearcast.cpsl.operators.negation import NotEnclosed, NotFixed, NotFollowing
from nearcast.cpsl.operators.node import Node
from nearcast.cpsl.operators.passing import Alias, Either, Filter, Primitive
from nearcast.cpsl.operators.repetition import Count, Period, Sliding
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.predicates import check_filters
from nearcast.cpsl.timers import Timers
from nearcast.fences.borders import Borders

__all__ = ["Graph", "Registration", "Scope"]

_COUNT = (1 << 40) - 1  # the part of a node's order that does not tell its height
_FEW = 4  # location tests that are held against an event one after another


class Scope(NamedTuple):
    """What nodes that wait for something must have in common to be one."""

    epoch: int
    """The point of the stream at which a composite came."""
    since: Micros | None
    """The moment that its periods are counted from; None: where time stands."""
    owner: str | None = None
    """The composite, where nothing that is made of it may come to it."""
    part: bool = True
    """Whether instances become part of a detection, and not only prevent it."""

    def below(self, kind: str, port: int) -> Scope:
        """That of an input of a node."""
        if self.owner is None or _BLOCKING.get(kind) != port:
            return self
        return self._replace(part=False)


_BLOCKING = {
    "not-fixed": NotFixed.blocking,
    "not-following": NotFollowing.blocking,
    "not-enclosed": NotEnclosed.blocking,
}


class Registration:
    """A composite in the graph: its root, and how many detections it has had."""

    __slots__ = ("composite", "count", "epoch", "order", "root", "since")

    def __init__(
        self, composite: Any, root: Node, order: int, epoch: int, since: Micros | None
    ) -> None:
        self.composite = composite
        self.root = root
        self.order = order
        self.epoch = epoch
        self.since = since
        self.count = 0

    def over(self, now: Micros) -> bool:
        """Whether nothing is detected any more at a moment."""
        expires: Micros | None = self.composite.expires
        return expires is not None and expires <= now


class Graph:
    """The nodes of all composites, and one step of detection at a time."""

    def __init__(self, relations: Relations, max_pending: int) -> None:
        self.relations = relations
        self.max_pending = max_pending
        self.dispatch = Dispatch(relations.space)
        self.locations = LocationIndex(relations)
        self.timers = Timers()
        self.borders: Borders | None = None
        self.now: Micros = 0
        self.started = False
        self.step = 0
        self.overflows = 0
        self._by_key: dict[object, Node] = {}
        self._located: dict[int, Filter] = {}  # those that the location index knows
        self._constraints: dict[object, Constraints] = {}
        self._known: dict[object, object] = {}
        self._waiting_start: list[NotFixed | Period] = []
        self._serial = 0
        self._orders = 0
        self.arrivals: list[tuple[int, int, int, Node, Instance]] = []
        self._pushed = 0
        self.found: list[tuple[Registration, Instance]] = []
        self.barred: frozenset[str] = frozenset()
        """The composites that the event of this step is made of, in a nested detector."""

    @property
    def nodes(self) -> Collection[Node]:
        """All nodes."""
        return self._by_key.values()

    # -- what nodes ask --------------------------------------------------------

    def serial(self) -> int:
        """A new serial number."""
        self._serial += 1
        return self._serial

    def emit(self, node: Node, instance: Instance) -> None:
        """Pass an instance to the composites that end here and to the nodes above."""
        barred = self.barred
        for registration in node.roots:
            if not barred or registration.composite.id not in barred:
                self.found.append((registration, instance))
        parents = node.parents
        for at in range(0, len(parents), 2):
            parent, port = parents[at], parents[at + 1]
            if barred and parent.owner in barred and port != parent.blocking:
                continue
            name = parent.names[port]
            given = instance if name is None else instance.bound(name)
            self._pushed += 1
            heappush(self.arrivals, (parent.order, port, self._pushed, parent, given))

    def enter(
        self, primitive: Primitive, instance: Instance, passed: Sequence[int] | None = None
    ) -> None:
        """A plain event that satisfies a primitive, up the graph.

        `passed` are the location tests that the index has found to hold, None if it was not asked.
        """
        if primitive.parents or primitive.roots:
            self.emit(primitive, instance)
        if primitive.places:
            point = instance.point
            for node in primitive.places:
                holds = None
                if point is not None:
                    holds = (node.tell or node.teller())(point.x, point.y)
                if holds or (holds is None and node.holds(instance)):
                    self._pass(node, instance)
        elif primitive.order in self.locations:
            if passed is None:
                assert instance.event is not None
                place = instance.event.location
                passed = () if place is None else self.locations.at(primitive.order, place)
            for number in passed:
                self._pass(self._located[number], instance)

    def _pass(self, node: Filter, instance: Instance) -> None:
        name = node.names[0]
        self.emit(node, instance if name is None else instance.bound(name))

    def wake(self, at: Micros, node: Node, age: int, token: int, turn: int | None = None) -> None:
        """Ask for a time event."""
        self.timers.wake(at, node, age, token, turn)

    def turn(self) -> int:
        """The turn of a time event that may be asked for later."""
        return self.timers.turn()

    def forget(self, after: Micros, node: Node, port: int, token: int) -> None:
        """Ask to be told when an instance is of no more use."""
        self.timers.forget(after, self.now, node, port, token)

    def overflow(self) -> None:
        """Count an instance that a full queue let go."""
        self.overflows += 1

    # -- steps -----------------------------------------------------------------

    def settle(self) -> None:
        """Deliver what is under way: inner nodes first, the inputs of a node in their order."""
        arrivals = self.arrivals
        while arrivals:
            _, port, _, node, instance = heappop(arrivals)
            node.receive(port, instance, self)

    def move_to(self, now: Micros) -> None:
        """Let time come to a moment; nothing fires."""
        if not self.started:
            self.started = True
            self.now = now
            for waiting in self._waiting_start:
                waiting.begin(now, self)
            self._waiting_start.clear()
        if now > self.now:
            self.now = now
        if self.timers.oldest < self.now:
            for _, _, node, port, token in self.timers.pop_stale(self.now):
                node.forgotten(port, token, self)

    def fire(self) -> None:
        """The next time event, at its own time."""
        at, _, _, _, _, node, token = self.timers.pop()
        self.move_to(at)
        self.step += 1
        node.timed(token, self)
        self.settle()

    # -- building --------------------------------------------------------------

    def check(self, plan: Plan) -> None:
        """Refuse a plan with plain events that the matcher could not learn."""
        if plan.kind == "primitive":
            leaf: Leaf = plan.params[0]
            if not leaf.direct and leaf not in self._by_key:
                check_filters(leaf.primitive(), self.relations.space)
        for given in plan.inputs:
            self.check(given.plan)

    def add(self, plan: Plan, mode: str, scope: Scope) -> Node:
        """The node of a plan, made if there is none; it counts one use more."""
        inputs = tuple(
            self.add(given.plan, mode, scope.below(plan.kind, port))
            for port, given in enumerate(plan.inputs)
        )
        names = self._interned(tuple(given.name for given in plan.inputs))
        key = self._key(plan, mode, scope, inputs, names)
        node = self._by_key.get(key)
        if node is None:
            node = self._make(plan, mode, names)
            node.owner = scope.owner if node.stateful and scope.part else None
            self._install(node, key, inputs, scope.since)
        else:
            for below in inputs:
                self.release(below)
        node.uses += 1
        return node

    def _key(
        self,
        plan: Plan,
        mode: str,
        scope: Scope,
        inputs: tuple[Node, ...],
        names: tuple[str | None, ...],
    ) -> object:
        if plan.kind == "primitive":
            return plan.params[0]
        below = [node.order for node in inputs]
        if plan.kind in _PASSING:
            return self._interned((plan.kind, names)), plan.params, *below
        return self._interned((plan.kind, plan.params, names, mode, scope)), *below

    def _interned(self, value: Any) -> Any:
        """An equal value that is kept already: thousands of composites differ in little."""
        if len(self._known) > 1000 + 2 * len(self._by_key):  # composites came and went
            self._known.clear()
            self._constraints.clear()
        return self._known.setdefault(value, value)

    def _install(
        self,
        node: Node,
        key: object,
        inputs: tuple[Node, ...],
        since: Micros | None,
    ) -> None:
        self._orders += 1
        node.order, node.key, node.inputs = node.height << 40 | self._orders, key, inputs
        self._by_key[key] = node
        if isinstance(node, Primitive):
            self.dispatch.add(node)
        elif isinstance(node, Filter) and isinstance(inputs[0], Primitive) and node.kind in SPATIAL:
            self._place(node, inputs[0])
        elif isinstance(node, Border):
            assert isinstance(inputs[0], Positions)
            inputs[0].watch(node, self.relations.globe)
        else:
            for port, below in enumerate(inputs):
                below.parents = (*below.parents, node, port)
        if isinstance(node, NotFixed | Period):
            if since is not None or self.started:
                node.begin(self.now if since is None else since, self)
            else:
                self._waiting_start.append(node)

    def _place(self, node: Filter, primitive: Primitive) -> None:
        """A location test over a primitive: beside it while they are few, else in the index."""
        waiting: tuple[Filter, ...] = (node,)
        if primitive.order not in self.locations:
            waiting = (*primitive.places, node)
            if len(waiting) <= _FEW:
                primitive.places = waiting
                return
        primitive.places = ()
        for one in waiting:
            self._located[one.order & _COUNT] = one
            self.locations.add(one.order & _COUNT, primitive.order, (one.kind, one.params))

    def _displace(self, node: Filter, primitive: Primitive) -> None:
        number = node.order & _COUNT
        if self._located.pop(number, None) is None:
            primitive.places = tuple(other for other in primitive.places if other is not node)
        else:
            self.locations.remove(number, primitive.order)

    def _make(self, plan: Plan, mode: str, names: tuple[str | None, ...]) -> Node:
        height, tie, params = plan.height, plan.tie, plan.params
        lags = tuple(given.plan.lag for given in plan.inputs)
        match plan.kind:
            case "primitive":
                return Primitive(params[0])
            case "alias":
                return Alias(names, height, 0)
            case "or":
                return Either(names, height)
            case "joint":
                joining = self._interned(_joining(plan, mode))
                return Joint(names, height, self._shared(plan), mode, joining)
            case "not-fixed":
                return NotFixed(names, height, tie, *params)
            case "not-following":
                shared = _joining(plan, "first-matching")[0]
                return NotFollowing(names, height, tie, params[0], mode, shared, lags[0])
            case "not-enclosed":
                speak_of = speaks_of(plan.inputs[0]), speaks_of(plan.inputs[1])
                return NotEnclosed(names, height, tie, mode, (lags[0], lags[1]), speak_of)
            case "count":
                return Count(names, height, params[0], mode)
            case "period":
                return Period(names, height, tie, params[0])
            case "sliding":
                n, length, skip = params
                return Sliding(names, height, n, length, skip, lags[0])
            case "positions":
                if self.borders is None:
                    self.borders = Borders(self.relations.space)
                return Positions(names, height, mode, self.borders)
            case kind if kind in BORDERS:
                return Border(height, tie, kind, params, mode)
        return Filter(names, height, plan.kind, params, self.relations)

    def _shared(self, plan: Plan) -> Constraints:
        bounds = tuple((given.plan.lag, given.plan.span) for given in plan.inputs)
        key = (self._interned(plan.params), bounds)
        found = self._constraints.get(key)
        if found is None:
            found = self._constraints[key] = Constraints(plan, self.relations)
        return found

    def learn(self) -> None:
        """Tell the matcher of new primitives; once for many composites."""
        self.dispatch.learn()

    def release(self, node: Node) -> None:
        """One use less; a node that nobody uses goes, and with it what only it used."""
        node.uses -= 1
        if node.uses:
            return
        del self._by_key[node.key]
        if isinstance(node, Primitive):
            self.dispatch.remove(node)
        for below in node.inputs:
            if isinstance(node, Filter) and isinstance(below, Primitive) and node.kind in SPATIAL:
                self._displace(node, below)
            elif isinstance(node, Border):
                assert isinstance(below, Positions)
                below.unwatch(node)
            else:
                above = iter(below.parents)
                kept = [e for e in zip(above, above, strict=False) if e[0] is not node]
                below.parents = tuple(each for entry in kept for each in entry)
            self.release(below)
        if node.stateful:
            self._waiting_start = [other for other in self._waiting_start if other is not node]
            self.timers.drop({node})


_PASSING = ("alias", "or", "happen-in", "overlap", "same-place", "distance", "during", "later")


def _joining(plan: Plan, mode: str) -> Joining:
    """The variables that the partners at each input are looked up by: others bind them too.

    Of two inputs, chronicle and recent look at the oldest or newest only. Of more, whether one
    is still of use depends on who else waits, and they are looked up for that in every mode.
    """
    inputs = len(plan.inputs)
    if inputs == 1 or (inputs == 2 and mode in ("chronicle", "recent")):
        return ((),) * inputs
    sides = [
        given.plan.names | ({"$" + given.name} if given.name else frozenset())
        for given in plan.inputs
    ]
    sharing = Counter(name for side in sides for name in side)
    return tuple(tuple(sorted(name for name in side if sharing[name] > 1)) for side in sides)
