"""The demo's fences: what it says, and that its check would notice a loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nearcast.bootstrap import Broker
from nearcast.cli import crossings
from nearcast.cli.sections import SECTIONS, Scene, run_sections


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(crossings, "_PEOPLE", 60)
    monkeypatch.setattr(crossings, "_STEPS", 40)
    return Scene(tmp_path, seed=3, quiet=True)


def test_people_come_stay_and_go(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert SECTIONS["fences"] == "nearcast.cli.crossings:crossings"
    run_sections(scene, ["fences"])
    text = " ".join(capsys.readouterr().out.split())
    assert "60 people pass 300 shops" in text
    assert "2,400 positions" in text
    assert "A plain loop counts the same." in text
    counts = re.search(r"([\d,]+) times somebody came, ([\d,]+) times .* ([\d,]+) times", text)
    assert counts is not None
    assert all(int(count.replace(",", "")) > 0 for count in counts.groups())


def test_a_broker_that_loses_positions_is_found_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.publish_many
    monkeypatch.setattr(Broker, "publish_many", lambda self, events: honest(self, [*events][::2]))
    chapter = crossings.crossings(scene)
    assert "A PLAIN LOOP DISAGREES" in chapter.text[-1]
