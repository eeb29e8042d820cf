"""Fences: the value, what is refused, and what the corner cases mean."""

from __future__ import annotations

import json
import math
import pickle
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import (
    Around,
    Box,
    Broker,
    Circle,
    Composite,
    Event,
    Fence,
    Point,
    Polygon,
    Reply,
    Subscription,
)
from nearcast.broker import service
from nearcast.errors import BatchError, DuplicateIdError, UnknownIdError, ValidationError
from nearcast.fences import Position, Positions, Watch, watch
from nearcast.fences.kernels import tables
from nearcast.model.codec import (
    fence_from_json,
    fence_to_json,
    fences_from_arrow,
    fences_from_json,
    fences_to_arrow,
    fences_to_json,
)
from nearcast.model.fences import TRANSITIONS, object_of
from tests import strategies

S = 1_000_000
YARD = Box(0, 0, 10, 10)


def fence(id: str = "f1", **given) -> Fence:
    usual: dict[str, Any] = {"subscriber": "ops", "object": "truck", "region": YARD}
    return Fence(id, **usual | given)


def fence_values() -> st.SearchStrategy[Fence]:
    return st.builds(
        _fence,
        strategies.subscriptions("globe"),
        strategies.regions("globe"),
        st.sets(st.sampled_from(TRANSITIONS), min_size=1),
        st.sampled_from((0, 1.5, 1e6)),
        st.integers(0, 10**12),
        st.none() | st.integers(1, 10**12),
    )


def _fence(wanted: Subscription, region, on, margin, dwell: int, lost: int | None) -> Fence:
    if lost is None and "lost" in on:
        lost = 5
    return Fence(
        wanted.id, wanted.subscriber, "truck", region, wanted.where, wanted.keywords, on, margin,
        timedelta(microseconds=dwell) if "dwell" in on else None,
        None if lost is None else timedelta(microseconds=lost), wanted.expires,
    )  # fmt: skip


class Story:
    """A broker on a plane, told of trucks by the second."""

    def __init__(self, **given) -> None:
        self.broker = Broker("planar", **given)
        self.count = 0

    def fence(self, **given) -> list[tuple]:
        return self.told(self.broker.subscribe(fence(**given)))

    def at(self, second: float, x: float, y: float = 5, who=1, **given) -> list[tuple]:
        self.count += 1
        event = Event(
            f"e{self.count}", {"truck": who}, (), Point(x, y), end=round(second * S), **given
        )
        return self.told(self.broker.publish(event))

    def until(self, second: float) -> list[tuple]:
        return self.told(self.broker.advance(round(second * S)))

    def told(self, reply: Reply) -> list[tuple]:
        return [(each.transition, each.object, each.at / S) for each in reply]


# --- the value ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(fence_values())
def test_a_fence_goes_through_json_arrow_and_pickle(made: Fence):
    assert fence_from_json(json.loads(json.dumps(fence_to_json(made)))) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))
    (back,) = fences_from_arrow(fences_to_arrow([made]))
    assert back.on == made.on
    assert (back.region, back.where, back.object) == (made.region, made.where, made.object)
    assert back == made


def test_durations_are_seconds_timedeltas_or_iso_8601():
    for each in (600, "600", "PT10M", timedelta(minutes=10), 600.0):
        made = fence(on={"dwell", "lost"}, dwell=each, lost=each)
        assert made.dwell == made.lost == timedelta(minutes=10)
    assert fence_to_json(made)["dwell"] == "PT600S"
    assert fence_from_json(fence_to_json(made) | {"dwell": 600}) == made


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"object": ""}, "object"),
        ({"object": 3}, "object"),
        ({"region": None}, "region"),
        ({"region": Point(0, 0)}, "region"),
        ({"on": set()}, "on"),
        ({"on": "enter"}, "on"),
        ({"on": {"leave"}}, "on"),
        ({"on": 3}, "on"),
        ({"on": {"dwell"}}, "dwell"),
        ({"dwell": 5}, "dwell"),
        ({"on": {"dwell"}, "dwell": -1}, "dwell"),
        ({"on": {"dwell"}, "dwell": "soon"}, "dwell"),
        ({"on": {"lost"}}, "lost"),
        ({"lost": 0}, "lost"),
        ({"lost": -5}, "lost"),
        ({"margin_m": -1}, "margin_m"),
        ({"margin_m": float("nan")}, "margin_m"),
        ({"margin_m": float("inf")}, "margin_m"),
        ({"margin_m": 10**400}, "margin_m"),
        ({"margin_m": "5"}, "margin_m"),
        ({"margin_m": True}, "margin_m"),
    ],
)
def test_what_is_no_fence_is_refused(given: dict, field: str):
    with pytest.raises(ValidationError) as refused:
        fence(**given)
    assert refused.value.field == field


def test_bad_fences_in_bulk_are_named_by_their_row():
    good = fence_to_json(fence())
    with pytest.raises(BatchError) as refused:
        fences_from_json([good, good | {"on": ["leave"]}])
    assert refused.value.row == 1
    with pytest.raises(ValidationError):
        fences_from_json(good)
    with pytest.raises(ValidationError):
        fence_from_json(good | {"colour": "red"})
    table = fences_to_arrow([fence(), fence("f2")])
    at = table.column_names.index("margin_m")
    table = table.set_column(at, "margin_m", pa.array([0.0, -1.0]))
    with pytest.raises(BatchError) as refused:
        fences_from_arrow(table)
    assert refused.value.row == 1
    assert fences_from_json(fences_to_json([fence()])) == [fence()]


def test_objects_are_strings_and_numbers():
    for value, who in ((1, 1.0), (1.0, 1.0), ("1", "1"), ("", ""), (True, None)):
        assert object_of({"truck": value}, "truck") == who
    assert object_of({"truck": float("nan")}, "truck") is None
    assert object_of({}, "truck") is None


# --- one space of ids -----------------------------------------------------------------------------


def test_subscriptions_composites_and_fences_share_their_ids():
    broker = Broker("planar")
    broker.subscribe(fence("a"))
    broker.subscribe(Subscription("b"))
    broker.detect(Composite("c", "ops", "ARITH: x = 1"))
    assert len(broker) == 3
    assert all(id in broker for id in "abc")
    for refused in (
        lambda: broker.subscribe(Subscription("a")),
        lambda: broker.subscribe(fence("b")),
        lambda: broker.subscribe(fence("c")),
        lambda: broker.detect(Composite("a", "ops", "ARITH: x = 1")),
    ):
        with pytest.raises(DuplicateIdError):
            refused()
    with pytest.raises(BatchError):
        broker.subscribe_many([fence("d"), Subscription("d")])
    broker.unsubscribe("a")
    assert "a" not in broker
    with pytest.raises(UnknownIdError):
        broker.unsubscribe("a")


def test_many_subscriptions_and_fences_begin_together():
    broker = Broker("planar")
    broker.publish(Event("e1", {"truck": 1}, (), Point(5, 5)))
    told = broker.subscribe_many([fence("a"), Subscription("b"), fence("c"), fence("a")])
    assert [(each.subscription_id, each.transition) for each in told] == [
        ("a", "enter"), ("b", None), ("c", "enter"),
    ]  # fmt: skip
    with pytest.raises(BatchError) as refused:
        broker.subscribe_many([fence("d"), fence("e", subscriber=None, region=Around(5))])
    assert refused.value.row == 1
    assert "d" not in broker


def test_a_region_the_space_does_not_have_is_refused():
    with pytest.raises(ValidationError):
        Broker().subscribe(fence(region=Circle(0, 100, 5)))
    with pytest.raises(ValidationError):
        Broker("planar").subscribe(fence(region=Box(5, 0, 0, 5)))
    with pytest.raises(ValidationError):
        Broker().subscribe("f1")  # type: ignore[arg-type]


def test_a_position_matches_plain_subscriptions_first():
    story = Story()
    story.broker.subscribe(Subscription("all", "ann"))
    story.fence()
    assert story.at(0, 5) == [(None, None, 0.0), ("enter", 1, 0.0)]


def test_in_a_batch_plain_subscriptions_come_first_too():
    """What was due before a position is told before it, what it brings behind those who want it."""
    broker = Broker("planar")
    broker.subscribe(Subscription("all", "ann"))
    broker.subscribe(fence(on={"enter", "dwell"}, dwell=3))
    given = [
        Event(f"e{i}", {"truck": 1}, (), Point(5.0 if i > 2 else 50.0, 5), None, i * S, 100 * S)
        for i in range(12)
    ]
    told = [(each.event.id, each.transition) for each in broker.publish_many(given)]
    plain = [(f"e{i}", None) for i in range(12)]
    assert told == [*plain[:4], ("e3", "enter"), *plain[4:7], ("e6", "dwell"), *plain[7:]]


# --- what the corners mean ------------------------------------------------------------------------


def test_a_visit_with_everything():
    story = Story()
    assert story.fence(on=TRANSITIONS, dwell=10, lost=100, margin_m=2) == []
    assert story.at(0, 20) == [("outside", 1, 0)]
    assert story.at(5, 10) == [("enter", 1, 5), ("inside", 1, 5)]  # the border belongs to it
    assert story.at(7, 12) == [("inside", 1, 7)]  # within the margin
    assert story.at(20, 12.5) == [("dwell", 1, 15), ("exit", 1, 20), ("outside", 1, 20)]
    assert story.at(21, 11) == [("outside", 1, 21)]
    assert story.at(30, -3) == [("cross", 1, 30), ("outside", 1, 30)]
    assert story.until(129) == []
    assert story.until(130) == [("lost", 1, 130)]
    assert story.at(140, 20) == [("outside", 1, 140)]  # unknown before: nothing was crossed


def test_who_leaves_when_the_dwell_is_due_does_not_dwell():
    story = Story()
    story.fence(on={"dwell"}, dwell=10)
    story.at(0, 5)
    assert story.at(10, 50) == []
    assert story.until(20) == []
    story.at(30, 5)
    assert story.until(39.999999) == []
    assert story.until(40) == [("dwell", 1, 40)]
    assert story.until(60) == []  # once a visit


def test_a_dwell_of_nothing_is_told_with_the_next_word_about_time():
    story = Story()
    story.fence(on={"enter", "dwell"}, dwell=0)
    assert story.at(0, 5) == [("enter", 1, 0)]
    assert story.until(0) == [("dwell", 1, 0)]
    story.at(5, 50)
    assert story.at(6, 5) == [("enter", 1, 6)]
    assert story.at(6, 50) == []  # both at one moment: it left before anything was due


def test_a_margin_larger_than_the_region():
    story = Story()
    story.fence(region=Circle(0, 0, 1), margin_m=50)
    assert story.at(0, 30) == []
    assert story.at(1, 0, 0) == [("enter", 1, 1)]
    assert story.at(2, 51, 0) == []
    assert story.at(3, 51.5, 0) == [("exit", 1, 3)]


def test_time_that_goes_back_is_late_for_its_object_only():
    story = Story()
    story.fence()
    story.at(10, 50)
    assert story.at(9, 5) == []
    assert story.broker.late == 1
    assert story.at(8, 5, who=2) == [("enter", 2, 8)]
    assert story.at(10, 5) == [("enter", 1, 10)]  # at the same moment, it counts
    assert story.broker.late == 1


def test_lateness_puts_what_is_late_in_order():
    story = Story(lateness=5)
    story.fence(on={"enter", "exit"})
    assert story.at(10, 50) == []
    assert story.at(8, 5) == []
    assert story.until(14) == [("enter", 1, 8)]
    assert story.until(15) == [("exit", 1, 10)]
    assert story.broker.late == 0


def test_numbers_and_strings_name_different_objects():
    story = Story()
    story.fence()
    assert story.at(0, 5, who=1) == [("enter", 1, 0)]
    assert story.at(1, 5, who="1") == [("enter", "1", 1)]
    assert story.at(2, 50, who=1.0) == [("exit", 1.0, 2)]
    assert story.at(3, 5, who=True) == []
    assert story.at(4, 50, who="1") == [("exit", "1", 4)]


def test_an_event_without_the_attribute_or_a_place_is_no_position():
    broker = Broker("planar")
    broker.subscribe(fence())
    assert not broker.publish(Event("e1", {"car": 1}, (), Point(5, 5)))
    assert not broker.publish(Event("e2", {"truck": 1}))
    assert not broker.publish(Event("e3", {"truck": None}, (), Point(5, 5)))


def test_a_teleport_crosses_what_lies_between():
    story = Story()
    story.fence(on={"cross"})
    assert story.at(0, -1e6) == []
    assert story.at(0, 1e6) == [("cross", 1, 0)]
    assert story.at(1, 1e6) == []


def test_a_fence_that_ends_while_somebody_dwells_says_no_more():
    story = Story()
    story.fence(on={"enter", "dwell", "exit"}, dwell=10, expires=10 * S)
    story.at(0, 5)
    assert story.until(50) == []
    assert "f1" not in story.broker
    assert story.fence(on={"dwell"}, dwell=10, expires=61 * S) == [("dwell", 1, 10)]
    assert story.until(60) == []  # told when it came: the last position was live


def test_a_new_fence_is_told_who_is_inside():
    story = Story()
    story.at(0, 5, who="b")
    story.at(1, 5, who="a", expires=4 * S)
    story.at(2, 50, who="c")
    story.until(3)
    assert story.fence(on={"enter", "dwell"}, dwell=3) == [
        ("enter", "b", 0), ("enter", "a", 1), ("dwell", "b", 3),
    ]  # fmt: skip
    assert story.fence(id="f2", on={"enter", "lost"}, lost=1) == [
        ("enter", "b", 0), ("enter", "a", 1), ("lost", "b", 1), ("lost", "a", 2), ("lost", "c", 3),
    ]  # fmt: skip
    story.until(5)
    assert story.fence(id="f3") == [("enter", "b", 0)]  # the last word of a is over


def test_an_equal_fence_changes_nothing_and_another_begins_anew():
    story = Story()
    story.fence()
    assert story.at(0, 5) == [("enter", 1, 0)]
    assert story.fence() == []
    assert story.fence(margin_m=1) == [("enter", 1, 0)]


def test_retraction_and_expiry_change_no_state():
    story = Story()
    story.fence()
    story.at(0, 5, expires=5 * S)
    story.until(10)
    assert story.at(11, 50) == [("exit", 1, 11)]
    story.at(12, 5)
    story.broker.retract(f"e{story.count}")
    assert story.fence(id="f2") == []  # nobody knows where it is
    assert story.at(13, 50) == [("exit", 1, 13)]


def position(id: str, x: float, y: float, at_s: float) -> Event:
    return Event(id, {"truck": "T"}, location=Point(x, y), end=int(at_s * S))


def lossy(lost: float = 10, **given) -> Fence:
    return fence(on={"enter", "dwell", "lost"}, dwell=5, lost=lost, **given)


def seen(reply: Reply) -> list[tuple]:
    return [(n.subscription_id, n.transition, n.at // S) for n in reply]


def test_who_was_said_to_be_lost_is_lost_once():
    broker = Broker("planar")
    broker.subscribe(lossy())
    broker.subscribe(fence("f2"))
    broker.subscribe(lossy(id="f3", where="loaded = TRUE"))
    broker.publish(position("p1", 5, 5, 0))
    assert seen(broker.lose("truck", "T", at=5 * S)) == [("f1", "dwell", 5), ("f1", "lost", 5)]
    assert not broker.lose("truck", "T")
    assert not broker.lose("truck", "U")
    assert not broker.lose("van", "T")
    assert not broker.advance(20 * S)
    assert seen(broker.publish(position("p2", 5, 5, 21))) == [("f1", "enter", 21)]
    assert seen(broker.advance(26 * S)) == [("f1", "dwell", 26)]
    assert seen(broker.advance(40 * S)) == [("f1", "lost", 31)]


def test_a_fence_that_comes_later_knows_nothing_of_a_loss():
    broker = Broker("planar")
    broker.subscribe(lossy())
    broker.publish(position("p1", 5, 5, 0))
    assert seen(broker.lose("truck", "T", at=1 * S)) == [("f1", "lost", 1)]
    assert seen(broker.subscribe(lossy(id="f2"))) == [("f2", "enter", 0)]
    assert seen(broker.advance(10 * S)) == [("f2", "dwell", 5), ("f2", "lost", 10)]


def test_a_loss_waits_for_late_positions():
    broker = Broker("planar", lateness=10)
    broker.subscribe(lossy())
    broker.publish(position("p1", 5, 5, 0))
    assert not broker.lose("truck", "T", at=2 * S)
    broker.publish(position("p2", 50, 50, 1))
    broker.publish(position("p3", 5, 5, 2))
    assert seen(broker.advance(12 * S)) == [
        ("f1", "enter", 0),
        ("f1", "enter", 2),
        ("f1", "lost", 2),
    ]


def test_a_loss_outlives_the_process(tmp_path):
    url = f"{tmp_path}/lost.db"
    with Broker.open(url, "planar") as broker:
        broker.subscribe(lossy())
        broker.publish(position("p1", 5, 5, 0))
        assert seen(broker.lose("truck", "T", at=1 * S)) == [("f1", "lost", 1)]
    with Broker.open(url, "planar") as broker:
        assert not broker.lose("truck", "T")
        assert not broker.advance(20 * S)


@pytest.mark.parametrize(
    ("attribute", "object"),
    [("", "T"), (7, "T"), ("truck", None), ("truck", True), ("truck", math.nan), ("truck", [1]),
     ("truck", 10**400)],
)  # fmt: skip
def test_who_cannot_be_lost(attribute: Any, object: Any):
    broker = Broker("planar")
    with pytest.raises(ValidationError, match=r"attribute|object"):
        broker.lose(attribute, object)


def test_lost_without_a_word_bounds_what_is_kept():
    story = Story()
    story.fence(lost=10)
    for number in range(200):
        story.at(number, 5, who=number)
    assert story.broker._fences._watch.objects <= 11
    assert story.broker._fences._watch.pairs <= 11
    assert story.until(1000) == []
    assert story.broker._fences._watch.objects == 0


def test_without_lost_a_number_bounds_what_is_kept():
    """The objects that have been silent longest go, as if they had never been seen."""
    broker = Broker("planar", max_objects=8)
    broker.subscribe(fence(on={"enter", "exit", "dwell"}, dwell=1000))

    def at(second, who, x=5.0):
        event = Event(
            f"{second}", {"truck": who}, (), Point(x, 5), None, second * S, second * S + 1
        )
        return [(told.transition, told.object) for told in broker.publish(event)]

    watch = broker._fences._watch
    for second in range(400):
        assert at(second, second) == [("enter", second)]
        assert watch.objects <= 8
        assert watch.pairs <= 8
    assert broker.overflows == 400 - watch.objects
    assert at(400, 399, 50.0) == [("exit", 399)]  # known still
    assert at(401, 0) == [("enter", 0)]  # begins anew
    told = broker.advance(2000 * S)
    assert {each.object for each in told} < {*range(380, 400), 0}
    new = range(1000, 1050)
    many = [Event(f"m{i}", {"truck": i}, (), Point(5, 5), None, 2000 * S) for i in new]
    assert len(broker.publish_many(many)) == 50
    assert watch.objects <= 8
    again = Watch("planar", 8)
    again.load(watch.dump())
    assert again.objects == watch.objects


def test_bad_positions_in_a_batch_are_as_one_by_one():
    """Bools, NaN, nothing, strings beside numbers, two at one moment, and time that goes back."""
    whose = (1, True, 1.0, "1", None, math.nan, 2, False, 2, 0, -0.0, 1)
    given = [
        Event(f"e{i}", {"truck": who}, (), Point(5.0 if i % 3 else 50.0, 5), None, (i // 2) * S)
        for i, who in enumerate(whose)
    ]
    given.append(Event("nowhere", {"truck": 1}, (), None, None, 9 * S))
    given.append(Event("back", {"truck": 1}, (), Point(50, 5), None, 1 * S))
    one, many = Broker("planar"), Broker("planar")
    for broker in (one, many):
        broker.subscribe(fence(on={"enter", "exit", "inside", "outside"}))
    told = [each for event in given for each in one.publish(event)]
    assert many.publish_many(given) == told
    assert {each.object for each in told} == {1, "1", 2, 0}
    assert one.late == many.late == 1
    known: tuple[Any, ...] = (
        1,
        "1",
        True,
        2,
        False,
        0,
    )  # all of them would be found, be it under 1.0 and 0.0
    given = [
        Event(f"k{i}", {"truck": who}, (), Point(50, 5), None, 10 * S)
        for i, who in enumerate(known)
    ]
    told = [each for event in given for each in one.publish(event)]
    assert many.publish_many(given) == told
    assert [each.object for each in told if each.transition == "outside"] == [1, "1", 2, 0]


def test_a_roaming_fence_makes_no_safe_region():
    broker = Broker("planar")
    broker.subscribe(fence(subscriber="lead", region=Around(5)))
    broker.publish(Event("e1", {"truck": 1}, (), Point(0, 0)))
    reply = broker.move("lead", Point(3, 0))
    assert [(told.transition, told.at) for told in reply] == [("enter", 0)]
    assert not reply.safe_regions
    assert reply.location_requests == ()
    assert [told.transition for told in broker.move("lead", Point(30, 0))] == ["exit"]


def test_composite_events_are_positions_too():
    broker = Broker("planar")
    broker.detect(Composite("c", "ops", "ARITH: truck > 0"))
    broker.subscribe(fence(object="composite"))
    told = broker.publish(Event("e1", {"truck": 7}, (), Point(5, 5)))
    assert [(each.subscription_id, each.transition, each.object) for each in told] == [
        ("c", None, None), ("f1", "enter", "c"),
    ]  # fmt: skip


# --- the operator ---------------------------------------------------------------------------------


def test_a_pair_takes_no_more_than_64_bytes():
    watch = Watch("planar")
    for number in range(40):
        watch.add(fence(f"f{number}", on={"dwell"}, dwell=1e6), lambda _: ())
    positions = [Position(Event(f"e{i}", {"truck": i}, (), Point(5, 5)), i, i) for i in range(500)]
    watch.take(positions)
    assert watch.pairs == 20_000
    used = watch._arrays.tables
    row = used.pairs.itemsize * 8 + used.entered.itemsize + 2 * used.heap.itemsize
    assert row + used.buckets.nbytes / watch.pairs <= 64


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-2, 12), st.sampled_from((1, 2, "a"))),
        max_size=40,
    )
)
def test_what_is_dumped_goes_on_in_another(steps: list[tuple[int, int, Any]]):
    fences = [
        fence("f1", on=TRANSITIONS, dwell=2, lost=5, margin_m=1),
        fence("f2", region=Circle(0, 5, 3), on={"enter", "exit", "cross"}, margin_m=2),
    ]
    one, other = Watch("planar"), Watch("planar")
    for each in fences:
        one.add(each, lambda _: ())
    now = 0
    for number, (later, x, who) in enumerate(steps):
        now += later * S
        event = Event(f"e{number}", {"truck": who}, (), Point(x, 5))
        other = Watch("planar")
        other.load(one.dump())
        told = one.take([Position(event, now, now)])
        assert other.take([Position(event, now, now)]) == told
        assert set(other.dump().objects) == set(one.dump().objects) or _sorted(other) == _sorted(
            one
        )
    assert other.advance(now + 100 * S) == one.advance(now + 100 * S)


@settings(max_examples=60, deadline=None)
@given(st.lists(fence_values(), max_size=4, unique_by=lambda each: each.id))
def test_a_fence_is_kept_as_numbers_and_said_again(made: list[Fence]):
    made = [f for f in made if f.subscriber is not None or not isinstance(f.region, Around)]
    watch = Watch()
    for each in made:
        watch.add(each, lambda _: ())
    assert list(watch) == made
    for each in made:
        got = watch.get(each.id)
        assert got == each
        assert got is not None
        assert got.filter == each.filter
        assert watch.remove(each.id) == each
        assert watch.get(each.id) is None


def _sorted(watch: Watch) -> list:
    return sorted((str(o.object), o.at, sorted(map(repr, o.visits))) for o in watch.dump().objects)


def test_codes_are_those_of_the_transitions():
    bits = [getattr(tables, name) for name in
            ("ENTER", "EXIT", "CROSS", "DWELLS", "IS_LOST", "INSIDE", "OUTSIDE")]  # fmt: skip
    assert [1 << number for number in range(len(TRANSITIONS))] == bits
    assert len(TRANSITIONS) == tables.FORGOTTEN


def test_polygons_with_holes_let_objects_out_into_the_hole():
    hole = [(4, 4), (6, 4), (6, 6), (4, 6)]
    ring = Polygon([(0, 0), (10, 0), (10, 10), (0, 10)], [hole])
    story = Story()
    story.fence(region=ring)
    assert story.at(0, 1, 1) == [("enter", 1, 0)]
    assert story.at(1, 5, 5) == [("exit", 1, 1)]
    assert story.at(2, 4, 5) == [("enter", 1, 2)]


@settings(max_examples=25, deadline=None)
@given(
    paths=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), max_size=40),
    lost=st.none() | st.just(4),
    split=st.booleans(),
)
def test_positions_that_are_located_ahead_are_as_one_by_one(
    paths: list[tuple[int, int, int]], lost: int | None, split: bool
) -> None:
    """While one part of a batch is counted, another thread looks where the next one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "_TOGETHER", 3)
        patch.setattr(watch, "_WORTH", 1)
        patch.setenv("NEARCAST_THREADS", "2")
        many, one = (Broker("planar") for _ in range(2))
        for broker in (many, one):
            for i in range(3):
                on = {"enter", "exit", "dwell"} | ({"lost"} if lost else set())
                place = Box(2 * i, 0, 2 * i + 3, 5)
                broker.subscribe(Fence(f"f{i}", "ann", "car", place, on=on, dwell=2, lost=lost))
            if split:
                broker.subscribe(Subscription("s", "bob", "car < 5"))
        now, given = 0, []
        for number, (car, x, wait) in enumerate(paths):
            now += wait * S
            given.append(Event(f"e{number}", {"car": car}, (), Point(x, 2), None, now, now + 3 * S))
        told = [each for event in given for each in one.publish(event)]
        assert [*many.publish_many(given)] == told
        assert [*many.advance(to=now + 60 * S)] == [*one.advance(to=now + 60 * S)]
        assert (many.late, many.overflows) == (one.late, one.overflows)


def test_what_was_located_ahead_does_not_count_if_objects_were_forgotten_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_WORTH", 1)
    monkeypatch.setenv("NEARCAST_THREADS", "2")
    yard = Watch("planar")
    yard.add(Fence("f", None, "car", Box(0, 0, 4, 4), lost=2), lambda _: ())

    def at(now: int, *cars: int) -> Positions:
        events = [Event(f"{car}.{now}", {"car": car}, (), Point(1, 1)) for car in cars]
        return Positions(events, [now] * len(cars), [now] * len(cars))

    assert len(yard.take_columns(at(0, 1, 2))) == 2
    ahead = yard.foresee(at(9 * S, 2, 3))
    assert ahead is not None
    yard.advance(5 * S)  # both are lost, and 3 may take the place of 2
    told = yard.take_columns(at(9 * S, 2, 3), ahead)
    assert [each.object for each in told] == [2, 3]
    assert yard.objects == 2
