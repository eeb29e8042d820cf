"""A streaming query as people run it: watched, restarted when it fails, stopped when asked.

Everything a query needs to go on is in its checkpoint, so a query that has failed is started again
from there. It is given up when it fails several times in a row without a batch in between.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastError, SparkError, ValidationError
from nearcast.spark.stream.beats import Beat
from nearcast.spark.stream.sinks import server_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Run", "batches_done", "checked_folder", "reason", "supervise"]

_log = logging.getLogger("nearcast.spark")
_LOOK_S = 0.2
_FIRST_PAUSE_S, _MOST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True)
class Run:
    """Where a query writes, and how."""

    out: str
    """A folder, or `http://…` of a server."""
    checkpoint: str
    once: bool = False
    every_s: float | None = None
    """The least time between batches; None: the next one begins when one is done."""
    mode: str = "append"
    name: str | None = None
    key: str | None = None
    """Of the server."""

    def start(self, frame: DataFrame) -> StreamingQuery:
        """The query, running. What is written is there exactly once: folders by Spark's own
        list of files (read them with Spark), a server by the ids of what is sent.
        """
        writer: Any = frame.writeStream.outputMode(self.mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.name:
            writer = writer.queryName(self.name)
        if self.once:
            writer = writer.trigger(availableNow=True)
        elif self.every_s is not None:
            writer = writer.trigger(processingTime=f"{self.every_s} seconds")
        if self.out.startswith(("http://", "https://")):
            return writer.foreachBatch(server_sink(self.out, self.key)).start()  # type: ignore[no-any-return]
        return writer.format("parquet").option("path", self.out).start()  # type: ignore[no-any-return]


def supervise(
    start: Callable[[], StreamingQuery],
    tell: Callable[[Beat], None],
    *,
    tries: int = 8,
    warn: Callable[[str], None] | None = None,
    over: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run a query until it is over, and again when it fails.

    `start` makes it anew each time; `tell` hears of each batch. A query that reads what is there
    ends by itself, others when `over` says so or by Ctrl-C. After `tries` failures in a row
    without a batch between them the error is raised; one that cannot be started for the first
    time raises at once.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, StreamingQueryException

    failures = 0
    started = False
    seen: set[tuple[str, int]] = set()
    while True:
        query = None
        before = len(seen)
        try:
            query = start()
            started = True
            _follow(query, tell, seen, over)
            return
        except (Py4JError, ConnectionError) as error:
            raise SparkError(
                "Spark's Java process has ended; start the job again, and it goes on from its "
                f"checkpoint ({error})"
            ) from error
        except (PySparkException, NearcastError, OSError) as error:
            failed = isinstance(error, StreamingQueryException)
            # What was there at the first start, a folder, may be away for a while at another.
            if not (started if query is None else failed):
                raise
            if query is not None:
                _tell_new(query, tell, seen)
            failures = 1 if len(seen) > before else failures + 1
            if failures >= tries or (failed and _final(error)):
                raise SparkError(reason(error)) from error
            pause = min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1))
            (warn or _log.warning)(
                f"the query failed, and goes on in {pause:.0f} s: {reason(error)}"
            )
            sleep(pause)
        finally:
            _stop(query)


def _stop(query: StreamingQuery | None) -> None:
    """Stop what still runs, if there is anybody to tell."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, ConnectionError):
        if query is not None and query.isActive:
            query.stop()


def _follow(
    query: StreamingQuery, tell: Callable[[Beat], None], seen: set[tuple[str, int]],
    over: Callable[[], bool],
) -> None:  # fmt: skip
    while True:
        ended = query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # a part of a second is one
        _tell_new(query, tell, seen)
        if ended:
            return
        if over():
            query.stop()
            return


def _tell_new(
    query: StreamingQuery, tell: Callable[[Beat], None], seen: set[tuple[str, int]]
) -> None:
    for progress in query.recentProgress:
        said = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
        key = said.get("runId", ""), int(said.get("batchId", -1))
        worked = "addBatch" in said.get("durationMs", {})
        if worked and key not in seen:
            seen.add(key)
            tell(Beat.of(said))


def _final(error: Exception) -> bool:
    """Whether it would fail the same way again."""
    return "belongs to another job" in str(error) or "is not valid; " in str(error)


def reason(error: Exception) -> str:
    """What a query's failure says in the end: the line of our own error, if there is one."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("nearcast.errors.")]
    if ours:
        return ours[-1].partition(": ")[2]
    return next((line for line in lines if line), type(error).__name__)


def batches_done(checkpoint: str) -> int | None:
    """The last batch that a checkpoint on this machine says is done; None before the first."""
    folder = Path(checkpoint) / "commits"
    if not folder.is_dir():
        return None
    return max((int(each.name) for each in folder.iterdir() if each.name.isdigit()), default=None)


def checked_folder(name: str, value: str) -> str:
    """A folder that is to be written, as a path that does not depend on where we stand."""
    if not value:
        raise ValidationError(name, value, "name a folder")
    return value if "://" in value else os.path.abspath(value)
