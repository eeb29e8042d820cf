"""Many at once are as one by one: the same notifications in the same order, or none at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import (
    Around,
    Box,
    Broker,
    Composite,
    Event,
    Fence,
    Point,
    Polygon,
    QuietHours,
    Subscription,
    Terms,
)
from nearcast.broker import Reply, live, service
from nearcast.broker.live import LiveEvents
from nearcast.broker.memory import Inbox, MemoryStore
from nearcast.broker.ports import State
from nearcast.broker.roster import Roster
from nearcast.cpsl.composite import MODES
from nearcast.errors import BatchError, DuplicateIdError, NearcastError, ValidationError
from nearcast.matcher import Matcher
from tests.naive_broker import NaiveBroker
from tests.strategies import event_lists, events, subscriptions

S = 1_000_000
HOUR = 3600 * S
IDS = ("e1", "e2", "e3", "e4", "c#1", "c#2")
PATTERNS = (
    Composite("c", "ops", "=|(ARITH: price < 3; 4)(ARITH: price > 1)"),
    Composite("d", "ops", "!(ARITH: price < 3; 2)(ARITH: price > 3)"),
    Composite("p", "ops", "P(3)(ARITH: price > 0)"),
    Composite("n", "ops", '=|(STRING: composite = "c"; 9)(ARITH: price > 0)'),
)
times = st.none() | st.integers(0, 12).map(lambda s: s * S)
ends = times | st.integers(0, 2).map(lambda h: h * HOUR)


@st.composite
def happenings(draw: st.DrawFn) -> Event:
    """Few ids, few prices, few moments: repetitions, conflicts, late ones, some over at once."""
    end = draw(ends)
    expires = draw(times | st.integers(0, 2).map(lambda h: h * HOUR + S))
    place: Any = draw(st.none() | st.builds(Point, st.integers(0, 4), st.integers(0, 4)))
    if draw(st.integers(0, 5)) == 0:
        place = draw(st.sampled_from((Box(0, 0, 2, 2), Polygon([(0, 0), (3, 0), (0, 3)]))))
    price = draw(st.sampled_from((1, 2, 3.0, 5)))
    return Event(draw(st.sampled_from(IDS)), {"price": price}, (), place, None, end, expires)


@st.composite
def wishes(draw: st.DrawFn) -> Subscription:
    id = draw(st.sampled_from(("s1", "s2", "s3", "s10", "t")))
    name = draw(st.sampled_from(("ann", "bob")))
    where = draw(st.sampled_from((None, "price < 3", "price > 1 OR price < 2", "composite = 'c'")))
    region = draw(
        st.sampled_from((None, None, Box(0, 0, 2, 2), Box(1, 1, 4, 4), Around(2), Around(5)))
    )
    return Subscription(id, name, where, (), region, draw(times))


def late_one(expires: int | None) -> Event:
    return Event("e1", {"price": 1}, end=0, expires=expires)


@pytest.mark.parametrize("again", [False, True])
def test_what_a_late_event_leads_to_is_told_at_once(again: bool):
    store = MemoryStore()
    broker = Broker("planar", store=store)
    broker.detect(PATTERNS[1])
    broker.advance(3 * S)
    told = broker.publish_many([late_one(None)] * (1 + again))
    assert [(n.subscription_id, n.at) for n in told] == [("d", 3 * S)]
    assert Broker("planar", store=store).publish(late_one(None)) == []


ACTS = st.sampled_from(("one", "many", "expire", "retract", "ask"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ACTS, st.integers(0, 9)), max_size=25))
def test_who_asks_between_finds_what_is_live(acts: list[tuple[str, int]]):
    known, model = LiveEvents(Matcher(space="planar")), {}
    everything, number, now = Subscription("s"), 0, 0
    for act, which in [*acts, ("ask", 0)]:
        if act in ("one", "many"):
            ids = [f"e{which + i}" for i in range(1 if act == "one" else 4)]
            new = [Event(id, expires=now + 1 + which) for id in ids if id not in model]
            if act == "many":
                known.add_all(new)
            for event in new:
                if act == "one":
                    source = "x" if which % 2 else None
                    event = Event(event.id, expires=event.expires, source=source)
                    if event.key in model:
                        continue
                    known.add(event)
                number += 1
                model[event.key] = number, event
        elif act == "expire":
            now += which // 2
            keys = [key for key, (_, event) in model.items() if (event.expires or 0) <= now]
            assert known.expire(keys) == [model.pop(key)[1] for key in keys]
        elif act == "retract" and model:
            key = [*model][which % len(model)]
            known.retract(key)
            del model[key]
        else:
            assert known.matching(everything, now) == [*model.values()]
        assert known.matcher.event_count >= len(known) == len(model)
        assert [known.numbered(key) for key in model] == [*model.values()]
    known.check_invariants()


class Clock:
    """Stands still during a call."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def known(broker: Broker) -> tuple[Any, ...]:
    events = sorted(event.id for event in broker._live)
    subscriptions = sorted(each.id for each in broker._subscriptions)
    return broker.now, events, subscriptions, broker.late, broker._past.contents()


def merged(replies: Sequence[Reply]) -> tuple[list[Any], dict[str, Any], set[str]]:
    """One reply of several: a region answers the requests before it."""
    told: list[Any] = []
    regions: dict[str, Any] = {}
    asked: set[str] = set()
    for reply in replies:
        told += reply
        regions |= reply.safe_regions
        asked = asked - reply.safe_regions.keys() | set(reply.location_requests)
    return told, regions, asked


def stored(store: MemoryStore) -> State:
    """What a store has; positions are counted in another way, which only their order shows."""
    state = store.load()
    for key, each in state.objects.items():
        state.objects[key] = replace(each, number=0, gone=0)
    for id, fence in state.fences.items():
        state.fences[id] = replace(fence, since=0)
    return state


class Two:
    """Two brokers that are told the same: one all at once, the other one by one."""

    def __init__(self, **options: Any) -> None:
        self.stores = MemoryStore(), MemoryStore()
        self.inboxes = Inbox(), Inbox()
        self.many, self.one = (
            Broker("planar", store=store, sinks=[inbox], **options)
            for store, inbox in zip(self.stores, self.inboxes, strict=True)
        )

    def each(self, verb: str, *of: Any) -> None:
        assert getattr(self.many, verb)(*of) == getattr(self.one, verb)(*of)

    def all(self, verb: str, given: Sequence[Any]) -> None:
        before = known(self.many)
        try:
            told = getattr(self.many, f"{verb}_many")(given)
        except BatchError as error:
            if verb == "publish" or self.many._timeline.clock is None:  # else time has moved
                assert known(self.many) == before
            self.goes_wrong_at(error, verb, given)
        else:
            replies = [getattr(self.one, verb)(each) for each in given]
            assert merged([told]) == merged(replies)

    def goes_wrong_at(self, error: BatchError, verb: str, given: Sequence[Any]) -> None:
        """The rows before it are fine, and so is the rest without it."""
        for each in given[: error.row]:
            told = getattr(self.one, verb)(each)
            assert merged([getattr(self.many, verb)(each)]) == merged([told])
        for broker in (self.one, self.many):
            with pytest.raises(type(error.cause)):
                getattr(broker, verb)(given[error.row])

    def check(self) -> None:
        assert known(self.many) == known(self.one)
        assert [*self.inboxes[0]] == [*self.inboxes[1]]
        many, one = (stored(store) for store in self.stores)
        assert many == one
        self.many.check_invariants()


calls = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(happenings(), max_size=12)),
        st.tuples(st.just("publish"), st.lists(happenings(), max_size=12)),
        st.tuples(st.just("subscribe"), st.lists(wishes(), max_size=6)),
        st.tuples(st.just("retract"), st.sampled_from(IDS)),
        st.tuples(st.just("unsubscribe"), st.sampled_from(("s1", "s2", "t"))),
        st.tuples(st.just("move"), st.sampled_from(("ann", "bob"))),
        st.tuples(st.just("advance"), st.integers(0, 14).map(lambda s: s * S)),
    ),
    min_size=1,
    max_size=7,
)
options = st.fixed_dictionaries(
    {}, optional={"lateness": st.sampled_from((0, 2, 100)), "composite_life": st.just(3)}
)


@settings(max_examples=250, deadline=None)
@given(calls, options, st.lists(st.sampled_from(PATTERNS), unique=True), st.booleans(), st.data())
def test_many_are_as_one_by_one(calls, options, patterns, clocked, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "_MANY", data.draw(st.sampled_from((1, 64))))
        _many_and_one_by_one(calls, options, patterns, clocked, data)


def _many_and_one_by_one(calls, options, patterns, clocked, data):
    clock = Clock() if clocked else None
    two = Two(clock=clock, max_ahead=10_000, **options)
    for pattern in patterns:
        two.each("detect", pattern)
    for verb, what in calls:
        if clock is not None:
            clock.now += data.draw(st.sampled_from((0, S, 5 * S)))
            if verb in ("retract", "unsubscribe"):  # what is over by now cannot be ended
                two.each("advance")
        if verb in ("publish", "subscribe"):
            if verb == "publish" and patterns:  # ids that a composite event may get are others'
                what = [event for event in what if "#" not in event.id]
            two.all(verb, what)
        elif verb == "move":
            two.each("move", what, Point(data.draw(st.integers(0, 4)), 2))
        elif verb == "advance":
            if clock is None:
                two.each("advance", what)
        elif verb == "retract":
            if what in two.one._live:
                two.each("retract", what)
        elif what in two.one:
            two.each("unsubscribe", what)
        two.check()
    again = Broker("planar", store=two.stores[0])
    assert known(again)[:3] == known(two.one)[:3]
    again.check_invariants()


HOURS = (QuietHours("00:00", "23:59"), QuietHours("23:59", "00:00"), QuietHours("01:00", "00:00"))
terms = st.none() | st.builds(
    Terms,
    initial_event=st.booleans(),
    max_events=st.none() | st.integers(1, 4),
    quiet_hours=st.none() | st.sampled_from((*HOURS, replace(HOURS[1], keep=False))),
    digest=st.none() | st.sampled_from((2, 5, 3600)),
    while_paused=st.sampled_from(("keep", "drop")),
)
#: Some moments about midnight, so that quiet hours begin and end within a batch.
EVENING = 24 * HOUR - 65 * S
MOMENTS = (0, 1, 2, 3, 5, 8, 13, 30, 60, 64, 65, 66, 70, 90, 125, 130)
moments = st.sampled_from(MOMENTS).map(lambda s: EVENING + s * S)
TOLD = ("enter", "exit", "dwell", "lost", "inside")
THINGS = ("s1", "s2", "m1", "f1", "f2", "c1", "c2")


@st.composite
def things(draw: st.DrawFn) -> Subscription | Fence | Composite:
    id, said = draw(st.sampled_from(THINGS)), draw(terms)
    name, expires = draw(st.sampled_from(("ann", "bob"))), draw(st.none() | st.none() | moments)
    if id[0] == "f":
        on = draw(st.sets(st.sampled_from(TOLD), min_size=1))
        region: Any = draw(st.sampled_from((Box(0, 0, 2, 4), Around(2))))
        return Fence(
            id, name, "car", region, on=on,
            dwell=3 if "dwell" in on else None, lost=7, expires=expires, terms=said,
        )  # fmt: skip
    if id[0] == "c":
        said = said and replace(said, initial_event=True)
        text = draw(st.sampled_from((*(each.text for each in PATTERNS), "ARITH: price > 1")))
        return Composite(id, name, text, draw(st.sampled_from(MODES)), None, expires, said)
    where = draw(st.sampled_from((None, "price < 3", "composite IN ('c1', 'c2')")))
    return Subscription(id, name, where, (), Around(3) if id == "m1" else None, expires, said)


@st.composite
def travels(draw: st.DrawFn) -> list[Event]:
    """Positions of two cars, mostly in order; some ids again."""
    many = draw(st.sampled_from((2, 4, 14)))
    ends = sorted(draw(st.lists(moments, min_size=many, max_size=many)))
    made = []
    for number, end in enumerate(ends):
        id = draw(st.sampled_from((f"{end} {number}", f"{end} {number}", "e1", "e2")))
        said: Any = {"price": draw(st.integers(1, 5)), "car": draw(st.sampled_from("ab"))}
        place = Point(draw(st.integers(0, 4)), draw(st.integers(0, 4)))
        until = draw(st.none() | st.none() | moments)
        back = draw(st.sampled_from((0, 0, 0, 3 * S)))
        made.append(Event(id, said, (), place, None, end - back, until))
    return made


on_terms = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), travels()),
        st.tuples(st.just("publish"), travels()),
        st.tuples(st.just("begin"), things()),
        st.tuples(st.just("begin"), things()),
        st.tuples(st.just("subscribe"), st.lists(things(), max_size=4)),
        st.tuples(st.sampled_from(("pause", "resume", "unsubscribe")), st.sampled_from(THINGS)),
        st.tuples(st.just("move"), st.sampled_from(("ann", "bob"))),
        st.tuples(st.just("advance"), moments),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(things(), min_size=2, max_size=6), on_terms,
    st.sampled_from(({}, {}, {"lateness": 2})), st.data(),
)  # fmt: skip
def test_many_on_terms_are_as_one_by_one(first, calls, options, data):
    two = Two(**options)
    two.each("advance", EVENING)
    for verb, what in [*(("begin", each) for each in first), *calls]:
        if verb == "publish":
            two.all(verb, what)
        elif verb == "subscribe":
            two.all(verb, [each for each in what if not isinstance(each, Composite)])
        elif verb == "begin":
            two.each("detect" if isinstance(what, Composite) else "subscribe", what)
        elif verb == "move":
            two.each(verb, what, Point(data.draw(st.integers(0, 4)), 2))
        elif verb == "advance" or what in two.one:
            two.each(verb, what)
        two.check()
    if not options:
        again = Broker("planar", store=two.stores[0])
        assert known(again)[:3] == known(two.one)[:3]
        left = [broker.advance(EVENING + 4 * HOUR) for broker in (again, two.one)]
        told = [  # at one moment in any order; and movers are asked where they are
            Counter(each._replace(seq=None) for each in reply if each.subscription_id != "m1")
            for reply in left
        ]
        assert told[0] == told[1]
        again.check_invariants()


@settings(deadline=None)
@given(event_lists("planar", 8), st.lists(subscriptions("planar"), max_size=8), st.booleans())
def test_events_go_past_subscriptions_as_subscriptions_look_for_events(happened, wanted, timed):
    there = live.LiveEvents(Matcher(space="planar"))
    for event in {event.key: event for event in happened}.values():
        there.add(event)
    fixed = [replaced(each, f"s{i}") for i, each in enumerate(wanted)]
    now = 0 if timed else None
    alone = [there.matching(each, now) for each in fixed]
    others = [replaced(each, f"other{i}") for i, each in enumerate(wanted)]
    roster = Roster(Matcher(space="planar"))
    roster.put_all([*others, *fixed])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "_MANY", 0)
        patch.setattr(live, "_SOME", 3)
        assert there.matching_each(fixed, now, roster.wanting_all) == alone
        patch.setattr(live, "_EACH", 1)  # others' wishes are too many, if anything is wanted
        assert there.matching_each(fixed, now, roster.wanting_all) == alone
        patch.setattr(live, "_EACH", -1)
        assert there.matching_each(fixed, now, roster.wanting_all) == alone


def replaced(subscription: Subscription, id: str) -> Subscription:
    """The same under another id, and staying where it is."""
    s = subscription
    region = None if isinstance(s.region, Around) else s.region
    return Subscription(id, s.subscriber, s.where, s.keywords, region, s.expires)


@st.composite
def strangers(draw: st.DrawFn, first: int) -> list[Event]:
    """Events whose ids nobody has had, as they come by columns; a few say something unusual."""
    made = []
    for number in range(first, first + draw(st.integers(9, 24))):
        end = draw(st.integers(0, 40)) * S
        expires = draw(st.none() | st.integers(1, 30).map(lambda s: s * S))
        place = draw(st.none() | st.builds(Point, st.integers(0, 4), st.integers(0, 4)))
        said: dict[str, Any] = {"price": draw(st.sampled_from((1, 2, 3.0, 5)))}
        if draw(st.booleans()):
            said["car"] = draw(st.sampled_from(("a", 1, True)))
        source = "/shop" if draw(st.integers(0, 200)) == 200 else None
        until = None if expires is None else end + expires
        made.append(Event(f"n{number}", said, (), place, None, end, until, source=source))
    return sorted(made, key=lambda event: event.end or 0) if draw(st.booleans()) else made


FENCES = (
    Fence("f1", "ann", "car", Box(0, 0, 2, 2), on={"enter", "exit", "cross"}),
    Fence("f2", "bob", "car", Box(1, 1, 4, 4), "price > 1", on={"dwell", "lost"}, dwell=2, lost=9),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(wishes(), max_size=6), st.booleans(), st.data())
def test_strangers_are_as_one_by_one(wanted, fenced, data):
    two = Two()
    two.all("subscribe", [each for each in wanted if not isinstance(each.region, Around)])
    if fenced:
        two.all("subscribe", FENCES)
    first = 0
    for _ in range(3):
        coming = data.draw(strangers(first))
        first += len(coming)
        two.all("publish", coming)
        two.check()
        again = data.draw(st.sampled_from(coming))
        two.each("publish", again)
        if data.draw(st.booleans()):
            two.all("subscribe", [Subscription(f"later{first}", "cyd", "price > 1")])
    two.check()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(subscriptions("planar"), max_size=8, unique_by=lambda s: s.id),
    st.lists(events("planar"), max_size=12, unique_by=lambda e: e.id),
    st.lists(subscriptions("planar"), max_size=8),
)
def test_many_are_told_what_the_definition_says(first, happening, then):
    broker, naive = Broker("planar"), NaiveBroker("planar")
    fixed = [s for s in first if not isinstance(s.region, Around)]
    others = [s for s in then if not isinstance(s.region, Around)]
    for verb, many in (("subscribe", fixed), ("publish", happening), ("subscribe", others)):
        told = getattr(broker, f"{verb}_many")(many)
        should = [pair for each in many for pair in getattr(naive, verb)(each)]
        assert [(n.subscription_id, n.subscriber, n.event.id) for n in told] == should
    broker.check_invariants()


def test_a_batch_is_cut_where_it_is_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "_TOGETHER", 7)
    two = Two()
    two.all("subscribe", [Subscription(f"s{i}", "ann", f"price < {i}") for i in range(100)])
    two.all("publish", [Event(f"e{i}", {"price": i % 9}, end=i * S) for i in range(50)])
    two.check()
    assert len(two.inboxes[0]) > 4000


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_one_bad_event_and_nothing_happens(bad: int):
    store, inbox = MemoryStore(), Inbox()
    broker = Broker("planar", store=store, sinks=[inbox])
    broker.subscribe(Subscription("s", "ann"))
    broker.publish(Event("e", {"a": 1}, end=S))
    given: list[Any] = [Event(f"e{i}", {"a": i}, end=(i + 2) * S) for i in range(6)]
    before = known(broker), store.load(), [*inbox]
    wrongs: list[tuple[Any, type[NearcastError]]] = [
        (Event("e", {"a": 2}, end=9 * S), DuplicateIdError),
        ("no event", ValidationError),
    ]
    for wrong, cause in wrongs:
        with pytest.raises(BatchError, match=f"row {bad}: ") as error:
            broker.publish_many([*given[:bad], wrong, *given[bad:]])
        assert isinstance(error.value.cause, cause)
        assert error.value.row == bad
        assert (known(broker), store.load(), [*inbox]) == before
    assert len(broker.publish_many(given)) == 6


def test_events_of_a_batch_conflict_with_one_another():
    broker = Broker()
    first, second = Event("e", {"a": 1}, end=S), Event("e", {"a": 2}, end=S)
    with pytest.raises(BatchError, match=r"row 2: .*'e'"):
        broker.publish_many([first, first, second])
    assert broker.now is None
    over = Event("e", {"a": 1}, end=S, expires=2 * S)
    later = Event("e", {"a": 2}, end=3 * S)
    broker.publish_many([over, later])
    assert broker._live.get("e") == later


@pytest.mark.parametrize(
    "wrong",
    [
        "no subscription",
        Subscription("new", None, region=Around(3)),
        Subscription("c", "ann"),
        Subscription("s", "ann", "S_INTERSECTS(location, BBOX(300, 0, 400, 1))"),
        Subscription("new", "ann", "S_INTERSECTS(location, BBOX(300, 0, 400, 1))"),
    ],
)
def test_one_bad_subscription_and_nothing_happens(wrong: Any):
    broker = Broker()
    broker.subscribe(Subscription("s", "ann"))
    broker.detect(Composite("c", "ops", "ARITH: a = 1"))
    broker.publish(Event("e", {"a": 5}, end=S))
    before = known(broker)
    given = [Subscription(f"s{i}", "ann", f"a < {i}") for i in range(4)]
    with pytest.raises(BatchError) as error:
        broker.subscribe_many([*given, wrong, *given])
    assert error.value.row == 4
    assert known(broker) == before
    assert broker.subscribe_many(given) == []
    broker.check_invariants()


def test_what_is_not_many_is_refused():
    broker = Broker()
    verbs: list[Any] = [broker.publish_many, broker.subscribe_many]
    for verb in verbs:
        with pytest.raises(ValidationError, match="give"):
            verb(3)
        with pytest.raises(NearcastError):
            verb("text")
        assert verb([]) == Reply()
    assert broker.now is None
    publish, subscribe = verbs
    assert publish(Event("e")) == []
    assert [told.event.id for told in subscribe(Subscription("s", "ann"))] == ["e"]


@pytest.mark.parametrize("many", [True, False])
def test_a_mover_that_has_told_enough_is_asked_no_more_within_a_batch(many: bool):
    broker = Broker("planar")
    broker.publish(Event("e0", location=Point(1, 0), end=0))
    around = Subscription("s", "ann", region=Around(9), terms=Terms(digest=2, max_events=1))
    broker.subscribe(around)
    assert not broker.move("ann", Point(0, 0))
    coming = [Event(f"e{i}", location=Point(50 // i, 0), end=(i + 2) * S) for i in (1, 25)]
    replies = [broker.publish_many(coming)] if many else [*map(broker.publish, coming)]
    told, _, asked = merged(replies)
    assert [each.event.id for each in told] == ["e0"]
    assert not asked


def test_a_composite_event_leaves_the_ids_of_a_batch_alone():
    broker = Broker()
    broker.detect(Composite("c", "ops", "ARITH: a = 1"))
    told = broker.publish_many([Event("x", {"a": 1}, end=S), Event("c#1", {"a": 2}, end=2 * S)])
    assert [(n.event.id) for n in told] == ["c#2"]
    assert {"x", "c#1", "c#2"} == set(broker._live.keys())


def test_a_batch_that_comes_once_more_after_it_expired_changes_nothing():
    broker = Broker()
    broker.subscribe(Subscription("s", "ann"))
    given = [Event(f"e{i}", {"a": i}, end=i * S, expires=(i + 40) * S) for i in range(20)]
    assert len(broker.publish_many(given)) == 20
    broker.advance(100 * S)
    assert broker.event_count == 0
    assert not broker.publish_many(given)


def test_each_event_of_a_batch_has_its_own_moment():
    broker = Broker()
    broker.subscribe_many(
        [Subscription("s", "ann", expires=5 * S), Subscription("t", "bob", expires=3 * S)]
    )
    given = [Event(f"e{i}", end=i * S, expires=(i + 1) * S) for i in range(8)]
    told = broker.publish_many(given)
    assert [(n.subscription_id, n.at // S) for n in told] == [
        ("s", 0), ("t", 0), ("s", 1), ("t", 1), ("s", 2), ("t", 2), ("s", 3), ("s", 4),
    ]  # fmt: skip
    assert broker.event_count == 1
    assert len(broker) == 0


def test_an_id_is_free_once_its_event_is_over():
    broker = Broker()
    broker.publish(Event("e", {"a": 1}, end=0, expires=S))
    assert not broker.subscribe(Subscription("s", "ann", "a > 1"))  # somebody has looked at it
    broker.advance(2 * S)
    broker.publish(Event("e", {"a": 2}, end=3 * S))
    broker.unsubscribe("s")
    for i in range(600):  # more than are kept of those that are over
        broker.publish(Event(f"e{i}", {"a": 0}, end=(4 + i) * S, expires=(5 + i) * S))
    told = broker.subscribe(Subscription("s", "ann", "a > 0"))
    assert [each.event.attributes["a"] for each in told] == [2]
    broker.check_invariants()


def test_who_takes_a_place_is_told_by_its_own_name():
    broker = Broker()
    for name in ("ann", "bob", "cyd"):
        broker.subscribe(Subscription(name, name))
        assert [told.subscriber for told in broker.publish(Event(f"for {name}"))] == [name]
        broker.unsubscribe(name)
    broker.subscribe(Subscription("s", "ann", "a = 1"))
    broker.publish(Event("e1", {"a": 1}))
    broker.subscribe(Subscription("s", "bob", "a = 1"))
    assert [told.subscriber for told in broker.publish(Event("e2", {"a": 1}))] == ["bob"]
