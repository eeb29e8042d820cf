"""Fences as JSON: a subscription with `object`, `on`, `margin_m`, `dwell` and `lost`.

docs/wire.md shows one. Durations are written in ISO 8601 and read as seconds, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.codec.events import batch
from nearcast.model.codec.places import members
from nearcast.model.codec.subscriptions import subscription_from_json, subscription_to_json
from nearcast.model.durations import format_seconds
from nearcast.model.fences import Fence
from nearcast.model.geometry import Space

__all__ = ["fence_from_json", "fence_to_json", "fences_from_json", "fences_to_json"]

_OWN = ("object", "on", "margin_m", "dwell", "lost")


def fence_to_json(fence: Fence) -> dict[str, Any]:
    """The fence as an object `json.dumps` takes; what is not set is left out."""
    given = subscription_to_json(fence.subscription())
    given["object"] = fence.object
    given["on"] = sorted(fence.on)
    if fence.margin_m:
        given["margin_m"] = fence.margin_m
    for name in ("dwell", "lost"):
        duration: timedelta | None = getattr(fence, name)
        if duration is not None:
            given[name] = f"PT{format_seconds(duration // timedelta(microseconds=1))}S"
    return given


def fence_from_json(given: object, *, space: Space = "globe") -> Fence:
    """The fence of an object, as `json.loads` gives it."""
    wanted = members(given, "fence", "an object")
    own = {name: wanted[name] for name in _OWN if wanted.get(name) is not None}
    rest = {name: value for name, value in wanted.items() if name not in _OWN}
    return Fence.of(subscription_from_json(rest, space=space), **own)


def fences_to_json(fences: Iterable[Fence]) -> list[dict[str, Any]]:
    """Fences as a list of objects."""
    return batch(fences, fence_to_json)


def fences_from_json(given: object, *, space: Space = "globe") -> list[Fence]:
    """The fences of a list of objects; a bad one raises a BatchError with its row."""
    if not isinstance(given, list | tuple):
        raise ValidationError("fences", given, "give a list of objects")
    return batch(given, lambda each: fence_from_json(each, space=space))
