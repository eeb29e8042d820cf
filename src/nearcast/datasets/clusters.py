"""Points that crowd around centres, and the places where points crowd."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clusters", "busiest_cells"]


@dataclass(frozen=True, eq=False)
class Clusters:
    """A mixture of round Gaussians in the unit square, and a share of uniform noise."""

    centres: NDArray[np.float64]
    spreads: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise: float

    @classmethod
    def drawn(
        cls,
        rng: np.random.Generator,
        count: int,
        spread: tuple[float, float],
        noise: float,
        alpha: float,
    ) -> Clusters:
        """`count` centres of Zipf(alpha) weights; a heavier one spreads wider."""
        weights = 1.0 / np.arange(1.0, count + 1) ** alpha
        centres = 0.1 + 0.8 * rng.random((count, 2))
        centres[0] = 0.4 + 0.2 * rng.random(2)  # the metropolis is not at the rim
        low, high = spread
        spreads = low + (high - low) * np.sqrt(weights)
        return cls(centres, spreads, weights / weights.sum(), noise)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """`count` points (x, y) in the unit square; what falls outside is mirrored back."""
        which = np.searchsorted(np.cumsum(self.weights), rng.random(count) * (1 - 1e-12))
        which = np.minimum(which, self.weights.size - 1)
        points = self.centres[which]
        points += rng.standard_normal((count, 2)) * self.spreads[which, None]
        scattered = rng.random(count) < self.noise
        points[scattered] = rng.random((int(scattered.sum()), 2))
        points = np.abs(points)
        points = np.where(points > 1, 2 - points, points)
        return np.clip(points, 0.0, 1.0)


def busiest_cells(points: NDArray[np.float64], cell: float, most: int) -> NDArray[np.float64]:
    """The centroids of the `most` busiest square cells, the busiest first: O(n log n)."""
    cells = np.floor((points - points.min(axis=0)) / cell).astype(np.int64)
    keys = cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1]
    _, owner, counts = np.unique(keys, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    sums = [np.bincount(owner, weights=points[:, axis])[order] for axis in (0, 1)]
    return np.stack(sums, axis=1) / counts[order, None]
