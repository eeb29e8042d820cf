"""Columns of CQL2 text: rows whose filters have a known form become intervals all at once.

Texts are grouped by their form, see `nearcast.model.templates`. A group whose template has a
plan needs no object a row: its constants are columns, and so are the ends of its intervals.
Every other row, and every row that looks wrong, is left to the way of single ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.kernels import texts as kernels
from nearcast.kernels.arrange import frozen
from nearcast.model.letters import letters_of
from nearcast.model.schema import Schema
from nearcast.model.templates import MAX_LENGTH, Plan, cut, template

__all__ = ["Runs", "Texts", "look", "runs_of"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
I8: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Runs: TypeAlias = tuple[I8, I4, F8, F8]
"""Offsets by row, columns, lows and highs."""
#: Rows of one form for which it is not worth while to make arrays.
_FEW = 4


class Equal(NamedTuple):
    """One string attribute of a group: a code a row into its distinct values."""

    attribute: str
    codes: npt.NDArray[np.signedinteger[Any]]
    distinct: list[str]


class Group(NamedTuple):
    """Rows of one form, with the intervals they ask for: a column of ends a name."""

    rows: I8
    names: tuple[str, ...]
    low: F8
    high: F8
    equals: list[Equal]


class Texts(NamedTuple):
    """What a column of texts says, before anybody asks the schema."""

    done: Flags
    """Rows that are in a group; all others with a text are still to be read."""
    groups: list[Group]


class _Constants(NamedTuple):
    """The constants of texts: those of text i are `first[i]` … `first[i] + counts[i]`."""

    offsets: I8
    data: npt.NDArray[np.uint8]
    counts: I8
    keys: npt.NDArray[np.uint64]
    first: I8
    start: I8
    stop: I8
    numbers: F8
    """The constants as numbers, NaN for strings."""

    def text(self, row: int) -> str:
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]).decode()


def look(offsets: I8, data: npt.NDArray[np.uint8], valid: Flags) -> Texts:
    """Read texts given in Arrow's layout; those that are not valid are passed over."""
    done = np.zeros(valid.size, bool)
    found = _constants(offsets, data, valid)
    groups = []
    if found is not None:
        rows = np.flatnonzero(found.counts >= 0)
        order = rows[np.argsort(found.keys[rows], kind="stable")]
        cuts = np.flatnonzero(np.diff(found.keys[order])) + 1
        for alike in np.split(order, cuts):
            group = _readable_group(found, alike) if alike.size >= _FEW else None
            if group is not None:
                groups.append(group)
                done[group.rows] = True
    return Texts(done, groups)


def _constants(offsets: I8, data: npt.NDArray[np.uint8], valid: Flags) -> _Constants | None:
    """The constants of all texts; None where no text has any that can be told."""
    size = valid.size
    counts, keys = np.empty(size, np.int64), np.empty(size, np.uint64)
    data = frozen(data)  # one type of texts, whosever they are: kernels are compiled for each
    kernels.count_constants(offsets, data, counts, keys)
    counts[~valid | (np.diff(offsets) > MAX_LENGTH)] = kernels.ODD
    first = np.zeros(size + 1, np.int64)
    np.cumsum(np.maximum(counts, 0), out=first[1:])
    total = int(first[-1])
    if not total:
        return None
    start, stop = np.empty(total, np.int64), np.empty(total, np.int64)
    kernels.locate_constants(offsets, data, counts, first, start, stop)
    return _Constants(offsets, data, counts, keys, first, start, stop, _numbers(data, start, stop))


def _numbers(data: npt.NDArray[np.uint8], start: I8, stop: I8) -> F8:
    import pyarrow as pa

    numeric = data[start] != kernels.QUOTE
    numbers = np.full(start.size, np.nan)
    begin = start[numeric] + (data[start[numeric]] == ord("+"))
    texts = _strings(data, begin, stop[numeric])
    try:
        numbers[numeric] = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # one that fits no float64
        numbers[numeric] = [*map(float, texts.to_pylist())]
    return numbers


def _strings(data: npt.NDArray[np.uint8], start: I8, stop: I8) -> Any:
    """Spans of bytes as an Arrow array."""
    import pyarrow as pa

    ends = np.zeros(start.size + 1, np.int64)
    copied = np.empty(int((stop - start).sum()), np.uint8)
    kernels.copy_spans(data, start, stop, ends[1:], copied)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(copied)]
    return pa.Array.from_buffers(pa.large_string(), start.size, buffers)


def _readable_group(found: _Constants, rows: I8) -> Group | None:
    try:
        return _group(found, rows)
    except UnicodeDecodeError:  # whoever reads single ones says so
        return None


def _group(found: _Constants, rows: I8) -> Group | None:
    """Rows that have the form of the first, as arrays; None where that form has no plan."""
    like = int(rows[0])
    form = cut(found.text(like))
    if form is None or len(form[1]) != found.counts[like]:
        return None
    known = template(form[0], form[1])
    plan = None if known is None else known.plan
    if plan is None or any(isinstance(value, bool) for _, value in plan.equals):
        return None  # bools are put elsewhere in a clause
    same = np.empty(rows.size, bool)
    count = int(found.counts[like])
    kernels.have_form(*found[:2], *found[4:7], count, rows, like, same)
    at = found.first[rows][:, None] + np.arange(count)
    numeric = [i for i, kind in enumerate(form[1]) if kind == "n"]
    numbers = found.numbers[at]
    low, high = _ends(plan, numbers)
    same &= np.isfinite(numbers[:, numeric]).all(axis=1) & (low <= high).all(axis=1)
    rows, low, high, at = rows[same], low[same], high[same], at[same]
    equals = [Equal(name, *_distinct(found, at[:, hole])) for name, hole in plan.equals]
    return Group(rows, plan.names, low, high, equals)


def _ends(plan: Plan, numbers: F8) -> tuple[F8, F8]:
    """The lows and highs of intervals: what `Plan.bind` does for one."""
    holes = [hole for hole, _ in plan.steps]
    towards = np.array([way for _, way in plan.steps])
    with np.errstate(over="ignore"):  # beyond the largest number is infinity
        stepped = np.nextafter(numbers[:, holes], towards)
    infinite = np.broadcast_to((-np.inf, np.inf), (numbers.shape[0], 2))
    known = np.concatenate([numbers, stepped, infinite], axis=1)
    known += 0.0  # there is no −0.0
    return known[:, plan.low], known[:, plan.high]


def _distinct(found: _Constants, at: I8) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    """(code a row, distinct values) of strings in quotes."""
    encoded = _strings(found.data, found.start[at] + 1, found.stop[at] - 1).dictionary_encode()
    codes: npt.NDArray[np.signedinteger[Any]] = encoded.indices.to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.to_pylist()


def runs_of(texts: Texts, schema: Schema) -> Runs:
    """The intervals of all groups in the schema's codes, as runs by row."""
    counts = np.zeros(texts.done.size + 1, np.int64)
    each = 2 if schema.letters else 1
    for group in texts.groups:
        counts[group.rows + 1] = len(group.names) + each * len(group.equals)
    offsets = counts.cumsum()
    attr = np.empty(int(offsets[-1]), np.int32)
    low, high = np.empty(attr.size), np.empty(attr.size)
    for group in texts.groups:
        columns = [schema.column(name, "number") for name in group.names]
        at = offsets[group.rows][:, None] + np.arange(len(columns))
        attr[at], low[at], high[at] = columns, group.low, group.high
        place = offsets[group.rows] + len(columns)
        for equal in group.equals:
            known = np.array([schema.string(text) for text in equal.distinct], np.float64)
            attr[place] = schema.column(equal.attribute, "string")
            low[place] = high[place] = known[equal.codes]
            place += 1
            if schema.letters:
                first = np.array([letters_of(text) for text in equal.distinct])
                attr[place] = schema.letters_column(equal.attribute)
                low[place] = high[place] = first[equal.codes]
                place += 1
    return offsets, attr, low, high
