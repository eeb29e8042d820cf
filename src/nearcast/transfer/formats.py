"""Which format a file has: its ending says it, or whoever names it."""

from __future__ import annotations

from pathlib import Path

from nearcast.errors import ValidationError

__all__ = ["FORMATS", "format_of"]

#: Endings by format: a FeatureCollection, a Feature a line, Arrow's file format, Parquet.
FORMATS: dict[str, tuple[str, ...]] = {
    "geojson": (".geojson", ".json"),
    "geojsonl": (".geojsonl", ".geojsons", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "parquet": (".parquet",),
}


def format_of(path: Path, said: str | None) -> str:
    """The format of a file."""
    if said is not None:
        if said not in FORMATS:
            raise ValidationError("format", said, f"choose one of {', '.join(FORMATS)}")
        return said
    for name, endings in FORMATS.items():
        if path.suffix.lower() in endings:
            return name
    known = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    raise ValidationError("file", str(path), f"name it with one of {known}, or say --format")
