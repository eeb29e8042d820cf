"""Data that could make an index blow up: every one of them answers right, in little memory."""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from typing import Literal, NamedTuple

import pyarrow as pa
import pytest

from nearcast import Box, Event, Matcher, Point, Subscription
from nearcast.errors import CapabilityError, CapacityError
from nearcast.index import registry
from tests import oracle

MANY = 600  # more than one tile, one node, one bucket
MOST_INDEX_BYTES = 4 << 20
#: Some indexes have a tree, a list or a layer of cells for each attribute.
MOST_WITH_MANY_ATTRIBUTES = 40 << 20
LONG = "x" * (1 << 20)


class Case(NamedTuple):
    """Many standing subscriptions for a few events, many live events for a few questions."""

    subscriptions: list[Subscription]
    events: list[Event]
    live: list[Event]
    questions: list[Subscription]


def wanting(where=None, n=MANY, **rest):
    return [Subscription(id=f"s{i:04}", subscriber="ann", where=where, **rest) for i in range(n)]


def happening(n=MANY, **rest):
    return [Event(id=f"e{i:04}", **rest) for i in range(n)]


def numbered(values):
    """The same with ids of their own."""
    renamed = []
    for i, value in enumerate(values):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        renamed.append(type(value)(**{**fields, "id": f"{i}-{value.id}"}))
    return renamed


def all_equal() -> Case:
    where = "price >= 10 AND price <= 20 AND kind = 'phone'"
    region = Box(0, 0, 4, 4)
    inside = {"attributes": {"price": 15, "kind": "phone"}, "location": Point(4, 2)}
    outside = {"attributes": {"price": 21, "kind": "phone"}, "location": Point(4, 2)}
    return Case(
        wanting(where, region=region),
        numbered(happening(1, **inside) + happening(1, **outside)),
        happening(**inside),
        numbered(wanting(where, 1, region=region) + wanting("price > 20", 1)),
    )


def one_point() -> Case:
    here = Point(5, 5)
    spot = Box(5, 5, 5, 5)
    beside = Point(5, 5.000000000000001)
    return Case(
        wanting(region=spot),
        numbered(happening(1, location=here) + happening(1, location=beside) + happening(1)),
        happening(location=here),
        numbered(
            wanting(None, 1, region=spot)
            + wanting(None, 1, region=Box(4, 4, 5, 5))
            + wanting(None, 1, region=Box(5, 5.000000000000001, 6, 6))
        ),
    )


def two_values() -> Case:
    subscriptions = [
        Subscription(id=f"s{i:04}", subscriber="ann", where=f"on = {'TRUE' if i & 1 else 'FALSE'}")
        for i in range(MANY)
    ]
    live = [Event(id=f"e{i:04}", attributes={"on": bool(i & 1)}) for i in range(MANY)]
    return Case(subscriptions, numbered(live[:2] + happening(1, attributes={"on": 1})), live,
                subscriptions[:2])  # fmt: skip


def covering_everything() -> Case:
    where = "a BETWEEN -1.7e308 AND 1.7e308 AND b >= -1.7e308 AND c <= 1.7e308"
    region = Box(-1e9, -1e9, 1e9, 1e9)
    somewhere = {"attributes": {"a": 0, "b": -1.7e308, "c": 1.7e308}, "location": Point(0, 1e9)}
    lacking = {"attributes": {"a": 0, "b": 1}, "location": Point(0, 0)}
    return Case(
        wanting(where, region=region),
        numbered(happening(1, **somewhere) + happening(1, **lacking)),
        happening(**somewhere),
        numbered(wanting(where, 1, region=region) + wanting("d < 1.7e308", 1)),
    )


def ten_thousand_attributes() -> Case:
    names = [[f"a{25 * i + j}" for j in range(25)] for i in range(400)]
    subscriptions = [
        Subscription(
            id=f"s{i:04}", subscriber="ann", where=" AND ".join(f"{name} > {i}" for name in some)
        )
        for i, some in enumerate(names)
    ]
    live = [
        Event(id=f"e{i:04}", attributes=dict.fromkeys(some, i + 1)) for i, some in enumerate(names)
    ]
    everything = Event(id="all", attributes={f"a{k}": 300.0 for k in range(10_000)})
    one_short = Event(id="short", attributes=dict.fromkeys(names[8][1:], 9))
    return Case(subscriptions, [everything, one_short, live[7]], [*live, everything],
                [subscriptions[7], subscriptions[399]])  # fmt: skip


def long_strings() -> Case:
    texts = [LONG, LONG + "y", "y" + LONG, "x"]
    subscriptions = [
        Subscription(id=f"s{i}", subscriber="ann", where=f"text = '{text}'")
        for i, text in enumerate(texts)
    ]
    live = [Event(id=f"e{i}", attributes={"text": text}) for i, text in enumerate(texts)]
    stranger = Event(id="stranger", attributes={"text": LONG + "z"})
    return Case(subscriptions, [*live, stranger], [*live, stranger], subscriptions)


def no_predicate() -> Case:
    bare, worded = wanting(), wanting(None, 5, keywords={"sale"})
    subscriptions = numbered(bare + worded)
    events = numbered(
        happening(1)
        + happening(1, keywords={"sale"})
        + happening(1, attributes={"a": 1}, location=Point(1, 1))
    )
    live = numbered(happening() + happening(5, keywords={"sale"}))
    return Case(subscriptions, events, live, [subscriptions[0], subscriptions[-1]])


CASES = {
    make.__name__: make
    for make in (
        all_equal,
        one_point,
        two_values,
        covering_everything,
        ten_thousand_attributes,
        long_strings,
        no_predicate,
    )
}
SPACE: Literal["planar"] = "planar"


@cache
def case(name: str) -> Case:
    return CASES[name]()


@cache
def wanted_subscriptions(name: str) -> dict[str, list[str]]:
    c = case(name)
    return {e.id: oracle.match_event(c.subscriptions, e, SPACE) for e in c.events}


@cache
def wanted_events(name: str) -> dict[str, list[str]]:
    c = case(name)
    return {q.id: oracle.match_subscription(q, c.live, SPACE) for q in c.questions}


def most_bytes(name: str) -> int:
    many = name == "ten_thousand_attributes"
    return MOST_WITH_MANY_ATTRIBUTES if many else MOST_INDEX_BYTES


def check_events(matcher: Matcher, name: str) -> None:
    c, wanted = case(name), wanted_subscriptions(name)
    for event in c.events:
        assert matcher.match_event(event) == wanted[event.id], event.id
    table = matcher.match_events(c.events)
    found = zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    assert sorted(found) == sorted((e, s) for e, ids in wanted.items() for s in ids)
    matcher.check_invariants()
    assert matcher.memory()["index"] < most_bytes(name)


def check_questions(matcher: Matcher, name: str) -> None:
    for question in case(name).questions:
        assert matcher.match_subscription(question) == wanted_events(name)[question.id]
    matcher.check_invariants()
    assert matcher.memory()["index"] < most_bytes(name)


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_finds_something(name):
    assert any(wanted_subscriptions(name).values())
    assert any(wanted_events(name).values())
    assert not all(
        len(ids) == len(case(name).subscriptions) for ids in wanted_subscriptions(name).values()
    ) or not all(len(ids) == len(case(name).live) for ids in wanted_events(name).values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("index", registry.names(subscriptions=True))
def test_subscriptions(index, name):
    c = case(name)
    matcher = Matcher(index=index, space=SPACE)
    matcher.add_subscriptions(c.subscriptions)
    check_events(matcher, name)
    for subscription in c.subscriptions[::2]:
        matcher.remove_subscription(subscription.id)
    for subscription in c.subscriptions[::2]:
        matcher.add_subscriptions([subscription])
    check_events(matcher, name)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("index", registry.names(events=True))
def test_live_events(index, name):
    c = case(name)
    matcher = Matcher(index=index, space=SPACE)
    matcher.add_events(c.live)
    check_questions(matcher, name)
    for event in c.live[::2]:
        matcher.remove_event(event.id)
    for event in c.live[::2]:
        matcher.add_events([event])
    check_questions(matcher, name)


# -- what an index cannot do -----------------------------------------------------


@pytest.mark.parametrize("index", sorted(set(registry.names()) - set(registry.names(events=True))))
def test_an_index_without_live_events_names_those_that_have_them(index):
    matcher = Matcher(index=index)
    for attempt in (
        lambda: matcher.add_events([Event(id="e")]),
        lambda: matcher.match_subscription(Subscription(id="s", subscriber="ann")),
    ):
        with pytest.raises(CapabilityError) as caught:
            attempt()
        assert caught.value.able == tuple(registry.names(events=True))
        assert all(name in str(caught.value) for name in (index, "pivot", "mo-tree", "scan"))
    assert matcher.event_count == 0


@pytest.mark.parametrize(
    "index", sorted(set(registry.names()) - set(registry.names(subscriptions=True)))
)
def test_an_index_without_subscriptions_names_those_that_have_them(index):
    matcher = Matcher(index=index)
    for attempt in (
        lambda: matcher.add_subscriptions([Subscription(id="s", subscriber="ann")]),
        lambda: matcher.match_event(Event(id="e")),
        lambda: matcher.match_events([Event(id="e")]),
    ):
        with pytest.raises(CapabilityError) as caught:
            attempt()
        assert caught.value.able == tuple(registry.names(subscriptions=True))
        assert all(name in str(caught.value) for name in (index, "pivot", "mo-tree", "scan"))
    assert len(matcher) == 0


# -- bounded memory --------------------------------------------------------------


def state(matcher: Matcher) -> tuple[object, ...]:
    return len(matcher), matcher.event_count, matcher.memory(), len(matcher.schema.columns)


@pytest.mark.parametrize("index", registry.names(subscriptions=True))
def test_too_many_subscriptions_are_refused_before_anything_changes(index):
    c = case("all_equal")
    matcher = Matcher(index=index, space=SPACE)
    matcher.add_subscriptions(c.subscriptions[:50])
    matcher.max_bytes = matcher.memory()["total"] + 20_000
    before = state(matcher)
    with pytest.raises(CapacityError, match="nothing was added"):
        matcher.add_subscriptions(c.subscriptions[50:])
    assert state(matcher) == before
    assert matcher.match_event(c.events[0]) == [s.id for s in c.subscriptions[:50]]
    matcher.check_invariants()
    matcher.max_bytes = None
    matcher.add_subscriptions(c.subscriptions[50:])
    assert matcher.match_event(c.events[0]) == wanted_subscriptions("all_equal")[c.events[0].id]


@pytest.mark.parametrize("index", registry.names(events=True))
def test_too_many_events_are_refused_before_anything_changes(index):
    c = case("all_equal")
    matcher = Matcher(index=index, space=SPACE)
    matcher.add_events(c.live[:50])
    matcher.max_bytes = matcher.memory()["total"] + 20_000
    before = state(matcher)
    with pytest.raises(CapacityError, match="nothing was added"):
        matcher.add_events(c.live[50:])
    assert state(matcher) == before
    assert matcher.match_subscription(c.questions[0]) == [e.id for e in c.live[:50]]
    matcher.check_invariants()


@pytest.mark.parametrize("bound", [100_000, 1_000_000])
@pytest.mark.parametrize("index", registry.names())
def test_what_is_accepted_stays_within_the_bound(index, bound):
    rng = random.Random(3)
    side = registry.entry(index).subscriptions
    matcher = Matcher(index=index, space=SPACE, max_bytes=bound)
    for k in range(0, 1200, 10):
        values = [[(f"a{j}", rng.uniform(0, 90)) for j in range(6)] for _ in range(10)]
        try:
            if side is None:
                matcher.add_events(
                    [Event(id=f"e{k + i}", attributes=dict(each)) for i, each in enumerate(values)]
                )
            else:
                matcher.add_subscriptions(
                    [
                        Subscription(
                            id=f"s{k + i}",
                            where=" AND ".join(f"{a} BETWEEN {v} AND {v + 5}" for a, v in each),
                        )
                        for i, each in enumerate(values)
                    ]
                )
        except CapacityError:
            break
        assert matcher.memory()["total"] <= bound
    assert matcher.event_count + len(matcher) == k + 10 * (k == 1190)
    matcher.check_invariants()


@pytest.mark.parametrize("index", ["pivot", "scan", "tama"])
def test_what_took_more_than_was_foreseen_is_taken_back(index, monkeypatch):
    c = case("all_equal")
    matcher = Matcher(index=index, space=SPACE)
    matcher.add_subscriptions(c.subscriptions[:50])
    if registry.entry(index).events is not None:
        matcher.add_events(c.live[:50])
    live = matcher.event_count
    matcher.max_bytes = matcher.memory()["total"] + 1
    monkeypatch.setattr(Matcher, "_check_room", lambda *_, **__: None)
    more = c.subscriptions[50:]
    for act in (
        lambda: matcher.add_subscriptions(more),
        lambda: matcher.add_subscriptions(pa.table({"id": [s.id for s in more]})),
        *([lambda: matcher.add_events(c.live[50:])] if live else []),
    ):
        with pytest.raises(CapacityError, match="nothing was added"):
            act()
        assert (len(matcher), matcher.event_count) == (50, live)
        matcher.check_invariants()
    matcher.max_bytes = None
    matcher.add_subscriptions(more)
    assert matcher.match_event(c.events[0]) == wanted_subscriptions("all_equal")[c.events[0].id]


LONG = "x" * 2**20


@pytest.mark.parametrize("index", ["pivot", "scan", "lfilter"])
@pytest.mark.parametrize(
    "given",
    [
        {"id": LONG},
        {"where": f"{LONG} = 1"},
        {"where": f"t = '{LONG}'"},
        {"where": f"t <> '{LONG}'"},
        {"where": f"t LIKE '%{LONG}_a'"},
        {"where": f"t NOT IN ('a', '{LONG}')"},
        {"keywords": {LONG}},
    ],
)
def test_long_texts_count_against_the_bound_wherever_they_are(index, given):
    matcher = Matcher(index=index, space=SPACE, max_bytes=500_000)
    matcher.add_subscriptions([Subscription(id="s", where="t = 'a'")])
    before = state(matcher)
    with pytest.raises(CapacityError):
        matcher.add_subscriptions([Subscription(**({"id": "other"} | given))])
    if "id" not in given:
        with pytest.raises(CapacityError):
            matcher.update_subscription(Subscription(id="s", **given))
    assert state(matcher) == before
    matcher.max_bytes = None
    matcher.add_subscriptions([Subscription(**({"id": "other"} | given))])
    assert matcher.memory()["total"] > 2**20
    matcher.remove_subscription(given.get("id", "other"))
    matcher.check_invariants()  # what was left to others is done by then
    assert matcher.memory()["clauses"] < 2**20


@pytest.mark.parametrize(("index", "rows"), [("pivot", 64), ("mo-tree", 31)])
def test_a_replacement_is_not_one_more(index, rows):
    """One more subscription would need a structure that comes all at once; a change does not."""
    matcher = Matcher(index=index, space=SPACE)
    where = " AND ".join(f"{name} >= 1" for name in "abcdef")
    matcher.add_subscriptions([Subscription(id=f"s{i}", where=where) for i in range(rows)])
    matcher.max_bytes = matcher.memory()["total"] + 50_000
    with pytest.raises(CapacityError):
        matcher.add_subscriptions([Subscription(id="other", where=where)])
    matcher.update_subscription(Subscription(id="s0", where=f"{where} AND g = 0"))
    assert matcher.memory()["total"] <= matcher.max_bytes


@pytest.mark.parametrize("index", registry.names())
def test_a_long_string_counts_against_the_bound(index):
    matcher = Matcher(index=index, space=SPACE, max_bytes=500_000)
    before = state(matcher)
    if registry.entry(index).subscriptions is None:
        with pytest.raises(CapacityError):
            matcher.add_events(case("long_strings").live[:1])
    else:
        with pytest.raises(CapacityError):
            matcher.add_subscriptions(case("long_strings").subscriptions[:1])
    assert state(matcher) == before
