"""GeoJSON and OGC Moving Features JSON: documents become fixes, one row each, as text.

A GeoJSON point is a fix whose time and occupancy are properties. MF-JSON comes in two
encodings: *Trajectory* (a LineString with `datetimes` among its properties) and *Prism*
(`temporalGeometry` of type MovingPoint, with `temporalProperties` beside it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nearcast.spark.inputs import FIELDS

__all__ = ["RawFix", "fixes_of"]


class RawFix(NamedTuple):
    """A fix as text, not looked at yet; or the reason why there is none, with what was read."""

    id: str | None = None
    ts: str | None = None
    lon: str | None = None
    lat: str | None = None
    occupied: str | None = None
    problem: str | None = None
    raw: str | None = None


def fixes_of(text: str | bytes, columns: Mapping[str, str]) -> Iterator[RawFix]:
    """The fixes of one document; what is no fix is told with a reason, never left out.

    `columns` names the properties where the usual names do not fit.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        shown = text[:200].decode("utf-8", "replace") if isinstance(text, bytes) else text[:200]
        yield RawFix(problem=f"not JSON ({error})", raw=shown)
        return
    if not isinstance(document, dict):
        yield _refused("neither a Feature nor a FeatureCollection", document)
        return
    features = document.get("features")
    for feature in features if isinstance(features, list) else [document]:
        yield from _feature(feature, columns)


def _refused(problem: str, found: object) -> RawFix:
    return RawFix(problem=problem, raw=json.dumps(found)[:500])


def _feature(feature: Any, columns: Mapping[str, str]) -> Iterator[RawFix]:
    if not isinstance(feature, dict):
        yield _refused("no Feature", feature)
        return
    moving = feature.get("temporalGeometry")
    if isinstance(moving, dict):
        yield from _prism(feature, moving, columns)
        return
    geometry: Any = feature.get("geometry")
    said = feature.get("properties") or {}
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind == "Point":
        place = geometry.get("coordinates")
        yield _fix(feature, said, _said(said, "ts", columns), place, columns)
    elif kind == "LineString" and isinstance(said.get("datetimes"), list):
        yield from _along(feature, said["datetimes"], geometry.get("coordinates"), {}, columns)
    else:
        yield _refused(f"geometry {kind!r} is neither a Point nor a trajectory", feature)


def _prism(
    feature: dict[str, Any], moving: dict[str, Any], columns: Mapping[str, str]
) -> Iterator[RawFix]:
    if moving.get("type") != "MovingPoint":
        yield _refused(f"temporalGeometry {moving.get('type')!r} is no MovingPoint", feature)
        return
    states: dict[Any, Any] = {}
    wanted = [columns["occupied"]] if "occupied" in columns else list(FIELDS["occupied"])
    for group in feature.get("temporalProperties") or []:
        name = next((name for name in wanted if name in group), None)
        if name is not None:
            states.update(zip(group.get("datetimes", []), group[name]["values"], strict=False))
    yield from _along(feature, moving.get("datetimes"), moving.get("coordinates"), states, columns)


def _along(
    feature: dict[str, Any],
    times: Any,
    places: Any,
    states: Mapping[Any, Any],
    columns: Mapping[str, str],
) -> Iterator[RawFix]:
    if not isinstance(times, list) or not isinstance(places, list) or len(times) != len(places):
        yield _refused("datetimes and coordinates are no lists of equal length", feature)
        return
    said = feature.get("properties") or {}
    for time, place in zip(times, places, strict=True):
        # MF-JSON counts milliseconds where it counts.
        seconds = time / 1000 if isinstance(time, int | float) else time
        yield _fix(feature, said, seconds, place, columns, states.get(time))


def _said(properties: Mapping[str, Any], field: str, columns: Mapping[str, str]) -> Any:
    names = (columns[field],) if field in columns else FIELDS[field]
    return next((properties[name] for name in names if name in properties), None)


def _fix(
    feature: dict[str, Any],
    said: Mapping[str, Any],
    ts: Any,
    place: Any,
    columns: Mapping[str, str],
    occupied: Any = None,
) -> RawFix:
    id_ = _said(said, "id", columns)
    state = _said(said, "occupied", columns) if occupied is None else occupied
    lon, lat = (place[0], place[1]) if isinstance(place, list) and len(place) >= 2 else (None, None)
    return RawFix(*map(_text, (feature.get("id") if id_ is None else id_, ts, lon, lat, state)))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
