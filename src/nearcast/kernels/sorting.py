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


@kernel
def order_in_groups(groups, keys, count):
    """The places of items by their group, 0 … count − 1, in each by key; equal ones as they come.

    O(n) where the keys of each group come in order, as those of time mostly do.
    """
    start = np.zeros(count + 1, np.int64)
    for group in groups:
        start[group + 1] += 1
    for group in range(count):
        start[group + 1] += start[group]
    at = start.copy()
    order = np.empty(len(groups), np.int64)
    for i in range(len(groups)):
        order[at[groups[i]]] = i
        at[groups[i]] += 1
    for group in range(count):
        first, stop = start[group], start[group + 1]
        ascending = True
        for k in range(first + 1, stop):
            if keys[order[k]] < keys[order[k - 1]]:
                ascending = False
                break
        if not ascending:
            mine = order[first:stop].copy()
            turned = stable_order(keys[mine])
            for k in range(stop - first):
                order[first + k] = mine[turned[k]]
    return order
