"""What goes wrong, as RFC 9457 says it: `application/problem+json`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from nearcast.errors import (
    BatchError,
    CapacityError,
    DuplicateIdError,
    FilterError,
    FilterTooLarge,
    NearcastError,
    PatternError,
    StoreError,
    UnknownIdError,
    ValidationError,
)

__all__ = [
    "CONTENT_TYPE",
    "TITLES",
    "Problem",
    "busy",
    "malformed",
    "mistake",
    "problem_of",
    "too_large",
    "unavailable",
]

CONTENT_TYPE = "application/problem+json"
#: The kinds of problems by status.
TITLES = {
    400: ("unreadable", "What was sent cannot be read"),
    401: ("key", "A key is needed"),
    403: ("role", "This key may not do that"),
    404: ("unknown", "There is nothing of that name"),
    405: ("method", "That is not done here"),
    408: ("slow", "What was sent took too long to come"),
    409: ("conflict", "Something else is there"),
    413: ("large", "What was sent is too large"),
    426: ("upgrade", "Another protocol is needed"),
    422: ("invalid", "What was sent is not valid"),
    429: ("busy", "Too much at once"),
    431: ("large", "What was sent is too large"),
    500: ("internal", "The server is at fault"),
    503: ("unavailable", "The server cannot answer now"),
}
_LONGEST = 200
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Problem(NearcastError):
    """An answer that is not the one asked for: its status, and what to do about it."""

    def __init__(
        self, status: int, detail: str, field: str | None = None, value: Any = None,
        remedy: str | None = None, more: Mapping[str, Any] = _NOTHING,
        headers: Mapping[str, str] = _NOTHING,
    ) -> None:  # fmt: skip
        self.status = status
        self.detail = detail
        self.field = field
        self.value = value
        self.remedy = remedy
        self.more = more
        self.headers = headers
        super().__init__(f"{status}: {detail}")

    def members(self) -> dict[str, Any]:
        """As the object that is sent."""
        name, title = TITLES.get(self.status, ("other", "That did not work"))
        said: dict[str, Any] = {
            "type": f"urn:nearcast:problem:{name}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            "field": self.field,
            "value": shown(self.value),
            "remedy": self.remedy,
        }
        return said | dict(self.more)

    def body(self) -> bytes:
        """As it is sent."""
        return msgspec.json.encode(self.members())


def shown(value: Any) -> Any:
    """A value as the sender knows it, cut where it is long."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else f"about 2^{value.bit_length()}"
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):
        text = f"<{type(value).__name__}>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def malformed(detail: str, remedy: str, field: str | None = None, value: Any = None) -> Problem:
    """400: it cannot be read."""
    return Problem(400, detail, field, value, remedy)


def too_large(field: str, value: Any, limit: int, unit: str, setting: str) -> Problem:
    """413."""
    return Problem(
        413, f"{field} has {value:,} {unit} and the limit is {limit:,}", field, value,
        f"send less at once, or raise {setting} of the server",
    )  # fmt: skip


def busy(
    detail: str, after_s: float, remedy: str = "try again after Retry-After seconds"
) -> Problem:
    """429, and when to come again."""
    return Problem(
        429, detail, remedy=remedy, headers={"Retry-After": str(max(1, round(after_s + 0.5)))}
    )


def unavailable(why: str, remedy: str = "try again later") -> Problem:
    """503, for a while."""
    return Problem(503, f"the server does not answer: {why}", remedy=remedy,
                   headers={"Retry-After": "1"})  # fmt: skip


def mistake() -> Problem:
    """500: nothing that whoever asked could have done better."""
    return Problem(500, "a mistake of the server's; its log has more",
                   remedy="report it; nothing was changed")  # fmt: skip


def problem_of(error: NearcastError) -> Problem:
    """The answer to a call that was refused."""
    if isinstance(error, Problem):
        return error
    field = getattr(error, "field", None)
    value, remedy = getattr(error, "value", None), getattr(error, "remedy", None)
    detail = str(error)
    more: dict[str, Any] = {}
    cause: NearcastError = error
    if isinstance(error, BatchError):
        more["row"] = error.row
        cause = error.cause
    match cause:
        case FilterTooLarge():
            return Problem(422, detail, field or "where", cause.needed, "use fewer ORs", more)
        case FilterError() | PatternError():
            more |= placed(cause)
            name = "where" if isinstance(cause, FilterError) else "text"
            where = field if isinstance(error, ValidationError) and field != "row" else name
            return Problem(422, detail, where, cause.text, cause.message, more)
        case ValidationError():
            return Problem(422, detail, field, value, remedy, more)
        case DuplicateIdError(kind=kind, id=id):
            return Problem(409, detail, "id", id, f"another {kind} has it: choose another", more)
        case UnknownIdError(id=id):
            return Problem(404, detail, "id", id, "check the id", more)
        case StoreError():
            return Problem(503, detail, remedy="see to the server's disk and start it again")
        case CapacityError():
            return Problem(422, detail, cause.what, cause.needed, "send less", more)
    return Problem(422, detail, field, value, remedy, more)


def placed(error: FilterError | PatternError) -> dict[str, Any]:
    """Where in its text an error is: line and column from 1, and how much is meant."""
    if error.text is None or error.position is None:
        return {}
    text, at = error.text, error.position
    word = len(text[at:].split(None, 1)[0]) if text[at:].strip() and not text[at].isspace() else 1
    return {
        "line": text.count("\n", 0, at) + 1,
        "column": at - (text.rfind("\n", 0, at) + 1) + 1,
        "length": max(1, min(word, len(text) - at)),
    }
