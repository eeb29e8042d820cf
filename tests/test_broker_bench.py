"""The broker experiment, small: right answers, numbers, and no verdicts on small sizes."""

from __future__ import annotations

from functools import cache

from nearcast.bench import experiments
from nearcast.bench.experiments import broker
from nearcast.bench.experiments.base import settle
from nearcast.bench.plots import series
from nearcast.bench.results import Measurement
from nearcast.bench.runner import measure_all


@cache
def run() -> tuple[Measurement, ...]:
    experiment = experiments.experiment("broker")
    return tuple(measure_all(experiment.trials(settle(experiment, {}, quick=True)), 2))


def test_everybody_tells_the_same() -> None:
    operations = {broker.PUBLISH, broker.SUBSCRIBE, broker.MOVE, broker.STRANGERS}
    assert {m.operation for m in run()} == operations
    assert all(m.agreement.exact for m in run())


def test_about_as_many_match_as_were_asked_for() -> None:
    experiment = experiments.experiment("broker")
    town = broker._Town(settle(experiment, {"events": "400"}, quick=True), 2000, 5)
    assert 4 < len(town.pairs(0, 2000)) / 400 < 6


def test_small_runs_have_numbers_and_no_verdicts() -> None:
    experiment = experiments.experiment("broker")
    claims = experiment.claims(run())
    assert len(claims) == 17
    assert {claim.met for claim in claims} == {None}
    assert all(series(figure, run()) for figure in experiment.figures)


def test_parts_are_chosen() -> None:
    experiment = experiments.experiment("broker")
    plan = settle(experiment, {"parts": "move", "subscriptions": "50"}, quick=True)
    assert [trial.operation for trial in experiment.trials(plan)] == [broker.MOVE]
