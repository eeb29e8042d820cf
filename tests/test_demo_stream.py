"""The demo's stream: what it says, and that its checks would notice a loss."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nearcast.cli import patterns, streaming
from nearcast.cli.sections import Scene, run_sections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(streaming, "_CABS", 12)
    monkeypatch.setattr(streaming, "_PEOPLE", 200)
    monkeypatch.setattr(streaming, "_BATCHES", 2)
    monkeypatch.setattr(patterns, "_SECONDS", 1800.0)
    return Scene(tmp_path, seed=3, quiet=True)


def test_taxis_stream_past_people_and_patterns(
    stateful: SparkSession, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = "spark.sql.shuffle.partitions"
    others = str(stateful.conf.get(parts))
    before = scene.spark.session().conf.get(parts)  # the demo's own, in the one session there is
    try:
        run_sections(scene, ["stream"])
        after = stateful.conf.get(parts)
    finally:
        stateful.conf.set(parts, others)
    text = " ".join(capsys.readouterr().out.split())
    counts = re.search(r"go meanwhile: ([\d,]+) told .* 2 shards: ([\d,]+) found", text)
    assert counts is not None
    assert min(int(each.replace(",", "")) for each in counts.groups()) > 0
    assert text.count("the very same") == 2
    assert "<caption>batches</caption>" in (scene.out / "report.html").read_text()
    assert after == before


def test_what_is_lost_is_found_out(scene: Scene) -> None:
    with streaming._Feed(scene).open() as feed:
        pairs, found = feed.pairs(), feed.patterns()
        assert pairs
        assert found
        assert all("the very same" in line for line in feed.told([], pairs, found, 1))
        pairs.pop()
        found.pop()
        assert all("NOT THE SAME" in line for line in feed.told([], pairs, found, 1))
