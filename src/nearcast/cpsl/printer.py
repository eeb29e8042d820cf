"""From values back to text: CPSL's normal form, which reads back as the same values.

One space after a separator, operands of an operator in parentheses unless they are operators
or variables themselves, durations in seconds, times in RFC 3339, regions as points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nearcast.clock import EARLIEST, LATEST, format_micros
from nearcast.cpsl import ast
from nearcast.model.cql2_literals import number_text
from nearcast.model.durations import format_seconds

__all__ = ["format_lines", "format_node"]


def format_node(node: ast.Node) -> str:
    """A node as CPSL on one line. O(size); recursive, so as deep as the analysis allows."""
    return _WRITERS[type(node)](node)


def format_lines(pattern: ast.Pattern) -> str:
    """A pattern with one line for the expression and one for each definition."""
    lines = [format_node(pattern.expression)]
    lines += [format_node(definition) for definition in pattern.definitions]
    return ",\n".join(lines)


def _pattern(node: ast.Pattern) -> str:
    return ", ".join(map(format_node, (node.expression, *node.definitions)))


def _definition(node: ast.Definition) -> str:
    return f"${node.name}; = ({format_node(node.body)})"


def _operand(node: ast.Expression) -> str:
    """An operand of a prefix operator: `&&`, `||` and predicates stand in parentheses."""
    text = format_node(node)
    return f"({text})" if isinstance(node, ast.And | ast.Or | ast.Primitive) else text


def _and(node: ast.And) -> str:
    return " && ".join(map(_operand, node.parts))


def _or(node: ast.Or) -> str:
    # && binds tighter: it needs no parentheses here.
    return " || ".join(
        format_node(part) if isinstance(part, ast.And) else _operand(part) for part in node.parts
    )


def _temporal(node: ast.Temporal) -> str:
    return f"{node.symbol}({format_node(node.window)}){_operand(node.body)}"


def _fixed(node: ast.Fixed) -> str:
    at = format_micros(node.at) if EARLIEST <= node.at <= LATEST else format_seconds(node.at)
    return f"{at}; {format_seconds(node.length)}"


def _following(node: ast.Following) -> str:
    return f"{format_node(node.opener)}; {format_seconds(node.length)}"


def _enclosed(node: ast.Enclosed) -> str:
    return f"{format_node(node.opener)}; {format_node(node.closer)}"


def _beside(node: ast.Concurrent | ast.Inside) -> str:
    return f"{node.symbol}({format_node(node.other)}){_operand(node.body)}"


def _happen_in(node: ast.HappenIn) -> str:
    return f"{node.symbol}({format_node(node.region)}){_operand(node.body)}"


def _placed(node: ast.Overlap | ast.SamePlace) -> str:
    return f"{node.symbol}({format_node(node.place)}){_operand(node.body)}"


def _distance(node: ast.Distance) -> str:
    inner = f"{format_node(node.place)}; {node.op}; {number_text(node.metres)}"
    return f"{node.symbol}({inner}){_operand(node.body)}"


def _count(node: ast.Count) -> str:
    return f"{node.symbol}({node.n}){_operand(node.body)}"


def _period(node: ast.Period) -> str:
    return f"{node.symbol}({format_seconds(node.length)}){_operand(node.body)}"


def _sliding(node: ast.Sliding) -> str:
    inner = f"{node.n}; {format_seconds(node.length)}; {node.step}"
    return f"{node.symbol}({inner}){_operand(node.body)}"


def _crossing(node: ast.Crossing) -> str:
    first = ""
    if isinstance(node, ast.Dwell):
        first = f"{format_seconds(node.length)}; "
    elif isinstance(node, ast.Approach):
        first = f"{number_text(node.metres)}; "
    inner = f"{format_node(node.region)}; {first}{number_text(node.margin)}"
    return f"{node.symbol}({inner}){_operand(node.body)}"


def _region(node: ast.Region) -> str:
    return ", ".join(f"({number_text(x)}, {number_text(y)})" for x, y in node.points)


def _primitive(node: ast.Primitive) -> str:
    return ", ".join(map(format_node, node.predicates))


def _typed(node: ast.TypedPredicate) -> str:
    return f"{node.kind}: " + " | ".join(" & ".join(map(format_node, t)) for t in node.any_of)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _value(value: float | str | ast.Variable | ast.Code) -> str:
    if isinstance(value, ast.Node):
        return format_node(value)
    return _quoted(value) if isinstance(value, str) else number_text(value)


def _compare(node: ast.ArithTest | ast.StringTest) -> str:
    return f"{node.name} {node.op} {_value(node.value)}"


def _range(node: ast.RangeTest) -> str:
    opening, closing = "[" if node.low_closed else "(", "]" if node.high_closed else ")"
    ends = f"{number_text(node.low)}, {number_text(node.high)}"
    return f"{node.name} IN {opening}{ends}{closing}"


def _set(node: ast.SetTest) -> str:
    word = "NOT IN" if node.negated else "IN"
    return f"{node.name} {word} ({', '.join(map(_quoted, node.values))})"


def _rfid(node: ast.RfidTest) -> str:
    named = "" if node.role is None else f"; {node.name}"
    bits = f"({node.first}; {node.last}{named})"
    return f"{node.role or node.name} {node.op} {bits} {_value(node.value)}"


def _variable(node: ast.Variable) -> str:
    return f"&{node.name}" + (f" {node.op} {number_text(node.number)}" if node.op else "")


def _code(node: ast.Code) -> str:
    return f"0x{node.value:X}" if node.base == 16 else f"{node.value:b}b"


_WRITERS: dict[type[ast.Node], Callable[[Any], str]] = {
    ast.Pattern: _pattern,
    ast.Definition: _definition,
    ast.And: _and,
    ast.Or: _or,
    ast.Negation: _temporal,
    ast.HappenBetween: _temporal,
    ast.HappenAfter: _temporal,
    ast.Fixed: _fixed,
    ast.Following: _following,
    ast.Enclosed: _enclosed,
    ast.Concurrent: _beside,
    ast.Inside: _beside,
    ast.HappenIn: _happen_in,
    ast.Overlap: _placed,
    ast.SamePlace: _placed,
    ast.Distance: _distance,
    ast.Count: _count,
    ast.Period: _period,
    ast.Sliding: _sliding,
    ast.Enter: _crossing,
    ast.Exit: _crossing,
    ast.Dwell: _crossing,
    ast.Approach: _crossing,
    ast.Region: _region,
    ast.Reference: lambda node: f"${node.name};",
    ast.Primitive: _primitive,
    ast.TypedPredicate: _typed,
    ast.CqlPredicate: lambda node: f"CQL2: {_quoted(node.text)}",
    ast.ArithTest: _compare,
    ast.StringTest: _compare,
    ast.RangeTest: _range,
    ast.SetTest: _set,
    ast.RfidTest: _rfid,
    ast.Variable: _variable,
    ast.Code: _code,
}
