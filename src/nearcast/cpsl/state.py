"""A detector's state as bytes, its size, and the proof that it keeps nothing useless.

The graph is not saved: it follows from the composites. Saved are the composites with the point of
the stream at which each came, if wanted with their plans, and what waits: at each node, the timers
and the events held back. What waits can be had alone, for who has the same composites elsewhere:
it is small, and nothing has to be parsed or built for it.
"""

from __future__ import annotations

import pickle
import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from nearcast.clock import NEVER, Micros
from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.crossings import Border
from nearcast.cpsl.operators.node import Node
from nearcast.cpsl.operators.passing import Filter, Primitive
from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from nearcast.cpsl.dag import Registration
    from nearcast.cpsl.detector import Detector

__all__ = ["check", "load_waiting", "memory", "restore", "save", "save_waiting"]

_VERSION = 4
#: There nodes are told by a composite and a place in its plan.
_BEFORE = 3
_COUNTERS = ("late", "duplicates", "_added", "_epoch", "_received", "_newest", "_closed")


def _nodes(detector: Detector) -> list[Node]:
    """All nodes, in an order that follows from the composites alone."""
    found: dict[Node, None] = {}
    for registration in detector._registrations.values():
        found.update(dict.fromkeys(_below(registration.root)))
    return list(found)


def _below(root: Node) -> list[Node]:
    """The nodes of a plan, in a fixed order."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.inputs)
    return found


def save(detector: Detector, plans: bool) -> bytes:
    """Everything that `restore` needs. O(composites + pending)."""
    longest = detector.longest
    composites = [
        (r.composite, r.composite.plan(longest) if plans else None, r.order, r.epoch, r.since)
        for r in detector._registrations.values()
    ]
    known = {
        "version": _VERSION,
        "options": _options(detector),
        "composites": composites,
        "waiting": _waiting(detector, _nodes(detector)),
    }
    return pickle.dumps(known, protocol=5)


def _options(detector: Detector) -> dict[str, Any]:
    graph = detector._graph
    return {
        "space": detector.space,
        "lateness": detector.lateness,
        "longest": detector.longest,
        "tolerance_m": graph.relations.tolerance,
        "max_pending": graph.max_pending,
        "unique": detector.unique,
        "nested": detector.nested,
    }


def restore(cls: type[Detector], saved: bytes) -> Detector:
    """A detector that goes on where the saved one stopped."""
    known = _unpacked(saved)
    version = known["version"]
    if version not in (_BEFORE, _VERSION):
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
    for composite, *rest in known["composites"]:
        if version == _VERSION:
            plan, order, epoch, since = rest
        else:
            plan, (order, epoch, since, _) = None, rest
        plan = plan or composite.plan(detector.longest)
        registration = detector._register(composite, plan, epoch, since)
        registration.order = order
    if version == _VERSION:
        _wait(detector, _nodes(detector), known["waiting"])
    else:
        _wait_as_before(detector, known)
    return detector


def _unpacked(saved: bytes) -> dict[str, Any]:
    try:
        known: dict[str, Any] = pickle.loads(saved)
        known["version"]
    except Exception as error:  # whatever a pickle of something else may raise
        raise ValidationError("saved", saved, f"give what was saved ({error})") from None
    return known


def _wait_as_before(detector: Detector, known: dict[str, Any]) -> None:
    """Take over what the release before wrote."""
    nodes = {
        (id, at): node
        for id, registration in detector._registrations.items()
        for at, node in enumerate(_below(registration.root))
    }
    for registration, (*_, count) in zip(
        detector._registrations.values(), known["composites"], strict=True
    ):
        registration.count = count
    _resume(detector, nodes, known)


# --- what waits -----------------------------------------------------------------------------------


def save_waiting(detector: Detector) -> bytes:
    """What waits, without the composites. O(nodes + pending)."""
    known = {
        "version": _VERSION,
        "composites": fingerprint(detector),
        "waiting": _waiting(detector, _nodes(detector)),
    }
    return pickle.dumps(known, protocol=5)


def load_waiting(detector: Detector, saved: bytes) -> None:
    """Let what was saved wait here, and nothing else. O(nodes + pending)."""
    known = _unpacked(saved)
    if known["version"] != _VERSION:
        raise ValidationError("saved", known["version"], f"this release reads version {_VERSION}")
    moment, started, *_ = known["waiting"]["graph"]
    now = moment if started else NEVER
    if known["composites"] != fingerprint(detector, now):
        raise ValidationError(
            "saved", known["composites"],
            "it waits for other composites: add the same ones, in the same order and with the same "
            "options, or start afresh",
        )  # fmt: skip
    detector._let_go(now)
    nodes = _nodes(detector)
    for node in nodes:
        node.clear()
    _wait(detector, nodes, known["waiting"])


def fingerprint(detector: Detector, now: Micros = NEVER) -> str:
    """Tells apart what two detectors look for: options, composites, and when these came.

    Composites that are over `now` need not be there.
    """
    hashed = blake2b(repr(sorted(_options(detector).items())).encode(), digest_size=16)
    for id, r in detector._registrations.items():
        composite = r.composite
        if r.over(now) and not detector._lasting:
            continue
        ends = composite.expires
        said = (id, composite.text, composite.consume, ends, r.order, r.epoch, r.since)
        hashed.update(repr(said).encode())
    return hashed.hexdigest()


def _waiting(detector: Detector, nodes: list[Node]) -> dict[str, Any]:
    graph = detector._graph
    numbers: dict[Node, Any] = {node: number for number, node in enumerate(nodes)}
    counts = [r.count for r in detector._registrations.values()]
    return {
        "counts": {at: count for at, count in enumerate(counts) if count},
        "counters": {name: getattr(detector, name) for name in _COUNTERS},
        "held": detector._held,
        "seen": detector._seen,
        "graph": (graph.now, graph.started, graph.step, graph._serial, graph.overflows),
        "begin": [numbers[node] for node in graph._waiting_start],
        "nodes": {
            number: dumped
            for node, number in numbers.items()
            if (dumped := node.dump()) is not None
        },
        "timers": graph.timers.dump(numbers),
    }


def _wait(detector: Detector, nodes: list[Node], known: dict[str, Any]) -> None:
    counts = known["counts"]
    for at, registration in enumerate(detector._registrations.values()):
        registration.count = counts.get(at, 0)
    _resume(detector, dict(enumerate(nodes)), known)
    detector._graph._waiting_start = [nodes[number] for number in known["begin"]]


def _resume(detector: Detector, nodes: dict[Any, Node], known: dict[str, Any]) -> None:
    graph = detector._graph
    for name, value in known["counters"].items():
        setattr(detector, name, value)
    detector._held, detector._seen = known["held"], known["seen"]
    graph.now, graph.started, graph.step, graph._serial, graph.overflows = known["graph"]
    if graph.started:
        graph._waiting_start.clear()
    saved = known["nodes"]
    for number in sorted(saved, key=lambda each: nodes[each].order):  # inner ones first
        nodes[number].load(saved[number])
    graph.timers.load(known["timers"], nodes)


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
        over = graph.started and registration.over(graph.now)
        assert not over or detector._lasting, "a composite that is over"
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
