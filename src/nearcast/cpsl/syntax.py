"""The grammar for people: rules and tokens of grammar.lark as a page, without lark's own marks."""

from __future__ import annotations

import re

from nearcast.cpsl.parser import grammar_text
from nearcast.errors import ValidationError

__all__ = ["BEGIN", "END", "replaced", "syntax"]

#: What a page has around the part that is generated.
BEGIN = "<!-- generated from grammar.lark: nearcast cpsl syntax --into docs/cpsl.md -->"
END = "<!-- end of the generated part -->"

_RULE = re.compile(r"^\??([a-zA-Z_0-9]+)(?:\.\d+)?\s*:\s*(.*)$")


def syntax() -> str:
    """The rules and the tokens of the grammar, as two blocks of Markdown."""
    rules: list[str] = []
    tokens: list[str] = []
    lines = tokens
    for line in grammar_text().splitlines():
        text = re.sub(r"\s*->.*$", "", line).rstrip()
        found = _RULE.match(text)
        if found:
            lines = tokens if found[1].isupper() else rules
            lines.append(f"{found[1]:<16} ::= {found[2]}")
        elif text.lstrip().startswith("|"):
            lines.append(f"{'':<18} {text.lstrip()}")
    return f"```text\n{_block(rules)}\n```\n\n```text\n{_block(tokens)}\n```\n"


def _block(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines)


def replaced(page: str) -> str:
    """A page with its generated part made anew; a ValidationError if it has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValidationError("page", page[:40], f"it needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{syntax()}\n{END}{after}"
