"""Notifications sent to webhooks, by a server over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client
from standardwebhooks.webhooks import Webhook
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.server.run import Running
from nearcast.server.sinks.addresses import Allowed
from nearcast.server.sinks.engine import Engine
from nearcast.server.sinks.names import Names, RefusedError
from nearcast.server.sinks.ports import DELIVERED, Letter, Outcome, Terms, letter_id, retry
from tests.hooks import OK, Hook, Request, answers, hooking, takes
from tests.postgres import shared_postgres
from tests.served import client, feature, make_keys, serving

#: Quick, for a test does not want to wait.
QUICK: dict[str, Any] = {
    "sink_private": True, "sink_backoff_s": 0.01, "sink_backoff_max_s": 0.05, "tick_s": 0.05,
}  # fmt: skip


def until(what: Callable[[], Any], patience_s: float = 120) -> Any:
    """Wait for something to be so."""
    end = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)
    return found


def wish(hook: Hook, **more: Any) -> dict[str, Any]:
    return {"subscriber": "ann", "filters": [{"cql2": "price < 10"}], "sink": hook.url} | more


def begin(asks: Client, hook: Hook, id: str = "s", **more: Any) -> dict[str, Any]:
    answer = asks.put(f"/v1/subscriptions/{id}", json=wish(hook, **more))
    assert answer.status_code in (200, 201), answer.text
    said: dict[str, Any] = answer.json()
    return said


def publish(asks: Client, *ids: str, price: int = 3) -> None:
    for id in ids:
        assert asks.post("/v1/events", json=feature(id, price=price)).status_code == 200


def acknowledged(asks: Client, name: str = "ann") -> int:
    page = asks.get(f"/v1/subscribers/{name}/notifications", params={"limit": 1}).json()
    notifications = page["notifications"]
    return int(notifications[0]["seq"]) - 1 if notifications else int(page["next"])


def state(server: Running, number: int = 1) -> dict[str, Any]:
    runner = server.desk.sinks.runner("", number)
    assert runner is not None
    return {"delivered": runner.delivered, "dead": runner.dead, "failed": runner.failed}


def test_a_webhook_is_signed_and_is_what_a_pull_would_say():
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        publish(asks, "before")
        done = begin(asks, hook)
        secret = done["protocolsettings"]["secret"]
        publish(asks, "e1", "e2")
        pulled = asks.get("/v1/subscribers/ann/notifications", params={"after": 0}).json()
        until(lambda: len(hook.requests) == 3)
    assert [each.said for each in hook.requests] == pulled["notifications"]
    assert [each["event"]["id"] for each in pulled["notifications"]] == ["before", "e1", "e2"]
    verifies = Webhook(secret)
    for each in hook.requests:
        assert verifies.verify(each.body, each.headers) == each.said
    ids = [each.headers["webhook-id"] for each in hook.requests]
    assert len({*ids}) == 3
    assert not any("." in id for id in ids)
    assert hook.connections == 1, "a connection is used again"


def test_what_a_sink_has_is_acknowledged():
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        begin(asks, hook)
        publish(asks, "e1", "e2", "e3")
        until(lambda: acknowledged(asks) == 3)
        assert hook.seqs == [1, 2, 3]


def test_a_subscriber_who_reads_himself_acknowledges_himself():
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        begin(asks, hook)
        begin(asks, hook, "other", sink=None)
        publish(asks, "e1")
        until(lambda: len(hook.requests) == 1)
        time.sleep(1.5)  # longer than it takes a cursor to follow
        assert acknowledged(asks) == 0
        assert [each.said["subscription"] for each in hook.requests] == ["s"]


def has(server: Running, upto: int, number: int = 1) -> None:
    """Wait until a sink has come to a number; what follows from that is entered with it."""
    until(lambda: server.house.sinks("").upto(number) == upto)


def pulled(asks: Client, name: str = "ann") -> list[tuple[int, str]]:
    page = asks.get(f"/v1/subscribers/{name}/notifications").json()
    assert page["lost"] == 0
    return [(each["seq"], each["subscription"]) for each in page["notifications"]]


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("ends", ["enough", "deleted", "before the sink was there"])
def test_what_went_to_no_sink_waits_for_its_reader_though_its_thing_has_ended(
    ends: str, kind: str, tmp_path: Path
):
    store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/a.db"
    with hooking() as (hook,), serving(store, **QUICK) as server, client(server) as asks:
        terms = {"config": {"subscriptionMaxEvents": 1}} if ends == "enough" else {}
        begin(asks, hook, "own", sink=None, **terms)
        if ends.startswith("before"):
            publish(asks, "e1")
            assert asks.delete("/v1/subscriptions/own").status_code == 204
            begin(asks, hook)
        else:
            begin(asks, hook)
            publish(asks, "e1")
        if ends == "deleted":
            assert asks.delete("/v1/subscriptions/own").status_code == 204
        publish(asks, "e2")
        has(server, 3)
        found = pulled(asks)
        assert [seq for seq, _ in found] == [1, 2, 3], "nobody has acknowledged anything"
        (own,) = [seq for seq, thing in found if thing == "own"]
        said = asks.post("/v1/subscribers/ann/ack", json={"upto": own})
        assert said.status_code in (200, 204)
        publish(asks, "e3")  # from here on all of it goes to the sink again
        until(lambda: acknowledged(asks) == 4)


def test_what_went_to_no_sink_waits_for_its_reader_after_a_restart(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/a.db"
    with hooking(answers(500)) as (hook,):
        with serving(store, **QUICK) as server, client(server) as asks:
            begin(asks, hook)
            begin(asks, hook, "own", sink=None)
            publish(asks, "e1")
            assert asks.delete("/v1/subscriptions/own").status_code == 204
            publish(asks, "e2")
            until(lambda: hook.requests)
        with serving(store, **QUICK) as server, client(server) as asks:
            hook.behave = takes
            has(server, 3)
            assert [seq for seq, _ in pulled(asks)] == [1, 2, 3]
        with serving(store, **QUICK) as server, client(server) as asks:
            publish(asks, "e3")
            has(server, 4)
            found = pulled(asks)
            assert [seq for seq, _ in found] == [1, 2, 3, 4]
            (own,) = [seq for seq, thing in found if thing == "own"]
            asks.post("/v1/subscribers/ann/ack", json={"upto": own})
            publish(asks, "e4")
            until(lambda: acknowledged(asks) == 5)


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
)
def test_what_all_goes_to_sinks_is_acknowledged_after_a_restart(kind: str, tmp_path: Path):
    """One sink is past a thing that has ended, and knows it no more; the other is far behind."""
    store = f"sqlite:///{tmp_path}/a.db"
    if kind == "postgresql":
        store = shared_postgres().url()
    with hooking(takes, answers(500)) as (quick, slow):
        with serving(store, **QUICK) as server, client(server) as asks:
            begin(asks, slow)
            publish(asks, "e1")
            begin(asks, quick, "once", config={"subscriptionMaxEvents": 1})
            begin(asks, quick, "more")
            publish(asks, "e2")
            has(server, 5, 2)
            assert acknowledged(asks) == 0
        slow.behave = takes
        with serving(store, **QUICK) as server, client(server) as asks:
            until(lambda: acknowledged(asks) == 5)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_sink_is_shown_without_its_secrets(kind: str, tmp_path: Path):
    store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/a.db"
    with hooking() as (hook,), serving(store, **QUICK) as server, client(server) as asks:
        settings = {"headers": {"Authorization": "Bearer of-bad-news"}, "flight": 4}
        made = begin(asks, hook, protocolsettings=settings)["protocolsettings"]["secret"]
        for path in ("/v1/subscriptions/s", "/v1/subscriptions"):
            text = asks.get(path).text
            assert "of-bad-news" not in text
            assert made not in text
        shown = asks.get("/v1/subscriptions/s").json()
        assert shown["sink"] == hook.url
        assert shown["protocol"] == "HTTP"
        assert shown["protocolsettings"] == {"headers": {"Authorization": None}, "flight": 4}
        again = asks.put("/v1/subscriptions/s", json=shown)  # what was read may be written
        assert again.status_code == 200
        assert "protocolsettings" not in again.json(), "the secret stays as it was"
        publish(asks, "e1")
        until(lambda: hook.requests)
        assert hook.requests[0].headers["authorization"] == "Bearer of-bad-news"
        Webhook(made).verify(hook.requests[0].body, hook.requests[0].headers)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("fences", {"object": "truck", "region": {"type": "Circle", "coordinates": [0, 0],
                                                  "radius_m": 1000}}),
        ("composites", {"text": 'Q(1)(STRING: kind = "alarm")'}),
    ],
)  # fmt: skip
def test_fences_and_composites_have_sinks_too(path: str, body: dict[str, Any]):
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        body = {"subscriber": "ops", "sink": hook.url} | body
        assert asks.put(f"/v1/{path}/t", json=body).status_code == 201
        assert asks.get(f"/v1/{path}/t").json()["sink"] == hook.url
        event = feature("e1", 0.0, 0.0, truck="7", kind="alarm")
        assert asks.post("/v1/events", json=event).status_code == 200
        until(lambda: hook.requests)
        assert hook.requests[0].said["subscription"] == "t"
        body.pop("sink")
        assert asks.put(f"/v1/{path}/t", json=body).status_code == 200
        assert "sink" not in asks.get(f"/v1/{path}/t").json()


def test_so_many_are_on_their_way_and_no_more():
    flying: list[int] = [0, 0]

    async def slow(_: Hook, __: Request, ___: asyncio.StreamWriter) -> bytes:
        flying[0] += 1
        flying[1] = max(flying)
        await asyncio.sleep(0.02)
        flying[0] -= 1
        return OK

    more = QUICK | {"sink_queue": 8}  # most of it is read from the store
    with hooking(slow) as (hook,), serving(**more) as server, client(server) as asks:
        begin(asks, hook, protocolsettings={"flight": 3})
        features = [feature(f"e{i}", price=3) for i in range(60)]
        body = {"type": "FeatureCollection", "features": features}
        assert asks.post("/v1/events", json=body).status_code == 200
        until(lambda: acknowledged(asks) == 60)
        assert sorted(hook.seqs) == [*range(1, 61)]
        assert flying[1] == 3


def test_failures_are_tried_again_in_order_under_the_same_id():
    behave = answers(500, 503, 429, 200)
    with hooking(behave) as (hook,), serving(**QUICK) as server, client(server) as asks:
        begin(asks, hook)
        publish(asks, "e1", "e2")
        until(lambda: acknowledged(asks) == 2)
    assert hook.seqs == [1, 1, 1, 1, 2]
    assert len({each.headers["webhook-id"] for each in hook.requests}) == 2


def test_after_the_last_try_and_where_it_helps_nothing_it_is_a_dead_letter():
    behave = answers(500, 500, 422, 200)
    settings = QUICK | {"sink_attempts": 2}
    with hooking(behave) as (hook,), serving(**settings) as server, client(server) as asks:
        begin(asks, hook)
        publish(asks, "e1", "e2", "e3")
        until(lambda: acknowledged(asks) == 3)
        assert hook.seqs == [1, 1, 2, 3]
        letters = server.house.letters("").page(0, 10)
        assert [(each.seq, each.tries, each.thing) for each in letters] == [
            (1, 2, "s"),
            (2, 1, "s"),
        ]
        assert "answered 500" in letters[0].why
        assert "answered 422" in letters[1].why
        assert letters[0].body == hook.requests[0].body.decode()
        assert state(server) == {"delivered": 1, "dead": 2, "failed": 3}


def test_it_goes_on_after_a_restart(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/a.db"
    with hooking(answers(500), takes) as (bad, good):
        with serving(store, **QUICK) as server, client(server) as asks:
            begin(asks, bad)
            begin(asks, good, "t", subscriber="bob")
            publish(asks, "e1", "e2")
            until(lambda: bad.requests and acknowledged(asks, "bob") == 2)
            assert acknowledged(asks) == 0
        bad.behave = takes
        before = len(bad.requests)
        with serving(store, **QUICK) as server, client(server) as asks:
            publish(asks, "e3")
            until(lambda: acknowledged(asks) == acknowledged(asks, "bob") == 3)
    assert bad.seqs[before:] == [1, 2, 3]
    assert good.seqs == [1, 2, 3]
    assert len({each.headers["webhook-id"] for each in bad.requests}) == 3


def test_ids_of_letters_are_of_one_store():
    places = [("a", "t", "ann"), ("b", "t", "ann"), ("a", "", "ann"), ("a", "t", "bob")]
    assert len({letter_id(*each) for each in places}) == 4


def test_no_two_notifications_have_one_id_in_whatever_store(tmp_path: Path):
    """The same subscriber and number: in another store, and in one that was put back."""
    a, b, c = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    with hooking() as (hook,):
        for store, event in ((a, "e1"), (b, "e1")):
            with serving(f"sqlite:///{store}", **QUICK) as server, client(server) as asks:
                begin(asks, hook)
                publish(asks, event)
                until(lambda: acknowledged(asks) == 1)
                if store == a:
                    assert asks.post("/v1/backup", json={"file": str(c)}).status_code == 200
        for store, event in ((a, "e2"), (c, "e3")):
            with serving(f"sqlite:///{store}", **QUICK) as server, client(server) as asks:
                publish(asks, event)
                until(lambda: acknowledged(asks) == 2)
    assert hook.seqs == [1, 1, 2, 2]
    assert len({each.headers["webhook-id"] for each in hook.requests}) == 4


def test_what_was_told_before_a_thing_ended_is_still_sent():
    with hooking(answers(500)) as (hook,), serving(**QUICK) as server, client(server) as asks:
        begin(asks, hook)
        publish(asks, "e1", "e2")
        until(lambda: hook.requests)
        assert asks.delete("/v1/subscriptions/s").status_code == 204
        publish(asks, "e3")
        before = len(hook.requests)
        hook.behave = takes
        until(lambda: server.desk.sinks.runner("", 1) is None)
        assert {*hook.seqs[before:]} == {1, 2}
        assert hook.seqs[-1] == 2


def test_a_sink_that_is_gone_is_left_alone_until_it_is_named_again():
    with hooking(answers(410, 200)) as (hook,), serving(**QUICK) as server, client(server) as asks:
        begin(asks, hook, protocolsettings={"flight": 2})
        publish(asks, "e1")
        until(lambda: hook.requests)
        until(lambda: server.house.sinks("").disabled(1))
        publish(asks, "e2")
        time.sleep(0.5)
        assert hook.seqs == [1]
        begin(asks, hook, protocolsettings={"flight": 2})
        until(lambda: acknowledged(asks) == 2)
        assert sorted(hook.seqs) == [1, 1, 2]


def test_private_addresses_are_refused_at_once_or_when_they_are_found():
    with hooking() as (hook,), serving() as server, client(server) as asks:
        for host in ("127.0.0.1", "[::1]", "10.1.2.3", "169.254.169.254", "localhost",
                     "[::ffff:127.0.0.1]", "0.0.0.0", "100.64.1.1", "224.0.0.1",
                     "1.1.1.1%x.example.org", "[2600::1%25x]", "a%2eb"):  # fmt: skip
            answer = asks.put(
                "/v1/subscriptions/s", json=wish(hook, sink=f"http://{host}:{hook.port}/")
            )
            assert answer.status_code == 422, host
            assert answer.json()["field"] == "sink"
        begin(asks, hook, sink=f"http://127.1:{hook.port}/")  # a name, as far as anybody can see
        publish(asks, "e1")
        runner = until(lambda: server.desk.sinks.runner("", 1))
        until(lambda: runner.why)
        assert "private" in runner.why
        assert not hook.requests


@pytest.mark.parametrize("name", ["1.1.1.1%x.example.org", "2600::1%x", "%31.1.1.1", "10.0.0.1"])
def test_what_looks_like_a_public_address_is_none_if_it_has_more_behind(name: str):
    async def run() -> None:
        names = Names(Allowed(), lambda *_: ["1.1.1.1"])  # whoever answers for the name says so
        with pytest.raises(RefusedError):
            await names.addresses(name, 443)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "address"),
    [("1.1.1.1", "1.1.1.1"), ("2600:0:0::1", "2600::1"), ("example.org", "9.9.9.9")],
)
def test_what_is_connected_to_is_the_address_that_was_checked(name: str, address: str):
    async def run() -> None:
        assert await Names(Allowed(), lambda *_: ["9.9.9.9"]).addresses(name, 443) == [address]

    asyncio.run(run())


def letters(asks: Client, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asks.get("/v1/dead-letters", params=query).json()["dead_letters"]
    return found


def test_dead_letters_are_looked_at_replayed_and_dropped():
    settings = QUICK | {"sink_attempts": 1}
    with hooking(answers(500)) as (hook,), serving(**settings) as server, client(server) as asks:
        begin(asks, hook)
        publish(asks, *(f"e{i}" for i in range(5)))
        until(lambda: len(letters(asks)) == 5)
        sink = asks.get("/v1/sinks").json()["sinks"][0]
        assert sink["state"] in ("open", "half-open")
        assert sink["dead"] == sink["failed"] == 5
        assert "500" in sink["why"]
        one = letters(asks, limit=1, sink=sink["id"])[0]
        assert one["notification"] == hook.requests[0].said
        assert asks.get(f"/v1/dead-letters/{one['id']}").json() == one
        assert [each["id"] for each in letters(asks, after=2)] == ["3", "4", "5"]

        # What fails once more is still there, and says so.
        assert asks.post("/v1/dead-letters/1/replay").status_code == 202
        until(lambda: letters(asks)[0]["tries"] == 2)
        assert not letters(asks)[0]["replaying"]

        hook.behave = takes
        before = len(hook.requests)
        assert asks.post("/v1/dead-letters/2/replay").json() == {"replaying": 1}
        assert asks.post(f"/v1/sinks/{sink['id']}/resume").status_code == 200
        until(lambda: [each["id"] for each in letters(asks)] == ["1", "3", "4", "5"])
        assert hook.seqs[before:] == [2]
        same = {each.headers["webhook-id"] for each in hook.requests if each.said["seq"] == 2}
        assert len(same) == 1
        assert asks.delete("/v1/dead-letters/3").status_code == 204
        assert asks.delete("/v1/dead-letters/3").status_code == 404
        assert asks.post("/v1/sinks/1/replay").json() == {"replaying": 3}
        until(lambda: not letters(asks))
        assert sorted(hook.seqs[before:]) == [1, 2, 4, 5]


def test_dead_letters_go_where_their_thing_sends_now_or_are_dropped(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/a.db"
    settings = QUICK | {"sink_attempts": 1}
    with hooking(answers(500), takes) as (bad, good):
        with serving(store, **settings) as server, client(server) as asks:
            begin(asks, bad)
            publish(asks, "e1", "e2")
            until(lambda: len(letters(asks)) == 2)
            begin(asks, good)
            assert asks.post("/v1/dead-letters/1/replay").status_code == 202
            until(lambda: len(letters(asks)) == 1)
            assert good.seqs == [1]
            assert asks.delete("/v1/subscriptions/s").status_code == 204
            until(lambda: not asks.get("/v1/sinks").json()["sinks"])
            assert asks.post("/v1/dead-letters/2/replay").status_code == 409
        with serving(store, **settings) as server, client(server) as asks:
            assert [each["id"] for each in letters(asks)] == ["2"]
            assert asks.delete("/v1/dead-letters", params={"sink": 1}).json() == {"dropped": 1}
            assert not letters(asks)


def test_nobody_sees_anothers_sinks_and_letters(tmp_path: Path):
    store = tmp_path / "a.db"
    admin, ann, bob = make_keys(
        store, {"role": "admin"}, {"role": "subscribe", "subscriber": "ann"},
        {"role": "subscribe", "subscriber": "bob"},
    )  # fmt: skip
    settings = QUICK | {"sink_attempts": 1}
    with (
        hooking(answers(500)) as (hook,),
        serving(store, **settings) as server,
        client(server, ann) as hers,
        client(server, bob) as his,
        client(server, admin) as all,
    ):
        begin(hers, hook)
        publish(all, "e1")
        until(lambda: letters(hers))
        assert len(hers.get("/v1/sinks").json()["sinks"]) == 1
        assert len(letters(all)) == len(letters(all, subscriber="ann")) == 1
        assert not his.get("/v1/sinks").json()["sinks"]
        assert not letters(his)
        assert not letters(his, sink=1)
        for method, path in [
            ("GET", "/v1/sinks/1"), ("POST", "/v1/sinks/1/replay"),
            ("POST", "/v1/sinks/1/resume"), ("GET", "/v1/dead-letters/1"),
            ("DELETE", "/v1/dead-letters/1"), ("POST", "/v1/dead-letters/1/replay"),
        ]:  # fmt: skip
            assert his.request(method, path).status_code == 404, path
        assert his.delete("/v1/dead-letters?sink=1").json() == {"dropped": 0}
        assert len(letters(hers)) == 1


def test_metrics_say_what_becomes_of_notifications():
    settings = QUICK | {"sink_attempts": 2}
    with (
        hooking(answers(500, 500, 200)) as (hook,),
        serving(**settings) as server,
        client(server) as asks,
    ):
        begin(asks, hook)
        publish(asks, "e1", "e2")
        until(lambda: acknowledged(asks) == 2)
        text = asks.get("/metrics").text
    labels = '{protocol="HTTP",sink="1",subscriber="ann",tenant=""}'
    for name, value in [("delivered", 1), ("failed", 2), ("retried", 1), ("dead", 1)]:
        assert f'nearcast_sent_total{{protocol="HTTP",result="{name}"}} {value}.0' in text
        assert f"nearcast_sink_{name}_total{labels} {value}.0" in text
    assert f"nearcast_sink_waiting{labels} 0.0" in text
    assert 'nearcast_dead_letters{tenant=""} 1.0' in text
    assert 'nearcast_sinks{state="closed"} 1.0' in text


def test_the_command_line_lists_replays_and_drops(tmp_path: Path):
    store = str(tmp_path / "a.db")
    settings = QUICK | {"sink_attempts": 1}
    runs = CliRunner()

    def run(*words: str) -> str:
        done = runs.invoke(app, ["letters", *words, "--store", store])
        assert done.exit_code == 0, done.output
        return done.output

    with (
        hooking(answers(500)) as (hook,),
        serving(store, **settings) as server,
        client(server) as asks,
    ):
        begin(asks, hook)
        publish(asks, "e1", "e2", "e3")
        until(lambda: len(letters(asks)) == 3)
        listed = run("list", "--sink", "1")
        assert "answered 500" in listed
        assert len(listed.splitlines()) == 4
        hook.behave = takes
        run("replay", "1")
        until(lambda: len(letters(asks)) == 2)
        run("drop", "2")
        assert run("replay", "--sink", "1").strip() == "1"
        until(lambda: not letters(asks))
        assert run("drop", "--sink", "1").strip() == "0"
    assert sorted(hook.seqs) == [1, 1, 2, 3, 3]


class Moody:
    """A way to a sink that takes several at once, in order, and fails at first."""

    terms = Terms(flight=1, batch=10, exact=True)

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.seqs: list[int] = []

    async def begin(self, upto: int, last: int) -> int:
        return upto

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        self.failures -= 1
        if self.failures >= 0:
            return [retry("not in the mood")] * len(letters)
        self.seqs += [each.seq for each in letters]
        return [DELIVERED] * len(letters)

    async def close(self) -> None:
        pass


def test_one_that_fails_alone_stays_before_those_that_follow_it(monkeypatch: pytest.MonkeyPatch):
    """An open circuit tries one of a batch; what it tries again must not be overtaken."""
    moody = Moody(8)
    monkeypatch.setattr(Engine, "open", lambda *_: moody)
    settings = QUICK | {"sink_circuit": 1}
    with hooking() as (hook,), serving(**settings) as server, client(server) as asks:
        begin(asks, hook)
        batch = [feature(f"e{n}", price=3) for n in range(30)]
        said = {"type": "FeatureCollection", "features": batch}
        assert asks.post("/v1/events", json=said).status_code == 200
        until(lambda: len(moody.seqs) == 30)
    assert moody.seqs == [*range(1, 31)]
