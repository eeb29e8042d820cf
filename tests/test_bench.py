"""The bench: it refuses what is wrong, takes turns, and keeps what it measured."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast import jit
from nearcast.bench import experiments, machine, plots, report, results, runner, tables
from nearcast.bench.experiments.base import Experiment, Plan, Setting, settle
from nearcast.bench.metrics import Agreement, compare, resident_bytes, spread
from nearcast.bench.results import Claim, Measurement, Record
from nearcast.bench.runner import measure, measure_all
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.errors import BenchError


def pairs(*rows: tuple[str, str]) -> pa.Table:
    return pa.table(
        {
            "event_id": pa.array([e for e, _ in rows], pa.string()),
            "subscription_id": pa.array([s for _, s in rows], pa.string()),
        }
    )


TRUTH = pairs(("e1", "s1"), ("e1", "s2"), ("e2", "s1"))


def contender(name: str, answer: object = TRUTH, **options: object) -> Contender:
    return Contender(name, lambda: Task(run=lambda: answer), **options)  # type: ignore[arg-type]


def trial(*contenders: Contender, **options: object) -> Trial:
    return Trial("match", contenders, lambda: TRUTH, **options)  # type: ignore[arg-type]


def measurement(**changes: object) -> Measurement:
    given = {
        "operation": "match",
        "contender": "scan",
        "parameters": {"subscriptions": 1000},
        "work": 10,
        "unit": "event",
        "seconds": (0.2, 0.1, 0.3),
        "first_s": 0.4,
        "compile_s": 0.0,
        "build_s": 0.01,
        "resident_bytes": 4096,
        "memory": {"total": 2048},
        "approximate": False,
        "agreement": Agreement(3, 0, 0),
        "cpu_s": (0.2, 0.1, 0.2),
        **changes,
    }
    return Measurement(**given)  # type: ignore[arg-type]


def record(*measurements: Measurement, **changes: object) -> Record:
    given = {
        "experiment": "toy",
        "command": "nearcast bench toy --quick --seed 1",
        "settings": {"subscriptions": (1000, 2000)},
        "machine": machine.describe(),
        "commit": "0123456789abcdef",
        "date": "2026-11-15T12:00:00+00:00",
        "measurements": measurements or (measurement(),),
        "claims": (Claim("speed", 700.0, "events/s", 500.0),),
        **changes,
    }
    return Record(**given)  # type: ignore[arg-type]


class TestRunner:
    def test_a_right_contender_is_timed(self):
        (found,) = measure(trial(contender("right")), repetitions=3)
        assert found.agreement == Agreement(3, 0, 0)
        assert len(found.seconds) == 3
        assert all(second >= 0 for second in found.seconds)

    def test_row_order_is_no_difference(self):
        turned = TRUTH.take([2, 0, 1])
        (found,) = measure(trial(contender("turned", turned)), repetitions=1)
        assert found.agreement.exact

    @pytest.mark.parametrize(
        ("answer", "missing", "surplus"),
        [
            (TRUTH.slice(1), 1, 0),
            (pa.concat_tables([TRUTH, pairs(("e9", "s9"))]), 0, 1),
            (pa.concat_tables([TRUTH, TRUTH.slice(0, 1)]), 0, 1),
            (pairs(("e1", "s1"), ("e1", "s2"), ("e2", "s2")), 1, 1),
            (pairs(), 3, 0),
            (None, 3, 0),
        ],
    )
    def test_a_wrong_contender_is_refused(self, answer, missing, surplus):
        wrong = trial(contender("right"), contender("wrong", answer))
        with pytest.raises(BenchError, match=rf"wrong is wrong.* {missing} of 3.*{surplus} too"):
            measure(wrong)

    def test_a_contender_that_goes_wrong_later_is_refused(self):
        answers = iter([TRUTH, TRUTH, TRUTH.slice(1)])
        fickle = Contender("fickle", lambda: Task(run=lambda: next(answers)))
        with pytest.raises(BenchError, match="fickle is wrong"):
            measure(trial(fickle), repetitions=5)

    def test_an_approximate_contender_shows_its_error_rates(self):
        answer = pa.concat_tables([TRUTH.slice(1), pairs(("e9", "s9"), ("e8", "s8"))])
        (found,) = measure(trial(contender("rough", answer, approximate=True)), repetitions=1)
        assert found.approximate
        assert found.agreement.false_negative_rate == pytest.approx(1 / 3)
        assert found.agreement.false_positive_rate == pytest.approx(2 / 4)

    def test_contenders_take_turns_and_the_first_turn_moves_on(self):
        order: list[str] = []

        def noisy(name: str) -> Contender:
            def run() -> pa.Table:
                order.append(name)
                return TRUTH

            return Contender(name, lambda: Task(run=run))

        measure(trial(noisy("a"), noisy("b"), noisy("c")), repetitions=3)
        assert "".join(order) == "abc" + "abc" + "bca" + "cab"

    def test_only_the_run_is_timed(self):
        steps: list[str] = []

        def run() -> Timed:
            steps.append("run")
            return Timed(0.25, "raw")

        def answer(result: object) -> pa.Table:
            steps.append(f"answer of {result}")
            return TRUTH

        task = Task(
            before=lambda: steps.append("before"),
            run=run,
            answer=answer,
            memory=lambda: {"total": 7},
            close=lambda: steps.append("close"),
        )
        (found,) = measure(trial(Contender("a", lambda: task)), repetitions=2)
        assert steps == ["before", "run", "answer of raw"] * 3 + ["close"]
        assert found.seconds == (0.25, 0.25)
        assert found.cpu_s == ()
        assert found.memory == {"total": 7}

    def test_what_a_repetition_takes_of_processors_is_kept(self, monkeypatch):
        busy = iter([0.0, 9.0, 9.0, 11.0, 20.0, 23.0])
        monkeypatch.setattr(runner, "process_time", lambda: next(busy))
        (found,) = measure(trial(contender("a")), repetitions=2)
        assert found.cpu_s == (2.0, 3.0)

    def test_tasks_are_closed_after_a_refusal(self):
        closed: list[str] = []
        task = Task(run=lambda: None, close=lambda: closed.append("closed"))
        with pytest.raises(BenchError):
            measure(trial(Contender("wrong", lambda: task)))
        assert closed == ["closed"]

    def test_compilation_is_taken_off(self, monkeypatch):
        """Build, warm-up and repetition take 8 s each by this clock; 5 and 2 of them compile."""
        spent = iter([0.0, 5.0, 5.0, 7.0, 7.0, 7.0])
        clock = iter(range(0, 100, 8))
        monkeypatch.setattr(jit, "compile_seconds", lambda: next(spent))
        monkeypatch.setattr(runner, "perf_counter", lambda: float(next(clock)))
        (found,) = measure(trial(contender("a")), repetitions=1)
        assert found.compile_s == 7.0
        assert (found.build_s, found.first_s, found.seconds) == (3.0, 6.0, (8.0,))

    def test_nothing_is_collected_while_it_is_timed(self):
        seen: list[bool] = []

        def run() -> pa.Table:
            seen.append(gc.isenabled())
            return TRUTH

        assert gc.isenabled()
        measure(trial(Contender("a", lambda: Task(run=run))), repetitions=2)
        assert seen == [False] * 3
        assert gc.isenabled()

    def test_compilation_in_a_child_is_taken_off_too(self):
        task = Task(lambda: Timed(3.0, TRUTH, compile_s=2.0))
        (found,) = measure(trial(Contender("child", lambda: task)), repetitions=1)
        assert (found.first_s, found.compile_s, found.seconds) == (1.0, 2.0, (3.0,))

    def test_nonsense_is_refused(self):
        with pytest.raises(BenchError, match="different names"):
            measure(trial(contender("a"), contender("a")))
        with pytest.raises(BenchError, match="different names"):
            measure(trial())
        with pytest.raises(BenchError, match="measure nothing"):
            measure(trial(contender("a")), repetitions=0)

    def test_a_trial_can_bound_its_repetitions(self):
        bounded = trial(contender("a"), at_most=2)
        assert [len(m.seconds) for m in measure_all([bounded], repetitions=9)] == [2]
        assert [len(m.seconds) for m in measure_all([bounded], repetitions=1)] == [1]

    def test_the_listener_hears_what_happens(self):
        heard: list[str] = []
        measure(trial(contender("a"), parameters={"n": 5}), 1, heard.append)
        assert heard[0] == "match (n 5): computing the truth"
        assert heard[-1] == "match (n 5): round 1 of 1"


class TestMetrics:
    def test_spread(self):
        found = spread([4.0, 1.0, 3.0, 2.0, 5.0])
        assert (found.low, found.q1, found.median, found.q3, found.high) == (1, 2, 3, 4, 5)
        assert spread([2.0]).q1 == spread([2.0]).median == 2.0

    def test_plain_answers_compare_as_one_value(self):
        assert compare(3, 3).exact
        assert not compare(3, 4).exact

    def test_tables_compare_as_multisets(self):
        one, two = pairs(("e", "s")), pairs(("e", "s"), ("e", "s"))
        assert compare(one, two) == Agreement(2, 1, 0)
        assert compare(two, one) == Agreement(1, 0, 1)

    def test_rates_of_nothing_are_zero(self):
        assert Agreement(0, 0, 0).false_negative_rate == 0
        assert Agreement(0, 0, 0).false_positive_rate == 0

    def test_resident_memory_grows_with_what_is_held(self):
        before = resident_bytes()
        held = bytearray(64 * 2**20)
        held[::4096] = b"x" * len(held[::4096])
        after = resident_bytes()
        if sys.platform.startswith("linux"):
            assert before is not None
            assert after is not None
            assert after - before > 32 * 2**20
        else:
            assert after is None

    def test_rate_and_time_per_item(self):
        found = measurement(seconds=(0.2, 0.1, 0.3), work=10)
        assert found.item_s == pytest.approx(0.02)
        assert found.rate == pytest.approx(50)


class TestResults:
    def test_a_record_comes_back_as_it_was(self, tmp_path: Path):
        kept = record(measurement(), measurement(contender="other", approximate=True))
        path = results.write(kept, tmp_path)
        assert path == tmp_path / "toy" / "20261115T120000Z.json"
        assert results.load(path) == kept

    def test_a_record_says_where_and_from_what(self, tmp_path: Path):
        stored = json.loads(results.write(record(), tmp_path).read_text())
        assert {"cpu", "cores", "memory_bytes", "python", "versions"} <= set(stored["machine"])
        assert stored["machine"]["versions"]["numba"]
        assert stored["measurements"][0]["seconds"] == [0.2, 0.1, 0.3]

    def test_all_records_oldest_first_and_the_newest(self, tmp_path: Path):
        dates = ["2026-11-15T12:00:02+00:00", "2026-11-15T12:00:01+00:00"]
        for date in dates:
            results.write(record(date=date), tmp_path)
        (tmp_path / "toy" / "other.json").write_text("not a record")
        records = results.load_all(tmp_path)
        assert [r.date for r in records] == sorted(dates)
        for given in (records, records[::-1]):
            assert [r.date for r in results.newest(given)] == [max(dates)]

    @pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 99}', '{"format": 1}'])
    def test_what_is_no_record_is_named(self, tmp_path: Path, text: str):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(BenchError, match=r"bad\.json"):
            results.load(path)

    def test_claims(self):
        assert Claim("a", 2.0, "s", 1.0).met is True
        assert Claim("a", 2.0, "s", 1.0, "at most").met is False
        assert Claim("a", 2.0, "s").met is None

    def test_the_commit_is_one_or_unknown(self):
        found = machine.commit()
        assert found == "unknown" or len(found.removesuffix("+changes")) == 40


FIGURE = plots.Figure("speed", "Speed", "match", "rate", x="subscriptions", x_label="N")
BARS = plots.Figure("bars", "Side by side", "match", "item_s")


class TestPlotsAndReport:
    def many(self) -> Record:
        return record(
            *(
                measurement(contender=name, parameters={"subscriptions": n}, seconds=(t, 2 * t))
                for name, t in (("scan", 0.5), ("quick <one>", 0.001))
                for n in (100_000, 1000)
            )
        )

    def test_series_are_sorted_by_x(self):
        lines = plots.series(FIGURE, self.many().measurements)
        assert list(lines) == ["scan", "quick <one>"]
        assert [dot[0] for dot in lines["scan"]] == [1000, 100_000]
        assert all(low <= median <= high for _, median, low, high in lines["scan"])

    def test_png_and_svg(self, tmp_path: Path):
        paths = plots.draw_all([FIGURE, BARS], self.many(), tmp_path)
        assert sorted(path.suffix for path in paths) == [".png", ".png", ".svg", ".svg"]
        assert paths[0].read_bytes().startswith(b"\x89PNG")
        assert "<svg" in paths[1].read_text()

    def test_no_data_no_picture(self, tmp_path: Path):
        other = plots.Figure("x", "X", "another operation")
        assert plots.draw_all([other], self.many(), tmp_path) == []

    @pytest.mark.parametrize("metric", list(plots.METRICS))
    def test_every_metric_can_be_drawn(self, tmp_path: Path, metric: plots.Metric):
        figure = plots.Figure("f", "F", "match", metric, x="subscriptions")
        assert len(plots.draw(figure, self.many(), tmp_path)) == 2

    def test_the_report_has_the_command_under_every_figure(self, tmp_path: Path):
        kept = self.many()
        path = report.write_report([kept], lambda _: [FIGURE, BARS], tmp_path)
        page = path.read_text()
        assert page.count("<figure>") == 2
        assert page.count(kept.command) == 3
        assert page.count("<svg") == 2
        assert "quick &lt;one&gt;" in page
        assert "quick <one>" not in page
        assert 'class="met"' in page
        assert 'src="http' not in page

    def test_tables(self):
        rough = measurement(contender="rough", approximate=True, agreement=Agreement(4, 1, 0))
        first, claims = tables.grids(record(measurement(), rough))
        assert first.columns[:2] == ("subscriptions", "contender")
        assert first.columns[-2:] == ("missed", "false")
        assert first.rows[1][-2:] == ("25.00%", "0.00%")
        assert claims.rows == (("speed", "700 events/s", "at least 500", "met"),)
        assert tables.rich_table(first, 80).row_count == 2
        assert tables.narrowed(first, 500) == first
        assert "compile" not in tables.narrowed(first, 80).columns
        assert {"contender", "median", "missed"} <= set(tables.narrowed(first, 10).columns)

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(2.0, "2 s"), (0.0015, "1.5 ms"), (2e-6, "2 µs"), (3e-9, "3 ns"), (0.0, "0 s")],
    )
    def test_times_in_words(self, seconds: float, text: str):
        assert tables.time_text(seconds) == text

    def test_bytes_in_words(self):
        assert [tables.bytes_text(n) for n in (7, 2048, 3_000_000, 5 * 10**9)] == [
            "7 B",
            "2.05 kB",
            "3 MB",
            "5 GB",
        ]


TOY = Experiment(
    name="toy",
    summary="nothing much",
    settings=(
        Setting("sizes", (10, 20), (1,), "how many"),
        Setting("share", (0.5,), (0.1,), "how much"),
        Setting("indexes", ("scan", "pivot"), ("scan",), "who"),
    ),
    trials=lambda plan: [trial(contender(name)) for name in plan.texts("indexes")],
)


class TestSettings:
    def test_defaults_quick_and_given(self):
        assert settle(TOY, {}).numbers("sizes") == (10, 20)
        assert settle(TOY, {}, quick=True).number("sizes") == 1
        plan = settle(TOY, {"sizes": "1_000, 2000", "share": "0.25"}, seed=7)
        assert plan == Plan(
            {"sizes": (1000, 2000), "share": (0.25,), "indexes": ("scan", "pivot")}, 7
        )

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"sices": "1"}, "has no setting 'sices'; there are: sizes, share, indexes"),
            ({"sizes": "many"}, "'many' is not int"),
            ({"sizes": " ,"}, "needs a value"),
            ({"share": "0.1,0.2"}, "takes one value"),
        ],
    )
    def test_bad_settings_are_named(self, given, message):
        with pytest.raises(BenchError, match=message):
            settle(TOY, given)

    def test_the_plan_reaches_the_trials(self):
        found = list(measure_all(TOY.trials(settle(TOY, {"indexes": "a,b"})), 1))
        assert [m.contender for m in found] == ["a", "b"]


class TestRegistry:
    def test_every_experiment_is_one(self):
        for name in experiments.names():
            found = experiments.experiment(name)
            assert found.name == name
            assert found.summary
            assert len({setting.name for setting in found.settings}) == len(found.settings)

    def test_an_unknown_experiment_is_named(self):
        with pytest.raises(BenchError, match="did you mean 'ground'"):
            experiments.experiment("grund")


def test_the_tables_of_the_papers_are_those_of_the_records():
    from nearcast.bench import papers

    root = Path(__file__).resolve().parents[1]
    page = (root / "docs/papers.md").read_text("utf-8")
    assert papers.written(page, root / "benchmarks/results") == page
    assert page.count("](../benchmarks/results/") > 20
    assert "not recorded yet" not in page
    with pytest.raises(BenchError, match="lacks"):
        papers.written("# papers", root)


def test_a_row_takes_the_newest_record_that_holds_its_figure(tmp_path: Path):
    from nearcast.bench import papers

    operation = "one subscription against the live events, by alpha"
    (row,) = (row for rows in papers.PAPERS.values() for row in rows if "α = 0 2.1" in row.claim)

    def written(second: int, command: str, alpha: float, slow: float) -> None:
        taken = {"mo-tree": 1.0, "beq-tree": slow, "r-star-tree": 3.0}
        made = tuple(
            measurement(operation=operation, contender=name, seconds=(took,),
                        parameters={"n": 10, "alpha": alpha}) for name, took in taken.items()
        )  # fmt: skip
        date = f"2026-11-16T00:00:{second:02}+00:00"
        given = {"experiment": row.experiment, "command": command, "date": date,
                 "settings": {"n": (10,)}}  # fmt: skip
        results.write(record(*made, **given), tmp_path)

    def filled() -> tuple[str, str]:
        return papers._filled(row, tmp_path, papers._newest_first(tmp_path, row.experiment))

    assert filled() == ("built, not recorded", row.verdict)
    written(1, "nearcast bench", 0.0, 2.0)
    written(2, "nearcast bench", 0.5, 7.0)  # of another α
    written(3, "nearcast bench --quick", 0.0, 7.0)
    figure, verdict = filled()
    assert figure.startswith("beq-tree 2 × · r-star-tree 3 × (n = 10) ([record]")
    assert "20261116T000001Z" in figure
    assert verdict.startswith("agrees; ")
    written(4, "nearcast bench", 0.0, 0.5)
    assert filled()[0].startswith("beq-tree 0.5 ×")
    assert filled()[1].startswith("differs; ")


def test_rows_ask_for_what_experiments_measure():
    """A row looks for operations and contenders by name: these are made nowhere else."""
    from nearcast.bench import papers
    from nearcast.bench.experiments import (
        ablation,
        composite,
        maintenance,
        moving,
        spatio_textual,
        subscription_matching,
    )

    sweeps = moving._SWEEPS
    assert [sweeps[name] for name in ("f", "beta", "ramp", "server")] == [
        papers._BY_F,
        papers._BETA,
        papers._RAMP,
        papers._SERVER,
    ]
    assert papers._SPLIT == subscription_matching.SPLIT
    assert papers._VARIANTS == ablation.VARIANTS
    assert papers._CURVE == composite.CURVE
    assert (
        f"mo: {maintenance.ADD_EVENT}", f"mo: {maintenance.REMOVE_EVENT}",
    ) == (papers._ADD_EVENT, papers._REMOVE_EVENT)  # fmt: skip
    assert spatio_textual.lengthening("point") == "length: messages, point"


def test_a_figure_that_a_record_does_not_hold_is_no_figure():
    from nearcast.bench import papers
    from nearcast.bench.results import load

    root = Path(__file__).resolve().parents[1]
    record = load(root / "benchmarks/results/ablation/20261117T055650Z.json")
    with pytest.raises(BenchError, match="0 of"):
        papers.times("by moonlight", "fDI-Tree", ("bDI-Tree",))(record)
    with pytest.raises(BenchError, match="no such claims"):
        papers.said("speed")(record)
    name = "di: DI-Tree's variants, by w"
    with pytest.raises(BenchError, match="9 of"):  # one for each w
        papers.times(name, "fDI-Tree", ("bDI-Tree",))(record)
