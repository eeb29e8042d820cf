"""Matching: walk each column's tree, then count, mark or lift vetoes in its leaves."""

from __future__ import annotations

import numpy as np

from nearcast.index.di_tree.nodes.kernels import ALL, HIGH, LOW, MOST_NODES, leaves, walk
from nearcast.jit import kernel
from nearcast.kernels.bitset import LINE, clear_bit, clear_bit_if, members, set_bit
from nearcast.kernels.cells import HALVINGS, cell
from nearcast.kernels.counting import reached

_NONE = np.uint64(0)


@kernel
def count_hits(lists, found, tests, n, value, count):
    """Count a hit for each satisfied entry of n lists; how many entries were compared."""
    start, size, item, end = lists.start, lists.size, lists.item, lists.value
    compared = 0
    for j in range(n):
        at, test = found[j], tests[j]
        first = start[at]
        stop = first + size[at]
        if test == ALL:
            for k in range(first, stop):
                count[np.uint64(item[k])] += 1
            continue
        compared += stop - first
        if test == LOW:
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] <= value
        elif test == HIGH:
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] >= value
        else:
            highs = start[at + 1] - first
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] <= value and value <= end[highs + k, 0]
    return compared


@kernel
def clear_hits(lists, found, tests, n, value, forward, bits):
    """Clear the bit of each entry of n lists that is satisfied (forward) or not (backward)."""
    start, size, item, end = lists.start, lists.size, lists.item, lists.value
    compared = 0
    for j in range(n):
        at, test = found[j], tests[j]
        first = start[at]
        stop = first + size[at]
        if test == ALL:
            for k in range(first, stop):
                clear_bit(bits, item[k])
            continue
        compared += stop - first
        if test == LOW:
            for k in range(first, stop):
                clear_bit_if(bits, item[k], (end[k, 0] <= value) == forward)
        elif test == HIGH:
            for k in range(first, stop):
                clear_bit_if(bits, item[k], (end[k, 0] >= value) == forward)
        else:
            highs = start[at + 1] - first
            for k in range(first, stop):
                holds = end[k, 0] <= value and value <= end[highs + k, 0]
                clear_bit_if(bits, item[k], holds == forward)
    return compared


@kernel
def _copy_lines(left, source, row, to):
    """Copy a bitset where something is left; how many lines that are."""
    lines = 0
    for w in range(0, left.size, LINE):
        some = _NONE
        for j in range(w, w + LINE):
            some |= left[j]
        if some != _NONE:
            lines += 1
            for j in range(w, w + LINE):
                to[j] = source[row, j]
    return lines


@kernel
def _veto(left, bits):
    """Take a bitset out of what is left."""
    for w in range(left.size):
        left[w] &= ~bits[w]


@kernel
def _veto_row(left, bits, row):
    """Take a row of bitsets out of what is left."""
    for w in range(left.size):
        left[w] &= ~bits[row, w]


@kernel
def match_forward(live, row, need, domains, tree, veto, lists, batch, at, counters):
    """Forward matching: fDI-Tree where no column has bitsets, fDI-Tree-o where they do.

    Columns without bitsets are counted first: who has all its predicates on them
    satisfied joins those that have none. Then each column with bitsets takes out its
    vetoes, less those that the comparisons in its leaves lift.
    """
    nodes = np.empty(MOST_NODES, np.int64)
    tests = np.empty(MOST_NODES, np.int8)
    found = np.empty(tree.node.size, np.int32)
    found_tests = np.empty(tree.node.size, np.int8)
    left = live.copy()
    _veto_row(left, veto.bits, 0)
    dense = np.full(tree.root.size, np.nan)
    counted = False
    for e in range(batch.start[at], batch.start[at + 1]):
        if batch.attr[e] < dense.size:
            dense[batch.attr[e]] = batch.value[e]
            counted = counted or veto.depth[batch.attr[e]] < 0
    if counted:
        count = np.zeros(need.size, need.dtype)
        for e in range(batch.start[at], batch.start[at + 1]):
            column = batch.attr[e]
            if column >= dense.size or veto.depth[column] >= 0:
                continue
            value = dense[column]
            if np.isnan(value):
                continue
            n = walk(tree, column, cell(domains, column, value), -1, True, nodes, tests)
            m = leaves(tree, nodes, tests, n, found, found_tests, 0)
            counters[0] += m
            counters[1] += count_hits(lists, found, found_tests, m, value, count)
        for position in reached(count, need):
            set_bit(left, position)
    bits = np.empty(left.size, np.uint64)
    for k in range(veto.order.size):
        column = veto.order[k]
        d = np.int64(veto.depth[column])
        value = dense[column]
        if np.isnan(value):
            _veto_row(left, veto.bits, veto.first[column] + (1 << d))
            continue
        place = cell(domains, column, value)
        lines = _copy_lines(left, veto.bits, veto.first[column] + (place >> (HALVINGS - d)), bits)
        if lines == 0:
            break
        n = walk(tree, column, place, d, True, nodes, tests)
        m = leaves(tree, nodes, tests, n, found, found_tests, 0)
        counters[0] += m
        counters[1] += clear_hits(lists, found, found_tests, m, value, True, bits)
        _veto(left, bits)
    answer = members(left, row)
    counters[2] += answer.size
    return answer


@kernel
def match_backward(live, row, domains, tree, veto, lists, batch, at, counters):
    """Backward matching: bDI-Tree where no column has bitsets, bDI-Tree-o where they do."""
    nodes = np.empty(MOST_NODES, np.int64)
    tests = np.empty(MOST_NODES, np.int8)
    found = np.empty(tree.node.size, np.int32)
    found_tests = np.empty(tree.node.size, np.int8)
    left = live.copy()
    e, stop = batch.start[at], batch.start[at + 1]
    for column in range(tree.root.size):
        while e < stop and batch.attr[e] < column:
            e += 1
        d = np.int64(veto.depth[column])
        if e == stop or batch.attr[e] != column or np.isnan(batch.value[e]):
            if d >= 0:
                _veto_row(left, veto.bits, veto.first[column] + (1 << d))
                continue
            nodes[0], tests[0] = tree.root[column], ALL
            n = 1
            value = 0.0
        else:
            value = batch.value[e]
            place = cell(domains, column, value)
            if d >= 0:
                _veto_row(left, veto.bits, veto.first[column] + (place >> (HALVINGS - d)))
            n = walk(tree, column, place, d, False, nodes, tests)
        m = leaves(tree, nodes, tests, n, found, found_tests, 0)
        counters[0] += m
        counters[1] += clear_hits(lists, found, found_tests, m, value, False, left)
    answer = members(left, row)
    counters[2] += answer.size
    return answer
