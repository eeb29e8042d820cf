"""The broker's composite events are the detector's, in order, late by at most what is allowed."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Around, Broker, Composite, Event, Point, Reply, Subscription
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import CompositeEvent

S = 1_000_000
T = 1_700_000_000 * S
PATTERNS = (
    Composite("pair", "ops", "=|(ARITH: a = 1; 10)(ARITH: a = 2)"),
    Composite("missing", "ops", "!(ARITH: a = 1; 10)(ARITH: a = 2)"),
    Composite("three", "ops", "Q(3)(ARITH: a <= 2)", consume="chronicle"),
    Composite("both", "ops", "(ARITH: a = 2) && (ARITH: a = 3)", consume="recent"),
)
#: (seconds since the last one, kind, seconds of delay)
STREAMS = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from((1, 2, 3)), st.integers(0, 5)), max_size=12
)
_MODEST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Found = list[tuple[str, tuple[str, ...], int | None]]


def stream(drawn: list[tuple[int, int, int]]) -> list[tuple[int, Event]]:
    """Events in order of time, each with the moment at which it comes."""
    out, now = [], T
    for i, (gap, kind, delay) in enumerate(drawn):
        now += gap * S
        out.append((now + delay * S, Event(f"e{i}", {"a": kind}, end=now)))
    return out


def detected(events: list[Event], until: int) -> Found:
    detector = Detector()
    for composite in PATTERNS:
        detector.add(composite)
    found = [each for event in events for each in detector.feed(event)]
    return _listed([*found, *detector.advance(until)])


def _listed(events: list[CompositeEvent]) -> Found:
    return sorted((each.composite_id, each.parts, each.end) for each in events)


def composites(reply: Reply) -> list[CompositeEvent]:
    return [told.event for told in reply if isinstance(told.event, CompositeEvent)]


@given(STREAMS)
@_MODEST
def test_in_order_the_broker_finds_what_the_detector_finds(drawn):
    events = [event for _, event in stream(drawn)]
    until = T + 200 * S
    broker = Broker()
    for composite in PATTERNS:
        broker.detect(composite)
    found = [each for event in events for each in composites(broker.publish(event))]
    found += composites(broker.advance(until))
    assert _listed(found) == detected(events, until)
    assert broker.late == 0


@given(STREAMS)
@_MODEST
def test_late_events_find_their_place(drawn):
    arriving = sorted(stream(drawn), key=lambda pair: pair[0])
    until = T + 200 * S
    broker = Broker(lateness=60)
    for composite in PATTERNS:
        broker.detect(composite)
    found = []
    for _, event in arriving:
        found += composites(broker.publish(event))
    found += composites(broker.advance(until))
    assert _listed(found) == detected([event for _, event in stream(drawn)], until - 60 * S)
    assert broker.late == 0


@given(STREAMS, st.integers(1, 60))
@_MODEST
def test_a_clock_that_ticks_in_between_changes_nothing(drawn, tick):
    times = [T]
    broker = Broker(clock=lambda: times[0])
    for composite in PATTERNS:
        broker.detect(composite)
    found, events = [], [event for _, event in stream(drawn)]
    for event in events:
        assert event.end is not None
        while times[0] + tick * S < event.end:
            times[0] += tick * S
            found += composites(broker.advance())
        times[0] = event.end
        found += composites(broker.publish(event))
    times[0] = T + 200 * S
    found += composites(broker.advance())
    assert _listed(found) == detected(events, T + 200 * S)


def test_a_composite_event_with_a_place_reaches_those_who_move():
    broker = Broker()
    broker.subscribe(Subscription("near", "mo", "composite = 'pair'", region=Around(500)))
    broker.move("mo", Point(8.5, 47.4), epoch=1)
    broker.detect(Composite("pair", "ops", "=|(ARITH: a = 1; 10)(ARITH: a = 2)"))
    broker.publish(Event("e1", {"a": 1}, location=Point(8.499, 47.4), end=T))
    reply = broker.publish(Event("e2", {"a": 2}, location=Point(8.501, 47.401), end=T + S))
    assert reply.location_requests == ("mo",)
    told = broker.move("mo", Point(8.5, 47.4), epoch=2)
    assert [each.event.id for each in told] == ["pair#1"]
