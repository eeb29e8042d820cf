"""Separate executor processes: nothing relies on the driver's memory or its Python process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_separate_executors_one_of_them_killed(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark_cluster", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found.pop("wanted") > 0
    assert found == {
        "executors": 2, "half-way": True, "killed": True, "again": True, "cells": True,
        "replaced": True,
    }  # fmt: skip
