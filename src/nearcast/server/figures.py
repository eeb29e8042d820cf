"""Figures for Prometheus: what came and went, how long it took, what is kept."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from nearcast.server.core import Turn

__all__ = ["CONTENT_TYPE_LATEST", "Figures"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Figures:
    """One server's; those of what is kept are brought up to date when somebody asks."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        # Counted in plain numbers, for a counter's lock takes longer than what it counts.
        self.came = dict.fromkeys(("accepted", "repeated"), 0)
        self.sent = dict.fromkeys(("pull", "sse", "websocket"), 0)
        self.answered: dict[tuple[str, str, int], int] = {}
        self.broke = 0
        self._events = Counter(
            "nearcast_events", "Events that came", ["result"], registry=registry
        )  # fmt: skip
        self.notifications = Counter(
            "nearcast_notifications", "Notifications told, each a match", registry=registry
        )
        self._delivered = Counter(
            "nearcast_delivered", "Notifications sent", ["transport"], registry=registry
        )
        self._requests = Counter(
            "nearcast_requests", "Requests answered", ["method", "path", "status"],
            registry=registry,
        )  # fmt: skip
        self._mistakes = Counter(
            "nearcast_mistakes", "Calls that broke off by a fault of the server's",
            registry=registry,
        )  # fmt: skip
        self.calling = Histogram(
            "nearcast_calling_seconds", "Calls of one commit: matching and the rest",
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        self.committing = Histogram(
            "nearcast_commit_seconds", "Commits", registry=registry, buckets=_SECONDS
        )
        self.calls = Histogram(
            "nearcast_commit_calls", "Calls of one commit", registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        )  # fmt: skip
        self.queue = Gauge("nearcast_queue_calls", "Calls that wait", registry=registry)
        self.expected = Gauge(
            "nearcast_queue_seconds", "What these are expected to take", registry=registry
        )
        self.listening = Gauge("nearcast_listening", "Who follows a feed", registry=registry)
        self.streams = Gauge("nearcast_streams", "Open streams and sockets", registry=registry)
        self.waiting = Gauge(
            "nearcast_waiting", "Notifications to be sent over open connections", ["transport"],
            registry=registry,
        )  # fmt: skip
        self.kept = Gauge("nearcast_kept", "What is kept", ["what"], registry=registry)

    def watch(self, collector: Collector) -> None:
        """Ask somebody else, too."""
        self._registry.register(collector)

    def turned(self, turn: Turn) -> None:
        """A turn of the core is over."""
        if turn.done:
            self.calling.observe(turn.calling_s)
            self.committing.observe(turn.committing_s)
            self.calls.observe(len(turn.done))
        told = sum(len(reply) for _, reply in turn.replies)
        if told:
            self.notifications.inc(told)

    def totals(self) -> dict[str, Any]:
        """What has come and gone since the server began, for whoever looks on."""
        found: dict[str, Any] = {
            "events": self.came["accepted"], "delivered": sum(self.sent.values()),
        }  # fmt: skip
        for name, each in (("calling", self.calling), ("commit", self.committing)):
            for sample in next(iter(each.collect())).samples:
                if sample.name.endswith(("_sum", "_count")):
                    found[name + sample.name[sample.name.rindex("_") :]] = sample.value
        told = next(iter(self.notifications.collect())).samples
        found["notifications"] = next(s.value for s in told if s.name.endswith("_total"))
        return found

    def text(self) -> bytes:
        """As Prometheus reads it."""
        for result, count in self.came.items():
            _count(self._events.labels(result), count)
        for transport, count in self.sent.items():
            _count(self._delivered.labels(transport), count)
        for (method, path, status), count in self.answered.items():
            _count(self._requests.labels(method, path, str(status)), count)
        _count(self._mistakes, self.broke)
        return generate_latest(self._registry)


def _count(counter: Counter, to: int) -> None:
    """A counter comes to a number."""
    counter.reset()
    counter.inc(to)
