"""Who waits for the compiler is told: one line on a terminal, a message to the log elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["finished", "shown"]

#: Seconds before anything is said, and between two things that are said to somebody.
_BRIEF, _PAUSE = 0.5, 10.0
_log = logging.getLogger("nearcast.jit")
_depth = 0
_done = 0
_since = 0.0
_written = False
_tell: Callable[[str], None] | None = None
_told = 0.0


@contextmanager
def shown(tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """While this lasts, somebody waits for what is compiled, and `tell` says it, if given."""
    global _depth, _done, _since, _written, _tell, _told
    if _depth == 0:
        _done, _since, _tell = 0, perf_counter(), tell
        _told = _since
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0 and _written:
            _written = False
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def finished() -> None:
    """One more function is compiled."""
    global _done, _written, _told
    _done += 1
    elapsed = perf_counter() - _since
    if _depth == 0 or elapsed < _BRIEF:
        return
    text = f"compiling for this machine, once: {_done} functions in {elapsed:.0f} s"
    if _tell is not None:
        if perf_counter() - _told >= _PAUSE:
            _told = perf_counter()
            _tell(f"{text} …")
        return
    text = f"nearcast: {text}"
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text} …")
        sys.stderr.flush()
        _written = True
    else:
        _log.info(text)
