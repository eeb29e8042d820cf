"""What each tenant does and has, for Prometheus: all of them, or one for its own admins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nearcast.server.core import Turn

__all__ = ["Tenants"]

_COUNTED = {
    "accepted": "Events that came",
    "repeated": "Events that came once more",
    "told": "Notifications told",
    "delivered": "Notifications sent",
    "requests": "Requests and frames",
    "refused": "Requests refused by a bound of the tenant's",
    "turn_seconds": "Time of the core: calls and commits",
}


class Tenants(Collector):
    """One server's; in the loop only. `kept` says what there is of each, at the moment."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED}
        self.kept: Callable[[], Mapping[str, Mapping[str, int]]] = dict
        """By what, by tenant."""

    def count(self, what: str, tenant: str, more: float = 1) -> None:
        """So many more."""
        self._counts[what][tenant] += more  # type: ignore[assignment]

    def counted(self, tenant: str) -> dict[str, float]:
        """What was counted of one tenant."""
        return {what: counts[tenant] for what, counts in self._counts.items()}

    def turned(self, turn: Turn) -> None:
        """A turn of the core is over."""
        for tenant, reply in turn.replies:
            if reply:
                self._counts["told"][tenant] += len(reply)
        for tenant, seconds in turn.taken_s.items():
            self.count("turn_seconds", tenant, seconds)

    def collect(self) -> Iterable[Metric]:
        """All tenants'."""
        return self._of(None)

    def text(self, tenant: str) -> bytes:
        """One tenant's, as Prometheus reads it."""
        registry = CollectorRegistry()
        registry.register(_Only(lambda: self._of(tenant)))
        return generate_latest(registry)

    def _of(self, tenant: str | None) -> Iterable[Metric]:
        for what, said in _COUNTED.items():
            counter = CounterMetricFamily(f"nearcast_tenant_{what}", said, labels=["tenant"])
            _fill(counter, self._counts[what], tenant)
            yield counter
        for what, found in self.kept().items():
            gauge = GaugeMetricFamily(f"nearcast_tenant_{what}", f"{what} of it", labels=["tenant"])
            _fill(gauge, found, tenant)
            yield gauge


class _Only(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def _fill(
    family: CounterMetricFamily | GaugeMetricFamily, found: Mapping[str, float], tenant: str | None
) -> None:
    for each, value in sorted(found.items()):
        if tenant is None or each == tenant:
            family.add_metric([each], value)
