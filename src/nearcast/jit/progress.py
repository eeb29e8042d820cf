"""Who waits for the compiler is told: one line on a terminal, a message to the log elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["finished", "shown"]

#: Seconds before anything is said.
_BRIEF = 0.5
_log = logging.getLogger("nearcast.jit")
_depth = 0
_done = 0
_since = 0.0
_written = False


@contextmanager
def shown() -> Iterator[None]:
    """While this lasts, somebody waits for what is compiled."""
    global _depth, _done, _since, _written
    if _depth == 0:
        _done, _since = 0, perf_counter()
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
    global _done, _written
    _done += 1
    elapsed = perf_counter() - _since
    if _depth == 0 or elapsed < _BRIEF:
        return
    text = f"nearcast: compiling for this machine, once: {_done} functions in {elapsed:.0f} s"
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text} …")
        sys.stderr.flush()
        _written = True
    else:
        _log.info(text)
