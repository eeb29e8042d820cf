"""The city: connected roads, movers that keep to them, offers that find their people."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import shapely

from nearcast.clock import to_micros
from nearcast.datasets import City, workload
from nearcast.datasets.columns import TIME
from nearcast.datasets.globe import bearing_deg, haversine_m, to_lonlat, to_plane
from nearcast.datasets.market import CATEGORIES, TAGS
from nearcast.datasets.movers import BY_CAR, ON_FOOT, Movers, Routes, people
from nearcast.datasets.proximity import gabriel_edges
from nearcast.datasets.roads import ARTERIAL, MOTORWAY, SPEED_M_S, STREET, RoadNetwork
from nearcast.datasets.streams import generator
from nearcast.errors import DatasetError, ValidationError
from nearcast.model.filters import Filter


@pytest.fixture(scope="module")
def city() -> City:
    return City(seed=3, radius_m=2500, n_shops=200, n_targets=16)


@pytest.fixture(scope="module")
def whole_city() -> City:
    return City(seed=1)


def table(batches) -> pa.Table:
    return pa.Table.from_batches(list(batches)).combine_chunks()


class TestRoads:
    @pytest.mark.parametrize("seed", range(4))
    def test_all_roads_are_connected(self, seed):
        roads = City(seed=seed, radius_m=3000).roads
        assert set(roads.components()) == {0}
        seen, frontier = {0}, [0]
        arcs = roads.arcs
        while frontier:
            node = frontier.pop()
            fresh = set(arcs.head[arcs.first[node] : arcs.first[node + 1]].tolist()) - seen
            seen |= fresh
            frontier += fresh
        assert len(seen) == roads.nodes

    def test_there_are_a_few_thousand_nodes_across_20_km(self, whole_city):
        roads = whole_city.roads
        assert 2000 < roads.nodes < 6000
        assert set(roads.kind) == {MOTORWAY, ARTERIAL, STREET}
        x, y = to_plane(roads.lon, roads.lat, whole_city.lon, whole_city.lat)
        assert 16_000 < np.ptp(x) < 24_000
        assert 16_000 < np.ptp(y) < 24_000
        assert 2.5 < 2 * len(roads.ends) / roads.nodes < 4.5

    def test_streets_do_not_cross_and_are_short(self, city):
        roads = city.roads
        lines = shapely.linestrings(roads.segments().reshape(-1, 2, 2))
        tree = shapely.STRtree(lines)
        i, j = tree.query(lines, predicate="crosses")
        assert len(i) == 0
        assert (i != j).all()
        assert roads.length_m.min() > 20
        assert roads.length_m.max() < 2500

    def test_streets_are_denser_where_it_is_busy(self, whole_city):
        roads, heat = whole_city.roads, whole_city.town.heat
        streets = roads.kind == STREET
        busy = heat[roads.ends].mean(axis=1)
        busy_m, quiet_m = (
            roads.length_m[streets & part].mean() for part in (busy > 0.5, busy < 0.05)
        )
        assert busy_m < 0.65 * quiet_m

    def test_arcs_are_the_roads_both_ways(self, city):
        roads, arcs = city.roads, city.roads.arcs
        assert arcs.head.size == 2 * len(roads.ends)
        assert (arcs.tail[arcs.reverse] == arcs.head).all()
        assert (arcs.head[arcs.reverse] == arcs.tail).all()
        assert arcs.length_m[arcs.reverse] == pytest.approx(arcs.length_m)
        turned = (arcs.heading[arcs.reverse] - arcs.heading) % 360
        assert turned == pytest.approx(180, abs=0.1)

    def test_what_cannot_be_reached_is_dropped(self):
        lon = np.array([0.0, 1.0, 5.0, 2.0, 6.0])
        ends = np.array([[0, 1], [2, 4], [1, 3]])
        roads = RoadNetwork(lon, np.zeros(5), ends, np.array([0, 1, 2], np.int8))
        kept = roads.largest_component()
        assert kept.lon.tolist() == [0.0, 1.0, 2.0]
        assert kept.ends.tolist() == [[0, 1], [1, 2]]
        assert kept.kind.tolist() == [0, 2]

    def test_the_river_has_few_bridges(self, whole_city):
        roads = whole_city.roads
        river = shapely.LineString(whole_city.river)
        lines = shapely.linestrings(roads.segments().reshape(-1, 2, 2))
        wet = shapely.intersects(lines, river)
        assert wet[roads.kind != STREET].sum() >= 4
        assert wet[roads.kind == STREET].sum() < 40

    def test_same_seed_same_city(self, city):
        again = City(seed=3, radius_m=2500, n_shops=200, n_targets=16)
        assert (again.roads.segments() == city.roads.segments()).all()
        assert (again.shops.lon == city.shops.lon).all()
        assert City(seed=4, radius_m=2500).roads.nodes != city.roads.nodes


class TestProximity:
    def test_edges_are_those_of_the_definitions(self):
        points = generator(0, "points").random((60, 2))
        edges, relative = gabriel_edges(points)
        squares = ((points[:, None] - points) ** 2).sum(axis=2)
        gabriel, neighbours = [], []
        for i in range(60):
            for j in range(i + 1, 60):
                others = [k for k in range(60) if k not in (i, j)]
                if all(squares[i, k] + squares[j, k] >= squares[i, j] for k in others):
                    gabriel.append([i, j])
                if all(max(squares[i, k], squares[j, k]) >= squares[i, j] for k in others):
                    neighbours.append([i, j])
        assert edges.tolist() == gabriel
        assert edges[relative].tolist() == neighbours


class TestGlobe:
    def test_distances_and_bearings(self):
        one = np.array([0.0])
        assert haversine_m(0, 0, 0, 1) == pytest.approx(111_195.08, abs=0.01)
        assert bearing_deg(one, one, one + 1, one)[0] == pytest.approx(90, abs=0.01)
        assert bearing_deg(one, one, one, one - 1)[0] == pytest.approx(180)
        lon, lat = to_lonlat(np.array([300.0]), np.array([400.0]), 8.5, 47.4)
        assert haversine_m(8.5, 47.4, lon, lat) == pytest.approx(500, rel=1e-3)
        assert to_plane(lon, lat, 8.5, 47.4)[0] == pytest.approx(300)


class TestRoutes:
    def test_ways_are_the_shortest(self, city):
        """Against a plain Dijkstra over dictionaries."""
        arcs, routes = city.roads.arcs, city._routes
        cost = arcs.length_m / arcs.speed_m_s
        for row in (0, routes.targets.size - 1):
            target = int(routes.targets[row])
            best, heap = {}, [(0.0, target)]
            while heap:
                reached, node = heappop(heap)
                if node in best:
                    continue
                best[node] = reached
                for arc in range(arcs.first[node], arcs.first[node + 1]):
                    heappush(heap, (reached + cost[arc], int(arcs.head[arc])))
            assert len(best) == city.roads.nodes
            for node in range(0, city.roads.nodes, 7):
                spent, here = 0.0, node
                while here != target:
                    arc = routes.way[row, here]
                    assert arcs.tail[arc] == here
                    spent += cost[arc]
                    here = int(arcs.head[arc])
                assert spent == pytest.approx(best[node])

    def test_walkers_shun_motorways_and_nobody_stops_on_them(self, whole_city):
        few = Routes.drawn(generator(0, "few"), whole_city.town, 4)
        arcs, roads = whole_city.roads.arcs, whole_city.roads
        fast = arcs.speed_m_s == SPEED_M_S[MOTORWAY]
        used = [few.way[mode * 4 : mode * 4 + 4] for mode in (BY_CAR, ON_FOOT)]
        by_car, on_foot = (np.mean(fast[way[way >= 0]]) for way in used)
        assert on_foot < by_car
        motorway_nodes = set(roads.ends[roads.kind == MOTORWAY].ravel().tolist())
        assert not motorway_nodes & set(few.targets.tolist())
        assert motorway_nodes.isdisjoint(roads.kerbside.tolist())


def distance_to_roads_m(city: City, lon, lat):
    x, y = to_plane(lon, lat, city.lon, city.lat)
    ends = city.roads.segments()
    ax, ay = to_plane(ends[:, 0], ends[:, 1], city.lon, city.lat)
    bx, by = to_plane(ends[:, 2], ends[:, 3], city.lon, city.lat)
    lines = shapely.linestrings(np.stack([ax, ay, bx, by], axis=1).reshape(-1, 2, 2))
    points = shapely.points(x, y)
    nearest = shapely.STRtree(lines).nearest(points)
    return shapely.distance(points, lines[nearest])


class TestPeople:
    def test_they_keep_to_roads_and_limits(self, city):
        steps = list(city.walk(300, steps=60, step_s=10))
        assert len(steps) == 60
        crowd = people(city.town, city._routes, city.seed, 300)
        for before, after in pairwise(steps):
            assert after.ts - before.ts == 10_000_000
            moved = haversine_m(before.lon, before.lat, after.lon, after.lat)
            assert (moved <= after.speed_m_s * 10 + 0.5).all()
            assert (after.speed_m_s <= crowd._top_m_s + 1e-9).all()
            assert (after.speed_m_s <= SPEED_M_S.max() + 1e-9).all()
        last = steps[-1]
        assert distance_to_roads_m(city, last.lon, last.lat).max() < 0.5
        assert (last.heading >= 0).all()
        assert (last.heading < 360).all()
        assert not last.occupied.any()

    def test_most_walk_some_ride_and_everybody_gets_somewhere(self, city):
        top = people(city.town, city._routes, 0, 5000)._top_m_s
        assert np.mean(top < 2) == pytest.approx(0.7, abs=0.03)
        assert np.mean(top > 10) == pytest.approx(0.1, abs=0.02)
        first, *_, last = city.walk(300, steps=120, step_s=30)
        assert np.mean(haversine_m(first.lon, first.lat, last.lon, last.lat) > 100) > 0.8

    def test_a_long_step_passes_many_nodes(self, city):
        """Everything a mover does in one step of 5 min, it does within its own speed."""
        first, second = city.walk(200, steps=2, step_s=300)
        moved = haversine_m(first.lon, first.lat, second.lon, second.lat)
        assert moved.max() > 1000
        assert (moved <= second.speed_m_s * 300 + 0.5).all()
        assert distance_to_roads_m(city, second.lon, second.lat).max() < 0.5

    def test_they_repeat_themselves_for_a_seed(self, city):
        one, other = ([*city.walk(50, 20, 5)][-1] for _ in range(2))
        assert (one.lon == other.lon).all()
        assert (one.lat == other.lat).all()

    def test_those_who_stand_at_every_choice_go_elsewhere(self, city):
        two = Routes.drawn(generator(9, "two"), city.town, 2)
        crowd = Movers(city.town, two, 0, "x", np.full(9, 20.0), np.zeros(9, int), np.full(9, 1))
        for step in crowd.walk(0, 200, 30):
            assert np.isfinite(step.lon).all()


class TestTaxis:
    def test_columns_and_times(self, city):
        start = "2026-03-01T08:00:00Z"
        found = table(city.traces(7, duration_s=60, step_s=20, start=start, batch_rows=10))
        assert {field.name: field.type for field in found.schema} == {
            "id": pa.string(),
            "ts": TIME,
            "lon": pa.float64(),
            "lat": pa.float64(),
            "occupied": pa.bool_(),
            "speed_m_s": pa.float64(),
            "heading": pa.float64(),
        }
        assert found.num_rows == 7 * 4
        ts = found["ts"].combine_chunks().view(pa.int64()).to_numpy().reshape(4, 7)
        assert ts[:, 0].tolist() == [to_micros(start) + i * 20_000_000 for i in range(4)]
        assert found["id"].to_pylist()[:7] == [f"t{i:08d}" for i in range(7)]
        assert found.equals(table(city.traces(7, 60, 20, start=start)))

    def test_fares_come_and_go_and_speeds_are_legal(self, city):
        cabs = 60
        found = table(city.traces(cabs, duration_s=3600, step_s=15))
        occupied = found["occupied"].to_numpy(zero_copy_only=False).reshape(-1, cabs)
        speed = found["speed_m_s"].to_numpy().reshape(-1, cabs)
        picked_up = occupied[1:] & ~occupied[:-1]
        dropped = ~occupied[1:] & occupied[:-1]
        assert (picked_up.sum(axis=0) > 0).mean() > 0.9
        assert picked_up.sum() > 2 * cabs
        assert dropped.sum() > cabs
        assert 0.1 < occupied.mean() < 0.9
        assert speed.max() <= SPEED_M_S.max() + 1e-9
        assert 3 < speed[1:].mean() < 15
        assert (speed[1:] == 0).any()

    def test_pick_ups_are_where_it_is_busy(self, whole_city):
        cabs = 100
        found = table(whole_city.traces(cabs, duration_s=1800, step_s=15))
        occupied = found["occupied"].to_numpy(zero_copy_only=False).reshape(-1, cabs)
        lon, lat = (found[c].to_numpy().reshape(-1, cabs)[1:] for c in ("lon", "lat"))
        picked_up = occupied[1:] & ~occupied[:-1]
        hot = whole_city.hot_areas
        x, y = lon[picked_up], lat[picked_up]
        near = haversine_m(x[:, None], y[:, None], hot.lon, hot.lat) < 2 * hot.reach_m
        assert near.any(axis=1).mean() > 0.6


class TestOffers:
    def test_they_are_what_shops_sell(self, city):
        offers = table(city.offers(3000, start="2026-05-01T00:00:00Z", rate_hz=10))
        goods = {c.name: {good for good, _ in c.goods} for c in CATEGORIES}
        brands = {c.name: set(c.brands) for c in CATEGORIES}
        vocabulary = {*goods, *TAGS, "sale"}.union(*goods.values())
        for row in offers.slice(0, 300).to_pylist():
            sold = row["attributes"]
            assert sold["product"] in goods[sold["category"]]
            assert sold["brand"] in brands[sold["category"]]
            words = row["keywords"]
            assert words[:2] == [sold["category"], sold["product"]]
            assert ("sale" in words) == (sold["discount"] >= 30)
            assert set(words) <= vocabulary
            assert len(set(words)) == len(words)
            assert sold["price"] > 0
            assert 0 <= sold["discount"] <= 65
            assert 1 <= sold["rating"] <= 5
            assert row["start"] == row["end"] < row["expires"]
        end = offers["end"].combine_chunks().view(pa.int64()).to_numpy()
        assert end[0] >= to_micros("2026-05-01T00:00:00Z")
        assert (np.diff(end) >= 0).all()
        assert end[-1] - end[0] == pytest.approx(300e6, rel=0.01)
        places = set(zip(city.shops.lon, city.shops.lat, strict=True))
        assert set(zip(offers["lon"].to_pylist(), offers["lat"].to_pylist(), strict=True)) <= places
        kinds = {field.name: field.type for field in offers.schema.field("attributes").type}
        assert kinds["open"] == pa.bool_()
        assert kinds["brand"] == pa.string()
        assert kinds["price"] == pa.float64()
        assert (
            0.5
            < offers["attributes"]
            .combine_chunks()
            .field("stock")
            .is_valid()
            .to_numpy(zero_copy_only=False)
            .mean()
            < 0.7
        )

    def test_shops_lie_beside_roads_in_hot_areas(self, whole_city):
        shops, hot = whole_city.shops, whole_city.hot_areas
        assert shops.size == 2500
        assert distance_to_roads_m(whole_city, shops.lon, shops.lat).max() < 0.5
        far = haversine_m(shops.lon[:, None], shops.lat[:, None], hot.lon, hot.lat)
        assert (far < 2 * hot.reach_m).any(axis=1).mean() > 0.6
        assert hot.weight.sum() == pytest.approx(1)


class TestSubscriptions:
    def test_a_share_is_written_in_cql2(self, city):
        found = table(city.subscriptions(4000, text_share=0.25))
        rows = found.to_pylist()
        written = [row for row in rows if row["where"] is not None]
        assert len(written) / len(rows) == pytest.approx(0.25, abs=0.03)
        names = {category.name for category in CATEGORIES}
        for row in rows:
            if row["where"] is None:
                assert row["keywords"][0] in names
            else:
                assert row["intervals"] == []
                assert not names & set(row["keywords"])
            assert row["subscriber"] == "p" + row["id"][1:]
        for text in {row["where"] for row in written[:200]}:
            assert Filter.parse(text).clauses
        for word in ("category = '", "category IN (", "price <= ", "discount >= ", "rating >= "):
            assert any(word in row["where"] for row in written)
        assert any("brand = '" in row["where"] for row in written)
        assert any("open = TRUE" in row["where"] for row in written)

    @pytest.mark.parametrize("share", [0, 1])
    def test_all_or_none_is_written(self, city, share):
        found = table(city.subscriptions(500, text_share=share))
        assert found["where"].null_count == 500 * (1 - share)

    def test_circles_and_expiry(self, city):
        found = table(city.subscriptions(3000, start="2026-05-01T00:00:00Z"))
        radius = found["radius_m"].to_numpy()
        assert radius.min() == 200
        assert radius.max() == 2000
        assert found["expires"].null_count / 3000 == pytest.approx(0.75, abs=0.03)
        leaves = found["expires"].drop_null().combine_chunks().view(pa.int64()).to_numpy()
        assert leaves.min() > to_micros("2026-05-01T00:00:00Z")
        lon, lat = found["lon"].to_numpy(), found["lat"].to_numpy()
        assert distance_to_roads_m(city, lon, lat).max() < 0.5

    def test_an_offer_matches_some_5_to_50_of_100_000(self, whole_city):
        wishes = table(whole_city.subscriptions(100_000, text_share=0))
        lon, lat, radius = (wishes[c].to_numpy() for c in ("lon", "lat", "radius_m"))
        counts = []
        for offer in table(whole_city.offers(60)).to_pylist():
            near = np.flatnonzero(haversine_m(lon, lat, offer["lon"], offer["lat"]) <= radius)
            said, sold = set(offer["keywords"]), offer["attributes"]
            counts.append(
                sum(
                    said.issuperset(row["keywords"])
                    and all(i["low"] <= sold[i["attribute"]] <= i["high"] for i in row["intervals"])
                    for row in wishes.take(near).to_pylist()
                )
            )
        assert 5 < np.mean(counts) < 60
        assert np.mean(np.array(counts) > 0) > 0.8

    def test_the_workload_is_the_city(self, city):
        source = workload("city", seed=3, radius_m=2500, n_shops=200, text_share=0.5)
        assert source.subscription_table(50).equals(
            table(city.subscriptions(50, text_share=0.5)).cast(source.subscription_table(1).schema)
        )
        assert source.event_table(50).equals(table(city.offers(50)))


class TestRefusals:
    @pytest.mark.parametrize(
        "parameters",
        [
            {"seed": -1},
            {"seed": "x"},
            {"lat": 80.0},
            {"lon": 500.0},
            {"radius_m": 10.0},
            {"n_shops": 0},
            {"n_targets": 1},
        ],
    )
    def test_parameters(self, parameters):
        [name] = parameters
        with pytest.raises(DatasetError, match=f"{name}: .* is not valid; give"):
            City(**parameters)

    def test_calls(self, city):
        with pytest.raises(DatasetError, match="text_share: 2"):
            city.subscriptions(1, text_share=2)
        with pytest.raises(DatasetError, match="rate_hz: 0"):
            city.offers(1, rate_hz=0)
        with pytest.raises(DatasetError, match="steps: 0"):
            city.walk(1, 0)
        with pytest.raises(DatasetError, match="movers: 0"):
            city.traces(0, 10)
        with pytest.raises(DatasetError, match="step_s: 0"):
            city.traces(1, 10, step_s=0)
        with pytest.raises(DatasetError, match="duration_s: -1"):
            city.traces(1, -1)
        with pytest.raises(ValidationError, match="start"):
            city.offers(1, start="yesterday")
