"""The protocols by which notifications are sent, by the name that a subscription gives them."""

from __future__ import annotations

from nearcast.server.sinks.kafka import Kafka
from nearcast.server.sinks.mqtt import Mqtt
from nearcast.server.sinks.ports import Carrier
from nearcast.server.sinks.webhook import Webhook

__all__ = ["PROTOCOLS"]

PROTOCOLS: dict[str, Carrier] = {each.name: each for each in (Webhook(), Kafka(), Mqtt())}
