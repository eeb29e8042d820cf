"""Every part of a broker is within reach: indexes, regions, bounds of patterns."""

from __future__ import annotations

from typing import Any

import pytest

from nearcast import Around, Box, Broker, Composite, Event, Point, Subscription
from nearcast.errors import BatchError, CapabilityError, ValidationError
from nearcast.index import registry

S = 1_000_000
#: The second is the pair of the Elaps paper (§5): OpIndex for subscriptions, BEQ-Tree for events.
BOTH = [
    ("pivot", "beq-tree"),
    ("op-index", "beq-tree"),
    ("di-tree", "mo-tree"),
    ("mo-tree", "scan"),
    ("lfilter", "k-index"),
]


@pytest.mark.parametrize(("subscription_index", "event_index"), BOTH)
def test_two_indexes_serve_two_sides(subscription_index: str, event_index: str):
    broker = Broker("planar", subscription_index=subscription_index, event_index=event_index)
    broker.subscribe(Subscription("s", "ann", "a < 3", region=Box(0, 0, 5, 5)))
    for i in range(8):
        event = Event(f"e{i}", {"a": i % 5}, (), Point(i, 1), end=i * S, expires=(i + 3) * S)
        told = broker.publish(event)
        assert [each.subscription_id for each in told] == (["s"] if i in (0, 1, 2, 5) else [])
        found = broker.subscribe(Subscription(f"t{i}", "bob", "a < 3"))
        live = [f"e{k}" for k in range(max(0, i - 2), i + 1) if k % 5 < 3]
        assert [each.event.id for each in found] == live
        broker.unsubscribe(f"t{i}")
    broker.move("ann", Point(6, 1))
    told = broker.subscribe(Subscription("m", "ann", region=Around(1)))
    assert [each.event.id for each in told] == ["e5", "e6", "e7"]
    assert broker._subscriptions._matcher.entry.name == subscription_index
    assert broker._live._matcher.entry.name == event_index
    broker.check_invariants()


def test_options_go_to_the_indexes_that_take_them():
    broker = Broker(
        subscription_index="mo-tree",
        event_index="beq-tree",
        index_options={"height": 4, "levels": 3, "e_max": 17},
    )
    assert broker._subscriptions._matcher._options == {"height": 4, "levels": 3}
    assert broker._live._matcher._options == {"e_max": 17}
    both = Broker(subscription_index="mo-tree", event_index="mo-tree", index_options={"height": 4})
    assert both._subscriptions._matcher._options == both._live._matcher._options == {"height": 4}


@pytest.mark.parametrize(("subscription_index", "event_index"), BOTH)
def test_strings_by_their_first_letters(subscription_index: str, event_index: str):
    broker = Broker(
        subscription_index=subscription_index, event_index=event_index, letters=True,
        index_options={"attributes": [("title", "a", "zz")]} if event_index == "mo-tree" else None,
    )  # fmt: skip
    found = broker._subscriptions._matcher, broker._live._matcher
    assert [matcher.schema.letters for matcher in found] == [True, True]
    for where in ("title LIKE 'bern%'", "title = 'bern'", "title > 'bernina'"):
        broker.subscribe(Subscription(where, "ann", where))
    told = broker.publish(Event("e1", {"title": "bernina"}))
    assert [each.subscription_id for each in told] == ["title LIKE 'bern%'"]
    told = broker.subscribe(Subscription("later", "bob", "title >= 'bern' AND title < 'c'"))
    assert [each.event.id for each in told] == ["e1"]
    broker.check_invariants()


def test_the_domain_of_a_string_is_given_to_the_index_by_letters():
    options = {"attributes": [("title", "a", "zz")]}
    broker = Broker(subscription_index="mo-tree", letters=True, index_options=options)
    broker.subscribe(Subscription("s", "ann", "title LIKE 'bern%'"))
    matcher = broker._subscriptions._matcher
    (attribute,) = matcher.index.attributes
    assert attribute.column == matcher.schema.letters_column("title")
    assert len(broker.publish(Event("e1", {"title": "bernina"}))) == 1


def test_numbers_of_safe_regions_arrive():
    broker = Broker("planar", "gm", extent=Box(0, 0, 10, 10), safe_region_options={"cells": 10})
    broker.subscribe(Subscription("s", "ann", region=Around(1)))
    broker.publish(Event("e", location=Point(9, 9)))
    (region,) = broker.move("ann", Point(2.5, 2.5)).safe_regions.values()
    assert region.contains(Point(2.5, 2.5))
    assert broker._tracker._lattice is not None
    patient = Broker("planar", safe_region_options={"patience_s": 100})
    assert patient._tracker._patience_s == 100


@pytest.mark.parametrize(
    ("options", "field", "hint"),
    [
        ({"subscription_index": "pivott"}, "subscription_index", "did you mean 'pivot'"),
        ({"event_index": "mo tree"}, "event_index", "did you mean 'mo-tree'"),
        ({"event_index": 3}, "event_index", "give a name"),
        ({"index_options": {"cells": 3}}, "index_options", "no such option; there are none"),
        ({"index_options": {"x": 3}, "event_index": "beq-tree"}, "index_options", "are: e_max"),
        ({"index_options": [3]}, "index_options", "give a mapping"),
        ({"letters": 3}, "letters", "give True or False"),
        ({"index_options": {"e_max": 0}, "event_index": "beq-tree"}, "e_max", "leaf"),
        ({"index_options": {"variant": "f"}, "subscription_index": "di-tree"}, "index_options", ""),
        ({"safe_region_options": {"cell": 3}}, "safe_region_options", "alpha, beta, cells"),
        ({"safe_region_options": {"space": "planar"}}, "safe_region_options", "no such option"),
        ({"safe_region_options": {"cells": "x"}}, "safe_region_options", "give numbers"),
        ({"safe_region_options": {"cells": 0}}, "cells", "one cell"),
        ({"longest": -1}, "longest", "not negative"),
        ({"tolerance_m": -1}, "tolerance_m", "metres"),
        ({"max_pending": 0}, "max_pending", "positive"),
        ({"max_objects": 0}, "max_objects", "positive"),
        ({"max_objects": True}, "max_objects", "positive"),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, Any], field: str, hint: str):
    with pytest.raises(ValidationError) as error:
        Broker(**options)
    assert error.value.field == field
    assert hint in str(error.value)


def test_an_index_must_do_what_it_is_for():
    with pytest.raises(CapabilityError):
        Broker(subscription_index="beq-tree")
    with pytest.raises(CapabilityError):
        Broker(event_index="di-tree")
    assert "di-tree" not in registry.names(events=True)


def test_longest_refuses_what_lasts_longer():
    broker = Broker(longest=10)
    broker.detect(Composite("c", "ops", "=|(ARITH: a = 1; 60)(ARITH: a = 2)"))
    broker.detect(Composite("d", "ops", '=|(STRING: composite = "c"; 60)(ARITH: a = 3)'))
    broker.subscribe(Subscription("s", "ann", "composite = 'c'"))
    with pytest.raises(ValidationError, match=r"lasts 11 s and longest is 10 s"):
        broker.publish(Event("e", start=0, end=11 * S))
    with pytest.raises(BatchError, match="row 1"):
        broker.publish_many([Event("e0", end=S), Event("e", start=0, end=11 * S)])
    assert broker.now is None
    broker.publish(Event("e1", {"a": 1}, start=0, end=10 * S))
    told = broker.publish(Event("e2", {"a": 2}, end=30 * S))
    assert [each.subscription_id for each in told] == ["c", "s"]  # it lasts 30 s: told, published
    assert broker.publish(Event("e3", {"a": 3}, end=31 * S)) == []  # and seen by no pattern


def test_longest_holds_where_an_event_is_put_behind_time():
    broker = Broker(longest=10)
    broker.detect(Composite("p", "ops", "P(5)(ARITH: a = 1)"))
    broker.detect(Composite("c", "ops", "ARITH: a = 1"))
    broker.advance(to=20 * S)
    told = broker.publish(Event("e", {"a": 1}, start=10 * S, end=20 * S))
    assert [each.subscription_id for each in told] == ["c"]


def test_full_queues_let_go_and_count():
    broker = Broker(max_pending=2)
    broker.detect(Composite("c", "ops", "=|(ARITH: a = 1; 60)(ARITH: a = 2)", "continuous"))
    for i in range(5):
        broker.publish(Event(f"e{i}", {"a": 1}, end=i * S))
    assert broker.overflows == 3


def test_tolerance_reaches_patterns():
    assert Broker(tolerance_m=7)._patterns._detector._graph.relations.tolerance == 7
