"""Where a store is: `city.db`, `sqlite:///city.db`, `memory:`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from nearcast.errors import ValidationError

__all__ = ["StoreUrl", "parse_url"]

_REMEDY = "give a file, sqlite:///file (sqlite:////file from the root) or memory:"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A kind of store and the file it is in, if it is in one."""

    kind: Literal["sqlite", "memory"]
    path: Path | None = None


def parse_url(url: str | os.PathLike[str]) -> StoreUrl:
    """The store that a URL or the path of a file names.

    >>> parse_url("sqlite:///city.db").path.name
    'city.db'
    """
    if isinstance(url, os.PathLike):
        return StoreUrl("sqlite", Path(url))
    if not isinstance(url, str) or not url:
        raise ValidationError("store", url, _REMEDY)
    if url == "memory:":
        return StoreUrl("memory")
    scheme, found, rest = url.partition("://")
    if not found:
        if url == ":memory:" or url.endswith("/"):
            raise ValidationError("store", url, _REMEDY)
        return StoreUrl("sqlite", Path(url))
    if scheme != "sqlite" or not rest.startswith("/") or rest == "/" or "?" in rest or "#" in rest:
        raise ValidationError("store", url, _REMEDY)
    return StoreUrl("sqlite", Path(unquote(rest[1:])))
