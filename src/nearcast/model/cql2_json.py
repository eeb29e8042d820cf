"""Reading CQL2 JSON: a checked tree becomes expressions.

`read_json` refuses by name what nearcast does not evaluate, and never fails in another way.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from sys import intern
from typing import Any, NoReturn, TypeGuard

from nearcast.errors import ValidationError
from nearcast.model.cql2_literals import (
    Scalar,
    Shape,
    name_text,
    value_text,
)
from nearcast.model.events import check_text
from nearcast.model.expressions import (
    And,
    Between,
    Comparison,
    Constant,
    Contains,
    Expression,
    Membership,
    Not,
    Null,
    Operator,
    Or,
    Pattern,
    Spatial,
)
from nearcast.model.geometry import Box, Point, Polygon
from nearcast.model.predicates import Relation
from nearcast.model.words import normalise_word

__all__ = ["MAX_DEPTH", "RefusalError", "read_json"]

#: How deep AND, OR and NOT may alternate.
MAX_DEPTH = 100


class RefusalError(Exception):
    """Why a tree is refused, and a regular expression that finds the place in a text."""

    def __init__(self, message: str, pattern: str | None = None, occurrence: int = 0) -> None:
        self.message = message
        self.pattern = pattern
        self.occurrence = occurrence
        super().__init__(message)


def read_json(tree: Any) -> Expression:
    """The expression of a CQL2 JSON tree; raises `RefusalError` for all that it cannot be."""
    return _Reader().read(tree, 0)


_SUPPORTED = (
    "nearcast knows comparisons with a value, BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, "
    "S_INTERSECTS, S_WITHIN, S_DWITHIN and A_CONTAINS"
)
_FLIPPED: dict[str, Operator] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_STRAIGHT: dict[str, Operator] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
#: Arithmetic, and where it is found; the library reads -x as -1 * x.
_ARITHMETIC = {
    **{sign: re.escape(sign) for sign in "+-/%^"},
    "*": r"\*|-\s*(?=[^\W\d]|[\"(])",
    "div": r"\bdiv\b",
}
_RELATIONS: dict[str, Relation] = {
    "s_intersects": "intersects",
    "s_within": "within",
    "s_dwithin": "dwithin",
}
_FUNCTIONS = frozenset({*_RELATIONS, "a_contains"})
_TEMPORAL = ("date", "timestamp", "interval")
_METRES = {
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1.0),
    **dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres"), 1000.0),
}
_PLACES = {
    "location": "location is the event's place; test it with S_INTERSECTS, S_WITHIN or S_DWITHIN",
    "keywords": "keywords are the event's words; test them with A_CONTAINS(keywords, ('word'))",
}


class _Reader:
    """Builds expressions; counts the functions it meets, so that an error finds its place."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def read(self, node: Any, depth: int) -> Expression:
        if isinstance(node, bool):
            return Constant(node)
        if not _is_object(node):
            raise RefusalError(
                f"a filter is a predicate, not {_kind(node)}; write one such as price < 3300",
                _literal_pattern(node),
            )
        if "op" not in node:
            if "property" in node:
                return Comparison(_attribute(node), "=", True)
            _refuse_operand(node, "a filter")
        op, args = _operation(node)
        if op in _STRAIGHT:
            return _comparison(op, args)
        reader = _LOGIC.get(op)
        if reader is not None:
            if depth >= MAX_DEPTH:
                raise RefusalError(f"the filter nests deeper than {MAX_DEPTH} levels; flatten it")
            return reader(self, args, depth + 1)
        predicate = _PREDICATES.get(op)
        if predicate is not None:
            return predicate(args)
        return self._function(op, args)

    def negation(self, args: Sequence[Any], depth: int) -> Expression:
        _arity("not", args, 1)
        return Not(self.read(args[0], depth))

    def conjunction(self, args: Sequence[Any], depth: int) -> Expression:
        parts = self._parts("and", args, depth)
        return parts[0] if len(parts) == 1 else And(parts)

    def disjunction(self, args: Sequence[Any], depth: int) -> Expression:
        parts = self._parts("or", args, depth)
        return parts[0] if len(parts) == 1 else Or(parts)

    def _parts(self, op: str, args: Sequence[Any], depth: int) -> tuple[Expression, ...]:
        """The operands, those of nested operations of the same kind included."""
        if not args:
            raise RefusalError(f"{op} has no args; give at least two filters")
        kind = And if op == "and" else Or
        parts: list[Expression] = []
        waiting = [*reversed(args)]
        while waiting:
            node = waiting.pop()
            if _is_object(node) and _is_op(node, op) and _operation(node)[1]:
                waiting.extend(reversed(_operation(node)[1]))
                continue
            part = self.read(node, depth)
            if isinstance(part, kind):
                parts.extend(part.parts)
            else:
                parts.append(part)
        return tuple(parts)

    def _function(self, op: str, args: Sequence[Any]) -> Expression:
        if op not in _FUNCTIONS:
            _refuse_operation(op)
        self.calls[op] += 1
        try:
            return _contains(args) if op == "a_contains" else _spatial(op, args)
        except RefusalError as refusal:
            if refusal.pattern is not None:
                raise
            nth = self.calls[op] - 1
            raise RefusalError(refusal.message, _call_pattern(op), nth) from None


_LOGIC: dict[str, Callable[[_Reader, Sequence[Any], int], Expression]] = {
    "and": _Reader.conjunction,
    "or": _Reader.disjunction,
    "not": _Reader.negation,
}


def _call_pattern(op: str) -> str:
    return rf"\b{re.escape(op)}\"?\s*\("


def _op_pattern(op: str) -> str:
    return "(<>|!=)" if op in ("<>", "!=") else re.escape(op)


def _is_op(node: Mapping[Any, Any], op: str) -> bool:
    name = node.get("op")
    return isinstance(name, str) and name.lower() == op


def _operation(node: Mapping[Any, Any]) -> tuple[str, Sequence[Any]]:
    op, args = node["op"], node.get("args")
    if not isinstance(op, str):
        raise RefusalError(f'"op" is {_kind(op)}; give the name of an operator, such as "and"')
    if not _is_list(args):
        raise RefusalError(f'{op}: "args" is {_kind(args)}; give a list')
    return op.lower(), args


def _comparison(op: str, args: Sequence[Any]) -> Comparison:
    _arity(op, args, 2)
    left, right = args
    if _is_property(left):
        name, operator, given = _attribute(left), _STRAIGHT[op], right
    elif _is_property(right):
        name, operator, given = _attribute(right), _FLIPPED[op], left
    else:
        _refuse_operands(op, left, right)
    if _is_property(given):
        _refuse_two_properties(op, left, right)
    if given is None:
        remedy = "IS NOT NULL" if operator == "<>" else "IS NULL"
        raise RefusalError(
            f"{operator} NULL is never true; write {name_text(name)} {remedy}",
            rf"{_op_pattern(op)}\s*NULL|\bNULL\s*{_op_pattern(op)}",
        )
    value = _scalar(given, f"{op} {name}")
    if isinstance(value, bool) and operator not in ("=", "<>"):
        raise RefusalError(
            f"TRUE and FALSE have no order, so {operator} cannot compare them; write = or <>",
            rf"{_op_pattern(op)}\s*(TRUE|FALSE)|\b(TRUE|FALSE)\s*{_op_pattern(op)}",
        )
    return Comparison(name, operator, value)


def _between(args: Sequence[Any]) -> Between:
    _arity("between", args, 3)
    name = _subject(args[0], "BETWEEN")
    low, high = (_scalar(bound, f"BETWEEN of {name}") for bound in args[1:])
    if isinstance(low, bool) or isinstance(high, bool):
        raise RefusalError(
            "TRUE and FALSE have no order; BETWEEN needs numbers or strings", "BETWEEN"
        )
    if isinstance(low, str) is not isinstance(high, str):
        raise RefusalError("the bounds of BETWEEN are two numbers or two strings", r"\bBETWEEN\b")
    return Between(name, low, high)


def _membership(args: Sequence[Any]) -> Membership:
    _arity("in", args, 2)
    name = _subject(args[0], "IN")
    values = args[1]
    if not _is_list(values):
        raise RefusalError(f"IN needs a list of values, not {_kind(values)}", r"\bIN\b")
    if not values:
        raise RefusalError("IN needs at least one value; to match nothing write FALSE", r"\bIN\b")
    return Membership(name, tuple(_scalar(value, f"IN of {name}") for value in values))


def _pattern(args: Sequence[Any]) -> Pattern:
    _arity("like", args, 2)
    name = _subject(args[0], "LIKE")
    pattern = args[1]
    if _is_object(pattern):
        _refuse_operand(pattern, "the pattern of LIKE")
    if not isinstance(pattern, str):
        raise RefusalError(f"LIKE needs a pattern such as 'P3%', not {_kind(pattern)}", r"\bLIKE\b")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise RefusalError(
            r"the pattern ends in a lone \, which escapes nothing; write \\ for a backslash",
            r"\bLIKE\b",
        )
    return Pattern(name, str(_scalar(pattern, f"LIKE of {name}")))


def _null(args: Sequence[Any]) -> Null:
    _arity("isNull", args, 1)
    return Null(_subject(args[0], "IS NULL"))


_PREDICATES: dict[str, Callable[[Sequence[Any]], Expression]] = {
    "between": _between,
    "in": _membership,
    "like": _pattern,
    "isnull": _null,
}


def _contains(args: Sequence[Any]) -> Contains:
    _arity("a_contains", args, 2)
    if not _is_property(args[0]) or args[0]["property"] != "keywords":
        raise RefusalError("A_CONTAINS tests the keywords: write A_CONTAINS(keywords, ('a', 'b'))")
    words = args[1]
    if not _is_list(words) or not words:
        raise RefusalError(
            f"A_CONTAINS needs a list of words such as ('a', 'b'), not {_kind(words)}"
        )
    for word in words:
        if not isinstance(word, str):
            raise RefusalError(f"the words of A_CONTAINS are strings, not {_kind(word)}")
        try:
            normalise_word(word)
        except ValidationError as error:
            raise RefusalError(f"A_CONTAINS: {error}") from None
    return Contains(tuple(dict.fromkeys(words)))


def _spatial(op: str, args: Sequence[Any]) -> Spatial:
    relation = _RELATIONS[op]
    name = op.upper()
    if relation == "dwithin":
        if len(args) not in (3, 4):
            raise RefusalError(
                f"{name} needs a shape and a distance: {name}(location, POINT(x y), 500)"
            )
    else:
        _arity(op, args, 2)
    first, second = args[:2]
    if _is_property(second) and not _is_property(first):
        if relation == "within":
            raise RefusalError("S_WITHIN tests the location: write S_WITHIN(location, <shape>)")
        first, second = second, first
    if not _is_property(first) or first["property"] != "location":
        raise RefusalError(f"{name} tests the property location: write {name}(location, <shape>)")
    shape = _shape(second, name)
    return Spatial(relation, shape, _distance(args[2:], name) if args[2:] else None)


def _distance(args: Sequence[Any], name: str) -> float:
    distance = args[0]
    if _is_object(distance):
        _refuse_operand(distance, f"the distance of {name}")
    value = _scalar(distance, f"the distance of {name}")
    if isinstance(value, str | bool):
        raise RefusalError(f"the distance of {name} is a number, not {_kind(distance)}")
    if value < 0:
        raise RefusalError(f"the distance of {name} is negative ({value}); give metres ≥ 0")
    if len(args) == 1:
        return value
    unit = args[1]["property"] if _is_property(args[1]) else args[1]
    if not isinstance(unit, str) or unit.lower() not in _METRES:
        raise RefusalError(f"the unit of {name} is {_kind(unit)}; nearcast knows 'm' and 'km'")
    if not math.isfinite(metres := value * _METRES[unit.lower()]):
        raise RefusalError(f"the distance of {name} is not finite; give a smaller one")
    return metres


def _shape(node: Any, name: str) -> Shape:
    if _is_object(node):
        if "bbox" in node and "type" not in node:
            return _box(node["bbox"])
        kind = node.get("type")
        if kind in ("Point", "Polygon", "MultiPolygon"):
            try:
                return _geometry(str(kind), node.get("coordinates"))
            except ValidationError as error:
                raise RefusalError(f"{str(kind).upper()}: {error}", rf"\b{kind}\b") from None
        if isinstance(kind, str):
            raise RefusalError(
                f"a location cannot be compared with {_short(kind.upper())}; "
                "nearcast knows POINT, POLYGON, MULTIPOLYGON and BBOX",
                rf"\b{re.escape(kind)}\b",
            )
        if isinstance(op := node.get("op"), str):
            raise RefusalError(
                f"{_short(op.upper())} is not a shape that nearcast knows; write POINT(x y), "
                "POLYGON((x y, …)), MULTIPOLYGON(…) or BBOX(xmin, ymin, xmax, ymax)",
                rf"\b{re.escape(op)}\b",
            )
    raise RefusalError(f"{name} needs a shape such as POINT(8.5 47.4), not {_kind(node)}")


def _box(corners: Any) -> Box:
    if not _is_list(corners) or len(corners) != 4:
        raise RefusalError("BBOX needs four numbers: xmin, ymin, xmax, ymax", r"\bBBOX\b")
    try:
        return Box(*corners)
    except ValidationError as error:
        raise RefusalError(f"BBOX: {error}", r"\bBBOX\b") from None


def _geometry(kind: str, coordinates: Any) -> Shape:
    if kind == "Point":
        x, y = _listed(coordinates, "x y", 2)
        return Point(x, y)
    if kind == "Polygon":
        return _polygon(coordinates)
    parts = tuple(map(_polygon, _listed(coordinates, "a list of polygons")))
    return parts[0] if len(parts) == 1 else parts


def _polygon(coordinates: Any) -> Polygon:
    exterior, *holes = (
        [_listed(position, "x y", 2) for position in _listed(ring, "a ring of positions")]
        for ring in _listed(coordinates, "a list of rings")
    )
    return Polygon(tuple(exterior), tuple(map(tuple, holes)))


def _listed(given: Any, what: str, length: int | None = None) -> Sequence[Any]:
    if not _is_list(given) or not given:
        raise ValidationError("coordinates", given, f"give {what}")
    if length is not None and len(given) != length:
        raise ValidationError("coordinates", given, f"give {what}, {length} numbers")
    return given


# --- operands -----------------------------------------------------------------------------


def _is_object(node: Any) -> TypeGuard[Mapping[str, Any]]:
    # The library and json make dicts: asking the abstract class costs ten times as much.
    return type(node) is dict or isinstance(node, Mapping)


def _is_list(node: Any) -> TypeGuard[Sequence[Any]]:
    return type(node) is list or (isinstance(node, Sequence) and not isinstance(node, str))


def _is_property(node: Any) -> TypeGuard[Mapping[str, Any]]:
    return _is_object(node) and "property" in node


def _attribute(node: Mapping[str, Any]) -> str:
    name = node["property"]
    if not isinstance(name, str) or not name:
        raise RefusalError(f"a property's name is a non-empty string, not {_kind(name)}", '""')
    if name in _PLACES:
        raise RefusalError(_PLACES[name], rf"\b{name}\b")
    _check_text(name, "a property's name")
    return intern(str(name))


def _subject(node: Any, word: str) -> str:
    """The property that BETWEEN, IN, LIKE or IS NULL tests."""
    if _is_property(node):
        return _attribute(node)
    if _is_object(node):
        _refuse_operand(node, f"the left side of {word}")
    raise RefusalError(f"{word} tests a property, not {_kind(node)}", rf"\b{word}\b")


def _scalar(value: Any, where: str) -> Scalar:
    """A literal: a finite number as float64, a string, or a bool."""
    if isinstance(value, float):
        number = value
    elif isinstance(value, bool):
        return bool(value)
    elif isinstance(value, str):
        _check_text(value, where)
        return str(value)
    elif isinstance(value, int):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    elif value is None:
        raise RefusalError(f"{where}: NULL is no value; write IS NULL to test for it", r"\bNULL\b")
    else:
        _refuse_operand(value, where)
    if not math.isfinite(number):
        raise RefusalError(f"{where}: a number must be finite and fit a float64", _OVERFLOW)
    return number + 0.0  # −0.0 equals 0.0 and must print like it


#: Finds numbers of more than 300 digits or with an exponent of three digits or more.
_OVERFLOW = r"\d{300,}|\d+(\.\d*)?e\+?\d{3,}"


def _check_text(value: str, where: str) -> None:
    if value.isascii():
        return
    try:
        check_text(value, where)
    except ValidationError as error:
        raise RefusalError(str(error)) from None


def _arity(op: str, args: Sequence[Any], count: int) -> None:
    if len(args) != count:
        raise RefusalError(
            f"{op.upper()} takes {count} argument{'s' * (count > 1)}, not {len(args)}"
        )


def _refuse_two_properties(op: str, left: Any, right: Any) -> NoReturn:
    first, second = (str(side["property"]) for side in (left, right))
    raise RefusalError(
        f"{op} compares two properties, {_short(first)} and {_short(second)}; compare a property "
        f"with a value, and put strings in single quotes: {_short(value_text(second))}",
        rf"{_op_pattern(op)}\s*(?P<at>\"?{re.escape(second)})(?!\w)",
    )


def _refuse_operands(op: str, left: Any, right: Any) -> NoReturn:
    for side in (left, right):
        if _is_object(side):
            _refuse_operand(side, f"a side of {op}")
    raise RefusalError(
        f"{op} compares {_kind(left)} with {_kind(right)}; put a property on one side",
        _literal_pattern(left),
    )


def _refuse_operand(node: Any, where: str) -> NoReturn:
    """Name what stands where a value or a predicate should."""
    if _is_object(node):
        if isinstance(op := node.get("op"), str):
            _refuse_operation(op.lower())
        for kind in _TEMPORAL:
            if kind in node:
                raise RefusalError(
                    f"{kind.upper()} is not supported: times are no attributes; "
                    "compare numbers, such as seconds, instead",
                    rf"\b{kind}\s*\(",
                )
        if _is_property(node):
            raise RefusalError(
                f"{where} is a value, not the property {_short(str(node['property']))}; "
                "put strings in single quotes",
                rf"\b{re.escape(str(node['property']))}\b",
            )
        if "type" in node or "bbox" in node:
            raise RefusalError(
                f"{where} cannot be a shape; shapes stand in S_INTERSECTS, S_WITHIN or S_DWITHIN",
                r"\b(POINT|LINESTRING|POLYGON|MULTI\w+|GEOMETRYCOLLECTION|BBOX)\b",
            )
    raise RefusalError(f"{where} is {_kind(node)}; give a number, a string, TRUE or FALSE")


def _refuse_operation(op: str) -> NoReturn:
    if op in _ARITHMETIC:
        raise RefusalError(
            f"arithmetic ({op}) is not supported; compare a property with a value",
            _ARITHMETIC[op],
        )
    if op in ("casei", "accenti"):
        raise RefusalError(
            f"{op.upper()} is not supported; case counts in comparisons of strings",
            _call_pattern(op),
        )
    if op in _STRAIGHT or op in _LOGIC or op in _PREDICATES or op in _FUNCTIONS:
        raise RefusalError(
            f"{op.upper()} stands where a value should; join predicates with AND, OR and NOT",
            _call_pattern(op) if op in _FUNCTIONS else None,
        )
    raise RefusalError(f"{_short(op.upper())} is not supported; {_SUPPORTED}", _call_pattern(op))


def _kind(value: Any) -> str:
    """What a thing is, for a message."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        small = isinstance(value, float) or value.bit_length() < 64
        return f"the number {value!r}" if small else "a large number"
    if isinstance(value, str):
        return f"the string {_short(value)!r}"
    if _is_list(value):
        return "a list"
    return "an object" if _is_object(value) else f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _literal_pattern(value: Any) -> str:
    """Where a literal begins in a text."""
    if isinstance(value, str):
        return "'"
    return r"-?\d" if isinstance(value, int | float) else r"\S"
