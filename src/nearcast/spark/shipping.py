"""Files for the workers: saved matchers and tables that every machine maps once."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.clock import NEVER
from nearcast.errors import SparkError
from nearcast.matcher import Matcher, saved
from nearcast.model.geometry import Space
from nearcast.spark.workers import Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["live_events", "ship_matcher", "ship_table"]

_PREFIX = "nearcast-spark-"
_served: dict[tuple[str | None, str], str] = {}


def ship_matcher(
    spark: SparkSession, matcher: Matcher, shared: str | None, folder: str | None = None
) -> Shipped:
    """A matcher, saved where workers can map it; a folder it is saved in already is used."""
    if folder is None:
        folder = str(_fresh(shared))
        matcher.save(folder)
        folder_is_seen = shared is not None
    else:
        folder_is_seen = shared is not None and Path(shared) in Path(folder).parents
    header = saved.read_header(folder)
    path = os.path.join(os.path.abspath(folder), header.data)
    return Shipped(header.digest, path, _sent(spark, path, folder_is_seen), header)


def ship_table(spark: SparkSession, table: Any, shared: str | None) -> Shipped:
    """An Arrow table, as a file that workers can map."""
    key = uuid.uuid4().hex
    path = str(_fresh(shared) / f"table-{key}.arrow")
    whole = table.combine_chunks()
    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole)
    except OSError as error:
        raise SparkError(f"{path}: cannot be written ({error})") from None
    return Shipped(key, path, _sent(spark, path, shared is not None))


def _fresh(shared: str | None) -> Path:
    """A new folder: under the shared one, or one that goes when this process does."""
    root = _scratch() if shared is None else Path(shared)
    folder = root / f"match-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise SparkError(f"{folder}: cannot be made ({error.strerror})") from None
    return folder


@cache
def _scratch() -> Path:
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sweep(root: Path) -> None:
    """Remove what processes of this user left behind that were killed."""
    for folder in root.glob(f"{_PREFIX}[0-9]*-*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            if folder.stat().st_uid == os.getuid() and not _runs(int(number)):
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError, AttributeError):  # gone already, not ours, no such system
            continue


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def can_ship(spark: SparkSession) -> bool:
    """Whether files can be put on the workers: not through Spark Connect, which has no context."""
    try:
        return spark.sparkContext is not None
    except Exception:  # it says so in its own ways
        return False


def _sent(spark: SparkSession, path: str, seen: bool) -> str | None:
    """The name among Spark's files, None where workers see the path as it is."""
    if seen:
        return None
    if not can_ship(spark):
        raise SparkError(
            "through Spark Connect nothing can be shipped to the workers; give "
            "match(…, shared=FOLDER) a folder that both see, or plan='partitioned'"
        )
    context = spark.sparkContext
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return None
    name = os.path.basename(path)
    # Names tell contents apart, and Spark serves one file under a name.
    key = context.applicationId, name
    if key not in _served or not os.path.exists(_served[key]):
        context.addFile(path)
        _served[key] = path
    return name


def live_events(
    table: Any, index: str, space: Space, options: Mapping[str, Any]
) -> tuple[Matcher, Any]:
    """(a matcher with the events live under their row numbers, their ids and ends by row).

    Numbers, because an id may occur twice; without `expires`, because event matching asks
    only whether the subscription is still there at the event's end.
    """
    count = table.num_rows
    ends = np.full(count, NEVER, np.int64)
    if "end" in table.column_names:
        micros = table.column("end").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        ends = micros.combine_chunks().fill_null(NEVER).to_numpy(zero_copy_only=False)
    about = pa.table({"id": table.column("id").cast(pa.string()), "end": pa.array(ends)})
    kept = [name for name in table.column_names if name not in ("start", "end", "expires")]
    numbered = table.select(kept).set_column(
        kept.index("id"), "id", pa.array([str(row) for row in range(count)], pa.string())
    )
    matcher = Matcher(index, space, **options)
    matcher.add_events(numbered)
    return matcher, about
