"""`nearcast stream`: jobs on Spark that do not stop, and what they have in common.

A job makes a streaming DataFrame; `run` here writes it, watches it, and starts it again when it
fails. `match` is below; a further job imports the options and `run`, and is entered into `stream`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.console import result_console, watching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.spark.stream.beats import Beat

__all__ = [
    "SOURCES",
    "Checkpoint",
    "Every",
    "Explain",
    "Master",
    "MaxRows",
    "Metrics",
    "Once",
    "Out",
    "Quiet",
    "Space",
    "match",
    "run",
    "shared_of",
    "stream",
]

stream = typer.Typer(
    help="Match, detect and watch fences on streams, on Spark, without stopping.",
    no_args_is_help=True,
)

SOURCES = "a folder of Parquet or JSON files, kafka://host:port/topic, or http://… of a server"

Out = Annotated[
    str, typer.Option("--out", help="Where results go: a folder, or http://… of a server.")
]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", help="A folder that remembers how far the job has come.")
]
Space = Annotated[str, typer.Option("--space", help="globe or planar.")]
Once = Annotated[bool, typer.Option("--once", help="Read what is there, and end.")]
Every = Annotated[
    float | None, typer.Option("--every", help="Seconds between batches at least.", min=0.0)
]
Explain = Annotated[bool, typer.Option("--explain", help="Say what would be done, and how.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master, e.g. local[4].")]
Metrics = Annotated[
    str | None, typer.Option("--metrics", help="Figures for Prometheus: a file, or HOST:PORT.")
]
MaxRows = Annotated[int, typer.Option("--max-rows", help="Events a batch, in whole files.", min=1)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]


@stream.command()
def match(
    events: Annotated[str, typer.Option("--events", help=f"Events: {SOURCES}.")],
    changes: Annotated[
        str, typer.Option("--changes", help="Changes of subscriptions, or plain subscriptions.")
    ],
    out: Out,
    checkpoint: Checkpoint,
    space: Space = "globe",
    once: Once = False,
    explain: Explain = False,
    every: Every = None,
    remember: Annotated[
        int, typer.Option("--remember", help="Events that newcomers are told of.", min=0)
    ] = 1_000_000,
    max_rows: MaxRows = 200_000,
    max_changes: Annotated[
        int | None, typer.Option("--max-changes", help="Changes a batch, in whole files.", min=1)
    ] = None,
    index: Annotated[str, typer.Option("--index", help="Which index matches.")] = "auto",
    metrics: Metrics = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Match events as they come against subscriptions that change meanwhile.

    The answer is event_id, subscription_id and version: the greatest `seq` of the changes that
    the event's batch had read. Newcomers are told of what already matches, once.
    A key for a server comes from NEARCAST_KEY, and is written nowhere.

    Examples:

      nearcast stream match --events e/ --changes c/ --out matches/ --checkpoint state/

      nearcast stream match --events e/ --changes c/ --out matches/ --checkpoint state/ --once

      nearcast stream match --events e/ --changes c/ --out matches/ --checkpoint state/ --explain
    """
    from nearcast.spark import match_stream

    shared = shared_of(checkpoint)

    def made(spark: SparkSession) -> DataFrame:
        return match_stream(
            spark, events, changes, _any(space), remember=remember, max_rows=max_rows,
            max_changes=max_changes, shared=shared, index=index,
        )  # fmt: skip

    about = {
        "job": "match: each event past the subscriptions as they stand when its batch begins",
        "events": events,
        "changes": changes,
        "space": space,
        "batch": f"up to {max_rows:,} events and "
        f"{'all' if max_changes is None else f'{max_changes:,}'} changes, in whole files",
        "version": "fixed by Spark's checkpoint before a batch runs: base, delta and the ids that "
        "do not count in the base, mapped once a machine; compacted behind",
        "newcomers": f"are told of the newest {remember:,} events that have not expired"
        if remember
        else "are told of nothing that came before them",
        "rejected": f"{shared or 'a temporary folder'}/rejected",
        "index": index,
    }
    run(
        made, "match", out, checkpoint, about=about, once=once, explain=explain, every=every,
        metrics=metrics, master=master, quiet=quiet,
    )  # fmt: skip


def shared_of(checkpoint: str) -> str | None:
    """Where files beside a checkpoint lie, if it is on a path."""
    return None if "://" in checkpoint else str(Path(checkpoint).absolute() / "nearcast")


def run(
    made: Callable[[SparkSession], DataFrame],
    job: str,
    out: str,
    checkpoint: str,
    *,
    about: dict[str, str],
    once: bool = False,
    explain: bool = False,
    every: float | None = None,
    metrics: str | None = None,
    master: str | None = None,
    quiet: bool = False,
    settings: dict[str, object] | None = None,
) -> None:
    """Write a job's DataFrame until it is over, restarted when it fails; or `explain` it.

    `made` makes the DataFrame anew for each start, `about` says what the job does, by topic.
    """
    from nearcast.spark.session import session
    from nearcast.spark.stream.figures import Figures
    from nearcast.spark.stream.running import (
        Run,
        batches_done,
        checked_folder,
        supervise,
    )

    out, checkpoint = checked_folder("--out", out), checked_folder("--checkpoint", checkpoint)
    if explain:
        done = batches_done(checkpoint)
        _show(about | {
            "out": out, "checkpoint": checkpoint,
            "from": "the beginning" if done is None else f"after batch {done}",
            "until": "what is there has been read" if once else "Ctrl-C; restarted if it fails",
        })  # fmt: skip
        return
    spark = session(f"nearcast stream {job}", master, settings=settings)
    wanted = Run(out, checkpoint, once=once, every_s=every, name=f"nearcast-{job}",
                 key=os.environ.get("NEARCAST_KEY"))  # fmt: skip
    totals = [0, 0]
    figures = None if metrics is None else Figures(metrics)
    with watching(quiet=quiet) as say:
        say(f"stream {job}: waiting for the first batch")

        def tell(beat: Beat) -> None:
            totals[0] += beat.rows_in
            totals[1] += beat.rows_out or 0
            say(_line(job, beat))
            if figures is not None:
                figures.add(beat, job)

        def warn(text: str) -> None:
            say(text)
            if figures is not None:
                figures.failed(job)

        try:
            supervise(lambda: wanted.start(made(spark)), tell, warn=warn)
        finally:
            said = f"{totals[0]:,} rows read, {totals[1]:,} written to {out}"
            result_console(quiet=quiet).print(said, markup=False, soft_wrap=True)


def _line(job: str, beat: Beat) -> str:
    rate = beat.rows_in / beat.seconds if beat.seconds else 0.0
    parts = [
        f"stream {job}: batch {beat.batch}",
        f"{beat.rows_in:,} read in {beat.seconds:.2f} s ({rate:,.0f}/s)",
    ]
    if beat.rows_out is not None:
        parts.append(f"{beat.rows_out:,} written")
    late = beat.details.get("observedMetrics", {}).get("nearcast", {}).get("late")
    if late:
        parts.append(f"{late:,} too late")
    if beat.behind is not None:
        parts.append(f"{beat.behind:,} behind")
    return ", ".join(parts)


def _show(about: dict[str, str]) -> None:
    console = result_console()
    width = max(map(len, about))
    for name, text in about.items():
        console.print(f"{name:<{width}}  {text}", markup=False, soft_wrap=True)


def _any(value: Any) -> Any:
    """A word that its receiver checks, with a better message than a type has."""
    return value
