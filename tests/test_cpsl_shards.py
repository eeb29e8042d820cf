"""Composites in shards: together they detect what one detector does, from fewer events."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.shards import Dealt, Shard, deal, shard_of
from nearcast.datasets.grus import logistics
from nearcast.errors import BatchError
from nearcast.model.events import Event
from tests import cpsl_cases as cases
from tests.test_cpsl_state import _relaxed


def told(detections: Any) -> list[Any]:
    return sorted((one.composite_id, one.parts, one.start, one.end) for one in detections)


def sharded(dealt: Dealt, events: list[Event], until: int, cut: int = 0) -> tuple[list[Any], int]:
    """What the shards find, each of them saved and taken up elsewhere once; and the messages."""
    found_rows, ids = dealt.matcher.match_numbers(events)
    at = found_rows.astype(np.int64)
    shards, rows, numbers = dealt.whose(at, np.array([int(id) for id in ids], np.int64))
    found, messages = [], 0
    for number, blob in enumerate(dealt.shards):
        shard, other = Shard.open(blob), Shard.open(blob)
        shard.begin(min(event.end or 0 for event in events))
        mine = shards == number
        wanted: dict[int, list[int]] = {}
        for row, primitive in zip(rows[mine].tolist(), numbers[mine].tolist(), strict=True):
            wanted.setdefault(row, []).append(primitive)
        messages += len(wanted)
        given = [events[row] for row in wanted]
        each = list(wanted.values())
        first = sum(row < cut for row in wanted)
        found += shard.feed_found(given[:first], each[:first])
        other.load_waiting(shard.save_waiting())
        found += other.feed_found(given[first:], each[first:])
        found += other.advance(until)
    return found, messages


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed, max_examples=30)
@given(
    patterns=st.lists(
        st.one_of(cases.patterns(), cases.variable_patterns(), cases.shared_patterns()),
        min_size=1,
        max_size=4,
    ),
    history=cases.histories(),
    count=st.integers(1, 3),
    cut=st.integers(0, 12),
)
def test_shards_find_together_what_one_detector_does(
    patterns: list[ast.Pattern], history: list[Event], mode: Any, count: int, cut: int
) -> None:
    whole = Detector("planar")
    try:
        composites = [
            Composite(f"c{i}", text=pattern, consume=mode, expires=[None, 3, 9, 15][i])
            for i, pattern in enumerate(patterns)
        ]
        for composite in composites:
            whole.add(composite)
    except ValueError:
        assume(False)
    expected = whole.feed(history) + whole.advance(60)
    found, _ = sharded(deal(composites, count, "planar"), history, 60, cut)
    assert told(found) == told(expected)


def test_a_workload_in_shards_needs_few_messages() -> None:
    source = logistics(300, 1200)
    composites = [Composite(str(i), text=text) for i, text in enumerate(source.texts)]
    whole = Detector("planar", longest=0)
    for composite in composites:
        whole.add(composite)
    dealt = deal(composites, 4, "planar", longest=0)
    events = list(source.events)
    end = events[-1].end
    assert end is not None
    found, messages = sharded(dealt, events, end, 700)
    assert told(found) == told(whole.feed(events))
    assert len(found) == len(source.runs)
    assert messages <= 2 * len(events) < 4 * len(events)


def test_residual_tests_are_not_forgotten() -> None:
    """A prefix that the matcher leaves open, beside an equality that finds the primitive."""
    texts = [
        'ARITH: k = 1, STRING: name <* "abcd"',
        'ARITH: k = 1, STRING: name *= "bc"',
        "ARITH: k = 1, ARITH: v = &x, ARITH: v < &x + 1",
        'STRING: name =* "xxaxx"',
    ]
    composites = [Composite(f"c{i}", text=text) for i, text in enumerate(texts)]
    whole = Detector("planar")
    for composite in composites:
        whole.add(composite)
    names = ["ab", "abc", "b", "a", "abcde", "xxa", ""]
    events = [
        Event(f"e{i}", {"k": 1 + i % 2, "name": name, "v": i}, end=i)
        for i, name in enumerate(names * 2)
    ]
    expected = told(whole.feed(events))
    assert {found[0] for found in expected} == {"c0", "c1", "c2", "c3"}
    assert told(sharded(deal(composites, 2, "planar"), events, 60)[0]) == expected


_NUMBERS = """
import pickle
from nearcast.cpsl.shards import deal
from tests.patterned import composites
for shard in deal(composites(), 2, "planar").shards:
    for number, leaf in pickle.loads(shard)[2].items():
        print(number, leaf.primitive())
"""


def test_primitives_have_the_same_numbers_in_every_process() -> None:
    """Events that wait in a checkpoint carry them into the next start of the job."""
    said = [
        subprocess.run(
            [sys.executable, "-c", _NUMBERS], env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True,
        ).stdout
        for seed in "13"
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(said[0].splitlines()) > 10


def test_what_cannot_be_dealt_is_named_by_its_row() -> None:
    good = Composite("a", text="Q(2)(ARITH: k = 1)")
    with pytest.raises(BatchError, match="row 1"):
        deal([good, good], 2)
    with pytest.raises(BatchError, match="row 1"):
        deal([good, Composite("b", text="@((0,200),(1,200),(1,201))(ARITH: k = 1)")], 2)
    with pytest.raises(BatchError, match="give a Composite"):
        deal(["c"], 2)  # type: ignore[list-item]


def test_a_shard_follows_from_the_id_alone() -> None:
    assert [shard_of(str(i), 4) for i in range(6)] == [1, 3, 1, 3, 0, 2]
    assert {shard_of(f"composite {i}", 7) for i in range(100)} == set(range(7))
