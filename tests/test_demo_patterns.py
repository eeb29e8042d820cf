"""The demo's patterns: what it says, and that its check would notice a loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nearcast.cli import patterns
from nearcast.cli.sections import Scene, run_sections
from nearcast.cpsl.detector import Detector


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(patterns, "_CABS", 40)
    monkeypatch.setattr(patterns, "_SECONDS", 1800.0)
    return Scene(tmp_path, seed=3, quiet=True)


def test_two_patterns_are_found_and_explained(scene: Scene, capsys: pytest.CaptureFixture[str]):
    run_sections(scene, ["patterns"])
    text = " ".join(capsys.readouterr().out.split())
    assert "40 taxis report every 15 s for 30 minutes: 4,840 events" in text
    assert "A plain loop over each taxi finds the same." in text
    counts = re.search(r"(\d+) fares went .* (\d+) times a taxi waited", text)
    assert counts is not None
    assert min(int(counts[1]), int(counts[2])) > 0
    assert "Why away#1: !: no (STRING: taxi = &t" in text
    report = (scene.out / "report.html").read_text()
    assert "The pattern “idle”" in report
    assert "<svg" in report


def test_a_detector_that_loses_events_is_found_out(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    honest = Detector.feed
    monkeypatch.setattr(Detector, "feed", lambda self, events: honest(self, events[::2]))
    chapter = patterns.patterns(scene)
    assert "A PLAIN LOOP DISAGREES" in chapter.text[-1]
