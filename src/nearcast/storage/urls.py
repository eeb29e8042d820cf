"""Where a store is: `city.db`, `sqlite:///city.db`, `postgresql://host/city`, `memory:`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from nearcast.errors import ValidationError

__all__ = ["StoreUrl", "parse_url", "shown"]

_REMEDY = "give a file, sqlite:///file (sqlite:////file from the root), postgresql://… or memory:"
_SCHEMA = "nearcast"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A kind of store, and the file it is in or how its database is reached."""

    kind: Literal["sqlite", "postgresql", "memory"]
    path: Path | None = None
    reach: str = ""
    """What PostgreSQL's library takes."""
    schema: str = ""
    name: str = ""
    """What errors call it: nothing that is secret."""


def parse_url(url: str | os.PathLike[str]) -> StoreUrl:
    """The store that a URL or the path of a file names.

    >>> parse_url("sqlite:///city.db").path.name
    'city.db'
    >>> parse_url("postgresql://ann:secret@localhost/city?schema=north").name
    'postgresql://ann@localhost/city?schema=north'
    """
    if isinstance(url, os.PathLike):
        return StoreUrl("sqlite", Path(url), name=str(url))
    if not isinstance(url, str) or not url:
        raise ValidationError("store", url, _REMEDY)
    if url == "memory:":
        return StoreUrl("memory", name=url)
    scheme, found, rest = url.partition("://")
    if not found:
        if url == ":memory:" or url.endswith("/"):
            raise ValidationError("store", url, _REMEDY)
        return StoreUrl("sqlite", Path(url), name=url)
    if scheme in ("postgresql", "postgres"):
        return _postgresql(url)
    if scheme != "sqlite" or not rest.startswith("/") or rest == "/" or "?" in rest or "#" in rest:
        raise ValidationError("store", url, _REMEDY)
    return StoreUrl("sqlite", Path(unquote(rest[1:])), name=url)


def shown(url: str) -> str:
    """A store's URL without what is secret in it."""
    try:
        return parse_url(url).name
    except ValidationError:
        return url


def _postgresql(url: str) -> StoreUrl:
    """All that PostgreSQL's own URLs may have, and `schema`."""
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    names = [value for name, value in asked if name == "schema"] or [_SCHEMA]
    if len(names) > 1 or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", names[0]):
        raise ValidationError("schema", names[-1], "give one name of a-z, 0-9 and _")
    rest = [(name, value) for name, value in asked if name != "schema"]
    reach = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote)))
    user, found, place = parts.netloc.rpartition("@")
    public = [(name, value) for name, value in asked if "password" not in name]
    safe = parts._replace(
        netloc=f"{user.partition(':')[0]}{found}{place}", fragment="",
        query=urlencode(public, quote_via=quote),
    )  # fmt: skip
    return replace(StoreUrl("postgresql"), reach=reach, schema=names[0], name=urlunsplit(safe))
