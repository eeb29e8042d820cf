"""Fences over the past: positions in columns and in order of time, transitions in columns.

What a broker tells of the same positions if all fences are there before the first one and stay
where they are. Objects have nothing to do with each other, so the positions of some of them are a
history of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import ValidationError
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Groups, Key, key_of
from nearcast.fences.kernels import steps, timers
from nearcast.fences.kernels import tables as t
from nearcast.fences.positions import Columns, in_columns, with_near
from nearcast.fences.roll import Roll
from nearcast.fences.running import run
from nearcast.kernels import geometry
from nearcast.matcher import Matcher
from nearcast.matcher.places import shape_floats
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Box, Polygon, Space

__all__ = ["History", "Standing", "Told"]

I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]
#: The arrays that fences fill; the others belong to objects.
_OF_FENCES = (
    "fences", "terms", "margins", "floats", "groups", "classes", "slots", "entries", "boxes",
    "counters",
)  # fmt: skip
#: Those among them that positions change.
_CHANGED = ("fences", "counters")


@dataclass(frozen=True)
class Standing:
    """Fences that stand where they are, in arrays that may be mapped: nothing writes to them."""

    space: Space
    keys: tuple[Key, ...]
    """What counts for each group."""
    arrays: Mapping[str, Any]

    @classmethod
    def of(cls, fences: Iterable[Fence], space: Space) -> tuple[Standing, Matcher | None]:
        """The fences, in rows as they come, and a matcher of the groups that have a filter.

        Its subscriptions are named by the groups' rows. A fence with `Around` is refused, for in
        the past nobody says where its subscriber was.
        """
        arrays, groups = Arrays(), Groups(space)
        roll = Roll(space, arrays, groups)
        for fence in fences:
            if isinstance(fence.region, Around):
                raise ValidationError(
                    f"fences[{fence.id!r}].region", fence.region,
                    "a region that follows its subscriber (Around) has no place in a history: "
                    "give a Circle, a Box or a Polygon",
                )  # fmt: skip
            group = groups.get(key_of(fence)) or roll.open(fence)
            roll.enter(fence, group, 0, NEVER)
        kept = {name: getattr(arrays.tables, name) for name in _OF_FENCES}
        keys = {group.row: group.key for group in groups}
        return cls(space, tuple(keys[row] for row in range(len(keys))), kept), groups.matcher

    @property
    def has_timers(self) -> bool:
        """Whether time alone may bring something."""
        return bool((self.arrays["terms"][:, [t.DWELL, t.LOST]] >= 0).any())


class Told(NamedTuple):
    """Transitions in columns, in no particular order."""

    fences: I8
    """Rows of fences."""
    tracks: I8
    codes: I8
    """In the order of `nearcast.model.fences.TRANSITIONS`."""
    ats: I8
    positions: I8
    """The object's last position then, counted from 0 in the order in which they were taken."""


class History:
    """Positions of some objects past fences. Costs what a watch does, and no value is made."""

    def __init__(self, standing: Standing, groups: I8) -> None:
        """`groups` has the group of each track: an object among positions that count alike."""
        self._standing = standing
        self._globe = standing.space == "globe"
        self._groups = groups
        self._taken = 0
        self._arrays = Arrays()
        given = {
            name: array.copy() if name in _CHANGED else array
            for name, array in standing.arrays.items()
        }
        tracks = np.empty((len(groups), t.TRACK_COLUMNS), np.int64)
        tracks[:] = (
            0, NEVER, 0, FOREVER, FOREVER, FOREVER, -1, 0, geometry.POINT, 0, 0, t.UNCHANGED, 0,
        )  # fmt: skip
        tracks[:, t.T_GROUP] = groups
        empty = np.zeros(len(groups))
        self._arrays.put(**given, tracks=tracks, at_x=empty, at_y=empty.copy())

    def take(
        self, tracks: I8, ats: I8, xs: F8, ys: F8, shapes: Mapping[int, Box | Polygon]
    ) -> Told:
        """Positions in order of time, none older than one before; what they bring.

        Where no fence has timers, only those of one object have to be in order.

        `shapes` has the places of those, by row, that are not points.
        """
        count = len(tracks)
        items = in_columns(tracks, np.arange(count), self._taken + 1, ats, ats, FOREVER)
        self._taken += count
        columns = Columns(items, xs, ys)
        if shapes:
            columns = self._extended(columns, tracks, shapes)
        run(self._arrays, columns, 1, globe=self._globe)
        return self._told()

    def _extended(
        self, columns: Columns, tracks: I8, shapes: Mapping[int, Box | Polygon]
    ) -> Columns:
        """With what is not a point; nobody looks at the places of earlier calls any more."""
        floats: list[float] = []
        near = {}
        for row, place in shapes.items():
            kind, numbers = shape_floats(place)
            columns.items[row, [steps.I_KIND, steps.I_OFFSET]] = kind, len(floats)
            floats += numbers
            near[row] = place, int(self._groups[tracks[row]])
        self._arrays.put(places=np.array(floats))
        return with_near(columns, near, self._arrays, self._standing.space)

    def finish(self, before: Micros, closed: Micros = NEVER) -> Told:
        """Time goes on to its end: what is due before a moment, and up to another."""
        while lacking := timers.fire(self._arrays.packed, before, closed, 0):
            self._arrays.room(lacking)
        return self._told()

    def _told(self) -> Told:
        tables = self._arrays.tables
        out = tables.out[: tables.counters[t.OUT]]
        tables.counters[t.OUT] = 0
        ends = tables.terms[out[:, t.O_FENCE], t.ENDS]
        kept = out[(out[:, t.CODE] != t.FORGOTTEN) & (out[:, t.O_AT] < ends)]
        fences, tracks, codes, ats, seqs = (
            np.ascontiguousarray(kept[:, column])
            for column in (t.O_FENCE, t.O_TRACK, t.CODE, t.O_AT, t.O_SEQ)
        )
        return Told(fences, tracks, codes, ats, seqs - 1)
