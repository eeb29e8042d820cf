"""Ways to build a safe region, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nearcast.errors import ValidationError
from nearcast.mobility import disc, incremental, printed, voronoi
from nearcast.mobility.situation import Built, Look, Situation

__all__ = ["METHODS", "Method", "method"]

Method: TypeAlias = Callable[[Situation, Look], Built]

METHODS: dict[str, Method] = {
    "disc": disc.build,
    "vm": voronoi.build,
    "gm": incremental.build_gm,
    "igm": incremental.build_igm,
    "idgm": incremental.build_idgm,
    "igm:printed": printed.build_igm,
    "idgm:printed": printed.build_idgm,
}


def method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise ValidationError("safe_region", name, f"give one of {', '.join(METHODS)}")
    return METHODS[name]
