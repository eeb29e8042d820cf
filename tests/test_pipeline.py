"""The jobs: stages done once, refused early, and the answer of a matcher at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast import Broker, Circle, Event, Fence, Matcher, Point
from nearcast.cli import app
from nearcast.datasets import City
from nearcast.errors import DatasetError, SparkError, ValidationError
from nearcast.model.codec import fences_to_arrow
from nearcast.spark.folders import Folder
from nearcast.spark.stages import Stage, StageReport, Workspace

PREPARED = ["fixes", "points", "areas", "subscriptions", "events"]
ALL = [*PREPARED, "tuning", "matches"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "cabs.parquet"
    city = City(seed=2, radius_m=3000)
    pq.write_table(pa.Table.from_batches(list(city.traces(25, 2400, 20.0))), path)
    return path


@pytest.fixture(scope="module")
def finished(spark, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from nearcast.spark.jobs import Pipeline
    from nearcast.spark.prepare import Preparation

    out = tmp_path_factory.mktemp("pipeline") / "out"
    wanted = Preparation(attributes="market", subscriptions=900, events=200, areas=12)
    return out, Pipeline(spark, str(out), [str(traces)], wanted).run("all")


def pairs(table: pa.Table) -> list[tuple[str, str]]:
    found = zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    return sorted(found)


def test_the_output_is_the_matchers_answer(finished):
    out, summary = finished
    assert [report.stage for report in summary.reports] == ALL
    matcher = Matcher("scan")
    matcher.add_subscriptions(pq.read_table(out / "subscriptions"))
    wanted = pairs(matcher.match_events(pq.read_table(out / "events")))
    assert pairs(pq.read_table(out / "matches")) == wanted
    assert len(wanted) == summary["matches"].rows > 0
    assert summary["fixes"].rows == 25 * 121
    assert (summary["subscriptions"].rows, summary["events"].rows) == (900, 200)
    assert json.loads((out / "tuning" / "tuning.json").read_text())["nearcast_tuning"] == 1
    text = "\n".join(" ".join(line) for line in summary.lines())
    assert "0 of 3,025 rejected" in text
    assert "pick-ups" in text
    assert "skew" in text


class TestRestarting:
    """Stages as such; no Spark is needed to count how often they are done."""

    def stages(self, done: list[str], **settings: Any) -> list[Stage]:
        def work(name: str) -> Any:
            def do(folder: Folder) -> tuple[int, dict[str, Any]]:
                done.append(name)
                (folder / "data.txt").write_text(name)
                return 1, {}

            return do

        return [
            Stage("one", settings, (), work("one")),
            Stage("two", {}, ("one",), work("two")),
            Stage("three", {"x": 1}, ("one", "two"), work("three")),
        ]

    def run(self, path: Path, **settings: Any) -> list[str]:
        done: list[str] = []
        space = Workspace(str(path))
        for stage in self.stages(done, **settings):
            space.run(stage)
        return done

    def test_a_finished_stage_is_not_redone(self, tmp_path: Path):
        assert self.run(tmp_path) == ["one", "two", "three"]
        assert self.run(tmp_path) == []

    def test_a_half_written_one_is(self, tmp_path: Path):
        self.run(tmp_path)
        (tmp_path / "two" / "_NEARCAST.json").unlink()
        assert self.run(tmp_path) == ["two"]
        (tmp_path / "three" / "_NEARCAST.json").write_text('{"stage": "th')
        assert self.run(tmp_path) == ["three"]

    def test_other_settings_redo_all_that_follows(self, tmp_path: Path):
        self.run(tmp_path)
        assert self.run(tmp_path, k=2) == ["one", "two", "three"]
        assert self.run(tmp_path, k=2) == []

    def test_an_interrupted_one_leaves_no_marker_and_is_cleared(self, tmp_path: Path):
        def breaks(folder: Folder) -> tuple[int, dict[str, Any]]:
            (folder / "rubbish.parquet").write_text("half")
            raise KeyboardInterrupt

        space = Workspace(str(tmp_path))
        with pytest.raises(KeyboardInterrupt):
            space.run(Stage("one", {}, (), breaks))
        assert space.report("one") is None
        assert self.run(tmp_path) == ["one", "two", "three"]
        assert not (tmp_path / "one" / "rubbish.parquet").exists()

    def test_two_runs_do_not_share_a_folder(self, tmp_path: Path):
        first, second = Workspace(str(tmp_path / "w")), Workspace(str(tmp_path / "w"))
        with first.held():
            first.check()
            with pytest.raises(DatasetError, match="another pipeline is at work"), second.held():
                raise AssertionError("both are in")
        with second.held():
            pass

    def test_a_run_that_was_killed_holds_nothing(self, tmp_path: Path):
        code = (
            "import os, signal, sys\nfrom nearcast.spark.stages import Workspace\n"
            "with Workspace(sys.argv[1]).held():\n    os.kill(os.getpid(), signal.SIGKILL)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "w")], check=False)
        assert done.returncode == -signal.SIGKILL
        with Workspace(str(tmp_path / "w")).held():
            pass

    def test_foreseeing_changes_nothing(self, tmp_path: Path):
        done: list[str] = []
        assert Workspace(str(tmp_path / "w")).foresee(self.stages(done)) == [
            ("one", True), ("two", True), ("three", True),
        ]  # fmt: skip
        assert not (tmp_path / "w").exists()
        self.run(tmp_path / "w")
        plan = Workspace(str(tmp_path / "w")).foresee(self.stages(done, k=1))
        assert plan == [("one", True), ("two", True), ("three", True)]
        assert Workspace(str(tmp_path / "w")).foresee(self.stages(done))[2] == ("three", False)
        assert done == []

    def test_a_stage_before_that_is_missing(self, tmp_path: Path):
        with pytest.raises(DatasetError, match="not finished"):
            Workspace(str(tmp_path)).run(self.stages([])[1])

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("java.io.IOException: No space left on device", "no space left while writing"),
            ("[FAILED_READ_FILE.NO_HINT] Error in x.parquet", "cannot be read: .*x.parquet"),
        ],
    )
    def test_what_spark_says_is_told_plainly(self, tmp_path: Path, said: str, told: str):
        def breaks(_: Folder) -> tuple[int, dict[str, Any]]:
            raise RuntimeError(said)

        with pytest.raises(DatasetError, match=told):
            Workspace(str(tmp_path)).run(Stage("one", {}, (), breaks))

    def test_reports_are_told(self, tmp_path: Path):
        told: list[Any] = []

        class Ear:
            def begin(self, stage: str) -> None:
                told.append(stage)

            def end(self, report: StageReport) -> None:
                told.append((report.stage, report.reused))

        for _ in range(2):
            Workspace(str(tmp_path), Ear()).run(self.stages([])[0])
        assert told == ["one", ("one", False), ("one", True)]


class TestRefused:
    def test_a_folder_of_somebody_else(self, spark, traces: Path, tmp_path: Path):
        (tmp_path / "thesis.tex").write_text("years of work")
        code, text = run("all", str(traces), "--out", str(tmp_path))
        assert code == 2
        assert "was not written by a nearcast pipeline" in text
        assert (tmp_path / "thesis.tex").exists()

    def test_traces_that_a_stage_would_replace(self, finished, spark):
        out, _ = finished
        code, text = run("all", str(out / "fixes"), "--out", str(out))
        assert code == 2
        assert "lies in --out" in " ".join(text.split())

    def test_a_full_disk(self, spark, traces: Path, tmp_path: Path, monkeypatch):
        monkeypatch.setattr(Folder, "free_bytes", lambda _: 1000)
        code, text = run("prepare", str(traces), "--out", str(tmp_path / "o"))
        assert code == 2
        assert "no space left" in text
        assert not (tmp_path / "o").exists()

    def test_no_java(self, traces: Path, tmp_path: Path, monkeypatch):
        def none(*_: object, **__: object) -> None:
            raise SparkError("no Java was found; install one")

        monkeypatch.setattr(import_module("nearcast.spark.session"), "session", none)
        code, text = run("all", str(traces), "--out", str(tmp_path / "o"))
        assert code == 2
        assert "no Java was found" in text

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["all", "--out", "{out}"], "which traces"),
            (["all", "{traces}"], "--out"),
            (["everything", "{traces}", "--out", "{out}"], "give one of prepare"),
            (["all", "{traces}", "--out", "{out}", "--box", "1,2"], "XMIN,YMIN"),
            (["all", "{traces}", "--out", "{out}", "--box", "0,0,1,95"], "box.ymax"),
            (["all", "{traces}", "--out", "{out}", "--column", "id"], "OURS=THEIRS"),
            (["all", "{traces}", "--out", "{out}", "--attributes", "mm"], "attributes"),
            (["all", "{traces}", "--out", "{out}", "--gap", "0"], "gap_s"),
            (["all", "{traces}", "--out", "{out}", "--index", "scna"], "did you mean 'scan'"),
            (["all", "{traces}/nowhere", "--out", "{out}"], "does not exist"),
            (["all", "{traces}", "--out", "{out}", "--plan", "fast"], "give one of auto"),
            (["all", "{traces}", "--out", "{out}", "--time-zone", "Mars"], "time_zone"),
            (["all", "{traces}", "--out", "{out}", "--subscriptions", "{traces}"], "radius_m"),
            (["match", "--out", "{out}", "--events", "{out}/e"], "does not exist or holds no"),
            (["tune", "--out", "{out}"], "not finished"),
        ],
    )
    def test_bad_arguments(self, spark, traces, tmp_path, arguments, message):
        filled = [a.format(out=tmp_path / "o", traces=traces) for a in arguments]
        code, text = run(*filled)
        assert code == 2, text
        assert message in " ".join(text.split())
        assert not (tmp_path / "o").exists()

    def test_settings_are_checked(self):
        from nearcast.spark.prepare import Preparation

        with pytest.raises(ValidationError, match="max_rejects"):
            Preparation(max_rejects=2)
        with pytest.raises(ValidationError, match="areas"):
            Preparation(areas=0)


class TestCommand:
    def test_dry_run_and_reuse(self, finished, traces: Path, spark):
        out, _ = finished
        same = [str(traces), "--out", str(out), "--attributes", "market", "--quiet",
                "--subscriptions", "900", "--events", "200", "--areas", "12"]  # fmt: skip
        code, text = run("all", *same, "--dry-run")
        assert code == 0, text
        assert text.count("is there already") == len(ALL)
        code, text = run("prepare", *same, "--seed", "5", "--dry-run")
        assert code == 0, text
        assert text.split("\n")[0].endswith("is there already")  # fixes do not depend on it
        assert text.count("would be done") == 3
        code, text = run("all", *same)
        assert code == 0, text
        assert text.count("there already") == len(ALL)

    def test_matching_other_paths(self, finished, tmp_path: Path, spark):
        done, summary = finished
        code, text = run(
            "match", "--out", str(tmp_path / "o"), "--events", str(done / "events"),
            "--subscriptions", str(done / "subscriptions"), "--index", "scan",
        )  # fmt: skip
        assert code == 0, text
        assert f"{summary['matches'].rows:,}" in text
        assert pairs(pq.read_table(tmp_path / "o" / "matches")) == pairs(
            pq.read_table(done / "matches")
        )

    def test_stays_where_occupancy_is_unknown(self, spark, traces: Path, tmp_path: Path):
        from nearcast.spark.jobs import Pipeline
        from nearcast.spark.prepare import Preparation

        table = pq.read_table(traces).drop_columns(["occupied"])
        table = table.set_column(
            table.column_names.index("lat"), "lat",
            pa.array([95.0] * 3 + table["lat"].to_pylist()[3:]),
        )  # fmt: skip
        pq.write_table(table, tmp_path / "t.parquet")
        wanted = Preparation(stay_radius_m=120, stay_s=60, subscriptions=30, events=20)
        job = Pipeline(spark, str(tmp_path / "o"), [str(tmp_path / "t.parquet")], wanted)
        summary = job.run("prepare")
        assert summary["points"].facts["kind"] == "stays"
        assert summary["fixes"].facts["reasons"] == {"latitude outside of −90 … 90": 3}
        rejects = pq.read_table(tmp_path / "o" / "rejects").to_pylist()
        assert [json.loads(each["raw"])["lat"] for each in rejects] == [95.0] * 3

    def test_a_damaged_row_group_is_told_plainly(self, spark, traces: Path, tmp_path: Path):
        whole = bytearray(traces.read_bytes())
        whole[200:20_000] = b"\x00" * (20_000 - 200)
        (tmp_path / "t.parquet").write_bytes(whole)
        code, text = run("prepare", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "o"))
        assert code == 2, text
        assert "cannot be read" in text


def test_the_demo_takes_the_taxis_through(spark, tmp_path: Path):
    result = CliRunner().invoke(
        app, ["demo", "--only", "pipeline", "--scale", "0.02", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "6 taxis" in text
    assert "the very same" in text
    assert "equal answers" in text
    assert "impossible speed" in text
    assert "Why this one matches:" in text
    report = (tmp_path / "report.html").read_text()
    assert report.count("<svg") == 4
    assert "Spark SQL" in report


def test_an_unknown_section():
    result = CliRunner().invoke(app, ["demo", "--only", "fireworks"])
    assert result.exit_code == 2
    assert "live, walk, pipeline, fences, patterns" in result.output


def test_fences_watch_the_fixes(finished, tmp_path: Path):
    out, _ = finished
    fixes = pq.read_table(out / "fixes", columns=["id", "ts", "lon", "lat"]).sort_by("ts")
    table = fixes.set_column(1, "ts", fixes["ts"].cast(pa.int64())).to_pylist()
    middle = table[len(table) // 2]
    yard = Fence("yard", "ops", "id", Circle(middle["lon"], middle["lat"], 400),
                 on={"enter", "exit", "dwell"}, dwell=30)  # fmt: skip
    pq.write_table(fences_to_arrow([yard]), tmp_path / "fences.parquet")
    broker = Broker()
    broker.subscribe(yard)
    told: list[Any] = []
    for row in table:
        where = Point(row["lon"], row["lat"])
        told += broker.publish(Event(f"{row['id']}@{row['ts']}", {"id": row["id"]}, location=where,
                                     end=row["ts"]))  # fmt: skip
    arguments = "fences", "--out", str(out), "--fences", str(tmp_path / "fences.parquet")
    code, said = run(*arguments, "--quiet")
    assert code == 0, said
    assert "enter" in said
    found = pq.read_table(out / "transitions").drop_columns(["at"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(
        (n.subscription_id, n.object, n.transition, n.event.id) for n in told
    )
    assert {n.transition for n in told} == yard.on
    code, said = run(*arguments, "--dry-run")
    assert "transitions    is there already" in said
    code, said = run(*arguments, "--dry-run", "--until", "2030-01-01T00:00:00Z")
    assert "transitions    would be done" in said


def test_fences_are_refused_without_what_they_need(finished, tmp_path: Path):
    out, _ = finished
    code, said = run("fences", "--out", str(out))
    assert (code != 0, "which fences?" in said) == (True, True)
    code, said = run("fences", "--out", str(out), "--fences", str(tmp_path / "none"))
    assert (code != 0, "give --fences a path" in said) == (True, True)
    pq.write_table(pa.table({"id": ["f"]}), tmp_path / "f.parquet")
    code, said = run("fences", "--out", str(out), "--fences", str(tmp_path / "f.parquet"))
    assert (code != 0, "fences.object" in said) == (True, True)
