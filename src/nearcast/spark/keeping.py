"""Shards with state under `transformWithState`: a few bytes that wait, built structures kept.

A shard is a *keeper*: it is built once a worker, and what waits in it comes from Spark's state
store and goes back there. A worker that still has what the store has reads nothing; workers are
not sticky, so most often it does.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import ValidationError
from nearcast.spark.packs import CLOCK, Pack, unpacked

__all__ = ["TOLD", "Job", "Keeper", "Keeping", "Opener"]

#: What the processor gives: a batch as bytes, and what was counted since the last time.
TOLD = "told binary, late bigint, duplicates bigint, overflows bigint"
_MILLI = 1000
_MOST = 64  # keepers of a worker


class Keeper(Protocol):
    """One shard in a worker."""

    def load(self, saved: bytes | None) -> None:
        """Take up what waited elsewhere; None: nothing has happened yet."""

    def save(self) -> bytes:
        """What waits."""

    def take(self, packs: Sequence[Pack], closed: Micros) -> bytes | None:
        """Events; and nothing that ended until `closed` is still to come. What that brings."""

    @property
    def due(self) -> Micros:
        """When time alone brings something next; FOREVER if never."""

    def counted(self) -> tuple[int, int, int]:
        """Late, duplicates and overflows since the last call."""


class Opener(Protocol):
    """Makes keepers; small to pickle."""

    def open(self, shard: int, /) -> Keeper:
        """The keeper of a shard, in which nothing waits."""

    @property
    def key(self) -> str:
        """Tells what is opened apart."""


@dataclass(frozen=True)
class Job:
    """Whose state it is, and what its keys follow from: they say where Spark looks for it."""

    kind: str
    partitions: int
    keys: tuple[int, ...]
    """The key of each shard."""

    @property
    def said(self) -> tuple[str, int, int]:
        """What a checkpoint says of itself."""
        return self.kind, len(self.keys), self.partitions

    def check(self, said: Any) -> None:
        """Raise unless a checkpoint is of this job."""
        kind, shards, partitions = said
        if kind != self.kind:
            remedy = f"it was made by {kind}, and this is {self.kind}: start a new one"
            raise ValidationError("checkpoint", kind, remedy)
        if said != self.said:
            raise ValidationError(
                "checkpoint", f"{shards} shards in {partitions} partitions",
                f"here are {len(self.keys)} in {self.partitions}: give `shards` and "
                "spark.sql.shuffle.partitions as they were, or start a new one",
            )  # fmt: skip


@dataclass
class _Kept:
    stamp: str | None
    keeper: Keeper


_kept: dict[tuple[str, int], _Kept] = {}


class Keeping(StatefulProcessor):
    """Spark's face of the shards.

    Each state says whose it is; and so does one under the key of the clock, of which there is a
    row in whatever has rows: it is found whatever the keys of the shards are.
    """

    def __init__(self, opener: Opener, job: Job) -> None:
        self._opener = opener
        self._job = job
        self._shards = {key: shard for shard, key in enumerate(job.keys)}

    def init(self, handle: Any) -> None:
        """What the store has of a shard: which state that is, and apart from that the state."""
        self._handle = handle
        self._about = handle.getValueState("about", "stamp string, timer bigint, closed bigint")
        self._saved = handle.getValueState("saved", "saved binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Packs of a batch."""
        if key[0] == CLOCK:
            self._agree(rows)
            return
        yield from self._turn(key[0], unpacked(rows), timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[Any]:
        """Time has come to what a shard waits for, and no event with it."""
        yield from self._turn(key[0], [], timerValues)

    def close(self) -> None:
        """Nothing to let go: keepers stay for the next batch."""

    def _agree(self, rows: Iterator[Any]) -> None:
        """Refuse a checkpoint of another job, before anything is answered."""
        for _ in rows:
            pass
        if self._saved.exists():
            self._job.check(pickle.loads(bytes(self._saved.get()[0])))
        else:
            self._saved.update((pickle.dumps(self._job.said),))

    def _turn(self, key: int, packs: list[Pack], timers: Any) -> Iterator[Any]:
        shard = self._shards.get(key)
        if shard is None:
            remedy = "it was made with other shards or partitions: give the same, or a new one"
            raise ValidationError("checkpoint", key, remedy)
        watermark = timers.getCurrentWatermarkInMs()
        closed = watermark * _MILLI if watermark > 0 else NEVER
        stamp, timer, before = self._about.get() if self._about.exists() else (None, None, NEVER)
        if not packs and closed <= before:
            return
        keeper = self._keeper(shard, stamp)
        told = keeper.take(packs, closed)
        self._arm(timer, due := _millis(keeper.due))
        stamp = uuid.uuid4().hex
        self._saved.update((pickle.dumps((self._job.said, keeper.save()), protocol=5),))
        self._about.update((stamp, due, closed))
        _kept[self._opener.key, shard] = _Kept(stamp, keeper)
        counted = keeper.counted()
        if told is not None or any(counted):
            yield Row(told=told, late=counted[0], duplicates=counted[1], overflows=counted[2])

    def _keeper(self, shard: int, stamp: str | None) -> Keeper:
        """The shard as the store has it. Until it is put back nobody takes it for that."""
        kept = _kept.pop((self._opener.key, shard), None)
        if kept is not None and kept.stamp == stamp and stamp is not None:
            return kept.keeper
        while len(_kept) >= _MOST:
            del _kept[next(iter(_kept))]
        keeper = self._opener.open(shard) if kept is None else kept.keeper
        keeper.load(None if stamp is None else self._waiting(bytes(self._saved.get()[0])))
        return keeper

    def _waiting(self, saved: bytes) -> bytes:
        """What a shard saved, if it is of this job."""
        said, *waiting = pickle.loads(saved)
        if not isinstance(said, tuple):
            remedy = "an earlier release made it: start a new one"
            raise ValidationError("checkpoint", said, remedy)
        self._job.check(said)
        data: bytes = waiting[0]
        return data

    def _arm(self, timer: int | None, due: int | None) -> None:
        """One timer at most, at the next moment at which something is due."""
        if timer == due:
            return
        if timer is not None:
            self._handle.deleteTimer(timer)
        if due is not None:
            self._handle.registerTimer(due)


def _millis(due: Micros) -> int | None:
    """The first watermark at which a moment is over."""
    return None if due == FOREVER else -(-due // _MILLI)
