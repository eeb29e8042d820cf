"""Spark, started in a thread while other sections are shown: Java takes its seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

from nearcast import jit

__all__ = ["Starting"]

_PARTS = "spark.sql.shuffle.partitions"


class Starting:
    """A Spark session to come."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start it behind; what goes wrong is said by `session`."""
        if self._thread is None:
            self._thread = Thread(target=self._begin, name="nearcast-spark", daemon=True)
            self._thread.start()

    def _begin(self) -> None:
        with suppress(Exception):
            spark = self._session()
            # Classes are loaded and Python's workers forked by the first job, whatever it does.
            spark.range(2).mapInArrow(_unchanged, "id long").count()

    def _session(self) -> Any:
        from nearcast.spark.session import session

        # Spark's own 200 parts of everything are meant for clusters: here most would be empty.
        return session(self._app, settings={_PARTS: 4 * jit.parallel_threads()}, brief=True)

    def session(self) -> Any:
        """The session, waited for or started now."""
        if self._thread is not None:
            self._thread.join()
        return self._session()


def _unchanged(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches
