"""Profiles and tunings: what Spark counts is what MO-Tree would measure, and the JSON is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Circle, Event, Matcher, Point, Subscription
from nearcast.datasets import workload
from nearcast.errors import ValidationError
from nearcast.matcher.tuning import read_tuning

MO = workload("mo", seed=3, m=8, k=6)


@pytest.fixture(scope="module")
def sides(spark) -> tuple[Any, Any, pa.Table, pa.Table]:
    subscriptions, events = MO.subscription_table(1500), MO.event_table(700)
    frames = [spark.createDataFrame(table).repartition(3) for table in (events, subscriptions)]
    return frames[0], frames[1], events, subscriptions


@pytest.fixture(scope="module")
def tuning(sides) -> dict[str, Any]:
    from nearcast.spark.tune import tune

    return tune(sides[0], sides[1], "planar", cells=16)


def test_the_measures_are_those_of_mo_tree(tuning, sides):
    matcher = Matcher("mo-tree", "planar")
    matcher.add_subscriptions(sides[3])
    names = {i: name for i, (name, _) in enumerate(matcher.schema.columns)}
    theirs = {names[a.column]: a for a in matcher.index.attributes}
    mine = {each["name"]: each for each in tuning["attributes"]}
    assert set(theirs) <= set(mine)
    for name, measured in theirs.items():
        assert mine[name]["popularity"] == pytest.approx(measured.popularity, abs=0.03)
        assert mine[name]["selectivity"] == pytest.approx(measured.selectivity, abs=0.03)
        assert mine[name]["uniformity"] == pytest.approx(measured.uniformity, abs=0.08)
    chosen = [a["name"] for a in tuning["options"]["mo-tree"]["attributes"]]
    scores = [each["score"] for each in tuning["attributes"]]
    assert scores == sorted(scores, reverse=True)
    assert chosen == [each["name"] for each in tuning["attributes"]][: len(chosen)]


def test_counts_and_histograms_add_up(tuning):
    work = tuning["workload"]
    assert (work["subscriptions"], work["events"], work["clauses"]) == (1500, 700, 1500)
    for each in tuning["attributes"]:
        asked = round(each["popularity"] * 1500)
        assert sum(each["centres"]) == sum(each["widths"]) == asked
        assert sum(each["values"]) == round(each["event_share"] * 700)
        assert 0 < each["selectivity"] <= 1
        assert 0 < each["uniformity"] <= 1.0001
    place = next(each for each in tuning["attributes"] if each["name"] == "@x")
    assert place["popularity"] == place["event_share"] == 1


@pytest.mark.parametrize("index", ["auto", "mo-tree", "scan"])
def test_a_matcher_takes_it_and_answers_the_same(tuning, sides, tmp_path: Path, index):
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(tuning))
    plain, tuned = Matcher("scan", "planar"), Matcher(index, "planar", tuning=path)
    for matcher in (plain, tuned):
        matcher.add_subscriptions(sides[3])
    answers = [m.match_events(sides[2]).to_pylist() for m in (plain, tuned)]
    one, other = (sorted((r["event_id"], r["subscription_id"]) for r in a) for a in answers)
    assert one == other
    assert one
    if index == "mo-tree":
        tuned.index.check_invariants()
        names = [tuned.schema.columns[a.column][0] for a in tuned.index.attributes]
        assert names == [a["name"] for a in tuning["options"]["mo-tree"]["attributes"]]
    assert Matcher("mo-tree", "planar", tuning=tuning, height=2).index.attributes == (
        tuned.index.attributes[:2] if index == "mo-tree" else
        Matcher("mo-tree", "planar", tuning=tuning).index.attributes[:2]
    )  # fmt: skip


def test_text_filters_words_and_bad_ones(spark):
    from nearcast.spark.tune import tune

    rows = [(f"s{i}", "price < 5 AND brand = 'X'" if i % 2 else "price >= 3 OR open = TRUE",
             8.5, 47.4, 500.0) for i in range(40)]  # fmt: skip
    rows.append(("bad", "price <", 8.5, 47.4, 500.0))
    shape = "id string, where string, lon double, lat double, radius_m double"
    events = [(f"e{i}", 8.5, 47.4 + i / 1000, (float(i % 9), "X", True)) for i in range(30)]
    kind = "struct<price: double, brand: string, open: boolean>"
    happened = spark.createDataFrame(
        events, f"id string, lon double, lat double, attributes {kind}"
    )
    found = tune(happened, spark.createDataFrame(rows, shape))
    assert found["workload"]["rejects"] == 1
    assert found["workload"]["clauses"] == 60
    types = {each["name"]: each["type"] for each in found["attributes"]}
    assert types == {
        "@x": "number", "@y": "number", "price": "number", "brand": "string", "open": "bool",
    }  # fmt: skip
    assert found["index"] == "scan"
    assert read_tuning(found).index == "scan"


def test_other_columns_do_not_disturb_and_missing_ones_are_named(spark, sides):
    from nearcast.spark.profile import profile

    events, subscriptions = (
        side.selectExpr("1 as first", "*", "'x' as note") for side in sides[:2]
    )
    found = profile(events, subscriptions, "planar")
    assert (found.rejects, found.clauses, found.sampled_events) == (0, 1500, 700)
    assert found.places.shape == (700, 2)
    assert found.boxes.shape == (1500, 4)
    with pytest.raises(ValidationError, match=r"subscriptions\.id"):
        profile(sides[0], sides[1].drop("id"), "planar")


def test_broad_clauses_ask_for_a_structure_that_bears_them():
    from nearcast.spark.profile import Profile
    from nearcast.spark.tune import tuning_of

    def chosen(**changed: Any) -> str:
        nowhere = {"places": np.empty((0, 2)), "boxes": np.empty((0, 4))}
        counts = {"subscriptions": 100_000, "events": 10, "clauses": 1000, "rejects": 0}
        sampled = {"sampled_subscriptions": 1000, "sampled_events": 10}
        facts: dict[str, Any] = {**nowhere, **counts, **sampled, "attributes": ()}
        facts["broad_share"] = 0.1
        return str(tuning_of(Profile(**(facts | changed)))["index"])

    assert chosen() == "pivot"
    assert chosen(broad_share=0.95) == "di-tree"
    assert chosen(subscriptions=100, clauses=100, sampled_subscriptions=100) == "scan"


def test_nothing_at_all(spark):
    from nearcast.spark.tune import tune

    nobody = spark.createDataFrame([], "id string, where string")
    nothing = spark.createDataFrame([], "id string, lon double, lat double")
    found = tune(nothing, nobody)
    assert (found["index"], found["attributes"], found["partitioning"]) == ("scan", [], {})
    assert Matcher(tuning=found).match_event(Event(id="e")) == []


class TestCells:
    def test_they_cover_the_plane_once_and_balance(self):
        from nearcast.spark.tune import kd_cells

        rng = np.random.default_rng(1)
        places = np.concatenate([rng.normal(0, 0.01, (900, 2)), rng.random((100, 2)) * 50])
        cells = kd_cells(places, 16)
        assert len(cells) == 16
        assert sorted(row for _, rows in cells for row in rows) == list(range(1000))
        assert max(len(rows) for _, rows in cells) < 2 * 1000 / 16
        for box, rows in cells:
            inside = places[rows]
            assert (inside >= box[:2]).all()
            assert (inside < box[2:]).all()
        for place in ((-1e9, 3.0), (0.0, 0.0), (49.0, 1e9)):
            held = [b for b, _ in cells if b[0] <= place[0] < b[2] and b[1] <= place[1] < b[3]]
            assert len(held) == 1

    def test_one_place_stays_whole(self):
        from nearcast.spark.tune import kd_cells

        assert len(kd_cells(np.zeros((50, 2)), 8)) == 1
        skewed = np.concatenate([np.zeros((90, 2)), np.ones((10, 2))])
        assert sorted(len(rows) for _, rows in kd_cells(skewed, 8)) == [10, 90]


@pytest.mark.parametrize(("asked", "got"), [("auto", "mo-tree"), ("scan", "scan")])
def test_who_names_an_index_gets_it(asked: str, got: str):
    assert Matcher(asked, tuning={"nearcast_tuning": 1, "index": "mo-tree"}).entry.name == got


class TestBadTunings:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, "pipeline tune"),
            ({"nearcast_tuning": 99, "index": "scan"}, "version 1"),
            ({"nearcast_tuning": 1}, r"tuning\.index"),
            ({"nearcast_tuning": 1, "index": "pviot"}, "did you mean 'pivot'"),
            ({"nearcast_tuning": 1, "index": "scan", "options": [1]}, r"tuning\.options"),
            (
                {"nearcast_tuning": 1, "index": "mo-tree",
                 "options": {"mo-tree": {"attributes": [{"name": "a", "low": 2, "high": 1}]}}},
                "low ≤ high",
            ),
        ],
    )  # fmt: skip
    def test_are_refused_with_the_field(self, given, message):
        with pytest.raises(ValidationError, match=message):
            Matcher(tuning=given)

    def test_files(self, tmp_path: Path):
        with pytest.raises(ValidationError, match="cannot be read"):
            Matcher(tuning=tmp_path / "none.json")
        (tmp_path / "t.json").write_text("{")
        with pytest.raises(ValidationError, match="cannot be read"):
            Matcher(tuning=str(tmp_path / "t.json"))

    def test_one_that_does_not_fit_costs_no_answers(self):
        strange = {"nearcast_tuning": 1, "index": "mo-tree", "options": {
            "mo-tree": {"attributes": [{"name": "height", "low": 5, "high": 6}]}}}  # fmt: skip
        matcher = Matcher(tuning=strange)
        near = Circle(8.5, 47.4, radius_m=100)
        matcher.add_subscriptions(
            [Subscription(id=f"s{i}", where=f"price < {i}", region=near) for i in range(100)]
        )
        here = Event(id="e", attributes={"price": 97.5}, location=Point(8.5, 47.4))
        assert matcher.match_event(here) == ["s98", "s99"]
