"""Patterns and fences on streams whose driver and workers are killed: told once, all of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nearcast.model.codec import events_to_arrow
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from tests.patterned import SECOND, detected, history
from tests.stream_job import FENCES, KINDS, LATENESS, patterns
from tests.stream_killable import Killable
from tests.test_spark_fences import broker_tells, end_of, said

#: How often driver and workers each are killed: twenty times in a long campaign (`make soak`).
KILLS = 20 if "NEARCAST_CRASHES" in os.environ else 1
JOB = "tests.stream_job"


def _written(home: Path, batches: int) -> list[Event]:
    """Files of a history, one a batch, and a beat that moves time past all of it."""
    events = history(7, 25 * batches, jitter=LATENESS)
    last = max(map(end_of, events))
    beat = Event("beat", {"kind": "z", "n": 9, "who": 9}, location=Point(90, 5),
                 end=last + 100 * SECOND)  # fmt: skip
    parts = [events[at * 25 : at * 25 + 25] for at in range(-(-len(events) // 25))] + [[beat]]
    folder = home / "events"
    folder.mkdir()
    for number, part in enumerate(parts):
        table = events_to_arrow([*part, *events]).slice(0, len(part))
        path = folder / f"{number:04}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_800_000_000 + number,) * 2)
    return [*events, beat]


def _expected(events: list[Event]) -> list[Any]:
    """What a detector and a broker tell that are moved to the last watermark."""
    watermark = end_of(events[-1]) // 1000 - 1000 * LATENESS - 1  # milliseconds, as Spark has it
    in_order = sorted(dict.fromkeys(events), key=lambda event: (event.end, event.id))
    return [
        detected(events, patterns(), watermark * 1000),
        broker_tells(FENCES, in_order, watermark * 1000, "planar"),
    ]


def _found(job: Killable) -> list[Any]:
    patterned = sorted(
        (row["composite_id"], tuple(row["event_ids"]), row["start"], row["end"])
        for row in job.rows(0)
    )
    return [patterned, said((tuple(row.values()) for row in job.rows(1)), "double")]


@pytest.mark.slow
def test_killed_around_their_commits(tmp_path: Path) -> None:
    events = _written(tmp_path, 2 + 3 * KILLS)
    with Killable(tmp_path, 4, (JOB,), KINDS) as job:
        for _ in range(KILLS):
            job.start()
            if job.wait_for(job.random.randint(1, 2)):
                time.sleep(job.random.random() * 0.5)
            job.kill()
        job.start()
        for _ in range(KILLS):
            job.wait_for(1)
            job.kill_a_worker()
        job.end()
        expected = _expected(events)
        assert all(expected)
        assert _found(job) == expected


@pytest.mark.slow
@pytest.mark.skipif("NEARCAST_CRASHES" not in os.environ, reason="a campaign: make soak")
def test_the_campaign_notices_what_is_written_twice(tmp_path: Path) -> None:
    """The control: killed between its own writing and Spark's commit, a careless job fails it."""
    events = _written(tmp_path, 4)
    with Killable(tmp_path, 4, (JOB, "careless"), KINDS) as job:
        job.start()
        until = time.monotonic() + 300
        while not (tmp_path / "detect" / "out" / "written").exists():
            assert time.monotonic() < until, (tmp_path / "said").read_text("utf-8")[-4000:]
            time.sleep(0.02)
        job.kill()
        job.start()
        job.end()
        files = list((tmp_path / "detect" / "out").glob("*/*.parquet"))
        rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
        told = sorted((row["composite_id"], tuple(row["event_ids"])) for row in rows)
        expected = [one[:2] for one in _expected(events)[0]]
        assert set(told) == set(expected)
        assert told != expected
