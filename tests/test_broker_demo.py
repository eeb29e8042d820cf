"""The demo's people on the move: what it says, and that its check would notice a loss."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nearcast import SafeRegion, jit
from nearcast.cli import walkers
from nearcast.cli.rehearsing import Rehearsal
from nearcast.cli.sections import SECTIONS, Scene, run_sections


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(walkers, "_PEOPLE", 12)
    monkeypatch.setattr(walkers, "_STEPS", 60)
    return Scene(tmp_path, seed=3, quiet=True)


def test_messages_are_saved_and_nobody_misses_anything(
    scene: Scene, capsys: pytest.CaptureFixture[str]
):
    assert SECTIONS["walk"] == "nearcast.cli.walkers:walkers"
    run_sections(scene, ["walk"])
    text = " ".join(capsys.readouterr().out.split())
    assert "12 people walk, ride and drive for 5 minutes" in text
    assert "Nobody missed anything: 0 missed, 0 late, 0 wrong or twice" in text
    counts = re.search(r"take 720 messages; with safe regions (\d+) do", text)
    assert counts is not None
    assert 12 <= int(counts[1]) < 360
    report = (scene.out / "report.html").read_text()
    assert "safe region (green)" in report
    assert "<svg" in report


def test_a_region_that_lies_is_found_out(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SafeRegion, "contains", lambda self, place: True)
    chapter = walkers.walkers(scene)
    assert "WERE MISSED" in chapter.text[-1]


@pytest.mark.skipif(not jit.compiled(), reason="there is nothing to compile")
class TestRehearsal:
    """A process behind the demo compiles what later sections need."""

    def test_it_says_when_a_section_is_done_and_ends_with_the_demo(self, scene: Scene):
        scene = replace(scene, scale=0.02)
        with Rehearsal(["live", "walk", "pipeline"], scene) as rehearsal:
            process = rehearsal._process
            assert process is not None
            assert process.args[-2:] == ["pipeline", "walk"]  # type: ignore[index]
            rehearsal.wait("walk")
            rehearsal.wait("pipeline")  # which was done before
            drawn = [path.name for path in scene.out.iterdir()]
        assert process.returncode == 0
        assert drawn == ["traces-3-6-2.parquet"]  # what Spark will read is there, and whole

    def test_a_demo_that_ends_early_does_not_wait_for_it(self, scene: Scene):
        with Rehearsal(["live", "walk", "patterns"], scene) as rehearsal:
            process = rehearsal._process
        assert process is not None
        assert process.returncode == 0

    def test_if_it_dies_the_demo_goes_on(self, scene: Scene):
        with Rehearsal(["live", "walk"], scene) as rehearsal:
            assert rehearsal._process is not None
            rehearsal._process.kill()
            rehearsal.wait("walk")

    def test_the_first_section_needs_none(self, scene: Scene):
        with Rehearsal(["walk"], scene) as rehearsal:
            assert rehearsal._process is None
            rehearsal.wait("walk")
