"""Whole runs against a client that reports every step, and proof that a miss is noticed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nearcast.mobility.impact_index.regions import Regions
from nearcast.mobility.methods import METHODS
from nearcast.mobility.safe_region import Ball, Cells, SafeRegion
from nearcast.mobility.scene import plane_scene
from nearcast.mobility.simulate import baseline, simulate
from nearcast.mobility.statistics import TURNS, Arrivals, Density, Motion, Turns

#: Dense and long-lived: what hides in sparse, short-lived scenes comes to light here.
DENSE = plane_scene(12_000.0, 5, 80, radius=1000.0, arrivals=60.0, live=20_000, share=0.01)


@pytest.mark.parametrize("name", METHODS)
def test_nobody_misses_anything(name):
    out = simulate(DENSE, name, cells=100)
    assert len(DENSE.truth) > 60
    assert (out.missed, out.late, out.surplus) == (0, 0, 0)
    assert out.told == DENSE.truth
    assert set(out.delay_steps) == {0}
    assert DENSE.floor <= out.exchanges <= baseline(DENSE).exchanges
    assert out.bytes_down > 0
    assert out.server_s > 0


def test_a_region_that_is_too_large_is_noticed():
    def blown_up(region: SafeRegion) -> SafeRegion:
        shape = region.shape
        assert isinstance(shape, Cells)
        return SafeRegion(region.epoch, replace(shape, discs=()))

    assert simulate(DENSE, tampered=blown_up).missed > 0


def test_an_anywhere_region_is_noticed():
    everywhere = Ball("planar", 0.0, 0.0, float("inf"))
    out = simulate(DENSE, tampered=lambda region: SafeRegion(region.epoch, everywhere))
    assert out.missed > 0


def test_an_impact_region_that_is_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch):
    honest = Regions.concerned

    def half(self: Regions, slots: Any, x: float, y: float) -> Any:
        return honest(self, slots, x, y) if int(x) % 2 == 0 else (slots[:0], 0)

    monkeypatch.setattr(Regions, "concerned", half)
    out = simulate(DENSE)
    assert out.missed + out.late > 0


def test_a_request_that_is_never_sent_is_noticed():
    out = simulate(DENSE, deaf=lambda i: True)
    assert out.missed + out.late > 0


def test_disc_sends_fewer_messages_than_the_grid_methods_and_vm():
    scene = plane_scene(50_000.0, 5, 150, arrivals=100.0)
    counts = {name: simulate(scene, name).exchanges for name in ("disc", "igm", "vm")}
    assert counts["disc"] * 1.3 < counts["vm"]
    assert counts["disc"] * 1.3 < counts["igm"]
    assert counts["disc"] <= 1.3 * scene.floor


def test_knowing_the_future_costs_nothing_and_misses_nothing():
    out = simulate(DENSE, "igm", knowing=True, cells=100)
    assert (out.missed, out.late, out.surplus) == (0, 0, 0)
    calm = plane_scene(50_000.0, 5, 150, arrivals=100.0)
    redrawn, kept = (simulate(calm, "igm", knowing=knows).left for knows in (True, False))
    assert redrawn <= 1.2 * kept, "a region that was redrawn for nothing is taken"


class TestStatistics:
    def test_the_rate_follows_the_stream(self):
        arrivals = Arrivals(quick_s=50.0)
        for step in range(400):
            arrivals.add(10, step * 1_000_000)
        assert arrivals.rate(400_000_000) == pytest.approx(10, rel=0.05)
        for step in range(400, 800):
            arrivals.add(40, step * 1_000_000)
        assert arrivals.rate(800_000_000) == pytest.approx(40, rel=0.05)

    def test_few_arrivals_are_counted_over_hours(self):
        arrivals = Arrivals()
        for step in range(20):
            arrivals.add(1, step * 600_000_000)
        assert arrivals.rate(12_000_000_000) == pytest.approx(1 / 600, rel=0.2)

    @pytest.mark.parametrize("space", ["planar", "globe"])
    def test_the_density_is_where_events_are(self, space):
        density = Density(space, 0.5 if space == "planar" else 60_000.0)
        rng = np.random.default_rng(1)
        density.add(rng.random(5000), rng.random(5000), 0)
        inside, outside = density.share(np.array([0.5, 7.3]), np.array([0.5, 7.3]))
        unit = 1.0 if space == "planar" else (111_195.0**2)
        assert inside * unit == pytest.approx(1.0, rel=0.35)
        assert outside < inside / 10

    @pytest.mark.parametrize("space", ["planar", "globe"])
    def test_one_arrival_counts_where_many_do(self, space):
        """Far away too, where the numbers of cells are beyond any table."""
        many, one = (Density(space, 0.5 if space == "planar" else 60_000.0) for _ in range(2))
        rng = np.random.default_rng(3)
        scale = 10.0 ** rng.uniform(0, 2 if space == "globe" else 15, 300)
        x, y = rng.uniform(-1, 1, (2, 300)) * (scale if space == "planar" else [[180.0], [90.0]])
        for at_x, at_y in zip(x.tolist(), y.tolist(), strict=True):
            many.add(np.array([at_x]), np.array([at_y]), 0)
            one.add_one(at_x, at_y, 0)
            assert one.share(x[:9], y[:9]).tolist() == many.share(x[:9], y[:9]).tolist()

    @pytest.mark.parametrize("space", ["planar", "globe"])
    def test_the_share_within_a_circle_is_that_of_the_events_in_it(self, space):
        density = Density(space, 0.1 if space == "planar" else 11_000.0)
        rng = np.random.default_rng(1)
        density.add(4 * rng.random(50_000), 4 * rng.random(50_000), 0)
        unit = 1.0 if space == "planar" else 111_195.0
        for radius in (0.5, 1.0, 1.5):
            share = density.within(2.0, 2.0, radius * unit)
            assert share == pytest.approx(np.pi * radius**2 / 16, rel=0.2)
        assert density.within(2.0, 2.0, 1e9 * unit) <= 1.0
        assert density.within(2.0, 2.0, -1.0) == 0.0

    def test_old_places_are_forgotten(self):
        density = Density("planar", 1.0, tau_s=10.0)
        for step in range(1000):
            there = np.array([0.5 if step < 500 else 9.5])
            density.add(there, there, step * 1_000_000)
        old, new = density.share(np.array([0.5, 9.5]), np.array([0.5, 9.5]))
        assert new > 20 * old

    def test_speed_heading_and_turns_are_learnt(self):
        turns = Turns()
        motion = Motion(0.0, 0.0, 0)
        for step in range(1, 60):
            motion.report("planar", 0.0, 50.0 * step, step * 5_000_000, None, None, turns)
        assert motion.speed == pytest.approx(10.0, rel=0.01)
        assert motion.heading == pytest.approx(0.0)
        assert turns.weights(motion.turns)[0] > 0.6

    @pytest.mark.parametrize(("before", "after"), [(350, 10), (10, 350), (100, 120), (0, 340)])
    def test_a_turn_goes_the_short_way_round(self, before, after):
        motion = Motion(0.0, 0.0, 0, heading=before)
        way = math.radians(after)
        motion.report(
            "planar", 9 * math.sin(way), 9 * math.cos(way), 5_000_000, None, None, Turns()
        )
        assert motion.turns.tolist() == [1.0 if turn == 20.0 else 0.0 for turn in TURNS]

    def test_speed_follows_within_a_minute(self):
        """10 m/s, then 20 m/s for as long as the time constant: 20 − 10/e remain."""
        turns, motion = Turns(), Motion(0.0, 0.0, 0)
        motion.report("planar", 0.0, 600.0, 60_000_000, None, None, turns)
        assert motion.speed == pytest.approx(10.0)
        motion.report("planar", 0.0, 1800.0, 120_000_000, None, None, turns)
        assert motion.speed == pytest.approx(20 - 10 / math.e)

    def test_a_turn_counts_by_how_much_of_the_region_was_crossed(self):
        for moved, size, weight in ((10.0, 100.0, 0.1), (300.0, 100.0, 1.0), (10.0, 0.0, 1.0)):
            motion = Motion(0.0, 0.0, 0, heading=0.0)
            motion.report("planar", moved, 0.0, 5_000_000, None, None, Turns(), size)
            # eastwards instead of northwards: 90°, the last degree of the bin from 60° on
            assert motion.turns.tolist() == pytest.approx([0, 0, 0, 0, 0, 0, weight, 0, 0])

    def test_own_turns_outweigh_everybodys_as_they_come_in(self):
        """Everybody's count as 20: at first a fifth of them are straight on."""
        turns, own = Turns(), np.zeros(9)
        assert turns.weights(own)[0] == pytest.approx(0.2)
        own[0] = 20.0
        assert turns.weights(own)[0] == pytest.approx((20 + 20 * 0.2) / 40)
        assert turns.weights(own).sum() == pytest.approx(1.0)
        own[0], own[8] = 0.0, 60.0
        assert turns.weights(own)[8] == pytest.approx((60 + 20 * 0.075) / 80)

    @pytest.mark.parametrize(
        ("space", "y", "shrunk"), [("planar", 60.4, 1.0), ("globe", 60.4, 0.494)]
    )
    def test_a_density_is_a_share_by_area(self, space, y, shrunk):
        """All events in one cell of 1 km; away from the equator it is narrower than high."""
        density = Density(space, 1000.0)
        density.add(np.full(50, 0.001), np.full(50, y), 0)
        there, elsewhere = density.share(np.array([0.001, 30_000.0]), np.array([y, y]))
        # A fiftieth is spread over as many cells as are in use, so nowhere is for ever quiet.
        assert there * 1e6 * shrunk == pytest.approx(1.0, rel=1e-3)
        assert elsewhere * 1e6 * shrunk == pytest.approx(0.02 / 1.02, rel=1e-3)
