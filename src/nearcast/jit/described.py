"""Arguments as text: what a kernel was called with, told to another process without numba.

A description has types alone, in the distinctions that numba makes. `sample` makes arguments
of these types again.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["Description", "described", "items", "sample"]

Description = tuple[Any, ...]
_NUMBERS = {int: "int", float: "float", bool: "bool", type(None): "none"}
_LARGEST = 2**63 - 1


def items(args: tuple[Any, ...]) -> int:
    """How many items the arrays among arguments have."""
    total = 0
    for value in args:
        if isinstance(value, np.ndarray):
            total += value.size
        elif isinstance(value, tuple):
            total += items(value)
    return total


def described(args: tuple[Any, ...]) -> Description | None:
    """The types of arguments; None where they are of a kind that is not foreseen."""
    found = []
    for value in args:
        one = _described(value)
        if one is None:
            return None
        found.append(one)
    return tuple(found)


def _described(value: Any) -> Any:
    kind = type(value)
    if kind is np.ndarray:
        flags = value.flags
        if not flags.aligned or value.dtype.hasobject or value.dtype.fields is not None:
            return None
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return "array", value.dtype.str, value.ndim, layout, flags.writeable
    if kind in _NUMBERS:
        return "uint" if kind is int and value > _LARGEST else _NUMBERS[kind]
    if isinstance(value, np.generic):
        return "scalar", value.dtype.str
    if isinstance(value, tuple):
        parts = described(value)
        name = None if kind is tuple else _named(kind)
        return None if parts is None or (name is None and kind is not tuple) else (
            "tuple", name, parts,
        )  # fmt: skip
    return None


def _named(kind: type) -> tuple[str, str] | None:
    """Where a class is found again."""
    module = sys.modules.get(kind.__module__)
    found = getattr(module, kind.__qualname__, None) is kind and kind.__module__ != "__main__"
    return (kind.__module__, kind.__qualname__) if found else None


def sample(description: Description) -> tuple[Any, ...]:
    """Arguments of the types described, small and without meaning."""
    return tuple(_sample(one) for one in description)


def _sample(one: Any) -> Any:
    if isinstance(one, str):
        return {"int": 1, "uint": 2**63, "float": 1.0, "bool": True, "none": None}[one]
    if one[0] == "scalar":
        return np.zeros(1, one[1])[0]
    if one[0] == "tuple":
        parts = sample(one[2])
        return parts if one[1] is None else getattr(import_module(one[1][0]), one[1][1])(*parts)
    _, dtype, rank, layout, writeable = one
    if layout == "A":
        array = np.zeros((4,) * rank, dtype)[(slice(None, None, 2),) * rank]
    else:
        array = np.zeros((2,) * rank, dtype, order=layout)
    array.flags.writeable = writeable
    return array
