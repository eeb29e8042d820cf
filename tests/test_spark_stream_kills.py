"""A stream whose driver and workers are killed around commits answers as if they had not been."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.naive_stream import Change, NaiveStream
from tests.stream_cases import Histories, write_changes, write_events
from tests.stream_killable import Killable

#: How often driver and worker each are killed: twenty times in a long campaign (`make soak`).
KILLS = 20 if "NEARCAST_CRASHES" in os.environ else 1


def _written(home: Path, seed: int, batches: int) -> dict[str, list]:
    """Files of a history, all there at the beginning; a batch reads one of each."""
    history = Histories(seed)
    made: dict[str, list] = {}
    for number in range(batches):
        changes = history.changes(6) or [Change("s1", history.seq + 1)]
        history.seq = max(history.seq, *(each.seq for each in changes))
        events = history.batch(10) or [*history.batch(10), *history.batch(10)]
        write_changes(home / "changes", f"c{number:04d}", changes)
        write_events(home / "events", f"e{number:04d}", events)
        made[f"c{number:04d}.parquet"], made[f"e{number:04d}.parquet"] = changes, events
    return made


def _expected(job: Killable, made: dict[str, list]) -> list[tuple[str, str, int]]:
    """The definition, over the batches that the checkpoint says there were."""
    naive, answer = NaiveStream(), []
    before = {"events": "", "changes": ""}
    for offset in job.batches():
        new = {
            what: [row for name, rows in sorted(made.items()) if name[0] == what[0]
                   and before[what] < name <= offset[what] for row in rows]
            for what in ("changes", "events")
        }  # fmt: skip
        answer += naive.batch(new["changes"], new["events"])
        before = offset
    return sorted(answer)


@pytest.mark.slow
def test_killed_around_its_commits(tmp_path: Path):
    batches = 4 + 4 * KILLS
    made = _written(tmp_path, 4, batches)
    with Killable(tmp_path, 4) as job:
        for _ in range(KILLS):
            job.start()
            if job.wait_for(job.random.randint(1, 2)):
                time.sleep(job.random.random() * 0.5)
            job.kill()
        job.start()
        for _ in range(KILLS):
            job.wait_for(1)
            job.kill_a_worker()
        job.finish(batches)
        assert job.found() == _expected(job, made)
