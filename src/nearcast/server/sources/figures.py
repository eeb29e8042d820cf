"""Sources for Prometheus: what came by them, what could not be read, whether they are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["RESULTS", "SourceFigures", "Tally"]

#: What is counted of a source: events, losses of objects, messages set aside, messages that are
#: nothing to us, and messages that were gone before they were read.
RESULTS = ("accepted", "repeated", "lost", "refused", "ignored", "missed")


@dataclass(slots=True)
class Tally:
    """One source's counts, since the server began."""

    protocol: str
    up: bool = False
    """Whether it answers."""
    accepted: int = 0
    repeated: int = 0
    lost: int = 0
    refused: int = 0
    ignored: int = 0
    missed: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    """About how many messages are still to be read, by place."""


class SourceFigures(Collector):
    """All sources; asked in the loop."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies = tallies

    def collect(self) -> Iterable[Metric]:
        """All of them, as they are."""
        came = CounterMetricFamily(
            "nearcast_source", "What became of messages of sources", labels=["protocol", "result"]
        )
        up = GaugeMetricFamily("nearcast_source_up", "Whether it answers", labels=["protocol"])
        behind = GaugeMetricFamily(
            "nearcast_source_behind", "Messages still to be read", labels=["protocol", "place"]
        )
        for tally in self._tallies:
            for result in RESULTS:
                came.add_metric([tally.protocol, result], getattr(tally, result))
            up.add_metric([tally.protocol], tally.up)
            for place, count in tally.behind.copy().items():
                behind.add_metric([tally.protocol, place], count)
        yield from (came, up, behind)
