"""`nearcast stream detect` and `nearcast stream fences`: jobs that remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.stream import (
    SOURCES,
    Checkpoint,
    Every,
    Explain,
    Master,
    MaxRows,
    Metrics,
    Once,
    Out,
    Quiet,
    Space,
    run,
    shared_of,
    stream,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["detect", "fences", "stream"]

_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Lateness = Annotated[
    str, typer.Option("--lateness", help="How late an event may come: seconds, or PT10S.")
]
Shards = Annotated[
    int,
    typer.Option("--shards", help="Into how many parts the state is cut, for good.", min=1),
]
Heartbeat = Annotated[
    str | None,
    typer.Option(
        "--heartbeat", help="How long the source may be idle before time goes on without it: PT10S."
    ),
]


@stream.command()
def detect(
    events: Annotated[str, typer.Option("--events", help=f"Events: {SOURCES}.")],
    composites: Annotated[
        str,
        typer.Option(
            "--composites", "--changes", help="Patterns: Parquet files with id, text and consume."
        ),
    ],
    out: Out,
    checkpoint: Checkpoint,
    space: Space = "globe",
    once: Once = False,
    explain: Explain = False,
    every: Every = None,
    lateness: Lateness = "PT10S",
    longest: Annotated[
        str | None, typer.Option("--longest", help="How long an event lasts at most.")
    ] = None,
    shards: Shards = 8,
    heartbeat: Heartbeat = None,
    max_rows: MaxRows = 200_000,
    metrics: Metrics = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Detect patterns in events as they come.

    The answer is composite_id, event_ids, start and end. Events count in the order of their ends;
    one that comes later than --lateness allows is dropped, and counted. What time alone brings
    is told when the watermark has passed it, and time moves with events.

    Examples:

      nearcast stream detect --events e/ --composites p/ --out found/ --checkpoint state/

      nearcast stream detect --events e/ --composites p/ --out found/ --checkpoint state/ --once
    """

    def made(spark: SparkSession) -> DataFrame:
        from nearcast.spark import detect, event_stream

        given = event_stream(
            spark, events, _any(space), heartbeat=heartbeat, max_rows=max_rows,
            shared=shared_of(checkpoint),
        )  # fmt: skip
        return detect(
            given, _table(spark, composites, "composites"), lateness, space=_any(space),
            longest=longest, shards=shards,
        )  # fmt: skip

    about = _about(
        "detect: each event at the shards of the patterns that wait for it", shards, checkpoint,
        heartbeat, max_rows,
    )  # fmt: skip
    about |= {"events": events, "composites": composites, "space": space, "lateness": lateness}
    run(
        made, "detect", out, checkpoint, about=about, once=once, explain=explain, every=every,
        metrics=metrics, master=master, quiet=quiet, settings=_settings(shards),
    )  # fmt: skip


@stream.command()
def fences(
    events: Annotated[str, typer.Option("--events", "--positions", help=f"Positions: {SOURCES}.")],
    fences: Annotated[
        str, typer.Option("--fences", "--changes", help="Fences: Parquet files with their columns.")
    ],
    out: Out,
    checkpoint: Checkpoint,
    space: Space = "globe",
    once: Once = False,
    explain: Explain = False,
    every: Every = None,
    lateness: Lateness = "PT10S",
    until: Annotated[
        str | None, typer.Option("--until", help="How far time goes: an RFC 3339 moment.")
    ] = None,
    shards: Shards = 8,
    heartbeat: Heartbeat = None,
    max_rows: MaxRows = 200_000,
    metrics: Metrics = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Tell of objects that cross the border of a region, stay, or fall silent.

    The answer is fence_id, object, transition, at and event_id. Positions count in the order of
    their ends; one that comes later than --lateness allows is dropped, and counted. Dwells and
    losses are told when the watermark has passed them, and time moves with positions.

    Example:

      nearcast stream fences --events p/ --fences f/ --out told/ --checkpoint state/ --once
    """

    def made(spark: SparkSession) -> DataFrame:
        from nearcast.spark import event_stream
        from nearcast.spark import fences as told

        given = event_stream(
            spark, events, _any(space), heartbeat=heartbeat, max_rows=max_rows,
            shared=shared_of(checkpoint),
        )  # fmt: skip
        wanted = _table(spark, fences, "fences")
        return told(given, wanted, until, space=_any(space), lateness=lateness, shards=shards)

    about = _about(
        "fences: each position at the shard of its object", shards, checkpoint, heartbeat, max_rows
    )
    about |= {"events": events, "fences": fences, "space": space, "lateness": lateness}
    run(
        made, "fences", out, checkpoint, about=about, once=once, explain=explain, every=every,
        metrics=metrics, master=master, quiet=quiet, settings=_settings(shards),
    )  # fmt: skip


def _about(
    job: str, shards: int, checkpoint: str, heartbeat: str | None, max_rows: int
) -> dict[str, str]:
    idle = "stands still" if heartbeat is None else f"after {heartbeat} goes on with the clock"
    return {
        "job": job,
        "state": f"{shards} shards in RocksDB under the checkpoint; what was built is kept by "
        "workers, which read what waits when it has changed elsewhere",
        "time": "the watermark: the latest end that was seen, less the lateness; when the source "
        f"is idle it {idle}",
        "batch": f"up to {max_rows:,} events, in whole files",
        "rejected": f"{shared_of(checkpoint) or 'a temporary folder'}/rejected",
    }


def _settings(shards: int) -> dict[str, object]:
    return {
        "spark.sql.shuffle.partitions": shards,
        "spark.sql.streaming.stateStore.providerClass": _ROCKS,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
    }


def _table(spark: SparkSession, path: str, what: str) -> DataFrame:
    from nearcast.spark.frames import read_files

    return read_files(path, spark, what)[0]


def _any(value: Any) -> Any:
    """A word that its receiver checks, with a better message than a type has."""
    return value
