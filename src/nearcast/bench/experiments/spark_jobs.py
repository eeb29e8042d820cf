"""What the `spark` experiment times, in a process of its own: one Spark, one job after another.

Run as a module: it reads one JSON object a line (`{"job": "broadcast", …}`) and answers one
with the seconds from DataFrames to matches on disk, where they are, and the memory of the
workers. A process for each number of cores, because one process has one Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.bench.trial import Timed
from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.errors import BenchError
from nearcast.spark import fences, match, session
from nearcast.spark.sql_fences import sql_fences
from nearcast.spark.sql_join import sql_join, sql_nested_loop

__all__ = ["Engine", "told_as_pairs", "write"]


class Engine:
    """Spark in a child process, with so many cores."""

    def __init__(self, cores: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-spark-"))
        words = [sys.executable, "-m", __name__, str(cores), str(self.folder / "spark")]
        self._log = (self.folder / "log").open("w", encoding="utf-8")
        self._child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.memory: dict[str, int] = {}

    def run(self, job: str, **arguments: Any) -> Timed:
        """The seconds of a job, and its matches."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        out = str(self.folder / "matches")
        print(json.dumps({"job": job, "out": out, **arguments}), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            said = (self.folder / "log").read_text("utf-8", "replace")
            raise BenchError(f"Spark ended during {job}:\n{said}")
        said = json.loads(line)
        if "error" in said:
            raise BenchError(f"{job} failed on Spark: {said['error']}")
        self.memory = said["memory"]
        return Timed(said["seconds"], self._pairs(pq.read_table(out)))

    def _pairs(self, table: pa.Table) -> pa.Table:
        """What is compared; of transitions all that they say, beside their fence."""
        return told_as_pairs(table) if "transition" in table.column_names else table.select(_PAIR)

    def close(self) -> None:
        """End the child and remove its files."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


_PAIR = ["event_id", "subscription_id"]


def told_as_pairs(told: pa.Table) -> pa.Table:
    """Transitions as pairs: a fence, and the rest in one text."""
    at = told.column("at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).cast(pa.string())
    rest = [told.column(name) for name in ("event_id", "transition", "object")]
    said = pc.binary_join_element_wise(*rest, at, "|")
    return pa.table([said, told.column("fence_id")], names=_PAIR)


# --- in the child ---------------------------------------------------------------------------------


def _serve(cores: int, scratch: str) -> None:
    _keep_to(cores)
    spark = session(
        "nearcast bench",
        f"local[{cores}]",
        settings={
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.shuffle.partitions": 4 * cores,
            "spark.driver.memory": "4g",
        },
    )
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = _answer(spark, asked)
        except Exception as error:  # told to the parent, whatever it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


def _keep_to(cores: int) -> None:
    """Let this process and all that it starts use so many cores, where the system can.

    `local[1]` alone is one task at a time: the JVM and the Python worker of that task still
    run beside each other on two cores.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def _answer(spark: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    events = spark.read.parquet(asked["events"])
    subscriptions = spark.read.parquet(asked["subscriptions"])
    started = perf_counter()
    pairs = _JOBS[asked["job"]](spark, events, subscriptions, asked)
    pairs.write.mode("overwrite").parquet(asked["out"])
    return {"seconds": perf_counter() - started, "memory": _worker_memory()}


def _broadcast(_: Any, events: Any, subscriptions: Any, asked: Mapping[str, Any]) -> Any:
    return match(
        events, subscriptions, space=asked["space"], index=asked["index"],
        plan="broadcast", direction="event-matching",
    )  # fmt: skip


def _partitioned(_: Any, events: Any, subscriptions: Any, asked: Mapping[str, Any]) -> Any:
    return match(
        events, subscriptions, space=asked["space"], index=asked["index"], plan="partitioned"
    )


def _ready(_: Any, events: Any, __: Any, asked: Mapping[str, Any]) -> Any:
    return match(events, asked["saved"], space=asked["space"])


def _files(_: Any, __: Any, ___: Any, asked: Mapping[str, Any]) -> Any:
    return match(asked["events"], asked["saved"], space=asked["space"])


def _grid_join(_: Any, events: Any, subscriptions: Any, asked: Mapping[str, Any]) -> Any:
    return sql_join(events, subscriptions, asked["cell_m"])


def _nested_loop(_: Any, events: Any, subscriptions: Any, __: Mapping[str, Any]) -> Any:
    return sql_nested_loop(events, subscriptions)


def _fences(_: Any, events: Any, subscriptions: Any, __: Mapping[str, Any]) -> Any:
    return fences(events, subscriptions)


def _fences_of_files(_: Any, __: Any, subscriptions: Any, asked: Mapping[str, Any]) -> Any:
    return fences(asked["events"], subscriptions)


def _windows(_: Any, events: Any, subscriptions: Any, asked: Mapping[str, Any]) -> Any:
    return sql_fences(events, subscriptions, "truck", asked["cell_m"] / METRES_PER_DEGREE)


_JOBS = {
    "fences": _fences,
    "fences on files": _fences_of_files,
    "windows": _windows,
    "broadcast": _broadcast,
    "partitioned": _partitioned,
    "ready": _ready,
    "files": _files,
    "grid join": _grid_join,
    "nested loop": _nested_loop,
}


def _worker_memory() -> dict[str, int]:
    """What workers that map an index hold of it: the file, the workers, their own copies."""
    files: dict[str, int] = {}
    workers = copies = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "smaps").read_text()
        except OSError:
            continue
        if "nearcast-" not in text or "matcher-" not in text:
            continue
        inside = mine = 0
        for line in text.splitlines():
            if "-" in line.split(" ", 1)[0]:
                path = line.rsplit(" ", 1)[-1]
                inside = path.startswith("/") and "nearcast-" in path and "matcher-" in path
                if inside and Path(path).exists():
                    files[path] = Path(path).stat().st_size
                    mine += 1
            elif inside and line.startswith("Private_Dirty:"):
                copies += 1024 * int(line.split()[1])
        workers += mine > 0
    size = max(files.values(), default=0)
    return {"index file": size, "workers": workers, "copied": copies, "total": size + copies}


def write(table: pa.Table, path: Path, parts: int) -> None:
    """A table as a folder of Parquet files, so that Spark reads it with several tasks."""
    path.mkdir(parents=True)
    rows = -(-table.num_rows // parts)
    for part in range(parts):
        pq.write_table(table.slice(part * rows, rows), path / f"part-{part:03}.parquet")


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
