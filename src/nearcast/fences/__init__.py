"""Fences: who crosses the border of a region, stays, or falls silent. docs/fences.md."""

from nearcast.fences.watch import Crossing, Position, Positions, Watch

__all__ = ["Crossing", "Position", "Positions", "Watch"]
