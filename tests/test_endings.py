"""How commands end: one message or none, an exit code, never a traceback that is no bug's."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearcast.cli import app, endings
from nearcast.cli.endings import told
from nearcast.errors import DatasetError

NEARCAST = [sys.executable, "-c", "from nearcast.cli import main; main()"]
#: A locale without UTF-8, and Python told not to help itself.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PATTERN = 'STRING: a = "Zürich … 中"'
EVENT = (
    '{"type": "Feature", "id": "é\u2028", "end": "2026-03-01T12:00:00Z", "geometry": null, '
    '"properties": {"a": "Zürich … 中"}}\n'
)


def ran(*arguments: str, shell: str = "", stdin: str = "", **environment: str):
    """A command in a process of its own, with redirections as a shell writes them."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" "$@" {shell}', *NEARCAST, *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment}, input=stdin.encode(),
        capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr + done.stdout
    assert b"Exception ignored" not in done.stderr + done.stdout
    return done


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "p.cpsl").write_text(PATTERN, encoding="utf-8")
    (tmp_path / "e.jsonl").write_text(EVENT + EVENT.replace("é", "e"), encoding="utf-8")
    return tmp_path


class TestErrors:
    def test_a_file_that_the_system_refuses(self, capsys):
        with pytest.raises(SystemExit) as end, told():
            Path("/nowhere/at/all").read_text()
        assert end.value.code == 2
        assert capsys.readouterr().err.startswith("nearcast: /nowhere/at/all: No such file")

    def test_an_error_of_ours(self, capsys):
        with pytest.raises(SystemExit) as end, told():
            raise DatasetError("no data; give some")
        assert end.value.code == 2
        assert capsys.readouterr().err == "nearcast: no data; give some\n"

    def test_a_bug_keeps_its_traceback(self):
        with pytest.raises(ZeroDivisionError), told():
            raise ZeroDivisionError

    @pytest.mark.parametrize("error", [DatasetError("x"), FileNotFoundError(2, "x", "y")])
    def test_everything_is_shown_on_demand(self, error: Exception, monkeypatch):
        monkeypatch.setenv("NEARCAST_DEBUG", "1")
        with pytest.raises(type(error)), told():
            raise error


class TestStreams:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    @pytest.mark.parametrize("arguments", [("--help",), ("cpsl", "syntax"), ("bench", "--list")])
    def test_a_full_disk_is_told(self, arguments: tuple[str, ...]):
        done = ran(*arguments, shell=">/dev/full")
        assert done.returncode == 2
        assert done.stderr.count(b"cannot write: No space left on device") == 1
        assert ran(*arguments, shell=">/dev/full 2>/dev/full").returncode == 2

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_disk_that_is_full_in_the_middle_is_told_once(self, unbuffered: str):
        done = ran("bench", "--list", shell=">/dev/full", PYTHONUNBUFFERED=unbuffered)
        assert done.returncode == 2
        assert done.stderr.count(b"No space left") == 1

    @pytest.mark.parametrize("arguments", [("--help",), ("cpsl", "syntax")])
    def test_a_reader_that_has_gone(self, arguments: tuple[str, ...]):
        assert ran(*arguments, shell="| true").stderr == b""

    def test_streams_that_are_closed(self, files: Path):
        pattern = str(files / "p.cpsl")
        assert ran("cpsl", "check", pattern, shell=">&- 2>&-").returncode == 0
        assert ran("cpsl", "draw", pattern, shell=">&-").returncode == 0
        assert ran("cpsl", "check", "-", shell="<&-").returncode == 1  # nothing is no pattern


class TestWithoutUtf8:
    def test_patterns_and_events_are_utf8_all_the_same(self, files: Path):
        pattern, events = str(files / "p.cpsl"), str(files / "e.jsonl")
        for given, stdin in ((pattern, ""), ("-", PATTERN)):
            shown = ran("cpsl", "check", given, stdin=stdin, **PLAIN)
            assert shown.returncode == 0
            assert shown.stdout == b'STRING: a = "Z\\xfcrich \\u2026 \\u4e2d"\n'
        found = ran("cpsl", "run", pattern, "--events", events, "--trace", **PLAIN)
        assert found.returncode == 0
        assert b"2 detections in 2 events" in found.stderr

    def test_a_picture_is_utf8_all_the_same(self, files: Path):
        drawn = ran("cpsl", "draw", str(files / "p.cpsl"), **PLAIN)
        assert drawn.returncode == 0
        assert "中" in "".join(ElementTree.fromstring(drawn.stdout).itertext())

    def test_a_folder_that_arrow_and_spark_could_not_name(self, files: Path):
        done = ran("demo", "--out", str(files / "été"), **PLAIN)
        assert done.returncode == 2
        assert b"set LC_ALL=C.UTF-8" in done.stderr

    def test_a_name_that_is_no_text(self):
        done = ran("cpsl", "check", os.fsdecode(b"no\xffwhere"))
        assert done.returncode == 2
        assert b"cannot read no\\udcffwhere" in done.stderr


class TestFiles:
    @pytest.mark.parametrize("out", ["nowhere/picture.svg", "."])
    def test_a_picture_needs_a_place(self, out: str, files: Path):
        asked = ["cpsl", "draw", str(files / "p.cpsl"), "-o", str(files / out)]
        result = CliRunner().invoke(app, asked)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"nearcast: cannot write {files / out}: ")

    def test_what_is_not_utf8_is_not_read(self, tmp_path: Path):
        (tmp_path / "latin").write_bytes(b"ARITH: \xe9 = 1")
        for asked in (["check", "latin"], ["run", "p", "--events", "latin"], ["check", "."]):
            named = [str(tmp_path / each) if each in ("latin", ".") else each for each in asked]
            (tmp_path / "p").write_text("ARITH: a = 1")
            named = [str(tmp_path / "p") if each == "p" else each for each in named]
            result = CliRunner().invoke(app, ["cpsl", *named])
            assert result.exit_code == 2
            assert result.stderr.startswith("nearcast: cannot read ")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
            (EVENT + "[" * 100_000, "line 2: nested too deeply"),
            ("9" * 5000, "not JSON (Exceeds the limit"),
        ],
    )
    def test_events_that_cannot_be_read(self, text: str, reason: str, files: Path):
        bad = files / "bad.json"
        bad.write_text(text, encoding="utf-8")
        for option, needed in (("--events", []), ("--regions", ["--events", str(files / "e")])):
            asked = ["cpsl", "run", str(files / "p.cpsl"), option, str(bad), *needed]
            result = CliRunner().invoke(app, asked)
            assert result.exit_code == 2
            if option == "--events":
                assert reason in result.stderr

    @pytest.mark.parametrize("data", ["nowhere", "empty", "p.cpsl"])
    def test_the_demo_looks_for_its_data_first(self, data: str, files: Path, monkeypatch):
        (files / "empty").mkdir()
        monkeypatch.setattr("nearcast.cli.sections.section", None)  # nothing is begun
        asked = ["demo", "--data", str(files / data), "--out", str(files / "out")]
        result = CliRunner().invoke(app, asked)
        assert result.exit_code == 2
        assert str(files / data) in result.stderr
        assert not (files / "out").exists()

    def test_the_demo_looks_at_its_folder_first(self, files: Path, monkeypatch):
        (files / "theirs" / "pipeline").mkdir(parents=True)
        (files / "theirs" / "pipeline" / "thesis.txt").write_text("years of work")
        monkeypatch.setattr("nearcast.cli.sections.section", None)
        for out in ("p.cpsl", "p.cpsl/below", "theirs"):
            result = CliRunner().invoke(app, ["demo", "--out", str(files / out)])
            assert result.exit_code == 2
            assert str(files / out.partition("/")[0]) in result.stderr  # long ones are cut


class TestInterrupts:
    def test_in_whatever_clothes(self):
        """Compiled code that is interrupted on its way in or out raises a SystemError."""
        error = SystemError("returned a result with an exception set")
        error.__cause__ = KeyboardInterrupt()
        with pytest.raises(SystemExit) as end, told():
            raise error
        assert end.value.code == 130

    def test_without_any_trace_of_it(self, monkeypatch):
        error = SystemError("returned NULL without setting an exception")
        with pytest.raises(SystemError), told():
            raise error
        monkeypatch.setattr(endings._Interrupt, "pressed", True)
        with pytest.raises(SystemExit) as end, told():
            raise error
        assert end.value.code == 130

    def test_while_a_command_waits(self):
        code, said = interrupted([*NEARCAST, "cpsl", "check", "-"], reads)
        assert (code, said) == (130, b"")

    def test_while_the_commands_are_loaded(self, tmp_path: Path):
        """The application itself takes a while to load."""
        (tmp_path / "typer.py").write_text("import time; print('on', flush=True); time.sleep(600)")
        code, said = interrupted(NEARCAST, PYTHONPATH=str(tmp_path))
        assert (code, said) == (130, b"")

    def test_in_a_finaliser(self):
        script = (
            "import os, signal, time\n"
            "from nearcast.cli.endings import whole_process\n"
            "class Dying:\n"
            "    def __del__(self): os.kill(os.getpid(), signal.SIGINT); time.sleep(0.01)\n"
            "with whole_process():\n"
            "    Dying()\n"
            "    time.sleep(600)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, timeout=240, check=False
        )
        assert (done.returncode, done.stderr) == (130, b"")

    @pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the others in /proc")
    def test_while_several_processes_compile(self):
        """Nobody but the first process hears it, and it ends the others."""
        asked = [*NEARCAST, "doctor", "--warm", "--quiet"]
        code, said = interrupted(asked, has_two, NEARCAST_JIT="0", NEARCAST_THREADS="2")
        assert (code, said) == (130, b"")


def says(child: subprocess.Popen[bytes]) -> None:
    """Wait until it has said something."""
    assert child.stdout is not None
    child.stdout.readline()


def reads(child: subprocess.Popen[bytes]) -> None:
    """Wait until it has begun to read: there is room again behind what nobody had taken."""
    assert child.stdin is not None
    pipe = child.stdin.fileno()
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b" " * 4096)
    assert select.select([], [pipe], [], 240)[1]


def has_two(child: subprocess.Popen[bytes]) -> None:
    """Wait until it has two processes, and hears of Ctrl-C again."""
    of = Path("/proc") / str(child.pid)
    while child.poll() is None:
        caught = re.search(r"SigCgt:\s*(\w+)", (of / "status").read_text())
        assert caught
        theirs = [each.read_text().split() for each in of.glob("task/*/children")]
        if int(caught[1], 16) & 1 << signal.SIGINT - 1 and sum(map(len, theirs)) >= 2:
            return
        time.sleep(0.02)


def interrupted(
    command: list[str], comes: Callable[[subprocess.Popen[bytes]], None] = says,
    **environment: str,
) -> tuple[int, bytes]:  # fmt: skip
    """Ctrl-C for a command and its children, as soon as it has come somewhere."""
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            comes(child)
            os.killpg(child.pid, signal.SIGINT)
            _, said = child.communicate(timeout=240)
        finally:
            child.kill()
    return child.returncode, said
