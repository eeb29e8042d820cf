"""The schema: attribute names, strings and words as integers, with what was learnt of them.

A *column* is an attribute of one type. Codes are given in the order of arrival and never
change, so a schema can be saved, handed to another process and extended there, and what
was encoded before stays right. Only strings and words that nobody uses any more are freed
(`keep`), by the one matcher whose schema it is; their codes are given to others later.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from nearcast.errors import SchemaError
from nearcast.model.texts import Mark, Texts

__all__ = ["UNKNOWN", "ColumnType", "Schema", "X", "Y", "arranged"]

F8 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ColumnType = Literal["number", "string", "bool", "letters"]

#: The columns of a point's coordinates, in every schema.
X, Y = 0, 1
#: Stands for the column of an attribute that nobody asks for.
UNKNOWN = -1
_PLACE = (("@x", "number"), ("@y", "number"))
_FORMAT = 1
#: Layouts that are kept, and names of one.
_MOST_LAYOUTS, _MOST_NAMES = 1024, 256

Layout: TypeAlias = tuple[npt.NDArray[np.int32], Callable[[Sequence[Any]], Sequence[Any]]]
"""Columns, ascending, and what picks the values of these from all values of an event."""


class Schema:
    """Interning tables and learnt domains.

    With `letters` each string column has another of type "letters" behind it, for the numbers
    of its strings' first letters (`nearcast.model.letters`).

    >>> schema = Schema()
    >>> schema.column("price", "number"), schema.column("price", "string")
    (2, 3)
    >>> schema.string("Huawei"), schema.string("Huawei")
    (0, 0)
    """

    def __init__(self, *, letters: bool = False) -> None:
        self.letters = letters
        """Whether strings are numbers by their first letters, too."""
        self.columns: list[tuple[str, ColumnType]] = []
        """Name and type of each column, by code."""
        self.codes: dict[ColumnType, dict[str, int]] = {t: {} for t in get_args(ColumnType)}
        self._strings, self._words = Texts(), Texts()
        self.strings, self.words = self._strings.codes, self._words.codes
        """Strings and words with their codes, to look at."""
        self.shared = False
        """Whether it was given to a matcher: others may use its codes, and none are freed."""
        self._characters = 0
        self.low = np.empty(len(_PLACE))
        self.high = np.empty(len(_PLACE))
        """By column: the hull of finite values seen, (inf, −inf) at first; with room for more."""
        self._undo: list[tuple[F8, F8, int, float, float]] = []
        """Domains before they were widened, since the last attempt began."""
        self._layouts: dict[tuple[tuple[str, ...], bool], tuple[int, Layout]] = {}
        """By names and whether there is a place: how many columns there were, and the layout."""
        self.era = object()
        """Another one since codes were forgotten: what was made of them may be kept till then."""
        for name, _ in _PLACE:
            self._append(name, "number")

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is soon made again."""
        return {n: v for n, v in vars(self).items() if n != "era"} | {"_layouts": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.letters = False  # of before there were any
        vars(self).update(state)
        self.era = object()

    def _append(self, name: str, type_: ColumnType) -> None:
        code = len(self.columns)
        if code == self.low.size:
            self.low, self.high = (np.resize(array, 2 * code) for array in (self.low, self.high))
        self.low[code], self.high[code] = math.inf, -math.inf
        self._characters += len(name)
        self.columns.append((name, type_))

    # -- interning -------------------------------------------------------------

    def column(self, name: str, type_: ColumnType) -> int:
        """The code of a column, new if need be."""
        codes = self.codes[type_]
        code = codes.get(name)
        if code is None:
            code = len(self.columns)
            self._append(name, type_)
            if type_ == "string" and self.letters:
                self._append(name, "letters")
                self.codes["letters"][name] = code + 1
            codes[name] = code  # last: a match under way may meet it at once
        return code

    def letters_column(self, name: str) -> int:
        """The column of the first letters of a string attribute, in a schema with letters."""
        self.column(name, "string")
        return self.codes["letters"][name]

    def layout(self, names: tuple[str, ...], placed: bool) -> Layout:
        """How numbers of these names, behind a place if there is one, become columns.

        Kept: events of one source mostly have the same names in the same order.
        """
        here = len(self.columns)
        found = self._layouts.get((names, placed))
        if found is not None and found[0] == here:
            return found[1]
        codes = self.codes["number"]
        columns = [X, Y] if placed else []
        layout = arranged(columns + [codes.get(name, UNKNOWN) for name in names])
        if len(names) <= _MOST_NAMES:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[names, placed] = here, layout
        return layout

    def string(self, text: str) -> int:
        """The code of a string value, new if need be."""
        return self._strings.code(text)

    def word(self, text: str) -> int:
        """The code of a normalised word, new if need be."""
        return self._words.code(text)

    def string_of(self, code: int) -> str:
        """The string behind a code."""
        return self._strings.text(code)

    def word_of(self, code: int) -> str:
        """The word behind a code."""
        return self._words.text(code)

    @property
    def texts(self) -> int:
        """How many strings and words there are."""
        return len(self.strings) + len(self.words)

    def unused(self) -> tuple[Flags, Flags]:
        """A flag for every code of a string and of a word, not set; for `keep`."""
        sizes = (self._strings.mark()[0], self._words.mark()[0])
        return np.zeros(sizes[0], bool), np.zeros(sizes[1], bool)

    def keep(self, strings: Flags, words: Flags) -> None:
        """Free the strings and words whose flags are not set: nobody may hold their codes."""
        self._strings.keep(strings)
        self._words.keep(words)

    def attempt(self, alone: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Attempt:
        """Forget what was entered and learnt inside if it ends with an error.

        So a refused batch leaves nothing behind, however often it is sent. Who reads the
        schema meanwhile is held off by `alone`: codes must not go while they are in use.
        """
        return Attempt(self, alone)

    def _sizes(self) -> tuple[int, Mark, Mark]:
        return len(self.columns), self._strings.mark(), self._words.mark()

    def _forget(self, columns: int, strings: Mark, words: Mark) -> None:
        self._layouts.clear()
        self.era = object()
        for name, type_ in self.columns[columns:]:
            del self.codes[type_][name]
            self._characters -= len(name)
        del self.columns[columns:]
        self._strings.take_back(strings)
        self._words.take_back(words)

    # -- domains ---------------------------------------------------------------

    def domain(self, column: int) -> tuple[float, float]:
        """The lowest and highest finite value seen in a column; (inf, −inf) before the first."""
        return float(self.low[column]), float(self.high[column])

    def domains(self) -> tuple[F8, F8]:
        """Lows and highs of all columns, as arrays of their own."""
        used = len(self.columns)
        return self.low[:used].copy(), self.high[:used].copy()

    def learn_all(self, low: F8, high: F8) -> None:
        """Take the domains of all columns from arrays that came from `domains`."""
        self.low, self.high = low, high

    def learn(self, column: int, low: float, high: float) -> None:
        """Widen a column's domain by the finite ones of two values."""
        bottom, top = self.low[column], self.high[column]
        for value in (low, high):
            if math.isfinite(value) and not bottom <= value <= top:
                self._undo.append((self.low, self.high, column, bottom, top))
                bottom, top = min(bottom, value), max(top, value)
        self.low[column], self.high[column] = bottom, top

    def learn_values(self, columns: npt.NDArray[np.int32], values: F8) -> None:
        """`learn` for a value each of some columns."""
        within = (self.low[columns] <= values) & (values <= self.high[columns])
        if not within.all():
            for i in np.flatnonzero(~within).tolist():
                value = values.item(i)
                self.learn(int(columns[i]), value, value)

    # -- sharing ---------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """A JSON value from which `from_json` makes an equal schema."""
        return {
            "nearcast_schema": _FORMAT,
            **({"letters": True} if self.letters else {}),
            "columns": [list(column) for column in self.columns[len(_PLACE) :]],
            "strings": self._strings.listed(),
            "words": self._words.listed(),
            "domains": [
                [a, b] if b >= a else None
                for a, b in zip(*(domain.tolist() for domain in self.domains()), strict=True)
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """The schema written by `to_json`."""
        if not isinstance(value, Mapping) or value.get("nearcast_schema") != _FORMAT:
            raise SchemaError("this is not a schema of nearcast, or of another version")
        schema = cls(letters=value.get("letters") is True)
        try:
            for name, type_ in _listed(value["columns"]):
                schema.column(_text(name), type_)
            schema._strings.take(_texts(value["strings"]))
            schema._words.take(_texts(value["words"]))
            schema._check_sizes(value)
            for column, domain in enumerate(value["domains"]):
                if domain is not None:
                    schema.learn(column, *domain)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise SchemaError(f"the schema is damaged ({error!r}); save it anew") from None
        return schema

    def _check_sizes(self, value: Mapping[str, Any]) -> None:
        """Something written twice has got one code, and all behind it a wrong one."""
        known = len(self.columns) - len(_PLACE), len(self.strings), len(self.words)
        parts = (value[part] for part in ("columns", "strings", "words"))
        if known != tuple(sum(each is not None for each in part) for part in parts):
            raise ValueError("an entry comes twice")
        if len(value["domains"]) != len(self.columns):
            raise ValueError("not a domain for each column")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a file, whole or not at all."""
        target = Path(path)
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        scratch.write_text(json.dumps(self.to_json(), ensure_ascii=False), encoding="utf-8")
        scratch.replace(target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema that `save` wrote."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise SchemaError(f"{path}: cannot be read as a schema ({error})") from None

    def extend(self, other: Schema) -> None:
        """Take over what `other`, grown from this schema's codes, has learnt since.

        A code that both use must mean the same, and what both have must have one code.
        """
        if self.letters != other.letters:
            raise SchemaError("one of the schemas has letters and the other has none")
        strings, words = other._strings.listed(), other._words.listed()
        _check_prefix("columns", self.columns, other.columns)
        self._strings.check("strings", strings)
        self._words.check("words", words)
        for name, type_ in other.columns[len(self.columns) :]:
            self.column(name, type_)
        self._strings.take(strings)
        self._words.take(words)
        for column in range(len(other.columns)):
            self.learn(column, *other.domain(column))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def memory_bytes(self) -> int:
        """Roughly the bytes of the tables: strings twice referenced, once stored."""
        characters = self._characters + self._strings.characters + self._words.characters
        free = self._strings.free + self._words.free
        return 170 * self.texts + 50 * free + characters + 250 * len(self.columns)


def arranged(columns: list[int]) -> Layout:
    """Columns in ascending order without unknown ones, and what picks their values likewise."""
    order = sorted(range(len(columns)), key=columns.__getitem__)
    order = [k for k in order if columns[k] != UNKNOWN]
    attr = np.array([columns[k] for k in order], np.int32)
    return attr, itemgetter(*order) if len(order) > 1 else lambda values: [values[k] for k in order]


class Attempt:
    """A change that may be refused; see `Schema.attempt`."""

    __slots__ = ("_alone", "_domains", "_of", "_sizes")

    def __init__(self, of: Schema, alone: Callable[[], AbstractContextManager[Any]]) -> None:
        self._of = of
        self._alone = alone

    def __enter__(self) -> None:
        self._sizes = self._of._sizes()
        self._domains = self._of.low, self._of.high
        self._of._undo.clear()  # what was learnt before stays

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with self._alone() if self._of._sizes() != self._sizes else nullcontext():
                self._take_back()
        self._of._undo.clear()

    def _take_back(self) -> None:
        of = self._of
        of._forget(*self._sizes)
        for low, high, column, bottom, top in reversed(of._undo):
            low[column], high[column] = bottom, top
        of.low, of.high = self._domains


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


def _texts(value: object) -> list[str | None]:
    """Texts by code; a free code is null, and never the last."""
    texts = [None if each is None else _text(each) for each in _listed(value)]
    if texts and texts[-1] is None:
        raise ValueError("a free code at the end")
    return texts


def _check_prefix(what: str, mine: list[Any], theirs: list[Any]) -> None:
    shared = min(len(mine), len(theirs))
    if mine[:shared] != theirs[:shared]:
        at = next(i for i in range(shared) if mine[i] != theirs[i])
        raise SchemaError(
            f"the schemas disagree: {what}[{at}] is {mine[at]!r} here and {theirs[at]!r} there; "
            "extend a schema only by one that was loaded from it"
        )
