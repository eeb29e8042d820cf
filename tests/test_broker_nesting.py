"""Composites of composites: bounded by rules that hold whatever has expired meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from nearcast import Broker, Composite, Event, Reply, Subscription
from nearcast.cpsl import lineage
from nearcast.cpsl.composite import MODES, Mode
from nearcast.cpsl.instances import CompositeEvent

S = 1_000_000
T = 1_700_000_000 * S
ANY = 'CQL2: "composite IS NOT NULL"'


def made(reply: Reply) -> list[tuple[str, tuple[str, ...]]]:
    """Composite ids with the parts, as they were told."""
    return [
        (told.subscription_id, told.event.parts)
        for told in reply
        if isinstance(told.event, CompositeEvent)
    ]


def at(id: str, second: float, **attributes: Any) -> Event:
    return Event(id, attributes, end=T + round(second * S))


def broker_of(*composites: tuple[str, str], mode: Mode = MODES[0], **settings: Any) -> Broker:
    broker = Broker(**settings)
    for id, text in composites:
        broker.detect(Composite(id, "ops", text, mode))
    return broker


def test_one_detection_of_a_composite_for_a_set_of_plain_events():
    text = "CQL2: \"k = 'A' OR composite IS NOT NULL\""
    broker = broker_of(*((f"c{i}", text) for i in range(7)))
    assert made(broker.publish(at("e1", 0, k="A"))) == [(f"c{i}", ("e1",)) for i in range(7)]
    assert made(broker.publish(at("e2", 1, k="A"))) == [(f"c{i}", ("e2",)) for i in range(7)]


def test_plain_events_are_found_as_often_as_the_detector_finds_them():
    broker = broker_of(
        ("c", "!(ARITH: a = 1; 10)(ARITH: a = 2) || !(ARITH: a = 1; 20)(ARITH: a = 2)")
    )
    broker.publish(at("e1", 0, a=1))
    assert made(broker.advance(T + 60 * S)) == [("c", ("e1",))] * 2


def test_a_set_is_remembered_while_something_made_of_it_waits():
    broker = broker_of(
        ("late", '!(STRING: k = "A"; PT2H)(STRING: k = "B")'),  # after all has expired
        ("seen", f'(STRING: k = "A") || ({ANY})'),
        composite_life=1,
    )
    assert made(broker.publish(at("e1", 0, k="A"))) == [("seen", ("e1",))]
    assert made(broker.advance(T + 9000 * S)) == [("late", ("e1",))]


def test_no_composite_is_made_of_itself_after_its_parts_have_expired():
    broker = broker_of(
        (
            "first",
            '(STRING: k = "A") || (=|(STRING: composite = "second"; 9000)(STRING: k = "B"))',
        ),
        ("second", 'STRING: composite = "first"'),
        composite_life=1,
    )
    told = made(broker.publish(at("e1", 0, k="A")))
    assert [id for id, _ in told] == ["first", "second"]
    broker.advance(T + 4000 * S)
    assert made(broker.publish(at("e2", 4001, k="B"))) == []


def test_a_composite_that_waits_for_nothing_is_not_made_of_itself_either():
    broker = broker_of(
        ("c", '(STRING: k = "A") || (STRING: composite = "d")'),
        ("d", '(STRING: k = "B") && (STRING: composite = "c")'),
    )
    told = [made(broker.publish(at(k, i, k=k))) for i, k in enumerate("AB")]
    assert told == [[("c", ("A",))], [("d", ("c#1", "B"))]]


def test_what_time_decides_is_nobodys_lineage():
    broker = broker_of(
        ("missing", '!(STRING: k = "A"; 10)(STRING: k = "B")'),
        ("seen", 'STRING: composite = "missing"'),
    )
    for i in (0, 5):
        broker.publish(at(f"e{i}", i, k="A"))
    told = made(broker.advance(T + 60 * S))
    assert [parts for id, parts in told if id == "missing"] == [("e0",), ("e5",)]


def test_deep_chains_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nearcast.cpsl.detector.DEEPEST", 3)
    chain = [(f"c{i + 1}", f'STRING: composite = "c{i}"') for i in range(6)]
    broker = broker_of(("c0", 'STRING: k = "A"'), *chain)
    told = made(broker.publish(at("e1", 0, k="A")))
    assert [id for id, _ in told] == ["c0", "c1", "c2"]
    assert lineage.DEEPEST == 16


def test_a_composite_without_parts_counts_as_a_plain_event():
    nothing = '!({0}; 10)(STRING: k = "Z")'
    broker = broker_of(
        ("quiet", nothing.format(T // S)),
        ("calm", nothing.format(T // S + 20)),
        ("either", ANY),
        ("other", ANY),
    )
    broker.advance(T)
    told = made(broker.advance(T + 60 * S))
    assert [id for id, _ in told] == ["quiet", "either", "other", "calm", "either", "other"]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_made_of_a_composite_is_no_part_of_it_and_consumes_nothing(mode: Mode):
    """`two` would take its own detection for one of the next two."""
    text = f'Q(2)((STRING: k = "A") || ({ANY}))'
    told: dict[bool, list[Any]] = {}
    for alone in (True, False):
        pattern = 'Q(2)(STRING: k = "A")' if alone else text
        broker = broker_of(("two", pattern), mode=mode)
        told[alone] = [made(broker.publish(at(f"e{i}", i, k="A"))) for i in range(6)]
    assert told[False] == told[True]


@pytest.mark.parametrize("mode", MODES)
def test_of_a_set_that_was_told_a_pair_consumes_nothing(mode: Mode):
    """`d` and `e` say of a and b again what the pair has said; each may still meet another."""
    broker = broker_of(
        ("d", 'STRING: k = "A"'),
        ("e", 'STRING: k = "B"'),
        (
            "pair",
            '((STRING: k = "A") || (STRING: composite = "d")) && '
            '((STRING: k = "B") || (STRING: composite = "e"))',
        ),
        mode=mode,
    )
    told = []
    for event in (at("a", 0, k="A"), at("b", 1, k="B"), at("a2", 2, k="A"), at("b2", 3, k="B")):
        told += [parts for id, parts in made(broker.publish(event)) if id == "pair"]
    sets = [frozenset(_plain(part) for part in parts) for parts in told]
    assert len(sets) == len(set(sets))
    assert {frozenset(("a", "b")), frozenset(("a2", "b2"))} <= set(sets)
    if mode == "first-matching":  # e#1 has waited for a2, and d#1 for b2
        assert told == [("a", "b"), ("e#1", "a2"), ("d#1", "b2"), ("d#2", "e#2")]


def _plain(part: str) -> str:
    return {"d#1": "a", "d#2": "a2", "e#1": "b", "e#2": "b2"}.get(part, part)


def test_its_own_detection_may_close_a_window():
    """Raised once in ten seconds: what a negation looks for is no part of it."""
    broker = broker_of(("alarm", '!(STRING: k = "A"; 10)(STRING: composite = "alarm")'))
    told = [broker.publish(at(f"e{i}", i, k="A")) for i in (0, 5, 20)]
    told.append(broker.advance(T + 60 * S))
    assert [parts for reply in told for _, parts in made(reply)] == [("e0",), ("e20",)]


def test_others_see_what_a_composite_may_not():
    """Two composites of one pattern share nothing that one of them must not see."""
    text = f'=|(STRING: composite = "seed"; 100)({ANY})'
    broker = broker_of(("seed", 'STRING: k = "A"'), ("left", text), ("right", text))
    broker.publish(at("e1", 0, k="A"))
    told = made(broker.publish(at("e2", 1, k="A")))
    broker.check_invariants()
    assert sorted(told) == [
        ("left", ("seed#1", "seed#2")), ("right", ("seed#1", "seed#2")), ("seed", ("e2",)),
    ]  # fmt: skip


def test_a_composite_event_can_be_subscribed_to_however_deep():
    broker = broker_of(("c0", 'STRING: k = "A"'), ("c1", 'STRING: composite = "c0"'))
    broker.subscribe(Subscription("s", "ann", "composite = 'c1'"))
    reply = broker.publish(at("e1", 0, k="A"))
    assert [told.subscription_id for told in reply] == ["c0", "c1", "s"]
