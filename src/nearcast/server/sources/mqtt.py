"""Events, positions and last wills from topics of MQTT.

The session at the broker is the server's own: what comes while it is away waits there. A message
is acknowledged (PUBACK) when what it says is committed, so one that was not comes again.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import deque
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from nearcast.errors import NearcastError, ValidationError
from nearcast.server import mqtt
from nearcast.server.desk import Desk
from nearcast.server.logs import log
from nearcast.server.sources.envelopes import read, said
from nearcast.server.sources.figures import Tally
from nearcast.server.sources.intake import MISTAKE, Intake, Message
from nearcast.server.sources.positions import Report, owntracks, position

__all__ = ["MqttSource"]

_MOST = 20_000  # messages without acknowledgement (QoS 0) in memory; beyond, they go
_DELAY_S = (1, 15)  # until it is tried again to connect


class _Came(NamedTuple):
    """A message, and the connection that it came by."""

    connection: int
    message: Any


class MqttSource:
    """One server's; `run` in the loop, the connection in a thread of its own."""

    def __init__(self, desk: Desk, tally: Tally) -> None:
        self._desk = desk
        self._settings = desk.settings
        self._tally = tally
        self._intake = Intake("MQTT", desk, tally)
        self._prefix = f"{self._settings.mqtt_prefix}/"
        self._queue: deque[_Came] = deque()
        self._stirred = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._connection = 0
        self._counted = 0
        self._ended = False
        self._why = ""
        """Why it did not answer last."""
        id = self._settings.mqtt_id or f"nearcast-{desk.house.identity}"
        self._client = mqtt.client(self._settings, id, manual_ack=True)
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._disconnected
        self._client.on_connect_fail = self._failed
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._came
        self._client.reconnect_delay_set(*_DELAY_S)

    async def run(self) -> None:
        """Read until cancelled."""
        place = mqtt.place_of(self._settings.mqtt)
        asked = mqtt.properties(
            "CONNECT",
            SessionExpiryInterval=min(0xFFFFFFFE, round(self._settings.mqtt_session_s)),
            ReceiveMaximum=min(0xFFFF, 2 * self._settings.mqtt_batch),
        )
        self._client.connect_async(
            place.host, place.port, mqtt.KEEPALIVE_S, clean_start=False, properties=asked
        )
        self._client.loop_start()
        try:
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                while self._queue:
                    await self._take()
        finally:
            self._ended = True
            self._client.disconnect()  # the session stays
            await self._loop.run_in_executor(None, self._client.loop_stop)

    async def _take(self) -> None:
        some = [
            self._queue.popleft() for _ in range(min(len(self._queue), self._settings.mqtt_batch))
        ]
        whose = [(self._tenant(each.message.topic), each) for each in some]
        for tenant, its in groupby(whose, key=lambda pair: pair[0]):
            mine = [each for _, each in its]
            if tenant is None:
                self._tally.ignored += len(mine)
            else:
                messages = [self._read(each.message) for each in mine]
                await self._intake.take(tenant, [each for each in messages if each is not None])
                self._tally.ignored += messages.count(None)
            for each in mine:
                # What came by a connection that is over comes again, under any number.
                if each.message.qos and each.connection == self._connection:
                    self._client.ack(each.message.mid, each.message.qos)

    # -- in the connection's thread ----------------------------------------------------

    def _connected(self, client: Any, _: Any, flags: Any, code: Any, __: Any) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        if code.is_failure:
            self._call(self._down, str(code))
            return
        # Counted here, before any of its messages comes.
        self._counted += 1
        self._call(self._begun, self._counted, bool(flags.session_present))
        # Of what is retained a session hears once.
        options = SubscribeOptions(qos=1, retainHandling=1)
        wanted = [f"{self._prefix}+/{each}" for each in ("events", "positions/+/+", "lost/+/+")]
        if self._settings.mqtt_owntracks:
            wanted.append("owntracks/+/+")
        client.subscribe([(each, options) for each in wanted])

    def _subscribed(self, _: Any, __: Any, ___: Any, codes: Any, ____: Any) -> None:
        refused = [str(code) for code in codes if code.is_failure]
        if refused:
            self._call(self._down, f"it does not let us subscribe ({refused[0]})")

    def _disconnected(self, _: Any, __: Any, ___: Any, code: Any, ____: Any) -> None:
        self._call(self._down, str(code))

    def _failed(self, _: Any, __: Any) -> None:
        self._call(self._down, "no connection")

    def _came(self, _: Any, __: Any, message: Any) -> None:
        self._call(self._enqueue, _Came(self._counted, message))

    def _call(self, call: Any, *of: Any) -> None:
        if not self._ended:
            with suppress(RuntimeError):  # the loop may be closed
                self._loop.call_soon_threadsafe(call, *of)

    # -- in the loop -------------------------------------------------------------------

    def _begun(self, connection: int, resumed: bool) -> None:
        self._connection = connection
        self._tally.up = True
        log.info("MQTT is there", resumed=resumed)

    def _down(self, why: str) -> None:
        if self._tally.up or why != self._why:
            log.warning("MQTT does not answer", why=why)
        self._tally.up, self._why = False, why

    def _enqueue(self, came: _Came) -> None:
        if not came.message.qos and len(self._queue) >= _MOST:
            self._tally.missed += 1
            return
        self._queue.append(came)
        self._stirred.set()

    # -- what a message says -----------------------------------------------------------

    def _tenant(self, topic: str) -> str | None:
        """Whose it is; None: nobody's that we know."""
        if not topic.startswith(self._prefix):
            return ""
        tenant = mqtt.tenant_of(topic.removeprefix(self._prefix).partition("/")[0])
        return tenant if tenant in self._desk.house.brokers() else None

    def _read(self, message: Any) -> Message | None:
        """What it says; None: nothing that is meant for us."""
        topic: str = message.topic
        whole = lambda: _as_json(message)  # noqa: E731
        try:
            if topic.startswith(self._prefix):
                _, kind, *rest = topic.removeprefix(self._prefix).split("/")
                return self._ours(kind, [*map(mqtt.text_of, rest)], message)
            _, user, device = topic.split("/")
            return self._owntracks(user, device, message)
        except NearcastError as error:
            return Message(topic, message.mid, whole, wrong=str(error))
        except Exception as error:  # one that we did not think of must not stop those behind it
            log.error("mistake", where="in a message", place=topic, exc_info=error)
            return Message(topic, message.mid, whole, wrong=MISTAKE)

    def _ours(self, kind: str, rest: list[str], message: Any) -> Message:
        topic, whole = message.topic, lambda: _as_json(message)
        if kind == "events":
            attributes, content_type = _properties(message)
            events = read(attributes, content_type, message.payload, self._desk)
            return Message(topic, message.mid, whole, tuple(events))
        attribute, object = rest
        if not attribute or not object:
            raise ValidationError("topic", topic, "name an attribute and an object")
        if kind == "lost":
            return Message(topic, message.mid, whole, lost=(attribute, object))
        report = self._report(f"{attribute}/{object}", message.payload)
        found = position(said(message.payload, self._desk), attribute, object, report)
        return Message(topic, message.mid, whole, (found,))

    def _owntracks(self, user: str, device: str, message: Any) -> Message | None:
        topic, whole = message.topic, lambda: _as_json(message)
        if not message.payload:  # what was retained is not any more
            return None
        told = said(message.payload, self._desk)
        if not isinstance(told, dict):
            return None
        kind = told.get("_type")
        if kind == "lwt":
            return Message(topic, message.mid, whole, lost=("device", f"{user}/{device}"))
        if kind != "location":
            return None
        report = self._report(topic, message.payload)
        return Message(topic, message.mid, whole, (owntracks(told, user, device, report),))

    def _report(self, name: str, body: bytes) -> Report:
        hold_s, space = self._settings.mqtt_position_s, self._settings.space
        return Report(name, body, self._desk.house.clock(), hold_s, space)


def _properties(message: Any) -> tuple[dict[str, str], str | None]:
    """The attributes of CloudEvents that stand beside the body, and what the body is."""
    beside = message.properties
    attributes = dict(getattr(beside, "UserProperty", ()))
    return attributes, getattr(beside, "ContentType", None)


def _as_json(message: Any) -> str:
    """A message as a dead letter keeps it."""
    attributes, content_type = _properties(message)
    whole: dict[str, Any] = {"topic": message.topic, "properties": attributes}
    if content_type is not None:
        whole["content_type"] = content_type
    try:
        whole["value"] = message.payload.decode()
    except UnicodeDecodeError:
        whole["value_base64"] = b64encode(message.payload).decode()
    return json.dumps(whole)
