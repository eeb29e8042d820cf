"""The schema: codes that stay, domains that grow, and files that are whole or refused."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Box, Circle, Event, Matcher, Subscription
from nearcast.errors import BatchError, CapacityError, SchemaError
from nearcast.kernels import arrange
from nearcast.matcher import encode, usage
from nearcast.model import schema as schema_module
from nearcast.model.schema import Schema, X, Y
from nearcast.model.texts import Texts


def sizes(schema: Schema) -> tuple[int, int, int]:
    return len(schema.columns), len(schema.strings), len(schema.words)


def filled() -> Schema:
    schema = Schema()
    price, _ = schema.column("price", "number"), schema.column("price", "string")
    schema.column("open", "bool")
    schema.learn(price, 1, 10)
    schema.learn(X, -5, 5)
    for text in ("b", "a", "", "日本\0"):
        schema.string(text)
    for text in ("sale", "phone"):
        schema.word(text)
    return schema


def test_codes_are_given_in_order_and_stay() -> None:
    schema = filled()
    assert schema.columns[:2] == [("@x", "number"), ("@y", "number")]
    assert [schema.column("price", t) for t in ("number", "string", "bool")] == [2, 3, 5]
    assert [schema.string(t) for t in ("a", "b", "c", "日本\0")] == [1, 0, 4, 3]
    assert [schema.word(t) for t in ("phone", "sale", "new")] == [1, 0, 2]
    assert [schema.string_of(k) for k in (0, 2)] == ["b", ""]
    assert schema.word_of(2) == "new"


def test_an_attribute_may_be_called_like_a_coordinate() -> None:
    schema = Schema()
    assert schema.column("@x", "number") not in (X, Y)
    matcher = Matcher(space="planar")
    matcher.add_subscriptions([Subscription(id="s", where='"@x" = 1', region=Circle(9, 9, 1))])
    assert matcher.match_event(Event(id="e", attributes={"@x": 1})) == []


def test_domains_are_learnt_from_finite_values() -> None:
    schema = Schema()
    column = schema.column("a", "number")
    assert schema.domain(column) == (math.inf, -math.inf)
    schema.learn(column, -math.inf, math.nan)
    assert schema.domain(column) == (math.inf, -math.inf)
    schema.learn(column, 3, math.inf)
    schema.learn(column, -1, 2)
    assert schema.domain(column) == (-1, 3)
    low, high = schema.domains()
    assert (low[column], high[column], low.size) == (-1, 3, 3)


def test_many_columns() -> None:
    schema = Schema()
    for k in range(100):
        schema.learn(schema.column(f"a{k}", "number"), k, k + 1)
    assert [schema.domain(2 + k) for k in (0, 50, 99)] == [(0, 1), (50, 51), (99, 100)]


def test_what_is_saved_is_loaded(tmp_path) -> None:
    schema = filled()
    schema.save(tmp_path / "schema.json")
    twin = Schema.load(tmp_path / "schema.json")
    assert twin == schema
    assert twin != Schema()
    assert twin.string("a") == schema.string("a")
    assert twin.domain(X) == (-5, 5)
    assert twin.memory_bytes() == schema.memory_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]


def test_other_processes_have_the_same_codes(tmp_path) -> None:
    schema = filled()
    schema.save(tmp_path / "schema.json")
    program = (
        "import sys; from nearcast.model.schema import Schema\n"
        "schema = Schema.load(sys.argv[1])\n"
        "print(schema.string('日本\\0'), schema.word('phone'), schema.column('price', 'string'))\n"
        "print(schema.string('new here'), schema.column('more', 'number'))\n"
        "schema.learn(2, 0, 99); schema.save(sys.argv[1])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "schema.json")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["3", "1", "3", "4", "5"]
    schema.extend(Schema.load(tmp_path / "schema.json"))
    assert schema.strings["new here"] == 4
    assert schema.codes["number"]["more"] == 5
    assert schema.domain(2) == (0, 99)


def test_a_longer_schema_is_not_cut_by_a_shorter_one() -> None:
    schema, shorter = filled(), Schema()
    shorter.learn(X, -50, 0)
    schema.extend(shorter)
    assert sizes(schema) == sizes(filled())
    assert schema.domain(X) == (-50, 5)


@pytest.mark.parametrize("part", ["columns", "strings", "words"])
def test_schemas_that_disagree_are_not_joined(part) -> None:
    schema, other = Schema(), Schema()
    for number, each in enumerate((schema, other)):
        if part == "columns":
            each.column("price", ("number", "string")[number])
        else:
            (each.string if part == "strings" else each.word)(f"w{number}")
    before = schema.to_json()
    with pytest.raises(SchemaError, match=part):
        schema.extend(other)
    assert schema.to_json() == before


GOOD: dict[str, Any] = filled().to_json()


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        [],
        "x",
        {**GOOD, "nearcast_schema": 2},
        {k: v for k, v in GOOD.items() if k != "words"},
        {**GOOD, "columns": [["a"]]},
        {**GOOD, "columns": [["a", "decimal"]]},
        {**GOOD, "columns": [[5, "number"]]},
        {**GOOD, "columns": [["a", "number"], ["a", "number"]]},
        {**GOOD, "columns": 5},
        {**GOOD, "strings": ["a", "a"]},
        {**GOOD, "strings": "abc"},
        {**GOOD, "strings": [5]},
        {**GOOD, "words": [None]},
        {**GOOD, "domains": [[1]]},
        {**GOOD, "domains": [["a", "b"]]},
        {**GOOD, "domains": [None] * 50 + [[1, 2]]},
    ],
)
def test_damaged_schemas_are_refused(tmp_path, damaged) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(damaged), encoding="utf-8")
    with pytest.raises(SchemaError):
        Schema.load(path)


def test_files_that_are_no_schema(tmp_path) -> None:
    path = tmp_path / "schema.json"
    with pytest.raises(SchemaError, match=r"schema\.json"):
        Schema.load(path)
    for content in (b"", b"{", b"\xff\xfe", json.dumps(GOOD).encode()[:-20]):
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=r"schema\.json"):
            Schema.load(path)


def test_matchers_share_a_schema(tmp_path) -> None:
    first = Matcher()
    first.add_subscriptions([Subscription(id="s", where="brand = 'A'", keywords={"sale"})])
    first.schema.save(tmp_path / "schema.json")
    second = Matcher(schema=Schema.load(tmp_path / "schema.json"))
    second.add_subscriptions([Subscription(id="s", where="brand = 'B'", keywords={"sale"})])
    first.schema.extend(second.schema)
    assert first.schema == second.schema
    for matcher, brand in ((first, "A"), (second, "B")):
        for other in "ABC":
            event = Event(id="e", attributes={"brand": other}, keywords={"sale"})
            assert matcher.match_event(event) == (["s"] if other == brand else [])


# --- growth -----------------------------------------------------------------------------------


def test_what_only_asks_enters_nothing() -> None:
    matcher = Matcher()
    matcher.add_subscriptions([Subscription(id="s", where="price < 3", keywords={"sale"})])
    matcher.add_events([Event(id="e", attributes={"price": 2, "brand": "A"}, keywords={"sale"})])
    before = matcher.schema.to_json()
    stranger = Event(
        id="x", attributes={"price": 99, "colour": "red", "brand": "B"}, keywords={"new"}
    )
    assert matcher.match_event(stranger) == []
    assert matcher.match_events([stranger]).num_rows == 0
    table = pa.table({"id": ["x"], "attributes": [{"colour": "red"}], "keywords": [["new"]]})
    assert matcher.match_events(table).num_rows == 0
    matcher.explain("s", stranger)
    for where in ("colour = 'red'", "brand = 'B'", "size < 3", "fresh = TRUE", "price > 1000"):
        assert matcher.match_subscription(Subscription(id="q", where=where)) == []
    assert matcher.match_subscription(Subscription(id="q", keywords={"other"})) == []
    far = Subscription(id="q", where="price < 3 OR colour = 'red'", region=Circle(50, 50, 5))
    assert matcher.match_subscription(far) == []
    either = Subscription(id="q", where="price < 3 OR colour = 'red'")
    assert matcher.match_subscription(either) == ["e"]
    assert matcher.schema.to_json() == before


def test_refused_batches_leave_nothing_in_the_schema() -> None:
    matcher = Matcher(max_bytes=200_000)
    matcher.add_subscriptions([Subscription(id="s", where="price < 3")])
    before, bytes_before = matcher.schema.to_json(), matcher.schema.memory_bytes()
    fresh = Subscription(
        id="f", where="colour = 'red' AND size < 7", keywords={"new"}, region=Circle(9, 9, 1)
    )
    interval = {"attribute": "height", "low": -500.0, "high": 500.0}
    with pytest.raises(BatchError):
        matcher.add_subscriptions([fresh, Subscription(id="s")])
    with pytest.raises(BatchError):
        matcher.add_subscriptions(pa.table({"id": ["f", "s"], "intervals": [[interval]] * 2}))
    with pytest.raises(BatchError):
        matcher.add_subscriptions(
            pa.table({"id": ["f", "g"], "intervals": [[interval]] * 2, "where": [None, "a <"]})
        )
    event = Event(id="e", attributes={"weight": 1, "owner": "ann"}, keywords={"w"})
    with pytest.raises(BatchError):
        matcher.add_events([event, event])
    with pytest.raises(CapacityError):
        matcher.add_events([Event(id=f"e{k}", attributes={f"a{k}": k}) for k in range(1000)])
    assert matcher.schema.to_json() == before
    assert matcher.schema.memory_bytes() == bytes_before
    matcher.add_subscriptions([fresh])
    assert "colour" in matcher.schema.codes["string"]


def test_freed_codes_are_given_to_the_next() -> None:
    texts = Texts()
    assert [texts.code(text) for text in "abcde"] == [0, 1, 2, 3, 4]
    texts.keep(np.array([True, False, True, False, False]))
    assert texts.listed() == ["a", None, "c"]
    assert (texts.codes, texts.characters, texts.free) == ({"a": 0, "c": 2}, 2, 1)
    mark = texts.mark()
    assert [texts.code(text) for text in ("f", "g", "a")] == [1, 3, 0]
    texts.take_back(mark)
    assert texts.listed() == ["a", None, "c"]
    assert (texts.codes, texts.characters, texts.free) == ({"a": 0, "c": 2}, 2, 1)
    assert [texts.code(text) for text in ("h", "i")] == [1, 3]
    assert [texts.text(code) for code in range(4)] == ["a", "h", "c", "i"]
    texts.keep(np.zeros(4, bool))
    assert (texts.listed(), texts.characters) == ([], 0)


def test_a_schema_with_free_codes_is_saved_and_extended(tmp_path) -> None:
    schema = filled()
    schema.keep(np.array([True, False, False, True]), np.array([False, True]))
    schema.save(tmp_path / "schema.json")
    twin = Schema.load(tmp_path / "schema.json")
    assert twin == schema == pickle.loads(pickle.dumps(schema))
    assert twin.memory_bytes() == schema.memory_bytes()
    assert (twin.string("new"), twin.string("newer"), twin.word("w")) == (1, 2, 0)
    before = schema.to_json()
    other = Schema.load(tmp_path / "schema.json")
    assert other.string("other") == 1
    schema.extend(twin)
    assert schema == twin
    with pytest.raises(SchemaError, match=r"strings\[1\] is 'other' here and 'new' there"):
        other.extend(twin)
    assert Schema.from_json(before).string("x") == 1
    other = Schema.from_json(before)
    assert other.string("newer") == 1
    theirs = Schema.from_json({**before, "strings": ["b", None, "newer", "日本\0"]})
    with pytest.raises(SchemaError, match=r"strings\[2\] is strings\[1\] here and 'newer' there"):
        other.extend(theirs)


@pytest.mark.parametrize("bulk", [False, True])
def test_strings_and_words_that_nobody_uses_any_more_are_freed(bulk, monkeypatch) -> None:
    monkeypatch.setattr(usage, "_FEW", 64)
    matcher = Matcher()
    matcher.add_subscriptions([Subscription(id="s", where="owner = 'ann'", keywords={"sale"})])
    for day in range(300):
        row = {"id": f"e{day}", "attributes": {"owner": f"o{day}"}, "keywords": [f"w{day}"]}
        events = [Event(f"e{day}", {"owner": f"o{day}"}, {f"w{day}"})]
        matcher.add_events(pa.Table.from_pylist([row]) if bulk else events)
        wanted = Subscription(id=f"s{day}", where=f"owner = 'o{day}'", keywords={f"w{day}"})
        assert matcher.match_subscription(wanted) == [f"e{day}"]
        matcher.add_subscriptions([wanted])
        assert matcher.match_event(events[0]) == [f"s{day}"]
        if day >= 5:
            matcher.remove_event(f"e{day - 5}")
            matcher.remove_subscription(f"s{day - 5}")
        assert matcher.schema.texts <= 64 + 2 * 24
    assert matcher.match_event(Event("e", {"owner": "ann"}, {"sale"})) == ["s"]
    assert matcher.match_subscription(Subscription("q", where="owner = 'o298'")) == ["e298"]
    assert "o2" not in matcher.schema.strings
    matcher.check_invariants()


def test_a_schema_that_was_given_is_not_touched(monkeypatch) -> None:
    monkeypatch.setattr(usage, "allowed", lambda *_: -1)
    first = Matcher()
    first.add_subscriptions([Subscription(id="s", where="a = 'x'")])
    first.add_events([Event("e", {"a": "y"})])
    first.remove_event("e")
    second = Matcher(schema=first.schema)
    second.add_events([Event("e", {"a": "z"})])
    second.remove_event("e")
    first.add_events([Event("f", {"a": "w"})])
    assert set(first.schema.strings) == {"x", "y", "z", "w"}


def test_a_matcher_that_was_saved_frees_what_it_does_not_use(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(usage, "allowed", lambda *_: -1)
    matcher = Matcher()
    matcher.add_events([Event("e", {"a": "x"}), Event("f", {"a": "y"})])
    matcher.remove_event("e")
    matcher.save(tmp_path)
    again = Matcher.load(tmp_path)
    again.add_events([Event("g", {"a": "z"})])
    assert again.schema.strings == {"y": 1, "z": 2}
    again.add_events([Event("h", {"a": "w"})])
    assert again.schema.strings == {"y": 1, "z": 2, "w": 0}
    assert again.match_subscription(Subscription("q", where="a = 'w'")) == ["h"]


def test_who_matches_meets_no_code_of_another_string(monkeypatch) -> None:
    """One thread renews strings and frees old ones all the time; others match theirs."""
    monkeypatch.setattr(usage, "allowed", lambda *_: -1)
    matcher = Matcher(threads=1)
    stays = [
        Subscription(id=f"s{i}", where=f"owner = 'o{i}'", keywords={f"w{i}"}) for i in range(9)
    ]
    matcher.add_subscriptions(stays)
    wrong: list[Any] = []
    stop = threading.Event()

    def match(i: int) -> None:
        events = [Event(f"e{k}", {"owner": f"o{k}"}, {f"w{k}", f"n{k}"}) for k in range(i, 40, 3)]
        while not stop.is_set():
            for k, event in zip(range(i, 40, 3), events, strict=True):
                found = [id for id in matcher.match_event(event) if id[0] == "s"]
                if found != ([f"s{k}"] if k < 9 else []):
                    wrong.append((k, found))

    readers = [threading.Thread(target=match, args=(i,)) for i in range(3)]
    for reader in readers:
        reader.start()
    for k in range(9, 600):
        where = f"owner = 'o{9 + k % 31}'" if k % 2 else f"owner = 'fresh{k}'"
        matcher.add_subscriptions([Subscription(id=f"t{k}", where=where, keywords={f"n{k % 40}"})])
        matcher.remove_subscription(f"t{k}")
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert matcher.schema.texts <= 20


def test_layouts_follow_the_columns() -> None:
    schema = Schema()
    schema.column("b", "number")
    schema.column("a", "number")

    def laid_out(values: list[float], names: tuple[str, ...], placed: bool):
        attr, pick = schema.layout(names, placed)
        return attr.tolist(), list(pick(values))

    assert laid_out([1, 2, 3], ("a", "b", "c"), False) == ([2, 3], [2, 1])
    assert laid_out([8, 9, 1, 2], ("a", "b"), True) == ([X, 1, 2, 3], [8, 9, 2, 1])
    assert laid_out([5], ("c",), False) == ([], [])
    assert laid_out([], (), False) == ([], [])
    refused = schema.attempt()
    refused.__enter__()
    schema.column("x", "number")
    assert laid_out([5], ("x",), False) == ([4], [5])
    refused.__exit__(KeyError)
    schema.column("c", "number")
    assert laid_out([1, 2, 3], ("a", "b", "c"), False) == ([2, 3, 4], [2, 1, 3])
    assert laid_out([5], ("x",), False) == ([], [])
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_codes_may_be_kept_until_some_are_forgotten() -> None:
    schema = Schema()
    here = Subscription(id="s", where="a < 1 AND b < 2", region=Box(0, 0, 1, 1))
    assert encode.plain_of(here, schema, "planar") is None
    refused = schema.attempt()
    refused.__enter__()
    for name in ("x", "b", "a"):
        schema.column(name, "number")
    plain = encode.plain_of(here, schema, "planar")
    assert plain is not None
    assert plain[0][0].tolist() == [4, 3]
    refused.__exit__(KeyError)
    assert encode.plain_of(here, schema, "planar") is None
    for name in ("a", "b"):
        schema.column(name, "number")
    plain = encode.plain_of(here, schema, "planar")
    assert plain is not None
    assert plain[0][0].tolist() == [2, 3]
    assert pickle.loads(pickle.dumps(schema)).era is not schema.era


def test_few_layouts_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(schema_module, "_MOST_LAYOUTS", 3)
    monkeypatch.setattr(schema_module, "_MOST_NAMES", 5)
    schema = Schema()
    for k in range(10):
        schema.layout((f"n{k}",), False)
        schema.layout(tuple(f"m{j}" for j in range(k)), True)
        assert len(schema._layouts) <= 3
        assert all(len(names) <= 5 for names, _ in schema._layouts)


def test_intervals_stand_by_the_share_of_the_domain_they_cover() -> None:
    assert arrange.share(0.0, 1.0, math.inf, -math.inf) == 1  # nothing learnt yet
    assert arrange.share(0.0, 2.0, -1.0, 3.0) == 0.5
    assert arrange.share(5.0, 9.0, -1.0, 3.0) == 0
    assert arrange.share(1.0, 1.0, -1.0, 3.0) < 0.1
    schema = Schema()
    matcher = Matcher(space="planar", schema=schema)
    wide = "wide BETWEEN 0 AND 9 AND narrow BETWEEN 0 AND 2 AND flag = TRUE AND name = 'x'"
    matcher.add_subscriptions(
        [
            Subscription(id="domains", where="wide BETWEEN 0 AND 10 AND narrow BETWEEN 0 AND 10"),
            Subscription(id="s", where=wide, region=Box(0, 0, 1, 1)),
        ]
    )
    store = matcher._standing.store
    start, count = int(store.table.start[1]), int(store.table.count[1])
    columns = [schema.columns[c][0] for c in store.table.attr[start : start + count].tolist()]
    assert columns == ["@x", "@y", "name", "narrow", "flag", "wide"]
