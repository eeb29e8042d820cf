"""Sinks for Prometheus: what was sent and what was not, in sum and of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nearcast.server.sinks.engine import RESULTS, Engine

__all__ = ["SinkFigures"]

#: As many sinks have figures of their own: those with the most trouble.
_EACH = 500
_LABELS = ("tenant", "sink", "subscriber", "protocol")
_STATES = ("closed", "half-open", "open", "disabled")


class SinkFigures(Collector):
    """One engine's; asked in its loop."""

    def __init__(self, engine: Engine, dead: Callable[[], dict[str, int]]) -> None:
        self._engine = engine
        self._dead = dead
        """How many dead letters each tenant has."""

    def collect(self) -> Iterable[Metric]:
        """All of them, as they are."""
        yield from self._totals()
        states = GaugeMetricFamily("nearcast_sinks", "Sinks by their circuit", labels=["state"])
        runners = self._engine.runners()
        for state in _STATES:
            states.add_metric([state], sum(each.state() == state for each in runners))
        yield states
        dead = GaugeMetricFamily("nearcast_dead_letters", "Dead letters kept", labels=["tenant"])
        for tenant, count in self._dead().items():
            dead.add_metric([tenant], count)
        yield dead
        yield from self._each()

    def _totals(self) -> Iterable[Metric]:
        total = CounterMetricFamily(
            "nearcast_sent", "What became of tries to send notifications to sinks",
            labels=["protocol", "result"],
        )  # fmt: skip
        for (protocol, result), count in sorted(self._engine.totals().items()):
            total.add_metric([protocol, result], count)
        yield total

    def _each(self) -> Iterable[Metric]:
        engine = self._engine
        worst = sorted(engine.runners(), key=lambda each: (-each.circuit.failures, -each.waiting))
        shown = [
            (each, [each.tenant, str(each.sink.number), each.sink.subscriber, each.sink.protocol])
            for each in worst[:_EACH]
        ]
        for result in RESULTS:
            family = CounterMetricFamily(
                f"nearcast_sink_{result}", f"Notifications: {result}", labels=_LABELS
            )
            for runner, labels in shown:
                family.add_metric(labels, getattr(runner, result))
            yield family
        waiting = GaugeMetricFamily(
            "nearcast_sink_waiting", "Notifications that a sink has yet to get", labels=_LABELS
        )
        circuit = GaugeMetricFamily(
            "nearcast_sink_circuit", "0 closed, 1 half-open, 2 open, 3 disabled", labels=_LABELS
        )
        for runner, labels in shown:
            waiting.add_metric(labels, runner.waiting)
            circuit.add_metric(labels, _STATES.index(runner.state()))
        yield from (waiting, circuit)
