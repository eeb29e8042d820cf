"""Several servers on one PostgreSQL: one writes, the others look on and take its place."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from nearcast import Event, Subscription
from nearcast.client import Client
from nearcast.errors import StoreError
from nearcast.server.logs import set_up
from nearcast.server.run import Lasting
from nearcast.server.settings import Settings
from nearcast.storage.keys import Keys
from nearcast.storage.postgres import PostgresDatabase
from nearcast.storage.urls import parse_url
from tests.crowd import Crowd
from tests.doors import Door
from tests.killable import Killable
from tests.postgres import Postgres, shared_postgres
from tests.served import free_port

pytestmark = pytest.mark.needs("postgres")
_PATIENCE_S = 240.0
_SOME = 10


def waited(what: Callable[[], Any]) -> Any:
    """What there is as soon as there is something."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < until
        time.sleep(0.02)


def asked(url: str, path: str = "/readyz") -> int:
    try:
        return httpx2.get(url + path, timeout=_PATIENCE_S).status_code
    except httpx2.TransportError:
        return 0


@contextmanager
def lasting(store: str, **given: Any) -> Iterator[Lasting]:
    """A server in a thread, which may be a standby."""
    server = Lasting(Settings(store=store, port=free_port(), queue_s=600.0, **given))
    set_up("info", "console")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        waited(lambda: asked(server.running.url, "/readyz?reads") == 200)
        yield server
    finally:
        server.stop()
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def two(store: str) -> Iterator[tuple[Lasting, Lasting]]:
    """A writer and a standby."""
    with lasting(store) as first:
        assert waited(lambda: asked(first.running.url) == 200)
        with lasting(store) as second:
            assert asked(second.running.url) == 503
            yield first, second


def work(crowd: Crowd) -> None:
    """Let them publish some more."""
    done = len(crowd.promised().published)
    waited(lambda: len(crowd.promised().published) > done + _SOME)


def end_writer(postgres: Postgres) -> None:
    """The database ends the session that has a lock."""
    postgres.ask("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")


def hand_over(postgres: Postgres, writer: Lasting, standby: Lasting) -> None:
    """The writer loses the store, as often as it is the first to have it back."""
    urls = [each.running.url for each in (writer, standby)]
    while asked(urls[1]) != 200:
        before = writer.running
        end_writer(postgres)
        waited(lambda before=before: writer.running is not before)  # type: ignore[misc]
        waited(lambda: any(asked(url) == 200 for url in urls))


@pytest.fixture
def own() -> Iterator[Postgres]:
    """One that nobody else uses."""
    made = Postgres()
    made.start()
    yield made
    made.remove()


def test_a_server_that_was_replaced_acknowledges_nothing(own: Postgres):
    """Not even what a turn without a row in it would answer."""
    store = own.url()
    with lasting(store, tick_s=1000.0) as server:
        url = server.running.url
        assert waited(lambda: asked(url) == 200)
        drop = f"{url}/v1/dead-letters?sink=1"
        assert httpx2.delete(drop).json() == {"dropped": 0}
        taken = PostgresDatabase(parse_url(store), force=True)
        assert httpx2.delete(drop).status_code == 503
        taken.close()
        waited(lambda: asked(url) == 200)


def test_a_standby_serves_those_who_follow_and_takes_over(own: Postgres):
    with two(own.url()) as (first, second):
        there, here = first.running.url, second.running.url
        with Client(there) as writer, Client(here, patience_s=0) as standby:
            writer.subscribe(Subscription("s1", "ann"))
            writer.publish(Event("e1"))
            page = standby.page("ann", 0, 10, wait_s=60)
            assert [told.event.id for told in page.notifications] == ["e1"]
            followed: list[tuple[int | None, str]] = []

            def follow() -> None:
                with Client(here, patience_s=_PATIENCE_S) as patient:
                    for told in patient.notifications("ann", after=0, follow=True):
                        followed.append((told.seq, told.event.id))
                        if len(followed) == 4:
                            return

            thread = threading.Thread(target=follow)
            thread.start()
            writer.publish(Event("e2"))
            waited(lambda: len(followed) == 2)
            with pytest.raises(Exception, match=f"it stands by, and {there} writes"):
                standby.publish(Event("e9"))
            with pytest.raises(Exception, match=f"it stands by, and {there} writes"):
                standby.ack("ann", 1)
            assert [event.id for event in standby.log(0)[0]] == ["e1", "e2"]
            changes = httpx2.get(f"{here}/v1/changes").json()["changes"]
            assert [each["id"] for each in changes] == ["s1"]
            said = httpx2.get(f"{here}/readyz").json()
            assert there in said["detail"]
            hand_over(own, first, second)
            waited(lambda: asked(there, "/readyz?reads") == 200)
            assert asked(there) == 503
        with Client(here) as writer:
            assert writer.publish(Event("e2")).repeated == 1
            writer.publish(Event("e3"))
            writer.publish(Event("e4"))
            thread.join(_PATIENCE_S)
            assert followed == [(n, f"e{n}") for n in (1, 2, 3, 4)]
            writer.ack("ann", 4)
        with Client(there) as standby:
            waited(lambda: standby.page("ann", None, 10).next == 4)


def test_a_key_that_is_made_beside_counts_at_once():
    store = shared_postgres().place()
    url = shared_postgres().url(store.schema)
    with two(url) as (first, second):
        database = PostgresDatabase(store, guest=True)
        keys = Keys(database)
        key = keys.create("subscribe", 1, subscriber="ann")
        place = "/v1/subscribers/ann/notifications"
        for server in (first, second):
            at = server.running.url
            waited(lambda at=at: asked(at, place) == 401)  # type: ignore[misc]
            bearer = {"Authorization": f"Bearer {key}"}
            assert httpx2.get(at + place, headers=bearer).status_code == 200
            others = httpx2.get(at + "/v1/subscribers/bob/notifications", headers=bearer)
            assert others.status_code == 404
        keys.create("admin", 1)
        keys.revoke(key)
        for server in (first, second):
            url = server.running.url
            waited(lambda at=url: httpx2.get(at + place, headers=bearer).status_code == 401)  # type: ignore[misc]
        database.close()


def test_a_server_on_the_wrong_space_ends():
    url = shared_postgres().url()
    with lasting(url, space="planar"):
        pass
    with pytest.raises(StoreError, match="made with space='planar'"):
        Lasting(Settings(store=url, port=0)).run()


@pytest.mark.slow
def test_a_writer_that_is_killed_and_the_standby_that_goes_on():
    """Nothing that was answered is lost, nobody hears anything twice."""
    store = shared_postgres().url()
    rng = random.Random(4)
    with Killable(store) as one, Killable(store) as other, Door(int(one.url[-5:])) as door:
        waited(lambda: 200 in (asked(one.url), asked(other.url)))
        writer, standby = (one, other) if asked(one.url) == 200 else (other, one)
        door.to(int(writer.url.rpartition(":")[2]))
        with Crowd(door.url, seed=3) as crowd:
            for _ in range(3):
                work(crowd)
                time.sleep(rng.random() / 5)
                writer.kill()
                promise = crowd.promised()
                waited(lambda url=standby.url: asked(url) == 200)  # type: ignore[misc]
                door.to(int(standby.url.rpartition(":")[2]))
                crowd.check(promise)
                writer.start()
                writer, standby = standby, writer
            assert crowd.settle() > 3 * _SOME


@pytest.mark.slow
def test_a_database_that_is_killed_or_out_of_reach_under_a_server(own: Postgres):
    schema = own.place().schema
    with (
        Door(own.port) as way,
        lasting(own.url(schema, way.port)) as server,
        Crowd(server.running.url, seed=5) as crowd,
    ):
        for trouble in ("killed", "cut", "ended"):
            work(crowd)
            if trouble == "killed":
                own.kill()
                promise = crowd.promised()
                own.start()
            elif trouble == "cut":
                way.shut()
                promise = crowd.promised()
                waited(lambda: asked(server.running.url) != 200)
                waited(lambda: way.refused > 2)  # it tries, and cannot
                way.reopen()
            else:
                end_writer(own)
                promise = crowd.promised()
            url = server.running.url
            waited(lambda url=url: asked(url) == 200)  # type: ignore[misc]
            crowd.check(promise)
        assert crowd.settle() > 3 * _SOME
