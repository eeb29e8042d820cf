"""Publishers that keep silent: what is told is what would be if they sent everything."""

from __future__ import annotations

from typing import Any

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
    Reporter,
    SafeRectangle,
    Subscription,
)
from nearcast.errors import ValidationError

STEP = 1_000_000


def told(reply: Reply) -> set[Any]:
    """What a reply tells, whenever it does."""
    return {
        (each.subscription_id, getattr(each.event, "parts", None) or each.event.id, each.transition)
        for each in reply
    }


class Both:
    """A broker that is sent everything, and one that publishers are silent towards."""

    def __init__(self, **options: Any) -> None:
        self.full, self.quiet = Broker(space="planar"), Broker(space="planar", **options)
        self.cabs = {name: Reporter(name) for name in ("a", "b")}
        self.present: dict[str, Event] = {}
        self.unsent: set[str] = set()
        self.kept: set[str] = set()
        """Events that were kept back; who comes late hears of the last one at most."""
        self.passed: set[str] = set()
        """Asked on behalf of a pattern, which counts from now on: the next event is the answer."""
        self.told: tuple[set[Any], set[Any]] = set(), set()
        self.count = self.sent = 0

    def heard(self, full: Reply, quiet: Reply) -> None:
        heard_of = {each.id for name, each in self.present.items() if name not in self.passed}
        outdated = self.kept - heard_of
        self.told[0].update(each for each in told(full) if each[1] not in outdated)
        self.told[1].update(told(quiet))

    def step(self, name: str, x: float, y: float, free: bool) -> None:
        self.count += 1
        at = self.count * STEP
        event = Event(
            f"{name}{self.count}", {"free": free, "cab": name}, location=Point(x, y),
            end=at, expires=at + 2 * STEP,
        )  # fmt: skip
        self.present[name] = event
        self.passed.discard(name)
        self.unsent.add(name)
        before = self.quiet.advance(at)
        self.heard(self.full.publish(event), before)
        epoch = self.cabs[name].sends(event)
        if epoch is None:
            self.kept.add(event.id)
        else:
            self.send(name, epoch)

    def send(self, name: str, epoch: int) -> None:
        self.sent += 1
        self.unsent.discard(name)
        self.kept.discard(self.present[name].id)
        reply = self.quiet.publish(self.present[name], publisher=name, epoch=epoch)
        self.told[1].update(told(reply))
        self.cabs[name].received(reply.safe_rectangles[name])

    def both(self, verb: str, what: Any) -> None:
        if isinstance(what, Fence):  # it begins with the positions that were sent
            for name in sorted(self.unsent):
                if self.is_live(name):
                    self.cabs[name].lost()
                    self.speak(name)
        full, quiet = getattr(self.full, verb)(what), getattr(self.quiet, verb)(what)
        self.heard(full, quiet)
        for name, after in quiet.publish_requests.items():
            self.cabs[name].requested(after)
            # A pattern counts what happens from now on; the others have live events, too.
            if verb == "detect":
                self.passed.add(name)
            elif self.is_live(name) and name in self.unsent:
                self.speak(name)

    def is_live(self, name: str) -> bool:
        now, expires = self.quiet.now, self.present[name].expires
        return now is not None and expires is not None and expires > now

    def speak(self, name: str) -> None:
        epoch = self.cabs[name].sends(self.present[name])
        assert epoch is not None
        self.send(name, epoch)


numbers = st.integers(-9, 9).map(float)
regions = st.one_of(
    st.none(),
    st.builds(Circle, numbers, numbers, st.integers(1, 4).map(float)),
    st.builds(lambda x, y, w: Box(x, y, x + w, y + 2), numbers, numbers, st.integers(1, 4)),
    st.builds(lambda x, y: Polygon([(x, y), (x + 3, y), (x, y + 4)]), numbers, numbers),
)
AREA = "POLYGON((0 0, 3 0, 3 3, 0 3, 0 0))"
filters = st.sampled_from([
    None, "free = TRUE", "cab = 'a'", "cab = 'z'", "cab = 'a' AND free = FALSE",
    f"S_WITHIN(location, {AREA})", f"NOT S_INTERSECTS(location, {AREA}) AND cab = 'b'",
    f"free = TRUE AND S_WITHIN(location, {AREA}) OR cab = 'y'",
    f"S_INTERSECTS(location, {AREA}) OR free = FALSE AND cab = 'b'",
])  # fmt: skip
names = st.sampled_from(["s1", "s2", "s3", "s4"])
PATTERNS = [
    '@((1,1),(4,1),(4,4),(1,4))(STRING: cab = "b")',
    'DIST((-4,-4);<;2)(STRING: cab = "a")',
    'DIST((5,-5);>;9)(STRING: cab = "b")',
    'Q(2)(@((1,1),(4,1),(4,4),(1,4))(STRING: cab = "a"))',
    '@((-8,-8),(0,-8),(0,0),(-8,0))((STRING: cab = "a") && (STRING: cab = "b"))',
    '!(@((0,0),(3,0),(3,3),(0,3))(STRING: cab = "b");4)(STRING: cab = "a")',
    'STRING: cab = "z"',
]
steps = st.tuples(
    st.just("step"), st.sampled_from("ab"), numbers, numbers, st.sampled_from([True] * 5 + [False])
)
acts = st.one_of(
    steps, steps, steps, steps,
    st.tuples(
        st.just("subscribe"), st.builds(Subscription, names, where=filters, region=regions)
    ),
    st.tuples(st.just("subscribe"), st.just(
        Subscription("s5", "ann", "cab = 'a' AND free = FALSE", region=Around(radius_m=3))
    )),
    st.tuples(st.just("subscribe"), st.builds(
        lambda x, cab: Fence("f1", "bob", where=f"cab = '{cab}'", object="cab",
                             region=Circle(x, x, 3.0), on={"enter", "exit"}),
        numbers, st.sampled_from("az"),
    )),
    st.tuples(st.just("unsubscribe"), st.sampled_from(["s1", "s2", "s3", "f1", "c1"])),
    st.tuples(st.just("detect"), st.builds(
        lambda text: Composite(id="c1", subscriber="ops", text=text), st.sampled_from(PATTERNS)
    )),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    deeds=st.lists(acts, max_size=30), method=st.sampled_from(["greedy", "quadrants"]),
    reach=st.sampled_from([3.0, 50.0]),
)  # fmt: skip
def test_nobody_is_told_less_than_if_publishers_sent_everything(
    deeds: list[Any], method: str, reach: float
) -> None:
    both = Both(safe_rectangle=method, safe_rectangle_m=reach)
    for verb, *of in deeds:
        if verb == "step":
            both.step(*of)
        elif verb != "unsubscribe" or of[0] in both.full:
            both.both(verb, *of)
        assert both.told[0] == both.told[1]


def cab(x: float, y: float, number: int = 1, free: bool = True) -> Event:
    return Event(f"p{number}", {"free": free}, location=Point(x, y))


HERE = Subscription("s1", "ann", "free = TRUE", region=Box(60, 0, 70, 100))


def test_a_publisher_is_silent_strictly_inside_of_its_rectangle() -> None:
    broker = Broker(space="planar", safe_rectangle_m=1000)
    broker.subscribe(HERE)
    reporter = Reporter("cab")
    epoch = reporter.sends(cab(10, 50))
    reply = broker.publish(cab(10, 50), publisher="cab", epoch=epoch)
    assert reply.safe_rectangles == {"cab": SafeRectangle(1, Box(-990, -950, 60, 1050))}
    reporter.received(reply.safe_rectangles["cab"])
    assert reporter.sends(cab(59.9, 700, 2)) is None
    assert reporter.sends(cab(59.9, 700, 2, free=False)) == 2
    reporter.received(reply.safe_rectangles["cab"])  # answers another report
    assert reporter.rectangle is None
    assert reporter.sends(cab(60, 50, 3)) == 3


def test_what_no_event_of_it_could_pass_leaves_a_publisher_alone() -> None:
    broker = Broker(space="planar")
    broker.subscribe(Subscription("s0", where="free = FALSE"))
    broker.subscribe(Fence("f", "bob", object="cab", region=Circle(0, 0, 5), where="free = FALSE"))
    broker.detect(Composite(id="c", subscriber="ops", text="ARITH: speed > 3"))
    assert broker.publish(cab(0, 0), publisher="cab").safe_rectangles["cab"].box is not None
    assert not broker.subscribe(Subscription("s8", where="free = FALSE")).publish_requests
    for void in (
        HERE,
        Subscription("s2", "eve", region=Around(radius_m=5)),
        Fence("f2", "bob", object="cab", region=Circle(900, 0, 5)),
        Subscription("s3", where="NOT S_INTERSECTS(location, POINT(0 0))"),
    ):
        assert broker.subscribe(void).publish_requests == {"cab": 1}
        assert broker.subscribe(Subscription("s9")).publish_requests == {}
        for id in {"s9", void.id} & {"s9", "s2", "s3", "f2"}:
            broker.unsubscribe(id)
        broker.speak_up("cab")
        assert broker.publish(cab(0, 0), publisher="cab").safe_rectangles["cab"].box is not None


@pytest.mark.parametrize(
    ("where", "high"),
    [
        (f"S_WITHIN(location, {AREA})", 0),
        (f"NOT S_INTERSECTS(location, {AREA})", None),
        (f"NOT S_INTERSECTS(location, {AREA}) AND free = FALSE", 45),
    ],
)
def test_filters_that_speak_of_places_are_kept_away_from(where: str, high: float | None) -> None:
    broker = Broker(space="planar", safe_rectangle_m=50)
    broker.subscribe(Subscription("s1", where=where))
    found = broker.publish(cab(-5, -5), publisher="cab").safe_rectangles["cab"].box
    assert (None if found is None else min(found.xmax, found.ymax)) == high


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ('@((20,0),(30,0),(30,9),(20,9))(STRING: kind = "cab")', Box(-50, -50, 20, 50)),
        ('DIST((30,0);<;10)(STRING: kind = "cab" || STRING: kind = "bus")', Box(-50, -50, 20, 50)),
        ('@((20,0),(30,0),(30,9),(20,9))((STRING: kind = "cab") && (STRING: kind = "bus"))', None),
        ('DIST((30,0);>;10)(STRING: kind = "cab")', None),
        ('Q(2)(@((20,0),(30,0),(30,9),(20,9))(STRING: kind = "cab"))', Box(-50, -50, 20, 50)),
        ('Q(2)(STRING: kind = "bus")', Box(-50, -50, 50, 50)),
    ],
)  # fmt: skip
def test_parts_of_patterns_are_kept_away_from_where_they_have_a_place(
    text: str, box: Box | None
) -> None:
    broker = Broker(space="planar", safe_rectangle_m=50)
    broker.detect(Composite(id="c", subscriber="ops", text=text))
    here = Event("p", {"kind": "cab"}, location=Point(0, 0))
    found = broker.publish(here, publisher="cab").safe_rectangles["cab"].box
    if box is None or found is None:
        assert found is box
        return
    sides = [(found.xmin, box.xmin), (found.ymin, box.ymin), (found.xmax, box.xmax),
             (found.ymax, box.ymax)]  # fmt: skip
    assert all(abs(given - wanted) < 1e-3 for given, wanted in sides)


def test_a_crowd_of_regions_makes_the_frame_smaller_not_the_answer_wrong() -> None:
    broker = Broker(space="planar", safe_rectangle_m=100)
    broker.subscribe_many(
        Subscription(f"s{i}", region=Box(x, y, x + 1, y + 1))
        for i, (x, y) in enumerate((x, y) for x in range(-80, 80, 4) for y in range(-80, 80, 4))
    )
    box = broker.publish(cab(2, 2), publisher="cab").safe_rectangles["cab"].box
    assert box is not None
    assert SafeRectangle(1, box).contains(Point(2, 2))
    assert all(
        not (box.xmin < x + 1 and x < box.xmax and box.ymin < y + 1 and y < box.ymax)
        for x in range(-80, 80, 4) for y in range(-80, 80, 4)
    )  # fmt: skip
    assert max(box.xmax, box.ymax, -box.xmin, -box.ymin) <= 52


def test_rectangles_end_at_the_rim_of_the_globe() -> None:
    broker = Broker()
    broker.subscribe(Subscription("s1", region=Circle(-179.99, 0, radius_m=500)))
    broker.subscribe(Subscription("s2", region=Box(179.97, -1, -179.97, 1)))
    found = broker.publish(cab(179.95, 0.5), publisher="cab").safe_rectangles["cab"].box
    assert found is not None
    assert found.xmax == 179.97
    assert broker.publish(cab(180, 3, 2), publisher="cab").safe_rectangles["cab"].box is None


def test_an_overtaken_report_and_a_late_answer_bring_no_rectangle() -> None:
    broker = Broker(space="planar")
    late = broker.publish(cab(0, 0, 1), publisher="cab", epoch=5).safe_rectangles["cab"]
    assert broker.publish(cab(0, 0, 2), publisher="cab", epoch=4).safe_rectangles["cab"].box is None
    reporter = Reporter("cab")
    for _ in range(5):
        reporter.sends(cab(0, 0))
    reporter.requested(5)
    reporter.received(late)
    assert reporter.rectangle is None


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("publisher", {"publisher": ""}),
        ("publisher", {"publisher": 7}),
        ("epoch", {"publisher": "cab", "epoch": 0}),
        ("epoch", {"publisher": "cab", "epoch": True}),
    ],
)
def test_a_bad_report_is_refused_and_nothing_is_published(field: str, given: Any) -> None:
    broker = Broker(space="planar")
    with pytest.raises(ValidationError) as caught:
        broker.publish(cab(0, 0), **given)
    assert caught.value.field == field
    assert broker.event_count == 0


def test_only_points_have_rectangles() -> None:
    broker = Broker(space="planar")
    with pytest.raises(ValidationError, match="keeps silent moves"):
        broker.publish(Event("e", location=Box(0, 0, 1, 1)), publisher="cab")


@pytest.mark.parametrize(
    ("option", "value"),
    [("safe_rectangle", "best"), ("safe_rectangle", None),
     ("safe_rectangle_m", 0), ("safe_rectangle_m", "far"), ("safe_rectangle_m", float("inf"))],
)  # fmt: skip
def test_options_are_checked(option: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Broker(**{option: value})
    assert caught.value.field == option


def test_a_pattern_that_was_replaced_before_anybody_was_silent_is_forgotten() -> None:
    broker = Broker(space="planar", safe_rectangle_m=1000)
    for kind in ("cab", "bus"):
        broker.detect(Composite(id="c", subscriber="ops", text=f'STRING: kind = "{kind}"'))
        event = Event(kind, {"kind": kind}, location=Point(0, 0))
        reply = broker.publish(event, publisher=kind)
        assert [each.event.id for each in reply] == ["c#1" if kind == "cab" else "c#2"]
        assert reply.safe_rectangles[kind].box is None
