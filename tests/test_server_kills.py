"""A server that is killed under load: what was answered is there, everybody is told once."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.crowd import Crowd
from tests.killable import Killable

KILLS = max(3, int(os.environ.get("NEARCAST_CRASHES", "40")) // 10)


def killed(file: Path, kills: int, seed: int, *, hasty: bool = False) -> int:
    """A crowd at work on a server that dies and comes back; how many events it published."""
    rng = random.Random(seed)
    with Killable(file, hasty=hasty) as server, Crowd(server.url, seed) as crowd:
        for _ in range(kills):
            time.sleep(0.1 + rng.random())
            server.kill()
            promise = crowd.promised()
            server.start()
            crowd.check(promise)
        return crowd.settle()


@pytest.mark.slow
def test_a_server_killed_at_any_time(tmp_path: Path):
    assert killed(tmp_path / "k.db", KILLS, seed=1) > 10


@pytest.mark.slow
def test_control_answers_before_their_commit_are_found_out(tmp_path: Path):
    with pytest.raises(AssertionError):  # of the crowd: a server that ends itself is no proof
        killed(tmp_path / "h.db", 50, seed=2, hasty=True)  # soon, unless the machine is slow
