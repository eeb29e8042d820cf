"""The subscriptions as changes leave them, from offset to offset: a base, and what came since.

Of the changes of an id the one with the greatest `seq` counts, wherever it stands in the log.
What was current while remembered events came is kept as long as these are: an event that was
told by one version is not told again by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import FOREVER
from nearcast.spark.stream.bases import Base
from nearcast.spark.stream.changes import CHANGES

__all__ = ["Register", "Version"]

_EARLIEST = -1
_ROOM = 10_000


class Version(NamedTuple):
    """What was current of an id: from one batch on, until the next version's."""

    id: str
    seq: int
    begins: int
    """The batch, or where both logs are one the entry, from which on it is current."""
    clock: int | None
    """The time at which it was asked for events that were there before it."""
    row: int
    """Where it stands in the register's rows; −1 where it is a removal."""


@dataclass
class Register:
    """What counts after a batch. Costs a pass over the changes, and over the base's ids."""

    base: Base | None = None
    rows: Any = field(default_factory=CHANGES.empty_table)
    """Changes that are still looked at."""
    current: dict[str, Version] = field(default_factory=dict)
    """The last version of each id that has changed since the base."""
    before: dict[str, list[Version]] = field(default_factory=dict)
    """Earlier versions of an id, oldest first, as long as events are remembered from then."""
    version: int = 0
    """The greatest `seq` that was read."""
    counted: int = 0
    """Changes so far; tells what has changed since a moment."""
    horizon: int = FOREVER
    """Where the events begin that are remembered: from then on it counts when a version began."""
    based: int = 0
    """The changes that the base counts, of those that were counted."""
    _room: int = field(default=_ROOM, repr=False)
    """Rows from which on it pays to look for those that nobody refers to."""
    stamps: dict[str, int] = field(default_factory=dict)
    """The count at which an id changed last."""

    def fold(
        self, table: Any, begins: int, clock: int | None, history: bool,
        each: Sequence[tuple[int, int | None]] | None = None,
    ) -> list[Version]:  # fmt: skip
        """Count good changes; the versions that have become current, in the order of `seq`.

        Of several changes of an id only the last becomes current, unless `each` does: that says
        where every one begins, and the time then. With `history` the versions before are kept.
        """
        if not table.num_rows:
            return []
        if self.rows.num_rows > self._room:
            self._room = 2 * (len(self.current) + sum(map(len, self.before.values()))) + _ROOM
            if self.rows.num_rows > self._room:
                self._tidy()
        ids, seqs = table.column("id").to_pylist(), table.column("seq").to_pylist()
        ops = table.column("op").to_pylist()
        fresh = [id for id in dict.fromkeys(ids) if id not in self.current]
        self._recall(fresh, history or (self.base is not None and min(seqs) <= self.base.seq))
        first = self.rows.num_rows
        self.rows = pa.concat_tables([self.rows, table])
        made: dict[str, Version] = {}
        every: list[Version] = []
        for row in sorted(range(len(ids)), key=seqs.__getitem__):
            id, seq = ids[row], seqs[row]
            known = made.get(id) or self.current.get(id)
            if known is not None and known.seq >= seq:
                continue
            at = -1 if ops[row] == "remove" else first + row
            since, now = (begins, clock) if each is None else each[row]
            version = Version(id, seq, since, now, at)
            if each is not None and history and known is not None:
                self.before.setdefault(id, []).append(known)
            made[id] = version
            every.append(version)
        if history and each is None:
            for id in made:
                old = self.current.get(id)
                if old is not None:
                    self.before.setdefault(id, []).append(old)
        self.current |= made
        self.counted += table.num_rows
        self.stamps |= dict.fromkeys(made, self.counted)
        return list(made.values()) if each is None else every

    def _recall(self, ids: list[str], needed: bool) -> None:
        """Enter what the base has of ids that change now."""
        if self.base is None or not needed or not ids:
            return
        found = self.base.rows_of(ids)
        first = self.rows.num_rows
        self.rows = pa.concat_tables([self.rows, found])
        for row, (id, seq) in enumerate(
            zip(found.column("id").to_pylist(), found.column("seq").to_pylist(), strict=True)
        ):
            self.current[id] = Version(id, seq, _EARLIEST, None, first + row)
        for id in ids:
            seq = self.base.removed.get(id)
            if seq is not None:
                self.current[id] = Version(id, seq, _EARLIEST, None, -1)

    def forget(self) -> None:
        """Drop versions that were replaced before the events that are remembered."""
        over = []
        for id, versions in self.before.items():
            ends = [each.begins for each in versions[1:]] + [self._begins(id)]
            kept = [v for v, end in zip(versions, ends, strict=True) if end > self.horizon]
            if kept:
                self.before[id] = kept
            else:
                over.append(id)
        for id in over:
            del self.before[id]

    def _begins(self, id: str) -> int:
        return self.current[id].begins if id in self.current else _EARLIEST

    def standing(self) -> Any:
        """The rows of `current` that are no removals."""
        return self.taken(v for v in self.current.values() if v.row >= 0)

    def taken(self, versions: Iterable[Version]) -> Any:
        """The rows of versions, in their order."""
        if self.rows.column(0).num_chunks > 8:
            self.rows = self.rows.combine_chunks()
        return self.rows.take(pa.array([each.row for each in versions], pa.int64()))

    def rebase(self, base: Base, counted: int) -> None:
        """Stand on another base, which holds all that was counted up to then."""
        self.base, self.based = base, counted
        kept = {id: v for id, v in self.current.items() if self.stamps.get(id, 0) > counted}
        # Who has changed before keeps its last version, which earlier ones end at. So does who
        # changed while remembered events came: the base does not say which of them it has seen.
        self.current = {
            id: version
            for id, version in self.current.items()
            if id in kept or id in self.before or version.begins > self.horizon
        }
        self.stamps = {id: n for id, n in self.stamps.items() if id in kept}
        self._tidy()

    def spans(self, id: str) -> list[tuple[Version, int]]:
        """The versions of an id that are kept, oldest first, and where each ends."""
        versions = [*self.before.get(id, []), self.current[id]]
        return list(zip(versions, [*(v.begins for v in versions[1:]), FOREVER], strict=True))

    def changed(self) -> list[str]:
        """The ids whose rows in the base do not count any more."""
        return [id for id in self.current if id in self.stamps]

    def _tidy(self) -> None:
        """Drop rows that nobody refers to."""
        every = [*self.current.values(), *(v for many in self.before.values() for v in many)]
        used = np.unique(np.array([v.row for v in every if v.row >= 0], np.int64))
        self.rows = self.rows.take(pa.array(used)).combine_chunks()
        self._room = 2 * used.size + _ROOM

        def moved(version: Version) -> Version:
            if version.row < 0:
                return version
            return version._replace(row=int(np.searchsorted(used, version.row)))

        self.current = {id: moved(v) for id, v in self.current.items()}
        self.before = {id: [*map(moved, many)] for id, many in self.before.items()}

    def whole(self) -> Any:
        """All rows that stand now: the base's that count, and those since."""
        fresh = self.taken(v for id, v in self.current.items() if v.row >= 0 and id in self.stamps)
        if self.base is None:
            return fresh
        dead = pa.array(self.changed(), pa.string())
        old = self.base.table()
        return pa.concat_tables(
            [old.filter(pc.invert(pc.is_in(old.column("id"), value_set=dead))), fresh]
        )

    def gone(self) -> dict[str, int]:
        """Ids that were removed, with the `seq` of that: an older change brings none back."""
        removed = {} if self.base is None else dict(self.base.removed)
        for id in self.changed():
            version = self.current[id]
            if version.row < 0:
                removed[id] = version.seq
            else:
                removed.pop(id, None)
        return removed
