"""`nearcast pipeline`: traces in; subscriptions, events, a tuning, matches, transitions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.console import result_console, spark_progress
from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from nearcast.spark.jobs import Summary
    from nearcast.spark.stages import StageReport

__all__ = ["Watch", "pipeline", "show_summary", "watched"]

_JOBS = "prepare, tune, match, fences, or all of them"


def pipeline(
    job: Annotated[str, typer.Argument(metavar="JOB", help=_JOBS)],
    traces: Annotated[
        list[str] | None, typer.Argument(help="Files or folders of traces; for prepare and all.")
    ] = None,
    out: Annotated[str, typer.Option(help="The folder of the pipeline, a folder a stage.")] = "",
    format: Annotated[
        str | None, typer.Option(help="parquet, csv, geojson, geojsonl or mf-json.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="OURS=THEIRS", help="id, ts, lon, lat, occupied."),
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="XMIN,YMIN,XMAX,YMAX", help="Where fixes may lie.")
    ] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Coordinates come as lat, lon.")] = False,
    time_zone: Annotated[str, typer.Option(help="Of times that name none.")] = "UTC",
    max_speed: Annotated[float, typer.Option(help="m/s that nobody exceeds.")] = 50.0,
    gap: Annotated[float, typer.Option(help="Seconds of silence that end a session.")] = 600.0,
    points: Annotated[
        str, typer.Option(help="pick-ups, stays, or auto: what the traces can say.")
    ] = "auto",
    stay_radius: Annotated[float, typer.Option(help="Metres within which one stays.")] = 150.0,
    stay_seconds: Annotated[float, typer.Option(help="How long a stay is at least.")] = 300.0,
    areas: Annotated[int | None, typer.Option(help="How many hot areas.")] = None,
    subscriptions: Annotated[
        str | None, typer.Option(help="How many to make; for tune and match also a path.")
    ] = None,
    events: Annotated[
        str | None, typer.Option(help="How many to make; for tune and match also a path.")
    ] = None,
    attributes: Annotated[
        str, typer.Option(help="mo (MO-Tree's twenty) or market (shops and offers).")
    ] = "mo",
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    max_rejects: Annotated[float, typer.Option(help="Share of bad rows that is borne.")] = 0.5,
    index: Annotated[str, typer.Option(help="Which index matches; auto: the tuning's.")] = "auto",
    plan: Annotated[str, typer.Option(help="auto, broadcast or partitioned.")] = "auto",
    fences: Annotated[
        str | None, typer.Option(help="Fences, as Parquet; for fences, and all if there are any.")
    ] = None,
    positions: Annotated[
        str | None, typer.Option(help="What they watch, as Parquet; else the fixes of prepare.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="How far time goes for them, RFC 3339.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say what would be done, stop.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master, e.g. local[4].")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress.")] = False,
) -> None:
    """Run the data pipeline on Spark, stage by stage; finished stages are not redone.

    Examples:

      nearcast pipeline all traces/ --out work/

      nearcast pipeline prepare cabs.csv --column id=cab --out work/ --dry-run

      nearcast pipeline match --events e.parquet --subscriptions s.parquet --out work/

      nearcast pipeline fences --fences f.parquet --positions p.parquet --out work/
    """
    if not out:
        raise ValidationError("--out", out, "say in which folder the results shall be")
    from nearcast.spark.session import session

    given = _given(columns or [])
    bounds = _box(box)
    spark = session("nearcast pipeline", master)
    from nearcast.spark.jobs import Pipeline
    from nearcast.spark.prepare import Preparation

    wanted = Preparation(
        box=bounds, swap=swap, time_zone=time_zone, max_speed_m_s=max_speed, gap_s=gap,
        stay_radius_m=stay_radius, stay_s=stay_seconds, points=_any(points), areas=areas,
        subscriptions=_count(subscriptions), events=_count(events),
        attributes=_any(attributes), seed=seed, max_rejects=max_rejects,
    )  # fmt: skip
    watch = Watch(quiet=quiet)
    run = Pipeline(
        spark, out, traces or (), wanted, _any(format), given, _path(events),
        _path(subscriptions), index, plan, listener=watch, fences=fences, positions=positions,
        until=until,
    )  # fmt: skip
    if dry_run:
        for stage, to_do in run.foresee(_any(job)):
            result_console().print(
                f"{stage:<14} {'would be done' if to_do else 'is there already'}"
            )
        return
    with watched(spark, watch):
        summary = run.run(_any(job))
    show_summary(summary)
    result_console().print(f"folder  {Path(out).absolute() if '://' not in out else out}")


def _any(value: Any) -> Any:
    """A word that its receiver checks, with a better message than a type has."""
    return value


def _given(columns: list[str]) -> dict[str, str]:
    given = {}
    for text in columns:
        ours, equals, theirs = text.partition("=")
        if not equals or not theirs:
            raise ValidationError("--column", text, "write OURS=THEIRS, e.g. id=cab_id")
        given[ours.strip()] = theirs.strip()
    return given


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        xmin, ymin, xmax, ymax = map(float, text.split(","))
    except ValueError:
        raise ValidationError("--box", text, "write XMIN,YMIN,XMAX,YMAX in degrees") from None
    return xmin, ymin, xmax, ymax


def _count(text: str | None) -> int | None:
    """A number of rows; None where a path was given."""
    digits = (text or "").replace("_", "").replace(",", "")
    return int(digits) if digits.isdigit() else None


def _path(text: str | None) -> str | None:
    return text if text is not None and _count(text) is None else None


class Watch:
    """Tells the stages as they come: a bar of Spark's tasks, or a line each without a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._tell: Callable[[str, int, int], None] = lambda *_: None
        self._stage = ""

    def begin(self, stage: str) -> None:
        """A stage starts."""
        self._stage = stage
        self._tell(stage, 0, 0)

    def end(self, report: StageReport) -> None:  # noqa: ARG002
        """A stage is done."""
        self._stage = ""

    def tasks(self, done: int, total: int) -> None:
        """Spark's tasks of the jobs that run now."""
        if self._stage:
            self._tell(self._stage, done, total)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While inside, what is told is shown."""
        with spark_progress(quiet=self._quiet) as tell:
            self._tell = tell
            try:
                yield
            finally:
                self._tell = lambda *_: None


@contextmanager
def watched(spark: Any, watch: Watch) -> Iterator[None]:
    """While inside, a watch shows how far Spark is."""
    from nearcast.spark.progress import following

    with watch.shown(), following(spark, watch.tasks):
        yield


def show_summary(summary: Summary) -> None:
    """Rows, seconds and remarks of each stage, as a table."""
    from nearcast.bench.tables import Grid, rich_table

    console = result_console()
    columns = ("stage", "rows", "time", "remarks")
    title = f"pipeline: {summary.seconds:.1f} s"
    console.print(rich_table(Grid(title, columns, tuple(summary.lines())), console.width))
