"""What streams have done so far, for Prometheus: in a file, or over HTTP; by a listener of Spark's.

`Figures` counts batches; `nearcast stream --metrics` gives it those of its job, and
`nearcast.spark.listen` those of all streaming queries of a session, whoever started them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError
from nearcast.spark.stream.beats import Beat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Figures", "listen"]

_COUNTERS = (
    "batches", "rows_in", "rows_out", "seconds", "late", "duplicates", "overflows", "messages",
    "failures",
)  # fmt: skip


class Figures:
    """Counters and gauges by job, where somebody asked for them.

    `where` is a file, which Prometheus' node exporter reads, or `HOST:PORT` (`:PORT` is this
    machine's loopback), which answers `GET /metrics`.
    """

    def __init__(self, where: str) -> None:
        self._totals: dict[str, dict[str, float]] = {}
        self._gauges: dict[str, dict[str, float]] = {}
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._server: ThreadingHTTPServer | None = None
        host, colon, port = where.rpartition(":")
        if colon and port.isdigit() and os.sep not in where:
            self._server = _serve(host or "127.0.0.1", int(port), self.text, where)
        elif where:
            self._path = Path(where)
        else:
            raise ValidationError("metrics", where, "name a file, or HOST:PORT")

    @property
    def port(self) -> int | None:
        """Where it answers; None if it writes a file."""
        return None if self._server is None else int(self._server.server_address[1])

    def add(self, beat: Beat, job: str) -> None:
        """Count a batch."""
        details = beat.details
        observed = details.get("observedMetrics", {})
        kept = observed.get("nearcast") or {}
        states = details.get("stateOperators") or ()
        counted = {
            "batches": 1, "rows_in": beat.rows_in, "rows_out": beat.rows_out,
            "seconds": beat.seconds,
            **{name: kept.get(name) for name in ("late", "duplicates", "overflows")},
            "messages": (observed.get("nearcast_sent") or {}).get("messages"),
        }  # fmt: skip
        gauges = {
            "batch": beat.batch, "batch_seconds": beat.seconds, "behind": beat.behind,
            "watermark_seconds": _seconds(details.get("eventTime", {}).get("watermark")),
            "state_rows": _sum(states, "numRowsTotal"),
            "state_bytes": _sum(states, "memoryUsedBytes"),
            "last_batch_timestamp_seconds": time.time(),
        }  # fmt: skip
        with self._lock:
            totals = self._totals.setdefault(job, {})
            for name, value in counted.items():
                if value is not None:
                    totals[name] = totals.get(name, 0.0) + value
            shown = self._gauges.setdefault(job, {})
            shown |= {name: float(value) for name, value in gauges.items() if value is not None}
        self._write()

    def failed(self, job: str) -> None:
        """Count a failure."""
        with self._lock:
            totals = self._totals.setdefault(job, {})
            totals["failures"] = totals.get("failures", 0.0) + 1
        self._write()

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        with self._lock:
            lines = []
            for name in _COUNTERS:
                lines += _lines(f"{name}_total", "counter", name, self._totals)
            for name in dict.fromkeys(n for each in self._gauges.values() for n in each):
                lines += _lines(name, "gauge", name, self._gauges)
        return "".join(f"{line}\n" for line in lines)

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _write(self) -> None:
        if self._path is not None:
            scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            scratch.write_text(self.text(), "utf-8")
            scratch.replace(self._path)


def _sum(states: Any, name: str) -> float | None:
    return sum(each.get(name, 0) for each in states) if states else None


def _lines(name: str, kind: str, key: str, found: dict[str, dict[str, float]]) -> list[str]:
    values = [
        f'nearcast_stream_{name}{{job="{_escaped(job)}"}} {each[key]:.15g}'
        for job, each in found.items()
        if key in each
    ]
    return [f"# TYPE nearcast_stream_{name} {kind}", *values] if values else []


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _seconds(moment: str | None) -> float | None:
    """A watermark as seconds since 1970; None before the first."""
    if not moment:
        return None
    found = datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
    return found or None


def _serve(host: str, port: int, text: Any, where: str) -> ThreadingHTTPServer:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            known = self.path.partition("?")[0] in ("/metrics", "/")
            body = text().encode() if known else b""
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the terminal has progress in it."""

    try:
        server = ThreadingHTTPServer((host, port), Answers)
    except OSError as error:
        raise ValidationError(
            "metrics", where, f"give another place to listen at ({error})"
        ) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="nearcast-metrics", daemon=True).start()
    return server


def listen(spark: SparkSession, where: str) -> Figures:
    """Figures of all streaming queries of a session, batch by batch, under their names.

    `where` as for `Figures`. They are counted from now on, in the driver, by a listener of Spark's.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    figures = Figures(where)

    class Listener(StreamingQueryListener):
        def __init__(self) -> None:
            self.names: dict[str, str] = {}

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names
            self.names[str(event.runId)] = event.name or str(event.id)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            said = json.loads(event.progress.json)
            if "addBatch" in said.get("durationMs", {}):
                figures.add(Beat.of(said), said.get("name") or str(said.get("id")))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            name = self.names.pop(str(event.runId), str(event.id))
            if event.exception:
                figures.failed(name)

    spark.streams.addListener(Listener())
    return figures
