"""The clients, against a real server: verbs, errors, resuming, and what is tried again."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearcast import Around, Box, Composite, Event, Fence, Point, Subscription
from nearcast.client import AsyncClient, Checked, Client, Published, retries
from nearcast.client.problems import error_of
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    NearcastError,
    ServerError,
    UnknownIdError,
    ValidationError,
)
from nearcast.server.run import Running
from tests.served import free_port, make_keys, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("client") / "x.db") as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.url, patience_s=240) as made:
        yield made


def cheap(who: str, **more: object) -> Subscription:
    return Subscription(id=f"{who}-cheap", subscriber=who, where=f"{who} < 10", **more)  # type: ignore[arg-type]


def offer(who: str, number: int, **more: object) -> Event:
    return Event(f"{who}{number}", {who: number}, **more)  # type: ignore[arg-type]


# --- verbs ----------------------------------------------------------------------------------------


def test_subscribe_publish_and_be_told(client: Client):
    client.subscribe(cheap("ann"))
    first = client.publish(offer("ann", 1, keywords={"sale"}, location=Point(8.5, 47.4)))
    assert (first.accepted, first.repeated) == (1, 0)
    assert client.publish(offer("ann", 1, keywords={"sale"}, location=Point(8.5, 47.4))) == (
        Published(0, 1, first.offset)
    )
    many = client.publish_many([offer("ann", n) for n in (2, 12, 3)])
    assert (many.accepted, many.offset) == (3, first.offset + 3)
    told = list(client.notifications("ann"))
    assert [(each.seq, each.event.id) for each in told] == [(1, "ann1"), (2, "ann2"), (3, "ann3")]
    assert told[0].subscription_id == "ann-cheap"
    assert told[0].event.keywords == {"sale"}
    assert told[0].event.location == Point(8.5, 47.4)
    told[1].ack()
    assert [each.seq for each in client.notifications("ann")] == [3]
    assert [each.seq for each in client.notifications("ann", after=0)] == [3]


def test_pages_are_read_to_the_end(client: Client):
    client.subscribe(cheap("pat"))
    client.publish_many([offer("pat", -n) for n in range(7)])
    told = client.notifications("pat", limit=3)
    assert [each.seq for each in told] == [1, 2, 3, 4, 5, 6, 7]


def test_fences_and_composites(client: Client):
    client.subscribe(Fence(id="yard", subscriber="fay", object="truck", region=Box(0, 0, 1, 1)))
    client.detect(Composite(id="twice", subscriber="fay", text='Q(2)(STRING: kind = "in")'))
    for number in range(2):
        client.publish(
            Event(f"t{number}", {"truck": 7, "kind": "in"}, location=Point(0.5, 0.5 + number))
        )
    told = list(client.notifications("fay"))
    crossings = [(each.transition, each.object) for each in told if each.transition]
    assert crossings == [("enter", 7), ("exit", 7)]
    (pattern,) = [each for each in told if each.subscription_id == "twice"]
    assert isinstance(pattern.event, CompositeEvent)
    assert pattern.event.parts == ("t0", "t1")


def test_unsubscribe_whatever_it_is(client: Client):
    client.subscribe_many(
        [
            Subscription(id="u1", subscriber="uma"),
            Fence(id="u2", subscriber="uma", object="o", region=Box(5, 5, 6, 6)),
        ]
    )
    client.detect(Composite(id="u3", subscriber="uma", text='STRING: kind = "never"'))
    for id in ("u1", "u2", "u3"):
        client.unsubscribe(id)
        with pytest.raises(UnknownIdError):
            client.unsubscribe(id)


def test_events_are_looked_at_and_retracted(client: Client):
    client.publish(offer("eve", 5, location=Point(1, 2)))
    (event,) = client.events(where="eve = 5")
    assert event.location == Point(1, 2)
    assert client.preview(Subscription(id="any", where="eve > 4"))[0].id == "eve5"
    client.retract("eve5")
    assert client.events(where="eve = 5") == []
    with pytest.raises(UnknownIdError):
        client.retract("eve5")
    logged, upto = client.log(limit=1000)
    assert "eve5" in [each.id for each in logged]
    assert client.log(after=upto) == ([], upto)


def test_ask_about_filters_and_matches(client: Client):
    assert client.check("price < 3 AND TRUE").ok
    wrong = client.check("price <")
    assert isinstance(wrong, Checked)
    assert not wrong.ok
    assert wrong.line == 1
    assert not client.check(cpsl="Q(").ok
    told = client.explain(Subscription(id="s", where="price < 3"), Event("e", {"price": 5}))
    assert told["matched"] is False


def test_a_subscriber_that_moves(client: Client):
    client.subscribe(Subscription(id="near", subscriber="mo", where="mo > 0", region=Around(500)))
    placed = client.move("mo", Point(8.5, 47.4), heading=90, speed=2, epoch=1)
    assert placed.epoch == 1
    assert placed.safe_region is not None
    assert placed.safe_region.contains(Point(8.5001, 47.4))
    client.publish(offer("mo", 1, location=Point(8.501, 47.4)))
    placed = client.move("mo", Point(8.5, 47.4), epoch=2)
    assert [told.event.id for told in placed.notifications] == ["mo1"]


# --- following ------------------------------------------------------------------------------------


def test_following_waits_for_what_comes(client: Client):
    client.subscribe(cheap("flo"))
    heard: list[str] = []

    def listen() -> None:
        for told in client.notifications("flo", follow=True, wait_s=0.5):
            heard.append(told.event.id)
            told.ack()
            if len(heard) == 3:
                return

    thread = threading.Thread(target=listen)
    thread.start()
    for number in range(3):
        time.sleep(0.05)
        client.publish(offer("flo", number))
    thread.join(600)
    assert heard == ["flo0", "flo1", "flo2"]
    assert list(client.notifications("flo")) == []


def test_a_server_that_goes_away_and_comes_back_is_followed(tmp_path: Path):
    heard: list[int] = []
    port = free_port()
    with serving(tmp_path / "x.db", port=port) as first:
        client = Client(first.url, patience_s=240)
        client.subscribe(cheap("gus"))
        client.publish(offer("gus", 1))
        following = client.notifications("gus", follow=True, wait_s=1)
        heard.append(next(following).seq or 0)
    thread = threading.Thread(target=lambda: heard.append(next(following).seq or 0))
    thread.start()  # nobody is there: it tries again
    with serving(tmp_path / "x.db", port=port):
        client.publish(offer("gus", 2))
        thread.join(600)
    assert heard == [1, 2]
    client.close()


def test_nobody_there_is_said_when_patience_ends():
    with (
        socket.socket() as taken,
        Client(f"http://127.0.0.1:{taken.getsockname()[1]}", patience_s=0.1) as client,
        pytest.raises(ServerError, match=r"cannot be reached.*nearcast serve") as caught,
    ):
        client.publish(Event("e1"))
    assert caught.value.status == 0


# --- errors ---------------------------------------------------------------------------------------


def test_refusals_are_the_errors_that_a_broker_raises(client: Client):
    client.publish(offer("err", 1))
    with pytest.raises(DuplicateIdError) as caught:
        client.publish(Event("err1", {"err": 2}))
    assert caught.value.status == 409  # type: ignore[attr-defined]
    with pytest.raises(BatchError) as batch:
        client.publish_many([offer("err", 8), Event("err1", {"err": 2})])
    assert batch.value.row == 1
    assert client.events(where="err = 8") == []
    with pytest.raises(ValidationError, match="upto"):
        client.ack("err", 99)


def test_keys_open_what_they_should(tmp_path: Path):
    key, mine = make_keys(
        tmp_path / "x.db", {"role": "publish"}, {"role": "subscribe", "subscriber": "ann"}
    )
    with serving(tmp_path / "x.db") as server:
        with Client(server.url, patience_s=1) as nobody, pytest.raises(ServerError) as caught:
            nobody.publish(Event("e1"))
        assert caught.value.status == 401
        with Client(server.url, key, patience_s=1) as shop:
            assert shop.publish(offer("ann", 1)).accepted == 1
            with pytest.raises(ServerError) as caught:
                shop.subscribe(cheap("ann"))
            assert caught.value.status == 403
        with Client(server.url, mine, patience_s=1) as ann:
            ann.subscribe(cheap("ann"))
            assert [told.event.id for told in ann.notifications("ann")] == ["ann1"]
            with pytest.raises(NearcastError):
                list(ann.notifications("bob"))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ValidationError), (401, ServerError), (403, ServerError), (404, UnknownIdError),
        (409, DuplicateIdError), (413, ServerError), (422, ValidationError),
        (429, ServerError), (500, ServerError), (503, ServerError),
    ],
)  # fmt: skip
def test_every_status_is_an_error_that_says_what_was_said(status: int, kind: type[NearcastError]):
    error = error_of(status, {"detail": "no such luck", "field": "f", "value": 3})
    assert type(error) is kind
    assert str(error) == "no such luck"
    assert error.problem["value"] == 3  # type: ignore[attr-defined]
    assert "status" in str(error_of(status, {}))


# --- trying again ---------------------------------------------------------------------------------


def test_delays_grow_and_end_with_patience():
    waits = list(retries.delays(12.0, random.Random(3)))
    assert sum(waits) == pytest.approx(12.0)
    assert waits[0] <= 0.05
    assert max(waits) <= 5.0
    assert waits[5] > waits[0]
    assert list(retries.delays(0.0)) == []


def test_only_what_is_transient_is_tried_again_and_as_late_as_asked():
    assert retries.before(200, {}, iter([1.0])) is None
    assert retries.before(422, {}, iter([1.0])) is None
    assert retries.before(503, {}, iter([1.0])) == 1.0
    assert retries.before(429, {"retry-after": "3"}, iter([1.0])) == 3.0
    assert retries.before(429, {"retry-after": "tomorrow"}, iter([1.0])) == 1.0
    assert retries.before(429, {"retry-after": "3"}, iter([])) is None


class Flaky(threading.Thread):
    """Takes a request whole and closes without an answer, a few times; then answers 404."""

    def __init__(self, times: int) -> None:
        super().__init__(daemon=True)
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        self.times = times
        self.requests: list[bytes] = []

    def run(self) -> None:
        with self.door:
            while len(self.requests) <= self.times:
                visitor, _ = self.door.accept()
                with visitor:
                    self.requests.append(visitor.recv(65536))
                    if len(self.requests) > self.times:
                        visitor.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def test_what_an_unanswered_try_removed_is_gone_as_asked():
    flaky = Flaky(2)
    flaky.start()
    with Client(flaky.url, patience_s=240) as client:
        client.retract("e1")  # the first try may have been the one: no error
    assert len(flaky.requests) == 3
    flaky = Flaky(0)
    flaky.start()
    with Client(flaky.url) as client, pytest.raises(UnknownIdError):
        client.retract("e1")


def test_ids_are_quoted_on_the_way(client: Client):
    odd = Subscription(id="a/b c?d", subscriber="who/ever", where="odd = 1")
    client.subscribe(odd)
    client.publish(Event("x/1?", {"odd": 1}))
    assert [told.event.id for told in client.notifications("who/ever")] == ["x/1?"]
    client.retract("x/1?")
    client.unsubscribe("a/b c?d")


# --- awaited --------------------------------------------------------------------------------------


def test_the_awaited_client_has_the_same_verbs(server: Running):
    async def live() -> list[tuple[int | None, str]]:
        async with AsyncClient(server.url, patience_s=240) as client:
            await client.subscribe_many([cheap("ivy")])
            assert (await client.publish(offer("ivy", 1))).accepted == 1
            heard = []

            async def listen() -> None:
                async for told in client.notifications("ivy", follow=True, wait_s=1):
                    heard.append((told.seq, told.event.id))
                    await told.ack()
                    if len(heard) == 3:
                        return

            listening = asyncio.create_task(listen())
            await client.publish_many([offer("ivy", 2), offer("ivy", 3)])
            await asyncio.wait_for(listening, 240)
            with pytest.raises(DuplicateIdError):
                await client.publish(Event("ivy1", {"ivy": 7}))
            await client.unsubscribe("ivy-cheap")
            with pytest.raises(UnknownIdError):
                await client.unsubscribe("ivy-cheap")
            return heard

    assert asyncio.run(live()) == [(1, "ivy1"), (2, "ivy2"), (3, "ivy3")]


def test_an_awaited_client_says_that_nobody_is_there():
    async def ask() -> None:
        async with AsyncClient("http://127.0.0.1:9", patience_s=0.1) as client:
            await client.publish(Event("e1"))

    with pytest.raises(ServerError, match="cannot be reached"):
        asyncio.run(ask())


def test_both_clients_have_every_verb():
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)
    for verb in ("subscribe", "subscribe_many", "publish", "publish_many", "move", "detect"):
        assert getattr(Client, verb).__doc__


# --- phones ---------------------------------------------------------------------------------------


def test_a_phone_is_silent_in_its_region_and_told_of_what_is_near(server: Running, client: Client):
    client.subscribe(Subscription(id="pia", subscriber="pia", where="pia > 0", region=Around(500)))
    with client.phone("pia") as phone:
        assert phone.moved(Point(8.5, 47.4), heading=90, speed=1)
        assert phone.region is not None
        assert not phone.moved(Point(8.5001, 47.4))
        assert phone.told() is None
        client.publish(offer("pia", 1, location=Point(8.502, 47.4)))  # asks, and is answered
        told = phone.told(wait_s=120)
        assert told is not None
        assert (told.seq, told.event.id) == (1, "pia1")
        told.ack()
        assert phone.moved(Point(8.7, 47.4))  # far away: the region ends somewhere
    assert list(client.notifications("pia")) == []


def test_a_phone_goes_on_over_a_restart_of_the_server(tmp_path: Path):
    port = free_port()
    with serving(tmp_path / "x.db", port=port) as first:
        client = Client(first.url, patience_s=240)
        client.subscribe(cheap("kim"))
        phone = client.phone("kim")
        phone.__enter__()
        client.publish_many([offer("kim", 1), offer("kim", 2)])
        assert [next(phone).seq, next(phone).seq] == [1, 2]
    with serving(tmp_path / "x.db", port=port):
        client.publish(offer("kim", 3))
        told = next(phone)
        assert told.seq == 3  # and not 1 again, though nothing was acknowledged
        told.ack()
        assert phone.moved(Point(1, 2))
        phone.__exit__()
    client.close()


def test_a_phone_that_reads_late_has_the_server_keep_the_rest(
    server: Running, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nearcast.client.phone._WAITING", 3)
    client.subscribe(cheap("lou"))
    with client.phone("lou") as phone:
        for number in range(12):
            client.publish(offer("lou", -number))
        seqs = []
        for _ in range(12):
            told = next(phone)
            told.ack()
            seqs.append(told.seq)
    assert seqs == list(range(1, 13))


def test_a_phone_without_a_key_is_refused_at_once(tmp_path: Path):
    make_keys(tmp_path / "x.db", {"role": "admin"})
    with serving(tmp_path / "x.db") as server, Client(server.url, "wrong") as client:
        with pytest.raises(ServerError) as caught, client.phone("ann"):
            pass
        assert caught.value.status == 401


def test_a_phone_that_hears_a_problem_of_its_own_raises_it(server: Running, client: Client):
    with client.phone("max") as phone, pytest.raises(ValidationError, match=r"coordinates|lon|lat"):
        phone.moved(Point(500, 0))
