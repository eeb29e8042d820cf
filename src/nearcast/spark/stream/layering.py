"""The layers of a version, as files that workers map: a base, a delta, and who is dead in the base.

What changes between versions is small: the delta is made anew, the base is built behind by a
process of its own when the delta has grown, and the layers then stand on the next one.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from nearcast.errors import NearcastError
from nearcast.model.geometry import Space
from nearcast.spark.stream.bases import Building, build, filled, put_table, shipped_matcher
from nearcast.spark.stream.pieces import Wanted
from nearcast.spark.stream.register import Register
from nearcast.spark.stream.worker import Layers
from nearcast.spark.workers import Shipped

__all__ = ["Delta", "Layering", "shipped_table"]

_log = logging.getLogger("nearcast.spark")
_LEAST_DELTA = 10_000
_AGAIN = 4


@dataclass(frozen=True)
class Delta:
    """What has changed since the base, when so many changes had been counted."""

    counted: int
    matcher: Shipped | None
    dead: Shipped | None
    wanted: Wanted
    spans: Shipped | None = None

    def folders(self) -> set[Path]:
        """Where its files are."""
        return {Path(each.path).parent for each in (self.matcher, self.dead) if each is not None}


@dataclass
class Layering:
    """A register, and the files of its versions below a folder."""

    root: Path
    index: str
    space: Space
    options: Mapping[str, Any]
    register: Register = field(default_factory=Register)
    removals: bool = True
    """Whether bases keep who was removed: not where no older change can come later."""
    delta: Delta | None = None
    building: Building | None = None

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(".building-*"):
            shutil.rmtree(left, ignore_errors=True)

    def restart(self, register: Register) -> None:
        """Stand on another register."""
        self.close()
        self.register, self.delta = register, None

    def close(self) -> None:
        """Give up what is being built."""
        if self.building is not None:
            self.building.stop()
            self.building = None

    def switch(self) -> None:
        """Stand on the base that was built behind, if it is there."""
        if self.building is None:
            return
        try:
            base = self.building.done()
        except NearcastError as error:
            _log.warning("%s; it is tried again", error)
            self.building = None
            return
        if base is not None:
            self.register.rebase(base, self.building.counted)
            self.building = self.delta = None

    def compact(self, position: Any) -> None:
        """Build the next base when the delta has grown: behind, unless there is nothing yet."""
        register = self.register
        changed = len(register.stamps)
        least = max(_LEAST_DELTA, (register.base.count if register.base else 0) // 50)
        # Few who change all the time make no large delta, but a long way from the base for who
        # begins anew.
        if changed <= least and register.counted - register.based <= _AGAIN * least:
            return
        if register.base is None or changed > 8 * least:
            if self.building is not None:
                base = self.building.done(wait=True)
                if base is not None:
                    register.rebase(base, self.building.counted)
                self.building = None
            else:
                base = build(
                    self.root / f"base-{os.urandom(6).hex()}", register.whole(), self._gone(),
                    position, register.version, self.index, self.space,
                    self.options,
                )  # fmt: skip
                register.rebase(base, register.counted)
            self.delta = None
        elif self.building is None:
            self.building = Building(
                self.root, register.base, register.taken(
                    v for id, v in register.current.items() if v.row >= 0 and id in register.stamps
                ),
                register.changed(), self._gone(), position, register.version,
                register.counted, self.index, self.space, self.options,
            )  # fmt: skip

    def _gone(self) -> dict[str, int]:
        return self.register.gone() if self.removals else {}

    def layers(self) -> Layers:
        """Those of the version that the register has."""
        register = self.register
        if self.delta is None or self.delta.counted != register.counted:
            changed = register.changed()
            standing = [
                v for id, v in register.current.items() if v.row >= 0 and id in register.stamps
            ]
            folder = self.root / f"delta-{os.urandom(6).hex()}"
            shipped, wanted = self.shipped(folder, register.taken(standing))
            dead = self.dead(folder, changed)
            self.delta = Delta(register.counted, shipped, dead, wanted)
        delta, wanted = self.delta, self.delta.wanted
        base = None
        if register.base is not None:
            base = register.base.matcher
            wanted |= Wanted(register.base.attributes, register.base.words)
        return Layers(base, delta.matcher, delta.dead, wanted, register.version)

    def dead(self, folder: Path, changed: list[str]) -> Shipped | None:
        """The ids that do not count in the base."""
        if not changed or self.register.base is None:
            return None
        return shipped_table(folder / "dead.arrow", pa.table({"id": pa.array(changed)}))

    def shipped(self, folder: Path, rows: Any) -> tuple[Shipped | None, Wanted]:
        """A matcher of some rows in a new folder, and what it asks for; None without rows."""
        folder.mkdir()
        if not rows.num_rows:
            return None, Wanted(frozenset(), False)
        matcher = filled(rows, self.index, self.space, self.options)
        attributes, words = matcher.asked()
        matcher.save(folder)
        return shipped_matcher(folder), Wanted(attributes, words)


def shipped_table(path: Path, table: Any) -> Shipped:
    """A table as workers open it."""
    put_table(path, table)
    return Shipped(os.fspath(path), os.fspath(path))
