"""Strings by their first letters: an order-preserving number, and the same answers with it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Event, Matcher, Subscription
from nearcast.errors import SchemaError, ValidationError
from nearcast.index import registry
from nearcast.model.events import Value
from nearcast.model.letters import LETTERS, letters_of, prefix_span
from nearcast.model.predicates import like_prefix
from nearcast.model.schema import Schema
from tests import oracle

#: Latin letters, the ends of the code points that stand alone, and letters that share a digit.
ALPHABET = "\x00aAbzäſƀƁ一丁𐀀\U0010ffff"
NAMES = st.text(ALPHABET, max_size=LETTERS + 2)
PREFIXES = st.text("abäſ一", max_size=LETTERS + 1)
QUICK = settings(max_examples=200, deadline=None)


@QUICK
@given(NAMES | st.text(), NAMES | st.text())
def test_numbers_keep_the_order_of_strings(one: str, other: str) -> None:
    low, high = sorted((one, other))
    assert 0 <= letters_of(low) <= letters_of(high) < 2**53
    assert letters_of(low).is_integer()


@QUICK
@given(NAMES, NAMES)
def test_the_span_of_a_prefix_has_all_that_begin_so(prefix: str, rest: str) -> None:
    low, high = prefix_span(prefix)
    assert low <= letters_of(prefix + rest) <= high


def test_the_first_six_latin_letters_tell_strings_apart() -> None:
    assert letters_of("abcdef") < letters_of("abcdeg") < letters_of("abcdf")
    assert letters_of("abcdefg") == letters_of("abcdef")  # the seventh does not count
    assert letters_of("a") < letters_of("a\x00")  # an end is no letter
    low, high = prefix_span("abc")
    assert letters_of("abb" + "\U0010ffff" * 9) < low == letters_of("abc")
    assert letters_of("abc\U0010ffff") <= high < letters_of("abd")


def test_letters_that_share_a_digit_end_the_number() -> None:
    """Behind one of them the rest would turn the order round: 一z < 丁a."""
    assert letters_of("一z") == letters_of("丁a")
    assert letters_of("a一z") == letters_of("a丁")


def test_the_literal_beginning_of_a_pattern() -> None:
    assert like_prefix(r"a\%b%c_") == "a%b"
    assert like_prefix("_a") == ""


def _wheres(data: st.DataObject) -> str:
    name = data.draw(st.sampled_from(("name", "street")))
    text = data.draw(PREFIXES).replace("'", "")
    other = data.draw(PREFIXES)
    return data.draw(
        st.sampled_from(
            (
                f"{name} = '{text}'",
                f"{name} LIKE '{text}%'",
                f"{name} LIKE '{text}%' AND {name} LIKE '{other}%'",
                f"{name} LIKE '{text}_%' AND price < 5",
                f"{name} NOT LIKE '{text}%'",
                f"{name} > '{text}' AND {name} <= '{other}'",
                f"{name} IN ('{text}', '{other}', 'z')",
                f"{name} = '{text}' OR {name} LIKE '{other}%'",
                f"{name} IS NULL",
            )
        )
    )


def _events(data: st.DataObject, size: int) -> list[Event]:
    events = []
    for i in range(size):
        attributes: dict[str, Value] = {"price": data.draw(st.integers(0, 9))}
        for name in ("name", "street"):
            value = data.draw(st.none() | st.integers(0, 3) | PREFIXES)
            if value is not None:
                attributes[name] = value
        events.append(Event(id=f"e{i}", attributes=attributes))
    return events


@pytest.mark.parametrize("index", ["mo-tree", "scan", "pivot", "di-tree", "beq-tree", "op-index"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_answers_are_the_same_with_letters(index: str, data: st.DataObject) -> None:
    wishes = [Subscription(id=f"s{i}", where=_wheres(data)) for i in range(8)]
    events = _events(data, 6)
    entry = registry.entry(index)
    if entry.subscriptions is not None:
        matcher = Matcher(index=index, letters=True)
        matcher.add_subscriptions(wishes)
        matcher.check_invariants()
        many = [*zip(*matcher.match_events(events).to_pydict().values(), strict=True)]
        for event in events:
            wanted = oracle.match_event(wishes, event, "globe", None)
            assert matcher.match_event(event) == wanted
            assert sorted(id for of, id in many if of == event.id) == wanted
            for wish in wishes:
                told = matcher.explain(wish.id, event)
                assert told.matched == (wish.id in wanted), str(told)
                assert "e+" not in str(told)  # no number of letters
    if entry.events is not None:
        matcher = Matcher(index=index, letters=True)
        matcher.add_events(events[:3])  # together, and one by one
        for event in events[3:]:
            matcher.add_events([event])
        for wish in wishes:
            assert matcher.match_subscription(wish) == oracle.match_subscription(
                wish, events, "globe", None
            )
        matcher.check_invariants()


@pytest.mark.parametrize("index", ["mo-tree", "pivot"])
def test_tables_are_encoded_alike(index: str) -> None:
    """Many subscriptions of one form are read all at once, events column by column."""
    names = [f"{a}{b}{c}" for a in "abcdef" for b in "äbƁ" for c in ("", "x一", "y")]
    wishes = [f"name = '{name}'" for name in names] + [f"name LIKE '{name[:2]}%'" for name in names]
    ids = [f"s{i:03}" for i in range(len(wishes))]
    table = pa.table({"id": ids, "where": wishes})
    given = [*names, "zz", None]
    attributes = pa.StructArray.from_arrays([pa.array(given)], ["name"])
    events = pa.table({"id": [f"e{i}" for i in range(len(given))], "attributes": attributes})
    by_table, by_hand = Matcher(index=index, letters=True), Matcher(index="scan")
    by_table.add_subscriptions(table)
    by_hand.add_subscriptions([Subscription(id=i, where=w) for i, w in zip(ids, wishes)])  # noqa: B905
    pairs = [sorted(zip(*m.match_events(events).to_pydict().values(), strict=True))
             for m in (by_table, by_hand)]  # fmt: skip
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) > len(names)
    matcher = Matcher(index=index, letters=True)
    matcher.add_events(events)
    for id, where in zip(ids, wishes, strict=True):
        found = matcher.match_subscription(Subscription(id=id, where=where))
        assert sorted(found) == sorted(event for event, own in pairs[1] if own == id)


def _prefixes() -> list[str]:
    return [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwx"]


def test_prefixes_are_indexing_attributes_of_the_mo_tree() -> None:
    """An event is compared with few of many subscriptions that ask for a beginning."""
    wishes = [Subscription(id=p, where=f"name LIKE '{p}%'") for p in _prefixes()]
    reports = {}
    for letters in (False, True):
        matcher = Matcher(index="mo-tree", letters=letters)
        matcher.add_subscriptions(wishes)
        found, reports[letters] = matcher.match_report(Event(id="e", attributes={"name": "cmuse"}))
        assert found == ["cmu"]
    assert matcher.schema.letters_column("name") in [a.column for a in matcher.index.attributes]
    assert reports[False].candidates == len(wishes)
    assert reports[True].candidates <= len(wishes) / 2  # a value stabs half of its 10 cells


def test_an_attribute_of_letters_is_named_with_strings() -> None:
    matcher = Matcher(index="mo-tree", letters=True, attributes=[("name", "a", "j")], height=1)
    (attribute,) = matcher.index.attributes
    assert matcher.schema.columns[attribute.column] == ("name", "letters")
    assert attribute.low == letters_of("a")
    assert letters_of("jzz") <= attribute.high < letters_of("k")
    with pytest.raises(ValidationError, match=r"letters=True"):
        Matcher(index="mo-tree", attributes=[("name", "a", "j")])


def test_a_matcher_with_letters_is_saved_and_opened(tmp_path) -> None:
    matcher = Matcher(index="mo-tree", letters=True)
    matcher.add_subscriptions([Subscription(id=p, where=f"name LIKE '{p}%'") for p in _prefixes()])
    matcher.save(tmp_path)
    opened = Matcher.load(tmp_path)
    opened.add_subscriptions([Subscription(id="new", where="name LIKE 'c%'")])
    assert opened.match_event(Event(id="e", attributes={"name": "cmuse"})) == ["cmu", "new"]


def test_a_schema_with_letters_is_written_and_read() -> None:
    schema = Schema(letters=True)
    schema.column("name", "string")
    schema.column("price", "number")
    assert schema.columns[2:] == [("name", "string"), ("name", "letters"), ("price", "number")]
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.letters
    assert "letters" not in Schema().to_json()
    with pytest.raises(SchemaError, match="letters"):
        Schema().extend(schema)
    with pytest.raises(ValidationError, match="letters"):
        Matcher(schema=Schema(), letters=True)
    with pytest.raises(ValidationError, match="letters"):
        Matcher(letters=1)  # type: ignore[arg-type]
    assert Matcher(schema=again).schema.letters


def test_what_is_refused_leaves_no_column_behind() -> None:
    schema = Schema(letters=True)

    def refused() -> None:
        with schema.attempt():
            schema.column("name", "string")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        refused()
    assert schema.columns[2:] == []
    assert not schema.codes["letters"]
    assert not schema.codes["string"]
