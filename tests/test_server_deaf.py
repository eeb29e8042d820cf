"""What a client costs that never reads: measured in a real process, in memory and in the system."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.served import feature
from tests.watched import Watched, watched

#: What is promised, and how many do not read.
MOST, DEAF = 256_000, 20


def stream(server: Watched, name: str) -> bytes:
    return (
        f"GET /v1/subscribers/{name}/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {server.key}\r\n\r\n"
    ).encode()


def pull(server: Watched, name: str) -> bytes:
    return stream(server, name).replace(b"/stream?", b"/notifications?")


def frame(said: dict[str, Any]) -> bytes:
    """A masked frame whose mask is nothing."""
    text = json.dumps(said).encode()
    assert len(text) < 126
    return bytes((0x81, 0x80 | len(text), 0, 0, 0, 0)) + text


def handshake(server: Watched) -> bytes:
    key = base64.b64encode(bytes(16)).decode()
    return (
        "GET /v1/socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        f"Connection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        f"Authorization: Bearer {server.key}\r\n\r\n"
    ).encode()


def deaf(server: Watched, sort: str, name: str) -> socket.socket:
    """A connection whose other end reads no more than it must to begin."""
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.connect(("127.0.0.1", server.port))
    end.settimeout(240)
    if sort in ("stream", "pull"):
        end.sendall((stream if sort == "stream" else pull)(server, name))
        return end
    end.sendall(handshake(server))
    assert end.recv(12) == b"HTTP/1.1 101"
    end.sendall(frame({"type": "hello", "subscriber": name, "after": 0}))
    if sort == "pings":  # and is answered, or would be
        rest = (bytes((0x89, 0x80 | 125, 0, 0, 0, 0)) + b"p" * 125) * 30_000
        end.setblocking(False)
        until = time.monotonic() + 0.3
        while rest and time.monotonic() < until:
            try:
                rest = rest[end.send(rest[:65_536]) :]
            except BlockingIOError:
                time.sleep(0.01)
    return end


def in_the_system(server: Watched) -> int:
    """Bytes that wait in the server's sockets, with all that the system needs for them."""
    said = subprocess.run(
        ["ss", "-tmnH", "state", "established", f"sport = :{server.port}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return sum(int(found) for found in re.findall(r",w(\d+)", said))


def held(server: Watched) -> int:
    """What the process and the system hold when nothing is sent any more."""
    before, same = "", 0
    until = time.monotonic() + 240
    with server.http() as http:
        while same < 6 and time.monotonic() < until:
            now = str(re.findall(r"delivered_total.*", http.get("/metrics").text))
            before, same = now, same + 1 if now == before else 0
            time.sleep(0.3)
    return server.rss + in_the_system(server)


def cost(folder: Path, sort: str, **more: Any) -> float:
    """Bytes for each of those who do not read 2 MB that are there for them."""
    with watched(folder) as server, server.http() as http:
        for number in range(DEAF):
            http.put(f"/v1/subscriptions/{number}", json={"subscriber": f"deaf{number}"})
        for first in range(0, 5000, 500):
            many = [feature(f"e{first + n}", text="x" * 300) for n in range(500)]
            assert http.post("/v1/events", json=many).status_code == 200
    # A process that has done nothing yet: memory that it let go of would be used once more.
    with watched(folder, **more) as server, server.http() as http:
        ends = [deaf(server, sort, "deaf0")]  # what it needs once is there then
        before = held(server)
        ends += [deaf(server, sort, f"deaf{number}") for number in range(1, DEAF)]
        try:
            found = (held(server) - before) / (DEAF - 1)
            assert http.get("/v1/subscribers/deaf1/notifications?after=4999").json()["next"] == 5000
        finally:
            for end in ends:
                end.close()
    return found


@pytest.mark.slow
@pytest.mark.needs("ss")
@pytest.mark.parametrize("sort", ["stream", "socket", "pings", "pull"])
def test_a_client_that_never_reads_costs_little(tmp_path: Path, sort: str):
    assert cost(tmp_path / "s", sort) < MOST


@pytest.mark.slow
@pytest.mark.needs("ss")
def test_control_without_bounds_it_is_seen_to_cost_more(tmp_path: Path):
    first = "import nearcast.server.gate as gate; gate.WAITING = 1 << 30"
    assert cost(tmp_path / "s", "socket", first=first) > 2 * MOST
