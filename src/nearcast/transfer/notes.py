"""Small files beside a transfer: how far it has come, and the rows that were set aside."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from nearcast.errors import NearcastError

__all__ = ["Note", "Rejects", "digest", "synced"]


def digest(text: str) -> str:
    """What is kept of something that may hold a password, to know it again."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


def synced(path: Path) -> None:
    """Let a file's contents, or the names in a folder, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Note:
    """A JSON object in a file, replaced as a whole: a kill leaves the old one or the new one.

    So does a power cut: what it says is on disk when it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, about: dict[str, Any]) -> dict[str, Any] | None:
        """What was noted, if it is of just this transfer; a damaged note is none."""
        try:
            said = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(said, dict) or said.get("about") != about:
            return None
        return said

    def write(self, about: dict[str, Any], **said: Any) -> None:
        """Note this instead."""
        scratch = self.path.with_name(self.path.name + ".new")
        scratch.write_text(json.dumps({"about": about} | said), encoding="utf-8")
        synced(scratch)
        synced(self.path.parent)  # whatever it names stands there before it does
        scratch.replace(self.path)

    def drop(self) -> None:
        """It is over."""
        self.path.unlink(missing_ok=True)


class Rejects:
    """Bad rows, one JSON object a line: `row`, `field`, `value`, `remedy`, and `is`, the row."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        """How much of the file counts: what a kill has left behind that is written again."""
        if path.exists():
            os.truncate(path, min(size, path.stat().st_size))

    def add(self, row: int, cause: NearcastError, what: Any) -> None:
        """One more; on disk before its row counts as done."""
        said = {
            "row": row,
            "field": getattr(cause, "field", None),
            "value": getattr(cause, "value", None),
            "remedy": getattr(cause, "remedy", str(cause)),
            "is": what,
        }
        line = json.dumps(said, default=repr, ensure_ascii=False) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
            self.size = file.tell()
