"""The one door to the compiler.

`kernel` compiles a function with numba on its first call, caches the machine code on
disk and releases the GIL while it runs. numba's own cache looks at one file's time
stamp and misses edits in the files it imports, so each module's cache directory is named
by a hash of its source and of every kernel source it imports: edit one, and all that
stand on it compile afresh.

`NEARCAST_JIT=0` runs the kernels as plain Python (coverage, debugging).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

__all__ = [
    "brief_kernel",
    "cache_directory",
    "compile_seconds",
    "compiled",
    "inlined",
    "kernel",
    "kernel_sources",
    "module_cache",
    "packing",
    "parallel_threads",
    "prefetcher",
    "word_reader",
    "word_writer",
]

#: Typed by the arrays it is called with, not by annotations.
Kernel: TypeAlias = Callable[..., Any]
_PACKAGE = Path(__file__).parent


def compiled() -> bool:
    """Whether kernels are compiled in this process."""
    return os.environ.get("NEARCAST_JIT", "1") != "0"


def kernel_sources() -> list[Path]:
    """Every file that holds kernels."""
    return sorted([*_PACKAGE.glob("**/kernels/*.py"), *_PACKAGE.glob("**/kernels.py")])


@cache
def cache_directory() -> Path:
    """Where compiled kernels are kept, a folder for each state of their sources."""
    root = os.environ.get("NEARCAST_CACHE")
    if root is None:
        import platformdirs

        root = platformdirs.user_cache_dir("nearcast")
    return Path(root) / "kernels"


_IMPORT = re.compile(r"^from (nearcast\.[\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


def _imported_kernels(source: Path) -> set[Path]:
    """The source and all kernel sources it stands on."""
    found: set[Path] = set()
    waiting = [source]
    known = set(kernel_sources())
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            stem = _PACKAGE.joinpath(*module.split(".")[1:])
            candidates = [stem / f"{name}.py" for name in re.findall(r"\w+", names)]
            waiting += [c for c in [stem.with_suffix(".py"), *candidates] if c in known]
    return found


@cache
def module_cache(source: Path) -> Path:
    """Where the kernels of this source are kept, in its present state."""
    digest = hashlib.sha256(Path(__file__).read_bytes())  # what it makes becomes part of kernels
    for path in sorted(_imported_kernels(source)):
        digest.update(path.read_bytes())
    return cache_directory() / digest.hexdigest()[:16]


@cache
def _numba() -> Any:
    import numba

    return numba


@cache
def _compile_clock() -> Any:
    """Numba's own stopwatch, running from the first kernel on."""
    event = _numba().core.event
    clock = event.TimingListener()
    event.register("numba:compile", clock)
    return clock


def compile_seconds() -> float:
    """Seconds this process has spent compiling so far; what the cache gave is not counted."""
    if not _compile_clock.cache_info().currsize:
        return 0.0
    clock = _compile_clock()
    return float(clock.duration) if clock.done else 0.0


def kernel(function: Kernel) -> Kernel:
    """Compile `function` on its first call: no Python objects, no GIL, cached on disk.

    Floating point stays exact: no fast-math, so every index rounds like the oracle.
    """
    return _compiled(function, nogil=True)


def brief_kernel(function: Kernel) -> Kernel:
    """A kernel that keeps the GIL: what takes less time than getting it back.

    So nothing else in Python happens meanwhile, either.
    """
    return _compiled(function, nogil=False)


def inlined(function: Kernel) -> Kernel:
    """A kernel that becomes part of those that call it.

    A call counts the references to each array it hands over, up and down again, and these
    counts are atomic: some 10 ns an array, which a short loop notices.
    """
    return _compiled(function, nogil=True, forceinline=True)


def _compiled(function: Kernel, **how: bool) -> Kernel:
    if not compiled():
        return _interpreted(function)
    _compile_clock()
    config = _numba().config
    if "NUMBA_CACHE_DIR" not in os.environ:
        # Read when the function is decorated, so it may differ from module to module.
        config.CACHE_DIR = str(module_cache(Path(function.__code__.co_filename)))
    jitted: Any = _numba().njit(function, cache=True, boundscheck=False, **how)
    # Names of numba's own are numbers, counted from an index that is read before: two processes
    # that compile different signatures at once give both the same, and one runs the other's code.
    files = jitted._cache._cache_file
    files._data_name = lambda _: f"{Path(files._index_name).stem}.{uuid4().hex}.nbc"
    made: Kernel = jitted
    return made


def _on_item(generate: Kernel, result: str, given: str | None = None) -> Kernel:
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

    made: Kernel = intrinsic(two if given is None else three)
    return made


def prefetcher() -> Kernel:
    """`prefetch(array, index)` for kernels: ask for the cache line of an item of a flat array.

    Nothing waits for it, so lines come while others are worked on.
    """
    if not compiled():
        return lambda *_: None
    from llvmlite import ir

    def generate(context: Any, builder: Any, item: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        asked = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, is_data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(asked, [builder.bitcast(item, byte), read, keep, is_data])
        return context.get_dummy_value()

    return _on_item(generate, "void")


def word_reader() -> Kernel:
    """`read_word(array, index)`: eight bytes of a flat array from `index` on, the first lowest.

    All eight must be within the array.
    """
    if not compiled():
        return _read_word
    from llvmlite import ir

    def generate(_: Any, builder: Any, item: Any) -> Any:
        return builder.load(builder.bitcast(item, ir.IntType(64).as_pointer()), align=1)

    return _on_item(generate, "uint64")


def word_writer() -> Kernel:
    """`write_word(array, index, word)`: put a word where `read_word` would find it.

    All eight bytes must be within the array.
    """
    if not compiled():
        return _write_word
    from llvmlite import ir

    def generate(context: Any, builder: Any, item: Any, word: Any) -> Any:
        builder.store(word, builder.bitcast(item, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return _on_item(generate, "void", "uint64")


def _read_word(array: Any, index: int) -> Any:
    import numpy as np

    return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), "little"))


def _write_word(array: Any, index: int, word: int) -> None:
    import numpy as np

    array[index : index + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def packing(*kinds: str) -> tuple[Callable[..., Any], Kernel]:
    """(pack, unpack) for contiguous arrays of these kinds: "f8", or "f8:2" for a matrix.

    `pack(*arrays)` is one array, from which a kernel gets them all by `unpack`. A call takes
    0.1 µs for each array it is given, so those that seldom change had better come as one. It
    has their addresses: whoever keeps it keeps the arrays, too.
    """
    if not compiled():
        return lambda *arrays: arrays, lambda pack: pack
    import numpy as np
    from numba.extending import intrinsic
    from numba.np import arrayobj

    numba = _numba()
    cgutils, types = numba.core.cgutils, numba.core.types
    populate: Any = arrayobj.populate_array
    shapes = [(np.dtype(kind[:2]), int(kind[3:] or 1)) for kind in kinds]
    wanted = types.Tuple(
        [types.Array(numba.from_dtype(dtype), rank, "C") for dtype, rank in shapes]
    )

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

    made: Kernel = intrinsic(unpack)
    return pack, made


def _interpreted(function: Kernel) -> Kernel:
    """The function as it is, with integers that wrap silently as machine integers do."""
    import numpy as np

    @wraps(function)
    def plain(*args: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*args)

    return plain


def parallel_threads() -> int:
    """How many threads a batch may use (`NEARCAST_THREADS`, by default all cores)."""
    wanted = os.environ.get("NEARCAST_THREADS")
    if wanted is not None and wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
