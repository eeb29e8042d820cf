"""From traces to workloads: reading, cleaning, stays, areas, subscriptions and events."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.datasets.streams import BLOCK_ROWS
from nearcast.errors import DatasetError, ValidationError
from nearcast.kernels import tracks as kernels
from nearcast.spark.documents import fixes_of
from nearcast.spark.inputs import find_inputs
from tests import tracks
from tests.tracks import Fix

MINUTE = 60_000_000


# -- kernels against the slow definition ----------------------------------------


def some_fixes() -> st.SearchStrategy[list[Fix]]:
    fix = st.builds(
        Fix,
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 40).map(lambda minute: minute * MINUTE),
        st.sampled_from([8.5, 8.501, 8.502, 8.53, 9.5]),
        st.sampled_from([47.4, 47.4005, 47.43]),
        st.sampled_from([None, False, True]),
    )
    return st.lists(fix, max_size=40).map(lambda found: sorted(found, key=lambda f: f[:2]))


def as_batches(fixes: list[Fix], cuts: list[int]) -> list[pa.RecordBatch]:
    edges = sorted({0, len(fixes), *(cut % (len(fixes) + 1) for cut in cuts)})
    kinds = [pa.string(), pa.timestamp("us", tz="UTC"), pa.float64(), pa.float64(), pa.bool_()]
    batches = []
    for start, stop in pairwise(edges):
        columns = list(zip(*fixes[start:stop], strict=True))
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        batches.append(
            pa.RecordBatch.from_arrays(
                [*arrays, pa.array(["f"] * (stop - start))],
                ["id", "ts", "lon", "lat", "occupied", "file"],
            )
        )
    return batches


@settings(max_examples=150, deadline=None)
@given(some_fixes(), st.lists(st.integers(0, 40), max_size=4))
def test_following_is_the_slow_definition_wherever_batches_are_cut(fixes, cuts):
    from nearcast.spark.cleaning import _REASONS, _follow

    rows = [row for b in _follow(iter(as_batches(fixes, cuts)), 40.0, 10 * MINUTE)
            for row in b.to_pylist()]  # fmt: skip
    wanted = tracks.follow(fixes, 40.0, 10 * MINUTE)
    assert [_REASONS.get(row["verdict"]) for row in rows] == [each.reason for each in wanted]
    kept = [(row["session"], row["pick_up"]) for row in rows if row["verdict"] == 0]
    assert kept == [(e.session, e.pick_up) for e in wanted if e.reason is None]


@settings(max_examples=150, deadline=None)
@given(some_fixes(), st.lists(st.integers(0, 40), max_size=4))
def test_stays_are_the_slow_definition_wherever_batches_are_cut(fixes, cuts):
    from nearcast.spark.stays import _stays

    tracked = [fix._replace(id=f"{fix.id}\n0") for fix in fixes]
    batches = [b.select(["id", "ts", "lon", "lat"]) for b in as_batches(tracked, cuts)]
    rows = [row for b in _stays(iter(batches), 300.0, 5 * MINUTE) for row in b.to_pylist()]
    wanted = tracks.stays(tracked, 300.0, 5 * MINUTE)
    assert [(r["id"], r["fixes"], r["seconds"]) for r in rows] == [
        (w[0].partition("\n")[0], w[3], (w[2] - w[1]) / 1e6) for w in wanted
    ]
    for row, want in zip(rows, wanted, strict=True):
        assert row["lon"] == pytest.approx(want[4], abs=1e-9)
        assert row["lat"] == pytest.approx(want[5], abs=1e-9)


def test_a_stay_on_the_antimeridian_is_one_place():
    whole, real = kernels.new_stay()
    times, places = np.empty((4, 4), np.int64), np.empty((4, 2))
    lon = np.array([179.9999, -179.9999, 179.9999])
    ts, lat = np.arange(3) * 10 * MINUTE, np.zeros(3)
    arguments = (np.zeros(3, np.int64), ts, lon, lat, 100.0, MINUTE, whole, real, times, places)
    assert kernels.stays(*arguments) == 0
    assert kernels.last_stay(whole, real, MINUTE, times, places) == 1
    assert abs(abs(places[0, 0]) - 180) < 1e-3


# -- reading -------------------------------------------------------------------

HEAD = "cab_id,time,longitude,latitude,occupied\n"
BAD_CSV = HEAD + (
    "a,2026-01-01T00:00:00Z,8.5,47.4,0\n"
    "a,2026-01-01T01:01:00+01:00,8.501,47.4,1\n"
    "a,1767225720,8.502,47.4,1\n"
    ",2026-01-01T00:00:00Z,8.5,47.4,0\n"
    "a,,8.5,47.4,0\n"
    "a,yesterday,8.5,47.4,0\n"
    "a,2026-01-01T00:03:00Z,8.5,,0\n"
    "a,2026-01-01T00:03:00Z,east,47.4,0\n"
    "a,2026-01-01T00:03:00Z,8.5,95,0\n"
    "a,2026-01-01T00:03:00Z,200,47.4,0\n"
    "a,2026-01-01T00:03:00Z,8.5,47.4,maybe\n"
    "a,2026-01-01T00:03:00Z,8.5\n"
    "a,9999-01-01T00:00:00Z,8.5,47.4,0\n"
    "a,2026-01-01T00:03:00Z,NaN,47.4,0\n"
)


def test_bad_rows_are_kept_with_reasons(spark, tmp_path: Path):
    from nearcast.spark.traces import read_traces

    (tmp_path / "t.csv").write_text(BAD_CSV)
    rows = read_traces(spark, str(tmp_path / "t.csv")).collect()
    good = [row for row in rows if row["reason"] is None]
    assert [(row["id"], row["ts"].minute, row["occupied"]) for row in good] == [
        ("a", 0, False), ("a", 1, True), ("a", 2, True),
    ]  # fmt: skip
    assert {row["reason"] for row in rows} - {None} == {
        "no id", "no time", "unreadable time", "no place", "unreadable place",
        "latitude outside of −90 … 90", "longitude outside of −180 … 180",
        "unreadable occupancy", "the row does not fit the header", "time outside of 1900 … 2200",
    }  # fmt: skip
    assert len(rows) == BAD_CSV.count("\n") - 1
    assert all((row["raw"] is None) == (row["reason"] is None) for row in rows)
    assert all(row["file"].endswith("t.csv") for row in rows)


POINTS = [("a", 0, 8.5, 47.4, False), ("a", 60, 8.501, 47.4, True), ("b", 0, 8.6, 47.5, None)]


def _write_all(folder: Path) -> dict[str, Path]:
    stamps = [f"2026-01-01T00:{s // 60:02}:00Z" for _, s, *_ in POINTS]
    features = [
        {"type": "Feature", "properties": {"id": i, "ts": t, "occupied": o},
         "geometry": {"type": "Point", "coordinates": [x, y, 400]}}
        for (i, _, x, y, o), t in zip(POINTS, stamps, strict=True)
    ]  # fmt: skip
    prism = {"type": "Feature", "id": "a",
             "temporalGeometry": {"type": "MovingPoint", "datetimes": stamps[:2],
                                  "coordinates": [[8.5, 47.4], [8.501, 47.4]]},
             "temporalProperties": [{"datetimes": stamps[:2],
                                     "occupied": {"values": [False, True]}}]}  # fmt: skip
    line = {"type": "Feature", "properties": {"id": "b", "datetimes": [1767225600000]},
            "geometry": {"type": "LineString", "coordinates": [[8.6, 47.5]]}}  # fmt: skip
    collection = {"type": "FeatureCollection", "features": features}
    paths = {kind: folder / f"t.{kind}" for kind in ("geojson", "geojsonl", "mfjson", "parquet")}
    paths["geojson"].write_text(json.dumps(collection))
    paths["geojsonl"].write_text("\n".join(map(json.dumps, features)) + "\n\n")
    moving = {"type": "FeatureCollection", "features": [prism, line]}
    paths["mfjson"].write_text(json.dumps(moving))
    ids, seconds, x, y, occupied = zip(*POINTS, strict=True)
    micros = pa.array([1767225600_000_000 + s * 1_000_000 for s in seconds])
    table = {"id": ids, "ts": micros.view(pa.timestamp("us")), "lon": x, "lat": y}
    pq.write_table(pa.table({**table, "occupied": pa.array(occupied)}), paths["parquet"])
    return paths


@pytest.mark.parametrize("kind", ["geojson", "geojsonl", "mfjson", "parquet"])
def test_every_format_gives_the_same_fixes(spark, tmp_path: Path, kind: str):
    from nearcast.spark.traces import read_traces

    path = _write_all(tmp_path)[kind]
    rows = read_traces(spark, str(path)).selectExpr(
        "id", "unix_seconds(ts) - 1767225600 as s", "lon", "lat", "occupied", "reason"
    )
    assert sorted(map(tuple, rows.collect())) == sorted((*point, None) for point in POINTS)


def test_a_bad_feature_is_kept_as_it_came(spark, tmp_path: Path):
    from nearcast.spark.traces import read_traces

    said = {"id": "a", "ts": "noon", "occupied": True}
    point = {"type": "Point", "coordinates": [8.5, 95]}
    feature = {"type": "Feature", "properties": said, "geometry": point}
    (tmp_path / "t.geojsonl").write_text(json.dumps(feature) + "\nnonsense\n")
    first, second = read_traces(spark, str(tmp_path)).collect()
    assert (first["reason"], json.loads(first["raw"])["ts"]) == ("unreadable time", "noon")
    assert second["reason"].startswith("not JSON")
    assert second["raw"] == "nonsense"


def test_text_without_a_zone_is_local_summer_time_included(spark, tmp_path: Path):
    from nearcast.spark.traces import read_traces

    (tmp_path / "t.csv").write_text(
        "id,ts,lon,lat\na,2026-01-15 12:00:00,8,47\na,2026-07-15 12:00:00,8,47\na,2026-07-15,8,47\n"
    )
    rows = read_traces(spark, str(tmp_path), time_zone="Europe/Zurich")
    hours = rows.selectExpr("date_format(ts, 'MM-dd HH') as h").collect()
    assert [row["h"] for row in hours] == ["01-15 11", "07-15 10", "07-14 22"]


def test_what_is_no_feature_is_told():
    def problem(text: str | bytes) -> str:
        (fix,) = fixes_of(text, {})
        return fix.problem or ""

    nowhere = '{"type": "Feature", "geometry": null}'
    assert problem(nowhere) == "geometry None is neither a Point nor a trajectory"
    assert problem(b"{").startswith("not JSON")
    assert problem("[1]").startswith("neither a Feature")
    uneven = {"type": "Feature", "properties": {"datetimes": []},
              "geometry": {"type": "LineString", "coordinates": [[1, 2]]}}  # fmt: skip
    assert "equal length" in problem(json.dumps(uneven))
    solid = {"type": "Feature", "temporalGeometry": {"type": "MovingPolygon"}}
    assert "no MovingPoint" in problem(json.dumps(solid))


class TestRefusedEarly:
    """No Spark is needed to say these."""

    def refused(self, match: str, *arguments: Any, **more: Any) -> None:
        with pytest.raises(DatasetError, match=match):
            find_inputs(*arguments, **more)

    def test_paths_and_formats(self, tmp_path: Path):
        (tmp_path / "notes.txt").write_text("hello")
        (tmp_path / "empty.csv").write_text("")
        self.refused("does not exist", str(tmp_path / "nowhere"))
        self.refused("tells no format", str(tmp_path / "notes.txt"))
        self.refused("0 bytes", str(tmp_path / "empty.csv"))
        self.refused("unknown", str(tmp_path), format="xls")
        (tmp_path / "void").mkdir()
        self.refused("nothing to read", str(tmp_path / "void"))

    def test_missing_columns_are_named_with_what_is_there(self, tmp_path: Path):
        (tmp_path / "t.csv").write_text("cab_id,ts,lon,north\n")
        self.refused(r"lacks a column for lat.*north.*--column lat=NAME", str(tmp_path))
        found = find_inputs(str(tmp_path), columns={"lat": "north"})
        assert dict(found.columns) == {"id": "cab_id", "ts": "ts", "lon": "lon", "lat": "north"}
        self.refused("no column 'south'", str(tmp_path), columns={"lat": "south"})
        self.refused("there is no height", str(tmp_path), columns={"height": "z"})

    def test_files_that_do_not_fit_together(self, tmp_path: Path):
        (tmp_path / "a.csv").write_text("id,ts,lon,lat\n")
        (tmp_path / "b.csv").write_text("id,ts,lat,lon\n")
        self.refused("another header", str(tmp_path))
        (tmp_path / "c.geojson").write_text("{}")
        self.refused("one format at a time", str(tmp_path))

    def test_damaged_and_strange_parquet(self, tmp_path: Path):
        good = pa.table({"id": ["a"], "ts": [0], "lon": [8.5], "lat": [47.4]})
        path = tmp_path / "t.parquet"
        pq.write_table(good, path)
        path.write_bytes(path.read_bytes()[:-20])
        self.refused("damaged", str(tmp_path))
        pq.write_table(good.set_column(2, "lon", pa.array([[8.5]])), path)
        self.refused("column 'lon' is list", str(tmp_path))
        stamps = pa.array([0], pa.timestamp("ns"))
        pq.write_table(good.set_column(1, "ts", stamps), path, version="2.6")
        self.refused("nanoseconds", str(tmp_path))


def test_swapped_coordinates_stop_the_run_with_a_hint(spark, tmp_path: Path):
    from nearcast.spark.traces import check_sample, read_traces

    rows = "".join(f"a,{60 * i},37.7,-122.4\n" for i in range(20))
    (tmp_path / "t.csv").write_text("id,ts,lon,lat\n" + rows)
    with pytest.raises(DatasetError, match=r"100% of the first 20 rows.*--swap"):
        check_sample(read_traces(spark, str(tmp_path)), 0.5)
    check_sample(read_traces(spark, str(tmp_path), swap=True), 0.5)


# -- cleaning ------------------------------------------------------------------


def frame(spark: Any, fixes: list[Fix]) -> Any:
    rows = [(f.id, f.ts, f.lon, f.lat, f.occupied, "f", None, None) for f in fixes]
    shape = "id string, ts bigint, lon double, lat double, occupied boolean, file string, "
    made = spark.createDataFrame(rows, shape + "reason string, raw string")
    return made.selectExpr("id", "timestamp_micros(ts) as ts", "lon", "lat", "occupied", "file",
                           "reason", "raw")  # fmt: skip


def seeded_fixes(rows: int) -> list[Fix]:
    rng = np.random.default_rng(5)
    found = []
    for i in range(rows):
        far = rng.random() < 0.05
        found.append(Fix(f"c{i % 7}", int(rng.integers(0, rows)) * MINUTE,
                         8.5 + rng.random() * 0.01 + 0.5 * far, 47.4 + rng.random() * 0.01,
                         bool(rng.random() < 0.5)))  # fmt: skip
    return found


@pytest.mark.parametrize("partitions", [1, 9])
def test_cleaning_on_spark_is_the_slow_definition(spark, partitions: int):
    from nearcast.spark.cleaning import follow

    fixes = seeded_fixes(400)
    rows = follow(frame(spark, fixes).repartition(partitions), 40.0, 600.0).collect()
    ordered = sorted(fixes, key=lambda f: (f.id, f.ts, f.lat, f.lon))
    wanted = tracks.follow(ordered, 40.0, 600_000_000)
    found = {(r["id"], r["lon"], r["lat"]): (r["reason"], r["pick_up"]) for r in rows}
    assert found == {(w.fix.id, w.fix.lon, w.fix.lat): (w.reason, w.pick_up) for w in wanted}
    reasons = {w.reason for w in wanted}
    assert reasons == {None, "second fix at one time", "impossible speed"}


def test_the_box_is_learnt_and_swapped_places_are_told(spark):
    from nearcast.spark.cleaning import Bounds, keep_inside, learn_bounds

    fixes = [Fix("a", i, 8.5 + i / 10_000, 47.4 + i / 10_000) for i in range(1000)]
    odd = [Fix("a", 2000, 47.45, 8.55), Fix("a", 2001, 100.0, 10.0)]
    rows = frame(spark, [*fixes, *odd])
    bounds = learn_bounds(rows)
    marked = keep_inside(rows, bounds).groupBy("reason").count().collect()
    assert {row["reason"]: row["count"] for row in marked} == {
        None: 1000, "coordinates swapped": 1, "outside of the box": 1,
    }  # fmt: skip
    across = Bounds(170, -10, -170, 10)
    place = frame(spark, [Fix("a", 0, 175.0, 0.0), Fix("a", 1, -175.0, 0.0), Fix("a", 2, 0.0, 0.0)])
    assert keep_inside(place, across).where("reason is null").count() == 2
    with pytest.raises(ValidationError, match=r"box\.ymax"):
        Bounds(0, 0, 1, 95)


# -- points, areas, people -----------------------------------------------------


def points(spark: Any, rows: int = 600) -> Any:
    rng = np.random.default_rng(2)
    centres = rng.random((12, 2)) * 0.2
    at = centres[rng.integers(0, 12, rows)] + rng.normal(0, 0.002, (rows, 2))
    data = [(f"c{i % 9}", i, 8.5 + float(x), 47.4 + float(y)) for i, (x, y) in enumerate(at)]
    shape = "id string, n bigint, lon double, lat double"
    return spark.createDataFrame(data, shape).selectExpr(
        "id", "timestamp_seconds(n) as ts", "lon", "lat"
    )


def test_numbers_are_dense_and_the_same_for_any_partitioning(spark):
    from nearcast.spark.stays import numbered

    one = {
        (r["id"], r["ts"]): r["number"] for r in numbered(points(spark).repartition(1)).collect()
    }
    many = {
        (r["id"], r["ts"]): r["number"] for r in numbered(points(spark).repartition(7)).collect()
    }
    assert one == many
    assert sorted(one.values()) == list(range(600))


def test_coarse_to_fine_is_nearly_as_good_as_one_k_means(spark):
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler

    from nearcast.spark.areas import hot_areas

    data = points(spark, 2000)
    found = hot_areas(data, 60, seed=3).collect()
    assert [row["area"] for row in found] == list(range(60))
    assert sum(row["points"] for row in found) == 2000
    cost = sum(row["points"] * row["radius_m"] ** 2 for row in found)
    assert found == hot_areas(data.repartition(5), 60, seed=3).collect()
    metres = data.selectExpr(f"lon * {111195 * np.cos(np.radians(47.5))} as x", "lat * 111195 as y")
    vectors = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(metres)
    plain = KMeans(k=60, seed=1, maxIter=20).fit(vectors.select("features")).summary.trainingCost
    assert cost < 1.6 * plain


def test_an_area_on_the_antimeridian(spark):
    from nearcast.spark.areas import hot_areas

    points = spark.createDataFrame(
        [(179.9, 10.0), (179.95, 10.0), (-179.95, 10.0), (-179.7, 10.0)], "lon double, lat double"
    )
    (area,) = hot_areas(points, 1).collect()
    assert area["lon"] == pytest.approx(-179.95)
    assert area["radius_m"] < 30_000


def test_no_area_is_left_without_points():
    """Lloyd's steps can leave a centre with nobody; five of these do."""
    from nearcast.spark.areas import _cut

    for seed in range(90):
        x, y = np.exp(2 * np.random.default_rng(seed).normal(size=(200, 2))).T
        table = pa.table({"coarse": [0] * 200, "x": x, "y": y})
        sizes = _cut(table, {0: 40}, 1.0, seed)["points"].to_pylist()
        assert len(sizes) == 40
        assert min(sizes) > 0
        assert sum(sizes) == 200


def test_fewer_places_than_areas(spark):
    from nearcast.spark.areas import default_areas, hot_areas

    twice = points(spark, 5).union(points(spark, 5))
    rows = hot_areas(twice, 100).collect()
    assert [row["points"] for row in rows] == [2] * 5
    assert max(row["radius_m"] for row in rows) < 1e-3
    with pytest.raises(DatasetError, match="no points"):
        hot_areas(twice.where("false"), 3)
    assert default_areas(933_794) == 10_000
    assert default_areas(5) == 1


@pytest.mark.parametrize("attributes", ["mo", "market"])
def test_people_depend_on_their_number_alone(spark, attributes):
    from nearcast.spark.population import Population
    from nearcast.spark.stays import numbered

    drawn = Population(attributes, seed=4)
    numbers = numbered(points(spark, 50))
    few = drawn.subscriptions(numbers, 30, 50).orderBy("id").toArrow()
    many = drawn.subscriptions(numbers.repartition(6), BLOCK_ROWS + 90, 50).orderBy("id").toArrow()
    assert many.num_rows == BLOCK_ROWS + 90
    assert many.slice(0, 30).to_pylist() == few.to_pylist()
    places = {(r["lon"], r["lat"]) for r in points(spark, 50).collect()}
    if attributes == "market":
        assert set(zip(many["lon"].to_pylist(), many["lat"].to_pylist(), strict=True)) == places
    areas = points(spark, 3).selectExpr("cast(unix_seconds(ts) as int) as area", "lon", "lat")
    events = drawn.events(spark, areas, BLOCK_ROWS + 5).orderBy("id").toArrow()
    assert events.num_rows == BLOCK_ROWS + 5
    assert len(set(events["lon"].to_pylist())) <= 3
    assert events["end"].to_pylist() == sorted(events["end"].to_pylist())


def test_squares_at_the_edges_of_the_map():
    from nearcast.model.geometry import Box
    from nearcast.spark.population import _squares

    lon, lat = np.array([179.999, -180.0, 8.5, 0.0]), np.array([0.0, 0.0, 89.9999, -90.0])
    found = _squares(lon, lat, np.full(4, 2000.0))
    boxes = [Box(*map(float, row)) for row in zip(*found.values(), strict=True)]
    assert boxes[0].xmin > boxes[0].xmax
    assert boxes[1].xmin > boxes[1].xmax
    assert boxes[2].ymax == 90
    assert boxes[3].ymin == -90
