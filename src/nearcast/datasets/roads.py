"""A road network: crossroads, roads of three kinds, and the arcs one travels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.datasets.globe import bearing_deg, haversine_m

__all__ = ["ARTERIAL", "KINDS", "MOTORWAY", "SPEED_M_S", "STREET", "Arcs", "RoadNetwork"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOTORWAY, ARTERIAL, STREET = 0, 1, 2
KINDS = ("motorway", "arterial", "street")
#: How fast traffic moves on each kind of road: 90, 50 and 30 km/h.
SPEED_M_S = np.array([25.0, 50 / 3.6, 30 / 3.6])


@dataclass(frozen=True, eq=False)
class Arcs:
    """Every road in both directions, sorted by where it starts and where it ends.

    The arcs out of node i are `first[i]` … `first[i + 1]`; `reverse` is the way back.
    """

    first: Indices
    tail: Indices
    head: Indices
    reverse: Indices
    length_m: Array
    speed_m_s: Array
    heading: Array


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """Nodes with places, and straight roads between them.

    `ends` holds one road a row as two node numbers, `kind` indexes `KINDS`.
    """

    lon: Array
    lat: Array
    ends: Indices
    kind: NDArray[np.int8]

    @property
    def nodes(self) -> int:
        """How many crossroads there are."""
        return self.lon.size

    @cached_property
    def length_m(self) -> Array:
        """The length of each road."""
        i, j = self.ends.T
        return haversine_m(self.lon[i], self.lat[i], self.lon[j], self.lat[j])

    @cached_property
    def arcs(self) -> Arcs:
        """The roads as arcs, two each."""
        tail, head = np.concatenate([self.ends, self.ends[:, ::-1]]).T
        order = np.lexsort((head, tail))
        tail, head = tail[order], head[order]
        kind = np.tile(self.kind, 2)[order]
        reverse = np.empty(tail.size, np.int64)
        reverse[np.lexsort((tail, head))] = np.arange(tail.size)
        return Arcs(
            first=np.searchsorted(tail, np.arange(self.nodes + 1)),
            tail=tail,
            head=head,
            reverse=reverse,
            length_m=np.tile(self.length_m, 2)[order],
            speed_m_s=SPEED_M_S[kind],
            heading=bearing_deg(self.lon[tail], self.lat[tail], self.lon[head], self.lat[head]),
        )

    @cached_property
    def kerbside(self) -> Indices:
        """The nodes where one may stop: those that no motorway passes."""
        passed = np.zeros(self.nodes, np.bool_)
        passed[self.ends[self.kind == MOTORWAY]] = True
        return np.flatnonzero(~passed)

    def at(self, road: NDArray[Any], share: Array) -> tuple[Array, Array]:
        """The places a share (0 … 1) of the way along roads."""
        i, j = self.ends[road].T
        lon = self.lon[i] + share * (self.lon[j] - self.lon[i])
        return lon, self.lat[i] + share * (self.lat[j] - self.lat[i])

    def segments(self) -> Array:
        """One road a row: lon and lat of one end, then of the other. For maps."""
        i, j = self.ends.T
        return np.stack([self.lon[i], self.lat[i], self.lon[j], self.lat[j]], axis=1)

    def components(self) -> Indices:
        """A label for each node, equal for nodes that roads connect."""
        label = np.arange(self.nodes)
        i, j = self.ends.T
        while True:
            low = np.minimum(label[i], label[j])
            spread = label.copy()
            np.minimum.at(spread, i, low)
            np.minimum.at(spread, j, low)
            spread = spread[spread]
            if np.array_equal(spread, label):
                return label
            label = spread

    def largest_component(self) -> RoadNetwork:
        """The network without what cannot be reached from its largest part."""
        label = self.components()
        kept = label == np.bincount(label).argmax()
        number = np.cumsum(kept) - 1
        whole = kept[self.ends[:, 0]]
        return RoadNetwork(
            self.lon[kept], self.lat[kept], number[self.ends[whole]], self.kind[whole]
        )
