"""The sources that a server's settings name, while it runs."""

from __future__ import annotations

import asyncio
from typing import Protocol

from nearcast.errors import NearcastError
from nearcast.server import kafka, mqtt
from nearcast.server.desk import Desk
from nearcast.server.logs import log
from nearcast.server.sources.figures import SourceFigures, Tally

__all__ = ["Sources"]


_AGAIN_S = 5.0


class _Source(Protocol):
    def __init__(self, desk: Desk, tally: Tally) -> None: ...

    async def run(self) -> None:
        """Read until cancelled."""


class Sources:
    """One server's; in the loop only."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._kinds: list[tuple[type[_Source], Tally]] = []
        if desk.settings.kafka_servers:
            kafka.try_out(desk.settings)
        if desk.settings.kafka_in:
            from nearcast.server.sources.kafka import KafkaSource

            self._kinds.append((KafkaSource, Tally("KAFKA")))
        if desk.settings.mqtt:
            from nearcast.server.sources.mqtt import MqttSource

            mqtt.client(desk.settings, "")  # refuses what cannot be meant
            self._kinds.append((MqttSource, Tally("MQTT")))
        self._tasks: list[asyncio.Task[None]] = []
        if self._kinds:
            desk.metrics.watch(SourceFigures([tally for _, tally in self._kinds]))

    def start(self) -> None:
        """Begin to read."""
        self._tasks = [asyncio.create_task(self._run(*each)) for each in self._kinds]

    async def _run(self, kind: type[_Source], tally: Tally) -> None:
        while True:
            try:
                await kind(self._desk, tally).run()
            except NearcastError as error:
                log.error("a source has ended", protocol=tally.protocol, why=str(error))
                if self._desk.core.broken or self._desk.core.ended:
                    break
            except Exception as error:
                log.error("mistake", where="in a source", exc_info=error)
            finally:
                tally.up = False
            await asyncio.sleep(_AGAIN_S)

    async def end(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
