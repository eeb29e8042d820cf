"""The serve experiment, small: a real process, right answers, and no verdicts on small sizes."""

from __future__ import annotations

import sys

import pytest

from nearcast.bench import experiments
from nearcast.bench.experiments import serve
from nearcast.bench.experiments.base import settle
from nearcast.bench.load.posts import _LATER, _answer
from nearcast.bench.load.sockets import Sockets
from nearcast.bench.runner import measure_all
from nearcast.bench.serving.served import Served
from nearcast.bench.serving.tiles import Tiles, pairs
from nearcast.errors import BenchError
from tests.kafkas import jars


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the server costs")
def test_a_server_is_measured_and_judged():
    experiment = experiments.experiment("serve")
    said = {"parts": "post,connect,restart", "events": "120", "sockets": "5", "restart": "80"}
    found = list(measure_all(experiment.trials(settle(experiment, said, quick=True)), 1))
    assert {m.operation for m in found} == {serve.POST, serve.CONNECT, serve.RESTART}
    assert all(m.agreement.exact for m in found)
    claims = experiment.claims(found)
    assert {claim.met for claim in claims} == {None}
    assert sum("CPU-µs" in claim.unit for claim in claims) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the server costs")
@pytest.mark.needs("postgres")
def test_a_server_on_postgresql_is_measured_the_same():
    experiment = experiments.experiment("serve")
    said = {"parts": "post", "events": "60", "store": "postgresql"}
    try:
        found = list(measure_all(experiment.trials(settle(experiment, said, quick=True)), 1))
    finally:
        Served.kind = "sqlite"
    assert all(m.agreement.exact for m in found)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the server costs")
@pytest.mark.needs("mvn", "java")
def test_topics_of_kafka_are_measured_where_they_are_asked_for():
    experiment = experiments.experiment("serve")
    assert serve.KAFKA not in settle(experiment, {}).texts("parts")
    said = {"parts": "kafka", "events": "60", "sinks": "3", "jars": str(jars())}
    (found,) = measure_all(experiment.trials(settle(experiment, said, quick=True)), 1)
    assert found.agreement.exact
    assert {claim.met for claim in experiment.claims([found])} == {None}


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the server costs")
def test_webhooks_are_measured_and_one_that_is_dead():
    experiment = experiments.experiment("serve")
    said = {"parts": "webhooks,dead", "events": "40", "told": "100", "hooked": "1"}
    found = list(measure_all(experiment.trials(settle(experiment, said, quick=True)), 1))
    assert {m.operation for m in found} == {serve.WEBHOOKS, serve.DEAD}
    assert all(m.agreement.exact for m in found)
    claims = experiment.claims(found)
    assert {claim.met for claim in claims} == {None}
    assert sum(claim.unit == "×" for claim in claims) == 2


def test_every_event_has_as_many_notifications_as_is_said():
    experiment = experiments.experiment("serve")
    tiles = Tiles(400, 4)
    found = pairs(settle(experiment, {"events": "50"}, quick=True), tiles)
    assert len(found) == 50 * 4
    wanted = {each.id: each for each in tiles.subscriptions()}
    assert len(wanted) == 400
    for tile in (0, 7, tiles.count - 1):
        x, y = tiles.feature(tile, "e")["geometry"]["coordinates"]
        inside = {
            int(id[1:])
            for id, each in wanted.items()
            if each.region.xmin <= x <= each.region.xmax  # type: ignore[union-attr]
            and each.region.ymin <= y <= each.region.ymax  # type: ignore[union-attr]
        }
        assert inside == set(tiles.wanting(tile))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", (None, b"HTTP/1.1 200 OK\r\nContent-Le")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", (b"{}", b"")),
        (b"HTTP/1.1 204 No\r\n\r\n", (b"null", b"")),
        (b"HTTP/1.1 429 No\r\ncontent-length: 1\r\n\r\nx", (_LATER, b"")),
    ],
)
def test_answers_are_read_when_they_are_whole(data: bytes, found: object):
    assert _answer(data) == found


def test_answers_in_pieces_are_read_when_the_last_one_is_there():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    data = head + b'6\r\n{"a": \r\n3\r\n\r\n}\r\n0\r\n\r\n'
    for end in range(len(head), len(data)):
        assert _answer(data[:end]) == (None, data[:end])
    assert _answer(data) == (b'{"a": \r\n}', b"")


def test_what_is_no_success_is_not_measured():
    with pytest.raises(BenchError, match="404"):
        _answer(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(BenchError, match="hung up"):
        _answer(b"")


def test_frames_are_taken_one_by_one():
    sockets = Sockets.__new__(Sockets)
    seen: list[bytes] = []
    long = b"y" * 300
    data = b"\x81\x02hi" + b"\x81\x7e" + (300).to_bytes(2) + long + b"\x81\x05par"
    rest = sockets._frames(0, data, lambda _, text: seen.append(text))
    assert seen == [b"hi", long]
    assert rest == b"\x81\x05par"
