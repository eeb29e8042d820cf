"""The outermost bounds, over plain sockets: heads, bodies, time, connections, what is no HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nearcast.server.run import Running
from tests.served import client, feature, serving
from tests.watched import Watched, watched

MB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(head_s=3, body_s=3, max_head=20_000, max_body=100_000) as running:
        yield running


def line(server: Running | Watched) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port))
    made.settimeout(240)
    return made


def answer(end: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The response that comes, until the other end closes or all of it is there, and no more."""
    head, body = b"", b""
    while not head.endswith(b"\r\n\r\n"):
        more = end.recv(1)
        if not more:
            return 0, {}, head
        head += more
    head = head.removesuffix(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += end.recv(int(headers["content-length"]) - len(body))
    return int(first.split()[1]), headers, body


def is_problem(found: tuple[int, dict[str, str], bytes], status: int) -> dict[str, Any]:
    assert found[0] == status, found
    assert found[1]["content-type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(found[2])
    assert set(problem) >= {"type", "title", "status", "detail", "field", "value", "remedy"}
    assert problem["remedy"]
    return problem


def drips(end: socket.socket, what: bytes, pause_s: float = 0.05) -> None:
    """Send something again and again until the other end has enough."""

    def drip() -> None:
        with suppress(OSError):
            while True:
                end.sendall(what)
                time.sleep(pause_s)

    threading.Thread(target=drip, daemon=True).start()


@pytest.mark.parametrize(
    ("begins", "drop"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-Slow: 1\r\n"),
        (b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", b" "),
        (b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
         b"1\r\n \r\n"),
        (b"\r\n", b"\r\n"),
    ],
)  # fmt: skip
def test_who_sends_slowly_is_let_go(server: Running, begins: bytes, drop: bytes):
    with line(server) as end:
        end.sendall(begins)
        drips(end, drop)
        with client(server) as http:  # and holds up nobody meanwhile
            assert http.post("/v1/events", json=feature("e")).status_code == 200
        problem = is_problem(answer(end), 408)
        assert problem["field"] == ("body" if b"POST" in begins else "head")
        with suppress(ConnectionResetError):  # it may still be sending
            assert end.recv(1) == b""


def test_who_says_nothing_is_let_go(server: Running):
    with line(server) as end:
        assert end.recv(1) == b""


def test_a_head_without_an_end_is_refused(server: Running):
    with line(server) as end:
        end.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        drips(end, b"x" * 4000, 0)
        assert is_problem(answer(end), 431)["field"] == "headers"


def test_a_request_behind_another_one_has_its_own_time(server: Running):
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with line(server) as end:
        for _ in range(4):
            end.sendall(ask)
            assert answer(end)[0] == 200
            time.sleep(0.9)  # longer than `head_s` in all
        end.sendall(ask + ask[:10])
        assert answer(end)[0] == 200
        is_problem(answer(end), 408)


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: upgrade\r\n\r\n",
        b"GET /v1/socket?\xff HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_like_others(server: Running, said: bytes):
    with line(server) as end:
        end.sendall(said)
        is_problem(answer(end), 400)


def test_a_socket_whose_head_is_too_long_is_refused(server: Running):
    with line(server) as end:
        end.sendall(
            b"GET /v1/socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: upgrade\r\nX: " + b"x" * 9000 + b"\r\n\r\n"
        )
        is_problem(answer(end), 431)


def test_a_socket_that_says_no_hello_is_let_go(server: Running, monkeypatch: pytest.MonkeyPatch):
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    monkeypatch.setattr("nearcast.server.socket._HELLO_S", 0.5)
    with (
        connect(server.url.replace("http", "ws") + "/v1/socket", open_timeout=240) as end,
        pytest.raises(ConnectionClosed, match="1008"),
    ):
        end.recv(timeout=240)


def test_connections_are_counted():
    with serving(max_connections=3) as server:
        lines = [line(server) for _ in range(3)]
        for end in lines:
            end.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer(end)[0] == 200
        with line(server) as more:
            found = answer(more)
            is_problem(found, 429)
            assert int(found[1]["retry-after"]) >= 1
            assert more.recv(1) == b""
        lines.pop().close()
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            with line(server) as end:
                end.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if answer(end)[0] == 200:
                    break
        else:
            raise AssertionError("no room was made")
        for end in lines:
            end.close()


# --- large bodies, in a process whose memory is measured --------------------------------------


def send_all(end: socket.socket, size: int, piece: Callable[[bytes], bytes]) -> None:
    """As much as the other end takes."""
    block = piece(b" " * MB)
    with suppress(OSError):
        for _ in range(size // MB):
            end.sendall(block)
        end.sendall(piece(b""))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def post(server: Watched, chunked: bool, size: int = 100 * MB) -> tuple[int, int]:
    """Post a large body: the status, and by how much the server grew at most."""
    head = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    lines = (b"POST /v1/events HTTP/1.1", b"Host: localhost", head,
             b"Authorization: Bearer " + server.key.encode(), b"", b"")  # fmt: skip
    server.forget_peak()
    before = server.rss
    with line(server) as end:
        end.sendall(b"\r\n".join(lines))
        sending = threading.Thread(
            target=send_all, args=(end, size, chunk if chunked else bytes), daemon=True
        )
        if chunked:
            sending.start()
            found = answer(end)
        else:
            found = answer(end)  # before a byte of it was sent
            sending.start()
        sending.join(240)
    return found[0], server.peak - before


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_100_mb_is_refused_early_and_costs_little(tmp_path: Path, chunked: bool):
    with watched(tmp_path / "s") as server:
        post(server, chunked)
        for _ in range(3):
            status, grown = post(server, chunked)
            assert status == 413
            assert grown < 40 * MB
        with server.http() as http:
            assert http.post("/v1/events", json=feature("e")).status_code == 200


def test_control_a_server_that_takes_such_a_body_is_seen_to_grow(tmp_path: Path):
    with watched(tmp_path / "s", max_body=200 * MB) as server:
        _, grown = post(server, True, 100 * MB)
        assert grown > 60 * MB
