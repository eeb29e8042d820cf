"""Random patterns and histories for CPSL, small enough that things meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nearcast.cpsl import ast
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.operators.joint import Joint
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point
from tests.cpsl_naive import Found

REGION = ast.Region(((0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)))
SPOT = ast.Region(((1.0, 1.0),))
lengths = st.integers(0, 6)
TRIANGLE = ast.Region(((1.0, 0.0), (3.0, 2.0), (1.0, 3.0)))
regions = st.sampled_from([REGION, SPOT, TRIANGLE])
distances = st.sampled_from([("<", 2.3), (">", 1.7), ("=", 2.3), ("<", 1.7)])


def kind(number: int, variable: str | None = None, compared: str | None = None) -> ast.Primitive:
    """A plain event of one kind, which may bind or compare a variable."""
    tests: list[ast.Predicate] = [
        ast.TypedPredicate("ARITH", ((ast.ArithTest("k", "=", float(number)),),))
    ]
    if variable is not None:
        test = ast.ArithTest("v", "=", ast.Variable(variable))
        tests.append(ast.TypedPredicate("ARITH", ((test,),)))
    if compared is not None:
        test = ast.ArithTest("w", "<", ast.Variable(compared, "+", 1.0))
        tests.append(ast.TypedPredicate("ARITH", ((test,),)))
    return ast.Primitive(tuple(tests))


@st.composite
def histories(draw: st.DrawFn, longest: int = 2, size: int = 12, least: int = 1) -> list[Event]:
    """Events in order of their ends, often at the same time and place."""
    events, now = [], 0
    for number in range(draw(st.integers(least, size))):
        now += draw(st.sampled_from([0, 1, 1, 2, 3]))
        long = draw(st.sampled_from([0, 0, 0, 1, longest])) if longest else 0
        events.append(
            Event(
                id=f"e{number}",
                attributes={
                    "k": draw(st.integers(1, 3)),
                    "v": draw(st.integers(1, 2)),
                    "w": draw(st.integers(1, 3)),
                },
                location=draw(places),
                start=now - long,
                end=now,
            )
        )
    return events


_coordinates = st.integers(0, 3)
places: st.SearchStrategy[Any] = st.one_of(
    st.builds(Point, _coordinates, _coordinates),
    st.builds(Point, _coordinates, _coordinates),
    st.builds(
        lambda x, y, w, h: Box(x, y, x + w, y + h),
        _coordinates, _coordinates, st.integers(1, 2), st.integers(1, 2),
    ),
    st.none(),
)  # fmt: skip


def windows(of: st.SearchStrategy[Any], fixed: bool = True) -> st.SearchStrategy[Any]:
    choices = [st.builds(ast.Following, of, lengths), st.builds(ast.Enclosed, of, of)]
    if fixed:
        choices.append(st.builds(ast.Fixed, st.integers(0, 8), lengths))
    return st.one_of(choices)


def operators(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One operator over operands."""
    place = st.one_of(regions, of)
    return st.one_of(
        st.builds(lambda a, b: ast.And((a, b)), of, of),
        st.builds(lambda a, b, c: ast.And((a, b, c)), of, of, of),
        st.builds(lambda a, b: ast.Or((a, b)), of, of),
        st.builds(ast.Negation, windows(of), of),
        st.builds(ast.HappenBetween, windows(of), of),
        st.builds(ast.HappenAfter, windows(of), of),
        st.builds(ast.Concurrent, of, of),
        st.builds(ast.HappenIn, regions, of),
        st.builds(ast.Inside, of, of),
        st.builds(ast.Overlap, place, of),
        st.builds(ast.SamePlace, place, of),
        st.builds(lambda p, d, b: ast.Distance(p, d[0], d[1], b), place, distances, of),
        st.builds(ast.Count, st.integers(1, 3), of),
        st.builds(ast.Period, st.integers(1, 6), of),
        st.builds(ast.Sliding, st.integers(1, 3), lengths, st.integers(1, 3), of),
        crossings(of),
    )


def crossings(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A border that objects cross."""
    areas, margins = st.sampled_from([REGION, TRIANGLE]), st.sampled_from([0.0, 0.0, 1.0, 1.5])
    stays, reaches = st.integers(1, 4), st.sampled_from([1.0, 1.5])
    return st.one_of(
        st.builds(ast.Enter, areas, margins, of),
        st.builds(ast.Exit, areas, margins, of),
        st.builds(ast.Dwell, areas, margins, of, stays),
        st.builds(ast.Approach, regions, margins, of, reaches),
    )


plain = st.sampled_from([kind(1), kind(2), kind(3)])
bound = st.sampled_from([kind(1, "x"), kind(2, "x"), kind(3, "x"), kind(2, "x", "x")])


def expressions(leaves: st.SearchStrategy[Any], depth: int) -> st.SearchStrategy[Any]:
    """Operators over operators over plain events."""
    of = leaves
    for _ in range(depth - 1):
        of = st.one_of(leaves, operators(of))
    return operators(of)


def patterns(depth: int = 2) -> st.SearchStrategy[ast.Pattern]:
    """Patterns without definitions, over plain events or events joined on a variable."""
    return st.one_of(
        st.builds(ast.Pattern, expressions(plain, depth)),
        st.builds(ast.Pattern, expressions(bound, depth)),
    )


@st.composite
def variable_patterns(draw: st.DrawFn) -> ast.Pattern:
    """Patterns in which variables are used in several places."""
    x, y, z = (ast.Reference(n) for n in "xyz")
    two = operators(st.sampled_from([x, y]))
    first, second = draw(two), draw(operators(st.sampled_from([x, y, z])))
    whole = draw(
        st.sampled_from(
            [
                ast.And((first, second)),
                ast.And((first, second, ast.Concurrent(x, y))),
                ast.HappenBetween(ast.Following(first, 4), second),
                ast.Or((ast.And((first, ast.Concurrent(x, z))), second)),
                ast.Negation(ast.Following(ast.And((first, second)), 3), z),
            ]
        )
    )
    used = {n.name for n in ast.walk(whole) if isinstance(n, ast.Reference)}
    leaves = draw(st.sampled_from([plain, bound]))
    definitions = tuple(
        ast.Definition(n, draw(st.one_of(leaves, leaves, operators(leaves)))) for n in sorted(used)
    )
    return ast.Pattern(whole, definitions)


@st.composite
def twin_patterns(draw: st.DrawFn) -> ast.Pattern:
    """Operators side by side that differ in their variables, of which many are defined alike."""
    drawn = st.sampled_from([kind(1), kind(1), kind(2)])
    bodies = {name: draw(drawn) for name in "xyuv"}
    x, y, u, v = (ast.Reference(name) for name in "xyuv")
    form: Any = draw(
        st.sampled_from(
            [
                lambda a, _: ast.And((a, a)),
                lambda a, b: ast.And((a, b)),
                ast.Concurrent,
                lambda a, b: ast.HappenBetween(ast.Following(a, 4), b),
                lambda a, b: ast.And((ast.And((a, b)), ast.Distance(a, "<", 2.3, b))),
            ]
        )
    )
    first = form(x, u)
    second = form(*draw(st.sampled_from([(y, v), (y, v), (bodies["y"], bodies["v"])])))
    over = draw(st.sampled_from([None, None, "count", "border"]))
    if over == "count":
        first, second = ast.Count(1, first), ast.Count(1, second)
    elif over == "border":
        first, second = (ast.Enter(REGION, 0.0, each) for each in (first, second))
    whole = draw(
        st.sampled_from(
            [
                ast.And((first, second)),
                ast.Or((first, second)),
                ast.Concurrent(first, second),
                ast.HappenBetween(ast.Following(first, 4), second),
                ast.Negation(ast.Following(first, 3), second),
            ]
        )
    )
    used = sorted({n.name for n in ast.walk(whole) if isinstance(n, ast.Reference)})
    return ast.Pattern(whole, tuple(ast.Definition(name, bodies[name]) for name in used))


@st.composite
def chained_patterns(draw: st.DrawFn) -> ast.Pattern:
    """Three and more inputs, of which each binds some of the values and none has to bind all."""
    tests = {
        name: ast.TypedPredicate("ARITH", ((ast.ArithTest(attribute, "=", ast.Variable(name)),),))
        for name, attribute in (("x", "v"), ("y", "w"), ("z", "v"))
    }
    sides = draw(
        st.one_of(
            st.permutations(["x", "xy", "y"]),
            st.permutations(["x", "xy", "yz", "z"]),
            st.lists(st.sampled_from(["", "x", "y", "xy", "xyz"]), min_size=3, max_size=4),
        )
    )
    of: list[Any] = [
        ast.Primitive(
            (kind(draw(st.sampled_from([1, 1, 2]))).predicates[0], *(tests[name] for name in side))
        )
        for side in sides
    ]
    if draw(st.integers(0, 3)) == 0:  # one that may not bind anything
        of[0] = ast.Or((of[0], kind(2, "x")))
    names = "abcd"[: len(of)]
    row = [ast.Reference(name) for name in names]
    ties = draw(st.one_of(st.just([]), st.lists(_ties(row), max_size=1)))
    whole = ast.And((ast.And(tuple(row)), *(ties or row[:1])))
    return ast.Pattern(whole, tuple(map(ast.Definition, names, of)))


def _ties(of: list[Any]) -> st.SearchStrategy[Any]:
    """Operators over operands of which the earlier ones are mostly the first in time."""
    number, within = st.integers(0, len(of) - 1), st.integers(2, 8)
    rows = st.lists(number, min_size=3, max_size=3, unique=len(of) > 2).map(sorted)
    mixed = st.lists(number, min_size=3, max_size=3)
    three = st.one_of(rows, rows, rows, mixed).map(lambda row: [of[i] for i in row])
    return st.one_of(
        st.builds(lambda x, t: ast.HappenBetween(ast.Following(x[0], t), x[1]), three, within),
        st.builds(lambda x, t: ast.HappenBetween(ast.Following(x[0], t), x[2]), three, within),
        st.builds(lambda x, t: ast.HappenAfter(ast.Following(x[0], t), x[1]), three, lengths),
        st.builds(lambda x: ast.HappenBetween(ast.Enclosed(x[0], x[2]), x[1]), three),
        st.builds(lambda x: ast.HappenAfter(ast.Enclosed(x[0], x[1]), x[2]), three),
        st.builds(lambda x: ast.Concurrent(x[0], x[1]), three),
        st.builds(lambda x, d: ast.Distance(x[0], d[0], d[1], x[2]), three, distances),
        st.builds(lambda x, t: ast.HappenBetween(ast.Fixed(1, t), x[0]), three, st.integers(6, 20)),
        st.builds(lambda x, t: ast.HappenAfter(ast.Fixed(0, t), x[2]), three, lengths),
        st.builds(lambda x: ast.And((x[0], x[2])), three),
    )


@st.composite
def shared_patterns(draw: st.DrawFn) -> ast.Pattern:
    """Patterns in which variables tie three inputs and more, in every way to bound their times."""
    operands: list[Any] = [ast.Reference(n) for n in "abcd"[: draw(st.integers(2, 4))]]
    operands.append(kind(3))
    first = draw(_ties(operands))
    nested = draw(st.sampled_from([[], [], [first]]))  # an operand that is an operator itself
    more = draw(st.lists(_ties([*nested, *operands]), min_size=1, max_size=2))
    whole = ast.And((first, *more))
    used = sorted({n.name for n in ast.walk(whole) if isinstance(n, ast.Reference)})
    leaves = draw(st.sampled_from([plain, plain, bound]))
    odd = st.one_of(operators(leaves), st.builds(ast.Period, st.integers(1, 4), leaves))
    definitions = [
        ast.Definition(n, draw(odd if draw(st.integers(0, 5)) == 0 else leaves)) for n in used
    ]
    return ast.Pattern(whole, tuple(definitions))


@st.composite
def enclosed_negations(draw: st.DrawFn) -> ast.Pattern:
    """`!(A;B)C` whose operands come late, last, repeat and share values, or do not."""
    leaves = draw(st.sampled_from([plain, bound, st.one_of(plain, bound)]))
    late = st.builds(ast.Period, st.integers(1, 4), leaves)
    either = st.builds(lambda a, b: ast.Or((a, b)), leaves, st.one_of(leaves, late))
    long = st.builds(ast.Count, st.just(2), leaves)
    of = st.one_of(leaves, leaves, late, late, either, long)
    return ast.Pattern(ast.Negation(ast.Enclosed(draw(of), draw(of)), draw(of)))


def pending(composite: Composite, history: list[Event], until: int, **options: Any) -> int:
    """How many instances wait at the joints of a detector after a history."""
    detector = Detector("planar", **options)
    detector.add(composite)
    detector.feed(history)
    detector.advance(until)
    nodes = detector._graph.nodes
    return sum(len(node.pending()) for node in nodes if isinstance(node, Joint))


def detected(composite: Composite, history: list[Event], until: int, **options: Any) -> list[Found]:
    """What the detector finds, in the form of the naive interpreter."""
    detector = Detector("planar", **options)
    detector.add(composite)
    found = detector.feed(history)
    detector.check_invariants()
    found += detector.advance(until)
    detector.check_invariants()
    return [seen(event) for event in found]


def seen(event: Any) -> Found:
    """A composite event in the form of the naive interpreter."""
    return Found(event.parts, event.start, event.end, tuple(sorted(event.attributes.items())))
