"""The composite experiment, small: right answers, numbers, and no verdicts on small sizes."""

from __future__ import annotations

from functools import cache

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import composite
from nearcast.bench.experiments.base import settle
from nearcast.bench.plots import series
from nearcast.bench.results import Measurement
from nearcast.bench.runner import measure_all
from nearcast.datasets.grus import logistics
from nearcast.errors import DatasetError


@cache
def run() -> tuple[Measurement, ...]:
    experiment = experiments.experiment("composite")
    return tuple(measure_all(experiment.trials(settle(experiment, {}, quick=True)), 1))


def test_everybody_finds_the_same() -> None:
    assert {m.operation for m in run()} == {
        composite.DETECT, composite.FIND, composite.STREAM, composite.SAFE, composite.REGISTER,
        composite.CHANGE, composite.EXTENT, composite.ENTRY, composite.CURVE,
        *(composite.GROWING.format(name) for name in ("taxis", "shopping")),
    }  # fmt: skip
    assert all(m.agreement.exact for m in run())


def test_clients_that_detect_hear_every_event() -> None:
    messages = {m.contender: m.memory["messages"] for m in run() if m.operation == composite.DETECT}
    assert messages == {"batch": 50, "one by one": 50, "clients detect (SIENA)": 120}


def test_curves_have_the_memory_of_broker_and_clients() -> None:
    held = {
        (m.contender, m.parameters["events"]): m.memory
        for m in run()
        if m.operation == composite.CURVE
    }
    assert {events for _, events in held} == {60, 120}
    for (who, _), memory in held.items():
        assert memory["total"] > 0
        assert (memory["client"] > 0) is (who != "Grus"), "who detects has something to keep"
    grown = [m for m in run() if m.operation == composite.GROWING.format("taxis")]
    assert {m.contender for m in grown} == {"plain loop", "index", "detector"}
    assert len({(m.parameters["subscriptions"], m.parameters["positions"]) for m in grown}) == 4


def test_small_runs_have_numbers_and_no_verdicts() -> None:
    experiment = experiments.experiment("composite")
    claims = experiment.claims(run())
    assert len(claims) > 10
    assert {claim.met for claim in claims} == {None}
    assert all(series(figure, run()) for figure in experiment.figures)


def test_the_logistics_runs_have_two_and_four_events() -> None:
    source = logistics(30, 120)
    assert len(source.events) == 120
    lengths = [len(parts) for _, parts in source.runs]
    assert (lengths.count(2), lengths.count(4)) == (40, 10)
    assert logistics(30, 120).events == source.events
    with pytest.raises(DatasetError):
        logistics(10, 120)
