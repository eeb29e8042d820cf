"""Remembered events, indexed behind: newcomers ask an index instead of all events going past them.

A segment is the events of some batches that follow each other. It is a cache: whoever finds none
lets the events themselves go past a matcher of the newcomers.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nearcast.clock import FOREVER, NEVER
from nearcast.errors import SavedError
from nearcast.matcher import saved
from nearcast.model.geometry import Space
from nearcast.spark.rows import accepted
from nearcast.spark.shipping import live_events
from nearcast.spark.stream.bases import put_table, shipped_matcher
from nearcast.spark.stream.lines import together
from nearcast.spark.stream.offsets import Remembered
from nearcast.spark.stream.pieces import Every
from nearcast.spark.stream.worker import Spans, micros_of_column, spans_told
from nearcast.spark.workers import Shipped, task_threads

__all__ = ["Asked", "Indexing", "Segment", "covering", "segments"]

_ABOUT, _EVENTS, _MATCHER = "segment.json", "events.arrow", "matcher"


@dataclass(frozen=True)
class Segment:
    """The index of some batches' events."""

    folder: Path
    first: int
    """The first of the batches, and the last."""
    last: int
    start: Any
    """Where they begin in the log of events, and where they end."""
    stop: Any
    rows: int

    @classmethod
    def open(cls, folder: Path) -> Segment:
        """SavedError or OSError where there is none, or one of another version."""
        said = json.loads((folder / _ABOUT).read_text("utf-8"))
        saved.read_header(folder / _MATCHER)
        return cls(
            folder, said["first"], said["last"], said["start"], said["stop"], said["rows"]
        )  # fmt: skip

    @property
    def matcher(self) -> Shipped:
        """The events, live under the numbers of their rows."""
        return shipped_matcher(self.folder / _MATCHER)

    @property
    def events(self) -> Shipped:
        """Their ids, times and places in the log, by row."""
        path = os.fspath(self.folder / _EVENTS)
        return Shipped(path, path)

    def holds(self, remembered: list[Remembered]) -> bool:
        """Whether these are the batches that are remembered, as far as they still are."""
        oldest = remembered[0].first
        last = next((each for each in remembered if each.batch == self.last), None)
        first = next((r for r in remembered if r.first == max(self.first, oldest)), None)
        if last is None or first is None or last.stop != self.stop:
            return False
        return self.first < oldest or first.start == self.start


def segments(root: Path) -> list[Segment]:
    """The segments of a folder that can be opened; the others are removed."""
    found = []
    for folder in sorted(root.glob("live-*")):
        try:
            found.append(Segment.open(folder))
        except (OSError, ValueError, KeyError, SavedError):
            shutil.rmtree(folder, ignore_errors=True)
    return found


def covering(known: list[Segment], remembered: list[Remembered]) -> list[Segment]:
    """Those of the segments that hold remembered batches, none of them twice."""
    found: list[Segment] = []
    for segment in sorted(known, key=lambda each: each.first):
        apart = not found or found[-1].last < segment.first
        if remembered and apart and segment.holds(remembered):
            found.append(segment)
    return found


class Asked(InputPartition):
    """Newcomers that ask a segment: what `Latecomers` finds when events go past them."""

    def __init__(
        self, segment: Segment, oldest: int, wanted: Shipped, spans: Shipped, space: Space,
        version: int, joint: bool,
    ) -> None:  # fmt: skip
        super().__init__(None)
        self.matcher, self.events, self.oldest = segment.matcher, segment.events, oldest
        self.wanted, self.spans, self.space = wanted, spans, space
        self.version, self.joint = version, joint

    def pairs(self) -> Iterator[Any]:
        """The pairs, as record batches."""
        from nearcast.model.codec import subscriptions_from_arrow

        matcher, about = self.matcher.open(task_threads()), self.events.open(1)
        batches = about.column("batch").to_numpy()
        numbers, which = [], []
        for subscription in subscriptions_from_arrow(self.wanted.open(1), space=self.space):
            hits = np.array([*map(int, matcher.match_subscription(subscription))], np.int64)
            hits = hits[batches[hits] >= self.oldest]
            numbers.append(hits)
            which.append(np.full(hits.size, int(subscription.id), np.int64))
        if numbers:
            ticks = about.column("offset" if self.joint else "batch").to_numpy()
            ends, expires = about.column("end").to_numpy(), about.column("expires").to_numpy()
            yield from spans_told(
                Spans.of(self.spans.open(1)), about.column("id"), np.concatenate(numbers),
                np.concatenate(which), (ticks, ends, expires), self.version,
            )  # fmt: skip


# --- behind ---------------------------------------------------------------------------------------


class Indexing:
    """A segment that a process of its own makes, while the stream goes on without it."""

    def __init__(
        self, root: Path, batches: list[Remembered], pieces: list[tuple[int, Any]], space: Space
    ) -> None:
        name = uuid.uuid4().hex[:12]
        self._folder = root / f"live-{name}"
        self._work = root / f".building-{name}"
        self._work.mkdir(parents=True)
        about = {
            "first": batches[0].first, "last": batches[-1].batch, "start": batches[0].start,
            "stop": batches[-1].stop,
        }  # fmt: skip
        task = {"about": about, "pieces": pieces, "space": space, "folder": str(self._folder)}
        (self._work / "task").write_bytes(pickle.dumps(task))
        command = [sys.executable, "-m", "nearcast.spark.stream.segments", str(self._work)]
        with (self._work / "said").open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def done(self) -> tuple[Segment | None, str] | None:
        """The segment, or what went wrong; None while it is being made."""
        code = self._process.poll()
        if code is None:
            return None
        said = (self._work / "said").read_text("utf-8", "replace").strip()
        shutil.rmtree(self._work, ignore_errors=True)
        if code != 0:
            return None, said[-500:] or f"exit code {code}"
        return Segment.open(self._folder), ""

    def stop(self) -> None:
        """Give it up."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._work, ignore_errors=True)


def main(work: Path) -> None:
    """What the process of its own does."""
    os.nice(5)  # the stream goes first
    task = pickle.loads((work / "task").read_bytes())
    tables, numbers = [], []
    for batch, piece in task["pieces"]:
        for table in piece.tables(Every()):
            own = [name for name in table.column_names if name != "offset"]
            _, bad = accepted(table.select(own), "events", task["space"])
            wrong = {each.row for each in bad}
            if wrong:
                kept = [row for row in range(table.num_rows) if row not in wrong]
                table = table.take(pa.array(kept, pa.int64()))
            tables.append(table)
            numbers.append(np.full(table.num_rows, batch, np.int64))
    _write(Path(task["folder"]), together(tables), np.concatenate(numbers), task)


def _write(folder: Path, events: Any, batches: Any, task: dict[str, Any]) -> None:
    """Whole or not at all: the folder gets its name last."""
    scratch = folder.with_name(f".{folder.name}")
    own = [name for name in events.column_names if name != "offset"]
    matcher, _ = live_events(events.select(own), "auto", task["space"], {})
    matcher.save(scratch / _MATCHER)
    about = {
        "id": events.column("id").cast(pa.string()),
        "batch": pa.array(batches),
        "end": pa.array(micros_of_column(events, "end", NEVER)),
        "expires": pa.array(micros_of_column(events, "expires", FOREVER)),
    }
    if "offset" in events.column_names:
        about["offset"] = events.column("offset").cast(pa.int64())
    put_table(scratch / _EVENTS, pa.table(about))
    said = {**task["about"], "rows": events.num_rows}
    (scratch / _ABOUT).write_text(json.dumps(said), "utf-8")
    scratch.replace(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
