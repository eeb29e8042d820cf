"""Forms of filter texts that come often: their texts are recognised whole, and read when asked.

A form that has come often enough, and says nothing but intervals and equalities, gets a regular
expression of its own, which fits its texts and no others. Such a text cannot be wrong: what could
be (numbers beyond float64, quotes within strings, lone surrogates) does not fit. So its constants
need not be looked at before somebody asks for them, and of a list of such texts all are read
at once (`nearcast.matcher.texts`).
"""

from __future__ import annotations

import re

from nearcast.model.expressions import Expression
from nearcast.model.predicates import Simple
from nearcast.model.templates import HOLE, MAX_LENGTH, Template, cut, template

__all__ = ["KnownForm", "recall"]

#: Texts of a form after which it is worth its expression, which costs as much as a hundred texts.
_OFTEN = 100
_MOST_FORMS, _MOST_ALIKE = 1024, 16
#: Left out where texts are compared by their look: constants, but for what is in quotes.
_OF_NUMBERS = b"0123456789+-.eE"
#: Constants that are surely finite, and surely text.
_CONSTANT = {
    # Never tried in two ways, which takes half the time: what follows a constant is no part of one.
    "n": r"[+-]?+[0-9]{1,200}+(?:\.[0-9]{1,200}+)?+(?:[eE][+-]?+[0-9]{1,2}+)?+",
    "s": r"'[^'\\\ud800-\udfff]*+'",
}


class KnownForm:
    """A form and the expression for its texts."""

    __slots__ = ("_marked", "_pattern", "_template", "fits")

    def __init__(self, form: str, known: Template) -> None:
        self._template = known
        around = [re.escape(each) for each in form.split(HOLE)]
        constants = [_CONSTANT[kind] for kind in known.kinds]
        pairs = [*zip(around, [*constants, ""], strict=True)]
        self.fits = re.compile("".join([a + b for a, b in pairs])).fullmatch
        """Whether a text has this form: a match or None."""
        self._pattern = "".join([f"{a}({b})" if b else a for a, b in pairs])
        """The same with its constants marked, which takes longer; compiled when it is asked for."""
        self._marked: re.Pattern[str] | None = None

    def read(self, text: str) -> Simple | None:
        """What a text of this form says; None where that is nothing, since an interval is empty."""
        if self._marked is None:
            self._marked = re.compile(self._pattern)
        found = self._marked.fullmatch(text)
        assert found is not None
        said = self._template.bind(found.groups())
        return said if isinstance(said, Simple) else None


class _Forms:
    """The forms that came often, by their look; bounded, and empty again when full."""

    __slots__ = ("_by_look", "_count")

    def __init__(self) -> None:
        self._by_look: dict[bytes, dict[Template, KnownForm]] = {}
        self._count = 0

    def find(self, text: str) -> KnownForm | None:
        forms = self._by_look.get(_look(text))
        if forms is not None:
            for each in forms.values():
                if each.fits(text) is not None:
                    return each
        return None

    def enter(self, text: str, form: str, known: Template) -> None:
        if self._count >= _MOST_FORMS:
            self._by_look, self._count = {}, 0
        look = _look(text)
        alike = self._by_look.get(look, _NO_FORMS)
        if known not in alike and len(alike) < _MOST_ALIKE:
            # others may be looking through the old one
            self._by_look[look] = {**alike, known: KnownForm(form, known)}
            self._count += 1


_NO_FORMS: dict[Template, KnownForm] = {}
_FORMS = _Forms()


def _look(text: str) -> bytes:
    """A text without strings and what numbers consist of: one a form, and seldom one for two."""
    if "'" in text:
        text = "'".join(text.split("'")[::2])
    return text.encode(errors="replace").translate(None, _OF_NUMBERS)


def recall(text: str) -> KnownForm | Simple | Expression | None:
    """The form of a text that has a well known one; else what the text says, if its form can
    be read; None for the full way.

    Costs 3 µs for ten predicates of a well known form, 15 for one that came before.
    """
    if len(text) > MAX_LENGTH:
        return None
    well_known = _FORMS.find(text)
    if well_known is not None:
        return well_known
    found = cut(text)
    if found is None:
        return None
    form, kinds, constants = found
    known = template(form, kinds)
    if known is None:
        return None
    if known.plan is not None:
        known.times += 1
        if known.times >= _OFTEN:
            _FORMS.enter(text, form, known)
    return known.bind(constants)
