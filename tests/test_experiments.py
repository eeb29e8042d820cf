"""The experiments run at tiny sizes, measure what they say, and refuse what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from nearcast.bench import experiments, report, results, tables
from nearcast.bench.experiments import (
    cases,
    event_matching,
    first,
    scores,
    subscription_matching,
)
from nearcast.bench.experiments.base import settle
from nearcast.bench.experiments.changes import Change, LiveChange
from nearcast.bench.metrics import Agreement
from nearcast.bench.plots import series
from nearcast.bench.results import Claim, Measurement, Record
from nearcast.bench.runner import measure, measure_all
from nearcast.bench.trial import Trial
from nearcast.bench.truth import true_live_events, true_matches
from nearcast.cli import app
from nearcast.datasets import workload
from nearcast.datasets.columns import INTERVALS
from nearcast.errors import BenchError
from nearcast.index import registry
from nearcast.index.base import Pairs
from nearcast.matcher import Matcher
from nearcast.model.geometry import Space

#: Quick runs, narrowed to what an experiment is about: who, and how many.
RUNS = {
    "ablation": {"batches": "10"},
    "event-matching": {
        "sweeps": "n,w",
        "sizes": "300",
        "mo_indexes": "scan,pivot",
        "di_indexes": "scan,pivot,ada-rein",
    },
    "maintenance": {"mo_indexes": "pivot", "di_indexes": "pivot", "event_indexes": "pivot"},
    "memory": {"mo_indexes": "scan,pivot", "di_indexes": "scan,pivot", "both": "pivot,scan+scan"},
    "spatio-textual": {"indexes": "lfilter,token-grid", "events": "10", "long_events": "5"},
    "subscription-matching": {"indexes": "scan,pivot", "sizes": "300", "e_max": "64"},
}


@cache
def run(name: str) -> tuple[Measurement, ...]:
    found = experiments.experiment(name)
    plan = settle(found, RUNS[name], quick=True)
    return tuple(measure_all(found.trials(plan), repetitions=1))


def measurement(contender: str, seconds: float, n: int = 1_000_000, **changes: Any):
    given: dict[str, Any] = {
        "operation": "match",
        "contender": contender,
        "parameters": {"n": n},
        "work": 10,
        "unit": "event",
        "seconds": (seconds,),
        "first_s": 0.0,
        "compile_s": 0.0,
        "build_s": 0.0,
        "resident_bytes": None,
        "memory": {"total": 4_000_000_000},
        "approximate": False,
        "agreement": Agreement(1, 0, 0),
        **changes,
    }
    return Measurement(**given)


def verdicts(claims: Sequence[Claim]) -> dict[str, bool | None]:
    return {claim.name: claim.met for claim in claims}


@pytest.mark.parametrize("name", RUNS)
class TestEveryExperiment:
    def test_is_registered_under_its_name(self, name: str):
        assert experiments.experiment(name).name == name
        assert name in experiments.names()

    def test_finds_something_and_nothing_wrong(self, name: str):
        for found in run(name):
            assert found.agreement.wanted > 0, found.operation
            assert found.agreement.exact or found.approximate

    def test_every_figure_has_data(self, name: str):
        for figure in experiments.experiment(name).figures:
            wanted = name != "event-matching" or any(
                m.operation == figure.operation for m in run(name)
            )
            assert bool(series(figure, run(name))) is wanted

    def test_a_small_run_has_numbers_and_no_verdicts(self, name: str):
        claims = experiments.experiment(name).claims(run(name))
        assert claims
        sized = [claim for claim in claims if not claim.name.startswith("the call from Python")]
        assert {claim.met for claim in sized} == {None}

    def test_contenders_and_settings_exist(self, name: str):
        for setting in experiments.experiment(name).settings:
            if "indexes" in setting.name or setting.name in ("batchers", "meanwhile"):
                assert {str(v) for v in setting.values} <= set(registry.names())


class TestFirst:
    """Real processes from an empty cache; how long they take is not a test's business."""

    def test_answers_are_judged_and_compared_with_goals(self):
        found = experiments.experiment("first")
        ran = list(measure_all(found.trials(settle(found, {}, quick=True)), repetitions=1))
        assert [(m.parameters["what"], m.contender) for m in ran] == [
            ("README", "empty cache"), ("broker", "empty cache"),
        ]  # fmt: skip
        assert all(m.agreement.exact and min(m.seconds) > 0 for m in ran)
        assert [claim.target for claim in found.claims(ran)] == [1.0, 2.5]

    def test_the_readme_is_what_is_timed(self):
        readme = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")
        for line in first._SCRIPTS["README"].strip().splitlines()[1:-1]:
            assert line in readme

    def test_a_process_that_fails_is_no_measurement(self):
        with pytest.raises(BenchError, match="ZeroDivisionError"):
            first._timed("print(1 / 0)", 1)

    def test_what_nobody_knows_is_refused(self):
        found = experiments.experiment("first")
        with pytest.raises(BenchError, match="what=nothing"):
            list(found.trials(settle(found, {"what": "nothing"}, quick=True)))


def test_the_report_has_the_command_under_every_figure(tmp_path: Path):
    name = "memory"
    found = experiments.experiment(name)
    command = "nearcast bench memory --quick"
    record = Record(
        name, command, {}, {}, "0123", "2026-11-15T12:00:00+00:00", run(name),
        tuple(found.claims(run(name))),
    )  # fmt: skip
    text = report.render([record], lambda _: found.figures, tmp_path)
    assert text.count("<figure>") == len(found.figures)
    assert text.count(f"<code>{command}</code>") == 1 + len(found.figures)
    assert len(list(tmp_path.glob("memory/*.png"))) == len(found.figures)


def test_n_is_a_setting_by_another_name(tmp_path: Path):
    few = ("--set", "workloads=mo", "--set", "mo_indexes=scan", "--set", "both=scan")
    words = ["bench", "memory", "--quick", "--n", "150", *few, "--no-plots", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (kept,) = results.load_all(tmp_path)
    assert kept.settings["n"] == (150,)
    assert "--set n=150" in kept.command
    assert {m.work for m in kept.measurements} == {150}


class TestCases:
    def test_an_approximate_index_is_shown_as_it_is(self):
        case = cases.Case.draw(workload("di", w=0.8), 2000, 20, seed=1)
        raw = case.filled("ada-rein", tolerance=0.9).match_events(case.events)
        assert raw.num_rows > true_matches(case.subscriptions, case.events).num_rows

    def test_a_wrong_index_is_refused(self, monkeypatch: pytest.MonkeyPatch):
        case = cases.Case.draw(workload("mo"), 200, 5, seed=1)
        team = cases.Team(case)
        among = cases.contenders(("scan",), lambda i: cases.all_at_once(case, team.matcher, i))
        right = Trial("match", among, lambda: case.truth)
        assert measure(right, repetitions=1)[0].agreement.exact

        def half(self: cases.BareMatcher, pairs: Pairs, *_: object) -> Pairs:
            return pairs[0][1:], pairs[1][1:]

        monkeypatch.setattr(cases.BareMatcher, "_verified", half)
        with pytest.raises(BenchError, match="scan is wrong"):
            measure(right, repetitions=1)

    def test_a_matcher_is_built_once(self):
        team = cases.Team(cases.Case.draw(workload("mo"), 50, 5, seed=1))
        first = team.matcher("scan")
        assert team.matcher("scan") is first
        team.release()
        assert team.matcher("scan") is not first

    def test_many_matches_mean_few_events(self):
        case = cases.Case.draw(workload("di", k=1, w=1.0), 100, 50, seed=1)
        assert case.within(1000).events.num_rows == 10
        assert case.within(10**6).events.num_rows == 50

    def test_what_fits_into_memory_stays_together(self):
        names = ["scan", "a", "b", "c"]
        bytes_each = {"scan": 1.0, "a": 4.0, "b": 4.0, "c": 4.0}
        assert cases.groups(names, 10, bytes_each.__getitem__, 10**6) == [names]
        apart = cases.groups(names, 10, bytes_each.__getitem__, 90)
        assert apart == [["scan", "a", "b"], ["scan", "c"]]


class TestChanges:
    def test_moving_and_coming_change_the_truth(self):
        change = Change.draw("mo", 200, changes=100, events=10, seed=1)
        assert change.truth_moved != change.case.truth
        assert [s.id for s in change.movers] == [s.id for s in change.stayers]
        newcomers = {s.id for s in change.newcomers}
        assert not newcomers & set(change.case.subscriptions["id"].to_pylist())

    def test_those_who_ask_see_newcomers(self):
        change = LiveChange.draw(200, changes=10, seed=1)
        assert change.truth_with.num_rows >= change.truth.num_rows + change.asking.num_rows


@pytest.mark.parametrize("name", ["mo", "di"])
def test_the_truth_is_the_same_from_both_sides(name: str):
    source = workload(name, seed=2, **({"k": 4} if name == "mo" else {"w": 0.8}))
    wanted, events = source.subscription_table(300), source.event_table(200)
    keys = [("event_id", "ascending"), ("subscription_id", "ascending")]
    one, other = true_matches(wanted, events), true_live_events(wanted, events)
    assert one.num_rows > 0
    assert one.sort_by(keys) == other.sort_by(keys)


@pytest.mark.parametrize("space", ["planar", "globe"])
def test_the_truth_knows_circles(space: Space):
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(8, 9, 60), rng.uniform(47, 48, 60)
    radius = rng.uniform(0.1, 0.4, 12) * (1.0 if space == "planar" else 100_000.0)
    wanted = pa.table(
        {
            "id": [f"s{i}" for i in range(12)],
            "intervals": pa.array([[]] * 12, INTERVALS),
            "lon": lon[:12],
            "lat": lat[:12],
            "radius_m": radius,
        }
    )
    nothing = pa.array([{"a": None}] * 60, pa.struct([("a", pa.float64())]))
    ids = [f"e{i}" for i in range(60)]
    events = pa.table({"id": ids, "attributes": nothing, "lon": lon, "lat": lat})
    keys = [("event_id", "ascending"), ("subscription_id", "ascending")]
    matcher = Matcher(space=space)
    matcher.add_subscriptions(wanted)
    found = true_live_events(wanted, events, space).sort_by(keys)
    assert found.num_rows > 20
    assert found == matcher.match_events(events).sort_by(keys)


def test_one_subscription_against_words_with_frequencies():
    """Elaps' own workload: circles, open intervals, and each part of a question alone."""
    found = experiments.experiment("subscription-matching")
    given = {
        "workload": "elaps",
        "indexes": "scan,beq-tree,op-index",
        "sizes": "300",
        "e_max": "64",
        "sweeps": "n,k,radius,split",
    }
    plan = settle(found, given, quick=True)
    measured = list(measure_all(found.trials(plan), repetitions=1))
    asked = {m.parameters["asked"]: m for m in measured if "asked" in m.parameters}
    assert set(asked) == {"whole", "Boolean", "spatial"}
    whole = asked["whole"].agreement.wanted
    assert 0 < whole <= min(asked[part].agreement.wanted for part in ("Boolean", "spatial"))
    assert all(m.agreement.exact for m in measured)


class TestTargets:
    def test_full_size_is_held_against_targets(self):
        operation = event_matching.one("mo", "k")
        point: dict[str, Any] = {"parameters": {"n": 1_000_000, "k": 10}, "operation": operation}
        slow = [measurement("scan", 0.06, **point), measurement("mo-tree", 0.03, **point)]
        fast = measurement("pivot", 0.0005, **point)
        claims = experiments.experiment("event-matching").claims([*slow, fast])
        found = verdicts(claims)
        assert found["mo, K = 10: scan / mo-tree (n = 1,000,000)"] is False
        assert found["mo, K = 10: scan / pivot (n = 1,000,000)"] is True
        assert found["mo, K = 10: mo-tree / pivot (n = 1,000,000)"] is True
        assert found["mo, K = 10: scan, a subscription (n = 1,000,000)"] is True

    def test_the_best_leaf_size_is_the_one_to_beat(self):
        names = {"beq-tree, E_max = 64": 3.0, "beq-tree, E_max = 256": 1.0, "pivot": 0.1}
        ran = [measurement(n, s, operation=subscription_matching.LEAVES) for n, s in names.items()]
        (claim,) = experiments.experiment("subscription-matching").claims(ran)
        assert claim.value == pytest.approx(10)
        assert claim.met is False

    def test_pivot_beside_the_best_exact_other(self):
        operation = event_matching.one("di", "w")
        point: dict[str, Any] = {"parameters": {"n": 1_000_000, "w": 0.8}, "operation": operation}
        ran = [
            measurement("pivot", 1.0, **point),
            measurement("rein", 2.0, **point),
            measurement("di-tree", 0.9, **point),
            measurement("ada-rein", 0.1, approximate=True, **point),
        ]
        (claim,) = experiments.experiment("event-matching").claims(ran)
        assert "di-tree, the best other" in claim.name
        assert claim.value == pytest.approx(1 / 0.9)
        assert claim.met is False

    def test_memory_targets(self):
        ran = [measurement("pivot", 1.0, operation="mo: subscriptions in memory", work=10_000_000)]
        found = verdicts(experiments.experiment("memory").claims(ran))
        assert set(found.values()) == {True}

    def test_growth_is_the_power_of_n(self):
        ran = [measurement("scan", 1.0, n=1000), measurement("scan", 10.0, n=10_000)]
        (claim,) = scores.growth_claims(ran, "match")
        assert claim.value == pytest.approx(1)

    def test_the_smallest_full_size_is_judged(self):
        ran = [measurement("scan", 1.0, n=n) for n in (10, 5_000_000, 1_000_000)]
        assert [row.point["n"] for row in scores.judged(ran, "match")] == [1_000_000]
        assert [row.point["n"] for row in scores.judged(ran[:1], "match")] == [10]
        assert scores.judged(ran, "other") == []


def test_error_rates_are_printed():
    record = Record(
        "event-matching", "", {}, {}, "", "2026-11-15T12:00:00+00:00", run("event-matching")
    )
    grid = next(g for g in tables.grids(record) if g.title == event_matching.one("di", "w"))
    assert {"missed", "false"} <= set(grid.columns)


def test_pairs_as_a_table():
    table = cases.pair_table(["e1", "e2"], [["s1", "s2"], []])
    assert table == pa.table({"event_id": ["e1", "e1"], "subscription_id": ["s1", "s2"]})
