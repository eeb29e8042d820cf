"""Forks at a good moment: not while numba is being imported or compiles.

A forked process has one thread and all the locks. One that another thread held stays held for
ever, and whoever wants it waits for ever: the locks of modules being imported, and numba's own.
So a fork waits for these, and both processes give them back.

Who takes several takes them in this order: `stepping`, numba's, `loading`. A fork cannot wait for
numba's before `loading`, for numba's own import takes it: it tries, and lets go.
"""

from __future__ import annotations

import os
import sys
from threading import RLock
from time import sleep
from typing import Any

__all__ = ["loading", "stepping"]

#: Held while numba is imported and while a compiled form is set up.
loading = RLock()
#: Held while the thread behind does something in this process.
stepping = RLock()
_taken: list[Any] = []


def _compiling() -> Any:
    """numba's lock, if it is there."""
    module = sys.modules.get("numba.core.compiler_lock")
    return getattr(getattr(module, "global_compiler_lock", None), "_lock", None)


def _before() -> None:
    stepping.acquire()
    while True:
        loading.acquire()
        lock = _compiling()
        if lock is None or lock.acquire(blocking=False):
            break
        loading.release()
        sleep(0.001)
    _taken[:] = [stepping, loading] if lock is None else [stepping, loading, lock]


def _after() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
