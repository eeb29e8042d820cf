"""Seeded workloads: the same bytes always, the distributions the papers name, the columns."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from nearcast.datasets import WORKLOADS, DataFolder, Workload, workload
from nearcast.datasets.clusters import Clusters, busiest_cells
from nearcast.datasets.columns import INTERVALS, KEYWORDS, TIME
from nearcast.datasets.digest import digest_batches
from nearcast.datasets.lf import LfWorkload
from nearcast.datasets.local_words import LocalWords
from nearcast.datasets.mo import MoWorkload
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.readers import ENVIRONMENT, distinct_words
from nearcast.datasets.sources import GEOJSON, PARQUET
from nearcast.datasets.streams import BLOCK_ROWS, generator
from nearcast.errors import DatasetError
from nearcast.matcher import Matcher
from nearcast.model.geometry import SPACES, Space

SUBSCRIPTION_COLUMNS = {
    "id": pa.string(),
    "subscriber": pa.string(),
    "where": pa.string(),
    "intervals": INTERVALS,
    "keywords": KEYWORDS,
    **dict.fromkeys(["lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax"], pa.float64()),
    "geometry": pa.binary(),
    "expires": TIME,
}
EVENT_COLUMNS = {
    "id": pa.string(),
    "keywords": KEYWORDS,
    **dict.fromkeys(["lon", "lat"], pa.float64()),
    "geometry": pa.binary(),
    **dict.fromkeys(["start", "end", "expires"], TIME),
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("mo", {}),
    ("mo", {"k": 4, "alpha": 0.5, "ttl_s": 60}),
    ("mo", {"k": 2, "m": 5}),
    ("di", {}),
    ("di", {"m": 40, "k": 3, "w": 0.8, "alpha": 1.0, "attributes": 120}),
    ("lf", {}),
    ("lf", {"location": "range", "space": "planar", "vocabulary": 3000}),
    ("lf", {"message": "long"}),
    ("lf", {"length": [6, 9]}),
    ("elaps", {}),
    ("elaps", {"vocabulary": 30, "said": [1, 4], "predicates": [2, 2], "radius_m": 50_000.0}),
    ("city", {"radius_m": 2000, "n_shops": 50}),
]
DI_DIGEST = "de3f8819f09537891256b9290f96f774dd4e76e876abf4582d6e072263a5e47c"
CASE_IDS = [f"{name}-{'-'.join(parameters)}" for name, parameters in CASES]


def flat_intervals(table: pa.Table) -> pa.StructArray:
    return table["intervals"].combine_chunks().flatten()


def joined(batches) -> pa.Table:
    return pa.Table.from_batches(list(batches)).combine_chunks()


@pytest.fixture(params=CASES, ids=CASE_IDS)
def source(request) -> Workload:
    name, parameters = request.param
    return workload(name, seed=5, **parameters)


class TestSameBytes:
    def test_batch_size_and_start_do_not_matter(self, source):
        n = BLOCK_ROWS + 300 if source.parameters.get("message") != "long" else 700
        for stream in (source.subscriptions, source.events):
            whole = joined(stream(n))
            assert whole.num_rows == n
            uneven = list(stream(n, batch_rows=n // 3 - 7))
            assert [batch.num_rows for batch in uneven[:-1]] == [n // 3 - 7] * (len(uneven) - 1)
            assert joined(uneven).equals(whole)
            cut = n - 400
            assert joined(stream(400, first=cut)).equals(whole.slice(cut).combine_chunks())

    def test_another_process_draws_the_same(self, source):
        again = workload(source.name, **json.loads(json.dumps(source.parameters)))
        assert again == source
        assert again.digest(500, 200) == source.digest(500, 200)

    def test_another_seed_draws_otherwise(self, source):
        other = workload(source.name, **source.parameters | {"seed": 6})
        assert not other.subscription_table(50).equals(source.subscription_table(50))
        assert not other.event_table(50).equals(source.event_table(50))
        assert other.digest(50) != source.digest(50)

    def test_the_stream_never_changes(self):
        assert workload("di", seed=1).digest(1000) == DI_DIGEST


class TestDigest:
    def batch(self, **changes):
        columns = {
            "a": pa.array([1.0, None, 3.0]),
            "b": pa.array([["x", "yz"], None, []], KEYWORDS),
            "c": pa.array([{"p": True}, {"p": None}, {"p": False}]),
            "d": pa.array([0, 1, None], TIME),
            "e": pa.array([b"1", b"", None]),
        }
        return pa.record_batch(columns | changes)

    def test_it_sees_values_not_storage(self):
        padded = pa.Table.from_batches([self.batch(), self.batch()]).combine_chunks().to_batches()
        assert digest_batches([padded[0].slice(3)]) == digest_batches([self.batch()])

    @pytest.mark.parametrize(
        "changes",
        [
            {"a": pa.array([1.0, 0.0, 3.0])},
            {"b": pa.array([["x"], None, ["yz"]], KEYWORDS)},
            {"b": pa.array([["xy", "z"], None, []], KEYWORDS)},
            {"c": pa.array([{"p": True}, None, {"p": False}])},
            {"d": pa.array([0, 2, None], TIME)},
            {"e": pa.array([b"1", None, b""])},
            {"f": pa.array([1, 2, 3])},
        ],
    )
    def test_it_sees_every_difference(self, changes):
        assert digest_batches([self.batch(**changes)]) != digest_batches([self.batch()])


class TestColumns:
    def test_they_are_those_of_the_tables(self, source):
        subscriptions = source.subscription_table(20)
        for field in subscriptions.schema:
            assert field.type == SUBSCRIPTION_COLUMNS[field.name]
        events = source.event_table(20)
        for field in events.schema:
            if field.name == "attributes":
                kinds = {one.type for one in field.type}
                assert kinds <= {pa.float64(), pa.string(), pa.bool_()}
            else:
                assert field.type == EVENT_COLUMNS[field.name]
        for table, prefix in ((subscriptions, "s"), (events, "oe")):
            table.validate(full=True)
            assert table["id"][7].as_py()[0] in prefix
            assert table["id"][7].as_py()[1:] == "00000007"

    def test_no_rows_is_an_empty_table_of_the_same_columns(self, source):
        assert source.subscription_table(0).schema == source.subscription_table(1).schema
        assert source.event_table(0).num_rows == 0

    def test_spaces(self):
        spaces = {name: workload(name).space for name in WORKLOADS}
        assert spaces == {
            "mo": "planar", "di": "planar", "lf": "globe", "elaps": "planar", "city": "globe",
        }  # fmt: skip


class TestMo:
    @pytest.mark.parametrize("k", [2, 4, 6, 8, 10])
    def test_the_square_counts_as_two_predicates(self, k):
        table = workload("mo", k=k).subscription_table(500)
        sizes = table["intervals"].combine_chunks().value_lengths()
        assert sizes.unique().to_pylist() == [k - 2]

    def test_intervals_are_over_different_attributes_with_uniform_ends(self):
        table = workload("mo", k=10).subscription_table(5000)
        flat = flat_intervals(table)
        names = np.array(flat.field("attribute").to_pylist()).reshape(-1, 8)
        assert all(len(set(row)) == 8 for row in names[:1000])
        assert set(names.ravel()) == {f"a{i:02d}" for i in range(20)}
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        assert (low <= high).all()
        assert low.min() >= 0
        assert high.max() <= 1
        # The lesser and the greater of two uniforms: means 1/3 and 2/3, width 2(1 − x).
        assert low.mean() == pytest.approx(1 / 3, abs=0.01)
        assert high.mean() == pytest.approx(2 / 3, abs=0.01)
        assert np.mean(high - low > 0.5) == pytest.approx(0.25, abs=0.01)

    def test_squares_have_the_sides_asked_for(self):
        table = workload("mo").subscription_table(5000)
        width = table["xmax"].to_numpy() - table["xmin"].to_numpy()
        height = table["ymax"].to_numpy() - table["ymin"].to_numpy()
        assert width == pytest.approx(height)
        assert width.min() >= 1000 - 1e-6
        assert width.max() <= 4000 + 1e-6
        assert width.mean() == pytest.approx(2500, rel=0.02)

    def test_popularity_follows_zipf(self):
        attributes = flat_intervals(workload("mo", k=3).subscription_table(40_000))
        names = np.array(attributes.field("attribute").to_pylist())
        share = np.array([np.mean(names == f"a{i:02d}") for i in range(20)])
        expected = 1 / np.arange(1, 21) / (1 / np.arange(1, 21)).sum()
        assert share == pytest.approx(expected, rel=0.12)
        even = flat_intervals(workload("mo", k=3, alpha=0).subscription_table(40_000))
        counts = even.field("attribute").value_counts().field("counts").to_numpy()
        assert counts.min() > 0.85 * counts.max()

    def test_events_lie_at_hot_spots_with_15_to_20_attributes(self):
        source = MoWorkload()
        events = source.event_table(3000)
        attributes = events["attributes"].combine_chunks()
        present = np.stack([np.asarray(column.is_valid()) for column in attributes.flatten()])
        sizes = present.sum(axis=0)
        assert set(sizes) == set(range(15, 21))
        assert present[0].mean() > present[19].mean() + 0.1
        places = set(zip(*np.asarray(source.hot_spots).T, strict=True))
        assert len(source.hot_spots) == 10_000
        assert set(zip(events["lon"].to_pylist(), events["lat"].to_pylist(), strict=True)) <= places
        values = np.concatenate([np.asarray(one.drop_null()) for one in attributes.flatten()])
        assert values.min() >= 0
        assert values.max() <= 1
        assert values.mean() == pytest.approx(0.5, abs=0.01)

    def test_places_crowd(self):
        """An event lies in many more squares than chance would have: 0.07 % if uniform."""
        source = workload("mo")
        table = source.subscription_table(20_000)
        xmin, ymin, xmax, ymax = (table[c].to_numpy() for c in ("xmin", "ymin", "xmax", "ymax"))
        events = source.event_table(200)
        shares = [
            np.mean((xmin <= x) & (x <= xmax) & (ymin <= y) & (y <= ymax))
            for x, y in zip(events["lon"].to_pylist(), events["lat"].to_pylist(), strict=True)
        ]
        assert 0.002 < np.mean(shares) < 0.008

    def test_timed_events_come_in_order_and_expire(self):
        table = workload("mo", ttl_s=10, rate_hz=100).event_table(10_000)
        end = table["end"].to_numpy().astype("datetime64[us]").astype(np.int64)
        left = table["expires"].to_numpy().astype("datetime64[us]").astype(np.int64) - end
        assert (np.diff(end) >= 0).all()
        assert end[-1] - end[0] == pytest.approx(100e6, rel=0.01)
        assert left.min() >= 5e6
        assert left.max() <= 15e6
        assert table["start"].equals(table["end"])


class TestDi:
    @pytest.mark.parametrize("w", [0.0, 0.1, 0.4, 0.9, 1.0])
    def test_intervals_have_one_width_inside_the_domain(self, w):
        flat = flat_intervals(workload("di", w=w).subscription_table(2000))
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        assert (high - low) == pytest.approx(w, abs=1e-12)
        assert low.min() >= 0
        assert high.max() <= 1
        assert low.mean() == pytest.approx((1 - w) / 2, abs=0.01)

    @pytest.mark.parametrize(
        ("m", "attributes", "total"), [(20, None, 20), (80, None, 80), (5, 30, 30)]
    )
    def test_events_carry_m_attributes(self, m, attributes, total):
        source = workload("di", m=m, attributes=attributes)
        column = source.event_table(300)["attributes"].combine_chunks()
        assert column.type.num_fields == total
        present = np.stack([np.asarray(field.is_valid()) for field in column.flatten()])
        assert set(present.sum(axis=0)) == {m}

    def test_an_interval_of_real_values_holds_a_price_of_its_stock(self, monkeypatch):
        """Stock i always closes at i/19, so an interval tells which stock's price it holds."""
        days = np.tile(np.arange(20) / 19, (7, 1))
        monkeypatch.setattr(DataFolder, "__init__", lambda _: None)
        monkeypatch.setattr(DataFolder, "closing_prices", lambda _, stocks: days[:, :stocks])
        made = workload("di", values="sp500", w=0.1, k=5)
        flat = flat_intervals(made.subscription_table(400))
        price = np.array([int(name[1:]) for name in flat.field("attribute").to_pylist()]) / 19
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        assert (low <= price + 1e-12).all()
        assert (price <= high + 1e-12).all()
        inner = (price > 0.1) & (price < 0.9)  # at the ends of the domain it cannot slide
        assert (price - low)[inner].mean() == pytest.approx(0.05, abs=0.005)
        events = made.event_table(50)["attributes"].combine_chunks()
        assert {v for row in events.to_pylist() for v in row.values()} <= set(days[0].tolist())

    def test_nothing_has_a_place(self):
        source = workload("di")
        assert source.subscription_table(3).column_names == ["id", "intervals"]
        assert source.event_table(3).column_names == ["id", "attributes"]

    def test_matches_are_as_rare_as_the_width_says(self):
        """All of k uniform values in intervals of width 0.8: at least 0.75^3 of the pairs."""
        source = workload("di", k=3, w=0.8, m=20)
        table = source.subscription_table(400)
        flat = flat_intervals(table)
        code = np.array([int(name[1:]) for name in flat.field("attribute").to_pylist()])
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        events = source.event_table(400)["attributes"].combine_chunks()
        values = np.stack([field.to_numpy() for field in events.flatten()], axis=1)[:, code]
        hits = ((low <= values) & (values <= high)).reshape(400, 400, 3).all(axis=2)
        assert hits.mean() == pytest.approx(0.8**3, abs=0.05)


class TestElaps:
    def test_attributes_are_words_and_values_their_frequencies(self):
        table = workload("elaps", said=(6, 6)).event_table(400)
        for attributes in table["attributes"].to_pylist():
            often = [value for value in attributes.values() if value is not None]
            assert sum(often) == 6
            assert all(value >= 1 and value == int(value) for value in often)

    def test_popular_words_are_said_and_asked_for_more(self):
        source = workload("elaps", vocabulary=50)
        held = source.event_table(2000)["attributes"].combine_chunks()
        said = np.array([2000 - field.null_count for field in held.flatten()])
        asked = flat_intervals(source.subscription_table(5000)).field("attribute").to_pylist()
        wanted = np.array([asked.count(field.name) for field in held.type])
        for counts in (said, wanted):
            assert counts[0] > counts[3] > counts[12] > counts[-1] > 0

    def test_predicates_are_of_four_kinds_on_one_to_five_words(self):
        table = workload("elaps").subscription_table(4000)
        sizes = table["intervals"].combine_chunks().value_lengths().to_numpy()
        assert set(sizes) == {1, 2, 3, 4, 5}
        names = [[each["attribute"] for each in row] for row in table["intervals"].to_pylist()]
        assert all(len(set(one)) == len(one) for one in names)
        flat = flat_intervals(table)
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        kinds = [np.isinf(low), np.isinf(high), low == high, (low < high) & np.isfinite(high - low)]
        assert sum(kinds).tolist() == [1] * low.size
        assert all(kind.mean() == pytest.approx(0.25, abs=0.03) for kind in kinds)
        assert set(table["radius_m"].to_pylist()) == {2000.0}


class TestLocalWords:
    """Three villages, each of which speaks of things of its own."""

    def talk(self, **given: Any) -> LocalWords:
        rng = np.random.default_rng(4)
        village = np.repeat([0, 1, 2], 60)
        words = [[f"v{v}-{w}" for w in rng.integers(0, 9, 2)] for v in village]
        x = village * 10.0 + rng.random(village.size)
        return LocalWords(pa.array([*words[:-1], None]), x, rng.random(village.size), **given)

    def test_sets_are_full_of_what_is_said_nearby(self):
        sizes = np.full(600, 4)
        words, places = self.talk().sets(np.random.default_rng(1), sizes)
        sets = np.array(words.to_pylist()).reshape(600, 4)
        assert all(len(set(one)) == 4 for one in sets)
        here = np.array([[word[1] == str(int(x // 10)) for word in one]
                         for one, x in zip(sets, places[:, 0], strict=True)])  # fmt: skip
        assert here.mean() > 0.7, "of three alike a third would be"
        assert not here.all(), "villages hear of each other at their ends"

    def test_words_with_repetition(self):
        talk = self.talk(among=pa.array(["v1-3", "v1-4", "v2-0"]))
        codes, places = talk.draw(np.random.default_rng(1), np.array([5, 1, 3]))
        assert codes.size == 9
        assert places.shape == (3, 2)
        assert (places[:, 0] >= 10).all(), "nobody says these in the first village"
        assert talk.counts.sum() < 180

    def test_what_cannot_be_drawn_is_refused(self):
        with pytest.raises(DatasetError, match="a set of 4 cannot be drawn out of 3"):
            self.talk(among=pa.array(["v1-3", "v1-4", "v2-0"])).sets(
                np.random.default_rng(1), np.array([4])
            )
        with pytest.raises(DatasetError, match="no row has such a word"):
            self.talk(among=pa.array(["unheard-of"]))


class TestLf:
    def test_messages_of_one_length(self):
        words = workload("lf", length=(7, 7)).event_table(50)["keywords"].to_pylist()
        assert {len(one) for one in words} == {7}

    def test_subscriptions_have_one_to_five_different_words(self):
        table = workload("lf").subscription_table(5000)
        sizes = table["keywords"].combine_chunks().value_lengths().to_numpy()
        assert set(sizes) == {1, 2, 3, 4, 5}
        assert sizes.mean() == pytest.approx(3, abs=0.06)
        assert all(len(set(words)) == len(words) for words in table["keywords"].to_pylist())

    @pytest.mark.parametrize(("message", "least", "most"), [("short", 6, 20), ("long", 100, 1000)])
    def test_messages_have_the_size_asked_for(self, message, least, most):
        words = workload("lf", message=message).event_table(600)["keywords"].to_pylist()
        sizes = [len(one) for one in words]
        assert min(sizes) >= least
        assert max(sizes) <= most
        assert np.mean(sizes) == pytest.approx((least + most) / 2, rel=0.06)
        assert all(len(set(one)) == len(one) for one in words)

    def test_words_follow_zipf(self):
        single = workload("lf", words=(1, 1)).subscription_table(100_000)
        words = np.array(single["keywords"].combine_chunks().flatten().to_pylist())
        total = (1 / np.arange(1, 100_001)).sum()
        for rank in (1, 2, 5, 10):
            assert np.mean(words == f"w{rank - 1:06d}") == pytest.approx(1 / rank / total, rel=0.1)
        assert len(set(words)) > 10_000

    @pytest.mark.parametrize("space", SPACES)
    def test_boxes_lie_inside_the_extent_with_sides_in_bounds(self, space: Space):
        source = LfWorkload(space=space, location="range", side=(0.01, 0.02))
        xmin, ymin, xmax, ymax = source.extent
        table = source.subscription_table(3000)
        low_x, high_x = table["xmin"].to_numpy(), table["xmax"].to_numpy()
        assert low_x.min() >= xmin
        assert high_x.max() <= xmax
        side = (high_x - low_x) / (xmax - xmin)
        assert side.max() <= 0.02 + 1e-12
        assert np.median(side) == pytest.approx(0.015, rel=0.05)
        assert table["ymin"].to_numpy().min() >= ymin
        assert table["ymax"].to_numpy().max() <= ymax

    def test_range_messages_are_valid_boxes(self):
        table = workload("lf", location="range").event_table(200)
        assert "lon" not in table.column_names
        shapes = shapely.from_wkb(table["geometry"].to_pylist())
        assert shapely.is_valid(shapes).all()
        assert all(shape.equals(shapely.box(*shape.bounds)) for shape in shapes)
        assert all(shape.exterior.is_ccw for shape in shapes)
        assert (shapely.area(shapes) > 0).all()


class TestPopularity:
    def test_subsets_have_their_sizes(self):
        sizes = np.array([0, 1, 3, 7])
        chosen = Popularity.zipf(7, 1.0).subsets(generator(0, "x"), sizes)
        assert chosen.sum(axis=1).tolist() == sizes.tolist()

    def test_both_ways_without_repetition_agree(self):
        """Exponential clocks and drawing again are the same successive sampling."""
        popularity = Popularity.zipf(6, 1.5)
        sizes = np.full(40_000, 2)
        clocks = popularity.subsets(generator(0, "a"), sizes)
        redrawn = np.zeros_like(clocks)
        rows = np.repeat(np.arange(sizes.size), sizes)
        redrawn[rows, popularity.sets(generator(0, "b"), sizes)] = True
        p = popularity.probabilities
        exact = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(6) if j != i) for i in range(6)]
        assert clocks.mean(axis=0) == pytest.approx(exact, abs=0.01)
        assert redrawn.mean(axis=0) == pytest.approx(exact, abs=0.01)

    def test_more_than_there_is_cannot_be_drawn(self):
        with pytest.raises(DatasetError, match="set of 4 cannot be drawn out of 3"):
            Popularity.zipf(3, 0).sets(generator(0, "x"), np.array([4]))
        with pytest.raises(DatasetError, match="greater than 0"):
            Popularity(np.array([1.0, 0.0]))

    def test_the_busiest_cells_are_found(self):
        points = np.array([[0, 0], [0.5, 0.5], [3.2, 3.2], [3.4, 3.6], [3.6, 3.4], [9, 9]])
        found = busiest_cells(points, cell=1.0, most=2)
        assert found == pytest.approx(np.array([[3.4, 3.4], [0.25, 0.25]]))


class TestClusters:
    def test_points_lie_round_their_centres_but_for_the_noise(self):
        clusters = Clusters(
            centres=np.array([[0.25, 0.3], [0.75, 0.5]]), spreads=np.array([0.01, 0.02]),
            weights=np.array([0.7, 0.3]), noise=0.2,
        )  # fmt: skip
        points = clusters.draw(generator(0, "x"), 100_000)
        for centre, spread, weight in zip(
            clusters.centres, clusters.spreads, clusters.weights, strict=True
        ):
            off = points - centre
            mine = off[np.hypot(*off.T) < 5 * spread]
            scattered = 0.2 * np.pi * (5 * spread) ** 2
            assert len(mine) / 100_000 == pytest.approx(0.8 * weight + scattered, abs=0.005)
            assert np.median(np.abs(mine), axis=0) == pytest.approx(0.6745 * spread, rel=0.1)
        rest = points[np.hypot(*(points - 0.5).T) < 0.1]  # far from both: noise alone
        assert len(rest) / 100_000 == pytest.approx(0.2 * np.pi * 0.01, rel=0.1)

    def test_the_rim_mirrors(self):
        corner = Clusters(np.array([[0.0, 1.0]]), np.array([0.1]), np.ones(1), noise=0.0)
        points = corner.draw(generator(0, "x"), 20_000)
        assert points.min() >= 0
        assert points.max() <= 1
        # Half a normal distribution on either axis, nothing heaped up on the rim.
        assert np.median(points[:, 0]) == pytest.approx(0.06745, rel=0.05)
        assert np.median(1 - points[:, 1]) == pytest.approx(0.06745, rel=0.05)
        assert (points[:, 0] == 0).mean() < 0.01


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "parameters", "message"),
        [
            ("nope", {}, "no workload is called 'nope'; there are: mo, di, lf, elaps, city"),
            ("mo", {"width": 1}, "no parameter width; it has: alpha, event_size, k, m, r_m"),
            ("mo", {"k": 23}, "k: 23 is not valid; give 2 … 22"),
            ("mo", {"k": "10"}, "k: '10' is not valid; give int"),
            ("mo", {"k": True}, "k: True is not valid; give int"),
            ("mo", {"r_m": (2000, 500)}, "r_m"),
            ("mo", {"r_m": (500, "x")}, r"r_m: .* give tuple\[float, float\]"),
            ("mo", {"alpha": float("nan")}, "alpha: nan is not valid; give float"),
            ("mo", {"seed": -1}, "seed: -1"),
            ("mo", {"ttl_s": 0}, "ttl_s"),
            ("mo", {"rate_hz": 0}, "rate_hz"),
            ("mo", {"m": 0}, "m: 0"),
            ("mo", {"event_size": (5, 2)}, "event_size"),
            ("mo", {"source": "us_ais"}, "source: 'us_ais' .* sf_cab_trips"),
            ("di", {"w": 1.5}, "w: 1.5"),
            ("di", {"m": 30, "attributes": 20}, "attributes: 20"),
            ("di", {"k": 21}, "k: 21 is not valid; give 1 … 20"),
            ("di", {"values": "gold"}, "values: 'gold'"),
            ("lf", {"message": "huge"}, "message: 'huge'"),
            ("lf", {"location": "line"}, "location: 'line'"),
            ("lf", {"space": "moon"}, "space: 'moon'"),
            ("lf", {"vocabulary": 10}, "vocabulary: 10 is not valid; give 20 … 1000000"),
            ("lf", {"side": (0.5, 2)}, "side"),
            ("lf", {"words": (0, 3)}, "words"),
            ("lf", {"source": "us_geo_hashtags", "space": "planar"}, "source"),
            ("lf", {"local": True}, "local: True is not valid; name a source"),
            ("lf", {"length": (0, 4)}, "length"),
            ("elaps", {"source": "sf_cab_trips"}, "source: 'sf_cab_trips' .* us_geo_hashtags"),
            ("elaps", {"vocabulary": 9000}, "vocabulary: 9000 is not valid; give 1 … 5000"),
            ("elaps", {"said": (3, 1)}, "said"),
            ("elaps", {"predicates": (1, 5), "vocabulary": 4}, "predicates"),
            ("elaps", {"radius_m": 0}, "radius_m: 0"),
            ("city", {"text_share": 2}, "text_share"),
            ("city", {"radius_m": 10}, "radius_m: 10"),
        ],
    )
    def test_parameters(self, name, parameters, message):
        with pytest.raises(DatasetError, match=message):
            workload(name, **parameters)

    @pytest.mark.parametrize("wrong", [{"n": -1}, {"n": 1.5}, {"n": 1, "batch_rows": 0}])
    def test_rows(self, wrong):
        with pytest.raises(DatasetError, match="is not valid; give an integer"):
            workload("di").subscriptions(**wrong)

    def test_ids_run_out(self):
        with pytest.raises(DatasetError, match="ids have 8 digits"):
            next(workload("di").subscriptions(1, first=10**8))


class TestReaders:
    def test_no_folder_is_told_how_to_name_one(self, monkeypatch):
        monkeypatch.delenv(ENVIRONMENT, raising=False)
        with pytest.raises(DatasetError, match=r"set NEARCAST_DATA or give DataFolder\(folder\)"):
            DataFolder()
        with pytest.raises(DatasetError, match="set NEARCAST_DATA"):
            workload("mo", source="sf_cab_trips").subscription_table(1)

    def test_a_missing_file_is_told_where_to_get_it(self, tmp_path):
        data = DataFolder(tmp_path)
        with pytest.raises(DatasetError, match=r"us_ais.parquet is missing .*marinecadastre.gov"):
            data.traces("us_ais")
        with pytest.raises(DatasetError, match=r"sf_neighborhoods.geojson is missing .*click_that"):
            data.polygons("sf_neighborhoods")

    def test_a_broken_file_is_told_so(self, tmp_path):
        (tmp_path / "us_ais.parquet").write_bytes(b"not parquet")
        (tmp_path / "geo").mkdir()
        (tmp_path / "geo" / "bart.geojson").write_text("[]")
        with pytest.raises(DatasetError, match="cannot be read"):
            DataFolder(tmp_path).table("us_ais")
        with pytest.raises(DatasetError, match="is not GeoJSON"):
            DataFolder(tmp_path).lines("bart")

    @pytest.mark.parametrize("method", ["table", "events", "traces", "places", "polygons"])
    def test_unknown_names_are_answered_with_the_known(self, method, tmp_path):
        with pytest.raises(DatasetError, match=r"is called 'mars'; there are: .*, "):
            getattr(DataFolder(tmp_path), method)("mars")

    def test_words_are_lower_case_and_each_once(self):
        texts = pa.chunked_array([["Joe's PIZZA, pizza & Ñandú!", None], ["", "a a b"]])
        assert distinct_words(texts).to_pylist() == [
            ["joe", "s", "pizza", "ñandú"],
            [],
            [],
            ["a", "b"],
        ]

    def test_areas_and_lines_of_geojson(self, tmp_path):
        square = [[[0, 0, 5], [2, 0, 5], [2, 2, 5], [0, 2, 5], [0, 0, 5]]]
        features = [
            {"properties": {"name": "A"}, "geometry": {"type": "Polygon", "coordinates": square}},
            {
                "properties": {"zone": "B"},
                "geometry": {"type": "MultiPolygon", "coordinates": [square, square]},
            },
            {
                "properties": None,
                "geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]},
            },
        ]
        (tmp_path / "geo").mkdir()
        path = tmp_path / "geo" / "sf_neighborhoods.geojson"
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        areas = DataFolder(tmp_path).polygons("sf_neighborhoods")
        assert [name for name, _ in areas] == ["A", "B", "B"]
        assert areas[0][1].bounds == (0.0, 0.0, 2.0, 2.0)
        [(name, line)] = DataFolder(tmp_path).lines("sf_neighborhoods")
        assert name == "sf_neighborhoods"
        assert line.tolist() == [[0, 0], [1, 1]]


FOLDER = os.environ.get(ENVIRONMENT, "")
needs_data = pytest.mark.skipif(
    not Path(FOLDER or "/nonexistent").is_dir(), reason=f"{ENVIRONMENT} names no folder"
)


@pytest.mark.data
@needs_data
class TestRealData:
    @pytest.mark.parametrize(
        ("name", "rows", "with_words"),
        [
            ("airbnb_dc_listings", 6257, True),
            ("nyc_gowalla_venues", 30_366, True),
            ("nyc_gowalla_checkins", 76_725, True),
            ("nyc_osm_pois", 16_936, True),
            ("sf_food_trucks", 581, True),
            ("sp500_daily", 492_367, False),
            ("us_geo_hashtags", 67_931, True),
        ],
    )
    def test_events(self, name, rows, with_words):
        table = DataFolder().events(name)
        table.validate(full=True)
        assert table.num_rows == rows
        assert ("keywords" in table.column_names) == with_words
        for field in table.schema:
            if field.name == "attributes":
                assert {one.type for one in field.type} <= {pa.float64(), pa.string(), pa.bool_()}
            else:
                assert field.type == EVENT_COLUMNS[field.name]
        assert len(table["id"].unique()) == rows
        if with_words:
            lists = table["keywords"].to_pylist()
            assert all(len(set(words)) == len(words) and "" not in words for words in lists)
            assert sum(map(bool, lists)) > rows / 2

    @pytest.mark.parametrize("name", ["sf_cabs_gps", "us_ais", "ch_flights_adsb"])
    def test_traces(self, name):
        table = DataFolder().traces(name)
        assert table.column_names[:4] == ["id", "ts", "lon", "lat"]
        assert table.schema.field("ts").type == TIME
        ts = table["ts"].combine_chunks().view(pa.int64()).to_numpy()
        assert (np.diff(ts) >= 0).all()
        if name == "sf_cabs_gps":
            assert len(table["id"].unique()) == 512
            assert 0.2 < table["occupied"].to_numpy(zero_copy_only=False).mean() < 0.7
        else:
            speed = table["speed_m_s"].to_numpy()
            assert np.nanmax(speed) < 400
            heading = table["heading"].to_numpy()
            assert np.nanmin(heading) >= 0

    @pytest.mark.parametrize("name", sorted(GEOJSON))
    def test_maps(self, name):
        read = DataFolder().lines if name in ("bart", "manhattan_roads", "sf_roads") else None
        found = (read or DataFolder().polygons)(name)
        assert found
        with pytest.raises(DatasetError, match=r"has no (areas|lines); read it with"):
            (DataFolder().polygons if read else DataFolder().lines)(name)

    @pytest.mark.parametrize("name", sorted(PARQUET))
    def test_the_catalogue_names_columns_that_are_there(self, name):
        wanted = {column for column in PARQUET[name].columns if column != "…"}
        assert wanted <= set(DataFolder().table(name).column_names)

    @pytest.mark.parametrize("source", ["sf_cab_trips", "nyc_uber_pickups"])
    def test_mo_on_real_pick_ups(self, source):
        real = MoWorkload(source=source)
        table = real.subscription_table(2000)
        x = (table["xmin"].to_numpy() + table["xmax"].to_numpy()) / 2
        assert x.min() >= -1
        assert np.ptp(x) < 200_000
        assert 5000 < len(real.hot_spots) <= 10_000
        assert real.digest(100) == workload("mo", source=source).digest(100)

    def test_di_on_real_prices(self):
        real = workload("di", values="sp500", m=30)
        flat = flat_intervals(real.subscription_table(500))
        low, high = flat.field("low").to_numpy(), flat.field("high").to_numpy()
        assert low.min() >= 0
        assert high.max() <= 1 + 1e-12
        assert (high - low) == pytest.approx(0.4)
        events = real.event_table(200)["attributes"].combine_chunks()
        values = np.stack([np.asarray(field) for field in events.flatten()])
        assert values.shape == (30, 200)
        assert values.min() >= 0
        assert values.max() <= 1
        with pytest.raises(DatasetError, match="stocks are too many"):
            DataFolder().closing_prices(506)

    @pytest.mark.parametrize(
        "source", ["nyc_gowalla_checkins", "nyc_gowalla_venues", "us_geo_hashtags"]
    )
    def test_lf_on_real_words(self, source):
        real = workload("lf", source=source)
        words, counts = DataFolder().words(source)
        assert (np.diff(counts) <= 0).all()
        drawn = real.subscription_table(2000)["keywords"].combine_chunks().flatten().to_pylist()
        assert set(drawn) <= set(words.to_pylist())
        top = set(words[:10].to_pylist())
        assert sum(word in top for word in drawn) / len(drawn) == pytest.approx(
            counts[:10].sum() / counts.sum(), rel=0.3
        )
        lon = real.event_table(500)["lon"].to_numpy()
        assert set(lon) <= set(DataFolder().places(source)[0])

    @pytest.mark.parametrize("source", ["nyc_gowalla_venues", "us_geo_hashtags"])
    def test_words_where_they_are_said(self, source):
        """Neighbours on the map are said together far more often than strangers."""
        events = DataFolder().events(source)
        lon, lat = (events[name].to_numpy() for name in ("lon", "lat"))
        said: dict[str, set[tuple[float, float]]] = {}
        for words, *place in zip(events["keywords"].to_pylist(), lon, lat, strict=True):
            for word in words or ():
                said.setdefault(word, set()).add(tuple(place))

        def nearest(local: bool) -> float:
            """How far it is, at the median, to where a message's words are really said."""
            table = workload("lf", source=source, local=local).event_table(100)
            far = []
            for row in table.to_pylist():
                for word in row["keywords"]:
                    spots = np.array([*said[word]])
                    far.append(np.hypot(*(spots - (row["lon"], row["lat"])).T).min())
            return float(np.median(far))

        assert nearest(True) < 0.2 * nearest(False)

    @pytest.mark.parametrize("source", ["nyc_gowalla_venues", "us_geo_hashtags"])
    def test_elaps_on_real_words(self, source):
        real = workload("elaps", source=source, vocabulary=80)
        top = DataFolder().words(source)[0][:80].to_pylist()
        events = real.event_table(300)
        assert [field.name for field in events["attributes"].type] == top
        places = set(zip(*DataFolder().places(source), strict=True))
        assert set(zip(events["lon"].to_pylist(), events["lat"].to_pylist(), strict=True)) <= places
        matcher = Matcher(space=real.space)
        matcher.add_subscriptions(real.subscription_table(50))
        assert matcher.match_events(events) is not None

    def test_files_without_places_say_which_have_them(self):
        with pytest.raises(DatasetError, match="sp500_daily has no places; these have: airbnb"):
            DataFolder().places("sp500_daily")
