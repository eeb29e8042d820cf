"""What is said about a measurement: its spread, its agreement with the truth, its memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Agreement", "Spread", "compare", "resident_bytes", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the quartiles of repetitions, with both ends."""

    median: float
    q1: float
    q3: float
    low: float
    high: float
    count: int


def spread(samples: Sequence[float]) -> Spread:
    """The spread of at least one sample; quartiles are interpolated between samples."""
    ordered = sorted(samples)
    if len(ordered) == 1:
        q1 = median = q3 = ordered[0]
    else:
        q1, median, q3 = quantiles(ordered, n=4, method="inclusive")
    return Spread(median, q1, q3, ordered[0], ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an answer compares with the truth, in pairs.

    `wanted` pairs are true, `missing` of them were not reported; `surplus` pairs were
    reported and are false, or were reported more than once.
    """

    wanted: int
    missing: int
    surplus: int

    @property
    def exact(self) -> bool:
        """Whether the answer is the truth."""
        return self.missing == 0 and self.surplus == 0

    @property
    def false_negative_rate(self) -> float:
        """The share of the true pairs that was not reported."""
        return self.missing / self.wanted if self.wanted else 0.0

    @property
    def false_positive_rate(self) -> float:
        """The share of the reported pairs that is false or repeated."""
        reported = self.wanted - self.missing + self.surplus
        return self.surplus / reported if reported else 0.0


def compare(answer: object, truth: object) -> Agreement:
    """Compare two answers: Arrow tables as multisets of rows, plain values with `==`.

    Costs a sort of both tables; a join only where they differ.
    """
    if not isinstance(truth, pa.Table):
        return Agreement(1, 0, 0) if answer == truth else Agreement(1, 1, 1)
    if not isinstance(answer, pa.Table) or set(answer.column_names) != set(truth.column_names):
        return Agreement(truth.num_rows, truth.num_rows, 0)
    return _compare_tables(answer.select(truth.column_names).cast(truth.schema), truth)


def _compare_tables(answer: pa.Table, truth: pa.Table) -> Agreement:
    names = truth.column_names
    keys = [(name, "ascending") for name in names]
    if answer.num_rows == truth.num_rows and answer.sort_by(keys).equals(truth.sort_by(keys)):
        return Agreement(truth.num_rows, 0, 0)
    given = _counted(answer).rename_columns([*names, "given"])
    shared = given.join(_counted(truth), names, join_type="inner")
    common = pc.sum(pc.min_element_wise(shared["given"], shared["rows"])).as_py() or 0
    return Agreement(truth.num_rows, truth.num_rows - common, answer.num_rows - common)


def _counted(table: pa.Table) -> pa.Table:
    """Each distinct row once, with how often it occurs in `rows`."""
    counted = table.group_by(table.column_names).aggregate([([], "count_all")])
    return counted.rename_columns([*table.column_names, "rows"])


def resident_bytes() -> int | None:
    """The memory this process holds now; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None
