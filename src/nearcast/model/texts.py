"""Texts as integers: what was freed is given to the next that comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.errors import SchemaError

__all__ = ["Mark", "Texts"]

#: Codes ever used, and those of the free ones that were given away again.
Mark: TypeAlias = tuple[int, int]


class Texts:
    """An interning table. Codes are given in the order of arrival, free ones first."""

    __slots__ = ("_free", "_taken", "_texts", "characters", "codes")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        """Text → code; to look at. Always the same dictionary."""
        self._texts: list[str | None] = []
        """By code; None for a free one, which is never the last."""
        self._free: list[int] = []
        self._taken = 0
        """How many of the free ones were given away since."""
        self.characters = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def free(self) -> int:
        """How many codes are free."""
        return len(self._texts) - len(self.codes)

    def code(self, text: str) -> int:
        """The code of a text, new if need be."""
        code = self.codes.get(text)
        return self._enter(text) if code is None else code

    def _enter(self, text: str) -> int:
        if self._taken < len(self._free):
            code = self._free[self._taken]
            self._taken += 1
            self._texts[code] = text
        else:
            code = len(self._texts)
            self._texts.append(text)
        self.characters += len(text)
        self.codes[text] = code  # last: a match under way may meet it at once
        return code

    def text(self, code: int) -> str:
        """The text behind a code that is in use."""
        text = self._texts[code]
        assert text is not None
        return text

    def listed(self) -> list[str | None]:
        """The texts by code, None for a free one."""
        return self._texts.copy()

    # -- forgetting --------------------------------------------------------------

    def mark(self) -> Mark:
        """Where the table stands, for `take_back`."""
        return len(self._texts), self._taken

    def take_back(self, mark: Mark) -> None:
        """Forget what was entered since; nothing may have been freed meanwhile."""
        size, taken = mark
        for code in (*self._free[taken : self._taken], *range(size, len(self._texts))):
            self._drop(code)
        del self._texts[size:]
        self._taken = taken

    def keep(self, used: npt.NDArray[np.bool_]) -> None:
        """Free every code that is not marked as used. O(free codes)."""
        for code in np.flatnonzero(~used).tolist():
            self._drop(code)
        while self._texts and self._texts[-1] is None:
            self._texts.pop()
        self._recount()

    def _drop(self, code: int) -> None:
        text = self._texts[code]
        if text is not None:
            del self.codes[text]
            self._texts[code] = None
            self.characters -= len(text)

    def _recount(self) -> None:
        self._free = [code for code, text in enumerate(self._texts) if text is None]
        self._taken = 0

    # -- sharing -----------------------------------------------------------------

    def check(self, what: str, others: Sequence[str | None]) -> None:
        """Refuse texts by code that contradict these."""
        for code, theirs in enumerate(others):
            mine = self._texts[code] if code < len(self._texts) else None
            if theirs is None or theirs == mine:
                continue
            if mine is not None or theirs in self.codes:
                mine = f"{what}[{self.codes[theirs]}]" if mine is None else repr(mine)
                raise SchemaError(
                    f"the schemas disagree: {what}[{code}] is {mine} here and {theirs!r} there; "
                    "extend a schema only by one that was loaded from it"
                )

    def take(self, others: Sequence[str | None]) -> None:
        """Take over texts by code, which `check` has let pass."""
        while others and others[-1] is None:
            others = others[:-1]
        self._texts += [None] * (len(others) - len(self._texts))
        for code, text in enumerate(others):
            if text is not None and self._texts[code] is None:
                self._texts[code] = text
                self.characters += len(text)
                self.codes[text] = code
        self._recount()
