"""Which form of a kernel answers: what `NEARCAST_JIT` says, and what a process decides."""

from __future__ import annotations

import os
from enum import Enum
from functools import cache
from random import Random

from nearcast.errors import ValidationError

__all__ = ["Mode", "coin", "compile_at_once", "compiled", "mode", "parallel_threads"]

_VARIABLE = "NEARCAST_JIT"


class Mode(Enum):
    """When kernels are compiled."""

    TIERS = "tiers"
    AT_ONCE = "1"
    NEVER = "0"
    MIXED = "mixed"


def mode() -> Mode:
    """The mode that the environment asks for now."""
    said = os.environ.get(_VARIABLE, "")
    name = said.partition(":")[0] or Mode.TIERS.value
    try:
        return Mode(name)
    except ValueError:
        raise ValidationError(
            _VARIABLE,
            said,
            "leave it away (compiled behind), or set 1 (at once), 0 (never) or mixed",
        ) from None


def compiled() -> bool:
    """Whether kernels are ever compiled in this process."""
    return mode() is not Mode.NEVER


def compile_at_once() -> None:
    """From now on, nothing is interpreted that can be compiled, here and in processes to come.

    For whoever measures. Kernels that are never to be compiled (`NEARCAST_JIT=0`) stay so.
    """
    if compiled():
        os.environ[_VARIABLE] = Mode.AT_ONCE.value


@cache
def coin() -> Random:
    """What decides in the mode `mixed`: the same from run to run, by the seed behind the colon."""
    return Random(os.environ.get(_VARIABLE, "").partition(":")[2])


def parallel_threads() -> int:
    """How many threads a batch may use (`NEARCAST_THREADS`, by default all cores)."""
    wanted = os.environ.get("NEARCAST_THREADS")
    if wanted is not None and wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
