"""Fences: who crosses the border of a region, stays, or falls silent. docs/fences.md."""

from nearcast.fences.watch import Crossing, Position, Watch

__all__ = ["Crossing", "Position", "Watch"]
