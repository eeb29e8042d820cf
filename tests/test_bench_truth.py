"""The truth that the bench judges by, worked out by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nearcast.bench.experiments.spatio_textual import GROUPS, MADE, Scene
from nearcast.bench.textual_truth import event_boxes, true_textual_matches
from nearcast.bench.truth import sure_events, true_matches
from nearcast.datasets import workload
from nearcast.errors import BenchError

INTERVALS = pa.list_(
    pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
)


def subscriptions(*rows: tuple[str, list[tuple[str, float, float]]]) -> pa.Table:
    names = ("attribute", "low", "high")
    intervals = [[dict(zip(names, each, strict=True)) for each in many] for _, many in rows]
    return pa.table({"id": [id for id, _ in rows], "intervals": pa.array(intervals, INTERVALS)})


def events(**attributes: list[float | None]) -> pa.Table:
    count = len(next(iter(attributes.values())))
    columns = {name: pa.array(values, pa.float64()) for name, values in attributes.items()}
    struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.table({"id": [f"e{i}" for i in range(count)], "attributes": struct})


def pairs(table: pa.Table) -> list[tuple[str, str]]:
    columns = (table["event_id"].to_pylist(), table["subscription_id"].to_pylist())
    return list(zip(*columns, strict=True))


def test_closed_intervals_missing_attributes_and_no_predicates():
    wanted = subscriptions(
        ("both", [("a", 0.0, 1.0), ("b", 2.0, 3.0)]),
        ("all", []),
        ("unknown", [("c", 0.0, 1.0)]),
        ("b", [("b", float("-inf"), 2.0)]),
    )
    given = events(a=[1.0, 1.0, None, 1.1], b=[2.0, None, 2.5, 2.0])
    assert pairs(true_matches(wanted, given)) == [
        *[("e0", "both"), ("e0", "all"), ("e0", "b")],
        ("e1", "all"),
        ("e2", "all"),
        *[("e3", "all"), ("e3", "b")],
    ]


def test_boxes_are_closed():
    wanted = subscriptions(("in", []), ("out", []))
    for side, values in {"xmin": [0, 5], "ymin": [0, 5], "xmax": [1, 6], "ymax": [1, 6]}.items():
        wanted = wanted.append_column(side, pa.array(values, pa.float64()))
    given = events(a=[0.0, 0.0]).append_column("lon", pa.array([1.0, 1.0]))
    given = given.append_column("lat", pa.array([0.0, 1.5]))
    assert pairs(true_matches(wanted, given)) == [("e0", "in")]


@pytest.mark.parametrize("name", ["di", "mo"])
def test_sure_events_are_wanted(name: str):
    source = workload(name, seed=3)
    wanted = source.subscription_table(300)
    bent = sure_events(wanted, source.event_table(20), seed=1)
    assert bent.schema == source.event_table(1).schema
    found = true_matches(wanted, bent)
    assert set(found["event_id"].to_pylist()) == set(bent["id"].to_pylist())


def test_no_events_no_pairs():
    assert true_matches(subscriptions(("all", [])), events(a=[1.0]).slice(1)).num_rows == 0


def test_what_is_not_known_is_refused():
    wanted = subscriptions(("all", []))
    with pytest.raises(BenchError, match="where"):
        true_matches(wanted.append_column("where", pa.array(["a = 1"])), events(a=[1.0]))


@pytest.mark.parametrize("group", GROUPS)
def test_words_and_places_one_pair_at_a_time(group):
    scene = Scene(MADE, 300, seed=3)
    messages = scene.messages(group, 40, side=0.3)
    given = pa.concat_tables([messages.events, messages.sure])
    subscriptions = scene.subscriptions.to_pylist()
    subscriptions[7]["keywords"] = []
    subscriptions[8].update(xmin=-180.0, xmax=180.0)
    wanted = pa.Table.from_pylist(subscriptions, schema=scene.subscriptions.schema)
    slow = [
        (event["id"], sub["id"])
        for event, (xmin, ymin, xmax, ymax) in zip(
            given.to_pylist(), event_boxes(given), strict=True
        )
        for sub in subscriptions
        if set(sub["keywords"]) <= set(event["keywords"])
        and sub["xmin"] <= xmax and xmin <= sub["xmax"]
        and sub["ymin"] <= ymax and ymin <= sub["ymax"]
    ]  # fmt: skip
    assert sorted(pairs(true_textual_matches(wanted, given))) == sorted(slow)
    assert len(slow) > 0


@pytest.mark.parametrize("group", GROUPS)
def test_no_two_messages_of_a_turn_are_alike(group):
    events = Scene(MADE, 100, seed=1).messages(group, 1000).events
    assert events.num_rows == 1000
    words = [frozenset(each) for each in events["keywords"].to_pylist()]
    places = [tuple(box) for box in event_boxes(events).tolist()]
    assert len(set(zip(words, places, strict=True))) == 1000
    assert len(set(places)) == 1000
