"""Webhooks that misbehave, beside one that does not: nothing is lost, and nobody else waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from httpx2 import Client

from tests.hooks import OK, Hook, Request, answers, hooking, takes
from tests.served import client, feature, serving
from tests.test_sinks import QUICK, letters, until

PATIENT: dict[str, Any] = QUICK | {
    "sink_circuit": 3,
    "sink_timeout_s": 60,
    "sink_attempts": 1_000_000,
}
EVENTS = [f"e{i}" for i in range(12)]


async def hangs(_: Hook, __: Request, ___: asyncio.StreamWriter) -> bytes:
    await asyncio.sleep(3600)
    return OK


async def drips(_: Hook, __: Request, writer: asyncio.StreamWriter) -> None:
    """An answer that comes, but letter by letter."""
    for letter in OK:
        writer.write(bytes([letter]))
        await asyncio.sleep(0.1)


async def floods(hook: Hook, __: Request, writer: asyncio.StreamWriter) -> None:
    """It has taken it, and says so with 100 MB behind."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    sent = 0
    with suppress(ConnectionError):
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000
    hook.sent = max(getattr(hook, "sent", 0), sent)  # type: ignore[attr-defined]


async def babbles(_: Hook, __: Request, writer: asyncio.StreamWriter) -> None:
    """A head without an end."""
    with suppress(ConnectionError):
        while True:
            writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 1000)
            await writer.drain()
            await asyncio.sleep(0.01)


def begin(asks: Client, name: str, hook: Hook, timeout: float = 60) -> None:
    settings = {"timeout": timeout}
    wanted = {"subscriber": name, "sink": hook.url, "protocolsettings": settings}
    assert asks.put(f"/v1/subscriptions/{name}", json=wanted).status_code == 201


def shown(asks: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asks.get("/v1/sinks").json()["sinks"]
    return found


def _failed(metrics: str, name: str) -> float:
    lines = metrics.splitlines()
    (line,) = (
        each for each in lines
        if each.startswith("nearcast_sink_failed_total{") and f'subscriber="{name}"' in each
    )  # fmt: skip
    return float(line.rpartition(" ")[2])


def test_nobody_waits_for_those_that_misbehave_and_nothing_is_lost():
    async def elsewhere(_: Hook, __: Request, ___: asyncio.StreamWriter) -> bytes:
        place = private.url.encode()
        return b"HTTP/1.1 307 No\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % place

    bad = {"hangs": hangs, "drips": drips, "fails": answers(500), "babbles": babbles,
           "elsewhere": elsewhere}  # fmt: skip
    with (
        hooking(takes, takes, floods, *bad.values()) as (good, private, flooding, *others),
        serving(**PATIENT) as server,
        client(server) as asks,
    ):
        begin(asks, "good", good)
        begin(asks, "floods", flooding)
        for name, hook in zip(bad, others, strict=True):
            begin(asks, name, hook, 0.3)
        for id in EVENTS:
            assert asks.post("/v1/events", json=feature(id)).status_code == 200
        until(lambda: len(good.requests) == len(EVENTS))
        assert good.seqs == [*range(1, len(EVENTS) + 1)]
        assert good.connections == 1
        until(lambda: len({*flooding.seqs}) == len(EVENTS))  # it has said that it took them
        until(lambda: all(server.desk.sinks.runner("", n + 3).failed > 1 for n in range(5)))  # type: ignore[union-attr]
        metrics = asks.get("/metrics").text
        assert 'nearcast_sent_total{protocol="HTTP",result="failed"}' in metrics
        failed = {
            name for name in ("good", *bad)
            if f'subscriber="{name}"' in metrics and _failed(metrics, name) > 0
        }  # fmt: skip
        assert failed == {*bad}
        why = {each["subscriber"]: each["why"] for each in shown(asks)}
        assert "no answer within 0.3 s" in why["hangs"]
        assert "no answer within 0.3 s" in why["drips"]
        assert "500" in why["fails"]
        assert "too long" in why["babbles"]
        assert "redirects are not followed" in why["elsewhere"]
        for hook in others:  # they come to their senses
            hook.behave = takes
        until(lambda: {each["upto"] for each in shown(asks)} == {len(EVENTS)})
        assert {frozenset(hook.seqs) for hook in others} == {frozenset(good.seqs)}
        assert not letters(asks)
        assert not private.requests, "a redirect was followed"
    assert getattr(flooding, "sent", 0) < 50_000_000


def test_a_name_that_means_something_else_the_second_time():
    said: list[str] = []

    def resolve(name: str, port: int) -> list[str]:
        said.append(name)
        return ["127.0.0.1"] if len(said) == 1 else ["10.0.0.1", "169.254.169.254"]

    more = PATIENT | {"sink_private": False, "sink_allow": "127.0.0.1/32", "sink_attempts": 3}
    closing = answers(200, Connection="close")
    with hooking(closing) as (hook,), serving(**more) as server, client(server) as asks:
        server.desk.sinks.means.names._resolve = resolve
        url = f"http://rebinds.example:{hook.port}/hook"
        wanted = {"subscriber": "ann", "sink": url}
        assert asks.put("/v1/subscriptions/s", json=wanted).status_code == 201
        asks.post("/v1/events", json=feature("e1"))
        until(lambda: len(hook.requests) == 1)
        assert said == ["rebinds.example"], "looked up once, and connected to what was checked"
        asks.post("/v1/events", json=feature("e2"))
        (dead,) = until(lambda: letters(asks))
        assert "private" in dead["why"]
        assert dead["seq"] == 2
        assert len(hook.requests) == 1


def test_many_that_hang_at_once_do_not_delay_one_that_works():
    """More of them than may be under way, each of a subscriber of its own, none failed so far."""
    settings = PATIENT | {"sink_flights": 16, "sink_timeout_s": 3600}
    with (
        hooking(takes, hangs) as (good, bad),
        serving(**settings) as server,
        client(server) as asks,
    ):
        begin(asks, "ann", good)
        assert asks.post("/v1/events", json=feature("first", a=1)).status_code == 200
        until(lambda: good.seqs == [1])
        for number in range(30):
            wanted = {
                "subscriber": f"b{number}", "keywords": ["bad"], "sink": bad.url,
                "protocolsettings": {"timeout": 3600, "flight": 8},
            }  # fmt: skip
            assert asks.put(f"/v1/subscriptions/b{number}", json=wanted).status_code == 201
        for number in range(8):
            event = feature(f"e{number}", a=1) | {"keywords": ["bad"]}
            assert asks.post("/v1/events", json=event).status_code == 200
        until(lambda: len(bad.requests) >= 7)
        until(lambda: good.seqs == [*range(1, 10)])
        assert len(bad.requests) <= 12
