"""Measurements looked up by what was measured, and the ratios that have targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Scalar

__all__ = ["FULL_SIZE", "Row", "checklist", "claim", "growth_claims", "judged", "rows"]

#: The targets are meant for so many subscriptions (or events); smaller runs have no verdict.
FULL_SIZE = 1_000_000


@dataclass(frozen=True)
class Row:
    """All contenders of one operation at one point of its sweep."""

    point: Mapping[str, Scalar]
    by_contender: Mapping[str, Measurement]

    def ratio(self, slow: Iterable[str], fast: Iterable[str]) -> float | None:
        """How many times longer the best of `slow` takes than the best of `fast`, per unit."""
        other, mine = self.best(slow), self.best(fast)
        if other is None or mine is None or mine.item_s <= 0:
            return None
        return other.item_s / mine.item_s

    def best(self, names: Iterable[str]) -> Measurement | None:
        """The fastest of these contenders; None if none of them ran."""
        ran = [self.by_contender[name] for name in names if name in self.by_contender]
        return min(ran, key=lambda measurement: measurement.item_s, default=None)

    @property
    def full(self) -> bool:
        """Whether it is large enough to be held against a target."""
        return int(self.point.get("n", 0)) >= FULL_SIZE

    @property
    def size(self) -> str:
        """How many there were, for people."""
        return f"{int(self.point.get('n', 0)):,}"


def rows(measurements: Sequence[Measurement], operation: str) -> list[Row]:
    """The points of one operation, in the order of the run.

    A yardstick that ran with several groups of others counts as in the first of them.
    """
    found: dict[tuple[tuple[str, Scalar], ...], dict[str, Measurement]] = {}
    for measurement in measurements:
        if measurement.operation == operation:
            point = tuple(measurement.parameters.items())
            found.setdefault(point, {}).setdefault(measurement.contender, measurement)
    return [Row(dict(point), many) for point, many in found.items()]


def judged(measurements: Sequence[Measurement], operation: str) -> list[Row]:
    """The point of a sweep over n that has targets, or else the largest; none if it did not run."""
    points = sorted(rows(measurements, operation), key=lambda row: int(row.point["n"]))
    return [row for row in points if row.full][:1] or points[-1:]


def claim(
    row: Row,
    name: str,
    value: float | None,
    unit: str,
    target: float | None = None,
    sense: Literal["at least", "at most"] = "at least",
) -> list[Claim]:
    """One claim, or none without a value; the target counts at full size only."""
    if value is None:
        return []
    return [Claim(f"{name} (n = {row.size})", value, unit, target if row.full else None, sense)]


def growth_claims(measurements: Sequence[Measurement], operation: str) -> list[Claim]:
    """How the time of each contender grows from the smallest to the largest n."""
    points = sorted(rows(measurements, operation), key=lambda row: int(row.point["n"]))
    claims = []
    for name in dict.fromkeys(name for row in points for name in row.by_contender):
        ran = [row for row in points if name in row.by_contender]
        few, many = int(ran[0].point["n"]), int(ran[-1].point["n"])
        times = [row.by_contender[name].item_s for row in (ran[0], ran[-1])]
        if many > few and min(times) > 0:
            power = log(times[1] / times[0]) / log(many / few)
            what = f"{operation}: {name}, growth from {few:,} to {many:,}"
            claims.append(Claim(what, power, "(power of n; 1 is linear)"))
    return claims


def checklist(claims: Iterable[Claim]) -> list[Claim]:
    """The claims, those with a target together at the end."""
    return sorted(claims, key=lambda claim: claim.target is not None)
