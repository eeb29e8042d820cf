"""Spark Connect: a client without a Spark context of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_matching_and_the_pipeline_through_connect(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark_connect", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
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
