"""Notifications as messages of MQTT 5: QoS 1, each acknowledged by the broker before the next.

They go to PREFIX/TENANT/notifications/SUBSCRIBER at the server's own broker. One that nobody has
subscribed to is not taken for delivered: the broker says so, and it is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError
from nearcast.server import mqtt
from nearcast.server.sinks.ports import DELIVERED, Letter, Means, Outcome, Terms, never, retry
from nearcast.storage.sinks import Sink

if TYPE_CHECKING:
    from nearcast.server.settings import Settings

__all__ = ["Mqtt"]

_WINDOW = 1000  # on their way at once, if the broker takes as many
_HEAD = 256  # bytes of a packet beside topic and body
_NOBODY = 0x10
_ITS_OWN = (0x90, 0x99)  # topic name invalid, payload format invalid


class Mqtt:
    """The protocol."""

    name = "MQTT"
    schemes: tuple[str, ...] = ("mqtt", "mqtts")

    def check(self, uri: str, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """The server's own broker; topics are not for subscriptions to choose."""
        for name in given:
            raise ValidationError(f"protocolsettings.{name}", given[name], "leave it out")
        if not settings.mqtt:
            raise ValidationError("sink", uri, "the server has no MQTT (mqtt)")
        if mqtt.place_of(uri, "sink") != mqtt.place_of(settings.mqtt):
            raise ValidationError("sink", uri, "the server sends to its own broker only: "
                                  f"{settings.mqtt}")  # fmt: skip
        return {}

    def complete(
        self, given: Mapping[str, Any], known: Mapping[str, Any] | None  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """There is nothing secret in them."""
        return dict(given), {}

    def shown(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All of them."""
        return dict(settings)

    def open(self, sink: Sink, means: Means, tenant: str) -> _Channel:
        """A way there, by the one connection that all share."""
        return _Channel(sink, means, tenant)


class _Channel:
    """One subscriber's topic."""

    def __init__(self, sink: Sink, means: Means, tenant: str) -> None:
        self.terms = Terms()
        line = means.shared.get("mqtt")
        if line is None:
            line = means.shared["mqtt"] = Line(means)
        assert isinstance(line, Line)
        self._line = line
        tenant, whose = mqtt.tenant_level(tenant), mqtt.level(sink.subscriber)
        self._topic = f"{means.settings.mqtt_prefix}/{tenant}/notifications/{whose}"

    async def begin(self, upto: int, last: int) -> int:  # noqa: ARG002
        """Brokers know of no numbers."""
        return upto

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """One message a letter; the runner gives one."""
        return [await self._line.send(self._topic, letter) for letter in letters]

    async def close(self) -> None:
        """The connection is closed with the server."""


class Line:
    """The server's connection for what it sends; made when it is needed, and anew when it broke.

    A message that was on its way when it broke is tried again by who sent it, not by the client.
    """

    def __init__(self, means: Means) -> None:
        self._settings = means.settings
        self._id = f"{means.settings.mqtt_id or 'nearcast-' + means.identity()}-out"
        self._patience_s = means.settings.sink_timeout_s
        self._loop = asyncio.get_running_loop()
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._coming: Any = None
        """The one that is being made, and what it waits for."""
        self._greeted: asyncio.Future[int] | None = None
        self._window = asyncio.Semaphore(1)
        self._largest = 0
        """Bytes of a packet; 0: any."""
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def send(self, topic: str, letter: Letter) -> Outcome:
        """Publish one, and wait until the broker has it."""
        about = mqtt.properties(
            "PUBLISH", ContentType="application/json", UserProperty=("nearcast-id", letter.id)
        )
        async with asyncio.timeout(self._patience_s):
            await self._connect()
            size = len(topic.encode()) + len(letter.text) + _HEAD
            if self._largest and size > self._largest:
                return never(f"it has about {size} bytes, and the broker takes {self._largest}")
            async with self._window:
                client = self._client
                if client is None:
                    return retry("the connection broke")
                sent = client.publish(topic, letter.text, qos=1, properties=about)
                if sent.rc:
                    self._lost(client, f"not sent ({sent.rc.name})")
                    return retry("the connection broke")
                future = self._waiting[sent.mid] = self._loop.create_future()
                try:
                    code = await future
                finally:
                    self._waiting.pop(sent.mid, None)
        return _outcome(code)

    async def _connect(self) -> None:
        """Have a connection; OSError says why there is none."""
        async with self._connecting:
            if self._client is not None:
                return
            place = mqtt.place_of(self._settings.mqtt)
            client = mqtt.client(self._settings, self._id, reconnect_on_failure=False)
            client.connect_timeout = self._patience_s
            client.on_connect = self._connected
            client.on_disconnect = self._disconnected
            client.on_publish = self._published
            self._coming, greeted = client, self._loop.create_future()
            self._greeted = greeted
            try:
                await self._loop.run_in_executor(
                    None, lambda: client.connect(place.host, place.port, mqtt.KEEPALIVE_S)
                )
                client.loop_start()
                window = await greeted
            except BaseException:
                self._coming = None
                self._close(client)
                raise
            self._coming = None
            self._window = asyncio.Semaphore(min(_WINDOW, window))
            self._client = client

    # -- in the connection's thread ----------------------------------------------------

    def _connected(self, client: Any, _: Any, __: Any, code: Any, about: Any) -> None:
        if code.is_failure:
            self._call(self._refused, client, str(code))
        else:
            self._call(self._welcome, client, about)

    def _disconnected(self, client: Any, _: Any, __: Any, code: Any, ___: Any) -> None:
        self._call(self._lost, client, str(code))

    def _published(self, client: Any, _: Any, number: int, code: Any, __: Any) -> None:
        self._call(self._acknowledged, client, number, code)

    def _call(self, call: Any, *of: Any) -> None:
        with suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(call, *of)

    # -- in the loop -------------------------------------------------------------------

    def _welcome(self, client: Any, about: Any) -> None:
        if client is self._coming and self._greeted is not None and not self._greeted.done():
            self._largest = getattr(about, "MaximumPacketSize", 0)
            self._greeted.set_result(getattr(about, "ReceiveMaximum", 0xFFFF))

    def _refused(self, client: Any, why: str) -> None:
        if client is self._coming and self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(OSError(f"the broker refuses us ({why})"))

    def _acknowledged(self, client: Any, number: int, code: Any) -> None:
        waiting = self._waiting.get(number) if client is self._client else None
        if waiting is not None and not waiting.done():
            waiting.set_result(code)

    def _lost(self, client: Any, why: str) -> None:
        self._refused(client, why)
        if client is not self._client:
            return
        self._client = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(OSError(f"the connection broke ({why})"))
        self._close(client)

    def _close(self, client: Any) -> None:
        client.disconnect()
        self._loop.run_in_executor(None, client.loop_stop)

    async def close(self) -> None:
        """Let go of it."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            await self._loop.run_in_executor(None, client.loop_stop)


def _outcome(code: Any) -> Outcome:
    if code.value == _NOBODY:
        return retry("nobody has subscribed to its topic, and no session waits there")
    if code.value in _ITS_OWN:
        return never(f"the broker does not take it ({code})")
    return retry(f"the broker does not take it ({code})") if code.is_failure else DELIVERED
