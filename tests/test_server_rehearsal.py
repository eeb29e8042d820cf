"""Kernels are had ready behind a server that runs alone in its process."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from nearcast import jit
from nearcast.model.geometry import SPACES, Space
from nearcast.server import rehearsal
from nearcast.server.rehearsal import Rehearsal, rehearse


@pytest.mark.parametrize("space", SPACES)
def test_every_verb_is_rehearsed(space: Space):
    rehearse(space)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Rehearsals in this process, of which a cache in a folder of its own knows nothing yet."""
    found: list[str] = []
    monkeypatch.setattr(jit, "cache_directory", lambda: tmp_path)
    monkeypatch.delenv("NEARCAST_JIT", raising=False)
    monkeypatch.setattr(rehearsal, "rehearse", found.append)
    monkeypatch.setattr(rehearsal, "_COMMAND", "import sys; sys.exit(sys.argv[1] != 'globe')")
    return found


def awaited(played: list[str], count: int) -> None:
    until = time.monotonic() + 240
    while len(played) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert len(played) == count


def test_a_child_fills_the_cache_once(
    played: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    Rehearsal("globe").start()
    awaited(played, 1)
    (mark,) = tmp_path.glob("rehearsed-*")

    def none(*_: Any, **__: Any) -> None:
        raise AssertionError("a second child")

    monkeypatch.setattr(subprocess, "Popen", none)
    Rehearsal("globe").start()
    awaited(played, 2)
    assert [*tmp_path.glob("rehearsed-*")] == [mark]


def test_a_child_that_fails_is_tried_again(played: list[str], tmp_path: Path):
    Rehearsal("planar").start()
    awaited(played, 1)
    assert not [*tmp_path.glob("rehearsed-*")]


def test_where_kernels_are_compiled_at_once_there_is_none(
    played: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEARCAST_JIT", "1")
    Rehearsal("globe").start()
    time.sleep(0.2)
    assert not played


def test_a_server_that_stops_leaves_no_child(played: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rehearsal, "_COMMAND", "import time; time.sleep(600)")
    running = Rehearsal("globe")
    running.start()
    while running._child is None:
        time.sleep(0.01)
    running.stop()
    assert running._child.wait(240) != 0
    assert not played
