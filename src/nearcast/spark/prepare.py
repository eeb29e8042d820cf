"""Prepare: from raw traces to subscriptions and events, each step a folder of Parquet.

fixes, rejects ─▶ points ─▶ areas ─▶ events
                     └────────────▶ subscriptions
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from pyspark import StorageLevel
from pyspark.sql import functions as f

from nearcast.errors import DatasetError, ValidationError
from nearcast.spark.areas import default_areas, hot_areas
from nearcast.spark.cleaning import Bounds, follow, keep_inside, learn_bounds
from nearcast.spark.folders import Folder
from nearcast.spark.inputs import Inputs
from nearcast.spark.population import Attributes, Population
from nearcast.spark.stages import Stage, Workspace
from nearcast.spark.stays import numbered, pick_ups, stay_points
from nearcast.spark.traces import check_sample, read_traces, refuse_if_bad

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Preparation", "preparation_stages"]

_FIX = ("id", "session", "ts", "lon", "lat", "occupied", "pick_up")


@dataclass(frozen=True)
class Preparation:
    """Every setting of the preparation; None stands for what the data says."""

    box: tuple[float, float, float, float] | None = None
    swap: bool = False
    time_zone: str = "UTC"
    max_speed_m_s: float = 50.0
    gap_s: float = 600.0
    stay_radius_m: float = 150.0
    stay_s: float = 300.0
    points: Literal["auto", "pick-ups", "stays"] = "auto"
    areas: int | None = None
    subscriptions: int | None = None
    events: int | None = None
    attributes: Attributes = "mo"
    seed: int = 0
    max_rejects: float = 0.5

    def __post_init__(self) -> None:
        if self.box is not None:
            Bounds(*self.box)
        for name in ("max_speed_m_s", "gap_s", "stay_radius_m", "stay_s"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "give a number > 0")
        for name in ("areas", "subscriptions", "events"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "give a whole number ≥ 1")
        _require(self.seed >= 0, "seed", self.seed, "give a whole number ≥ 0")
        _require(0 <= self.max_rejects <= 1, "max_rejects", self.max_rejects, "give 0 … 1")
        _require(_is_zone(self.time_zone), "time_zone", self.time_zone, "give e.g. Europe/Zurich")
        choices = ("auto", "pick-ups", "stays")
        _require(self.points in choices, "points", self.points, f"give one of {choices}")
        kinds = get_args(Attributes)
        _require(self.attributes in kinds, "attributes", self.attributes, f"give one of {kinds}")

    def only(self, *names: str) -> dict[str, Any]:
        """Some of the settings by name: what a stage depends on."""
        return {name: value for name, value in asdict(self).items() if name in names}


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    if re.fullmatch(r"[+-]\d{2}:\d{2}", name):
        return True
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True


def _require(holds: bool, name: str, value: object, remedy: str) -> None:
    if not holds:
        raise ValidationError(name, value, remedy)


def preparation_stages(
    spark: SparkSession, space: Workspace, inputs: Inputs, wanted: Preparation
) -> list[Stage]:
    """The stages, in order: fixes, points, areas, subscriptions, events."""
    steps = _Steps(spark, space, inputs, wanted)
    read = [[file.path, file.size, file.changed_ns] for file in inputs.files]
    cleaning = wanted.only("box", "swap", "time_zone", "max_speed_m_s", "gap_s", "max_rejects")
    source = {"files": read, "format": inputs.format, "columns": inputs.columns, **cleaning}
    stay = wanted.only("points", "stay_radius_m", "stay_s")
    drawn = wanted.only("attributes", "seed")
    return [
        Stage("fixes", source, (), steps.fixes),
        Stage("points", stay, ("fixes",), steps.points),
        Stage("areas", wanted.only("areas", "seed"), ("points",), steps.areas),
        Stage(
            "subscriptions", drawn | wanted.only("subscriptions"), ("points",), steps.subscriptions
        ),
        Stage(
            "events", drawn | wanted.only("events", "subscriptions"), ("points", "areas"),
            steps.events,
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class _Steps:
    """The work of each stage; reads what the ones before have written."""

    spark: SparkSession
    space: Workspace
    inputs: Inputs
    wanted: Preparation

    def _read(self, stage: str) -> DataFrame:
        return self.spark.read.parquet(self.space.folder(stage).path)

    def _fact(self, stage: str, name: str) -> Any:
        report = self.space.report(stage)
        assert report is not None
        return report.facts[name]

    def _rows(self, stage: str) -> int:
        report = self.space.report(stage)
        assert report is not None
        return report.rows

    def fixes(self, folder: Folder) -> tuple[int, Mapping[str, Any]]:
        """Read, clean and follow; rejects go to a folder of their own beside the good ones."""
        wanted = self.wanted
        raw = read_traces(self.spark, self.inputs, time_zone=wanted.time_zone, swap=wanted.swap)
        check_sample(raw, wanted.max_rejects)
        bounds = Bounds(*wanted.box) if wanted.box is not None else learn_bounds(raw)
        inside = keep_inside(raw, bounds)
        followed = follow(inside, wanted.max_speed_m_s, wanted.gap_s)
        followed = followed.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rejects = self.space.folder("rejects")
            rejects.remove()
            _rejected(inside, followed).write.parquet(rejects.path)
            good = followed.where("reason is null").select(*_FIX, f.to_date("ts").alias("day"))
            good.write.partitionBy("day").parquet(folder.path)
        finally:
            followed.unpersist()
        return self._counted(folder, rejects, bounds)

    def _counted(
        self, folder: Folder, rejects: Folder, bounds: Bounds
    ) -> tuple[int, Mapping[str, Any]]:
        by_reason = self.spark.read.parquet(rejects.path).groupBy("reason").count().collect()
        bad = {row["reason"]: int(row["count"]) for row in by_reason}
        kept = self.spark.read.parquet(folder.path)
        about = kept.agg(
            f.count("*").alias("rows"), f.count("occupied").alias("told"),
            f.count_distinct("id").alias("tracks"),
            f.unix_micros(f.min("ts")).alias("first"), f.unix_micros(f.max("ts")).alias("last"),
        ).collect()[0]  # fmt: skip
        rows, total = int(about["rows"]), int(about["rows"]) + sum(bad.values())
        refuse_if_bad(bad, total, self.wanted.max_rejects, f"of {total:,} rows")
        if rows == 0:
            raise DatasetError("no fix is left after cleaning; look at the folder rejects")
        facts = {
            "read": total, "rejected": sum(bad.values()),
            "reasons": dict(sorted(bad.items(), key=lambda item: -item[1])),
            "tracks": int(about["tracks"]), "occupancy": int(about["told"]) > 0,
            "first_us": int(about["first"]), "last_us": int(about["last"]), "box": asdict(bounds),
        }  # fmt: skip
        return rows, facts

    def points(self, folder: Folder) -> tuple[int, Mapping[str, Any]]:
        """Pick-ups where occupancy is known, stays where it is not; numbered."""
        kind = self.wanted.points
        if kind == "auto":
            kind = "pick-ups" if self._fact("fixes", "occupancy") else "stays"
        fixes = self._read("fixes")
        if kind == "pick-ups":
            found = pick_ups(fixes)
        else:
            found = stay_points(fixes, self.wanted.stay_radius_m, self.wanted.stay_s)
            found = found.select("id", "session", "ts", "lon", "lat")
        found = found.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            numbered(found).write.parquet(folder.path)
        finally:
            found.unpersist()
        rows = self._read("points").count()
        if rows == 0:
            raise DatasetError(
                f"the traces hold no {kind}; give --points "
                f"{'stays' if kind == 'pick-ups' else 'pick-ups'}, or other --stay-seconds and "
                "--stay-radius"
            )
        return rows, {"kind": kind}

    def areas(self, folder: Folder) -> tuple[int, Mapping[str, Any]]:
        """Hot areas of the points."""
        asked = self.wanted.areas or default_areas(self._rows("points"))
        hot_areas(self._read("points"), asked, self.wanted.seed).write.parquet(folder.path)
        return self._read("areas").count(), {"asked": asked}

    def _population(self) -> Population:
        first, last = self._fact("fixes", "first_us"), self._fact("fixes", "last_us")
        return Population(
            self.wanted.attributes, self.wanted.seed, start=first, seconds=(last - first) / 1e6
        )

    def subscriptions(self, folder: Folder) -> tuple[int, Mapping[str, Any]]:
        """One round every point, or as many as are asked for."""
        total = self._rows("points")
        count = self.wanted.subscriptions or total
        made = self._population().subscriptions(self._read("points"), count, total)
        made.write.parquet(folder.path)
        return count, {"attributes": self.wanted.attributes}

    def events(self, folder: Folder) -> tuple[int, Mapping[str, Any]]:
        """In the hot areas, as many as there are subscriptions unless told otherwise."""
        count = self.wanted.events or self.wanted.subscriptions or self._rows("points")
        made = self._population().events(self.spark, self._read("areas"), count)
        made.write.parquet(folder.path)
        return count, {"attributes": self.wanted.attributes}


def _rejected(inside: DataFrame, followed: DataFrame) -> DataFrame:
    """`reason`, `file`, `raw` of everything that was not kept."""
    early = inside.where("reason is not null")
    shown = f.to_json(f.struct("id", "ts", "lon", "lat", "occupied"))
    late = followed.where("reason is not null").select("reason", "file", shown.alias("raw"))
    raw = f.coalesce("raw", shown)
    return early.select("reason", "file", raw.alias("raw")).unionByName(late)
