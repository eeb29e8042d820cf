"""A server's Kafka: how its clients are set up, and which topics are whose.

There is one cluster for a server. What librdkafka needs beside the address (TLS, SASL) is JSON, as
streams have it, or a file with that; it stands in no URL and is never shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.errors import MissingExtraError, ValidationError

if TYPE_CHECKING:
    from nearcast.server.settings import Settings

__all__ = ["Topic", "check", "client", "is_open", "servers_of", "topics_of", "try_out"]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PATTERN = re.compile(r"[A-Za-z0-9._*-]{1,249}")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_CALLS = ("error_cb", "on_delivery")
_TYPES = (str, int, float, bool)


class Topic(NamedTuple):
    """A topic whose messages are events of a tenant."""

    name: str
    tenant: str


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def servers_of(text: str) -> list[str]:
    """Addresses with commas between them."""
    found = _listed(text)
    for each in found:
        if not _SERVER.fullmatch(each):
            raise ValidationError("kafka_servers", each, "give host:port, several with commas")
    return found


def topics_of(text: str) -> list[Topic]:
    """Topics with commas between them, each for the tenant behind its @."""
    found: dict[str, Topic] = {}
    for each in _listed(text):
        name, _, tenant = each.partition("@")
        if not _TOPIC.fullmatch(name) or name in found:
            raise ValidationError("kafka_in", each, "give topics, each once: offers, parcels@acme")
        found[name] = Topic(name, tenant)
    return [*found.values()]


def is_open(topic: str, patterns: str) -> bool:
    """Whether subscriptions may name a topic; `*` stands for anything."""
    return any(fnmatchcase(topic, each) for each in _listed(patterns))


def check(settings: Settings) -> None:
    """Refuse what cannot be meant."""
    servers_of(settings.kafka_servers)
    topics_of(settings.kafka_in)
    for each in _listed(settings.kafka_out):
        if not _PATTERN.fullmatch(each):
            raise ValidationError("kafka_out", each, "give topics or patterns: offers, alerts-*")
    if not _TOPIC.fullmatch(settings.kafka_positions):
        raise ValidationError("kafka_positions", settings.kafka_positions, "give a topic's name")
    if not settings.kafka_servers:
        for name in ("kafka_in", "kafka_out"):
            if getattr(settings, name):
                raise ValidationError("kafka_servers", "", f"say where it is, or drop {name}")
    _secrets(settings.kafka)


def _secrets(said: str) -> Mapping[str, Any]:
    """What librdkafka is told beside the rest; no error shows any of it."""
    if not said:
        return {}
    remedy = 'give JSON such as {"security.protocol": "SASL_SSL", …}, or a file with that'
    try:
        text = said if said.lstrip().startswith("{") else Path(said).read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ValidationError("kafka", "…", f"{remedy} ({type(error).__name__})") from None
    except json.JSONDecodeError:
        raise ValidationError("kafka", "…", remedy) from None
    if not isinstance(found, dict) or not all(isinstance(v, _TYPES) for v in found.values()):
        raise ValidationError("kafka", "…", remedy)
    return found


def client(kind: str, settings: Settings, **more: Any) -> Any:
    """A `Consumer`, `Producer` or `AdminClient` of the server's cluster.

    Settings of ours come last: what makes it right is not for anybody to change.
    """
    try:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise MissingExtraError("confluent_kafka", "kafka") from None
    made = AdminClient if kind == "AdminClient" else getattr(confluent_kafka, kind)
    options = {
        each if each in _CALLS else each.replace("_", "."): value for each, value in more.items()
    }
    try:
        return made(
            {
                "log_level": 0, "client.id": "nearcast", "allow.auto.create.topics": False,
                **_secrets(settings.kafka), "bootstrap.servers": settings.kafka_servers, **options,
            }
        )  # fmt: skip
    except confluent_kafka.KafkaException as error:
        # Its text may have the value.
        named = re.search(r'property:? "?([a-z.]+)', error.args[0].str())
        what = "a property" if named is None else named[1]
        raise ValidationError("kafka", "…", f"librdkafka refuses {what}: mend it") from None


def try_out(settings: Settings) -> None:
    """Refuse what librdkafka does; nothing is connected."""
    client("Consumer", settings, group_id=settings.kafka_group).close()
