"""Streams with state that may be killed: patterns and fences over a folder, until it is read.

`python -m tests.stream_job FOLDER [careless]` runs both, each with a checkpoint of its own. A
careless one writes what it finds by itself before Spark commits the batch, and then takes its
time, so that a kill in between makes it write twice.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearcast import Box, Fence
from tests.patterned import composites

__all__ = ["FENCES", "KINDS", "LATENESS", "patterns"]

KINDS = ("detect", "fences")
FENCES = [
    Fence("yard", "ops", "who", Box(0, 0, 10, 10), on={"enter", "exit"}),
    Fence("stay", "ops", "who", Box(0, 0, 10, 10), on={"dwell"}, dwell=6),
    Fence("gone", "ops", "who", Box(0, 0, 10, 10), on={"lost"}, lost=9),
]
LATENESS = 5


def patterns() -> list[Any]:
    """Every seventh of all there are: among them all modes and most operators."""
    return composites()[::7]


def main(home: Path, careless: bool) -> None:
    """Run both until what is there has been read; started again when they fail."""
    from nearcast.spark import detect, event_stream, fences, session
    from nearcast.spark.stream.running import Run, supervise

    spark = session(
        "killable", "local[2]", brief=True,
        settings={
            "spark.python.authenticate.socketTimeout": "300s",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.local.dir": home / "local",
            "spark.sql.warehouse.dir": home / "warehouse",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        },
    )  # fmt: skip
    events = str(home / "events")
    schema = spark.read.parquet(events).schema

    def made(kind: str) -> Any:
        if kind == "detect":  # one reads with our source, the other with Spark's
            stream = event_stream(spark, events, "planar", max_rows=1, shared=home / "shared")
            return detect(stream, patterns(), LATENESS, space="planar", shards=2)
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(events)
        return fences(stream, FENCES, space="planar", lateness=LATENESS, shards=2)

    def start(kind: str) -> Any:
        out, state = str(home / kind / "out"), str(home / kind / "state")
        if not careless:
            return Run(out, state, once=True).start(made(kind))
        writer = made(kind).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", state)
        return writer.foreachBatch(lambda batch, _: _append(batch, out)).start()

    failed: list[str] = []

    def follow(kind: str) -> None:
        try:
            supervise(lambda: start(kind), lambda beat: None)
        except BaseException as error:
            failed.append(f"{kind}: {error!r}")
            raise

    _together([lambda kind=kind: follow(kind) for kind in KINDS])  # type: ignore[misc]
    spark.stop()
    sys.exit(1 if failed else 0)


def _together(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _append(batch: Any, out: str) -> None:
    """Under a name that says nothing of the batch."""
    if batch.isEmpty():
        return
    batch.write.parquet(f"{out}/{uuid.uuid4().hex}")
    Path(out, "written").touch()
    time.sleep(2)


if __name__ == "__main__":
    os.environ.setdefault("NEARCAST_JIT", "1")
    main(Path(sys.argv[1]), "careless" in sys.argv[2:])
