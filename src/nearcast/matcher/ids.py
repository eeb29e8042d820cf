"""Ids as slots: a million short ids in some 25 bytes each instead of the 160 of a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.errors import BatchError, DuplicateIdError, UnknownIdError
from nearcast.index.columns import grown
from nearcast.kernels import strings

__all__ = ["IdTable"]

#: Ids that are fetched in less time than it takes to get the GIL back.
_FEW = 1024
#: Ids beyond which it is worth while to see whether they ascend.
_TRIED = 1024
#: Ids that are sorted sooner than their slots are.
_UNSORTED = 64
#: Ids of one piece of an Arrow array, which one thread makes.
_PIECE = 131_072


class IdTable:
    """Strings ↔ small integers, where integers are used again after removal.

    `kind` and `taken` word the errors.
    """

    def __init__(self, kind: str, taken: str) -> None:
        self._kind = kind
        self._taken = taken
        self._table: npt.NDArray[np.int32] | None = np.full(64, -1, np.int32)
        """Slots by hash; None where nobody has looked for an id since many came in order."""
        self._blob = np.empty(0, np.uint8)
        self.used = 0
        """Bytes of the blob that are in use."""
        self._garbage = 0
        self._cells = np.empty((0, 2), np.uint64)
        """By slot: a short id itself, or the length of a long one and its place in the blob."""
        self.slots = 0
        """Slots ever used: one more than the highest."""
        self._free: list[int] = []
        self._forgotten: set[int] = set()
        """Slots whose ids nobody finds any more and which are not free yet."""
        self._zeros = False
        """Whether some id may hold a zero byte."""

    def __len__(self) -> int:
        return self.slots - len(self._free) - len(self._forgotten)

    def find(self, id: str) -> int:
        """The slot of an id; raises UnknownIdError."""
        slot = self.get(id)
        if slot < 0:
            raise self.unknown(id)
        return slot

    def unknown(self, id: str) -> UnknownIdError:
        """The error for an id that nobody has."""
        return UnknownIdError(self._kind, id)

    def get(self, id: str) -> int:
        """The slot of an id, −1 if nobody has it."""
        try:
            data = np.frombuffer(id.encode(), np.uint8)
        except (AttributeError, UnicodeEncodeError):  # no string, or none that an id can be
            return -1
        slot: int = strings.find(self._hashed(), self._cells, self._blob, data, 0, data.size)
        return slot

    def copy(self) -> IdTable:
        """Another table with the same ids in the same slots."""
        other = IdTable(self._kind, self._taken)
        vars(other).update(vars(self))
        other._table = None if self._table is None else self._table.copy()
        other._free = self._free.copy()
        other._forgotten = self._forgotten.copy()
        other._cells, other._blob = self._cells.copy(), self._blob.copy()
        return other

    @property
    def next_slot(self) -> int:
        """The slot that `add` will give."""
        return self._free[-1] if self._free else self.slots

    def add(self, id: str) -> int:
        """A slot for a new id; raises DuplicateIdError."""
        data = np.frombuffer(id.encode(), np.uint8)
        slot = self.make_room(data.size)
        used = strings.insert(*self.arrays, self.used, slot, data)
        if used < 0:
            raise self.denied(id)
        self.entered(id, slot, used)
        return slot

    def make_room(self, size: int) -> int:
        """The slot that the next id, of this size, will have."""
        if self._free and self.used + size <= self._blob.size:
            return self._free[-1]
        slot = self.next_slot
        self._reserve(max(self.slots, slot + 1), self.used + size)
        return slot

    def entered(self, id: str, slot: int, used: int) -> None:
        """Take note that an id was written into the arrays."""
        if self._free:
            self._free.pop()
        else:
            self.slots = slot + 1
        self._zeros = self._zeros or "\0" in id
        self.used = used

    def take_back(self, id: str, slot: int) -> None:
        """Undo what was written into the arrays for an id, if anything was."""
        if self.get(id) == slot:
            strings.remove(*self.arrays, slot)

    def denied(self, id: str) -> DuplicateIdError:
        """The error for an id that is taken."""
        return DuplicateIdError(self._kind, id, self._taken)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """What kernels see: the hash table, cells and blob."""
        return self._hashed(), self._cells, self._blob

    def __getstate__(self) -> dict[str, Any]:
        self._hashed()  # who takes it up again should not have to
        return vars(self)

    def add_many(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.int32]:
        """Slots for many new ids (Arrow's layout), or BatchError and no change."""
        count = offsets.size - 1
        if not self.slots and count > _TRIED and self._put_ascending(offsets, data):
            return np.arange(count, dtype=np.int32)
        kept = max(0, len(self._free) - count)
        reused = self._free[kept:]
        fresh = np.arange(self.slots, self.slots + count - len(reused), dtype=np.int32)
        slots = np.concatenate([np.array(reused, np.int32), fresh])
        sizes = offsets[1:] - offsets[:-1]
        long = int(sizes.sum(where=sizes > strings.SHORT))
        self._reserve(self.slots + fresh.size, self.used + long)  # what is free stays out
        done, used = strings.insert_many(*self.arrays, self.used, slots, offsets, data)
        if done < count:
            for slot in slots[:done].tolist():
                strings.remove(*self.arrays, slot)
            id = bytes(data[offsets[done] : offsets[done + 1]]).decode()
            raise BatchError(done, DuplicateIdError(self._kind, id, self._taken))
        self._zeros = self._zeros or bool((data[offsets[0] : offsets[-1]] == 0).any())
        del self._free[kept:]
        self.used = int(used)
        self.slots += fresh.size
        return slots

    def _put_ascending(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> bool:
        """Take in the first ids of all if they ascend; whether they do.

        A tenth of the time: nothing is hashed before somebody looks for an id.
        """
        count = offsets.size - 1
        sizes = offsets[1:] - offsets[:-1]
        self._reserve_cells(count, int(sizes.sum(where=sizes > strings.SHORT)))
        done, used = strings.put_ascending(self._cells, self._blob, 0, offsets, data)
        if done < count:
            return False
        self._zeros = bool((data[offsets[0] : offsets[-1]] == 0).any())
        self._table, self.used, self.slots = None, int(used), count
        return True

    def remove(self, slot: int) -> None:
        """Forget the id in a slot."""
        self.forget(slot)
        self.free(slot)
        if self.untidy:
            self._compact()

    def forget(self, slot: int) -> None:
        """Forget an id; `id_of` its slot still tells it, until `free`."""
        strings.remove(*self.arrays, slot)
        self._forgotten.add(slot)

    def free(self, slot: int) -> None:
        """Let a slot whose id is forgotten be used again."""
        self._forgotten.remove(slot)
        self._release(slot, self._cells.item(slot, 0))

    def left(self, slot: int, cell: int) -> None:
        """Take note that an id was removed from the arrays; `cell` begins with its size."""
        self._release(slot, cell)
        if self.untidy:
            self._compact()

    def _release(self, slot: int, cell: int) -> None:
        if cell & 255 == 255:  # a long one
            self._garbage += cell >> 8
        self._free.append(slot)

    @property
    def untidy(self) -> bool:
        """Whether most of the blob is of ids that are gone; `remove` sees to that."""
        return self._garbage > 4096 and self._garbage > self.used // 2

    def id_of(self, slot: int) -> str:
        """The id in a slot."""
        return bytes(strings.gather(self._cells, self._blob, np.array([slot]))[1]).decode()

    def ids_of(self, slots: npt.NDArray[np.int32]) -> list[str]:
        """The ids of some slots."""
        return self._listed(slots)[0]

    def sorted_ids(self, slots: npt.NDArray[np.int32]) -> list[str]:
        """The ids of some slots in ascending order."""
        if slots.size > _UNSORTED:  # ids mostly come in order of arrival: then theirs is known
            slots = np.sort(slots)
        ids, ascending = self._listed(slots)
        if not ascending:
            ids.sort()
        return ids

    def _listed(self, slots: npt.NDArray[np.int32]) -> tuple[list[str], bool]:
        """The ids of some slots, and whether they are known to be in order.

        One decoding for all, cut at zero bytes: a seventh of the time of one at a time.
        """
        if not slots.size:
            return [], True
        if self._zeros:
            return [self.id_of(slot) for slot in slots.tolist()], False
        gather = strings.gather_few_lines if slots.size <= _FEW else strings.gather_lines
        joined, ascending = gather(self._cells, self._blob, slots)
        return str(joined, "utf-8").split("\0"), ascending

    def arrow(self, slots: npt.NDArray[np.int32], threads: int = 1) -> Any:
        """The ids of many slots as an Arrow string array; very many as pieces of one."""
        import pyarrow as pa

        if slots.size <= _PIECE and self._fits(slots):
            return self._arrow(slots)
        with ThreadPoolExecutor(threads) as pool:
            return pa.chunked_array(list(pool.map(self._arrow, self._pieces(slots))), pa.string())

    def _fits(self, slots: npt.NDArray[np.int32]) -> bool:
        return bool(strings.total_size(self._cells, slots) < 2**31)

    def _pieces(self, slots: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int32]]:
        """Slots in runs whose ids fit an Arrow string array."""
        for first in range(0, slots.size, _PIECE):
            piece = slots[first : first + _PIECE]
            if self._fits(piece):
                yield piece
            else:
                yield from (piece[i : i + 1] for i in range(piece.size))

    def _arrow(self, slots: npt.NDArray[np.int32]) -> Any:
        import pyarrow as pa

        offsets, data = strings.gather(self._cells, self._blob, slots)
        return pa.StringArray.from_buffers(
            slots.size, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)
        )

    def free_slots(self) -> list[int]:
        """Slots below `slots` that hold nothing now."""
        return list(self._free)

    def memory_bytes(self) -> int:
        """Bytes of the arrays; of the hashes, too, if there are none yet."""
        table = 4 * _places(self.slots) if self._table is None else int(self._table.nbytes)
        return table + int(self._blob.nbytes) + int(self._cells.nbytes)

    def _reserve(self, slots: int, used: int) -> None:
        self._reserve_cells(slots, used)
        table = self._hashed()
        if 3 * slots > 2 * table.size:
            self._table = self._placed(_places(slots))

    def _reserve_cells(self, slots: int, used: int) -> None:
        if slots > self._cells.shape[0] or used > self._blob.size:
            self._cells, self._blob = grown(self._cells, slots), grown(self._blob, used)

    def _hashed(self) -> npt.NDArray[np.int32]:
        """The hash table; readers may make it at the same time, and make the same."""
        table = self._table
        if table is None:
            table = self._table = self._placed(_places(self.slots))
        return table

    def _placed(self, size: int) -> npt.NDArray[np.int32]:
        """A hash table with so many places."""
        table = np.full(size, -1, np.int32)
        strings.place_many(table, self._cells, self._blob, self._slots_without(self._forgotten))
        return table

    def _slots_without(self, others: Iterable[int]) -> npt.NDArray[np.int32]:
        """The slots that are neither free nor among these."""
        live = np.ones(self.slots, bool)
        live[self._free] = False
        live[[*others]] = False
        return np.flatnonzero(live).astype(np.int32)

    def _compact(self) -> None:
        slots = self._slots_without(())
        self._blob, self.used = strings.packed(self._cells, self._blob, slots)
        self._garbage = 0

    def check_invariants(self) -> None:
        """Every live id is found under its slot, and nothing else is."""
        live = set(range(self.slots)) - set(self._free) - self._forgotten
        table = self._hashed()
        entered = table[table >= 0].tolist()
        assert sorted(entered) == sorted(live)
        assert all(self.get(self.id_of(slot)) == slot for slot in live)


def _places(slots: int) -> int:
    """Places of a hash table for so many slots: a power of two, no more than two thirds full."""
    size = 64
    while 3 * slots > 2 * size:
        size *= 2
    return size
