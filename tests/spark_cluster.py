"""A match on separate executor processes, one of which is killed half-way; run as a script.

Prints JSON: whether each plan's answer was the matcher's, and how many executors were lost.
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

import pyspark

from nearcast import Matcher
from nearcast.datasets import workload
from nearcast.spark import match, session


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
    answers["replaced"] = before[0] not in executors(spark.sparkContext.applicationId)
    work = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
