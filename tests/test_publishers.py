"""Publishers that keep silent towards a server: nobody misses what they would have said."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nearcast import Box, Composite, Event, Fence, Point, Subscription
from nearcast.broker.service import Service
from nearcast.client import AsyncClient, Client
from nearcast.client.publisher import Publisher
from nearcast.errors import ServerError, ValidationError
from nearcast.server.run import Running
from nearcast.server.silences import Lines
from tests.served import client as http_client
from tests.served import feature, free_port, make_keys, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(space="planar") as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.url, space="planar", patience_s=240) as made:
        yield made


def until(so: Callable[[], Any], seconds: float = 240) -> Any:
    """What is so at last."""
    end = time.monotonic() + seconds
    while not (found := so()):
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)
    return found


def told(client: Client, who: str) -> list[str]:
    return [each.event.id for each in client.notifications(who, after=0)]


def at(id: str, x: float, y: float = 0.0, **said: Any) -> Event:
    return Event(id, said, location=Point(x, y))


def holds(cab: Publisher) -> bool:
    return cab.rectangle is not None


# --- one publisher --------------------------------------------------------------------------------


def test_silent_inside_and_heard_outside(client: Client):
    client.subscribe(Subscription("w1", "will", where="cab = 1", region=Box(60, 0, 70, 100)))
    with client.publisher("c1") as cab:
        assert cab.publish(at("a1", 10, 50, cab=1)) is not None
        assert cab.rectangle is not None
        assert cab.rectangle.xmax == 60
        assert cab.publish(at("a2", 59, 50, cab=1)) is None
        assert cab.publish(at("a3", 65, 50, cab=1)) is not None
        assert not holds(cab)
        assert cab.publish(at("a4", 10, 50, cab=1)) is not None
        assert cab.publish(at("a5", 10, 50, cab=1, full=True)) is not None  # it says more
    assert told(client, "will") == ["a3"]


def test_a_newcomer_hears_of_who_is_silent_there_already(client: Client):
    with client.publisher("c2") as cab:
        assert cab.publish(at("b1", 1000, cab=2))
        assert cab.publish(at("b2", 1010, cab=2)) is None
        client.subscribe(Subscription("n1", "nora", where="cab = 2", region=Box(1005, -5, 1020, 5)))
        until(lambda: told(client, "nora") == ["b2"])  # what was kept back is sent by itself
        assert cab.publish(at("b3", 1011, cab=2)) is not None
    assert told(client, "nora") == ["b2", "b3"]


@pytest.mark.parametrize("kind", ["fence", "composite"])
def test_fences_and_patterns_void_rectangles_too(client: Client, kind: str):
    x, who = (2000.0, "fay") if kind == "fence" else (3000.0, "pat")
    with client.publisher(kind) as cab:
        assert cab.publish(at(f"{kind}1", x, cab=kind))
        assert cab.publish(at(f"{kind}2", x + 1, cab=kind)) is None
        if kind == "fence":
            client.subscribe(Fence("f", who, object="cab", region=Box(x, -5, x + 9, 5)))
        else:
            corners = f"({x - 9}, -9), ({x + 9}, -9), ({x + 9}, 9), ({x - 9}, 9)"
            text = f'@({corners})(STRING: cab = "{kind}")'
            client.detect(Composite("p", who, text=text))
        until(lambda: told(client, who))
    client.unsubscribe("f" if kind == "fence" else "p")


def test_who_does_not_care_voids_nothing(client: Client):
    with client.publisher("c3") as cab:
        cab.publish(at("d1", 5000, cab=3))
        held = cab.rectangle
        client.subscribe(
            Subscription("x1", "xena", where="cab = 77", region=Box(4990, -9, 5010, 9))
        )
        client.subscribe(
            Subscription("x2", "xena", where="cab = 3", region=Box(90000, 0, 90010, 9))
        )
        client.publish(at("d2", 5000, cab=77))
        until(lambda: told(client, "xena") == ["d2"])
        assert cab.rectangle == held


def within(place: list[float], box: Box) -> bool:
    return box.xmin <= place[0] <= box.xmax and box.ymin <= place[1] <= box.ymax


def heard(client: Client, who: str, cab: str) -> bool:
    return any(each.startswith(cab) for each in told(client, who))


def test_nobody_misses_anything_while_subscriptions_come_and_go(client: Client):
    """Each place of two publishers, sent or kept back, against the boxes that are there then."""
    luck = random.Random(7)
    kept = sent = 0
    places = {"q0": [20_000.0, 0.0], "q1": [20_050.0, 0.0]}
    alive: list[str] = []
    with client.publisher("q0") as first, client.publisher("q1") as second:
        cabs = {"q0": first, "q1": second}
        wants: dict[str, Box] = {}
        for number in range(150):
            if luck.random() < 0.2:
                x, y = luck.uniform(19_900, 20_150), luck.uniform(-100, 100)
                id = f"r{number}"
                wants[id] = Box(x, y, x + luck.uniform(5, 60), y + luck.uniform(5, 60))
                client.subscribe(Subscription(id, id, where="fleet = TRUE", region=wants[id]))
                alive.append(id)
                for name, place in places.items():  # where it is now, sent or kept back
                    if number and within(place, wants[id]):
                        until(partial(heard, client, id, name))
            elif alive and luck.random() < 0.1:
                gone = alive.pop(luck.randrange(len(alive)))
                client.unsubscribe(gone)
                del wants[gone]
            for name, cab in cabs.items():
                place = places[name]
                place[0] += luck.gauss(0, 8)
                place[1] += luck.gauss(0, 8)
                event = at(f"{name}-{number}", *place, fleet=True)
                silent = cab.publish(event) is None
                kept, sent = kept + silent, sent + (not silent)
                for id, box in wants.items():
                    if within(place, box):
                        assert event.id in told(client, id), (number, id)
    assert kept > sent / 4 > 0


# --- lines ----------------------------------------------------------------------------------------


def test_without_a_line_there_is_no_rectangle(server: Running):
    with http_client(server) as http:
        for query in ("", "?line=999999", "?epoch=3"):
            said = http.post(f"/v1/publishers/ann/events{query}", json=feature(f"l{query}", 7))
            assert said.json()["safe_rectangle"] is None


def test_an_answer_that_outlives_its_line_brings_no_rectangle(server: Running):
    async def drive() -> None:
        client = AsyncClient(server.url, space="planar", patience_s=240)
        async with client, client.publisher("late") as cab:
            post = asyncio.create_task(cab.publish(at("o1", 40_000, cab=8)))
            await asyncio.sleep(0)  # it is on its way, with the line's number
            await asyncio.sleep(0)
            cab._line = None  # which is lost meanwhile
            assert await post is not None
            assert cab.rectangle is None

    asyncio.run(drive())


def test_a_second_line_takes_the_place_of_the_first(client: Client):
    with client.publisher("twin") as first:
        assert first.publish(at("t1", 7000, cab=9))
        assert first.rectangle is not None
        with Client(client.url, space="planar") as other, other.publisher("twin") as second:
            until(lambda: first.rectangle is None)
            assert second.publish(at("t2", 7001, cab=9))
            assert second.rectangle is not None


def test_a_line_that_closes_is_forgotten(server: Running, client: Client):
    with client.publisher("gone") as cab:
        cab.publish(at("g1", 8000, cab=5))
        silences = server.house.broker("")._silences
        assert len(silences) > 0
    until(lambda: len(server.desk.lines) == 0 and len(silences) == 0)


def test_a_broker_that_begins_again_ends_the_lines(
    server: Running, client: Client, monkeypatch: pytest.MonkeyPatch
):
    """What it had granted is forgotten: nobody may go on in silence."""
    with client.publisher("anew") as cab:
        cab.publish(at("h1", 9000, cab=6))
        assert cab.rectangle is not None
        assert cab.publish(at("h2", 9001, cab=6)) is None
        before = next(iter(server.desk.lines._open.values())).number
        breaks = Service.retract

        def broken(self: Service, *of: Any) -> Any:
            monkeypatch.setattr(Service, "retract", breaks)
            raise RuntimeError("as if by a mistake")

        monkeypatch.setattr(Service, "retract", broken)
        client.retract("h1")  # made once more, by a broker that knows of no rectangle
        until(lambda: [each.number for each in server.desk.lines._open.values()] > [before])
        client.subscribe(Subscription("h", "hal", where="cab = 6", region=Box(8990, -9, 9010, 9)))
        until(lambda: "h2" in told(client, "hal"))


def test_a_server_that_comes_back(tmp_path: Path):
    port, store = free_port(), tmp_path / "x.db"
    with serving(store, space="planar", port=port) as server:
        client = Client(server.url, space="planar", patience_s=240)
        cab = client.publisher("back")
        cab.__enter__()
        cab.publish(at("k1", 0, cab=1))
        assert cab.publish(at("k2", 1, cab=1)) is None
    assert cab.rectangle is None or until(lambda: cab.rectangle is None)
    with serving(store, space="planar", port=port):
        client.subscribe(Subscription("k", "kay", where="cab = 1", region=Box(-5, -5, 5, 5)))
        until(lambda: "k2" in told(client, "kay"))
        cab.publish(at("k3", 2, cab=1))
        assert told(client, "kay")[-1] == "k3"
        cab.__exit__()
        client.close()


def test_keys_do_not_share_names(tmp_path: Path):
    store = tmp_path / "x.db"
    one, two, reader = make_keys(
        store, {"role": "publish"}, {"role": "publish"}, {"role": "subscribe", "subscriber": "ann"}
    )
    with serving(store, space="planar") as server:
        first = Client(server.url, one, space="planar", patience_s=240)
        second = Client(server.url, two, space="planar", patience_s=240)
        with first.publisher("cab") as mine, second.publisher("cab") as theirs:
            mine.publish(at("m1", 0, cab=1))
            theirs.publish(at("m2", 0, cab=1))
            assert mine.rectangle is not None
            assert theirs.rectangle is not None
        with pytest.raises(ServerError, match="may not"):
            Client(server.url, reader, space="planar").publisher("cab").__enter__()


def test_what_cannot_be_answered_is_refused(server: Running, client: Client):
    with http_client(server) as http:
        two = {"type": "FeatureCollection", "features": [feature("y1", 1), feature("y2", 1)]}
        for path, body, status in (
            ("events", two, 422), ("events?line=x", feature("y3", 1), 400),
            ("events?epoch=0", feature("y3", 1), 400), ("events", {"type": "?"}, 422),
        ):  # fmt: skip
            assert http.post(f"/v1/publishers/ann/{path}", json=body).status_code == status
    with client.publisher("area") as cab, pytest.raises(ValidationError, match="Point"):
        cab.publish(Event("z", {}, location=Box(0, 0, 1, 1)))
    with pytest.raises(ValidationError, match="publisher"):
        client.publisher("").__enter__()


def test_a_server_that_is_not_there():
    with pytest.raises(ServerError, match="cannot be reached"):
        Publisher_at(f"http://127.0.0.1:{free_port()}").__enter__()


def Publisher_at(url: str) -> Publisher:  # noqa: N802
    return Client(url, patience_s=0.2).publisher("cab")


def test_awaited(server: Running):
    async def drive() -> None:
        client = AsyncClient(server.url, space="planar", patience_s=240)
        async with client, client.publisher("aw") as cab:
            assert cab.name == "aw"
            assert await cab.publish(at("i1", 30_000, cab=8)) is not None
            assert await cab.publish(at("i2", 30_001, cab=8)) is None

    asyncio.run(drive())


def test_lines_by_themselves():
    lines = Lines()
    first = lines.open("", "a")
    lines.void("", {"a": 3, "b": 1})
    lines.void("", {"a": 2})
    assert first.after == 3
    assert lines.is_open("", "a", first.number)
    second = lines.open("", "a")
    assert not lines.is_open("", "a", first.number)
    assert not lines.close("", "a", first)  # the newer one is the publisher's
    assert lines.is_open("", "a", second.number)
    other = lines.open("t", "a")
    lines.leave("t")
    assert (other.ended, second.ended) == (True, False)
    lines.end()
    assert not lines.is_open("", "a", second.number)
    assert lines.open("", "c").ended
