"""Disks that forget, fail and are full, processes that die: what was answered is there afterwards.

Every harness has a control: the same with a store that promises too much must be found out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import apsw
import pytest

from nearcast import Broker
from nearcast.broker.ports import Change
from nearcast.errors import StoppedError, StoreError
from nearcast.storage.sqlite import Database, SqliteStore
from tests.forgetful import Cut, Disk
from tests.history import Client, Story, Witness

CRASHES = int(os.environ.get("NEARCAST_CRASHES", "40"))


class Hasty(SqliteStore):
    """Answers before the commit: what a call staged is committed by the next."""

    _before: Sequence[Change] = ()

    def stage(self, changes: Sequence[Change]) -> None:
        before, self._before = self._before, changes
        super().stage(before)


def opened(disk: Disk, kind: type[SqliteStore] = SqliteStore, sync: Any = "FULL") -> Broker:
    store = kind(Database("city.db", vfs=disk.name, synchronous=sync))
    return Broker("planar", store=store)


def crash(seed: int, kind: type[SqliteStore] = SqliteStore, sync: Any = "FULL") -> Client:
    """A story on a disk whose power is cut again and again, and what is there each time."""
    disk = Disk(seed)
    client = Client(Story(seed, 60), Witness(naive=False))
    try:
        while not client.over:
            disk.cut_at = disk.calls + disk.rng.randrange(1, 120)
            try:
                client.go_on(opened(disk, kind, sync))
            except Cut:
                pass
            disk.crash()
            again = opened(disk, kind, sync)
            client.recovered(again)
            disk.leave()
        client.check(opened(disk, kind, sync))
    finally:
        disk.leave()
        disk.close()
    return client


@pytest.mark.parametrize("seed", range(max(1, CRASHES // 8)))
def test_a_disk_that_forgets_what_was_not_synced(seed: int):
    crash(seed)


@pytest.mark.parametrize("sync", ["NORMAL", "OFF"])
def test_control_a_store_that_does_not_sync_is_found_out(sync: str):
    with pytest.raises((AssertionError, StoreError, KeyError, IndexError)):
        for seed in range(20):
            crash(seed, sync=sync)


def test_control_an_answer_before_its_commit_is_found_out():
    with pytest.raises((AssertionError, StoreError, KeyError, IndexError)):
        for seed in range(20):
            crash(seed, Hasty)


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_a_disk_that_fails_at_every_commit_point(error: type[Exception]):
    """The broker stops, says so, and the next one goes on; a power cut follows later."""
    story = Story(3, 12)
    made = 0
    for nth in range(1, 400, 1 if CRASHES > 100 else 7):
        disk = Disk(nth)
        client = Client(story, Witness(naive=False))
        try:
            broker = opened(disk)
            disk.error, disk.fail_at = error, disk.calls + nth
            try:
                client.go_on(broker)
            except StoreError as failed:
                made += 1
                assert "open it again" in str(failed) or "disk" in str(failed)
                with pytest.raises(StoppedError, match="open it again"):
                    client.go_on(broker)
            else:
                broker.close()
            disk.leave()
            client.recovered(opened(disk))
            disk.leave()
            client.go_on(opened(disk), 3)
            disk.crash()
            client.recovered(opened(disk))
        finally:
            disk.leave()
            disk.close()
    assert made > 10
