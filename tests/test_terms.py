"""Terms one by one: quiet hours on walls that are set, counts, digests, pauses; what is kept."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import (
    Around,
    Box,
    Broker,
    Composite,
    Event,
    Fence,
    Point,
    QuietHours,
    Reply,
    Subscription,
    Terms,
)
from nearcast.broker import standings
from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.broker.wire import (
    composite_from_json,
    composite_to_json,
    notification_from_json,
    notification_to_json,
)
from nearcast.clock import LATEST, format_micros, to_micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import BatchError, UnknownIdError, ValidationError
from nearcast.model.codec import (
    fence_from_json,
    fence_to_json,
    subscription_from_json,
    subscription_to_json,
    subscriptions_to_arrow,
)
from nearcast.storage import retention
from nearcast.storage.retention import Retention
from nearcast.storage.sqlite import SqliteStore
from tests.naive_terms import MINUTE, first_loud, is_quiet

NIGHT = QuietHours("22:00", "07:00", "Europe/Zurich")
EVERY = Terms(False, 3, NIGHT, "PT10M", "keep")


def ids(reply: Reply) -> list[str]:
    return [told.event.id for told in reply]


def at(text: str) -> int:
    return to_micros(f"2026-{text}Z")


def event(id: str, end: int | None = None, *, life: int | None = None) -> Event:
    return Event(id, end=end, expires=None if life is None or end is None else end + life)


# --- quiet hours ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "moment", "quiet", "until"),
    [
        (("22:00", "07:00"), "03-28T20:30:00", False, "03-28T21:00:00"),
        (("22:00", "07:00"), "03-28T21:00:00", True, "03-29T05:00:00"),  # a night of 8 hours
        (("22:00", "07:00"), "10-24T20:00:00", True, "10-25T06:00:00"),  # and one of 10
        (("02:15", "02:45"), "03-29T00:00:00", False, "03-30T00:15:00"),  # not there
        (("02:30", "04:00"), "03-29T00:59:59", False, "03-29T01:00:00"),  # begins as it is set
        (("01:30", "02:30"), "03-29T00:30:00", True, "03-29T01:00:00"),  # ends as it is set
        (("02:15", "02:45"), "10-25T00:20:00", True, "10-25T00:45:00"),  # the first time
        (("02:15", "02:45"), "10-25T00:45:00", False, "10-25T01:15:00"),
        (("02:15", "02:45"), "10-25T01:15:00", True, "10-25T01:45:00"),  # the second
        (("02:45", "03:15"), "10-25T00:50:00", True, "10-25T01:00:00"),  # broken off …
        (("02:45", "03:15"), "10-25T01:44:59", False, "10-25T01:45:00"),  # … and again
        (("23:00", "22:59:30"), "07-01T20:59:29", True, "07-01T20:59:30"),
    ],
)  # fmt: skip
def test_walls_that_are_set(hours: tuple[str, str], moment: str, quiet: bool, until: str):
    start, end = hours
    found = QuietHours(start, end, "Europe/Zurich").at(at(moment))
    assert (found[0], format_micros(found[1])) == (quiet, f"2026-{until}Z")


_CLOCKS = st.sampled_from(("00:00", "00:30", "01:40", "02:00", "02:30", "03:00", "12:00", "23:59"))
_ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
          "Africa/Casablanca", "America/Santiago")  # fmt: skip


@given(
    start=_CLOCKS, end=_CLOCKS, zone=st.sampled_from(_ZONES),
    minute=st.integers(at("01-01T00:00:00") // 60_000_000, at("12-31T00:00:00") // 60_000_000),
    micros=st.sampled_from((0, 1, 59_999_999)),
)  # fmt: skip
def test_quiet_is_what_the_wall_says(start: str, end: str, zone: str, minute: int, micros: int):
    if start == end:
        with pytest.raises(ValidationError, match=r"quiet_hours\.end"):
            QuietHours(start, end, zone)
        return
    hours, moment = QuietHours(start, end, zone), minute * 60_000_000 + micros
    quiet, until = hours.at(moment)
    assert quiet == hours.quiet(moment) == is_quiet(hours, moment)
    assert hours.over(moment) == first_loud(hours, moment)
    assert until > moment
    assert is_quiet(hours, until) is not quiet
    assert is_quiet(hours, until - 1) is quiet


def test_the_last_days_of_all_time():
    assert NIGHT.at(LATEST)[1] > LATEST - 10
    assert QuietHours("00:00", "23:59", "Pacific/Kiritimati").at(LATEST)[1] > LATEST - 10


@pytest.mark.parametrize(
    ("make", "given", "field"),
    [
        (QuietHours, ("24:00", "07:00"), "quiet_hours.start"),
        (QuietHours, ("22:00", None), "quiet_hours.end"),
        (QuietHours, ("22:00", "22:00"), "quiet_hours.end"),
        (QuietHours, ("22:00", "07:00", "Europe/Zuerich"), "quiet_hours.zone"),
        (QuietHours, ("22:00", "07:00", "Europe"), "quiet_hours.zone"),
        (QuietHours, ("22:00", "07:00", "../etc/passwd"), "quiet_hours.zone"),
        (QuietHours, ("22:00", "07:00", ["UTC"]), "quiet_hours.zone"),
        (QuietHours, ("22:00", "07:00", "UTC", "yes"), "quiet_hours.keep"),
        (Terms, ("no",), "initial_event"),
        (Terms, (True, 0), "max_events"),
        (Terms, (True, True), "max_events"),
        (Terms, (True, None, "22-7"), "quiet_hours"),
        (Terms, (True, None, None, 0.5), "digest"),
        (Terms, (True, None, None, "P400D"), "digest"),
        (Terms, (True, None, None, None, "held"), "while_paused"),
        (Subscription, ("s", None, None, (), None, None, {"max_events": 3}), "terms"),
        (
            Composite,
            ("c", None, 'STRING: a = "b"', "recent", None, None, EVERY),
            "initial_event",
        ),
    ],
)  # fmt: skip
def test_what_is_no_term_is_named(make: Any, given: tuple[Any, ...], field: str):
    with pytest.raises(ValidationError) as caught:
        make(*given)
    assert caught.value.field == field


# --- as values and on the wire ----------------------------------------------------------------


@pytest.mark.parametrize(
    "terms", [EVERY, Terms(max_events=1), Terms(quiet_hours=NIGHT), Terms(digest=60)]
)
def test_terms_go_everywhere(terms: Terms):
    wanted = Subscription("s", "ann", "x = 1", expires=5, terms=terms)
    fence = Fence("f", "ann", "car", Box(0, 0, 1, 1), terms=terms)
    made = Composite("c", "ann", 'STRING: a = "b"', terms=None if terms is EVERY else terms)
    for one in (wanted, fence, made):
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert subscription_from_json(subscription_to_json(wanted)) == wanted
    assert fence_from_json(fence_to_json(fence)) == fence
    assert composite_from_json(composite_to_json(made)) == made
    assert wanted != Subscription("s", "ann", "x = 1", expires=5)
    with pytest.raises(ValidationError, match="terms"):
        subscriptions_to_arrow([wanted])


def test_terms_that_say_nothing_are_none():
    assert Subscription("s", terms=Terms()) == Subscription("s")
    assert Terms(digest=600) == Terms(digest=timedelta(minutes=10)) == Terms(digest="PT10M")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"subscriptionMaxEvents": 0}, "config.subscriptionMaxEvents"),
        ({"initialEvent": 1}, "config.initialEvent"),
        ({"quietHours": {"start": "22:00"}}, "config.quietHours.end"),
        ({"quietHours": []}, "config.quietHours"),
        ({"quietHours": {"from": "22:00"}}, "config.quietHours.from"),
        ({"quietHours": {"start": "22:00", "end": "7:00"}}, "config.quietHours.end"),
        ({"digest": "soon"}, "config.digest"),
        ({"whilePaused": "held"}, "config.whilePaused"),
    ],
)
def test_a_bad_config_names_its_member(config: dict[str, Any], field: str):
    with pytest.raises(ValidationError) as caught:
        subscription_from_json({"id": "s", "config": config})
    assert caught.value.field == field


# --- stores -----------------------------------------------------------------------------------


class Lives:
    """A broker that begins again from its store whenever somebody says so."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.memory = path, MemoryStore()
        self.broker = self.made()

    def made(self) -> Broker:
        store: Store = self.memory
        if self.path is not None:
            store = SqliteStore.open(self.path / "city.db", retention=Retention(age_s=1e12))
        return Broker("planar", store=store)

    def again(self) -> Broker:
        self.broker.close()
        self.broker = self.made()
        self.broker.check_invariants()
        return self.broker


@pytest.fixture(params=("memory", "sqlite"))
def lives(request: pytest.FixtureRequest, tmp_path: Path):
    found = Lives(tmp_path if request.param == "sqlite" else None)
    yield found
    found.broker.close()


def numbers(broker: Broker, name: str = "ann") -> list[int | None]:
    return [told.seq for told in broker.notifications(name, after=0).notifications]


def test_the_count_goes_on_after_a_restart(lives: Lives):
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann", terms=Terms(max_events=3)))
    assert ids(broker.publish(event("e1"))) == ["e1"]
    broker = lives.again()
    assert ids(broker.publish(event("e2"))) == ["e2"]
    broker.subscribe(Subscription("s", "ann", "x IS NULL", terms=Terms(max_events=3)))
    broker = lives.again()
    assert ids(broker.publish_many([event("e3"), event("e4")])) == ["e3"]
    assert "s" not in broker
    broker = lives.again()
    assert "s" not in broker
    assert not broker.publish(event("e5"))
    assert numbers(broker) == [1, 2, 3]
    broker.subscribe(Subscription("s", "ann", terms=Terms(max_events=2)))  # anew
    assert ids(broker.publish_many([event("e6")])) == []  # e1 and e2 were told
    assert "s" not in broker


def test_fewer_than_were_told_end_it(lives: Lives):
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann", terms=Terms(max_events=5)))
    broker.publish_many([event("e1"), event("e2")])
    broker.subscribe(Subscription("s", "ann", terms=Terms(max_events=2)))
    assert "s" not in broker


def test_many_at_once_with_the_same_id_are_as_one_by_one():
    broker, other = Broker(), Broker()
    first = Subscription("s", "ann", terms=Terms(max_events=1))
    then = Subscription("s", "ann", "x IS NULL")
    for each in (broker, other):
        each.publish_many([event("e1"), event("e2")])
    told = broker.subscribe_many([first, then])
    assert told == [*other.subscribe(first), *other.subscribe(then)]
    assert ids(told) == ["e1", "e1", "e2"]
    with pytest.raises(BatchError):
        broker.publish_many([event("e3"), None])  # type: ignore[list-item]


def test_a_batch_over_the_end_of_a_hold_is_as_one_by_one():
    coming = [event(f"e{second}", second * 1_000_000, life=12_000_000) for second in range(40)]
    replies = []
    for many in (True, False):
        broker = Broker()
        broker.subscribe(Subscription("s", "ann", terms=Terms(digest=10, max_events=25)))
        broker.subscribe(Subscription("t", "ann"))
        if many:
            replies.append([*broker.publish_many(coming)])
        else:
            replies.append([told for each in coming for told in broker.publish(each)])
    assert replies[0] == replies[1]
    assert [told.subscription_id for told in replies[0][8:12]] == ["t", "t", "s", "s"]


def at_fence(id: str, car: str, x: float, minute: int) -> Event:
    end = at("03-01T21:55:00") + minute * MINUTE
    return Event(id, {"car": car}, location=Point(x, 5), end=end)


def dwelling(terms: Terms) -> Fence:
    on = {"enter", "dwell", "lost"}
    return Fence("f", "ann", "car", Box(0, 0, 9, 9), on=on, dwell=600, lost=1800, terms=terms)


@pytest.mark.parametrize(
    ("terms", "told", "after"),
    [
        (Terms(quiet_hours=QuietHours("22:00", "07:00", keep=False)), ["enter"], []),
        (Terms(quiet_hours=QuietHours("21:00", "22:00", keep=False)), ["dwell", "lost"], []),
        (Terms(digest="PT25M"), ["enter", "dwell"], ["lost"]),
        (Terms(max_events=2), ["enter", "dwell"], []),
    ],
)
@pytest.mark.parametrize("many", [True, False])
def test_a_timer_of_a_fence_is_judged_at_its_moment(
    many: bool, terms: Terms, told: list[str], after: list[str]
):
    coming = [at_fence("p1", "a", 5, 0), at_fence("p2", "b", 50, 36)]
    broker = Broker("planar")
    broker.subscribe(dwelling(terms))
    replies = [broker.publish_many(coming)] if many else [*map(broker.publish, coming)]
    assert [each.transition for reply in replies for each in reply] == told
    left = broker.advance(at("03-01T22:56:00"))
    assert [each.transition for each in left if each.object == "a"] == after


@pytest.mark.parametrize("new", [True, False])  # by columns, or one after the other
def test_what_a_fence_holds_was_found_at_its_moment(new: bool):
    broker = Broker("planar")
    broker.subscribe(dwelling(Terms(while_paused="keep")))
    broker.subscribe(replace(dwelling(Terms(while_paused="keep")), id="g", on=frozenset({"dwell"})))
    broker.pause("f")
    broker.pause("g")
    minutes = [i for i in range(30) if i != 19]  # when the dwell is due
    coming = [at_fence(f"p{i}", *(("a", 5) if i == 9 else ("b", 50)), i) for i in minutes]
    broker.publish_many(coming if new else [*coming, coming[0]])
    for id in ("f", "g"):
        broker.subscribe(replace(dwelling(Terms(while_paused="keep", digest="PT30M")), id=id))
        assert not broker.resume(id)
    for id, first, minute in (("f", "enter", 34), ("g", "dwell", 44)):
        assert not broker.advance(at(f"03-01T22:{minute - 1}:59"))
        told = broker.advance(at(f"03-01T22:{minute}:00"))
        assert (told[0].subscription_id, told[0].transition) == (id, first)
        assert {n.subscription_id for n in told} == {id}


KIND_A = 'STRING: kind = "a"'


def of_kinds(kinds: str) -> list[Event]:
    return [Event(f"e{i}", {"kind": k}, end=i * 1_000_000) for i, k in enumerate(kinds)]


@pytest.mark.parametrize("many", [True, False])
def test_a_composite_that_has_told_enough_is_detected_no_more(lives: Lives, many: bool):
    broker = lives.broker
    broker.detect(Composite("c", "ops", KIND_A, terms=Terms(max_events=2)))
    broker.detect(Composite("d", "ops", KIND_A))
    broker.detect(Composite("p", "ops", 'Q(3)(STRING: composite = "c")'))
    broker.subscribe(Subscription("s", "ann", "composite IN ('c', 'd')"))
    coming = of_kinds("ababa")
    replies = [broker.publish_many(coming)] if many else [*map(broker.publish, coming)]
    told = [n.event.id for reply in replies for n in reply if n.subscription_id == "s"]
    assert sorted(told) == ["c#1", "c#2", "d#1", "d#2", "d#3"]
    assert "c" not in broker
    assert "p" in broker
    assert broker.changes().altered[-1].id == "s"
    broker = lives.again()
    assert ids(broker.publish(Event("e9", {"kind": "a"}, end=9_000_000))) == ["d#4", "d#4"]


def test_one_event_may_complete_more_than_is_told(lives: Lives):
    broker = lives.broker
    pattern = '=|(STRING: kind = "a"; PT9S)(STRING: kind = "b")'
    for id, most in (("c", 2), ("d", 1)):
        terms = Terms(max_events=most)
        broker.detect(Composite(id, "ops", pattern, "continuous", terms=terms))
    broker.detect(Composite("x", "ops", 'STRING: kind = "z"'))  # whose inputs are kept
    broker.subscribe(Subscription("s", "ann", "composite IN ('c', 'd')"))
    told = broker.publish_many(of_kinds("aaab"))
    assert sorted(ids(told)) == ["c#1", "c#1", "c#2", "c#2", "d#1", "d#1"]
    assert len(broker) == 2
    broker = lives.again()
    broker.detect(Composite("c", "ops", KIND_A))
    assert len(broker.publish(Event("e9", {"kind": "a"}, end=9_000_000))) == 2


def test_what_was_held_and_is_told_may_end_a_composite(lives: Lives):
    broker = lives.broker
    broker.detect(Composite("c", "ops", KIND_A, terms=Terms(digest=3, max_events=2)))
    broker.detect(Composite("d", "ops", KIND_A))
    broker.subscribe(Subscription("s", "ann", "composite = 'c'"))
    told = broker.publish_many(of_kinds("aabbaa"))
    of_c = [(n.subscription_id, n.event.id) for n in told if n.event.id.startswith("c")]
    assert of_c == [("s", "c#1"), ("s", "c#2"), ("c", "c#1"), ("c", "c#2")]
    assert "c" not in lives.again()


def kinds_of_things(who: str, terms: Terms) -> list[Any]:
    return [
        Subscription("s", who, "kind = 'a'", ["x"], terms=terms),
        Fence("s", who, "car", Box(0, 0, 1, 1), on={"enter", "exit", "cross"}, terms=terms),
        Composite("s", who, KIND_A, terms=terms),
    ]


@pytest.mark.parametrize("which", range(3))
def test_what_has_told_enough_and_is_begun_once_more_tells_nothing(lives: Lives, which: int):
    def begin(who: str = "ann", most: int = 1) -> list[str]:
        thing = kinds_of_things(who, Terms(max_events=most))[which]
        return ids(broker.detect(thing) if which == 2 else broker.subscribe(thing))

    def happen(second: int) -> list[str]:
        said: dict[str, int | str] = {"car": second, "kind": "a"}
        end = second * 1_000_000
        made = Event(f"e{second}", said, ["x"], Point(0.5, 0.5), end=end, expires=end + 1)
        told = broker.publish(made)
        assert not broker.advance(end + 1)
        return ids(told)

    broker = lives.broker
    begin()
    assert len(happen(1)) == 1
    assert not begin()  # whoever had no answer says it again
    assert "s" not in broker
    broker = lives.again()
    assert not begin()
    if which < 2:
        assert not broker.subscribe_many(kinds_of_things("ann", Terms(max_events=1))[which])
    assert not happen(2)
    begin(most=2)  # something else is new
    assert len(happen(3)) == 1
    begin()  # of which two are told, as one was to be
    assert "s" not in broker
    broker = lives.again()
    assert not begin()
    begin("bob")
    assert len(happen(4)) == 1
    broker = lives.again()
    begin()  # another one had the id since
    assert len(happen(5)) == 1
    broker = lives.again()
    broker.advance(3_604_999_999)
    assert not begin()
    broker.advance(3_605_000_000)
    begin()
    assert len(happen(4000)) == 1
    broker.check_invariants()


def test_what_had_told_enough_is_new_when_another_has_gone():
    broker = Broker()
    once, twice = (Subscription("s", "ann", terms=Terms(max_events=most)) for most in (1, 2))
    broker.publish(event("e1"))
    assert ids(broker.subscribe_many([once, once, twice, once])) == ["e1", "e1"]
    assert "s" not in broker
    assert not broker.subscribe(once)
    broker.subscribe(twice)
    broker.unsubscribe("s")
    assert ids(broker.subscribe(once)) == ["e1"]


def test_movers_end_too():
    broker = Broker("planar")
    broker.publish_many([Event(f"e{i}", location=Point(i, 0)) for i in range(4)])
    broker.subscribe(Subscription("s", "ann", region=Around(10), terms=Terms(max_events=2)))
    assert len(broker.move("ann", Point(0, 0))) == 2
    assert "s" not in broker
    assert not broker.move("ann", Point(1, 0))
    broker.check_invariants()


def test_movers_without_what_was_there(lives: Lives):
    broker = lives.broker
    broker.publish_many([Event(f"e{i}", location=Point(10 * i, 0)) for i in range(4)])
    broker.move("ann", Point(0, 0))
    broker.subscribe(Subscription("s", "ann", region=Around(5), terms=Terms(initial_event=False)))
    broker.publish(Event("new", location=Point(30, 1)))
    assert not broker.move("ann", Point(0, 0))
    broker = lives.again()
    assert not broker.move("ann", Point(10, 0))  # it was there before
    assert ids(broker.move("ann", Point(30, 0))) == ["new"]


def test_a_digest_over_restarts(lives: Lives):
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann", terms=Terms(digest=10)))
    broker.subscribe(Subscription("t", "ann"))
    assert [n.subscription_id for n in broker.publish(event("e1", 5_000_000))] == ["t"]
    broker.publish(event("gone", 6_000_000))
    broker.publish(event("short", 7_000_000, life=3))
    broker = lives.again()
    broker.retract("gone")
    broker.publish(event("gone", 8_000_000))  # another one, found by itself
    broker = lives.again()
    assert not broker.advance(14_999_999)
    told = broker.advance(99_000_000)
    assert [(n.event.id, n.digest, n.at) for n in told] == [
        ("e1", 1, 15_000_000), ("gone", 0, 15_000_000),
    ]  # fmt: skip
    assert numbers(broker) == [*range(1, 7)]
    kept = broker.notifications("ann", after=4).notifications
    assert kept == tuple(told)
    assert notification_from_json(notification_to_json(kept[0]), space="planar") == kept[0]
    broker = lives.again()
    assert not broker.advance(999_000_000)


def test_what_expires_as_the_hold_ends_is_over():
    broker = Broker()
    broker.subscribe(Subscription("s", "ann", terms=Terms(digest=10)))
    broker.publish(event("e0", 0, life=10_000_000))
    broker.publish(event("e1", 1, life=9_999_999))  # behind the hold in what is due
    broker.publish(event("e2", 1, life=10_000_000))
    assert ids(broker.advance(20_000_000)) == ["e2"]
    broker.subscribe(Subscription("t", "ann", expires=40_000_000, terms=Terms(digest=10)))
    broker.publish(event("e3", 30_000_000))
    assert [n.subscription_id for n in broker.advance(50_000_000)] == ["s"]


def test_a_digest_that_closes_at_night_waits_for_the_morning(lives: Lives):
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann", terms=Terms(digest="PT1H", quiet_hours=NIGHT)))
    assert not broker.publish(event("e1", at("07-01T19:30:00")))
    assert not broker.publish(event("e2", at("07-01T23:00:00")))
    broker = lives.again()
    told = broker.advance(at("07-02T12:00:00"))
    assert [(n.event.id, n.digest) for n in told] == [("e1", 1), ("e2", 0)]
    assert {format_micros(n.at) for n in told} == {"2026-07-02T05:00:00Z"}


def test_pauses(lives: Lives):
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann"))
    broker.subscribe(Subscription("k", "ann", terms=Terms(while_paused="keep", max_events=2)))
    for id in ("s", "k", "s"):
        assert not broker.pause(id)
    assert broker.reading.paused("s")
    assert not broker.publish_many([event("e1"), event("e2"), event("e3")])
    broker = lives.again()
    assert broker.reading.paused("s")
    assert broker.subscribe(Subscription("s", "ann", "x IS NULL")) == Reply()
    assert not broker.publish(event("e4"))
    assert not broker.resume("s")
    assert not broker.resume("s")
    assert [(n.event.id, n.digest) for n in broker.resume("k")] == [("e1", None), ("e2", None)]
    assert "k" not in broker
    assert [n.subscription_id for n in broker.publish(event("e5"))] == ["s"]
    for verb in (broker.pause, broker.resume):
        with pytest.raises(UnknownIdError):
            verb("k")


def test_somebody_else_begins_anew(lives: Lives):
    terms = Terms(while_paused="keep", max_events=9)
    made: list[Callable[[str], Any]] = [
        lambda who: Subscription("s", who, terms=terms),
        lambda who: Fence("s", who, "car", Box(0, 0, 1, 1), terms=terms),
        lambda who: Composite("s", who, 'STRING: car = "a"', terms=terms),
    ]
    broker = lives.broker
    for number, make in enumerate(made):
        begin: Any = broker.detect if number == 2 else broker.subscribe
        begin(make("ann"))
        broker.publish(Event(f"e{number}", {"car": "a"}, location=Point(0.5, 0.5)))
        broker.pause("s")
        broker.publish(Event(f"f{number}", {"car": "a"}, location=Point(5, 5)))
        begin(make("bob"))
        assert not broker.reading.paused("s")
        broker = lives.again()
        assert not broker.reading.paused("s")
        begin = broker.detect if number == 2 else broker.subscribe
        assert not broker.resume("s")
        assert "s" in broker
        broker.unsubscribe("s")
        for id in (f"e{number}", f"f{number}"):
            broker.retract(id)
        broker = lives.again()


def test_what_has_happened_is_told_whatever_has_expired(lives: Lives):
    broker = lives.broker
    terms = Terms(quiet_hours=NIGHT, max_events=3)
    broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 9, 9), terms=terms))
    broker.detect(Composite("c", "ann", 'STRING: car = "a"', terms=terms))
    late = at("07-01T22:00:00")
    broker.publish(Event("e1", {"car": "a"}, location=Point(1, 1), end=late, expires=late + 1))
    broker = lives.again()
    broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 8, 8), terms=terms))  # begins anew
    broker.publish(Event("e2", {"car": "a"}, location=Point(99, 9), end=late + 2))
    broker = lives.again()
    told = broker.advance(at("07-02T12:00:00"))
    crossed = [n for n in told if n.subscription_id == "f"]
    assert [(n.transition, n.at) for n in crossed] == [
        ("enter", late), ("enter", late), ("exit", late + 2),
    ]  # fmt: skip
    found = [n for n in told if n.subscription_id == "c"]
    assert [n.event.parts for n in found if isinstance(n.event, CompositeEvent)] == [
        ("e1",),
        ("e2",),
    ]
    assert broker.notifications("ann", after=0).notifications == tuple(told)
    broker.publish(Event("e3", {"car": "a"}, location=Point(1, 1), end=at("07-02T12:00:00")))
    assert "c" not in broker
    assert "f" not in broker


def test_a_fence_without_what_was_there(lives: Lives):
    broker = lives.broker
    broker.publish(Event("e1", {"car": "a"}, location=Point(1, 1)))
    told = broker.subscribe(
        Fence("f", "ann", "car", Box(0, 0, 9, 9), terms=Terms(initial_event=False, max_events=1))
    )
    assert not told
    broker = lives.again()
    told = broker.publish(Event("e2", {"car": "a"}, location=Point(99, 1)))
    assert [n.transition for n in told] == ["exit"]
    assert "f" not in broker


def test_a_hold_has_a_bound(lives: Lives, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(standings, "MOST_HELD", 3)
    broker = lives.broker
    broker.subscribe(Subscription("s", "ann", terms=Terms(while_paused="keep")))
    broker.pause("s")
    broker.publish_many(event(f"e{i}") for i in range(4))
    broker = lives.again()
    broker.publish(event("e4"))
    assert broker.overflows == 1
    broker = lives.again()
    assert ids(broker.resume("s")) == ["e2", "e3", "e4"]


def test_what_is_held_outlives_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "_STEP", 1)
    monkeypatch.setattr(retention, "_LOOKED_AT", 4)
    store = SqliteStore.open(tmp_path / "city.db", retention=Retention(age_s=1))
    with Broker("planar", store=store) as broker:
        broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 9, 9), terms=Terms(digest="P300D")))
        broker.publish(Event("first", {"car": 1}, location=Point(1, 1), end=0, expires=1))
        broker.publish_many(event(f"e{i}", i * 10_000_000, life=1) for i in range(1, 30))
        for i in range(30, 60):
            broker.publish(event(f"e{i}", i * 10_000_000, life=1))
    with Broker.open(tmp_path / "city.db", "planar") as broker:
        assert "e1" not in [each.id for _, each in broker.log(limit=10_000)]
        (told,) = broker.advance(at("12-31T00:00:00"))
        assert (told.event.id, told.transition, told.object) == ("first", "enter", 1)


def test_time_is_the_clock_that_was_given():
    time = [at("07-01T22:00:00")]
    broker = Broker(clock=lambda: time[0])
    broker.subscribe(Subscription("s", "ann", terms=Terms(quiet_hours=NIGHT)))
    assert not broker.publish(Event("e1"))
    time[0] = at("07-02T04:59:59")
    assert not broker.advance()
    time[0] = at("07-02T05:00:00")
    assert ids(broker.publish(Event("e2"))) == ["e1", "e2"]
