"""The pipeline as jobs: paths in, folders of Parquet out, done stage by stage.

Everything that can be refused is refused before the first stage: see `Pipeline.check`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from pyspark.sql import functions as f

from nearcast.clock import Time, to_micros
from nearcast.errors import DatasetError, ValidationError
from nearcast.index import registry
from nearcast.spark.fences import fences
from nearcast.spark.folders import Folder
from nearcast.spark.inputs import Format, Inputs, find_inputs, parquet_schema
from nearcast.spark.match import MOST_BYTES, explain, match
from nearcast.spark.plans import Kind
from nearcast.spark.prepare import Preparation, preparation_stages
from nearcast.spark.schemas import (
    event_names,
    fence_names,
    position_names,
    subscription_names,
)
from nearcast.spark.stages import Listener, Stage, StageReport, Workspace
from nearcast.spark.tune import tune

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Job", "Pipeline", "Summary"]

Job: TypeAlias = Literal["prepare", "tune", "match", "fences", "all"]

_JOBS: dict[str, tuple[str, ...]] = {
    "prepare": ("fixes", "points", "areas", "subscriptions", "events"),
    "tune": ("tuning",),
    "match": ("matches",),
    "fences": ("transitions",),
}
#: What the folders take together, as a multiple of the traces and by subscription or event.
_GROWTH, _ROW_BYTES = 8, 600


@dataclass(frozen=True)
class Summary:
    """What a run did: one report a stage, in order."""

    reports: tuple[StageReport, ...]
    seconds: float

    def __getitem__(self, stage: str) -> StageReport:
        return next(report for report in self.reports if report.stage == stage)

    def lines(self) -> list[tuple[str, str, str, str]]:
        """Stage, rows, seconds and what else is worth knowing, as text."""
        return [
            (
                report.stage,
                f"{report.rows:,}",
                "there already" if report.reused else f"{report.seconds:.1f} s",
                _remark(report),
            )
            for report in self.reports
        ]


def _remark(report: StageReport) -> str:
    facts = report.facts
    if report.stage == "fixes":
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in facts["reasons"].items())
        of = f" ({reasons})" if reasons else ""
        return f"{facts['rejected']:,} of {facts['read']:,} rejected{of}"
    if report.stage == "points":
        return str(facts["kind"])
    if report.stage == "tuning":
        return (
            f"{facts['index']}: {facts['why']}; skew {facts['skew']:g} over {facts['cells']} cells"
        )
    if report.stage == "matches":
        plan = str(facts["plan"]).partition("\n")[0].removeprefix("plan").strip()
        return f"{plan}; skew {facts['skew']:g}"
    if report.stage == "transitions":
        return ", ".join(f"{name} {count:,}" for name, count in facts["told"].items())
    return ""


@dataclass(frozen=True)
class Pipeline:
    """A run over a workspace. `traces` are needed by `prepare` only.

    `tune` and `match` may take other `events` and `subscriptions` (paths of Parquet) than
    those that `prepare` has made. `fences` (a path, too) watch `positions`, or else the fixes of
    `prepare`, whose attribute `id` names the object; `all` does that if there are any.
    """

    spark: SparkSession
    out: str
    traces: Sequence[str] = ()
    preparation: Preparation = field(default_factory=Preparation)
    format: Format | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    events: str | None = None
    subscriptions: str | None = None
    index: str = "auto"
    plan: str = "auto"
    most_bytes: int = MOST_BYTES
    listener: Listener | None = None
    fences: str | None = None
    positions: str | None = None
    until: Time | None = None

    def run(self, job: Job = "all") -> Summary:
        """Do what is not done yet. Raises before the first stage where something is wrong."""
        space = self._space()
        started = time.perf_counter()
        stages = self._checked(job, space)
        space.foresee(stages)  # before anything is written: what is needed must be there
        with space.held(), _micros_in_parquet(self.spark):
            reports = [space.run(stage) for stage in stages]
        return Summary(tuple(reports), time.perf_counter() - started)

    def foresee(self, job: Job = "all") -> list[tuple[str, bool]]:
        """Which stages a run would do (True) or find done (False), all checks included."""
        space = self._space()
        return space.foresee(self._checked(job, space))

    def _space(self) -> Workspace:
        return Workspace(self.out, self.listener)

    def _checked(self, job: Job, space: Workspace) -> list[Stage]:
        if job not in (*_JOBS, "all"):
            raise ValidationError("job", job, f"give one of {', '.join([*_JOBS, 'all'])}")
        if self.index != "auto":
            registry.require(self.index, subscriptions=True)
        kinds = ("auto", *get_args(Kind))
        if self.plan not in kinds:
            raise ValidationError("plan", self.plan, f"give one of {', '.join(kinds)}")
        stages: list[Stage] = []
        needed = 0
        if job in ("prepare", "all"):
            inputs = self._inputs()
            stages += preparation_stages(self.spark, space, inputs, self.preparation)
            rows = (self.preparation.subscriptions or 0) + (self.preparation.events or 0)
            needed = _GROWTH * inputs.bytes + _ROW_BYTES * rows
        if job in ("tune", "all"):
            stages.append(self._tuning(space))
        if job in ("match", "all"):
            stages.append(self._matches(space, job))
        if job == "fences" or (job == "all" and self.fences is not None):
            stages.append(self._transitions(space))
        space.check(needed)
        return stages

    def _inputs(self) -> Inputs:
        if not self.traces:
            raise DatasetError("which traces? give files or folders, or --dry-run a finished --out")
        inputs = find_inputs(self.traces, self.format, self.columns)
        out = f"{Folder(self.out)}/"
        inside = next((file.path for file in inputs.files if file.path.startswith(out)), None)
        if inside is not None:
            raise DatasetError(
                f"{inside} lies in --out, where stages replace what is there; give another --out"
            )
        return inputs

    def _source(self, space: Workspace, side: str) -> tuple[str, dict[str, Any], list[str]]:
        """Path, settings and earlier stages of one side."""
        given = self.events if side == "events" else self.subscriptions
        if given is None:
            return space.folder(side).path, {}, [side]
        return given, self._files(given, side), []

    def _files(self, given: str, side: str) -> dict[str, Any]:
        """The settings that files of Parquet are; refused if they are none, or lack columns."""
        files = Folder(given).files()
        if not files:
            raise DatasetError(f"{given} does not exist or holds no files; give --{side} a path")
        for file in files:
            parquet_schema(file)
        _NAMES[side](self.spark.read.parquet(given))
        return {side: [[x.path, x.size, x.changed_ns] for x in files]}

    def _tuning(self, space: Workspace) -> Stage:
        events, e_settings, e_after = self._source(space, "events")
        subscriptions, s_settings, s_after = self._source(space, "subscriptions")

        def work(folder: Folder) -> tuple[int, Mapping[str, Any]]:
            read = self.spark.read.parquet
            value = tune(read(events), read(subscriptions))
            (folder / "tuning.json").write_text(json.dumps(value, indent=1, ensure_ascii=False))
            cells = value["partitioning"]
            return len(value["attributes"]), {
                "index": value["index"], "why": value["why"],
                "skew": cells.get("skew", 1.0), "cells": len(cells.get("cells", ())) or 1,
            }  # fmt: skip

        return Stage("tuning", e_settings | s_settings, [*e_after, *s_after], work)

    def _matches(self, space: Workspace, job: Job) -> Stage:
        events, e_settings, e_after = self._source(space, "events")
        subscriptions, s_settings, s_after = self._source(space, "subscriptions")
        tuned = job == "all" or space.report("tuning") is not None
        settings = {"index": self.index, "plan": self.plan, "most_bytes": self.most_bytes}

        def work(folder: Folder) -> tuple[int, Mapping[str, Any]]:
            read = self.spark.read.parquet
            tuning = None
            if tuned:
                tuning = json.loads((space.folder("tuning") / "tuning.json").read_text() or "{}")
            matches = match(
                read(events), read(subscriptions), index=self.index, plan=self.plan,
                most_bytes=self.most_bytes, tuning=tuning,
            )  # fmt: skip
            plan = explain(matches)
            matches.write.parquet(folder.path)
            rows, skew = _spread(self.spark, folder)
            return rows, {"plan": plan, "skew": skew}

        after = [*e_after, *s_after, *(["tuning"] if tuned else [])]
        return Stage("matches", settings | e_settings | s_settings, after, work)

    def _transitions(self, space: Workspace) -> Stage:
        if self.fences is None:
            raise DatasetError("which fences? give --fences a path of Parquet files")
        wanted = self.fences
        settings = self._files(wanted, "fences")
        until = None if self.until is None else to_micros(self.until, "until")
        if self.positions is not None:
            settings |= self._files(self.positions, "positions")

        def work(folder: Folder) -> tuple[int, Mapping[str, Any]]:
            read = self.spark.read.parquet
            source = self.positions or _positions_of(read(space.folder("fixes").path))
            told = fences(source, read(wanted), until)
            told.write.parquet(folder.path)
            counts = read(folder.path).groupBy("transition").count().orderBy("transition").collect()
            by = {str(row["transition"]): int(row["count"]) for row in counts}
            return sum(by.values()), {"told": by}

        after = [] if self.positions is not None else ["fixes"]
        return Stage("transitions", {"until": until, **settings}, after, work)


_NAMES = {
    "events": event_names,
    "subscriptions": subscription_names,
    "positions": position_names,
    "fences": fence_names,
}


def _positions_of(fixes: DataFrame) -> DataFrame:
    """Fixes as positions: who and when name one, for there is one at a time."""
    known = [name for name in ("id", "occupied") if name in fixes.columns]
    return fixes.select(
        f.concat_ws("@", "id", f.unix_micros("ts").cast("string")).alias("id"),
        f.struct(*known).alias("attributes"), "lon", "lat", f.col("ts").alias("end"),
    )  # fmt: skip


@contextmanager
def _micros_in_parquet(spark: SparkSession) -> Iterator[None]:
    """Timestamps as everybody reads them; Spark's default, INT96, has no zone elsewhere."""
    name = "spark.sql.parquet.outputTimestampType"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _spread(spark: SparkSession, folder: Folder) -> tuple[int, float]:
    """Rows of a folder, and how much more than the average its fullest part has."""
    parts = spark.read.parquet(folder.path).groupBy(f.spark_partition_id()).count().collect()
    counts = [int(row["count"]) for row in parts]
    if not counts:
        return 0, 1.0
    return sum(counts), round(max(counts) * len(counts) / sum(counts), 3)
