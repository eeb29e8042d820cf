"""Measurements on disk: one JSON record a run, with everything needed to repeat it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nearcast.bench.metrics import Agreement, Spread, spread
from nearcast.bench.trial import Scalar
from nearcast.errors import BenchError

__all__ = ["Claim", "Measurement", "Record", "load", "load_all", "newest", "write"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """All repetitions of one contender in one trial, raw, and what surrounds them.

    `seconds` are the repetitions, `first_s` the warm-up before them (compilation taken
    off), `compile_s` the compilation during build and warm-up, `build_s` the time to open
    the contender's task (compilation taken off), `resident_bytes` what the process grew by
    meanwhile, and `memory` what the structure itself says. `cpu_s` is what the repetitions took
    of processors, all threads of this process together: less for whoever waits, and nearly the
    same on a machine that others use, too. It is empty where other processes did the work.
    """

    operation: str
    contender: str
    parameters: Mapping[str, Scalar]
    work: int
    unit: str
    seconds: tuple[float, ...]
    first_s: float
    compile_s: float
    build_s: float
    resident_bytes: int | None
    memory: Mapping[str, int]
    approximate: bool
    agreement: Agreement
    cpu_s: tuple[float, ...] = ()

    @property
    def spread(self) -> Spread:
        """The spread of the repetitions, in seconds."""
        return spread(self.seconds)

    @property
    def item_s(self) -> float:
        """The median seconds for one unit of work."""
        return self.spread.median / self.work

    @property
    def rate(self) -> float:
        """Units of work done in a second, at the median."""
        median = self.spread.median
        return self.work / median if median > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Claim:
    """A number somebody may want to hold against a target.

    `sense` says on which side of the target the value should be; no target, no verdict.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    sense: Literal["at least", "at most"] = "at least"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.sense == "at least" else self.value <= self.target


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one experiment: what, with which command, where, from which source, when."""

    experiment: str
    command: str
    settings: Mapping[str, tuple[Scalar, ...]]
    machine: Mapping[str, Any]
    commit: str
    date: str
    measurements: tuple[Measurement, ...]
    claims: tuple[Claim, ...] = ()
    format: int = field(default=_FORMAT)

    @property
    def stamp(self) -> str:
        """The date as a file name: sorts like the date."""
        moment = datetime.fromisoformat(self.date).astimezone(UTC)
        return moment.strftime("%Y%m%dT%H%M%SZ")


def write(record: Record, directory: Path) -> Path:
    """Store a record as `directory/<experiment>/<date>.json` and say where."""
    folder = directory / record.experiment
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.stamp}.json"
    path.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Record:
    """Read one record back, equal to what was written."""
    try:
        stored = json.loads(path.read_text("utf-8"))
        if stored["format"] != _FORMAT:
            raise BenchError(
                f"{path}: format {stored['format']} is not {_FORMAT}; run the experiment again"
            )
        stored["settings"] = {name: tuple(given) for name, given in stored["settings"].items()}
        stored["claims"] = tuple(Claim(**claim) for claim in stored["claims"])
        stored["measurements"] = tuple(_measurement(entry) for entry in stored["measurements"])
        return Record(**stored)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise BenchError(f"{path}: not a record of the bench ({error}); remove the file") from error


def _measurement(stored: dict[str, Any]) -> Measurement:
    stored["seconds"] = tuple(stored["seconds"])
    stored["cpu_s"] = tuple(stored.get("cpu_s", ()))
    stored["agreement"] = Agreement(**stored["agreement"])
    return Measurement(**stored)


def load_all(directory: Path) -> list[Record]:
    """Every record under a directory, oldest first; other JSON files are not looked at."""
    stored = re.compile(r"\d{8}T\d{6}Z\.json")
    paths = [path for path in directory.glob("*/*.json") if stored.fullmatch(path.name)]
    return sorted(map(load, paths), key=lambda record: (record.date, record.experiment))


def newest(records: list[Record]) -> list[Record]:
    """The last record of each command, by the experiment's name, then the oldest first."""
    ordered = sorted(records, key=lambda r: r.date)
    last = {record.command: record for record in ordered}
    return sorted(last.values(), key=lambda r: (r.experiment, r.date))
