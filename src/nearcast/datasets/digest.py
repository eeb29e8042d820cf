"""A fingerprint of Arrow batches by what they say, not by how they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

__all__ = ["digest_batches"]


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


def digest_batches(batches: Iterable[pa.RecordBatch]) -> str:
    """The sha256 of names, types and values, batch by batch: O(bytes).

    It sees neither offsets into shared buffers nor padding nor the bytes under nulls, so
    it is the same for every version of Arrow. It does see where batches end.
    """
    found = hashlib.sha256()
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found.update(f"{name}:{column.type}:{len(column)};".encode())
            _add(found, column)
    return found.hexdigest()


def _add(found: _Hash, column: pa.Array) -> None:
    present = np.asarray(column.is_valid())
    found.update(np.packbits(present).tobytes())
    kept = column if column.null_count == 0 else column.drop_null()
    if pa.types.is_struct(column.type):
        for i in range(column.type.num_fields):
            _add(found, kept.flatten()[i])
    elif pa.types.is_list(column.type):
        _add_offsets(found, kept.value_lengths())
        _add(found, kept.flatten())
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        _add_text(found, kept)
    else:
        plain = kept.view(pa.int64()) if pa.types.is_timestamp(column.type) else kept
        values = plain.to_numpy(zero_copy_only=False)
        found.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())


def _add_text(found: _Hash, column: pa.Array) -> None:
    import pyarrow.compute as pc

    _add_offsets(found, pc.binary_length(column))
    _, offsets, data = column.buffers()
    if len(column) == 0 or data is None:
        return
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    found.update(memoryview(data)[ends[0] : ends[-1]])


def _add_offsets(found: _Hash, lengths: pa.Array) -> None:
    found.update(np.asarray(lengths, "<i4").tobytes())
