"""The table of ids against a dict."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import BatchError, DuplicateIdError, UnknownIdError
from nearcast.kernels import strings
from nearcast.matcher.arrow_columns import string_bytes
from nearcast.matcher.ids import IdTable

ODD = [
    "",
    "a",
    "ab",
    "b",
    "\0",
    "a\0",
    "a\0b",
    "é",
    "日本",
    "🙂",
    " ",
    "\n",
    "a" * 15,
    "a" * 16,
    "b" * 15 + "\0",
    "a" * 300,
    "\x7f",
    "�",
]


def table() -> IdTable:
    return IdTable("thing", "take another")


def add_many(ids: IdTable, texts: list[str]) -> list[int]:
    slots: list[int] = ids.add_many(*string_bytes(pa.array(texts, pa.string()))).tolist()
    return slots


def agree(ids: IdTable, model: dict[str, int]) -> None:
    ids.check_invariants()
    assert len(ids) == len(model)
    assert all(ids.get(text) == slot for text, slot in model.items())
    assert len(set(model.values())) == len(model)
    slots = np.array(list(model.values()), np.int32)
    assert ids.ids_of(slots) == list(model)
    assert ids.arrow(slots).to_pylist() == list(model)
    assert sorted(ids.free_slots()) == sorted(set(range(ids.slots)) - set(model.values()))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(ODD)),
        st.tuples(st.just("remove"), st.sampled_from(ODD)),
        st.tuples(st.just("many"), st.lists(st.sampled_from(ODD), max_size=6)),
        st.tuples(st.just("flood"), st.integers(1, 90)),
        st.tuples(st.just("drain"), st.integers(1, 90)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_table_is_a_dict(steps) -> None:
    check_steps(steps)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_table_whose_ids_came_in_order_is_a_dict(steps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearcast.matcher.ids._TRIED", 0)
        check_steps([("many", sorted(ODD)), *steps])
        check_steps([("flood", 70), *steps])
        check_steps(steps)


def check_steps(steps) -> None:
    ids, model, count = table(), dict[str, int](), 0
    for act, what in steps:
        if act == "add" and what in model:
            with pytest.raises(DuplicateIdError, match="thing"):
                ids.add(what)
        elif act == "add":
            model[what] = ids.add(what)
        elif act == "remove" and what not in model:
            with pytest.raises(UnknownIdError, match="thing"):
                ids.find(what)
        elif act == "remove":
            ids.remove(model.pop(what))
        elif act == "many" and (len(set(what)) < len(what) or model.keys() & set(what)):
            first = next(i for i, t in enumerate(what) if t in model or t in what[:i])
            with pytest.raises(BatchError) as caught:
                add_many(ids, what)
            assert caught.value.row == first
        elif act == "many":
            model.update(zip(what, add_many(ids, what), strict=True))
        elif act == "flood":
            fresh = [f"id {k}" for k in range(count, count + what)]
            model.update(zip(fresh, add_many(ids, fresh), strict=True))
            count += what
        else:
            for text in list(model)[:what]:
                ids.remove(model.pop(text))
    agree(ids, model)


def test_a_batch_larger_than_what_is_free_makes_the_table_grow() -> None:
    ids = table()
    model = {f"a{k}": ids.add(f"a{k}") for k in range(30)}
    for k in range(0, 30, 2):
        ids.remove(model.pop(f"a{k}"))
    fresh = [f"b{k}" for k in range(200)]
    model.update(zip(fresh, add_many(ids, fresh), strict=True))
    agree(ids, model)
    assert ids.get("a0") == -1
    assert ids.add("a0") >= 0


def test_a_refused_batch_leaves_no_trace() -> None:
    ids = table()
    model = {text: ids.add(text) for text in ("a", "b", "c")}
    ids.remove(model.pop("b"))
    slots = ids.slots
    for batch in (["x", "y", "c"], ["x", "x"], [f"x{k}" for k in range(100)] + ["a"]):
        with pytest.raises(BatchError) as caught:
            add_many(ids, batch)
        assert caught.value.row == len(batch) - 1
        agree(ids, model)
        assert ids.slots == slots
        assert ids.get("x") == -1
    assert add_many(ids, []) == []


def test_space_comes_back() -> None:
    ids = table()
    for turn in range(40):
        slots = add_many(ids, [f"{turn} " + "x" * 200 + str(k) for k in range(20)])
        for slot in slots:
            ids.remove(slot)
    assert ids.slots == 20
    assert len(ids) == 0
    assert ids.memory_bytes() < 40_000
    ids.check_invariants()


@pytest.mark.parametrize("wrong", [5, None, b"a", "\ud800", ["a"]])
def test_what_cannot_be_an_id_is_nowhere(wrong) -> None:
    ids = table()
    ids.add("a")
    assert ids.get(wrong) == -1
    with pytest.raises(UnknownIdError):
        ids.find(wrong)


def test_arrow_slices_keep_their_offsets() -> None:
    ids = table()
    array = pa.array(["no", "one", "two", "three", "no"]).slice(1, 3)
    slots = ids.add_many(*string_bytes(array))
    assert ids.ids_of(slots) == ["one", "two", "three"]
    assert ids.arrow(np.empty(0, np.int32)).to_pylist() == []
    assert ids.ids_of(np.empty(0, np.int32)) == []


def test_very_many_ids_come_in_pieces(monkeypatch):
    monkeypatch.setattr("nearcast.matcher.ids._PIECE", 7)
    ids = IdTable("subscription", "taken")
    names = [f"s{i}" * (i % 4) + str(i) for i in range(50)]
    slots = np.array([ids.add(name) for name in names], np.int32)
    found = ids.arrow(slots, threads=2)
    assert found.num_chunks == 8
    assert found.to_pylist() == names
    monkeypatch.setattr(IdTable, "_fits", lambda self, slots: slots.size < 3)
    assert ids.arrow(slots).to_pylist() == names


@given(st.lists(st.text(alphabet="abz019é", min_size=1, max_size=20), max_size=150, unique=True))
def test_ids_come_sorted_whatever_their_length(names):
    table = IdTable("subscription", "use another")
    slots = np.array([table.add(name) for name in names], np.int32)
    assert table.sorted_ids(slots) == sorted(names)
    assert table.sorted_ids(slots[::-1].copy()) == sorted(names)


# --- ids that come in order ----------------------------------------------------------------------

TEXTS = st.text(alphabet="a\0b\xff", max_size=3) | st.sampled_from(ODD)
TAILED = st.builds(lambda a, b: a + "z" * b, TEXTS, st.sampled_from((0, 0, 13, 16, 30)))


def ascends(texts: list[bytes]) -> bool:
    pairs = list(pairwise(texts))
    return all(a < b for a, b in pairs) or all((len(a), a) < (len(b), b) for a, b in pairs)


@settings(max_examples=300, deadline=None)
@given(st.lists(TAILED, min_size=1, max_size=12), st.integers(0, 3))
def test_ids_that_ascend_are_told_and_others_too(texts: list[str], order: int) -> None:
    if order == 1:
        texts = sorted(texts, key=str.encode)
    elif order == 2:
        texts = sorted(set(texts), key=lambda text: (len(text.encode()), text.encode()))
    elif order == 3:
        texts = sorted(set(texts), key=str.encode)
    offsets, data = string_bytes(pa.array(texts, pa.string()))
    cells = np.zeros((len(texts), 2), np.uint64)
    blob = np.zeros(data.size, np.uint8)
    done, _ = strings.put_ascending(cells, blob, 0, offsets, data)
    every = [text.encode() for text in texts]
    longest = max(n for n in range(1, len(texts) + 1) if ascends(every[:n]))
    assert done == longest
    again, found = strings.gather(cells, blob, np.arange(done))
    assert [bytes(found[a:b]) for a, b in pairwise(again)] == every[:done]


def is_hashed(ids: IdTable) -> bool:
    return ids._table is not None


@pytest.mark.parametrize("name", ["s{:08}", "s{}", "a long name for a small thing {:012}"])
def test_ids_in_order_are_not_hashed_before_somebody_looks(name: str) -> None:
    names = [name.format(k) for k in range(3000)]
    ids = table()
    assert add_many(ids, names) == list(range(3000))
    assert not is_hashed(ids)
    weight = ids.memory_bytes()
    assert ids.copy().ids_of(np.arange(3000, dtype=np.int32)) == names
    assert not is_hashed(ids)
    assert ids.get(names[7]) == 7
    assert is_hashed(ids)
    assert ids.memory_bytes() == weight
    with pytest.raises(DuplicateIdError):
        ids.add(names[2999])
    ids.check_invariants()


def test_an_id_twice_among_many_in_order() -> None:
    names = [f"s{k}" for k in range(3000)]
    ids = table()
    with pytest.raises(BatchError) as caught:
        add_many(ids, [*names, "s1234"])
    assert caught.value.row == 3000
    assert len(ids) == 0
    assert ids.get("s1234") == -1
    add_many(ids, names)
    with pytest.raises(BatchError) as caught:
        add_many(ids, ["t", "s1234"])
    assert caught.value.row == 1
    agree(ids, {name: k for k, name in enumerate(names)})


def test_what_is_saved_is_hashed() -> None:
    ids = table()
    add_many(ids, [f"s{k}" for k in range(3000)])
    loaded = pickle.loads(pickle.dumps(ids))
    assert is_hashed(loaded)
    assert loaded.get("s2999") == 2999
