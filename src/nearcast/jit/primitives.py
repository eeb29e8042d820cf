"""What kernels call that Python has no word for: a prefetch, words of bytes, packs of arrays.

Each has a plain form for interpreted kernels, and an intrinsic that is made when one that calls
it is compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from nearcast.jit.plain import TwoForms

__all__ = ["packing", "prefetcher", "word_reader", "word_writer"]


class Primitive(TwoForms):
    """A callable of kernels in its two forms; called from Python it is the plain one."""

    def __init__(self, plain: Callable[..., Any], make: Callable[[], Any]) -> None:
        self._plain = plain
        self._make = make

    @property
    def plain(self) -> Callable[..., Any]:
        """The form that interpreted kernels call."""
        return self._plain

    def __call__(self, *args: Any) -> Any:
        return self._plain(*args)

    @cached_property
    def intrinsic(self) -> Any:
        """The form that compiled kernels call."""
        return self._make()

    @cached_property
    def _numba_type_(self) -> Any:  # where numba looks
        from nearcast.jit.compiler import type_of

        return type_of(self.intrinsic)


def _on_item(generate: Callable[..., Any], result: str, given: str | None = None) -> Any:
    """An intrinsic on a flat array and an index: `generate` is handed a pointer to that item.

    `result` and `given` name the types of what comes back and of a third argument.
    """
    from numba.core import types
    from numba.extending import intrinsic

    def lowered(context: Any, builder: Any, signature: Any, handed: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, handed[0]).data
        return generate(context, builder, builder.gep(data, [handed[1]]), *handed[2:])

    def signature(array: Any) -> Any:
        more = () if given is None else (getattr(types, given),)
        return getattr(types, result)(array, types.intp, *more)

    # numba wants every argument by name.
    def two(_: Any, array: Any, index: Any) -> Any:  # noqa: ARG001 - its type is known
        return signature(array), lowered

    def three(_: Any, array: Any, index: Any, word: Any) -> Any:  # noqa: ARG001
        return signature(array), lowered

    return intrinsic(two if given is None else three)


def prefetcher() -> Primitive:
    """`prefetch(array, index)` for kernels: ask for the cache line of an item of a flat array.

    Nothing waits for it, so lines come while others are worked on.
    """
    return Primitive(_no_prefetch, _make_prefetch)


def _no_prefetch(array: Any, index: int) -> None:
    """Interpreted, there is nothing to hide."""


def _make_prefetch() -> Any:
    from llvmlite import ir

    def generate(context: Any, builder: Any, item: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        asked = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, is_data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(asked, [builder.bitcast(item, byte), read, keep, is_data])
        return context.get_dummy_value()

    return _on_item(generate, "void")


def word_reader() -> Primitive:
    """`read_word(array, index)`: eight bytes of a flat array from `index` on, the first lowest.

    All eight must be within the array.
    """
    return Primitive(_read_word, _make_reader)


def _read_word(array: Any, index: int) -> Any:
    return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), "little"))


def _make_reader() -> Any:
    from llvmlite import ir

    def generate(_: Any, builder: Any, item: Any) -> Any:
        return builder.load(builder.bitcast(item, ir.IntType(64).as_pointer()), align=1)

    return _on_item(generate, "uint64")


def word_writer() -> Primitive:
    """`write_word(array, index, word)`: put a word where `read_word` would find it.

    All eight bytes must be within the array.
    """
    return Primitive(_write_word, _make_writer)


def _write_word(array: Any, index: int, word: int) -> None:
    array[index : index + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def _make_writer() -> Any:
    from llvmlite import ir

    def generate(context: Any, builder: Any, item: Any, word: Any) -> Any:
        builder.store(word, builder.bitcast(item, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return _on_item(generate, "void", "uint64")


def packing(*kinds: str) -> tuple[Callable[..., Any], Primitive]:
    """(pack, unpack) for contiguous arrays of these kinds: "f8", or "f8:2" for a matrix.

    `pack(*arrays)` is one array, from which a kernel gets them all by `unpack`. A call takes
    0.1 µs for each array it is given, so those that seldom change had better come as one. It
    has their addresses: whoever keeps it keeps the arrays, too.
    """
    shapes = [(np.dtype(kind[:2]), int(kind[3:] or 1)) for kind in kinds]

    def pack(*arrays: Any) -> Any:
        words = []
        for array, (dtype, rank) in zip(arrays, shapes, strict=True):
            about = array.__array_interface__
            address, frozen = about["data"]
            contiguous = about["strides"] is None
            if array.dtype != dtype or array.ndim != rank or frozen or not contiguous:
                raise TypeError(f"{array.dtype}:{array.ndim} is not the {dtype}:{rank} to pack")
            words += [address, *array.shape, 0][:3]
        return np.array(words, np.int64)

    # Equal words are equal places: what is kept of arrays that are gone is never asked for.
    @lru_cache(maxsize=64)
    def views(words: bytes) -> tuple[Any, ...]:
        said = np.frombuffer(words, np.int64).reshape(-1, 3).tolist()
        return tuple(
            _view(address, sizes[:rank], dtype)
            for (address, *sizes), (dtype, rank) in zip(said, shapes, strict=True)
        )

    def unpack(pack: Any) -> tuple[Any, ...]:
        return views(pack.tobytes())

    return pack, Primitive(unpack, lambda: _make_unpack(shapes))


def _view(address: int, shape: list[int], dtype: np.dtype[Any]) -> Any:
    """The array at an address, which is somebody else's."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size == 0:
        return np.empty(shape, dtype)
    held: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, held)


def _make_unpack(shapes: list[tuple[np.dtype[Any], int]]) -> Any:
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic
    from numba.np import arrayobj

    populate: Any = arrayobj.populate_array
    wanted = types.Tuple(
        [types.Array(numba.from_dtype(dtype), rank, "C") for dtype, rank in shapes]
    )

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        words = context.make_array(signature.args[0])(context, builder, given[0]).data

        def word(at: int) -> Any:
            return builder.load(builder.gep(words, [context.get_constant(types.intp, at)]))

        made = []
        for i, kind in enumerate(wanted):
            array = context.make_array(kind)(context, builder)
            shape = [word(3 * i + 1 + axis) for axis in range(kind.ndim)]
            size = context.get_constant(types.intp, shapes[i][0].itemsize)
            strides = [builder.mul(size, shape[1]), size] if kind.ndim == 2 else [size]
            populate(
                array,
                data=builder.inttoptr(word(3 * i), array.data.type),
                shape=cgutils.pack_array(builder, shape),
                strides=cgutils.pack_array(builder, strides),
                itemsize=size,
                meminfo=None,
            )
            made.append(array._getvalue())
        return context.make_tuple(builder, signature.return_type, made)

    def unpack(_: Any, pack: Any) -> Any:
        return wanted(pack), generate

    return intrinsic(unpack)
