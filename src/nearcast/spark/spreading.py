"""Keys that Spark's hash puts where we want them: as many shards as partitions, one in each."""

from __future__ import annotations

__all__ = ["keys_of", "partition_of"]

_WORD = 0xFFFFFFFF


def keys_of(shards: int, partitions: int) -> list[int]:
    """The key of each shard: shard i lies in partition i modulo their number."""
    keys: dict[int, list[int]] = {at: [] for at in range(partitions)}
    wanted = [-(-(shards - at) // partitions) for at in range(partitions)]
    lacking, value = shards, 0
    while lacking:
        at = partition_of(value, partitions)
        if len(keys[at]) < wanted[at]:
            keys[at].append(value)
            lacking -= 1
        value += 1
    return [keys[shard % partitions][shard // partitions] for shard in range(shards)]


def partition_of(key: int, partitions: int) -> int:
    """Where Spark puts a key of type int: Murmur 3 (32 bits) with the seed 42."""
    mixed = _turned(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    state = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    signed = state - 2**32 if state >= 2**31 else state
    return signed % partitions


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
