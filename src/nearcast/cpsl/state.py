"""A detector's state as bytes, its size, and the proof that it keeps nothing useless.

The graph is not saved: it follows from the composites. Saved are the composites with the
point of the stream at which each came, what waits at each node (found again by composite and
place in its plan), the timers and the events held back.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.crossings import Border
from nearcast.cpsl.operators.node import Node
from nearcast.cpsl.operators.passing import Filter, Primitive
from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from nearcast.cpsl.dag import Registration
    from nearcast.cpsl.detector import Detector

__all__ = ["check", "memory", "restore", "save"]

_VERSION = 3
_COUNTERS = ("late", "duplicates", "_added", "_epoch", "_received", "_newest", "_closed")


def _numbered(detector: Detector) -> dict[Node, tuple[str, int]]:
    """Every node by a composite that uses it and its place in that composite's plan."""
    numbers: dict[Node, tuple[str, int]] = {}
    for id, registration in detector._registrations.items():
        for at, node in enumerate(_below(registration.root)):
            numbers.setdefault(node, (id, at))
    return numbers


def _below(root: Node) -> list[Node]:
    """The nodes of a plan, in a fixed order."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.inputs)
    return found


def save(detector: Detector) -> bytes:
    """Everything that `restore` needs. O(pending)."""
    graph = detector._graph
    numbers = _numbered(detector)
    known = {
        "version": _VERSION,
        "options": {
            "space": detector.space,
            "lateness": detector.lateness,
            "longest": detector.longest,
            "tolerance_m": graph.relations.tolerance,
            "max_pending": graph.max_pending,
            "unique": detector.unique,
            "nested": detector.nested,
        },
        "composites": [
            (r.composite, r.order, r.epoch, r.since, r.count)
            for r in detector._registrations.values()
        ],
        "counters": {name: getattr(detector, name) for name in _COUNTERS},
        "held": detector._held,
        "seen": detector._seen,
        "graph": (graph.now, graph.started, graph.step, graph._serial, graph.overflows),
        "nodes": {
            number: dumped
            for node, number in numbers.items()
            if (dumped := node.dump()) is not None
        },
        "timers": graph.timers.dump(numbers),
    }
    return pickle.dumps(known, protocol=5)


def restore(cls: type[Detector], saved: bytes) -> Detector:
    """A detector that goes on where the saved one stopped."""
    try:
        known: dict[str, Any] = pickle.loads(saved)
        version = known["version"]
    except Exception as error:  # whatever a pickle of something else may raise
        raise ValidationError("saved", saved, f"give what save() returned ({error})") from None
    if version != _VERSION:
        raise ValidationError("saved", version, f"this release reads version {_VERSION}")
    options = known["options"]
    detector = cls(
        options["space"],
        longest=None,
        tolerance_m=options["tolerance_m"],
        max_pending=options["max_pending"],
        unique=options["unique"],
        nested=options["nested"],
    )
    detector.lateness, detector.longest = options["lateness"], options["longest"]
    graph = detector._graph
    for composite, order, epoch, since, count in known["composites"]:
        plan = composite.plan(detector.longest)
        registration = detector._register(composite, plan, epoch, since)
        registration.order, registration.count = order, count
    for name, value in known["counters"].items():
        setattr(detector, name, value)
    detector._held, detector._seen = known["held"], known["seen"]
    graph.now, graph.started, graph.step, graph._serial, graph.overflows = known["graph"]
    if graph.started:
        graph._waiting_start.clear()
    nodes = {
        (id, at): node
        for id, registration in detector._registrations.items()
        for at, node in enumerate(_below(registration.root))
    }
    saved_nodes = known["nodes"]
    for number in sorted(saved_nodes, key=lambda each: nodes[each].order):  # inner ones first
        nodes[number].load(saved_nodes[number])
    graph.timers.load(known["timers"], nodes)
    return detector


def memory(detector: Detector) -> dict[str, int]:
    """Bytes by part, as far as Python tells. O(nodes + pending)."""
    graph = detector._graph
    graph.learn()
    nodes = sum(_node_bytes(node) for node in graph.nodes)
    nodes += sum(_registered_bytes(r) for r in detector._registrations.values())
    nodes += sys.getsizeof(detector._registrations) + sys.getsizeof(graph._by_key)
    instances: dict[int, int] = {}
    for node in graph.nodes:
        for _, instance in node.pending():
            _measure(instance, instances)
    timers = 200 * (len(graph.timers.due) + len(graph.timers.stale))
    parts = {
        "matcher": graph.dispatch.nbytes(),
        "locations": graph.locations.nbytes(),
        "borders": 0 if graph.borders is None else graph.borders.nbytes(),
        "nodes": nodes,
        "instances": sum(instances.values()),
        "timers": timers,
        "held": 600 * len(detector._held),
        "ids": 200 * len(detector._seen),
    }
    parts["total"] = sum(parts.values())
    return parts


def _registered_bytes(registration: Registration) -> int:
    """A composite and its text; a syntax tree, where one is kept, takes some thirty times that."""
    composite = registration.composite
    texts = sys.getsizeof(composite.text) + sys.getsizeof(composite.id)
    tree = 0 if composite._pattern is None else 30 * len(composite.text)
    return sys.getsizeof(registration) + sys.getsizeof(composite) + texts + tree


def _node_bytes(node: Node) -> int:
    total = sys.getsizeof(node) + sys.getsizeof(node.order) + sys.getsizeof(node.key)
    for each in (node.parents, node.inputs, node.roots):
        if each:
            total += sys.getsizeof(each)
    if isinstance(node, Primitive):
        total += sys.getsizeof(node.leaf.constants) + 24 * len(node.leaf.constants)
        total += sys.getsizeof(node.places) if node.places else 0
    elif isinstance(node, Filter):
        total += sys.getsizeof(node.params) + sum(map(sys.getsizeof, node.params))
    return total


def _measure(instance: Instance, known: dict[int, int]) -> None:
    waiting = [instance]
    while waiting:
        one = waiting.pop()
        if id(one) not in known:
            known[id(one)] = sys.getsizeof(one) + sys.getsizeof(one.members) + 64
            waiting.extend(one.members)


def check(detector: Detector) -> None:
    """Structure and boundedness: see `Detector.check_invariants`."""
    graph = detector._graph
    assert not graph.found, "a step was left unfinished"
    assert not graph.arrivals, "a step was left unfinished"
    uses: dict[Node, int] = {}
    reachable: set[Node] = set()
    for registration in detector._registrations.values():
        assert registration in registration.root.roots
        uses[registration.root] = uses.get(registration.root, 0) + 1
        reachable.update(_below(registration.root))
    assert reachable == set(graph.nodes), "a node that no composite needs"
    for node in reachable:
        for port, below in enumerate(node.inputs):
            uses[below] = uses.get(below, 0) + 1
            above = list(zip(below.parents[::2], below.parents[1::2], strict=True))
            assert (node, port) in above or below.height == 0 or isinstance(node, Border)
    for node in reachable:
        assert node.uses == uses[node], "uses are miscounted"
        assert graph._by_key[node.key] is node
        assert all(node.height > below.height for below in node.inputs)
        if graph.started:
            node.check(graph.now)
    assert all(entry[5] in reachable for entry in graph.timers.due)
    assert all(entry[2] in reachable for entry in graph.timers.stale)
    assert all(entry[0] >= graph.now for entry in graph.timers.stale), "stale instances are kept"
    bound = detector._newest - detector.lateness
    assert all(entry[0] >= bound for entry in detector._held), "an event is held back too long"
