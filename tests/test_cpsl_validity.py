"""`Composite(expires=…)`: until then as if it had none, from then on nothing, and nothing kept."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nearcast import Broker, Composite, Event
from nearcast.broker.wire import composite_from_json, composite_to_json
from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES
from nearcast.cpsl.detector import Detector
from nearcast.errors import PatternError, ValidationError
from nearcast.storage.rows import composite_from_text, composite_to_text
from tests import cpsl_cases as cases
from tests.cpsl_naive import naive

S = 1_000_000
UNTIL = 60
PAIR = "=|(ARITH: a = 1; 60)(ARITH: a = 2)"
MISSING = "!(ARITH: a = 1; 10)(ARITH: a = 2)"


def event(id: str, a: int, end: float) -> Event:
    return Event(id, {"a": a}, end=int(end * S))


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.one_of(cases.patterns(), cases.variable_patterns(), cases.shared_patterns()),
    history=cases.histories(),
    mode=st.sampled_from(MODES),
    expires=st.integers(0, 30),
    together=st.booleans(),
)
def test_the_naive_interpreter_finds_the_same_until_then(
    pattern: ast.Pattern, history: list[Event], mode: Any, expires: int, together: bool
) -> None:
    try:
        composite = Composite(id="c", text=pattern, consume=mode, expires=expires)
        lasting = Composite(id="d", text=pattern, consume=mode)
    except PatternError:
        assume(False)
    detector = Detector("planar", longest=2 / S)
    detector.add(lasting)
    detector.add(composite)  # shares all nodes
    found = detector.feed(history) if together else [d for e in history for d in detector.feed(e)]
    found += detector.advance(UNTIL)
    detector.check_invariants()
    for id, until in (("c", expires), ("d", None)):
        mine = [one for one in found if one.composite_id == id]
        expected = naive(pattern, history, mode, UNTIL, 2, expires=until)
        assert [(one.parts, one.end) for one in mine] == [(one.parts, one.end) for one in expected]
    assert "c" not in detector
    assert "d" in detector


def test_it_is_over_at_that_moment_and_not_before():
    for end, count in ((4, 1), (5, 0), (6, 0)):
        detector = Detector("planar")
        detector.add(Composite("c", None, PAIR, expires=5 * S))
        assert len(detector.feed([event("e1", 1, 1), event("e2", 2, end)])) == count
    for expires, count in ((10, 0), (11, 0), (12, 1)):
        detector = Detector("planar")
        detector.add(Composite("c", None, MISSING, expires=expires * S))
        detector.feed(event("e1", 1, 1))
        assert len(detector.advance(30 * S)) == count


def test_what_waits_for_it_goes_with_it():
    detector = Detector("planar")
    detector.add(Composite("c", None, PAIR, expires=5 * S))
    detector.feed(event("e1", 1, 1))
    assert detector.pending() == 1
    detector.feed(event("e2", 3, 5))
    assert (len(detector), detector.nodes, detector.pending()) == (0, 0, 0)


def test_one_that_is_over_when_it_comes_leaves_nothing():
    detector = Detector("planar")
    detector.advance(5 * S)
    detector.add(Composite("c", None, PAIR, expires=5 * S))
    assert (len(detector), detector.nodes) == (0, 0)
    with pytest.raises(ValidationError, match="expires"):
        Composite("c", None, PAIR, expires="tomorrow")


def test_those_that_come_and_go_before_their_time_leave_nothing_behind():
    detector = Detector("planar")
    for i in range(1000):
        detector.add(Composite("c", None, PAIR, expires=(5 + i) * S))
        detector.remove("c")
    assert len(detector._expiries) < 100
    detector.add(Composite("c", None, PAIR))
    detector.advance(2000 * S)  # the ends of others under its id are not its own
    assert "c" in detector


def test_it_goes_on_to_its_end_after_a_restart():
    detector = Detector("planar")
    detector.add(Composite("c", None, PAIR, expires=9 * S))
    detector.feed(event("e1", 1, 1))
    for end, count in ((8, 1), (9, 0)):
        again = Detector.restore(detector.save())
        assert len(again.feed(event("e2", 2, end))) == count
        again.advance(9 * S)
        assert len(again) == 0


def test_what_waits_is_taken_up_by_who_has_it_still():
    fresh = Detector("planar")
    detector = Detector("planar")
    for each in (detector, fresh):
        each.add(Composite("a", None, MISSING, expires=3 * S))
        each.add(Composite("b", None, PAIR))
    detector.feed([event("e1", 1, 1), event("e2", 3, 4)])
    fresh.load_waiting(detector.save_waiting())
    fresh.check_invariants()
    assert "a" not in fresh
    assert len(fresh.feed(event("e3", 2, 5))) == 1
    other = Detector("planar")
    other.add(Composite("b", None, PAIR, expires=90 * S))
    with pytest.raises(ValidationError, match="other composites"):
        other.load_waiting(detector.save_waiting())


@pytest.mark.parametrize("expires", [None, 5 * S])
def test_it_is_written_and_read(expires: int | None):
    composite = Composite("c", "ops", PAIR, "recent", expires=expires)
    assert pickle.loads(pickle.dumps(composite)) == composite
    assert composite_from_json(json.loads(json.dumps(composite_to_json(composite)))) == composite
    assert composite_from_text("c", "ops", composite_to_text(composite)) == composite
    assert composite_from_text("c", "ops", json.dumps([PAIR, "recent"])).expires is None


def test_a_broker_tells_nobody_after_it():
    broker = Broker("planar")
    broker.detect(Composite("c", "ops", PAIR, expires=5 * S))
    broker.detect(Composite("m", "ops", MISSING, expires=11 * S))
    broker.publish(event("e1", 1, 1))
    assert [told.subscription_id for told in broker.publish(event("e2", 2, 4))] == ["c"]
    broker.publish(event("e3", 1, 4))
    assert len(broker) == 2
    assert not broker.publish(event("e4", 2, 5))
    assert len(broker) == 1
    broker.publish(event("e5", 1, 5))
    assert not broker.advance(40 * S)
    assert len(broker) == 0
    broker.check_invariants()
    broker.detect(Composite("c", "bob", PAIR, expires=30 * S))  # over already
    assert "c" not in broker


def test_what_comes_late_is_judged_by_when_it_happened():
    broker = Broker("planar", lateness=10)
    broker.detect(Composite("c", "ops", PAIR, expires=5 * S))
    broker.publish(event("e1", 1, 1))
    broker.publish(event("e9", 3, 9))  # it is over, and what happened before is still to come
    assert "c" in broker
    broker.publish(event("e2", 2, 4))
    assert [told.event.parts for told in broker.advance(20 * S)] == [("e1", "e2")]  # type: ignore[attr-defined]
    assert "c" not in broker


def test_an_end_that_is_moved_counts_anew():
    broker = Broker("planar")
    broker.advance(1 * S)
    for expires in (5 * S, None, 9 * S):
        broker.detect(Composite("c", "ops", PAIR, expires=expires))
    broker.advance(8 * S)
    assert "c" in broker
    broker.detect(Composite("c", "ops", PAIR, expires=3 * S))
    assert "c" not in broker
