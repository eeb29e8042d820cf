"""Every error nearcast raises on purpose.

::

    NearcastError
    ├── ValidationError      a value that cannot be accepted (also a ValueError)
    │   └── BatchError       one bad row of a batch; nothing of the batch was taken
    ├── FilterError          a filter that cannot be read; shows the text with a caret
    │   └── FilterTooLarge   a filter whose normal form needs too many clauses
    ├── PatternError         a CPSL pattern that cannot be read; line, column and a caret
    ├── DuplicateIdError     an id that is taken already
    ├── UnknownIdError       an id that nobody has (also a KeyError)
    ├── CapabilityError      an index asked for what it cannot do; says which one can
    ├── CapacityError        a bound (memory, queue) that would be exceeded
    ├── SchemaError          schemas that do not fit together
    ├── DatasetError         data that cannot be read
    │   └── RowError         one row of a file that cannot be taken, or written
    ├── BenchError           a measurement that cannot be trusted, and so is refused
    ├── SparkError           Spark cannot be started, or not be used in this way
    ├── SavedError           a saved matcher that cannot be written or read
    ├── StoreError           a store that cannot be opened, read or written
    │   └── StoppedError     a broker whose store failed, or that was closed
    ├── ServerError          a server that cannot be reached, or does not let one in
    └── MissingExtraError    an optional dependency that is not installed

    CompilerWarning          the compiler or its cache is in trouble; answers are not

Each carries its data as attributes and says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import east_asian_width

__all__ = [
    "BatchError",
    "BenchError",
    "CapabilityError",
    "CapacityError",
    "CompilerWarning",
    "DatasetError",
    "DuplicateIdError",
    "FilterError",
    "FilterTooLarge",
    "MissingExtraError",
    "NearcastError",
    "PatternError",
    "RowError",
    "SavedError",
    "SchemaError",
    "ServerError",
    "SparkError",
    "StoppedError",
    "StoreError",
    "UnknownIdError",
    "ValidationError",
]


def _shown(value: object, limit: int = 80) -> str:
    """A repr short enough for one line of an error message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply; an int of thousands of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class NearcastError(Exception):
    """The root of the tree: catch this to catch all of them."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by message and data: an error crosses processes whatever it is made from."""
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(
    kind: type[NearcastError], args: tuple[object, ...], data: dict[str, object]
) -> NearcastError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(data)
    return error


class ValidationError(NearcastError, ValueError):
    """A value that cannot be accepted: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field}: {_shown(value)} is not valid; {remedy}")

    def inside(self, prefix: str) -> ValidationError:
        """The same error seen from the value that contains the field."""
        return ValidationError(f"{prefix}.{self.field}", self.value, self.remedy)


class BatchError(ValidationError):
    """One row of a batch is bad, so nothing of the batch was taken."""

    def __init__(self, row: int, cause: NearcastError) -> None:
        self.row = row
        self.cause = cause
        field = getattr(cause, "field", "row")
        value = getattr(cause, "value", None)
        remedy = getattr(cause, "remedy", "mend the row and send the batch again")
        super().__init__(field, value, remedy)
        self.args = (f"row {row}: {cause} (nothing of this batch was added)",)


class FilterError(NearcastError, ValueError):
    """A filter that cannot be read: the text, a caret under the place, what was expected."""

    def __init__(self, message: str, text: str | None = None, position: int | None = None) -> None:
        self.message = message
        self.text = text
        self.position = position
        super().__init__(self._render())

    def _render(self) -> str:
        if self.text is None:
            return self.message
        if self.position is None:
            return f"{self.message}\n  {_excerpt(self.text, 0)[0]}"
        return f"{self.message}\n{_pointed(self.text, self.position)}"


class PatternError(NearcastError, ValueError):
    """A CPSL pattern that cannot be read: line and column (from 1), the line with a caret."""

    def __init__(self, message: str, text: str, position: int) -> None:
        self.message = message
        self.text = text
        self.position = position
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(
            f"line {self.line}, column {self.column}: {message}\n{_pointed(text, position)}"
        )


def _pointed(text: str, position: int) -> str:
    """The line of a text that holds a position, and a caret under it."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    line = text[start : stop if stop >= 0 else len(text)]
    shown, at = _excerpt(line, position - start)
    return f"  {shown}\n  {_blank(shown[:at])}^"


def _excerpt(line: str, at: int, reach: int = 100) -> tuple[str, int]:
    """The part of a long line around a place, and the place in it."""
    start = max(0, at - reach) if len(line) > 2 * reach else 0
    stop = len(line) if len(line) <= 2 * reach else max(at, reach) + reach
    before, after = "…" if start else "", "…" if stop < len(line) else ""
    return before + line[start:stop] + after, at - start + len(before)


def _blank(text: str) -> str:
    """Blanks as wide as the text on a terminal."""
    return "".join(
        "\t" if c == "\t" else "  " if east_asian_width(c) in "WF" else " " for c in text
    )


class FilterTooLarge(FilterError):
    """A filter whose disjunctive normal form needs more clauses than are allowed."""

    def __init__(self, needed: int, limit: int, text: str | None = None) -> None:
        self.needed = needed
        self.limit = limit
        super().__init__(
            f"the filter would need {_count(needed)} clauses and the limit is {limit}; "
            "split it into several subscriptions or use fewer ORs",
            text,
        )


def _count(number: int) -> str:
    """A number in full, or its magnitude where nobody could read it (nor `str` write it)."""
    if number < 10**15:
        return str(number)
    return f"about 10^{int((number.bit_length() - 1) * 0.30103)}"


class DuplicateIdError(NearcastError):
    """An id that is taken already."""

    def __init__(self, kind: str, id: str, remedy: str) -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"{kind} {_shown(id)} exists already; {remedy}")


class UnknownIdError(NearcastError, KeyError):
    """An id that nobody has."""

    def __init__(self, kind: str, id: str, remedy: str = "check the id") -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"no {kind} has the id {_shown(id)}; {remedy}")

    def __str__(self) -> str:
        return str(self.args[0])


class CapabilityError(NearcastError):
    """An index asked for what it cannot do: says which indexes can."""

    def __init__(self, index: str, wanted: str, able: Iterable[str]) -> None:
        self.index = index
        self.wanted = wanted
        self.able = tuple(sorted(able))
        others = ", ".join(self.able) or "none yet"
        super().__init__(f"index {index!r} cannot do {wanted}; these can: {others}")


class CapacityError(NearcastError):
    """A bound that would be exceeded; nothing was changed."""

    def __init__(self, what: str, needed: int, limit: int, remedy: str) -> None:
        self.what = what
        self.needed = needed
        self.limit = limit
        super().__init__(f"{what} would need {needed:,} and the limit is {limit:,}; {remedy}")


class SchemaError(NearcastError):
    """Schemas that do not fit together."""


class DatasetError(NearcastError):
    """Data that cannot be read or made."""


class RowError(DatasetError):
    """One row of a file that cannot be taken, or cannot be written; rows count from 1."""

    def __init__(self, file: str, row: int, cause: NearcastError, remedy: str) -> None:
        self.file = file
        self.row = row
        self.cause = cause
        self.field = getattr(cause, "field", None)
        self.value = getattr(cause, "value", None)
        self.remedy = remedy
        super().__init__(f"{file}: row {row:,}: {cause}\n{remedy}")


class BenchError(NearcastError):
    """A measurement that cannot be trusted, and so is refused."""


class SparkError(NearcastError):
    """Spark cannot be started, or not be used in this way."""


class SavedError(NearcastError):
    """A saved matcher that cannot be written or read."""


class StoreError(NearcastError):
    """A store that cannot be opened, read or written; says what to do."""


class StoppedError(StoreError):
    """A broker that answers no more: its store failed, or it was closed."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"this broker has stopped: {why}; open it again to go on")


class ServerError(NearcastError):
    """A server that cannot be reached (status 0), does not let one in, or has failed itself."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class MissingExtraError(NearcastError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed; run: pip install 'nearcast[{extra}]'")


class CompilerWarning(UserWarning):
    """The compiler or its cache is in trouble. Answers are right all the same, only slower."""
