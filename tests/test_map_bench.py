"""The map experiment, small: real browsers, what they show, and no verdicts on small sizes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import map as experiment_of_the_map
from nearcast.bench.experiments.base import settle
from nearcast.bench.metrics import Agreement
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.runner import measure_all
from nearcast.errors import BenchError

FRAMES, FIRST, WATCH = "frames", "first", "watch"


@pytest.mark.needs("chromium")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the browser costs")
def test_a_map_is_measured_and_not_judged_by_small_sizes():
    experiment = experiments.experiment("map")
    said = {"parts": "frames,first", "movers": "50", "people": "10"}
    found = list(measure_all(experiment.trials(settle(experiment, said, quick=True)), 1))
    assert [(m.operation, m.contender) for m in found] == [
        (FRAMES, "empty"), (FRAMES, "movers"), (FIRST, "first picture"),
    ]  # fmt: skip
    assert all(m.agreement.exact for m in found)
    assert all(m.spread.median > 0 for m in found)
    claims = {claim.name: claim for claim in experiment.claims(found)}
    assert claims["the first picture"].met is None
    assert claims["a frame with 50 movers against an empty map"].met is None
    assert claims["the whole page"].met


def measured(operation: str, contender: str, seconds: Sequence[float], movers: int) -> Measurement:
    return Measurement(
        operation, contender, {"movers": movers}, 1, "frame", tuple(seconds), 0.0, 0.0, 0.0, None,
        {"gzipped bytes": 650_000}, False, Agreement(1, 0, 0),
    )  # fmt: skip


def test_large_runs_are_judged():
    found = [
        measured(FRAMES, "empty", [0.1] * 3, 20_000),
        measured(FRAMES, "movers", [0.17] * 3, 20_000),
        measured(FIRST, "first picture", [1.5] * 3, 2000),
        measured(WATCH, "nobody", [0.2] * 3, 2000), measured(WATCH, "one page", [0.24] * 3, 2000),
    ]  # fmt: skip
    claims: list[Claim] = [*experiments.experiment("map").claims(found)]
    verdicts = {claim.name: claim.met for claim in claims if claim.met is not None}
    assert verdicts == {
        "a frame with 20,000 movers against an empty map": False,
        "the first picture": True,
        "the whole page": True,
        "one page that watches": True,
    }


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch):
    experiment = experiments.experiment("map")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BenchError, match="apt install chromium"):
        next(iter(experiment.trials(settle(experiment, {}, quick=True))))
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(BenchError, match="pip install playwright"):
        next(iter(experiment_of_the_map.EXPERIMENT.trials(settle(experiment, {}, quick=True))))
