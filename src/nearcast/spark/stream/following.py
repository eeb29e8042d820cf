"""Any stream of events, subscriptions that change: versions made beside it, pinned by batch.

The driver follows the log of changes and puts each new version into a folder, as layers that
workers map. The first task of a batch that looks takes the newest and writes down which one, under
the batch's number; all tasks of the batch, and whoever runs it again, take that one.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastError, SparkError, ValidationError
from nearcast.model.geometry import Space
from nearcast.spark import shipping
from nearcast.spark.folders import alone_in
from nearcast.spark.frames import mapped
from nearcast.spark.stream import logs
from nearcast.spark.stream.bases import digest_of, usable
from nearcast.spark.stream.changes import sifted, tell
from nearcast.spark.stream.layering import Layering
from nearcast.spark.stream.register import Register
from nearcast.spark.stream.served import ChangeLog
from nearcast.spark.stream.worker import Arrivals, Layers
from nearcast.spark.workers import gathered, task_threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Follower", "Versioned", "carry_out", "pinned"]

#: What it gives, in Spark's words.
SCHEMA = "event_id string, subscription_id string, version bigint"
_log = logging.getLogger("nearcast.spark")
_LOOK_S = 0.2
_TOGETHER = 65_536
_KEPT_BATCHES = 4
_KEPT_VERSIONS = 3
_KEPT_S = 60.0  # from when there is a newer one: somebody may have looked just before
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_followers: dict[tuple[Any, ...], Follower] = {}


def carry_out(
    events: DataFrame, names: list[str], changes: str, space: Space, index: str,
    options: Mapping[str, Any], shared: str | None, key: str | None,
) -> DataFrame:  # fmt: skip
    """`nearcast.spark.match.match` with `changes`: a DataFrame with the column `version`."""
    spark = events.sparkSession
    logs.check(changes, "changes")
    if shared is None and not _is_here(spark):
        raise ValidationError("shared", None, "give a folder that the driver and all workers see")
    about = changes, shared, space, index, json.dumps(dict(options), sort_keys=True, default=str)
    follower = _followers.get(about)
    if follower is None:
        root = shipping._fresh(None) if shared is None else Path(shared)
        follower = Follower(changes, key, root, space, index, options)
        follower.step()
        _followers[about] = follower
    follower.start(lambda: _is_stopped(spark))
    fixed = None if events.isStreaming else newest(follower.root)[1]
    rows = events.select(*[f"`{name}`" for name in names])
    return mapped(rows, Versioned(str(follower.root), space, fixed), SCHEMA)


def _is_here(spark: Any) -> bool:
    try:
        return str(spark.sparkContext.master).startswith("local")
    except Exception:  # Connect says so in its own ways
        return False


def _is_stopped(spark: Any) -> bool:
    try:
        return spark.sparkContext._jsc is None
    except Exception:  # through Connect there is none: it ends with the process
        return False


# --- beside the stream ----------------------------------------------------------------------------


class Follower:
    """Keeps the versions of a log of changes in a folder; one thread of the driver's.

    `root` is a folder below the shared one, the same for the same job: a batch that runs again
    after a restart finds its version there. So one process at a time follows a log for a job.
    """

    def __init__(
        self, changes: str, key: str | None, shared: Path, space: Space, index: str,
        options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._job = digest_of(changes, space, index, dict(options))
        self.root = root = shared / f"changes-{self._job}"
        self._space, self._changes = space, changes
        for name in ("versions", "pins"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._alone = ExitStack()
        self._at: Any = None
        self._hold()
        self._log = logs.change_log(changes, key, root, space)
        removals = not isinstance(self._log, ChangeLog)
        self._layering = Layering(root, index, space, options, removals=removals)
        self._thread: threading.Thread | None = None
        self._warned = False

    def _hold(self) -> None:
        """Have the folder alone; SparkError while another process has it."""
        if not self._alone.enter_context(alone_in(str(self.root / "lock"))):
            self._alone.close()
            raise SparkError(
                f"{self.root}: another process follows {self._changes} there; give each its own "
                "folder as `shared`"
            )
        self._number = max((_number(each) for each in _versions(self.root)), default=0)
        self._at = None

    def close(self) -> None:
        """Leave the folder to others."""
        self._layering.close()
        self._alone.close()

    def start(self, over: Any) -> None:
        """Follow the log until `over` says that nobody asks any more."""
        if self._thread is None or not self._thread.is_alive():
            if self._thread is not None:
                self._hold()
            self._thread = threading.Thread(
                target=self._run, args=(over,), name="nearcast-changes", daemon=True
            )
            self._thread.start()

    def _run(self, over: Any) -> None:
        while not over():
            time.sleep(_LOOK_S)
            try:
                self.step()
                self._warned = False
            except (OSError, NearcastError) as error:  # the stream goes on with what it knows
                if not self._warned:
                    _log.warning("changes cannot be read, and are asked for again: %s", error)
                self._warned = True
        self.close()

    def step(self) -> bool:
        """Count what has come; whether that made a new version."""
        layering = self._layering
        if self._at is None:
            self._at = self._begin()
            made = True
        else:
            made = False
        layering.switch()
        until = self._log.latest(self._at, None, None)
        if until != self._at:
            made |= self._fold(self._log.read(self._at, until))
            self._at = until
        if made:
            layering.compact(self._at)
            self._put(layering.layers())
            self._tidy()
        return made

    def _begin(self) -> Any:
        """Where reading begins: at the newest base that is there, or before everything."""
        at, register = self._log.first, Register()
        for base in usable(self.root):
            if self._log.reaches(at, base.position):
                register, at = Register(base=base, version=base.seq), base.position
        self._layering.restart(register)
        return at

    def _fold(self, table: Any) -> bool:
        if table is None or not table.num_rows:
            return False
        register = self._layering.register
        seqs = [seq for seq in table.column("seq").to_pylist() if seq is not None]
        register.version = max([register.version, *seqs])
        if "offset" in table.column_names:
            table = table.drop_columns(["offset"])
        good, bad = sifted(table, self._space, self._log.plain)
        if bad:
            tell(bad, _rejected(self.root), self._job, f"{self._number + 1:012d}")
        register.fold(good, self._number + 1, None, False)
        return True

    def _put(self, layers: Layers) -> None:
        self._number += 1
        folder = self.root / "versions"
        scratch = folder / f".{self._number}"
        scratch.write_bytes(pickle.dumps(layers))
        scratch.replace(folder / f"{self._number:012d}-{os.urandom(4).hex()}")

    def _tidy(self) -> None:
        """Remove versions that no batch needs any more, and the files of their layers."""
        batches: dict[str, list[tuple[int, Path]]] = {}
        for pin in (self.root / "pins").glob("*@*"):
            query, _, batch = pin.name.partition("@")
            batches.setdefault(query, []).append((int(batch.partition("~")[0]), pin))
        wanted: set[str] = set()
        for pins in batches.values():
            oldest = sorted({number for number, _ in pins})[-_KEPT_BATCHES:][0]
            for number, pin in pins:
                if number < oldest:
                    pin.unlink(missing_ok=True)
                else:
                    wanted.add(pin.read_text("utf-8"))
        versions = _versions(self.root)
        young = time.time() - _KEPT_S
        newest = versions[-_KEPT_VERSIONS:]
        kept: set[Path] = set()
        for path, after in zip(versions, [*versions[1:], versions[-1]], strict=True):
            if path in newest or path.name in wanted or after.stat().st_mtime > young:
                layers: Layers = pickle.loads(path.read_bytes())
                files = [each for each in (layers.base, layers.delta, layers.dead) if each]
                kept |= {folder for each in files for folder in Path(each.path).parents}
            else:
                path.unlink(missing_ok=True)
        if self._layering.register.base is not None:
            kept.add(self._layering.register.base.folder)
        if self._layering.building is not None:
            kept.add(self._layering.building.folder)
        for folder in [*self.root.glob("delta-*"), *self.root.glob("base-*")]:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _rejected(root: Path) -> Path:
    return root.parent / "rejected"


def _versions(root: Path) -> list[Path]:
    return sorted(each for each in (root / "versions").iterdir() if each.name[0] != ".")


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


# --- in tasks -------------------------------------------------------------------------------------


def newest(root: Path) -> tuple[str, Layers]:
    """The newest version and its name."""
    for _ in range(100):
        try:
            path = _versions(root)[-1]
            return path.name, pickle.loads(path.read_bytes())
        except (FileNotFoundError, IndexError):  # it was replaced that moment
            time.sleep(0.05)
    raise SparkError(f"{root}: there is no version of the subscriptions that workers can see")


def pinned(root: Path, query: str, batch: str) -> Layers:
    """The version of a batch: the first who asks takes the newest, and the others the same."""
    for attempt in range(100):
        # What was chosen may be gone by the time it is written down. Pins are only added, so all
        # tasks go through the same ones and end at the same version.
        pin = root / "pins" / (f"{query}@{batch}~{attempt}" if attempt else f"{query}@{batch}")
        if not pin.exists():
            _write_down(newest(root)[0], pin)
        try:
            layers: Layers = pickle.loads((root / "versions" / pin.read_text("utf-8")).read_bytes())
        except FileNotFoundError:
            continue
        return layers
    raise SparkError(f"{root}: the versions of the subscriptions go before they can be read")


def _write_down(name: str, pin: Path) -> None:
    scratch = pin.with_name(f".{os.urandom(8).hex()}")
    scratch.write_text(name, "utf-8")
    try:
        os.link(scratch, pin)
    except FileExistsError:
        pass  # somebody was quicker
    finally:
        scratch.unlink()


@dataclass(frozen=True)
class Versioned:
    """Events past the version that their batch sees."""

    root: str
    space: Space
    fixed: Layers | None
    """The version, where there are no batches."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        layers, where = self.fixed, "a batch"
        for number, events in enumerate(gathered(batches, _TOGETHER)):
            if layers is None:
                layers, where = self._taken()
            task = Arrivals([], layers, self.space, str(_rejected(Path(self.root))))
            yield from task.matched(events, task_threads(), f"{where} {number}")

    def _taken(self) -> tuple[Layers, str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        about = [None if context is None else context.getLocalProperty(n) for n in (_QUERY, _BATCH)]
        if context is None or not all(about):
            return newest(Path(self.root))[1], "a batch"
        query, batch = map(str, about)
        where = f"{query} {batch} {context.partitionId()}"
        return pinned(Path(self.root), query, batch), where
