"""Columns of filter texts and lists of subscriptions: the same clauses as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcast import Matcher, Subscription
from nearcast.errors import BatchError, NearcastError
from nearcast.kernels import texts as kernels
from nearcast.matcher import texts
from nearcast.model import templates
from nearcast.model.geometry import Box, Circle, Polygon
from tests.test_templates import NUMBERS, STRINGS, forms_known_at_once
from tests.test_templates import texts as any_texts


def clauses_of(matcher: Matcher) -> dict[str, list[Any]]:
    """Every subscription's clauses, with names for columns and strings for their codes."""
    standing, schema = matcher._standing, matcher.schema
    table = standing.store.table
    found: dict[str, list[Any]] = {}
    for slot in range(standing.ids.slots):
        every = []
        for row in standing.rows_of(slot):
            run = slice(int(table.start[row]), int(table.start[row]) + int(table.count[row]))
            tests = []
            for column, low, high in zip(
                table.attr[run].tolist(),
                table.low[run].tolist(),
                table.high[run].tolist(),
                strict=True,
            ):
                name, kind = schema.columns[column]
                ends: Any = (low, high)
                if kind == "string":
                    assert low == high
                    ends = schema.string_of(int(low))
                tests.append((name, kind, repr(ends)))
            words = [schema.word_of(code) for code in standing.store.words(row).tolist()]
            shapes = [(kind, floats.tolist()) for kind, floats in standing.store.shapes(row)]
            residuals = standing.store.residuals.get(row, ())
            every.append((sorted(tests), sorted(words), shapes, sorted(map(str, residuals))))
        found[standing.ids.id_of(slot)] = sorted(every, key=repr)
    return found


def one_by_one(subscriptions: list[Subscription]) -> Matcher:
    matcher = Matcher("scan", "planar")
    for subscription in subscriptions:
        matcher.add_subscriptions([subscription])
    return matcher


def check(where: list[str | None]) -> None:
    """Compare a table of texts with the same texts one by one, errors included."""
    table = pa.table(
        {
            "id": [f"s{i}" for i in range(len(where))],
            "where": pa.array(where, pa.string()),
        }
    )
    matcher = Matcher("scan", "planar")
    made: list[Subscription] = []
    wrong: NearcastError | None = None
    for row, text in enumerate(where):
        try:
            made.append(Subscription(id=f"s{row}", where=text))
        except NearcastError as error:
            wrong = error
            break
    if wrong is not None:
        with pytest.raises(BatchError) as found:
            matcher.add_subscriptions(table)
        assert found.value.row == len(made)
        assert type(found.value.cause) is type(wrong)
        assert str(found.value.cause) == str(wrong)
        assert len(matcher) == 0
        return
    matcher.add_subscriptions(table)
    assert clauses_of(matcher) == clauses_of(one_by_one(made))
    matcher.check_invariants()


def carried(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@st.composite
def columns(draw: st.DrawFn) -> list[str | None]:
    """Texts of few forms, each with constants in many notations, and some others among them."""
    found: list[str | None] = []
    for text in draw(st.lists(any_texts().filter(carried), min_size=1, max_size=3)):
        cut = templates.cut(text)
        if cut is None or templates.HOLE in text:
            found.append(text)
            continue
        holes = cut[0].split(templates.HOLE)
        for _ in range(6):
            kinds = {"n": NUMBERS, "s": STRINGS.filter(carried)}
            values = [draw(kinds[kind]) for kind in cut[1]]
            found.append("".join([a + b for a, b in zip(holes, [*values, ""], strict=True)]))
    found += draw(st.lists(st.none() | any_texts().filter(carried), max_size=2))
    return list(draw(st.permutations(found)))


@settings(max_examples=250, deadline=None)
@given(columns())
@example(["x < 1e400"] * 5)
@example(["x < 1", "x < +2", "x < -0", "x < 1.7976931348623157e308", "x > 1e308", "x < 007"])
@example([f"x BETWEEN {i} AND 3" for i in range(6)])
@example([f"x = '{i % 2}' AND y < {i}" for i in range(6)])
@example([f"x = 'é{i}'" for i in range(6)])
@example([f"x = '{i}' AND y = TRUE" for i in range(6)])
@example([f"x = {i} AND x = 'a'" for i in range(6)])
@example([f"x < {i} AND x > 0" for i in range(6)])
@example([None] * 5)
@example(["TRUE"] * 5)
def test_a_column_of_texts_is_read_like_single_ones(where: list[str | None]) -> None:
    check(where)


@settings(max_examples=200, deadline=None)
@given(columns())
def test_rows_of_known_form_hold_what_the_full_way_says(where: list[str | None]) -> None:
    """Of valid texts among bad ones too: which rows are done, and with which intervals."""
    column = pa.array(where, pa.large_string())
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    _, offsets, data = column.buffers()
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    looked = texts.look(np.frombuffer(offsets, np.int64), bytes_, valid)
    for group in looked.groups:
        for at, row in enumerate(group.rows.tolist()):
            simple = Subscription(id="s", where=where[row]).filter.simple
            assert simple is not None
            assert simple.names == group.names
            assert simple.low.tobytes() == np.ascontiguousarray(group.low[at]).tobytes()
            assert simple.high.tobytes() == np.ascontiguousarray(group.high[at]).tobytes()
            strings = [(e.attribute, e.distinct[e.codes[at]]) for e in group.equals]
            assert strings == [(e.attribute, e.value) for e in simple.equals]
    assert sorted(row for group in looked.groups for row in group.rows.tolist()) == (
        np.flatnonzero(looked.done).tolist()
    )


@settings(max_examples=100, deadline=None)
@given(columns(), st.data())
@example([f"x BETWEEN {i} AND 3" for i in range(6)], None)
@example([f"x = '{i % 2}' AND y < {i}" for i in range(6)], None)
@example([f"x = '{i}' AND y = TRUE" for i in range(6)], None)
@example([f"x = 'é{i}'" for i in range(6)], None)
def test_objects_nobody_has_read_are_added_like_those_that_are(
    where: list[str | None], data: st.DataObject | None
) -> None:
    """With words and regions, among others; each filter of a well known form, or some."""
    with pytest.MonkeyPatch.context() as patch, forms_known_at_once():
        patch.setattr("nearcast.matcher.facade._AS_ARRAYS", 1)
        patch.setattr("nearcast.matcher.subscription_lists.PIECE", 4)
        made: list[Subscription] = []
        for text in where:
            more: dict[str, Any] = {}
            if data is not None:
                more = data.draw(st.sampled_from(BESIDES))
            try:
                made.append(Subscription(id=f"s{len(made)}", where=text, **more))
            except NearcastError:
                continue
        found = Matcher("scan", "planar")
        error = refusal(found, made)
    expected = Matcher("scan", "planar")
    for row, each in enumerate(made):
        wrong = refusal(expected, [each])
        if wrong is not None:
            assert error is not None
            assert (error.row, str(error.cause)) == (row, str(wrong.cause))
            assert len(found) == 0
            return
    assert error is None
    found.check_invariants()
    assert clauses_of(found) == clauses_of(expected)


def refusal(matcher: Matcher, subscriptions: list[Subscription]) -> BatchError | None:
    try:
        matcher.add_subscriptions(subscriptions)
    except BatchError as error:
        return error
    return None


BESIDES: tuple[dict[str, Any], ...] = (
    {},
    {"keywords": ("w", "v")},
    {"region": Box(0, 0, 1, 1)},
    {"region": Circle(5, 5, 1000)},
    {"region": Polygon(((0, 0), (2, 0), (1, 2))), "keywords": ("u",)},
    {"expires": 1000},
)


def test_objects_of_well_known_form_are_not_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with forms_known_at_once():
        made = [
            Subscription(id=f"s{i}", where=f"a BETWEEN {i} AND {i + 1}.5 AND b = '{i % 3}'")
            for i in range(100)
        ]
    assert [each.filter.unread is None for each in made] == [True] + [False] * 99
    monkeypatch.setattr("nearcast.model.known_forms.KnownForm.read", pytest.fail)
    matcher = Matcher("scan", "planar")
    matcher.add_subscriptions(made)
    assert len(matcher) == 100


def test_texts_of_known_form_make_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    where = [f"a BETWEEN {i} AND {i + 1}.5 AND b = '{i % 3}' AND c >= -{i}e1" for i in range(50)]
    table = pa.table({"id": [f"s{i}" for i in range(50)], "where": where})
    expected = clauses_of(
        one_by_one([Subscription(id=f"s{i}", where=w) for i, w in enumerate(where)])
    )
    monkeypatch.setattr("nearcast.matcher.bulk.encode_subscription", pytest.fail)
    matcher = Matcher("scan", "planar")
    matcher.add_subscriptions(table)
    assert clauses_of(matcher) == expected


def test_hashes_that_collide_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms are compared byte by byte."""

    def count(offsets: Any, data: Any, counts: Any, keys: Any) -> None:
        original(offsets, data, counts, keys)
        keys[:] = 0

    original = kernels.count_constants
    monkeypatch.setattr(kernels, "count_constants", count)
    check([f"{name} {op} {i}" for i, name in enumerate("abcabc") for op in ("<", ">", "=")])
    check([f"a = {value}" for value in ("1", "'1'", "2", "'2'", "3", "'3'")])


def test_texts_stand_beside_other_columns() -> None:
    """Ready intervals, words, boxes and circles, in rows with a text and without."""
    rows = []
    for i in range(40):
        rows.append(
            {
                "id": f"s{i}",
                "where": f"a < {i} AND b = 'x{i % 3}'" if i % 2 else None,
                "intervals": [{"attribute": "c", "low": 0.0, "high": float(i)}] if i % 3 else None,
                "keywords": [f"w{i % 4}"] if i % 5 else None,
                "xmin": 1.0 if i % 7 == 0 else None,
                "ymin": 2.0 if i % 7 == 0 else None,
                "xmax": 3.0 if i % 7 == 0 else None,
                "ymax": 4.0 if i % 7 == 0 else None,
            }
        )
    from nearcast.model.codec import subscriptions_from_arrow

    table = pa.Table.from_pylist(rows)
    matcher = Matcher("scan", "planar")
    matcher.add_subscriptions(table)
    assert clauses_of(matcher) == clauses_of(one_by_one(subscriptions_from_arrow(table)))


def test_many_objects_are_added_like_single_ones() -> None:
    regions = (
        None,
        Box(0, 0, 1, 1),
        Box(170, 0, -170, 1),
        Circle(5, 5, 1000),
        Circle(180, 0, 1000),
        Polygon(((0, 0), (2, 0), (1, 2))),
    )
    filters = (
        "a < {i}",
        "a BETWEEN 1 AND {i} AND b = 'x{i}'",
        "a IN (1, 2, {i})",
        "b LIKE 'x%'",
        "c = TRUE AND a > {i}",
        "a < 1 AND a > 2",
        "A_CONTAINS(keywords, ('w{i}'))",
        "S_DWITHIN(location, POINT(1 2), {i})",
    )
    many = [
        Subscription(
            id=f"s{i}",
            where=filters[i % len(filters)].format(i=i + 2) if i % 9 else None,
            keywords=(f"w{i % 3}", "v") if i % 4 == 0 else (),
            region=regions[i % 6] if i % 5 else None,
            expires=1000 + i if i % 10 == 0 else None,
        )
        for i in range(200)
    ]
    found, expected = Matcher("scan"), Matcher("scan")
    found.add_subscriptions(many)
    for each in many:
        expected.add_subscriptions([each])
    assert clauses_of(found) == clauses_of(expected)
    assert found.expire(1100) == expected.expire(1100)
    found.check_invariants()


@pytest.mark.parametrize("bad", [0, 57, 99])
def test_the_first_bad_object_is_named_and_nothing_is_added(bad: int) -> None:
    many: list[Any] = [Subscription(id=f"s{i}", where=f"a < {i}") for i in range(100)]
    twice = Subscription(id="here", where="a < 1")
    matcher = Matcher()
    matcher.add_subscriptions([twice])
    known = matcher.schema.to_json()
    for wrong in (twice, "no subscription", Subscription(id="far", region=Box(0, 0, 999, 1))):
        given_ = [*many[:bad], wrong, *many[bad:], twice, 5]
        with pytest.raises(BatchError) as found:
            matcher.add_subscriptions(given_)
        assert found.value.row == bad
        assert len(matcher) == 1
        assert matcher.schema.to_json() == known
    matcher.add_subscriptions(many)
    assert len(matcher) == 101
