"""Spark Connect: a client without a Spark context of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_scripts import said_by


@pytest.mark.slow
def test_matching_and_the_pipeline_through_connect(tmp_path: Path):
    found = said_by("spark_connect", tmp_path)
    assert "connect" in found["client"]
    assert found["wanted"] > 0
    assert found["auto"] is found["shared"] is True
    assert found["auto, plan"].startswith("partitioned")
    assert found["shared, plan"].startswith("broadcast")
    assert "shared=FOLDER" in found["shipped"]
    stages = found["stages"]
    assert stages["areas"] == 4
    assert stages["fixes"] > stages["subscriptions"] == stages["points"] > 0
    assert "matches" in stages
