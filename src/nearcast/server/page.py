"""The map's page: the files that were built from `web/`, as they are, and what is drawn under it.

Anybody may load the page, which shows nothing by itself: what it shows it asks for, with a key
where there are keys. It may load, connect to and be framed by nothing but this server, and where
tiles are wanted, the server of these.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from starlette.responses import Response

from nearcast.errors import ValidationError
from nearcast.server.desk import Ask
from nearcast.server.problems import Problem
from nearcast.server.settings import tiles_origin

__all__ = ["build", "check_base", "city_base", "get_asset", "get_base", "get_root"]

_TYPES = {
    "html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml",
    "txt": "text/plain",
}  # fmt: skip
#: MapLibre makes pictures of its sprites in memory (blob:, data:); nothing else is let in.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_PLACEHOLDER = b"__BUILD__"
#: Beyond this a base is better made smaller: a browser has to hold all of it.
_LARGEST_BASE = 64 * 2**20
_DEMO_SEED = 7  # of `demo.SEED`, which needs more to import


class _File(NamedTuple):
    body: bytes
    packed: bytes
    tag: str


@cache
def build() -> str:
    """A digest of the whole page: one that is open knows by it that it is an old one."""
    digest = blake2b(digest_size=8)
    folder = files("nearcast.server").joinpath("static")
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        if each.is_file():
            digest.update(each.name.encode() + each.read_bytes())
    return digest.hexdigest()


@cache
def _file(name: str) -> _File | None:
    if "/" in name or name.rpartition(".")[2] not in _TYPES:
        return None
    found = files("nearcast.server").joinpath("static", name)
    if not found.is_file():
        return None
    body = found.read_bytes().replace(_PLACEHOLDER, build().encode())
    tag = f'"{blake2b(body, digest_size=8).hexdigest()}"'
    return _File(body, gzip.compress(body, 6, mtime=0), tag)


async def _sent(ask: Ask, name: str) -> Response:
    found = await asyncio.to_thread(_file, name)
    if found is None:
        raise Problem(404, "there is no such file", "name", name, "see /")
    headers = _HEADERS | {"ETag": found.tag}
    if ask.desk.settings.tiles:
        allowed = f"connect-src 'self' {tiles_origin(ask.desk.settings.tiles)}"
        policy = _POLICY.replace("connect-src 'self'", allowed)
        headers |= {"Content-Security-Policy": policy}
    asked = ask.request.headers
    if asked.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    media = _TYPES[name.rpartition(".")[2]]
    if "gzip" in asked.get("accept-encoding", ""):
        return Response(found.packed, 200, headers | {"Content-Encoding": "gzip"}, media)
    return Response(found.body, 200, headers, media)


async def get_root(ask: Ask) -> Response:
    """`GET /`: the map."""
    return await _sent(ask, "index.html")


async def get_asset(ask: Ask) -> Response:
    """`GET /static/{name}`: what belongs to it."""
    return await _sent(ask, ask.id)


def check_base(path: str) -> bytes:
    """The file of a base, if it is GeoJSON; ValidationError that names it otherwise."""
    file = Path(path)
    try:
        if file.stat().st_size > _LARGEST_BASE:
            raise ValidationError("base", path, f"give a file of at most {_LARGEST_BASE:,} bytes")
        body = file.read_bytes()
        said = json.loads(body)
    except OSError as error:
        raise ValidationError("base", path, f"give a file to read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ValidationError("base", path, f"give GeoJSON ({error})") from None
    if not isinstance(said, dict) or said.get("type") not in ("FeatureCollection", "Feature"):
        raise ValidationError("base", path, "give a GeoJSON FeatureCollection or Feature")
    return body


async def get_base(ask: Ask) -> Response:
    """`GET /v1/base`: what is drawn under the map; nothing unless there is a demo or a file."""
    settings = ask.desk.settings
    if settings.base:
        body = await asyncio.to_thread(check_base, settings.base)
    elif settings.demo:
        body = await asyncio.to_thread(city_base)
    else:
        body = b'{"type":"FeatureCollection","features":[]}'
    return Response(body, media_type="application/geo+json")


@cache
def city_base() -> bytes:
    """The demo's town: its river, its roads by kind, down to a metre."""
    from nearcast.datasets.city import City
    from nearcast.datasets.roads import KINDS

    city = City(seed=_DEMO_SEED)
    roads = city.roads
    lines = [_rounded(city.river)]
    features: list[dict[str, Any]] = [_lines("river", lines)]
    ends = [[roads.lon[side], roads.lat[side]] for side in roads.ends.T]
    for number, kind in enumerate(KINDS):
        some = roads.kind == number
        (x0, y0), (x1, y1) = ([axis[some] for axis in end] for end in ends)
        table = zip(x0, y0, x1, y1, strict=True)
        features.append(_lines(kind, [_rounded([(a, b), (c, d)]) for a, b, c, d in table]))
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def _rounded(line: Any) -> list[list[float]]:
    return [[round(float(x), 5), round(float(y), 5)] for x, y in line]


def _lines(kind: str, lines: list[list[list[float]]]) -> dict[str, Any]:
    geometry = {"type": "MultiLineString", "coordinates": lines}
    return {"type": "Feature", "properties": {"kind": kind}, "geometry": geometry}
