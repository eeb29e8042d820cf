"""Many events are encoded as each of them alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Box, Event, Point
from nearcast.errors import BatchError
from nearcast.matcher.encode import EncodedEvent, encode_event, encoded_row
from nearcast.matcher.event_lists import encode_list
from nearcast.model.event_columns import columns_of
from nearcast.model.schema import Schema
from tests.strategies import event_lists


def _meaning(encoded: EncodedEvent, schema: Schema) -> tuple[list[Any], list[str]]:
    """What codes stand for: two schemas may give other ones."""
    assert (np.diff(encoded.attr) > 0).all()
    assert (np.diff(encoded.word) > 0).all()
    values = []
    for code, value in zip(encoded.attr.tolist(), encoded.value.tolist(), strict=True):
        name, type_ = schema.columns[code]
        text = type_ == "string" and value >= 0
        values.append((name, type_, schema.string_of(int(value)) if text else repr(value)))
    return sorted(values), sorted(schema.word_of(code) for code in encoded.word.tolist())


def _domains(schema: Schema) -> dict[tuple[str, str], tuple[float, float]]:
    return {
        column: schema.domain(code)
        for code, column in enumerate(schema.columns)
        if column[1] != "string"
    }


@settings(deadline=None)
@given(
    data=st.data(),
    space=st.sampled_from(["globe", "planar"]),
    intern=st.booleans(),
    known=event_lists("planar", 6),
)
def test_each_as_if_alone(
    data: st.DataObject, space: Any, intern: bool, known: list[Event]
) -> None:
    events = data.draw(event_lists(space, 12))
    schema = Schema()
    for event in known:
        encode_event(event, schema, "planar", intern=True)
    alone = copy.deepcopy(schema)
    batch = encode_list(events, schema, space, intern=intern)
    assert batch.size == len(events)
    for row, event in enumerate(events):
        wanted = encode_event(event, alone, space, intern=intern)
        assert _meaning(encoded_row(batch, row), schema) == _meaning(wanted, alone)
    assert batch.columns == len(schema.columns)
    assert set(schema.strings) == set(alone.strings)
    assert set(schema.words) == set(alone.words)
    assert _domains(schema) == _domains(alone)


@settings(deadline=None)
@given(
    data=st.data(),
    names=st.lists(st.sampled_from("abcd"), unique=True),
    placed=st.booleans(),
    space=st.sampled_from(["globe", "planar"]),
    intern=st.booleans(),
)
def test_those_of_one_form_too(
    data: st.DataObject, names: list[str], placed: bool, space: Any, intern: bool
) -> None:
    number = st.integers(-3, 3) | st.floats(-2, 2)
    schema = Schema()
    for name in data.draw(st.permutations("acx")):
        schema.column(name, "number")
    alone = copy.deepcopy(schema)
    events = []
    for i in range(data.draw(st.integers(1, 4))):
        place = Point(data.draw(number | st.just(180)), data.draw(number)) if placed else None
        values = {name: data.draw(number) for name in names}
        events.append(Event(f"e{i}", values, data.draw(st.sampled_from(((), ("w",)))), place))
    assert columns_of(events) is not None
    batch = encode_list(events, schema, space, intern=intern)
    for row, event in enumerate(events):
        wanted = encode_event(event, alone, space, intern=intern)
        assert _meaning(encoded_row(batch, row), schema) == _meaning(wanted, alone)
    assert _domains(schema) == _domains(alone)


@pytest.mark.parametrize(
    "other",
    [
        Event("e", {"b": 1, "a": 1}, (), Point(0, 0)),
        Event("e", {"a": 1, "b": "1"}, (), Point(0, 0)),
        Event("e", {"a": 1, "b": True}, (), Point(0, 0)),
        Event("e", {"a": 1, "b": 1}, (), Box(0, 0, 1, 1)),
        Event("e", {"a": 1, "b": 1}),
    ],
)
def test_what_is_of_another_form_is_no_column(other: Event) -> None:
    one = Event("e", {"a": 1, "b": 2.5}, (), Point(0, 1))
    assert columns_of([one, other]) is None
    assert columns_of([other, one]) is None
    found = columns_of([one, one])
    assert found is not None
    assert found.values.tolist() == [[1.0, 2.5]] * 2
    assert columns_of([]) is None


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Event(id="e", location=Point(181, 0)), "location.x"),
        (Event(id="e", location=Point(0, -91)), "location.y"),
        (Event(id="e", location=Box(0, 0, 1, 91)), "location.ymax"),
        ("no event", "event"),
    ],
)
def test_the_first_bad_row_is_named(bad: Any, field: str) -> None:
    fine = [Event(id=f"e{i}", attributes={"a": i}, location=Point(i, 0)) for i in range(5)]
    later = Event(id="later", location=Point(0, 95))
    schema = Schema()
    with pytest.raises(BatchError, match=field) as caught:
        encode_list([*fine, bad, later], schema, "globe", intern=True)
    assert caught.value.row == 5
    assert schema == Schema()


class _Text(str):
    __slots__ = ()


def test_values_of_classes_of_ones_own() -> None:
    schema = Schema()
    text, number = schema.column("a", "string"), schema.column("a", "number")
    schema.string("x")
    events = [Event(id="e1", attributes={"a": _Text("x")}), Event(id="e2", attributes={"a": 2})]
    batch = encode_list(events, schema, "planar", intern=False)
    assert batch.attr.tolist() == [text, number]
    assert batch.value.tolist() == [0.0, 2.0]
