"""ENTER, EXIT, DWELL, APPROACH: the detector against the definition, and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nearcast import Box, Circle, Composite, Event, Point, Polygon
from nearcast.cpsl import ast, motion
from nearcast.cpsl.builder import cpsl, event, number, string
from nearcast.cpsl.composite import MODES
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.operators.crossings import Border, Positions
from nearcast.cpsl.operators.spatial import Relations, region_shape
from nearcast.errors import PatternError
from nearcast.fences.borders import DOUBTED, ENTERED, LEFT, SETTLED, Borders
from tests import cpsl_cases as cases
from tests.cpsl_naive import Found, naive

S = 1_000_000
HOME = Box(0, 0, 2, 2)
UNTIL = 60
_relaxed = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def _objects(attribute: str) -> ast.Primitive:
    kind = "ARITH" if attribute == "v" else "STRING"
    found = cpsl(f"Q(2)({kind}: {attribute} = &x)")
    assert isinstance(found, ast.Count)
    assert isinstance(found.body, ast.Primitive)
    return found.body


#: Who is seen: numbered objects, named ones, one that has no name, and those of one kind.
observers = st.sampled_from(
    [_objects("v"), _objects("v"), _objects("s"), cases.kind(1), cases.kind(2, "x")]
)


@st.composite
def tracks(draw: st.DrawFn, size: int = 14) -> list[Event]:
    """Positions of objects that are numbers or strings, or both in turn; often at one instant."""
    found = []
    now = 10
    for at in range(draw(st.integers(1, size))):
        now += draw(st.sampled_from([0, 0, 1, 1, 2]))
        one = draw(st.integers(1, 2))
        attributes: dict[str, Any] = {"k": draw(st.integers(1, 2)), "w": draw(st.integers(1, 3))}
        attributes["v"] = one if draw(st.integers(0, 4)) else str(one)
        attributes["s"] = str(one) if draw(st.integers(0, 4)) else one
        place = draw(cases.places)
        start = now - draw(st.sampled_from([0, 0, 1, 3]))
        found.append(Event(f"e{at}", attributes, (), place, start, now))
    return found


@st.composite
def bordered(draw: st.DrawFn) -> ast.Pattern:
    """One border, or some under other operators."""
    of = draw(observers)
    over = draw(
        st.sampled_from(
            [
                of,
                of,
                ast.Count(2, of),
                ast.Or((of, cases.kind(3, "x") if "x" in str(of) else cases.kind(3))),
                ast.Period(2, of),
                ast.Or((of, ast.Period(2, of))),
                ast.HappenIn(cases.TRIANGLE, of),
            ]
        )
    )
    border = cases.crossings(st.just(over))
    one, two, three = draw(border), draw(border), draw(border)
    return ast.Pattern(
        draw(
            st.sampled_from(
                [
                    one,
                    one,
                    one,
                    ast.HappenBetween(ast.Following(one, 4), two),
                    ast.HappenBetween(ast.Enclosed(one, two), of),
                    ast.Negation(ast.Following(one, 3), two),
                    ast.Negation(ast.Enclosed(one, two), three),
                    ast.Negation(ast.Following(of, 3), one),
                    ast.And((one, two)),
                    ast.Or((one, two)),
                    ast.Count(2, one),
                    ast.Dwell(cases.REGION, 0.0, one, 2),
                ]
            )
        )
    )


def _detector(pattern: ast.Pattern, mode: Any, **options: Any) -> Detector:
    detector = Detector("planar", **options)
    try:
        detector.add(Composite(id="c", text=pattern, consume=mode))
    except PatternError:
        assume(False)
    return detector


def _seen(found: list[Any]) -> list[Found]:
    return [cases.seen(each) for each in found]


@_relaxed
@given(pattern=bordered(), history=tracks(), mode=st.sampled_from(MODES), cuts=st.integers(0, 14))
def test_borders_are_what_the_definition_says(
    pattern: ast.Pattern, history: list[Event], mode: Any, cuts: int
) -> None:
    expected = naive(pattern, history, mode, UNTIL)
    detector = _detector(pattern, mode)
    found = detector.feed(history)
    detector.check_invariants()
    found += detector.advance(UNTIL)
    detector.check_invariants()
    assert _seen(found) == expected
    # One by one, and saved and restored on the way.
    detector = _detector(pattern, mode)
    found = [each for event in history[:cuts] for each in detector.feed(event)]
    other = Detector.restore(detector.save())
    other.check_invariants()
    assert other.pending() == detector.pending()
    found += [each for event in history[cuts:] for each in other.feed(event)]
    found += other.advance(UNTIL)
    other.check_invariants()
    assert _seen(found) == expected


@st.composite
def trembling(draw: st.DrawFn) -> list[Event]:
    """One object or two along a line, in and out of [0, 2]."""
    found, now = [], 0
    for at, x in enumerate(draw(st.lists(st.integers(-2, 5), min_size=4, max_size=16))):
        now += draw(st.sampled_from([0, 1, 1, 2]))
        attributes = {
            "k": draw(st.sampled_from([1, 1, 1, 2])),
            "v": draw(st.sampled_from([1, 1, 2])),
        }
        found.append(Event(f"e{at}", attributes, (), Point(x, 1), end=now))
    return found


@_relaxed
@given(
    history=trembling(),
    border=cases.crossings(
        st.sampled_from(
            [
                _objects("v"),
                ast.Or((cases.kind(1, "x"), ast.Period(3, cases.kind(2, "x")))),  # some come late
            ]
        )
    ),
)
def test_each_mode_of_a_border(history: list[Event], border: ast.Crossing) -> None:
    pattern = ast.Pattern(border)
    for mode in MODES:
        detector = _detector(pattern, mode)
        found = detector.feed(history) + detector.advance(UNTIL)
        assert _seen(found) == naive(pattern, history, mode, UNTIL)


@_relaxed
@given(
    pattern=bordered(),
    history=tracks(),
    mode=st.sampled_from(MODES),
    lateness=st.integers(0, 4),
    order=st.randoms(use_true_random=False),
)
def test_late_and_repeated_positions(
    pattern: ast.Pattern, history: list[Event], mode: Any, lateness: int, order: Any
) -> None:
    """They come up to so much too late, some later still, some twice."""
    arriving = sorted(history, key=lambda e: (e.end or 0) + order.randint(0, lateness + 2))
    for each in order.sample(arriving, len(arriving) // 3):
        arriving.insert(order.randint(0, len(arriving)), each)
    counted: list[Event] = []
    newest = -1
    for each in arriving:
        assert each.end is not None
        if each.end >= newest - lateness and each not in counted:
            counted.append(each)
        newest = max(newest, each.end)
    detector = _detector(pattern, mode, lateness=lateness / S)
    found = detector.feed(arriving) + detector.advance(UNTIL)
    assert _seen(found) == naive(pattern, counted, mode, UNTIL)


@_relaxed
@given(
    patterns=st.lists(bordered(), min_size=2, max_size=4),
    history=tracks(),
    mode=st.sampled_from(MODES),
    cut=st.integers(0, 14),
)
def test_borders_that_come_and_go(
    patterns: list[ast.Pattern], history: list[Event], mode: Any, cut: int
) -> None:
    """Those that come in the middle know nothing of before, and nobody minds those that go."""
    detector = Detector("planar")
    half = len(patterns) // 2
    try:
        composites = [Composite(str(i), text=p, consume=mode) for i, p in enumerate(patterns)]
    except PatternError:
        assume(False)
    for each in composites[:half]:
        detector.add(each)
    detector.add(Composite("gone", text=patterns[-1], consume=mode))
    found = detector.feed(history[:cut])
    for each in composites[half:]:
        detector.add(each)
    detector.remove("gone")
    detector.check_invariants()
    found += detector.feed(history[cut:]) + detector.advance(UNTIL)
    detector.check_invariants()
    for at, pattern in enumerate(patterns):
        mine = [each for each in found if each.composite_id == str(at)]
        lived = history if at < half else history[cut:]
        if "P(" not in str(pattern):  # periods are counted from when they began
            assert _seen(mine) == naive(pattern, lived, mode, UNTIL)
    for at in range(len(patterns)):
        detector.remove(str(at))
    assert detector.nodes == 0
    if detector._graph.borders is not None:
        assert detector._graph.borders.pairs == 0


# --- what the definition says, by example ---------------------------------------------------------


def positions(*places: tuple[float, float], every: int = 10, who: str = "car") -> list[Event]:
    return [
        Event(f"{who}{n}", {"id": who}, (), Point(x, y), end=n * every * S)
        for n, (x, y) in enumerate(places)
    ]


def parts(pattern: ast.Pattern, history: list[Event], mode: Any = "first-matching") -> list[Any]:
    detector = Detector("planar")
    detector.add(Composite("c", text=pattern, consume=mode))
    return [each.parts for each in detector.feed(history) + detector.advance(10_000 * S)]


CAR = event(id=string("v"))
#: Out, out, within the margin, in, in, within the margin, out, out, in.
WALK = positions((9, 1), (8, 1), (3, 1), (1, 1), (2, 2), (3, 1), (7, 1), (9, 1), (1, 1))


@pytest.mark.parametrize("mode", MODES)
def test_the_opener_is_the_first_on_the_other_side_or_the_last_in_recent(mode: Any) -> None:
    recent = mode == "recent"
    entered = parts(motion.enter(CAR, HOME, margin_m=2), WALK, mode)
    assert entered == [
        ("car2" if recent else "car0", "car3"),
        ("car7" if recent else "car6", "car8"),
    ]
    left = parts(motion.exit(CAR, HOME, margin_m=2), WALK, mode)
    assert left == [("car5" if recent else "car3", "car6")]
    stayed = parts(motion.dwell(CAR, HOME, lasting=25, margin_m=2), WALK, mode)
    assert stayed == entered


def test_who_is_first_seen_inside_did_not_enter() -> None:
    assert parts(motion.enter(CAR, HOME), positions((1, 1), (2, 2))) == []
    assert parts(motion.exit(CAR, HOME), positions((1, 1), (9, 9))) == [("car0", "car1")]


def test_who_is_first_seen_within_the_margin_is_not_known_to_be_outside() -> None:
    pattern = motion.enter(CAR, HOME, margin_m=2)
    assert parts(pattern, positions((3, 1), (1, 1))) == []
    assert parts(pattern, positions((3, 1), (7, 1), (3, 1), (1, 1))) == [("car1", "car3")]


def test_the_border_belongs_to_what_is_approached() -> None:
    place = motion.approach(CAR, Point(0, 0), distance_m=5, margin_m=1)
    assert parts(place, positions((9, 0), (5, 0))) == [("car0", "car1")]
    assert parts(place, positions((6, 0), (5, 0))) == []  # 6 is not beyond 5 + 1
    area = motion.approach(CAR, HOME, distance_m=5, margin_m=1)
    assert parts(area, positions((9, 0), (7, 0))) == [("car0", "car1")]
    assert parts(area, positions((7.5, 0), (7, 0))) == []


def test_positions_of_one_instant_count_as_they_come() -> None:
    pattern = motion.enter(CAR, HOME)
    assert parts(pattern, positions((9, 9), (1, 1), every=0)) == [("car0", "car1")]
    assert parts(pattern, positions((1, 1), (9, 9), every=0)) == []


def test_leaving_in_the_moment_that_a_stay_is_due_is_no_dwell() -> None:
    pattern = motion.dwell(CAR, HOME, lasting=10)
    assert parts(pattern, positions((9, 9), (1, 1), (9, 9))) == []
    pattern = motion.dwell(CAR, HOME, lasting=9)
    assert parts(pattern, positions((9, 9), (1, 1), (9, 9))) == [("car0", "car1")]


def test_a_dwell_lasts_from_the_opener_to_the_end_of_the_stay() -> None:
    detector = Detector("planar")
    detector.add(Composite("c", text=motion.dwell(CAR, HOME, lasting=25)))
    detector.feed(positions((9, 9), (1, 1)))
    assert detector.due == 35 * S
    (found,) = detector.advance(35 * S)
    assert (found.start, found.end, found.attributes["v"]) == (0, 35 * S, "car")


def test_numbers_and_strings_are_different_objects() -> None:
    ids: list[Any] = [1, "1", 1.0, "1"]
    history = [
        Event(f"e{n}", {"id": who}, (), Point(9 - 8 * (n // 2), 1), end=n)
        for n, who in enumerate(ids)
    ]
    assert parts(motion.enter(event(id=number("v")), HOME), history) == [("e0", "e2")]
    assert parts(motion.enter(event(id=string("v")), HOME), history) == [("e1", "e3")]


def test_a_position_that_comes_late_does_not_count() -> None:
    """What passes through a period comes at its end, when newer ones have come."""
    late = ast.Or((cases.kind(1, "x"), ast.Period(3, cases.kind(2, "x"))))
    pattern = ast.Pattern(ast.Enter(cases.REGION, 0.0, late))
    seen = [(2, 9, 1), (1, 9, 2), (1, 1, 5)]
    history = [Event(f"e{at}", {"k": k, "v": 1}, (), Point(x, 1), end=at) for k, x, at in seen]
    assert parts(pattern, history, "recent") == [("e2", "e5")]
    assert parts(pattern, history) == [("e2", "e5")]


def test_what_is_nowhere_is_no_position() -> None:
    history = positions((9, 9), (1, 1))
    history.insert(1, Event("x", {"id": "car"}, end=5 * S))
    assert parts(motion.enter(CAR, HOME), history, "recent") == [("car0", "car1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ENTER((1, 1); 0)(STRING: a = &x)", "use APPROACH"),
        ("ENTER((0, 0), (1, 1), (2, 2); 0)(STRING: a = &x)", "on one line"),
        ("EXIT((0, 0), (1, 0), (0, 1); -1)(STRING: a = &x)", "not negative"),
        ("DWELL((0, 0), (1, 0), (0, 1); 0; 0)(STRING: a = &x)", "no duration"),
        ("APPROACH((0, 0); 0; 1)(STRING: a = &x)", "more than 0 m"),
        ("ENTER((0, 0), (1, 0), (0, 1); 0)!(0; 10)(STRING: a = &x)", "nowhere"),
        ("ENTER((0, 0), (1, 0), (0, 1); 0)$a; && $a;, $a; = (STRING: a = &x)", "repeated part"),
    ],
)  # fmt: skip
def test_borders_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(PatternError, match=said):
        Composite("c", text=text)


# --- on the globe ---------------------------------------------------------------------------------


@pytest.mark.parametrize("middle", [(8.5, 47.4), (179.999, 10.0), (-180.0, -60.0)])
@pytest.mark.parametrize("kind", ["enter", "approach", "approach a point"])
def test_on_the_globe(middle: tuple[float, float], kind: str) -> None:
    """A walk past a place, wherever it is, against distances as patterns measure them."""
    x, y = middle
    ring = [(x - 0.01, y - 0.01), (x + 0.01, y - 0.01), (x + 0.01, y + 0.01), (x - 0.01, y + 0.01)]
    if kind == "enter":
        pattern, reach = motion.enter(CAR, ring, margin_m=300), 0.0
    else:
        ring = [middle] if kind == "approach a point" else ring
        pattern, reach = motion.approach(CAR, ring, distance_m=500, margin_m=300), 500.0
    steps = [(0.01 * ((7 * n) % 11 - 5), 0.0001 * n) for n in range(40)]
    walk = [((x + east + 540) % 360 - 180, y + north) for east, north in steps]
    relations, shape = Relations("globe", 1.0), region_shape(ring)
    expected, outside = [], None
    for n, (lon, lat) in enumerate(walk):
        away = relations.distance(shape, region_shape([(lon, lat)]))
        if away <= reach:
            if outside is not None:
                expected.append((f"car{outside}", f"car{n}"))
            outside = None
        elif away > reach + 300 and outside is None:
            outside = n
    detector = Detector("globe")
    detector.add(Composite("c", text=pattern))
    found = detector.feed(positions(*walk))
    assert [each.parts for each in found] == expected
    assert len(expected) >= 2


# --- what is kept ---------------------------------------------------------------------------------


def test_an_object_is_a_row_however_many_positions_it_has() -> None:
    detector = Detector("planar")
    detector.add(Composite("c", text=motion.enter(CAR, HOME, margin_m=1)))
    for step in range(10):
        detector.feed(
            [
                Event(f"e{step}-{n}", {"id": str(n)}, (), Point(9 + step, n), end=step * S)
                for n in range(300)
            ]
        )
    assert detector.pending() == 300
    assert detector._graph.borders is not None
    assert detector._graph.borders.pairs == 0
    assert detector.memory()["total"] == sum(
        value for name, value in detector.memory().items() if name != "total"
    )


def test_an_object_has_one_timer_however_often_it_comes() -> None:
    detector = Detector("planar")
    detector.add(Composite("c", text=motion.dwell(CAR, HOME, lasting=1000)))
    found = detector.feed(positions(*[((9, 1), (1, 1))[n % 2] for n in range(60)], every=1))
    assert found == []
    assert len(detector._graph.timers.due) == 1
    assert detector.pending() == 3
    (stayed,) = detector.advance(5000 * S)
    assert (stayed.parts, stayed.end) == (("car58", "car59"), 1059 * S)


def test_too_many_objects_let_go_the_one_that_was_silent_longest() -> None:
    detector = Detector("planar", max_pending=2)
    detector.add(Composite("in", text=motion.enter(CAR, HOME)))
    detector.add(Composite("stay", text=motion.dwell(CAR, HOME, lasting=5)))
    a, b, c = (positions((9, 1), (1, 1), (9, 1), (1, 1), who=who) for who in "abc")
    found = detector.feed([a[0], b[0], a[1], b[1], a[2]])
    assert [each.parts for each in found] == [
        ("a0", "a1"),
        ("b0", "b1"),
        ("a0", "a1"),
        ("b0", "b1"),
    ]
    detector.feed(c[2])  # b is forgotten
    assert detector.overflows == 1
    detector.check_invariants()
    found = detector.feed([a[3], c[3], b[3]])
    assert [each.parts for each in found] == [("a2", "a3"), ("c2", "c3")]  # b is new now
    assert detector.overflows == 2


def test_borders_over_one_operand_share_their_positions() -> None:
    detector = Detector("planar")
    for n in range(200):
        region = Box(10 * n, 0, 10 * n + 5, 5)
        detector.add(Composite(str(n), text=motion.enter(CAR, region)))
    kinds = [type(node) for node in detector._graph.nodes]
    assert (kinds.count(Positions), kinds.count(Border)) == (1, 200)
    found = detector.feed(positions((-1, -1), (2, 2), (1002, 2), (7, 7)))
    assert [(each.composite_id, each.parts) for each in found] == [
        ("0", ("car0", "car1")), ("100", ("car0", "car2")),
    ]  # fmt: skip
    assert detector.pending() == 3


def test_text_and_values_say_the_same() -> None:
    text = "DWELL((0, 0), (2, 0), (2, 2), (0, 2); 300; 1.5)(STRING: id = &v)"
    pattern = motion.dwell(CAR, HOME, lasting="PT5M", margin_m=1.5)
    assert str(pattern) == text
    assert cpsl(text) == pattern.expression


# --- the operator of fences below -----------------------------------------------------------------


def test_what_borders_tell() -> None:
    borders = Borders("planar")
    group = borders.open_group()
    row = borders.add(group, Circle(0, 0, 2), 1, doubts=True)
    track = borders.open_track(group)
    place = Polygon([(1, 1), (4, 1), (4, 4)])
    near, far = Point(2.5, 0), Point(9, 0)
    walk: list[Any] = [near, far, near, place, near, far]
    told = [borders.take(track, at, each) for at, each in enumerate(walk)]
    assert told == [[(row, DOUBTED)], [(row, SETTLED)], [], [(row, ENTERED)], [], [(row, LEFT)]]
    borders.take(track, 9, Point(0, 0))
    assert borders.held(row) == [(track, True)]
    borders.close_track(track)
    assert borders.pairs == 0
    borders.remove(row)
    borders.close_group(group)
    assert borders.open_group() == group
