"""A disk that forgets: a VFS of SQLite's in memory that loses or tears what was not synced.

`Disk.crash` is a power cut. Everything that was synced stays; of what was written since, each
512 bytes reach the disk or do not, as the seed has it. `fail` lets one system call go wrong. A
failed sync is the worst kind: what it was to write is still read, and is not on the disk.
"""

from __future__ import annotations

import random
from typing import Any

import apsw

__all__ = ["Cut", "Disk"]

_SECTOR = 512


class Cut(BaseException):
    """The power is cut in the middle of a system call."""


class _File:
    """What is on the disk, and what is read: the difference is not synced."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.seen = bytearray()
        self.dirty: set[int] = set()
        """Sectors that were written since the last sync."""

    def write(self, data: bytes, at: int) -> None:
        if len(self.seen) < at + len(data):
            self.seen.extend(bytes(at + len(data) - len(self.seen)))
        self.seen[at : at + len(data)] = data
        self.dirty.update(range(at // _SECTOR, (at + len(data) - 1) // _SECTOR + 1))

    def sync(self) -> None:
        self.durable[:] = self.seen
        self.dirty.clear()

    def lose(self) -> None:
        """A sync failed: the kernel takes the pages for clean, and they are not on the disk."""
        self.dirty.clear()

    def crash(self, rng: random.Random) -> None:
        share = rng.choice((0.0, 0.5, 0.9, 1.0))
        kept = self.durable
        for sector in sorted(self.dirty):
            if rng.random() < share:
                first = sector * _SECTOR
                data = self.seen[first : first + _SECTOR]
                if len(kept) < first + len(data):
                    kept.extend(bytes(first + len(data) - len(kept)))
                kept[first : first + len(data)] = data
        self.seen = bytearray(kept)
        self.dirty.clear()


class Disk:
    """Files in memory under a VFS's name; one life of a process after another."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files: dict[str, _File] = {}
        self.life = 0
        self.dead = False
        """The power is off: whoever tidies up now does nothing."""
        self.calls = 0
        """Writes and syncs so far."""
        self.cut_at: int | None = None
        self.fail_at: int | None = None
        self.error: type[Exception] = apsw.IOError
        self._lives: list[_Vfs] = []
        self._begin()

    @property
    def name(self) -> str:
        """The VFS of this life."""
        return f"forgetful-{id(self):x}-{self.life}"

    def _begin(self) -> None:
        self.life += 1
        self.dead = False
        self.cut_at = self.fail_at = None
        self._lives.append(_Vfs(self))

    def crash(self) -> None:
        """The power is cut: whoever has a file open reaches it no more."""
        for file in self.files.values():
            file.crash(self.rng)
        self._begin()

    def leave(self) -> None:
        """The process is gone, and the machine runs on."""
        self._begin()

    def close(self) -> None:
        """No such VFS any more."""
        for vfs in self._lives:
            vfs.unregister()

    def called(self, what: str, file: _File) -> None:
        """A system call that changes something."""
        self.calls += 1
        if self.calls == self.cut_at:
            self.dead = True
            raise Cut
        if self.fail_at is not None and self.calls >= self.fail_at:
            if self.calls == self.fail_at and what == "sync":
                file.lose()
            if self.calls == self.fail_at or self.error is apsw.FullError:
                raise self.error("the disk fails")


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.life = disk.life
        super().__init__(disk.name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"
        if path not in self.disk.files:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(path)
            self.disk.files[path] = _File()
        flags[1] = flags[0]
        return _Handle(self.disk, self.disk.files[path])

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        if self.life == self.disk.life and not self.disk.dead:  # what is dead closes its files, too
            self.disk.called("delete", _File())
            self.disk.files.pop(name, None)

    def xAccess(self, name: str, flags: int) -> bool:  # noqa: N802
        return name in self.disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


class _Handle:
    """An open file; after a crash it does nothing any more."""

    def __init__(self, disk: Disk, file: _File) -> None:
        self._disk, self._file, self._life = disk, file, disk.life

    def _called(self, what: str) -> bool:
        if self._life != self._disk.life or self._disk.dead:
            return False
        self._disk.called(what, self._file)
        return True

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._called("write"):
            self._file.write(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        if self._called("truncate"):
            del self._file.seen[size:]

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._called("sync"):
            self._file.sync()

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._file.seen)

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return _SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xClose(self) -> None:  # noqa: N802
        pass
