"""The one door to the compiler.

`kernel` compiles a function with numba on its first call, caches the machine code on
disk and releases the GIL while it runs. numba's own cache looks at one file's time
stamp and misses edits in the files it imports, so the cache directory's name carries a
hash of every kernel source: edit one, and all of them compile afresh.

`NEARCAST_JIT=0` runs the kernels as plain Python (coverage, debugging).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "cache_directory",
    "compile_seconds",
    "compiled",
    "kernel",
    "kernel_sources",
    "parallel_threads",
]

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = Path(__file__).parent


def compiled() -> bool:
    """Whether kernels are compiled in this process."""
    return os.environ.get("NEARCAST_JIT", "1") != "0"


def kernel_sources() -> list[Path]:
    """Every file that holds kernels."""
    return sorted([*_PACKAGE.glob("kernels/*.py"), *_PACKAGE.glob("**/kernels.py")])


@cache
def cache_directory() -> Path:
    """Where compiled kernels are kept; its name changes with the kernels' sources."""
    digest = hashlib.sha256()
    for source in kernel_sources():
        digest.update(source.read_bytes())
    root = os.environ.get("NEARCAST_CACHE")
    if root is None:
        import platformdirs

        root = platformdirs.user_cache_dir("nearcast")
    return Path(root) / "kernels" / digest.hexdigest()[:16]


@cache
def _numba() -> Any:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))
    import numba

    if numba.config.CACHE_DIR == "":  # numba was imported before us
        numba.config.CACHE_DIR = str(cache_directory())
    return numba


@cache
def _compile_clock() -> Any:
    """Numba's own stopwatch, running from the first kernel on."""
    _numba()
    from numba.core import event

    clock = event.TimingListener()
    event.register("numba:compile", clock)
    return clock


def compile_seconds() -> float:
    """Seconds this process has spent compiling so far; what the cache gave is not counted."""
    if not _compile_clock.cache_info().currsize:
        return 0.0
    clock = _compile_clock()
    return float(clock.duration) if clock.done else 0.0


def kernel(function: F) -> F:
    """Compile `function` on its first call: no Python objects, no GIL, cached on disk.

    Floating point stays exact: no fast-math, so every index rounds like the oracle.
    """
    if not compiled():
        return function
    _compile_clock()
    jitted: F = _numba().njit(function, cache=True, nogil=True, boundscheck=False)
    return jitted


def parallel_threads() -> int:
    """How many threads a batch may use (`NEARCAST_THREADS`, by default all cores)."""
    wanted = os.environ.get("NEARCAST_THREADS")
    if wanted is not None and wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
