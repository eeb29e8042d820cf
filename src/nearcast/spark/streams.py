"""Streams: what is matched as it comes, against subscriptions that change meanwhile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.model.geometry import Space
    from nearcast.spark.stream.figures import Figures

__all__ = ["event_stream", "listen", "match_stream"]


def match_stream(
    spark: SparkSession,
    events: str | os.PathLike[str],
    changes: str | os.PathLike[str],
    space: Space = "globe",
    *,
    remember: int = 1_000_000,
    max_rows: int = 200_000,
    max_changes: int | None = None,
    shared: str | os.PathLike[str] | None = None,
    tasks: int | None = None,
    index: str = "auto",
    options: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> DataFrame:
    """A stream of all pairs that match: `event_id`, `subscription_id`, `version`.

    `events` and `changes` name folders of Parquet files (new files are new rows, in the order of
    their names), `kafka://host:port/topic`, or `http://…` of a server, whose key is `key` or
    `NEARCAST_KEY` of the environment. A change has the columns of a
    subscription, `op` (add, update, remove) and `seq` (a growing number; of the changes of an id
    the one with the greatest counts). A folder of plain subscriptions, without these two, never
    changes.

    Each batch reads changes as far as Spark's checkpoint says, and its events see them all;
    `version` is the greatest `seq` that was read. A subscription that comes or changes is told
    of what already matches, too: of the newest `remember` events, those that have not expired,
    and of each only once. Rejected rows lie in `SHARED/rejected`, with their reasons.

    `shared` is a folder that the driver and all workers see, for indexes and rejects; it is a
    cache, which makes restarts quick. Without it there is a temporary one, on this machine only.
    `max_rows` and `max_changes` bound a batch, in whole files. `tasks` is how many work on it.
    """
    from nearcast.spark.stream.source import NearcastSource, Settings

    settings = Settings.read(
        Settings(
            events=_placed(events),
            changes=_placed(changes),
            space=space,
            index=index,
            options=dict(options or {}),
            remember=remember,
            max_rows=max_rows,
            max_changes=max_changes,
            tasks=_parallel(spark) if tasks is None else tasks,
            shared=None if shared is None else os.path.abspath(os.fspath(shared)),
            key=key,
        ).written()
    )
    from nearcast.index import registry

    registry.require(registry.entry(index).name, subscriptions=True)
    _check_sources(settings)
    spark.dataSource.register(NearcastSource)
    return spark.readStream.format("nearcast").options(**settings.written()).load()


def event_stream(
    spark: SparkSession,
    events: str | os.PathLike[str],
    space: Space = "globe",
    *,
    heartbeat: object = None,
    max_rows: int = 200_000,
    shared: str | os.PathLike[str] | None = None,
    tasks: int | None = None,
    key: str | None = None,
) -> DataFrame:
    """A stream of events from what `match_stream` reads them from: for `detect`, `fences`, Spark.

    A folder of Parquet files gives the columns that its files have, so the first must be there;
    anything else has its attributes in `attributes_json`, and a server's log has `offset`. Rows
    that are no events are left out, and lie in `SHARED/rejected` with their reasons. `max_rows`
    bounds a batch, in whole files. For a folder of Parquet without a heartbeat Spark's own source
    costs less, and reads files by their age.

    With `heartbeat`, a duration, a source that has been idle for so long says how far time has
    come: on from the latest `end` that was read, as fast as the clock. Such a row is marked in the
    column `heartbeat`, and is no event to `detect` and `fences`.
    """
    import json

    from nearcast.model.durations import to_duration
    from nearcast.spark.stream import logs
    from nearcast.spark.stream.feed import Feeding, FeedSource

    beat = None if heartbeat is None else to_duration(heartbeat, "heartbeat")
    if beat is not None and beat <= 0:
        raise ValidationError("heartbeat", heartbeat, "give a duration, e.g. PT10S")
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
        raise ValidationError("max_rows", max_rows, "give a whole number of at least 1")
    url = _placed(events)
    logs.check(url, "events")
    feeding = Feeding(
        events=url,
        columns=json.dumps(_columns(spark, url, beat is not None).jsonValue()),
        space=space,
        max_rows=max_rows,
        tasks=_parallel(spark) if tasks is None else tasks,
        heartbeat_s=None if beat is None else beat / 1e6,
        shared=None if shared is None else os.path.abspath(os.fspath(shared)),
        key=key,
    )
    spark.dataSource.register(FeedSource)
    return spark.readStream.format("nearcast-events").options(**feeding.written()).load()


def listen(spark: SparkSession, where: str) -> Figures:
    """Figures of all streaming queries of a session for Prometheus, batch by batch, by their names.

    `where` is a file, which its node exporter reads, or `HOST:PORT` (`:PORT` is this machine's
    loopback), which answers `GET /metrics` until the figures are closed. They are counted from now
    on, by a listener of Spark's: name queries with `queryName`.
    """
    from nearcast.spark.stream import figures

    return figures.listen(spark, where)


def _columns(spark: SparkSession, url: str, beats: bool) -> Any:
    """The columns of events: what the files of a folder have, or what can be said of any."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    from nearcast.model.codec import EVENT_COLUMNS
    from nearcast.spark.frames import read_files
    from nearcast.spark.packs import BEAT
    from nearcast.spark.stream import logs
    from nearcast.spark.stream.feed import general_columns

    files = logs.parquet_of(url)
    if files is None:
        columns = general_columns(offsets=url.startswith(("http://", "https://")))
    else:
        known = {*EVENT_COLUMNS.names, "offset"}
        there = read_files(files, spark, "events")[0].schema
        columns = StructType([field for field in there.fields if field.name in known])
    if beats:
        columns = StructType([*columns.fields, StructField(BEAT, BooleanType())])
    return columns


def _check_sources(settings: Any) -> None:
    """What is wrong with a URL is told here, and not by a query later."""
    from nearcast.spark.stream import logs

    logs.check(settings.events, "events")
    logs.check(settings.changes, "changes")


def _placed(given: str | os.PathLike[str]) -> str:
    """A URL, or a path that does not depend on where a process stands."""
    text = os.fspath(given)
    return text if "://" in text or not text else os.path.abspath(text)


def _parallel(spark: SparkSession) -> int:
    """Spark's cores; through Connect nobody knows them here."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception as error:  # Connect says so in its own ways
        raise ValidationError(
            "tasks", None, f"say how many tasks a batch may have ({error})"
        ) from None
