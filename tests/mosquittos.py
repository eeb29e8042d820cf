"""A real Mosquitto: on a port and in a folder of its own, stopped and started again."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.served import free_port

__all__ = ["Mosquitto", "Phone"]

_CONFIG = """
listener {port} 127.0.0.1
allow_anonymous {anonymous}
persistence true
persistence_location {folder}/
log_dest file {folder}/mosquitto.log
max_queued_messages 0
"""
_START_S = 60.0


class Mosquitto:
    """A broker that keeps its sessions over a restart. With `users` it asks for passwords."""

    def __init__(self, folder: Path, users: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # it gives up being root
        self._config = folder / "mosquitto.conf"
        said = _CONFIG.format(port=self.port, folder=folder, anonymous=str(users is None).lower())
        said += "user root\n"
        if users is not None:
            passwords = folder / "passwords"
            for name, password in users.items():
                command = ["mosquitto_passwd", "-b", *([] if passwords.exists() else ["-c"])]
                subprocess.run([*command, str(passwords), name, password], check=True,
                               capture_output=True)  # fmt: skip
            said += f"password_file {passwords}\n"
        self._config.write_text(said)

    def start(self) -> None:
        """Returns when it answers."""
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + _START_S
        while True:
            assert self._process.poll() is None, "it has ended by itself"
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < until
            time.sleep(0.02)

    def stop(self) -> None:
        """In order: what it knows is on disk."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None


class Phone:
    """A client at the other end: publishes, hears, dies."""

    def __init__(self, broker: Mosquitto, id: str, **will: Any) -> None:
        self._broker = broker
        self.heard: list[MQTTMessage] = []
        self._connected = threading.Event()
        self._subscribed = threading.Event()
        self._client = Client(
            CallbackAPIVersion.VERSION2, id, protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=not will,  # who has a will may die
        )  # fmt: skip
        self._client.on_connect = lambda *_: self._connected.set()
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = lambda _, __, message: self.heard.append(message)
        if will:
            self._client.will_set(**will)
        asked: Any = Properties(PacketTypes.CONNECT)
        asked.SessionExpiryInterval = 3600
        self._client.connect("127.0.0.1", broker.port, clean_start=False, properties=asked)
        self._client.loop_start()
        assert self._connected.wait(60)

    def publish(self, topic: str, said: Any, qos: int = 1, **properties: Any) -> None:
        """Returns when the broker has it."""
        about: Any = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(about, name, value)
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self._client.publish(topic, body, qos, properties=about).wait_for_publish(60)

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, qos=1)
        assert self._subscribed.wait(60)

    def said(self) -> list[Any]:
        return [json.loads(each.payload) for each in self.heard]

    def die(self) -> None:
        """Without a word: the broker says its last will."""
        line: Any = self._client.socket()
        line.shutdown(socket.SHUT_RDWR)
        self._client.loop_stop()

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def mosquitto(folder: Path, users: dict[str, str] | None = None) -> Iterator[Mosquitto]:
    made = Mosquitto(folder, users)
    made.start()
    try:
        yield made
    finally:
        made.stop()
