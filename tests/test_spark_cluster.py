"""Separate executor processes: nothing relies on the driver's memory or its Python process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_scripts import said_by


@pytest.mark.slow
def test_separate_executors_one_of_them_killed(tmp_path: Path):
    found = said_by("spark_cluster", tmp_path)
    assert found.pop("wanted") > 0
    assert found == {
        "executors": 2, "half-way": True, "killed": True, "again": True, "cells": True,
        "replaced": True, "stream": True, "patterns": True, "crossings": True,
    }  # fmt: skip
