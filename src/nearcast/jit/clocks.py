"""How long this process has been compiling."""

from __future__ import annotations

import sys

__all__ = ["compile_seconds"]


def compile_seconds() -> float:
    """Seconds this process has spent compiling so far; what the cache gave is not counted."""
    compiler = sys.modules.get("nearcast.jit.compiler")
    return 0.0 if compiler is None else float(compiler.seconds())
