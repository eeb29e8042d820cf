"""`nearcast bench moving`: every figure has data, targets are judged, a miss is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import moving
from nearcast.bench.experiments.base import settle
from nearcast.bench.plots import series
from nearcast.bench.results import Measurement, Record
from nearcast.bench.runner import measure_all
from nearcast.bench.tables import grids
from nearcast.errors import BenchError
from nearcast.mobility.simulate import Outcome, simulate
from nearcast.mobility.town_scene import cab_scene, city_scene

TINY = {"subscribers": "2", "steps": "12", "side_km": "20", "f": "500", "beta": "1",
        "methods": "disc,igm,idgm", "live": "40000",
        "sweeps": "f,v,r,live,beta,ramp,cells,alpha,server"}  # fmt: skip


@cache
def ran() -> tuple[Measurement, ...]:
    found = experiments.experiment("moving")
    plan = settle(found, TINY, quick=True)
    return tuple(measure_all(found.trials(plan), repetitions=1))


def test_every_figure_of_the_plane_has_data():
    for figure in experiments.experiment("moving").figures:
        assert bool(series(figure, ran())) is (
            figure.name not in ("cabs", "fig7e", "fig7f", "fig12")
        )


def test_people_in_the_city_miss_nothing():
    scene = city_scene(3, 25, share=0.02)
    out = simulate(scene, "disc")
    assert scene.truth
    assert (out.missed, out.late, out.surplus) == (0, 0, 0)


def test_no_cabs_without_their_data(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEARCAST_DATA", raising=False)
    assert cab_scene(2, 5) is None


def test_the_table_shows_messages_by_cause():
    record = Record("moving", "", {}, {}, "", "2026-11-16T00:00:00+00:00", ran())
    shown = {column for grid in grids(record) for column in grid.columns}
    assert {"messages", "left", "asked"} <= shown
    assert "bytes" not in shown


def test_all_contenders_and_the_floor_run_on_the_same_scene():
    by_name = {m.contender: m.memory for m in ran() if m.operation == moving._SWEEPS["f"]}
    assert set(by_name) == {"disc", "igm", "idgm", "every step", "floor"}
    assert by_name["every step"]["messages"] == 2 * 11
    for memory in by_name.values():
        assert by_name["floor"]["messages"] <= memory["messages"] <= 22
        assert memory["missed"] == memory["late"] == 0


def fake(contender: str, messages: int, **point: Any) -> Measurement:
    memory = {"messages": messages, "missed": 0, "late": 0, "build_ns_p50": 10**6,
              "build_ns_p99": 10**7, "region_bytes_p50": 500}  # fmt: skip
    from tests.test_experiments import measurement

    made: Measurement = measurement(contender, 1.0, operation=moving._SWEEPS["f"], parameters=point,
                                    memory=memory)  # fmt: skip
    return made


def test_targets_are_judged():
    counts = {"disc": 10, "gm": 160, "vm": 14, "every step": 1000, "floor": 6}
    claims = moving.EXPERIMENT.claims(
        [fake(name, count, side_km=200, f=100) for name, count in counts.items()]
    )
    met = {claim.name.partition(": ")[2]: claim.met for claim in claims if claim.name[:3] == "fig"}
    assert met == {"gm beside disc": True, "vm beside disc": False, "every step beside disc": True,
                   "disc beside the floor": True}  # fmt: skip


def test_a_run_that_misses_something_is_refused(monkeypatch: pytest.MonkeyPatch):
    def forgetful(scene: Any, safe_region: str) -> Outcome:
        out = simulate(scene, safe_region)
        out.told.popitem()
        return out

    monkeypatch.setattr(moving, "simulate", forgetful)
    plan = settle(moving.EXPERIMENT, {**TINY, "sweeps": "f", "methods": "disc"}, quick=True)
    with pytest.raises(BenchError, match="disc is wrong"):
        list(measure_all(moving.EXPERIMENT.trials(plan), repetitions=1))


def test_the_printed_methods_are_tuned_as_the_others():
    """β, a changing world, N, α and event indexes; as printed β is 1 where none is given."""
    found = experiments.experiment("moving")
    names = "igm,idgm,igm:printed,idgm:printed"
    given = {"sweeps": "beta,ramp,cells,alpha,server", "methods": names, "beta": "2", "f": "100"}
    ran = {
        trial.operation: {each.name for each in trial.contenders} - {moving.FLOOR, moving.EVERY}
        for trial in found.trials(settle(found, given, quick=True))
    }
    assert list(ran) == [
        moving._SWEEPS[name] for name in ("beta", "ramp", "cells", "alpha", "server")
    ]
    methods = set(names.split(","))
    tuned, ramp, cells, alpha, server = ran.values()
    assert tuned == {f"{name}, β = 2.0" for name in methods} | {"igm, adaptive", "idgm, adaptive"}
    assert ramp == methods | {f"{name}-opt" for name in methods}
    assert cells == methods
    assert alpha == {"idgm", "idgm:printed"}
    assert server == {f"{name}, beq-tree" for name in methods}
