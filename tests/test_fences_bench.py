"""The experiment of fences, small: right answers, numbers, and no verdicts on small sizes."""

from __future__ import annotations

from functools import cache

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import fences
from nearcast.bench.experiments.base import Plan, settle
from nearcast.bench.plots import series
from nearcast.bench.results import Measurement
from nearcast.bench.runner import measure_all
from nearcast.errors import BenchError


def plan(**given: str) -> Plan:
    return settle(experiments.experiment("fences"), given, quick=True)


@cache
def run() -> tuple[Measurement, ...]:
    return tuple(measure_all(experiments.experiment("fences").trials(plan()), 2))


def test_everybody_tells_the_same() -> None:
    operations = {fences.CIRCLES, fences.ROAMING, fences.POLYGONS, fences.KEPT}
    assert {m.operation for m in run()} == operations
    assert all(m.agreement.exact for m in run())


def test_the_truth_has_something_to_say() -> None:
    for of in (fences._Circles(plan()), fences._Polygons(plan())):
        told = of.truth()
        assert {transition for _, _, transition, _ in told} == {"enter", "exit"}
        assert len(told) > 20
    assert len(fences._roamed(fences._vehicles(plan()))) > 20


def test_a_wrong_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences._Circles, "inside", lambda self, turn: {(turn % 2, 0)})
    trials = experiments.experiment("fences").trials(plan(parts="circles"))
    with pytest.raises(BenchError, match="is wrong"):
        list(measure_all(trials, 1))


def test_small_runs_have_numbers_and_no_verdicts() -> None:
    experiment = experiments.experiment("fences")
    claims = experiment.claims(run())
    assert len(claims) == 8
    assert {claim.met for claim in claims} == {None}
    assert all(series(figure, run()) for figure in experiment.figures)


def test_parts_are_chosen() -> None:
    trials = experiments.experiment("fences").trials(plan(parts="roaming"))
    assert [trial.operation for trial in trials] == [fences.ROAMING]
