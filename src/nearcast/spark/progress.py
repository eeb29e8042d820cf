"""How far Spark's jobs are: tasks done and tasks known of, asked of the status tracker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["following"]

_EVERY_S = 0.25


@contextmanager
def following(spark: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Call `tell(done, total)` a few times a second, from a thread, while jobs run.

    Spark Connect has no status tracker: there nothing is told.
    """
    from pyspark.errors import PySparkException

    try:
        tracker = spark.sparkContext.statusTracker()
    except PySparkException:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY_S):
            try:
                tell(*_tasks(tracker))
            except Exception:  # the session was stopped: nothing to tell any more
                return

    thread = threading.Thread(target=watch, name="nearcast-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tasks(tracker: Any) -> tuple[int, int]:
    """Tasks done and in all of the jobs that run now."""
    done = total = 0
    for job in tracker.getActiveJobsIds():
        about = tracker.getJobInfo(job)
        for stage in about.stageIds if about else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                total += known.numTasks
                done += known.numCompletedTasks
    return done, total
