"""Sorting, for kernels: compiled once a type, however many of them sort.

numba's sorts become part of whoever calls them, and take a second each to compile.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel


@kernel
def sort(values):
    """Put values in ascending order, in place."""
    values.sort()


@kernel
def order_of(keys):
    """The places of keys in ascending order; equal ones in any."""
    return np.argsort(keys)


@kernel
def stable_order(keys):
    """The places of keys in ascending order; equal ones as they come."""
    return np.argsort(keys, kind="mergesort")
