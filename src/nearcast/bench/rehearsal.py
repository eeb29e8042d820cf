"""A rehearsal: a few subscriptions and events of every kind through one index.

Every kernel on the way compiles and is kept on disk, and every answer is known beforehand.
"""

from __future__ import annotations

from nearcast.datasets import workload
from nearcast.errors import BenchError
from nearcast.index import registry
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Circle, Point, Polygon, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["rehearse"]

_SQUARE = Polygon(((0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)))

_SUBSCRIPTIONS = (
    Subscription(id="all"),
    Subscription(id="box", region=Box(0.0, 0.0, 2.0, 2.0)),
    Subscription(id="circle", region=Circle(1.0, 1.0, radius_m=1.0)),
    Subscription(id="cheap", where="price < 10 OR price BETWEEN 50 AND 60"),
    Subscription(id="name", where="brand = 'ACME' AND name LIKE 'P%'"),
    Subscription(id="polygon", region=_SQUARE),
    Subscription(id="words", keywords=frozenset({"sale", "phone"})),
)
_EVENTS = (
    Event(id="everywhere", attributes={"price": 55}, keywords=frozenset({"sale"})),
    Event(
        id="here",
        attributes={"price": 5, "brand": "ACME", "name": "P30"},
        keywords=frozenset({"sale", "phone"}),
        location=Point(1.0, 1.0),
    ),
    Event(id="there", attributes={"price": 20}, location=Point(30.0, 30.0)),
    Event(id="wide", location=Box(0.5, 0.5, 1.5, 1.5)),
)
_FEW, _MANY = 50, 1200  # subscriptions: with many, every structure of an index comes into being
_OFFERS = 600  # enough events for a batch to be split among threads
_WANTED = {
    "everywhere": ["all", "cheap"],
    "here": ["all", "box", "cheap", "circle", "name", "polygon", "words"],
    "there": ["all"],
    "wide": ["all", "box", "circle", "polygon"],
}


def rehearse(index: str, *, fully: bool = False) -> None:
    """Match in both directions, one by one and in bulk; raise BenchError at a wrong answer.

    Fully: with structures that only larger numbers call for, which take as long again.
    """
    entry = registry.entry(index)
    for space in ("globe", "planar"):
        if entry.subscriptions is not None:
            _expect(index, _forwards(index, space), entry.approximate)
        if entry.events is not None:
            _expect(index, _backwards(index, space), entry.approximate)
    _in_bulk(index, _MANY if fully else _FEW)


def _in_bulk(index: str, people: int) -> None:
    """Arrow tables of seeded workloads: intervals and boxes, words, circles and filters."""
    entry = registry.entry(index)
    for source in (workload("mo"), workload("lf"), workload("city", radius_m=1000.0, n_shops=20)):
        subscriptions, events = source.subscription_table(people), source.event_table(_OFFERS)
        matcher = Matcher(index=index, space=source.space)
        if entry.subscriptions is not None:
            matcher.add_subscriptions(subscriptions)
            matcher.match_events(events)
            _one_by_one(matcher)
        if entry.events is not None:
            matcher.add_events(events)
            for subscription in _SUBSCRIPTIONS:
                matcher.match_subscription(subscription)
        matcher.check_invariants()


def _one_by_one(matcher: Matcher) -> None:
    """Single subscriptions come, move and go, and single events are matched, among many."""
    matcher.add_subscriptions(_SUBSCRIPTIONS)
    for subscription in _SUBSCRIPTIONS:
        matcher.remove_subscription(subscription.id)
        matcher.add_subscriptions([subscription])
        matcher.update_subscription(subscription)
    for event in _EVENTS:
        matcher.match_event(event)


def _forwards(index: str, space: Space) -> set[tuple[str, str]]:
    """Event matching, one event at a time and all at once."""
    matcher = Matcher(index=index, space=space)
    matcher.add_subscriptions(_SUBSCRIPTIONS)
    matcher.update_subscription(_SUBSCRIPTIONS[0])
    single = {(event.id, wanted) for event in _EVENTS for wanted in matcher.match_event(event)}
    table = matcher.match_events(_EVENTS)
    bulk = set(
        zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    )
    if single != bulk:
        raise BenchError(f"index {index!r}: one by one and in bulk differ: {single ^ bulk}")
    matcher.remove_subscription("all")
    matcher.check_invariants()
    return single


def _backwards(index: str, space: Space) -> set[tuple[str, str]]:
    """Subscription matching."""
    matcher = Matcher(index=index, space=space)
    matcher.add_events(_EVENTS)
    found = {
        (event, subscription.id)
        for subscription in _SUBSCRIPTIONS
        for event in matcher.match_subscription(subscription)
    }
    matcher.remove_event("there")
    matcher.check_invariants()
    return found


def _expect(index: str, found: set[tuple[str, str]], approximate: bool) -> None:
    wanted = {(event, each) for event, many in _WANTED.items() for each in many}
    wrong = found - wanted if approximate else found ^ wanted
    if wrong:
        raise BenchError(f"index {index!r} is wrong about {sorted(wrong)}; report it")
