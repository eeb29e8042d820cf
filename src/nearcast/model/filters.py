"""The filter: CQL2 in, clauses out.

The language, its meaning and its limits are described in docs/filters.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from nearcast.errors import FilterError, FilterTooLarge, ValidationError
from nearcast.model.cql2_json import RefusalError, read_json
from nearcast.model.cql2_text import locate, read_text, stray_keyword
from nearcast.model.expressions import Constant, Expression, attributes_of
from nearcast.model.known_forms import KnownForm, recall
from nearcast.model.normal_form import MAX_INDEXED_IN, normal_form
from nearcast.model.predicates import Clause, Simple

__all__ = ["MAX_CLAUSES", "MAX_INDEXED_IN", "Filter"]

#: How many clauses a filter may need.
MAX_CLAUSES = 64


class Filter:
    """A filter over attributes, words and places: CQL2 as written, and its normal form.

    Two filters are equal if their normalised texts are; `Filter.parse(str(filter))` is
    equal to `filter`. Parsing costs some 50 µs for three predicates, and 10 where only the
    constants are new; what is not asked for then, such as clauses, is not made.

    >>> Filter.parse("price < 3300 AND brand IN ('Huawei', 'Honor')").clauses[0].equals
    (Equals(attribute='brand', value='Honor'),)
    """

    __slots__ = ("_clauses", "_expression", "_given", "_simple", "_text", "kept")

    _clauses: tuple[Clause, ...] | None
    _expression: Expression | None
    _given: str | None
    """The text as it was given, if it has not been read whole."""
    _simple: Simple | KnownForm | bool | None
    """What the filter says, or how to read it; False where it is more than that can say."""
    _text: str | None
    kept: tuple[object, Any] | None
    """What somebody made of it and for whom, see `keep`."""

    def __init__(self, expression: Expression, clauses: tuple[Clause, ...]) -> None:
        self._put(None, clauses, expression, None)

    def _put(
        self,
        given: str | None,
        clauses: tuple[Clause, ...] | None,
        expression: Expression | None,
        simple: Simple | KnownForm | None,
    ) -> None:
        _put_given(self, given)
        _put_clauses(self, clauses)
        _put_expression(self, expression)
        _put_simple(self, simple)
        _put_text(self, None)
        _put_kept(self, None)

    @classmethod
    def parse(
        cls, text_or_json: str | Mapping[str, Any] | bool, max_clauses: int = MAX_CLAUSES
    ) -> Filter:
        """Read CQL2 text or CQL2 JSON (a mapping, or a text that starts with a brace).

        Raises FilterError, with a caret where the text has a place for it, and
        FilterTooLarge where the normal form needs more than `max_clauses`.
        """
        if max_clauses is not MAX_CLAUSES:
            _check_limit(max_clauses)
        text = text_or_json if isinstance(text_or_json, str) else None
        known = None if text is None else recall(text)
        if isinstance(known, KnownForm | Simple):
            made = cls.__new__(cls)
            made._put(text, None, None, known)
            return made
        expression = _read(text_or_json, text) if known is None else known
        try:
            return cls(expression, normal_form(expression, max_clauses))
        except FilterTooLarge as error:
            raise FilterTooLarge(error.needed, error.limit, text or error.text) from None

    @classmethod
    def everything(cls) -> Filter:
        """The filter that restricts nothing: one empty clause, `TRUE` as text."""
        return _EVERYTHING

    @property
    def expression(self) -> Expression:
        """The tree of the filter as it was written."""
        if self._expression is None:
            _put_expression(self, _read(self._given, self._given))
        return cast("Expression", self._expression)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The normal form: conjunctions, one of which must hold."""
        if self._clauses is None:
            simple = self.simple
            if self._clauses is None and simple is not None:
                _put_clauses(self, (simple.clause(),))
        return cast("tuple[Clause, ...]", self._clauses)

    @property
    def simple(self) -> Simple | None:
        """What the filter says if that is one clause of intervals and equalities only."""
        found = self._simple
        if isinstance(found, KnownForm):
            assert self._given is not None
            found = found.read(self._given)
            if found is None:  # nothing can match
                _put_clauses(self, normal_form(self.expression, MAX_CLAUSES))
            else:
                _put_simple(self, found)
        if found is None:
            clauses = self.clauses
            found = (clauses[0].simple() if len(clauses) == 1 else None) or False
            _put_simple(self, found)
        return found if isinstance(found, Simple) else None

    @property
    def unread(self) -> str | None:
        """The text, where it is known to be sound and nobody has asked what it says."""
        return self._given if isinstance(self._simple, KnownForm) else None

    def keep(self, owner: object, made: Any) -> None:
        """Keep what `owner` made of this filter, in the place of what was kept before."""
        _put_kept(self, (owner, made))

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the filter mentions."""
        return frozenset(attributes_of(self.expression))

    def to_json(self) -> Any:
        """The filter as CQL2 JSON: an object, or a bool for TRUE and FALSE."""
        return self.expression.to_json()

    def __str__(self) -> str:
        if self._text is None:
            _put_text(self, str(self.expression))
        return str(self._text)

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash((Filter, str(self)))

    def __reduce__(self) -> tuple[object, ...]:
        return (Filter, (self.expression, self.clauses))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Filter is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Filter is frozen: cannot delete {name}")


#: Writers of the fields, which nobody else can set: half the time of `object.__setattr__`.
_put_given, _put_clauses, _put_expression, _put_simple, _put_text, _put_kept = (
    Filter.__dict__[name].__set__
    for name in ("_given", "_clauses", "_expression", "_simple", "_text", "kept")
)


def _check_limit(max_clauses: object) -> None:
    if isinstance(max_clauses, bool) or not isinstance(max_clauses, int) or max_clauses < 1:
        raise ValidationError("max_clauses", max_clauses, "give an integer of at least 1")


def _read(given: Any, text: str | None) -> Expression:
    """The expression by the full way."""
    tree = _tree(given)
    try:
        expression = read_json(tree)
        if text is not None:
            _check_names(expression, text)
    except RefusalError as refusal:
        _refuse(refusal, text)
    return expression


def _tree(given: Any) -> Any:
    if isinstance(given, str):
        return _loaded(given) if given.lstrip().startswith("{") else read_text(given)
    if isinstance(given, Mapping | bool):
        return given
    raise ValidationError("filter", given, "give CQL2 text or CQL2 JSON")


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FilterError(f"not JSON: {error.msg}", text, error.pos) from None
    except ValueError as error:  # an integer of thousands of digits
        raise FilterError(f"not JSON that can be read: {error}", text) from None
    except RecursionError:
        raise FilterError("the JSON is nested too deeply; flatten it", text) from None


def _check_names(expression: Expression, text: str) -> None:
    name = stray_keyword(text, attributes_of(expression))
    if name is not None:
        raise RefusalError(
            f'{name} is a keyword; as the name of a property write "{name}"',
            rf"(?:^|[(,=<>]|\b(?:AND|OR|NOT)\b)\s*(?P<at>\b{name}\b)",
        )


def _refuse(refusal: RefusalError, text: str | None) -> NoReturn:
    if text is None or text.lstrip().startswith("{"):
        raise FilterError(refusal.message) from None
    position = None
    if refusal.pattern is not None:
        position = locate(text, refusal.pattern, refusal.occurrence)
    raise FilterError(refusal.message, text, position) from None


_EVERYTHING = Filter(Constant(True), (Clause(),))
