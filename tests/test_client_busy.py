"""A client of a server that has too much to do, and other odd turns between the two."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest

from nearcast import Box, Composite, Event, Fence, Point, Subscription
from nearcast.client import AsyncClient, Client
from nearcast.client import phone as client_phone
from nearcast.client.publisher import Publisher
from nearcast.errors import UnknownIdError
from nearcast.server.auth import Principal
from nearcast.server.problems import busy
from nearcast.server.run import Running
from tests.served import serving


def test_a_phone_says_again_what_a_busy_server_refused():
    with serving() as server, Client(server.url) as client:
        client.subscribe(Subscription("s", "ann"))
        client.publish(Event("e"))
        submit, refused = server.desk.core.submit, 0

        def refuse(*of: Any, **more: Any) -> Any:
            nonlocal refused
            if refused < 2:
                refused += 1
                raise busy("much is waiting", 1)
            return submit(*of, **more)

        with client.phone("ann") as phone:
            told = phone.told(120)
            assert told is not None
            server.desk.core.submit = refuse  # type: ignore[method-assign]
            told.ack()
        assert refused == 2
        assert client.page("ann").notifications == ()


class Busy:
    """Refuses the next requests, as a key does that has asked too often."""

    def __init__(self, server: Running) -> None:
        self._limits = server.desk.limits
        self.left = 0

    def __enter__(self) -> Busy:
        self._limits.spend = self._spend  # type: ignore[method-assign]
        return self

    def _spend(self, who: Principal) -> None:
        if self.left:
            self.left -= 1
            raise busy("too many", -1)

    def __exit__(self, *_: object) -> None:
        del self._limits.spend


def test_a_busy_server_is_not_taken_for_one_that_has_removed_something():
    """429 says that nothing was done: not that it may have been, and its answer lost."""
    fence = Fence(id="f", subscriber="ann", object="o", region=Box(0, 0, 1, 1))

    async def later(url: str) -> None:
        async with AsyncClient(url) as client:
            await client.subscribe(fence)
            refusing.left = 1
            await client.unsubscribe("f")
            assert await client.things("fences") == ([], "")
            refusing.left = 1
            with pytest.raises(UnknownIdError):
                await client.unsubscribe("f")

    with serving() as server, Busy(server) as refusing, Client(server.url) as client:
        client.subscribe(fence)
        refusing.left = 1
        client.unsubscribe("f")
        assert client.things("fences") == ([], "")
        for remove in (client.unsubscribe, client.retract):
            refusing.left = 1
            with pytest.raises(UnknownIdError):
                remove("f")
        asyncio.run(later(server.url))


class Behind:
    """A server of fences behind a line that loses the answer of some tries."""

    def __init__(self, *tries: str) -> None:
        self.tries = [*tries]
        self.there = {"/v1/fences/f"}
        self.asked: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        status = 204 if path in self.there else 404
        self.there.discard(path)
        trouble = self.tries.pop(0) if self.tries else ""
        if trouble == "lost":
            raise httpx2.ReadError("it broke")
        if trouble:
            return httpx2.Response(int(trouble))
        return httpx2.Response(
            status, json={"field": "id", "value": "f"} if status == 404 else None
        )

    def client(self) -> Client:
        made = Client("http://there")
        made._http = httpx2.Client(
            base_url="http://there/v1", transport=httpx2.MockTransport(self), verify=False
        )
        return made


@pytest.mark.parametrize(
    "tries", [("", "lost"), ("lost",), ("", "504"), ("lost", "", "lost"), ("", "lost", "429")]
)
def test_what_a_lost_answer_had_removed_is_gone(tries: tuple[str, ...]):
    behind = Behind(*tries)
    with behind.client() as client:
        client.unsubscribe("f")
    assert not behind.there


def test_a_lost_answer_of_one_kind_does_not_end_the_search():
    behind = Behind("lost")  # of subscriptions, where it never was
    with behind.client() as client:
        client.unsubscribe("f")
    assert behind.asked == ["/v1/subscriptions/f"] * 2 + ["/v1/fences/f"]
    assert not behind.there


def test_a_phone_that_is_only_looked_at_tells():
    with serving() as server, Client(server.url) as client:
        client.subscribe(Subscription("s", "ann"))
        with client.phone("ann") as phone:
            assert phone.told() is None
            client.publish_many([Event("e"), Event("f")])
            found: list[str] = []
            until = time.monotonic() + 60
            while len(found) < 2 and time.monotonic() < until:
                told = phone.told()
                if told is None:
                    time.sleep(0.01)
                else:
                    found.append(told.event.id)
            assert found == ["e", "f"]


def test_a_phone_that_is_only_looked_at_comes_to_what_was_left_to_the_server(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(client_phone, "_WAITING", 3)
    with serving() as server, Client(server.url) as client:
        client.subscribe(Subscription("s", "ann"))
        with client.phone("ann") as phone:
            for number in range(20):
                client.publish(Event(f"e{number}"))
            assert client.page("ann", after=0).next == 20
            found: list[int | None] = []
            until = time.monotonic() + 60
            while len(found) < 20 and time.monotonic() < until:
                told = phone.told()
                if told is None:
                    time.sleep(0.01)
                else:
                    found.append(told.seq)
            assert found == [*range(1, 21)]


def slowly(publisher: Publisher) -> None:
    """Have its requests take a while to begin."""
    assert publisher._publisher is not None
    http = publisher._publisher._http
    request = http.request

    async def later(*of: Any, **more: Any) -> httpx2.Response:
        await asyncio.sleep(0.1)
        return await request(*of, **more)

    http.request = later  # type: ignore[method-assign]


def test_what_a_publisher_kept_back_last_is_sent_when_it_goes():
    def at(number: int) -> Event:
        return Event(f"p{number}", {"van": 1}, location=Point(20 + number / 10_000, 20))

    with serving() as server, Client(server.url) as client:
        with client.publisher("van") as van:
            slowly(van)
            assert van.publish(at(0)) is not None
            assert [van.publish(at(number)) for number in (1, 2)] == [None, None]
        logged, _ = client.log()
        assert [each.id for each in logged] == ["p0", "p2"]
        with client.publisher("van") as van:
            assert van.publish(at(3)) is not None
        assert len(client.log()[0]) == 3


# --- things that are paused -----------------------------------------------------------------------


def test_things_are_listed_whatever_stands_beside_them():
    made: list[Subscription | Fence] = [
        Subscription("s", "ann"),
        Fence(id="f", subscriber="ann", object="o", region=Box(0, 0, 1, 1)),
    ]
    both = Composite(id="c", subscriber="ann", text='STRING: kind = "never"')
    with serving(sink_private=True) as server, Client(server.url) as client:
        client.subscribe_many(made)
        client.detect(both)
        for path in ("subscriptions/s", "fences/f", "composites/c"):
            thing = client._http.get(f"/{path}").json() | {"sink": "http://127.0.0.1:9/"}
            client._http.put(f"/{path}", json=thing).raise_for_status()
            client.pause(path[-1])
            read = client._http.get(f"/{path}").json()
            assert (read["status"], read["sink"]) == ("INACTIVE", "http://127.0.0.1:9/")
            client._http.put(f"/{path}", json=read).raise_for_status()  # what was read is written
        assert client.things() == ([made[0]], "s")
        assert client.things("fences") == ([made[1]], "f")
        assert client.composites() == ([both], "c")
