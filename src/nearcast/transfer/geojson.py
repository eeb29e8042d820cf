"""Features in a file of any size: read one after the other, never the whole file at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from nearcast.errors import BatchError, DatasetError, NearcastError, ValidationError
from nearcast.model.geometry import Space
from nearcast.transfer.kinds import Kind, Row

__all__ = ["Features", "features_of", "lines_of", "text_of"]

_CHUNK = 1 << 20
#: Characters of one Feature, or of what stands around them.
_LONGEST = 64 << 20
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_NUMBER_GOES_ON = re.compile(r"[\d.eE+-]*")
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def text_of(feature: dict[str, Any]) -> str:
    """A Feature on one line."""
    try:
        return _encode(feature)
    except ValueError as error:
        raise ValidationError("feature", None, f"JSON cannot say it ({error}): use Arrow") from None


class Features:
    """Some Features, one behind the other."""

    def __init__(self, rows: list[Any], read: int) -> None:
        self.rows = rows
        self.read = read
        """Bytes that were read for them."""

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> Features:
        """Some of them."""
        return Features(self.rows[start:stop], 0)

    def made(self, kind: Kind, space: Space) -> list[Row]:
        """What they say; a BatchError names the bad one."""
        found = []
        for row, each in enumerate(self.rows):
            try:
                if isinstance(each, NearcastError):
                    raise each
                found.append(kind.from_feature(each, space=space))
            except NearcastError as error:
                raise BatchError(row, error) from error
        return found

    def shown(self, row: int) -> Any:
        """One of them, as it was."""
        each = self.rows[row]
        return getattr(each, "value", None) if isinstance(each, NearcastError) else each


class _Text:
    """What is left of a file, as text that grows at its end."""

    def __init__(self, file: IO[str], name: str) -> None:
        self._file = file
        self._name = name
        self._text = ""
        self._at = 0
        self._over = False
        self.where = "before the first Feature"

    def _more(self) -> bool:
        read = self._file.read(_CHUNK)
        if not read:
            self._over = True
            return False
        self._text, self._at = self._text[self._at :] + read, 0
        if len(self._text) > _LONGEST:
            raise self.wrong(f"more than {_LONGEST >> 20} MiB in one piece", "cut it up")
        return True

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, wanted: str) -> None:
        """Pass one character."""
        found = self.peek()
        if found != wanted:
            if not found:
                raise self.wrong("the file ends there", "it is not whole: write it again")
            raise self.wrong(f"{wanted!r} is missing in front of {found!r}", "mend the JSON")
        self._at += 1

    def value(self) -> Any:
        """The next JSON value."""
        self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except RecursionError:
                raise self.wrong("nested too deeply", "make it flatter") from None
            except json.JSONDecodeError as error:
                if not self._over and self._more():
                    continue
                why = "the file ends there" if error.pos >= len(self._text) else error.msg
                raise self.wrong(why, "mend the JSON") from None
            if _NUMBER_GOES_ON.fullmatch(self._text, end) and not self._over and self._more():
                continue
            self._at = end
            return value

    def wrong(self, why: str, remedy: str) -> DatasetError:
        return DatasetError(f"{self._name}: {self.where}: {why}; {remedy}")


def features_of(path: Path) -> Iterator[Any]:
    """The Features of a FeatureCollection, or a file's one Feature."""
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        yield from _features(_Text(file, str(path)))


def _features(text: _Text) -> Iterator[Any]:
    text.take("{")
    said: dict[str, Any] = {}
    count = None
    while text.peek() != "}":
        if said or count is not None:
            text.take(",")
        name = text.value()
        text.take(":")
        if name != "features" or count is not None:
            said[str(name)] = text.value()
            continue
        count = 0
        text.take("[")
        while text.peek() != "]":
            if count:
                text.take(",")
            text.where = f"row {count + 1:,}"
            yield text.value()
            count += 1
        text.take("]")
        text.where = "behind the last Feature"
    text.take("}")
    if count is None:
        if said.get("type") != "Feature":
            raise text.wrong("there is no member features", "give a FeatureCollection")
        yield said


def lines_of(path: Path) -> Iterator[Any]:
    """A Feature a line; a line that is no JSON is a bad row, which does not stop the others."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        while line := file.readline(_LONGEST):
            text = line.strip(" \t\r\n\x1e\ufeff")  # RFC 8142 begins each with a separator
            if not text:
                continue
            try:
                yield json.loads(text)
            except (ValueError, RecursionError) as error:
                yield ValidationError("line", text, f"mend the JSON ({error})")
