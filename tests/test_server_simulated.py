"""Seeded runs of a server's core, feeds and connections in virtual time."""

from __future__ import annotations

import os

import pytest

from nearcast.server.feeds import Feed
from nearcast.server.reader import Reader
from tests.simulated import simulate

SEEDS = max(20, 2 * int(os.environ.get("NEARCAST_CRASHES", "10")))


def test_everybody_is_told_once_and_in_order():
    assert sum(simulate(seed) for seed in range(SEEDS)) > 10 * SEEDS


def test_a_seed_gives_the_same_run():
    assert simulate(3) == simulate(3)


def test_control_a_tail_that_does_not_say_that_it_is_too_short(monkeypatch: pytest.MonkeyPatch):
    def after(self: Feed, seq: int, limit: int) -> list[bytes]:
        skip = max(0, seq - self.last + len(self._tail))
        return [*self._tail][skip:][:limit]

    monkeypatch.setattr(Feed, "after", after)
    with pytest.raises(AssertionError, match="instead of"):
        [simulate(seed) for seed in range(20)]


def test_control_a_reader_that_forgets_to_read_the_store_first(monkeypatch: pytest.MonkeyPatch):
    begin = Reader.__init__

    def hasty(self: Reader, *of: object) -> None:
        begin(self, *of)  # type: ignore[arg-type]
        self._behind = False

    monkeypatch.setattr(Reader, "__init__", hasty)
    with pytest.raises(AssertionError, match=r"misses some|instead of"):
        [simulate(seed) for seed in range(20)]
