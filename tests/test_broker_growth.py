"""What a broker keeps of what is over: nothing that grows with the days."""

from __future__ import annotations

import gc
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Broker, Composite, Event, Point, Subscription
from nearcast.broker import contents, live, past
from nearcast.broker.timeline import Kind, Timeline
from nearcast.matcher import facade, usage
from tests.strategies import event_lists

S = 1_000_000
T = 1_700_000_000 * S


def grown(work: Callable[[int], None], warm: int, more: int) -> float:
    """Bytes that Python holds more after each further call, once it has warmed up."""
    held = []
    tracemalloc.start()
    try:
        for first, stop in ((0, warm), (warm, warm + more)):
            for i in range(first, stop):
                work(i)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        return (held[1] - held[0]) / more
    finally:
        tracemalloc.stop()


def test_a_timeline_forgets_what_goes_before_its_time():
    timeline = Timeline(None, None, 5)

    def come_and_go(i: int) -> None:
        timeline.ends(T + i, "event", f"e{i}")
        timeline.forget("event", f"e{i}")
        timeline.ends(T, "subscription", "renewed")

    assert grown(come_and_go, 1000, 2000) < 20
    assert len(timeline) < 100
    assert list(timeline.ended(T + 10_000)) == [("subscription", ["renewed"])]
    assert list(timeline.ended(T + 10_000)) == []


def test_a_timeline_ends_what_stays_in_order():
    timeline = Timeline(None, None, 5)
    for i in range(500):
        timeline.ends(T + i % 10, "event", f"e{i}")
    for i in range(0, 500, 2):
        timeline.forget("event", f"e{i}")
    timeline.ends(T + 100, "event", "e1")
    timeline.ends(None, "event", "e3")
    left = sorted((i % 10, i) for i in range(5, 500, 2))
    assert list(timeline.ended(T + 50)) == [("event", [f"e{i}" for _, i in left])]
    assert list(timeline.ended(T + 100)) == [("event", ["e1"])]


ACTS = st.sampled_from(("one", "one", "many", "forget", "ended"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(ACTS, st.integers(0, 5), st.integers(0, 30)), max_size=30))
def test_a_timeline_ends_everything_once_and_in_order(acts):
    timeline, model, count, now = Timeline(None, None, 5), {}, 0, 0
    for act, number, at in [*acts, ("ended", 0, 400)]:
        kind: Kind = "fence" if at % 2 else "event"
        if act == "one":
            timeline.ends(now + at, kind, f"e{number}")
            count += 1
            model[kind, f"e{number}"] = now + at, count
        elif act == "many":  # of ids that are free
            ids = [f"e{i}" for i in range(number, number + 5) if ("event", f"e{i}") not in model]
            ats = [now + (at + i * (number % 3 - 1)) % 30 for i in range(len(ids))]
            timeline.ends_all(ats, "event", ids)
            for when, id in zip(ats, ids, strict=True):
                count += 1
                model["event", id] = when, count
        elif act == "forget":
            timeline.forget(kind, f"e{number}")
            model.pop((kind, f"e{number}"), None)
        else:
            now += at // 4
            over = sorted((entry, key) for key, entry in model.items() if entry[0] <= now)
            found = [(kind, id) for kind, ids in timeline.ended(now) for id in ids]
            assert found == [key for _, key in over]
            for key in found:
                del model[key]
    assert not model


@pytest.mark.parametrize("end", ["expires", "is retracted", "never was live"])
def test_memory_stays_flat_while_ids_strings_and_words_are_new_every_day(
    end: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(usage, "_FEW", 128)
    monkeypatch.setattr(live, "_MOST_OVER", 16)
    monkeypatch.setattr(past, "_TOGETHER", 16)
    monkeypatch.setattr(facade, "_FEW_COMING", 16)
    monkeypatch.setattr(facade, "_MOST_COMING", 32)
    broker = Broker("planar")
    broker.subscribe(Subscription("s", "ann", "owner = 'ann' AND price < 3", keywords={"sale"}))
    broker.detect(Composite("c", "ops", "=|(STRING: owner = &o; 60)(STRING: buyer = &o)"))

    def day(i: int) -> None:
        now = T + 10 * i * S
        attributes: dict[str, str | int] = {"price": i % 5}
        attributes["owner" if i % 2 else "buyer"] = f"o{i // 2}"
        expires = now + (-S if end == "never was live" else 100 * S)
        place = Point(i % 7, i % 5)
        broker.publish(Event(f"e{i}", attributes, {f"w{i}"}, place, now - S, now, expires))
        if end == "is retracted":
            broker.retract(f"e{i}")
        text = f"owner = 'o{i}' AND buyer = 'p{i}'"
        broker.subscribe(Subscription(f"s{i}", f"b{i}", text, {f"v{i}"}, expires=now + 50 * S))

    # One event with one new string and one new word took 394 bytes, and what follows from it more.
    assert grown(day, 500, 500) < 100
    broker.check_invariants()


def test_composites_that_come_and_go_leave_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "_FEW", 16)
    broker = Broker()
    for i in range(100):
        broker.detect(Composite(f"c{i}", "ops", f'P(5)(STRING: owner >* "x{i}")'))
        broker.publish(Event(f"e{i}", {"owner": f"x{i}"}, end=T + i * S))
        assert broker.unsubscribe(f"c{i}") == []
    broker.advance(T + 1000 * S)
    detector = broker._patterns._detector
    assert (detector.nodes, detector.pending()) == (0, 0)
    assert detector._graph.dispatch.matcher.schema.texts <= 20
    assert not broker._patterns._numbers


def test_time_that_stands_still_keeps_no_ids():
    broker = Broker()
    broker.detect(Composite("c", "ops", "ARITH: a = 1"))

    def happen(i: int) -> None:
        broker.publish(Event(f"e{i}", {"a": 2}))
        broker.retract(f"e{i}")

    assert grown(happen, 400, 800) < 20


def test_the_past_is_remembered_for_a_time_and_up_to_a_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(past, "REMEMBERED", 10)
    known = past.Past()
    events = [Event(f"e{i}", {"a": i}) for i in range(30)]
    for i, event in enumerate(events):
        known.keep([event], [T + i])
    assert [known.holds(event, T) for event in events] == [False] * 20 + [True] * 10
    assert not known.holds(Event("e29", {"a": 30}), T)
    known.forget(T + 25)
    assert [known.holds(event, T + 25) for event in events[20:]] == [False] * 6 + [True] * 4
    assert len(known) == 4


@settings(deadline=None)
@given(st.lists(event_lists("planar", 30), max_size=6), st.data())
def test_the_past_is_what_a_store_keeps(batches: list[list[Event]], data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past, "REMEMBERED", 25)
        patch.setattr(past, "_TOGETHER", 9)
        kept: past.Known = OrderedDict()
        known = past.Past()
        for batch in batches:
            untils = [T + data.draw(st.integers(0, 20)) for _ in batch]
            said = contents.contents_of(batch)
            if data.draw(st.booleans()):
                known.keep(batch, untils)
            else:
                known.keep_contents([event.key for event in batch], said, untils)
            for event, content, until in zip(batch, said, untils, strict=True):
                past.keep(kept, event.key, content, until)
            assert known.contents() == kept
            now = T + data.draw(st.integers(0, 15))
            known.forget(now)
            past.forget(kept, now)
            assert list(known.contents().items()) == list(kept.items())
            if data.draw(st.booleans()):
                known = past.Past(known.contents())
            for event in chain.from_iterable(batches):
                content, until = kept.get(event.key, (b"", now))
                equal = now < until and content == contents.content_of(event)
                assert known.holds(event, now) == equal
                assert (event.key in known) == (event.key in kept)


def test_an_event_that_comes_again_and_again_is_remembered_once():
    known = past.Past()
    known.keep([Event("first", {"a": 1})], [T + S])
    again = Event("again", {"a": 1})

    def expire(i: int) -> None:
        known.keep([again], [T + i])

    assert grown(expire, 2000, 4000) < 20
    assert known.holds(Event("first", {"a": 1}), T)
    assert known.holds(again, T)


def test_equal_events_have_equal_contents():
    first = Event("e", {"a": 1, "b": "x"}, {"u", "v"}, Point(1, 2), end=T)
    assert contents.content_of(first) == contents.content_of(
        Event("e", {"b": "x", "a": 1.0}, ["v", "u"], Point(1.0, 2.0), end=T)
    )
    for other in (
        Event("e", {"a": 1, "b": "y"}, {"u", "v"}, Point(1, 2), end=T),
        Event("e", {"a": True, "b": "x"}, {"u", "v"}, Point(1, 2), end=T),
        Event("e", {"a": 1, "b": "x"}, {"u"}, Point(1, 2), end=T),
        Event("e", {"a": 1, "b": "x"}, {"u", "v"}, Point(1, 3), end=T),
        Event("e", {"a": 1, "b": "x"}, {"u", "v"}, Point(1, 2), end=T + 1),
    ):
        assert contents.content_of(first) != contents.content_of(other)


@settings(deadline=None)
@given(event_lists("planar", 30))
def test_contents_of_many_are_those_of_each(events: list[Event]):
    each = [contents.content_of(event) for event in events]
    assert contents.contents_of(events) == each
    kept = contents.kept_contents(events)
    assert [kept[i] for i in range(len(events))] == each


def test_contents_of_many_know_zeros_and_names_in_any_order():
    events = [Event(f"e{i}", {"b": -0.0, "a": float("nan")}, (), Point(1, -0.0)) for i in range(20)]
    turned = Event("e", {"a": float("nan"), "b": 0}, (), Point(1, 0))
    assert set(contents.contents_of(events)) == {contents.content_of(turned)}
    kept = contents.kept_contents(events)
    assert isinstance(kept, contents.Packed)
    assert {kept[i] for i in range(20)} == {contents.content_of(turned)}
