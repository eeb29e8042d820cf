"""B_null, compiled: keeping it, and forward matching by marks and ANDs (fDI-Tree-o as printed)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.index.di_tree.nodes.kernels import ALL, HIGH, LOW, MOST_NODES, leaves, walk
from nearcast.jit import kernel
from nearcast.kernels.bitset import members
from nearcast.kernels.cells import cell

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_REST = np.uint64(63)


class Null(NamedTuple):
    """The bitsets."""

    slot: np.ndarray
    """By column: its row of bits, −1 for none; int32."""
    column: np.ndarray
    """By row of bits: its column; int32."""
    bits: np.ndarray
    """(mentioned columns, words): who does not mention the column."""


@kernel
def mention(clauses, rows, slot, used):
    """Give columns without a row of bits the next ones; returns the columns that got one."""
    new = np.empty(slot.size, np.int32)
    n = 0
    for row in rows:
        first = np.int64(clauses.start[row])
        for k in range(first, first + np.int64(clauses.count[row])):
            column = np.int64(clauses.attr[k])
            if slot[column] < 0:
                slot[column] = used + n
                new[n] = column
                n += 1
    return new[:n]


@kernel
def post(clauses, rows, positions, null):
    """Set the rows' bits in all columns, but for those that they mention."""
    for i in range(rows.size):
        u = np.uint64(positions[i])
        word, bit = u >> _SIX, _ONE << (u & _REST)
        for s in range(null.bits.shape[0]):
            null.bits[s, word] |= bit
        first = np.int64(clauses.start[rows[i]])
        for k in range(first, first + np.int64(clauses.count[rows[i]])):
            null.bits[null.slot[clauses.attr[k]], word] &= ~bit


@kernel
def mark_hits(lists, found, tests, n, value, bits):
    """Set the bit of each satisfied entry of n lists; how many entries were compared."""
    start, size, item, end = lists.start, lists.size, lists.item, lists.value
    compared = 0
    for j in range(n):
        at, test = found[j], tests[j]
        first = start[at]
        stop = first + size[at]
        highs = start[at + 1] - first if test not in (ALL, LOW, HIGH) else 0
        if test != ALL:
            compared += stop - first
        for k in range(first, stop):
            if test == ALL:
                holds = True
            elif test == LOW:
                holds = end[k, 0] <= value
            elif test == HIGH:
                holds = end[k, 0] >= value
            else:
                holds = end[k, 0] <= value and value <= end[highs + k, 0]
            u = np.uint64(item[k])
            bits[u >> _SIX] |= np.uint64(holds) << (u & _REST)
    return compared


@kernel
def match_marked(live, row, domains, tree, null, lists, batch, at, counters):
    """Copy each column's B_null, mark who is satisfied, AND: what is left matches."""
    nodes = np.empty(MOST_NODES, np.int64)
    tests = np.empty(MOST_NODES, np.int8)
    found = np.empty(tree.node.size, np.int32)
    found_tests = np.empty(tree.node.size, np.int8)
    dense = np.full(tree.root.size, np.nan)
    for e in range(batch.start[at], batch.start[at + 1]):
        if batch.attr[e] < dense.size:
            dense[batch.attr[e]] = batch.value[e]
    left = live.copy()
    bits = np.empty(left.size, np.uint64)
    for s in range(null.column.size):
        column = null.column[s]
        for w in range(left.size):
            bits[w] = null.bits[s, w]
        value = dense[column]
        if not np.isnan(value):
            n = walk(tree, column, cell(domains, column, value), -1, True, nodes, tests)
            m = leaves(tree, nodes, tests, n, found, found_tests, 0)
            counters[0] += m
            counters[1] += mark_hits(lists, found, found_tests, m, value, bits)
        for w in range(left.size):
            left[w] &= bits[w]
    answer = members(left, row)
    counters[2] += answer.size
    return answer
