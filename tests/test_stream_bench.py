"""The `stream` experiment: a matcher says what is to be answered; claims are what they say."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from typing import Any

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import by_key, stream, stream_detect, stream_jobs
from nearcast.bench.experiments.base import settle
from nearcast.bench.metrics import Agreement
from nearcast.bench.results import Measurement
from nearcast.bench.runner import measure_all
from nearcast.bench.trial import Timed
from nearcast.datasets.grus import logistics
from nearcast.errors import BenchError

EXPERIMENT = experiments.experiment("stream")
Row = namedtuple("Row", "id vehicle lon lat end")


@pytest.mark.slow
def test_a_stream_with_changes_agrees_with_the_truth():
    plan = settle(EXPERIMENT, {"parts": "match", "joined": "0"}, quick=True)
    (m,) = measure_all(_changing(plan), repetitions=1)
    assert m.agreement.exact
    assert m.agreement.wanted > 0


def _changing(plan):
    for trial in EXPERIMENT.trials(plan):
        if trial.contenders[0].name == stream.CHANGING:
            yield replace(trial, at_most=1)


def measurement(operation: str, contender: str, n: int, seconds: float, **more) -> Measurement:
    return Measurement(
        operation=operation, contender=contender, parameters={"n": n, "changes": 1000, **more},
        work=800_000, unit="event", seconds=(seconds,), first_s=0.0, compile_s=0.0, build_s=0.0,
        resident_bytes=None, memory={}, approximate=False, agreement=Agreement(1, 0, 0),
    )  # fmt: skip


def test_claims_are_rates_losses_and_moments():
    large = 100_000
    claims = {
        each.name: each
        for each in EXPERIMENT.claims(
            [
                measurement(stream.MATCH, stream.SOURCE, large, 2.0),
                measurement(stream.MATCH, stream.GRID, large, 40.0),
                measurement(stream.MATCH, stream.CHANGING, large, 2.5),
                measurement(stream.LATE, "newcomers", large, 8.0, live=1_000_000),
                measurement(stream.LATENCY, "source", large, 0.4),
                measurement(stream.RESTART, "source", 300, 30.0),
            ]
        )
    }
    assert claims["events a second, changes, 100,000 subscriptions"].value == 320_000
    assert claims["events a second, changes, 100,000 subscriptions"].target == 250_000
    assert claims["loss to changes, 100,000"].value == pytest.approx(0.2)
    assert claims["times a grid join, 100,000"].value == pytest.approx(20)
    assert claims["events a second, newcomers, 100,000 subscriptions"].target == 50_000
    assert claims["p50 from a file to its commit"].target == 0.5
    assert claims["from a start to the first commit"].target is None  # too few to judge it


def test_a_job_that_ends_says_why(monkeypatch):
    monkeypatch.setattr(stream_jobs, "_TIMEOUT_S", 120.0)
    with pytest.raises(BenchError, match="KeyError"):
        stream_jobs.run(job="source")


def test_a_run_is_timed_by_its_steady_batches(monkeypatch):
    said = {"seconds": [9.0, 1.0], "rows": [400, 400], "first_s": 1.0}
    monkeypatch.setattr(stream_jobs, "run", lambda **_: said)
    monkeypatch.setattr(stream, "_found", lambda _: None)
    plan = settle(EXPERIMENT, {}, quick=True)
    data = stream._Data(plan, 20, 2, 30, 4)
    timed = data.job("source", "changes", 2).run()
    assert isinstance(timed, Timed)
    assert (timed.seconds, data.work) == (1.0, 30)
    data.close()


def test_the_rival_by_key_finds_the_runs_that_events_were_made_for():
    """Whatever batches they come in, and in bits."""
    source: Any = logistics(30, 600, 1)
    depots = [by_key._depot(text) for text in source.texts]
    found = []
    waiting: dict[int, list] = {}
    for size in (7, 1, 50, 600):
        for first in range(0, len(source.events), size):
            batch: dict[int, list] = {}
            for event in source.events[first : first + size]:
                vehicle = int(event.attributes["id"])
                row = Row(event.id, vehicle, event.location.x, event.location.y, event.end / 1e6)
                batch.setdefault(vehicle % 10_000_000, []).append(row)
            for key, rows in batch.items():
                take = by_key._fours if depots[key] is None else by_key._pairs
                leaves = source.texts[key].startswith("=|(@")
                told, waiting[key] = take(rows, waiting.get(key, []), depots[key], leaves)
                found += [(key, tuple(ids)) for ids in told]
        assert sorted(found) == sorted(source.runs)
        found, waiting = [], {}


def test_claims_of_what_remembers():
    large = {"composites": 15_000, "cores": 2}
    claims = {
        each.name: each
        for each in EXPERIMENT.claims(
            [
                measurement(stream_detect.DETECT, "2 shards", 0, 50.0, **large),
                measurement(stream_detect.DETECT, "8 shards", 0, 20.0, **large, rival=True),
                measurement(stream_detect.DETECT, "Python by key", 0, 80.0, **large, rival=True),
                measurement(stream_detect.FENCES, "2 shards", 0, 8.0, objects=100_000, cores=1),
                measurement(stream.MATCH, stream.CHANGING, 100_000, 2.5),
                measurement(stream.MATCH, stream.ANEW, 100_000, 50.0),
            ]
        )
    }
    assert claims["detect, 2 shards"].target == 15_000
    assert claims["detect, times Python by key"].value == pytest.approx(4)
    assert claims["fences, 2 shards, 1 cores"].target is None
    assert claims["times a grid join started anew, 100,000"].value == pytest.approx(20)
