"""What there is to read: the files behind the given paths, their format and their columns.

Everything that can be refused without a Spark job is refused here: a path that is not
there, a file that is damaged, a column that is missing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from nearcast.errors import DatasetError
from nearcast.spark.folders import File, Folder

__all__ = ["FIELDS", "Format", "Inputs", "find_inputs", "parquet_schema"]

Format: TypeAlias = Literal["parquet", "csv", "geojson", "geojsonl", "mf-json"]

#: Our columns of a fix, and the names they are known by elsewhere.
FIELDS: dict[str, tuple[str, ...]] = {
    "id": ("id", "cab_id", "taxi_id", "vehicle_id", "device_id", "user_id", "mmsi", "icao24"),
    "ts": ("ts", "timestamp", "time", "datetime", "date_time", "t"),
    "lon": ("lon", "lng", "longitude", "x"),
    "lat": ("lat", "latitude", "y"),
    "occupied": ("occupied", "occupancy", "passenger", "has_passenger", "loaded"),
}
_OPTIONAL = {"occupied"}
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".geojson": "geojson",
    ".geojsonl": "geojsonl",
    ".geojsons": "geojsonl",
    ".ndjson": "geojsonl",
    ".mfjson": "mf-json",
    ".mf.json": "mf-json",
}
_HEAD = 1 << 16


@dataclass(frozen=True)
class Inputs:
    """Files of one format, in groups whose columns have the same types."""

    format: Format
    groups: tuple[tuple[File, ...], ...]
    columns: tuple[tuple[str, str], ...]
    """(our name, name in the files); empty for formats that name no columns."""
    header: tuple[str, ...] = ()
    """All columns of CSV files, in their order."""

    @property
    def files(self) -> tuple[File, ...]:
        """All files, in the order of their names."""
        return tuple(sorted(file for group in self.groups for file in group))

    @property
    def bytes(self) -> int:
        """How large they are together."""
        return sum(file.size for file in self.files)


def find_inputs(
    paths: str | Iterable[str],
    format: Format | None = None,
    columns: Mapping[str, str] | None = None,
) -> Inputs:
    """The files behind paths (files or folders), checked: one look at each file's head or foot.

    `format` is told by the ending where it is not given; `columns` maps our names (`id`,
    `ts`, `lon`, `lat`, `occupied`) to those in the files where the usual ones do not fit.
    """
    if format is not None and format not in get_args(Format):
        raise DatasetError(f"format: {format!r} is unknown; give one of {_formats()}")
    given = dict(columns or {})
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise DatasetError(
            f"columns: there is no {', '.join(unknown)}; you can name {', '.join(FIELDS)}"
        )
    named = [paths] if isinstance(paths, str) else list(paths)
    files = sorted({file for path in named for file in _files_of(path, format)})
    if not files:
        raise DatasetError(
            f"nothing to read in {', '.join(named) or 'no path'}; give files or folders "
            f"with endings {', '.join(_FORMATS)}, or say --format"
        )
    found = {format or _format_of(file.path) for file in files}
    if len(found) > 1:
        raise DatasetError(f"the files are {' and '.join(map(str, sorted(map(str, found))))}; "
                           "prepare one format at a time, or say --format")  # fmt: skip
    kind = found.pop()
    assert kind is not None
    if kind == "parquet":
        return _parquet(files, given)
    if kind == "csv":
        return _csv(files, given)
    return Inputs(kind, (tuple(files),), tuple(given.items()))


def _formats() -> str:
    return ", ".join(get_args(Format))


def _format_of(path: str) -> Format | None:
    name = path.rsplit("/", 1)[-1].lower()
    endings = sorted(_FORMATS, key=len, reverse=True)
    return next((_FORMATS[ending] for ending in endings if name.endswith(ending)), None)


def _files_of(path: str, format: Format | None) -> list[File]:
    folder = Folder(path)
    files = folder.files()
    if files is None:
        raise DatasetError(f"{path} does not exist; check the path of the traces")
    known = [file for file in files if format is not None or _format_of(file.path) is not None]
    if files and not known and len(files) == 1 and files[0].path == folder.path:
        raise DatasetError(f"{path}: its ending tells no format; say --format ({_formats()})")
    empty = next((file for file in known if file.size == 0), None)
    if empty is not None:
        raise DatasetError(f"{empty.path} is empty (0 bytes); remove it or fetch it again")
    return known


def _matched(names: Iterable[str], given: Mapping[str, str], where: str) -> dict[str, str]:
    """Our columns by their names there; one that is missing is an error."""
    there = list(names)
    lowered = {name.lower().strip(): name for name in reversed(there)}
    found: dict[str, str] = {}
    for field, usual in FIELDS.items():
        if field in given:
            if given[field] not in there:
                raise DatasetError(
                    f"{where} has no column {given[field]!r} (for {field}); "
                    f"it has: {', '.join(there)}"
                )
            found[field] = given[field]
            continue
        match = next((lowered[name] for name in usual if name in lowered), None)
        if match is not None:
            found[field] = match
        elif field not in _OPTIONAL:
            raise DatasetError(
                f"{where} lacks a column for {field} (looked for {', '.join(usual)}); it has: "
                f"{', '.join(there)}. Name it: --column {field}=NAME"
            )
    return found


def _parquet(files: list[File], given: Mapping[str, str]) -> Inputs:
    groups: dict[tuple[Any, ...], list[File]] = {}
    columns: dict[str, str] = {}
    for file in files:
        schema = parquet_schema(file)
        mine = _matched(schema.names, given, file.path)
        if columns and mine != columns:
            raise DatasetError(
                f"{file.path} has other columns than {files[0].path} "
                f"({_listed(mine)} against {_listed(columns)}); prepare them one by one"
            )
        columns = mine
        types = tuple(_checked_type(file, schema.field(name)) for name in mine.values())
        groups.setdefault(types, []).append(file)
    return Inputs("parquet", tuple(map(tuple, groups.values())), tuple(columns.items()))


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{ours}={theirs}" for ours, theirs in columns.items())


def parquet_schema(file: File) -> Any:
    """The columns that a file's footer names; DatasetError if it is no Parquet, or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            return pq.ParquetFile(stream).schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{file.path} is no Parquet file, or damaged ({error}); fetch it again or remove it"
        ) from None


def _checked_type(file: File, field: Any) -> str:
    import pyarrow as pa

    if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
        raise DatasetError(
            f"{file.path}: column {field.name!r} has nanoseconds, which Spark does not read; "
            "write it with microseconds (pyarrow: coerce_timestamps='us')"
        )
    if pa.types.is_nested(field.type) or (
        pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    ):
        raise DatasetError(
            f"{file.path}: column {field.name!r} is {field.type}; give numbers, text, times or "
            "booleans"
        )
    return str(field.type)


def _csv(files: list[File], given: Mapping[str, str]) -> Inputs:
    header = _csv_header(files[0])
    for file in files[1:]:
        other = _csv_header(file)
        if other != header:
            raise DatasetError(
                f"{file.path} has another header than {files[0].path} ({', '.join(other)} "
                f"against {', '.join(header)}); prepare them one by one"
            )
    columns = _matched(header, given, files[0].path)
    return Inputs("csv", (tuple(files),), tuple(columns.items()), header)


def _csv_header(file: File) -> tuple[str, ...]:
    with file.open() as stream:
        head = stream.read(_HEAD)
    if file.path.endswith(".gz"):
        import zlib

        try:
            head = zlib.decompressobj(wbits=31).decompress(head)
        except zlib.error as error:
            raise DatasetError(f"{file.path} is no gzip file ({error}); fetch it again") from None
    try:
        line = head.partition(b"\n")[0].decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise DatasetError(f"{file.path} is not UTF-8 text; convert it first") from None
    names = tuple(next(csv.reader(io.StringIO(line)), []))
    if len(set(names)) < len(names) or not all(names):
        raise DatasetError(
            f"{file.path}: the header {line[:80]!r} has names that are empty or repeated; "
            "the first line must name the columns"
        )
    return names
