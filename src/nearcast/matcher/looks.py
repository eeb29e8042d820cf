"""What can be said of a piece of a subscription table before anybody asks the schema.

Pieces are looked at on several threads; what needs the schema comes after, in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.kernels import survey
from nearcast.kernels.arrange import frozen
from nearcast.matcher import texts
from nearcast.matcher.arrow_columns import (
    any_valid,
    bad_names,
    bad_times,
    coded_names,
    column_of,
    doubles,
    list_runs,
    numbers_of,
    string_bytes,
    validity,
)
from nearcast.matcher.places import cap_bounds_many, square_bounds_many
from nearcast.model.geometry import Space

__all__ = ["Ends", "Look", "Places", "Seen", "box_ends", "look"]

F8: TypeAlias = npt.NDArray[np.float64]
I8: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
#: Lowest and highest finite ends, by name or axis; (inf, −inf) for none.
Ends: TypeAlias = tuple[F8, F8]
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_ROUND = ("lon", "lat", "radius_m")
_NO_BOXES = np.empty((0, 4))


class Seen(NamedTuple):
    """The `intervals` column. Names are numbered by where they come first."""

    offsets: I8
    names: npt.NDArray[np.signedinteger[Any]]
    distinct: list[Any]
    low: F8
    high: F8
    ends: Ends | None
    """By name; None where some run cannot be taken as it is (`survey_runs`)."""

    def wrong(self) -> Flags:
        """Items with something missing."""
        return (self.names < 0) | np.isnan(self.low) | np.isnan(self.high)


class Places(NamedTuple):
    """Boxes and circles."""

    by_hand: Flags | None
    """Rows whose region must be made one at a time; None for none."""
    boxes: F8
    """(n, 4), NaN for none; no row at all where there are no regions."""
    circles: F8 | None
    """(n, 3), NaN for none."""
    ends: Ends


class Look(NamedTuple):
    """A piece of a table."""

    intervals: Seen | None
    texts: texts.Texts | None
    places: Places
    by_hand: Flags | None
    """Rows with anything else that only objects can carry, or that looks wrong."""


def look(table: Any, space: Space) -> Look:
    """Look at a piece."""
    odd = bad_names(table) | bad_times(table, "expires")
    if "geometry" in table.column_names:
        odd |= validity(table, "geometry")
    by_hand = odd if odd.any() else None
    return Look(_seen(table), _texts(table), _places(table, space), by_hand)


def _texts(table: Any) -> texts.Texts | None:
    """The `where` column, if there is one."""
    if "where" not in table.column_names:
        return None
    return texts.look(*string_bytes(column_of(table, "where")), validity(table, "where"))


def _seen(table: Any) -> Seen | None:
    """The `intervals` column, if there is anything in it."""
    if "intervals" not in table.column_names:
        return None
    column = column_of(table, "intervals")
    if column.null_count == table.num_rows:
        return None
    offsets, items = list_runs(column)
    codes, distinct = coded_names(items.field("attribute"))
    low, high = frozen(doubles(items.field("low"))), frozen(doubles(items.field("high")))
    ends: Ends | None = None
    if codes.dtype == np.int32 and codes.flags.writeable and all(distinct):
        ends = np.full(len(distinct), np.inf), np.full(len(distinct), -np.inf)
        if not survey.survey_runs(frozen(offsets), frozen(codes), low, high, *ends):
            ends = None
    return Seen(offsets, codes, distinct, low, high, ends)


def _places(table: Any, space: Space) -> Places:
    corners = [name for name in _CORNERS if name in table.column_names]
    round_ = [name for name in _ROUND if name in table.column_names]
    has_box, has_circle = any_valid(table, corners), any_valid(table, round_)
    ends = np.full(2, np.inf), np.full(2, -np.inf)
    if not has_circle.any():
        if not has_box.any():
            return Places(None, _NO_BOXES, None, ends)
        if has_box.all():
            boxes = np.empty((table.num_rows, 4))
            sides = [frozen(numbers_of(table, name)) for name in _CORNERS]
            if survey.survey_boxes(*sides, space == "globe", boxes, *ends):
                return Places(None, boxes, None, ends)
    by_hand, boxes, circles = _mixed_places(table, space, has_box, has_circle)
    some = by_hand if by_hand.any() else None
    return Places(some, boxes, circles, box_ends(boxes[~by_hand]))


def box_ends(boxes: F8) -> Ends:
    """How far boxes go, by axis; NaN is passed over."""
    ends = np.full(2, np.inf), np.full(2, -np.inf)
    for axis in range(2):
        both = boxes[:, axis::2]
        ends[0][axis] = np.fmin.reduce(both, None, initial=np.inf)
        ends[1][axis] = np.fmax.reduce(both, None, initial=-np.inf)
    return ends


def _mixed_places(
    table: Any, space: Space, has_box: Flags, has_circle: Flags
) -> tuple[Flags, F8, F8 | None]:
    """(rows to make by hand, boxes with NaN for none, circles if there are any)."""
    n = table.num_rows
    boxes = np.full((n, 4), np.nan)
    by_hand = has_box & has_circle
    if has_box.any():
        xmin, ymin, xmax, ymax = (numbers_of(table, name) for name in _CORNERS)
        for column, numbers in enumerate((xmin, ymin, xmax, ymax)):
            boxes[:, column] = numbers
        fine = np.isfinite(xmin) & np.isfinite(ymin) & np.isfinite(xmax) & np.isfinite(ymax)
        fine &= (xmin <= xmax) & (ymin <= ymax)
        if space == "globe":
            fine &= (xmin >= -180) & (xmax < 180) & (ymin >= -90) & (ymax <= 90)
        by_hand |= has_box & ~fine
    if not has_circle.any():
        return by_hand, boxes, None
    circles = np.full((n, 3), np.nan)
    given = np.stack([numbers_of(table, name) for name in _ROUND], 1)
    fine = np.isfinite(given).all(axis=1) & (given[:, 2] >= 0)
    if space == "globe":
        fine &= (abs(given[:, 0]) <= 180) & (abs(given[:, 1]) <= 90)
    safe = np.where(fine[:, None], given, 0.0)
    bounds = cap_bounds_many(safe) if space == "globe" else square_bounds_many(safe)
    if space == "globe":  # poles and the antimeridian are done with care, one at a time
        fine &= (bounds[:, 0] > -180) & (bounds[:, 2] < 180)
    by_hand |= has_circle & ~fine
    easy = has_circle & fine & ~by_hand
    boxes[easy] = bounds[easy]
    circles[easy] = given[easy]
    return by_hand, boxes, circles
