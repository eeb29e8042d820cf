"""The `spark` experiment: every contender gives the same answer, and claims say what they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Broker, Circle, Fence
from nearcast.bench import experiments
from nearcast.bench.experiments import spark
from nearcast.bench.experiments.base import settle
from nearcast.bench.experiments.spark_history import HISTORY, transitions, wander
from nearcast.bench.metrics import Agreement
from nearcast.bench.results import Measurement
from nearcast.bench.runner import measure_all
from nearcast.clock import to_datetime
from nearcast.errors import BenchError
from nearcast.model.codec import events_from_arrow

EXPERIMENT = experiments.experiment("spark")


@cache
def ran() -> tuple[Measurement, ...]:
    plan = settle(EXPERIMENT, {"index": "scan"}, quick=True)
    return tuple(measure_all(EXPERIMENT.trials(plan), repetitions=1))


@pytest.mark.slow
def test_all_contenders_agree_with_the_truth():
    found = {(m.operation, m.contender): m for m in ran()}
    assert set(found) == {
        (spark.WHOLE, "broadcast"),
        (spark.WHOLE, "partitioned"),
        (spark.WHOLE, "grid join, 1000 m"),
        (spark.READY, "bare, 2 cores"),
        (spark.READY, "Spark, 2 cores"),
        (spark.READY, "Spark on files, 2 cores"),
        (spark.NESTED, "nested loop"),
        (spark.NESTED, "broadcast"),
        (HISTORY, "fences"),
        (HISTORY, "fences on files"),
        (HISTORY, "windows, 1000 m"),
    }
    for m in found.values():
        assert m.agreement.exact
        assert m.agreement.wanted > 0
    memory = found[spark.READY, "Spark, 2 cores"].memory
    assert memory["index file"] > 0
    assert memory["workers"] >= 1


def test_transitions_by_definition_are_what_a_broker_tells():
    random = np.random.default_rng(3)
    positions = pa.concat_tables(wander(random, 150))
    fences = [
        Fence(f"f{i}", "ops", "truck", Circle(8 + random.random(), 47 + 0.7 * random.random(), 4e3))
        for i in range(60)
    ]
    broker = Broker()
    broker.subscribe_many(fences)
    given = positions.sort_by([("end", "ascending"), ("id", "ascending")])
    told = broker.publish_many(events_from_arrow(given))
    found = transitions(positions, fences).to_pylist()
    assert len(found) > 500
    assert {each["transition"] for each in found} == {"enter", "exit"}
    assert sorted(
        (each["fence_id"], each["object"], each["transition"], each["event_id"], each["at"])
        for each in found
    ) == sorted(
        (n.subscription_id, n.object, n.transition, n.event.id, to_datetime(n.at)) for n in told
    )


def measurements(n: int) -> list[Measurement]:
    """As after a run with one core and two, from 1 s to 40 s."""
    blank = Measurement(
        operation="", contender="", parameters={}, work=1, unit="event", seconds=(1.0,),
        first_s=0.0, compile_s=0.0, build_s=0.0, resident_bytes=None, memory={},
        approximate=False, agreement=Agreement(1, 0, 0),
    )  # fmt: skip
    seconds = {
        (spark.WHOLE, "broadcast"): 2.0,
        (spark.WHOLE, "partitioned"): 4.0,
        (spark.WHOLE, "grid join, 500 m"): 40.0,
        (spark.WHOLE, "grid join, 1000 m"): 60.0,
        (spark.READY, "bare, 1 core"): 2.0,
        (spark.READY, "Spark, 1 core"): 3.8,
        (spark.READY, "bare, 2 cores"): 1.0,
        (spark.READY, "Spark, 2 cores"): 2.0,
    }
    memory = {"index file": 1000, "workers": 2, "copied": 50}
    return [
        replace(
            blank, operation=operation, contender=contender, seconds=(taken,), memory=memory,
            parameters={"workload": "mo", "n": n},
        )
        for (operation, contender), taken in seconds.items()
    ] + [
        replace(
            blank, operation=spark.NESTED, contender="nested loop", seconds=(1 + few / 1000,),
            work=few, parameters={"workload": "mo", "n": few},
        )
        for few in (1000, 2000)
    ]  # fmt: skip


def test_claims_are_judged_at_the_targets_size():
    claims = {c.name.partition(", mo")[0]: c for c in EXPERIMENT.claims(measurements(1_000_000))}
    assert claims["times a grid join in SQL, broadcast"].met is True
    assert claims["times a grid join in SQL, partitioned"].value == 10
    assert claims["share of the bare rate, Spark, 2 cores"].met is False
    assert claims["two cores against one, Spark"].value == pytest.approx(1.9)
    assert claims["the index copied by workers, Spark, 2 cores"].met is True
    nested = claims["nested-loop join"]
    assert nested.value == pytest.approx(3 + (1e12 - 4e6) / 3e6)
    assert "extrapolated from 1,000 and 2,000, not measured" in nested.name
    assert {c.met for c in EXPERIMENT.claims(measurements(1000))} == {None}


def test_a_grid_join_that_would_take_too_long_is_extrapolated():
    small = [
        replace(m, parameters={"workload": "mo", "n": few}, seconds=(seconds,), work=few)
        for few, seconds in ((1000, 2.0), (2000, 5.0))
        for m in measurements(few)
        if m.contender == "grid join, 500 m"
    ]
    large = [m for m in measurements(1_000_000) if not m.contender.startswith("grid join")]
    claims = {c.name: c for c in EXPERIMENT.claims([*small, *large])}
    said = "extrapolated from 1,000 and 2,000, not measured"
    ratio = claims[f"times a grid join in SQL, broadcast, mo, 1,000,000: {said}"]
    assert ratio.value == pytest.approx((5 + (1e12 - 4e6) / 1e6) / 2)
    assert ratio.met is None
    assert "times a grid join in SQL, broadcast, mo, 1,000,000" not in claims


def test_an_unknown_source_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spark, "Engine", lambda _: type("Idle", (), {"close": lambda _: None})())
    plan = settle(EXPERIMENT, {"workloads": "taxis"}, quick=True)
    with pytest.raises(BenchError, match="none of mo, cabs"):
        list(EXPERIMENT.trials(plan))
