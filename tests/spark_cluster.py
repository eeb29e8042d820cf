"""Matches and streams on separate executor processes, one of which is killed half-way; a script.

Prints JSON: whether each plan's and each stream's answer was what one process finds, and how many
executors were lost.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from nearcast import Event, Matcher, Point
from nearcast.datasets import workload
from nearcast.model.codec import events_to_arrow
from nearcast.spark import detect, event_stream, fences, match, match_stream, session
from nearcast.spark.stream.running import Run, supervise
from tests.patterned import EPOCH, SECOND, detected, history
from tests.stream_job import FENCES, LATENESS, patterns


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows, some time later: the job must still run when an executor dies."""
    time.sleep(0.25)
    yield from batches


def executors(app: str) -> list[int]:
    """The executor processes of this application."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if app in words and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
                found.append(int(entry.name))
    return sorted(found)


def matched_on_a_stream(spark: Any, home: Path, wanted: Any, given: Any, space: Any) -> Any:
    """Six batches; an executor dies after the first of them."""
    count = wanted.num_rows
    log = wanted.append_column("op", pa.array(["add"] * count))
    log = log.append_column("seq", pa.array(range(1, count + 1), pa.int64()))
    for name in ("changes", "events"):
        (home / name).mkdir(parents=True)
    pq.write_table(log, home / "changes" / "0.parquet")
    for number in range(6):
        pq.write_table(given.slice(number * 250, 250), home / "events" / f"{number}.parquet")
    run = Run(str(home / "out"), str(home / "state"), once=True)
    dead: list[int] = []

    def tell(_: Any) -> None:
        if not dead:
            dead.append(executors(spark.sparkContext.applicationId)[0])
            os.kill(dead[0], signal.SIGKILL)

    def start() -> Any:
        pairs = match_stream(
            spark, home / "events", home / "changes", space, max_rows=1, shared=home / "shared"
        )
        return run.start(pairs)

    supervise(start, tell)
    found = spark.read.parquet(str(home / "out")).select("event_id", "subscription_id").toArrow()
    assert dead
    return Counter(zip(*found.to_pydict().values(), strict=True))


def remembered_on_a_stream(spark: Any, home: Path) -> dict[str, bool]:
    """Patterns and fences, from shards that executors keep."""
    (home / "events").mkdir(parents=True)
    events = history(7, 40, jitter=LATENESS)
    last = max(event.end or 0 for event in events)
    beat = Event("beat", {"kind": "z", "n": 9, "who": 9}, location=Point(90, 5),
                 end=last + 100 * SECOND)  # fmt: skip
    for number, part in enumerate((events[:20], events[20:], [beat])):
        table = events_to_arrow([*part, *events]).slice(0, len(part))
        pq.write_table(table, home / "events" / f"{number}.parquet")
    until = last + (100 - LATENESS) * SECOND - 1000
    told: dict[str, Any] = {}
    for name in ("detect", "fences"):
        rows = event_stream(spark, home / "events", "planar", max_rows=1, shared=home / "shared")
        given: dict[str, Any] = {
            "space": "planar",
            "lateness": LATENESS,
            "shards": 2,
            "shared": home / "shared",
        }
        answer = detect(rows, patterns(), **given) if name == "detect" else fences(
            rows, FENCES, **given
        )  # fmt: skip
        run = Run(str(home / name / "out"), str(home / name / "state"), once=True)
        supervise(lambda run=run, answer=answer: run.start(answer), lambda _: None)  # type: ignore[misc]
        told[name] = spark.read.parquet(str(home / name / "out"))
    patterned = told["detect"].selectExpr("composite_id", "event_ids", "unix_micros(start) s",
                                          "unix_micros(end) e")  # fmt: skip
    found = sorted((r[0], tuple(r[1]), r["s"], r["e"]) for r in patterned.collect())
    once = spark.createDataFrame(events_to_arrow([*events, beat]))
    expected = fences(once, FENCES, until, space="planar").collect()
    assert expected
    assert until > EPOCH
    return {
        "patterns": found == detected(events, patterns(), until // 1000 * 1000),
        "crossings": Counter(map(tuple, told["fences"].collect())) == Counter(map(tuple, expected)),
    }


def main(scratch: str) -> None:
    spark = session(
        "cluster",
        "local-cluster[2,1,1024]",
        settings={
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.adaptive.enabled": False,
            "spark.local.dir": scratch,
            "spark.worker.cleanup.enabled": True,
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        },
    )
    source = workload("mo", seed=5, k=3)
    wanted, given = source.subscription_table(2000), source.event_table(1500)
    matcher = Matcher("scan", source.space)
    matcher.add_subscriptions(wanted)
    truth = Counter(zip(*matcher.match_events(given).to_pydict().values(), strict=True))
    events = spark.createDataFrame(given).repartition(12)
    events = events.mapInArrow(slowly, events.schema)
    subscriptions = spark.createDataFrame(wanted).repartition(4)
    before = executors(spark.sparkContext.applicationId)
    answers: dict[str, Any] = {"wanted": len(truth), "executors": len(before)}

    def run(name: str, **options: Any) -> None:
        found = match(events, subscriptions, space=source.space, index="scan", **options)
        pairs = found.toArrow()
        answers[name] = Counter(zip(*pairs.to_pydict().values(), strict=True)) == truth

    broadcast = {"plan": "broadcast", "direction": "event-matching"}
    worker = threading.Thread(target=run, args=("killed",), kwargs=broadcast)
    tracker = spark.sparkContext.statusTracker()
    worker.start()
    while not any(
        stage.numCompletedTasks >= 2 and stage.numTasks == 12
        for stage in filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
    ):
        if not worker.is_alive():
            break
        time.sleep(0.02)
    answers["half-way"] = worker.is_alive()
    os.kill(before[0], signal.SIGKILL)
    worker.join()
    run("again", **broadcast)  # the same file from another folder
    run("cells", plan="partitioned", cell_rows=1000)
    home = Path(scratch)
    found = matched_on_a_stream(spark, home / "matched", wanted, given, source.space)
    answers["stream"] = found == truth
    answers |= remembered_on_a_stream(spark, home / "remembered")
    answers["replaced"] = before[0] not in executors(spark.sparkContext.applicationId)
    work = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
