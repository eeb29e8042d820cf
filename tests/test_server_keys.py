"""Keys that come and go while a server runs, and who is connected meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from nearcast.cli import app
from nearcast.errors import NearcastError
from nearcast.server import limits
from nearcast.server.auth import ANYBODY, OWNER, Keyring
from nearcast.server.demo import CityLife
from nearcast.server.run import Running
from nearcast.storage.keys import Key, digest_of, name_of
from tests.served import client, feature, make_keys, serving
from tests.test_server_streams import Talk, socket


def names(http: httpx2.Client) -> dict[str, str]:
    """Keys by role, and tenant where there is one."""
    keys = http.get("/v1/keys").json()["keys"]
    return {each["role"] + each["tenant"]: each["name"] for each in keys}


def on_loopback(server: Running, key: str | None = None) -> httpx2.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = f"http://127.0.0.1:{server.port}"
    return httpx2.Client(base_url=url, headers=headers, timeout=240, verify=False)


# --- a server that has no key any more --------------------------------------------------------


def test_without_its_last_key_a_server_on_the_network_answers_nobody(tmp_path: Path):
    store = tmp_path / "k.db"
    (key,) = make_keys(store, {"role": "admin"})
    with serving(store, host="0.0.0.0") as server, on_loopback(server, key) as admin:
        assert admin.delete(f"/v1/keys/{names(admin)['admin']}").status_code == 204
        with on_loopback(server) as nobody:
            assert nobody.get("/v1/log").status_code == 401
            assert nobody.post("/v1/keys", json={"role": "admin"}).status_code == 401
        assert admin.get("/v1/log").status_code == 401
        # whoever owns the store may still make one
        said = CliRunner().invoke(app, ["keys", "create", "--role", "admin", "--store", str(store)])
        assert said.exit_code == 0, said.output
        with on_loopback(server, said.stdout.strip()) as made:
            assert made.get("/v1/log").status_code == 200


def test_a_server_that_was_open_is_closed_for_good_by_its_first_key(tmp_path: Path):
    with serving(tmp_path / "k.db") as server, client(server) as nobody:
        key = nobody.post("/v1/keys", json={"role": "admin"}).json()["key"]
        assert nobody.get("/v1/log").status_code == 401
        with client(server, key) as admin:
            assert admin.delete(f"/v1/keys/{name_of(key)}").status_code == 204
        assert nobody.get("/v1/log").status_code == 401


def key(text: str) -> tuple[bytes, Key]:
    return digest_of(text), Key("", "admin", None, 0, name_of(text))


def asks(ring: Keyring, text: str | None = None) -> Any:
    headers = {"host": "localhost"}
    return ring.asks(headers if text is None else headers | {"authorization": f"Bearer {text}"})


def test_keys_that_are_all_gone_open_nothing():
    """As a server hears of them that shares its store."""
    ring = Keyring(open=True)
    ring.renew([])
    assert asks(ring) is ANYBODY
    ring.renew([key("a")])
    ring.renew([])
    assert asks(ring) is None
    assert not ring.holds(ANYBODY)
    assert ring.holds(OWNER)
    with pytest.raises(NearcastError, match="not known"):
        asks(ring, "a")
    assert asks(Keyring([key("a")])) is None
    assert asks(Keyring()) is None


# --- who is connected when a key goes -----------------------------------------------------------


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple[Running, httpx2.Client, str, str]]:
    """A server, its admin, and the keys of ann and of a tenant's admin."""
    store = tmp_path / "k.db"
    admin, ann, shop = make_keys(
        store, {"role": "admin"}, {"role": "subscribe", "subscriber": "ann"},
        {"role": "admin", "tenant": "shop"},
    )  # fmt: skip
    with serving(store) as server, client(server, admin) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"}).raise_for_status()
        yield server, http, ann, shop


def shown_out(end: ClientConnection) -> int:
    """The code with which a socket is closed, with nothing told before."""
    with pytest.raises(ConnectionClosed) as closed:
        end.recv(timeout=60)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def hear_on(end: ClientConnection, for_s: float = 60.0) -> None:
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        end.recv(timeout=60)


def test_a_revoked_key_loses_its_sockets(house: tuple[Running, httpx2.Client, str, str]):
    server, http, ann, _ = house
    with socket(server, ann) as one, socket(server) as other, socket(server, ann) as still:
        for end in (one, other, still):
            talk = Talk(end)
            talk.say("hello", **({"key": ann} if end is other else {}))
            assert talk.hear("welcome")["subscriber"] == "ann"
        http.delete(f"/v1/keys/{name_of(ann)}").raise_for_status()
        http.post("/v1/events", json=feature("secret")).raise_for_status()
        with suppress(ConnectionClosed):
            still.send('{"type":"subscribe","ref":1,"subscription":{"id":"s9"}}')
        assert [shown_out(end) for end in (one, other, still)] == [1008] * 3
    assert http.get("/v1/subscriptions/s9").status_code == 404


def test_other_keys_keep_theirs(house: tuple[Running, httpx2.Client, str, str]):
    server, http, ann, shop = house
    with socket(server, ann) as end:
        talk = Talk(end)
        talk.say("hello")
        talk.hear("welcome")
        http.delete(f"/v1/keys/{name_of(shop)}").raise_for_status()
        http.post("/v1/keys", json={"role": "publish"}).raise_for_status()
        http.post("/v1/events", json=feature("e")).raise_for_status()
        assert talk.hear("notifications")["next"] == 1
        assert talk.done("ping")


def test_a_revoked_key_loses_what_it_watches(house: tuple[Running, httpx2.Client, str, str]):
    server, http, _, shop = house
    url = server.url.replace("http", "ws") + "/v1/watch"
    with connect(url, additional_headers={"Authorization": f"Bearer {shop}"}) as end:
        end.send('{"type":"hello"}')
        end.recv(timeout=60)
        http.delete(f"/v1/keys/{name_of(shop)}").raise_for_status()
        with pytest.raises(ConnectionClosed) as closed:
            hear_on(end)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize("path", ["/v1/subscribers/ann/stream", "/v1/publishers/van/stream"])
def test_a_revoked_key_loses_its_streams(house: tuple[Running, httpx2.Client, str, str], path: str):
    server, http, ann, _ = house
    key = ann
    if "publishers" in path:
        key = http.post("/v1/keys", json={"role": "publish"}).json()["key"]
    with client(server, key) as its, its.stream("GET", path, timeout=10) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        http.delete(f"/v1/keys/{name_of(key)}").raise_for_status()
        http.post("/v1/events", json=feature("secret")).raise_for_status()
        assert not [line for line in lines if "secret" in line]  # and then it ends


def test_a_revoked_key_that_waits_is_told_nothing(
    house: tuple[Running, httpx2.Client, str, str],
):
    server, http, ann, _ = house
    found: list[httpx2.Response] = []

    def wait() -> None:
        with client(server, ann) as its:
            found.append(its.get("/v1/subscribers/ann/notifications?after=0&wait=30"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not server.desk.feeds.subscribers():
        time.sleep(0.01)
    http.delete(f"/v1/keys/{name_of(ann)}").raise_for_status()
    http.post("/v1/events", json=feature("secret")).raise_for_status()
    waiting.join(120)
    assert found[0].status_code == 401
    assert "secret" not in found[0].text


def test_who_needed_no_key_is_let_go_when_there_is_one(tmp_path: Path):
    with serving(tmp_path / "k.db") as server, client(server) as http, socket(server) as end:
        talk = Talk(end)
        talk.say("hello", subscriber="ann")
        talk.hear("welcome")
        http.post("/v1/keys", json={"role": "admin"}).raise_for_status()
        assert shown_out(end) == 1008


def test_the_city_goes_on_when_keys_come_and_go(tmp_path: Path):
    with serving(tmp_path / "k.db") as server, client(server) as http:
        lent = CityLife(server.desk, server.url)._key()
        assert http.get("/v1/log").status_code == 200  # it closes nothing
        with socket(server, lent) as end, client(server, lent) as city:
            talk = Talk(end)
            talk.say("hello", subscriber="ann")
            talk.hear("welcome")
            made = http.post("/v1/keys", json={"role": "admin"}).json()["key"]
            assert http.get("/v1/log").status_code == 401
            with client(server, made) as admin:
                assert [each["role"] for each in admin.get("/v1/keys").json()["keys"]] == ["admin"]
                admin.delete(f"/v1/keys/{name_of(made)}").raise_for_status()
            assert talk.done("ping")
            assert city.get("/v1/log").status_code == 200


def test_connections_end_with_their_keys_however_that_is_heard():
    ring = Keyring(open=True)
    ended: list[str] = []
    anybody = ring.staying(asks(ring), lambda: ended.append("anybody"))
    owner = ring.staying(OWNER, lambda: ended.append("owner"))
    ring.lend(*key("city"))
    lent = ring.staying(asks(ring, "city"), lambda: ended.append("city"))
    with anybody, owner, lent:
        ring.renew([key("a"), key("b")])
        assert ended == ["anybody"]
        a, b = (ring.staying(asks(ring, n), lambda n=n: ended.append(n)) for n in "ab")  # type: ignore[misc]
        with a, b:
            ring.renew([key("b")])
            assert ended == ["anybody", "a"]
            ring.drop(key("b")[0])
            assert ended == ["anybody", "a", "b"]
        late = asks(ring, "city")
        with ring.staying(late, lambda: ended.append("late")):
            ring.renew([])
    assert ended == ["anybody", "a", "b"]
    assert not ring._stays
    with ring.staying(ANYBODY, lambda: ended.append("too late")):
        assert ended[-1] == "too late"


# --- sockets that have shown no key yet ----------------------------------------------------------


def test_sockets_without_a_key_take_no_place_of_those_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (key,) = make_keys(tmp_path / "k.db", {"role": "admin"})
    monkeypatch.setattr(limits, "_STRANGERS", 3)
    with serving(tmp_path / "k.db", max_streams=2) as server, ExitStack() as strangers:
        ends = [strangers.enter_context(socket(server)) for _ in range(3)]
        with pytest.raises(InvalidStatus) as refused:
            socket(server)
        assert refused.value.response.status_code == 429
        with socket(server, key), client(server, key) as http:
            for end in ends[:2]:  # the second finds all places taken, as anybody would
                Talk(end).say("hello", subscriber="ann", key=key)
            assert Talk(ends[0]).hear("welcome")
            assert Talk(ends[1]).hear("error")["problem"]["status"] == 429
            assert http.get("/v1/subscribers/ann/stream").status_code == 429
            with socket(server):  # one has gone over to those with a key
                pass
        strangers.close()
        bounds = server.desk.limits
        until = time.monotonic() + 60
        while bounds.strangers or bounds.streams:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not bounds.streams_of.total()
