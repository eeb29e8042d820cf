"""Disks that forget, fail and are full, processes that die: what was answered is there afterwards.

Every harness has a control: the same with a store that promises too much must be found out.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from nearcast import Broker
from nearcast.broker.ports import Change
from nearcast.errors import StoppedError, StoreError
from nearcast.storage.sqlite import Database, SqliteStore
from tests.forgetful import Cut, Disk
from tests.history import Client, Story, Witness
from tests.storyteller import LENGTH

CRASHES = int(os.environ.get("NEARCAST_CRASHES", "40"))
#: Processes that must die.
KILLS = max(3, CRASHES // 10)


#: What a check of the history raises, or a broker that finds its store damaged.
FOUND_OUT = (AssertionError, StoreError, KeyError)


class Hasty(SqliteStore):
    """Answers before the commit: what a call staged is committed by the next."""

    _before: Sequence[Change] = ()

    def stage(self, changes: Sequence[Change]) -> None:
        before, self._before = self._before, changes
        super().stage(before)


class Deaf(Database):
    """Takes a commit that failed for one that was made."""

    def flush(self) -> None:
        with suppress(StoreError):
            super().flush()


def opened(
    disk: Disk, kind: type[SqliteStore] = SqliteStore, sync: Any = "FULL",
    file: type[Database] = Database,
) -> Broker:  # fmt: skip
    store = kind(file("city.db", vfs=disk.name, synchronous=sync))
    return Broker("planar", store=store)


def crash(seed: int, kind: type[SqliteStore] = SqliteStore, sync: Any = "FULL") -> Client:
    """A story on a disk whose power is cut again and again, and what is there each time."""
    disk = Disk(seed)
    plain = seed % 2 == 0
    client = Client(Story(seed, 60, plain=plain), Witness(naive=plain))
    try:
        while not client.over:
            client.crashes += 1
            disk.cut_at = disk.calls + disk.rng.randrange(1, 120)
            with suppress(Cut):
                client.go_on(opened(disk, kind, sync))
            disk.crash()
            again = opened(disk, kind, sync)
            client.recovered(again)
            disk.leave()
        client.check(opened(disk, kind, sync))
    finally:
        disk.leave()
        disk.close()
    return client


def test_a_disk_that_forgets_what_was_not_synced():
    crashes = seed = 0
    while crashes < CRASHES:
        crashes += crash(seed).crashes
        seed += 1


@pytest.mark.parametrize("sync", ["NORMAL", "OFF"])
def test_control_a_store_that_does_not_sync_is_found_out(sync: str):
    with pytest.raises(FOUND_OUT):
        [crash(seed, sync=sync) for seed in range(20)]


def test_control_an_answer_before_its_commit_is_found_out():
    with pytest.raises(FOUND_OUT):
        [crash(seed, Hasty) for seed in range(20)]


def failed(nth: int, error: type[Exception], file: type[Database] = Database) -> bool:
    """A story on a disk whose nth call fails: the broker stops, the next one goes on.

    A power cut follows later. Whether the story was long enough to get there.
    """
    disk = Disk(nth)
    client = Client(Story(3, 12), Witness(naive=False))
    try:
        broker = opened(disk, file=file)
        disk.error, disk.fail_at = error, disk.calls + nth
        with suppress(StoreError):
            client.go_on(broker)
        reached = not client.over
        if reached:
            with pytest.raises(StoppedError, match="open it again"):
                client.go_on(broker)
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
    return reached


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_a_disk_that_fails_at_every_commit_point(error: type[Exception]):
    reached = [failed(nth, error) for nth in range(1, 400, 1 if CRASHES > 100 else 7)]
    assert sum(reached) > 10
    assert not reached[-1], "there are points beyond the last one"


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_control_a_store_that_overhears_a_failed_commit_is_found_out(error: type[Exception]):
    with pytest.raises(FOUND_OUT):
        [failed(nth, error, Deaf) for nth in range(1, 400, 7)]


# --- processes that die ----------------------------------------------------------------------


def run(file: Path, seed: int, done: int, *prefix: str, kill_at: float | None = None) -> int:
    """Let a process go on with a story until it dies, and say how far it has said to be.

    `kill_at` is a number of answers, and by its fraction some milliseconds later.
    """
    command = [*prefix, sys.executable, "-m", "tests.storyteller", str(file), str(seed), str(done)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if kill_at is not None and len(said) >= int(kill_at):
                time.sleep(kill_at % 1 / 50)
                process.kill()
                kill_at = None
        code = process.wait()
    assert code in (0, -signal.SIGKILL, 128 + signal.SIGKILL), code
    whole = [line for line in said if line.endswith("\n")]
    return int(whole[-1]) if whole else done


def killed(file: Path, seed: int, *prefix: str, kill_at: float | None = None) -> Client:
    """Kill a process at work, look at what it left, and let the next one go on with it."""
    client = Client(Story(seed, LENGTH), Witness(naive=False))
    done = run(file, seed, 0, *prefix, kill_at=kill_at)
    while client.step < done:
        client.answered()
    with Broker.open(file, "planar") as broker:
        client.asked = {name: len(told) + 99 for name, told in client.witness.told.items()}
        client.recovered(broker)
    return client


@pytest.mark.slow
@pytest.mark.needs("strace")
def test_a_kill_at_a_system_call(tmp_path: Path):
    rng = random.Random(1)
    deaths = number = 0
    while deaths < KILLS:
        assert number < 4 * KILLS, "most of them live on"
        number += 1
        call = rng.choice(("fdatasync", "pwrite64", "fsync"))
        nth = rng.randrange(2, 40 if call == "fsync" else 400)
        inject = f"inject={call}:signal=SIGKILL:when={nth}"
        prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        deaths += not killed(tmp_path / f"{number}.db", number, *prefix).over


@pytest.mark.slow
def test_a_kill_at_any_time(tmp_path: Path):
    rng = random.Random(2)
    deaths = number = 0
    while deaths < KILLS:
        assert number < 4 * KILLS, "most of them live on"
        number += 1
        client = killed(tmp_path / f"{number}.db", number, kill_at=1 + (LENGTH - 1) * rng.random())
        deaths += not client.over


def test_control_a_process_that_says_more_than_it_did_is_found_out(tmp_path: Path):
    client = Client(Story(5, LENGTH), Witness(naive=False))
    done = run(tmp_path / "x.db", 5, LENGTH - 20)
    assert done == LENGTH + 1
    while client.step < done:
        client.answered()
    with Broker.open(tmp_path / "x.db", "planar") as broker, pytest.raises(AssertionError):
        client.recovered(broker)
