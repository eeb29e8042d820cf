"""The filter: CQL2 in, clauses out.

The language, its meaning and its limits are described in docs/filters.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from nearcast.errors import FilterError, FilterTooLarge, ValidationError
from nearcast.model.cql2_json import RefusalError, read_json
from nearcast.model.cql2_text import locate, read_text, stray_keyword
from nearcast.model.expressions import Constant, Expression, attributes_of
from nearcast.model.normal_form import MAX_INDEXED_IN, normal_form
from nearcast.model.predicates import Clause

__all__ = ["MAX_CLAUSES", "MAX_INDEXED_IN", "Filter"]

#: How many clauses a filter may need.
MAX_CLAUSES = 64


class Filter:
    """A filter over attributes, words and places: CQL2 as written, and its normal form.

    Two filters are equal if their normalised texts are; `Filter.parse(str(filter))` is
    equal to `filter`. Parsing costs some 50 µs for three predicates.

    >>> Filter.parse("price < 3300 AND brand IN ('Huawei', 'Honor')").clauses[0].equals
    (Equals(attribute='brand', value='Honor'),)
    """

    __slots__ = ("_expression", "_text", "clauses")

    clauses: tuple[Clause, ...]
    _expression: Expression
    _text: str | None

    def __init__(self, expression: Expression, clauses: tuple[Clause, ...]) -> None:
        put = object.__setattr__
        put(self, "_expression", expression)
        put(self, "clauses", clauses)
        put(self, "_text", None)

    @classmethod
    def parse(
        cls, text_or_json: str | Mapping[str, Any] | bool, max_clauses: int = MAX_CLAUSES
    ) -> Filter:
        """Read CQL2 text or CQL2 JSON (a mapping, or a text that starts with a brace).

        Raises FilterError, with a caret where the text has a place for it, and
        FilterTooLarge where the normal form needs more than `max_clauses`.
        """
        if isinstance(max_clauses, bool) or not isinstance(max_clauses, int) or max_clauses < 1:
            raise ValidationError("max_clauses", max_clauses, "give an integer of at least 1")
        text = text_or_json if isinstance(text_or_json, str) else None
        tree = _tree(text_or_json)
        try:
            expression = read_json(tree)
            if text is not None:
                _check_names(expression, text)
        except RefusalError as refusal:
            _refuse(refusal, text)
        try:
            return cls(expression, normal_form(expression, max_clauses))
        except FilterTooLarge as error:
            raise FilterTooLarge(error.needed, error.limit, text or error.text) from None

    @classmethod
    def everything(cls) -> Filter:
        """The filter that restricts nothing: one empty clause, `TRUE` as text."""
        return _EVERYTHING

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the filter mentions."""
        return frozenset(attributes_of(self._expression))

    def to_json(self) -> Any:
        """The filter as CQL2 JSON: an object, or a bool for TRUE and FALSE."""
        return self._expression.to_json()

    def __str__(self) -> str:
        if self._text is None:
            object.__setattr__(self, "_text", str(self._expression))
        return str(self._text)

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash((Filter, str(self)))

    def __reduce__(self) -> tuple[object, ...]:
        return (Filter, (self._expression, self.clauses))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Filter is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Filter is frozen: cannot delete {name}")


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
