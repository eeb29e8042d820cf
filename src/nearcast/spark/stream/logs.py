"""Which log a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.geometry import Space
from nearcast.spark.stream import kafka, served
from nearcast.spark.stream.folder import ChangeFolder, EventFolder

__all__ = ["change_log", "check", "event_log", "parquet_of"]

_SERVED = ("http", "https")
_REMEDY = "give a folder of Parquet or JSON files, http://… of a server, or kafka://host:port/topic"
_SCHEMES = ("file", "s3", "s3a", "gs", "hdfs", "viewfs", "abfs", "abfss")


def event_log(url: str, key: str | None, root: Path, space: Space) -> Any:
    """The log of events behind a URL; what has to be kept of it goes below a folder."""
    scheme = _scheme(url, "events")
    if scheme in _SCHEMES:
        return EventFolder(url, root=root, space=space)
    if scheme in _SERVED:
        return served.EventLog(url, key, root, space)
    if scheme == "kafka":
        return kafka.EventTopic(kafka.Topic.of(url, "events"), root, space)
    raise ValidationError("events", url, _REMEDY)


def change_log(url: str, key: str | None, root: Path, space: Space) -> Any:
    """The log of changes behind a URL."""
    scheme = _scheme(url, "changes")
    if scheme in _SCHEMES:
        return ChangeFolder(url, space=space)
    if scheme in _SERVED:
        return served.ChangeLog(url, key, space)
    if scheme == "kafka":
        return kafka.ChangeTopic(kafka.Topic.of(url, "changes"), root, space)
    raise ValidationError("changes", url, _REMEDY)


def check(url: str, what: str) -> None:
    """What is wrong with a URL, without asking anybody."""
    scheme = _scheme(url, what)
    if scheme in _SCHEMES:
        EventFolder(url, what)
    elif scheme == "kafka":
        kafka.Topic.of(url, what)
    elif scheme not in _SERVED:
        raise ValidationError(what, url, _REMEDY)


def parquet_of(url: str) -> str | None:
    """The first file of a folder that is all of Parquet; None for any other source."""
    if _scheme(url, "events") not in _SCHEMES:
        return None
    folder = EventFolder(url)
    names = folder.names()
    if not names:
        raise ValidationError(
            "events", url, "put a first file into the folder: it says what columns there are"
        )
    return folder.path(names[0]) if all(n.endswith(".parquet") for n in names) else None


def _scheme(url: str, what: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found:
        return "file"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValidationError(what, "…", "keys and passwords do not belong into a URL: see key=")
    return scheme
