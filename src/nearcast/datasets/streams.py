"""Random streams by block, and rows regrouped into batches.

Every stream of rows is made in blocks of `BLOCK_ROWS`, each from its own generator that
is keyed by (seed, stream, block number). A row's bytes therefore depend on its number
alone: not on the batch size, on how many rows are asked for, or on where one starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa

from nearcast.errors import DatasetError

__all__ = ["BATCH_ROWS", "BLOCK_ROWS", "MakeBlock", "generator", "regroup"]

#: Rows made from one generator. Small enough that a block's scratch stays in the cache.
BLOCK_ROWS = 8192
#: Rows of a batch, unless told otherwise.
BATCH_ROWS = 65_536

#: Makes the block of `rows` rows that starts with row number `first`.
MakeBlock: TypeAlias = Callable[[np.random.Generator, int, int], pa.RecordBatch]


def generator(seed: int, stream: str, block: int = 0) -> np.random.Generator:
    """The generator of one block of one named stream: O(1), independent of all others."""
    key = (crc32(stream.encode()), block)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def regroup(
    make: MakeBlock, seed: int, stream: str, first: int, n: int, batch_rows: int, block_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows `first` … `first + n` of a stream in batches of `batch_rows`; the last may be shorter.

    Holds one batch and one block in memory at a time.
    """
    for name, value, least in (("first", first, 0), ("n", n, 0), ("batch_rows", batch_rows, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise DatasetError(f"{name}: {value!r} is not valid; give an integer ≥ {least}")
    return _batches(_pieces(make, seed, stream, first, n, block_rows), batch_rows)


def _pieces(
    make: MakeBlock, seed: int, stream: str, first: int, n: int, block_rows: int
) -> Iterator[pa.RecordBatch]:
    stop = first + n
    for number in range(first // block_rows, -(-stop // block_rows)):
        start = number * block_rows
        block = make(generator(seed, stream, number), start, block_rows)
        skipped = max(first - start, 0)
        yield block.slice(skipped, min(stop - start, block_rows) - skipped)


def _batches(pieces: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for piece in pieces:
        while rows + piece.num_rows >= batch_rows:
            cut = batch_rows - rows
            yield _joined([*held, piece.slice(0, cut)])
            held, rows, piece = [], 0, piece.slice(cut)
        if piece.num_rows:
            held.append(piece)
            rows += piece.num_rows
    if held:
        yield _joined(held)


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    filled = [piece for piece in pieces if piece.num_rows]
    if len(filled) == 1:
        return filled[0]
    return pa.Table.from_batches(filled).combine_chunks().to_batches()[0]
