"""Stages that are done once: a folder each, and a marker that says what it was made from.

A stage is finished when its marker is there and says the fingerprint that is asked for: a
hash of its settings, of what went in, and of the stages before. The marker is written last
and removed first, so whatever was left half-written is made anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from nearcast.errors import DatasetError
from nearcast.spark.folders import Folder, alone_in

__all__ = ["Listener", "Silent", "Stage", "StageReport", "Workspace"]

_MARKER = "_NEARCAST.json"
_ROOT = "_NEARCAST_PIPELINE"
_FORMAT = 1
_FULL = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True)
class StageReport:
    """What a stage did: kept in its marker, shown in the summary."""

    stage: str
    fingerprint: str
    rows: int
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    reused: bool = False
    format: int = _FORMAT


class Listener(Protocol):
    """Who is told how a pipeline goes."""

    def begin(self, stage: str) -> None:
        """A stage starts."""

    def end(self, report: StageReport) -> None:
        """A stage is finished, or was finished before (`reused`)."""


class Silent:
    """A listener that says nothing."""

    def begin(self, stage: str) -> None:
        """Nothing."""

    def end(self, report: StageReport) -> None:
        """Nothing."""


#: Does the work of a stage into a folder; returns rows and facts.
Work = Callable[[Folder], tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Stage:
    """One step: its name, what it depends on, how it is done."""

    name: str
    settings: Mapping[str, Any]
    after: Sequence[str]
    work: Work


class Workspace:
    """The folder of a pipeline, with one folder a stage."""

    def __init__(self, path: str, listener: Listener | None = None) -> None:
        self.root = Folder(path)
        self.listener = listener or Silent()
        self._fingerprints: dict[str, str] = {}

    def check(self, bytes_needed: int = 0) -> None:
        """Refuse a folder that is somebody else's, or a disk that is too full."""
        if self.root.exists() and not self.root.is_empty() and not (self.root / _ROOT).exists():
            raise DatasetError(
                f"{self.root} exists and was not written by a nearcast pipeline; "
                "give another --out, or empty it first"
            )
        free = self.root.free_bytes()
        if free is not None and free < bytes_needed:
            raise DatasetError(
                f"no space left: {self.root} needs about {bytes_needed / 1e6:,.0f} MB and "
                f"{free / 1e6:,.0f} MB are free; give --out on another disk"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder; a run that was killed holds nothing.

        Only on local disks: elsewhere nobody can be kept out.
        """
        self._claim()
        if self.root.remote:
            yield
            return
        with alone_in((self.root / _ROOT).path) as alone:
            if not alone:
                raise DatasetError(
                    f"another pipeline is at work in {self.root}; wait for it, or give another "
                    "--out"
                )
            yield

    def _claim(self) -> None:
        """Say whose folder this is."""
        if not (self.root / _ROOT).exists():
            (self.root / _ROOT).write_text("the folder of a nearcast pipeline\n")

    def folder(self, stage: str) -> Folder:
        """Where a stage's output is."""
        return self.root / stage

    def report(self, stage: str) -> StageReport | None:
        """What the marker of a stage says; None if it is not finished."""
        text = (self.folder(stage) / _MARKER).read_text()
        if text is None:
            return None
        try:
            return StageReport(**json.loads(text))
        except (ValueError, TypeError):
            return None  # half-written, or of another version: as if it were not there

    def fingerprint(self, stage: Stage) -> str:
        """The hash of all that decides what a stage gives."""
        before = {name: self._known(name) for name in stage.after}
        said = json.dumps(
            [_FORMAT, stage.name, stage.settings, before], sort_keys=True, default=str
        )
        return hashlib.sha256(said.encode()).hexdigest()

    def _known(self, name: str) -> str:
        if name not in self._fingerprints:
            found = self.report(name)
            if found is None:
                raise DatasetError(
                    f"{self.folder(name)} is not finished; run that stage first (nearcast "
                    "pipeline all does all of them)"
                )
            self._fingerprints[name] = found.fingerprint
        return self._fingerprints[name]

    def finished(self, stage: Stage) -> StageReport | None:
        """The report of a stage that need not be done again."""
        found = self.report(stage.name)
        if found is None or found.fingerprint != self.fingerprint(stage):
            return None
        return StageReport(**{**asdict(found), "reused": True})

    def foresee(self, stages: Sequence[Stage]) -> list[tuple[str, bool]]:
        """Which stages would be done (True) and which are there (False); changes nothing."""
        plan = []
        for stage in stages:
            fingerprint = self.fingerprint(stage)
            plan.append((stage.name, self.finished(stage) is None))
            self._fingerprints[stage.name] = fingerprint
        return plan

    def run(self, stage: Stage) -> StageReport:
        """Do a stage, unless it is done."""
        done = self.finished(stage)
        if done is None:
            done = self._do(stage)
        self._fingerprints[stage.name] = done.fingerprint
        self.listener.end(done)
        return done

    def _do(self, stage: Stage) -> StageReport:
        self.listener.begin(stage.name)
        fingerprint = self.fingerprint(stage)
        folder = self.folder(stage.name)
        self._claim()
        (folder / _MARKER).remove()
        folder.remove()
        started = time.perf_counter()
        with _told_plainly(folder):
            rows, facts = stage.work(folder)
        seconds = round(time.perf_counter() - started, 3)
        report = StageReport(stage.name, fingerprint, rows, seconds, facts)
        (folder / _MARKER).write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False))
        return report


@contextmanager
def _told_plainly(folder: Folder) -> Iterator[None]:
    """A full disk is said in one line, wherever Spark noticed it."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if any(sign in text for sign in _FULL):
            raise DatasetError(
                f"no space left while writing {folder}; make room or give another --out, then "
                "run the same command: finished stages are kept"
            ) from error
        if "FAILED_READ_FILE" in text or "MALFORMED" in text:
            first = text.strip().partition("\n")[0]
            raise DatasetError(
                f"a file cannot be read: {first}; fetch it again or remove it, then run the same "
                "command: finished stages are kept"
            ) from error
        raise
