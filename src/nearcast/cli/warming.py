"""Compiling ahead: every index is rehearsed once, on all cores."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from time import perf_counter

from nearcast import jit
from nearcast.cli.findings import Finding
from nearcast.errors import MissingExtraError
from nearcast.index import registry

__all__ = ["warm"]


def warm(names: list[str]) -> Iterator[Finding]:
    """Rehearse these indexes, the finding of each as soon as it is there.

    With several cores in as many processes: the compiler holds the GIL, and what one
    process compiles the others find on disk.
    """
    names = sorted(names, key=lambda name: name != registry.entry("auto").name)  # it takes longest
    processes = min(jit.parallel_threads(), len(names))
    if processes <= 1:
        yield from map(_rehearsed, names)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        with _deaf():
            waiting = {pool.submit(_rehearsed, name): name for name in names}
        try:
            for done in as_completed(waiting):
                lost = done.exception()
                yield done.result() if lost is None else Finding("bad", waiting[done], str(lost))
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started meanwhile do not hear of Ctrl-C: this one ends them, and silently."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _rehearsed(name: str) -> Finding:
    """The finding, not the error: errors that carry data do not all travel between processes."""
    jit.compile_at_once()
    from nearcast.bench import rehearsal

    started = perf_counter()
    try:
        rehearsal.rehearse(name, fully=True)
    except MissingExtraError as error:
        return Finding("note", name, str(error))
    except Exception as error:
        return Finding("bad", name, f"{type(error).__name__}: {error}")
    return Finding("fine", name, f"rehearsed in {perf_counter() - started:.1f} s")
