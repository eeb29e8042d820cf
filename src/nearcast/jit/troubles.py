"""What goes wrong behind does not stop the work: it is said once."""

from __future__ import annotations

import warnings

from nearcast.errors import CompilerWarning

__all__ = ["warn_once"]

_said: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Warn of one kind of trouble, once a process."""
    if what in _said:
        return
    _said.add(what)
    warnings.warn(message, CompilerWarning, stacklevel=3)
