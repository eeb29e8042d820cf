"""The plain form of a kernel: the same function, calling the plain forms of the others.

What it returns to Python is what the compiled form would: Python's own numbers, not NumPy's,
lest the next kernel be compiled once more for an `int32` that used to be an `int`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import numpy as np

__all__ = ["TwoForms", "boxed", "interpret", "twin"]

#: The names of a module's kernels as its plain forms see them, by the id of the module's own.
_namespaces: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}


class TwoForms:
    """What kernels may call: it has a plain form beside the compiled one."""

    __slots__ = ()

    @property
    def plain(self) -> Callable[..., Any]:
        """The form that interpreted kernels call."""
        raise NotImplementedError


def twin(function: FunctionType) -> Callable[..., Any]:
    """The function with every kernel and primitive it knows replaced by its plain form."""
    cells = tuple(_cell(cell) for cell in function.__closure__ or ())
    made = FunctionType(
        function.__code__,
        _namespace(function.__globals__),
        function.__name__,
        function.__defaults__,
        cells or None,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _cell(cell: CellType) -> CellType:
    return CellType(_plain(cell.cell_contents))


def _plain(value: Any) -> Any:
    return value.plain if isinstance(value, TwoForms) else value


def _namespace(names: dict[str, Any]) -> dict[str, Any]:
    if id(names) in _namespaces:
        return _namespaces[id(names)][1]
    made: dict[str, Any] = {}
    if _complete(names):
        _namespaces[id(names)] = names, made  # before it is filled: its kernels know each other
    for name, value in list(names.items()):
        made[name] = _plain(value)
    return made


def _complete(names: dict[str, Any]) -> bool:
    module = sys.modules.get(names.get("__name__", ""))
    spec = getattr(module, "__spec__", None)
    return not getattr(spec, "_initializing", False)


def interpret(plain: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call the plain form, with integers that wrap silently as machine integers do."""
    with np.errstate(over="ignore", invalid="ignore"):
        return boxed(plain(*args))


def boxed(value: Any) -> Any:
    """A result as compiled code hands it to Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = map(boxed, value)
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value
