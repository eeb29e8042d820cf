"""A test that needs a program is skipped without it, and fails in CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import require

ROOT = Path(__file__).parents[1]
SKIPPED: type[BaseException] = pytest.skip.Exception
FAILED: type[BaseException] = pytest.fail.Exception


@pytest.mark.parametrize(
    ("ci", "outcome"), [(None, SKIPPED), ("", SKIPPED), ("false", SKIPPED), ("true", FAILED)]
)
def test_a_missing_program(ci: str | None, outcome: type[BaseException], monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no-such-program is not installed"):
        require("no-such-program")


def test_a_program_that_is_there(monkeypatch, tmp_path: Path):
    program = tmp_path / "there"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    require("there")


@pytest.mark.parametrize(("ci", "code", "outcome"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_without_node(ci: str, code: int, outcome: str, tmp_path: Path):
    """The codec in JavaScript, tested on a machine that has no Node."""
    asked = ["tests/test_mobility_codec.py", "-k", "javascript"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *asked],
        cwd=ROOT, env={**os.environ, "PATH": str(tmp_path), "CI": ci}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == code
    assert outcome in ran.stdout
    assert "node is not installed" in ran.stdout


def test_ci_says_that_it_is_ci_and_installs_what_is_needed():
    script = (ROOT / ".ci" / "run").read_text()
    needed = {
        program
        for path in ROOT.glob("tests/test_*.py")
        for program in re.findall(r"^ *@pytest\.mark\.needs\(\"([\w-]+)\"", path.read_text(), re.M)
    }
    assert "export CI=true" in script
    assert needed
    for program in needed:
        assert re.search(rf"^install {program} ", script, re.MULTILINE), program
