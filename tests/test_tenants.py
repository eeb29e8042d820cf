"""Tenants behind one server: each is as if it were alone, has bounds and figures of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearcast import Broker, Event, Fence, Point, Polygon, Subscription
from nearcast.broker.memory import MemoryStore
from nearcast.errors import NearcastError
from nearcast.server.operations import OPERATIONS
from nearcast.server.run import Running
from tests.served import client, feature, make_keys, serving

IDS = st.sampled_from(("x0", "x1", "x2"))
WHO = st.integers(0, 1)
PEOPLE = st.sampled_from(("ann", "bob"))
#: What is looked at; streams and the pages are no requests that end.
LOOKS = [
    each
    for each in OPERATIONS
    if each.method == "GET" and not each.path.endswith("/stream") and each.roles is not None
]
_NUMBERS = count(1)
_SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
_SQUARE_JSON = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}


class Tenant:
    """One of two, with keys, and a broker that nobody else has: what it should see."""

    def __init__(self, server: Running, admin: httpx2.Client, name: str) -> None:
        self.name = self.mark = name
        self.alone = Broker("planar", store=MemoryStore())
        self.keys: dict[str, str] = {}
        self.names: list[str] = []
        for role, more in (("admin", None), ("subscribe", "ann"), ("publish", None)):
            said = {"role": role, "tenant": name} | ({"subscriber": more} if more else {})
            made = admin.post("/v1/keys", json=said).json()
            self.keys[role] = made["key"]
            self.names.append(made["name"])
        self._over = ExitStack()
        self.http = {
            role: self._over.enter_context(client(server, key)) for role, key in self.keys.items()
        }

    def close(self) -> None:
        self._over.close()

    def told(self, subscriber: str) -> list[tuple[Any, ...]]:
        page = self.alone.notifications(subscriber, 0, 1000)
        return [(each.seq, each.subscription_id, each.event.id) for each in page.notifications]


def _done(alone: Any) -> bool:
    try:
        alone()
    except (NearcastError, ValueError):
        return False
    return True


class Apart(RuleBasedStateMachine):
    """Two tenants do the same kinds of things under the same ids. What each is answered is what a
    broker of its own answers, and never has the other's mark in it."""

    server: ClassVar[Running]
    admin: ClassVar[httpx2.Client]

    @initialize()
    def begin(self) -> None:
        number = next(_NUMBERS)
        self.both = [Tenant(self.server, self.admin, f"{who}{number}q") for who in "ab"]

    def teardown(self) -> None:
        for each in getattr(self, "both", ()):
            each.close()

    def _ask(self, who: int, method: str, path: str, said: Any = None, role: str = "admin") -> Any:
        """Ask as a tenant; the other's mark is nowhere in the answer."""
        other = self.both[1 - who]
        answer = self.both[who].http[role].request(method, path, json=said)
        assert answer.status_code < 500, answer.text
        assert other.mark not in answer.text + str(answer.headers)
        return answer

    @rule(
        who=WHO, id=IDS, name=PEOPLE, wants=st.sampled_from(("all", "few", "mine", "car"))
    )  # fmt: skip
    def subscribe(self, who: int, id: str, name: str, wants: str) -> None:
        mine = self.both[who]
        wheres = {"all": None, "few": "n < 2", "mine": f"mark = '{mine.mark}'"}
        thing: Subscription | Fence
        if wants == "car":
            thing = Fence(id, name, "n", Polygon(_SQUARE), f"mark = '{mine.mark}'")
            said = {"object": "n", "region": _SQUARE_JSON,
                    "filters": [{"cql2": thing.where}], "subscriber": name}  # fmt: skip
            path = f"/v1/fences/{id}"
        else:
            where = wheres[wants]
            thing = Subscription(id, name, where)
            said = {"subscriber": name} | ({"filters": [{"cql2": where}]} if where else {})
            path = f"/v1/subscriptions/{id}"
        answer = self._ask(who, "PUT", path, said)
        there = id in mine.alone
        done = _done(lambda: mine.alone.subscribe(thing))
        assert answer.status_code == ((200 if there else 201) if done else 409), answer.text

    @rule(who=WHO, id=IDS, n=st.integers(0, 3), x=st.sampled_from((0.5, 7.0)))
    def publish(self, who: int, id: str, n: int, x: float) -> None:
        mine = self.both[who]
        said = feature(id, x, 0.5, n=n, mark=mine.mark)
        answer = self._ask(who, "POST", "/v1/events", said, "publish")
        event = Event(id, {"n": n, "mark": mine.mark}, location=Point(x, 0.5))
        done = _done(lambda: mine.alone.publish(event))
        assert answer.status_code == (200 if done else 409), answer.text

    @rule(who=WHO, id=IDS, role=st.sampled_from(("admin", "publish")))
    def retract(self, who: int, id: str, role: str) -> None:
        answer = self._ask(who, "DELETE", f"/v1/events/{id}", role=role)
        done = _done(lambda: self.both[who].alone.retract(id))
        assert answer.status_code == (204 if done else 404)

    @rule(who=WHO, id=IDS, kind=st.sampled_from(("subscriptions", "fences")))
    def end(self, who: int, id: str, kind: str) -> None:
        mine = self.both[who]
        thing = mine.alone.reading.thing(id)
        there = isinstance(thing, Subscription if kind == "subscriptions" else Fence)
        assert self._ask(who, "DELETE", f"/v1/{kind}/{id}").status_code == (204 if there else 404)
        if there:
            mine.alone.unsubscribe(id)

    @rule(who=WHO, name=PEOPLE)
    def pull(self, who: int, name: str) -> None:
        found = self._ask(who, "GET", f"/v1/subscribers/{name}/notifications?after=0").json()
        told = [(e["seq"], e["subscription"], e["event"]["id"]) for e in found["notifications"]]
        assert told == self.both[who].told(name)

    @rule(who=WHO, look=st.sampled_from(LOOKS), id=IDS | PEOPLE, role=st.sampled_from(("admin",)))
    def look(self, who: int, look: Any, id: str, role: str) -> None:
        self._ask(who, "GET", look.path.replace("{id}", id), role=role)

    @rule(who=WHO)
    def lists(self, who: int) -> None:
        mine = self.both[who]
        found = self._ask(who, "GET", "/v1/subscriptions").json()["subscriptions"]
        wanted = mine.alone.reading.things("subscription")
        assert [each["id"] for each in found] == [each.id for each in wanted]
        live = self._ask(who, "GET", "/v1/events").json()["features"]
        assert {each["id"] for each in live} == {
            event.id for _, event in mine.alone.reading.events(None, None)
        }
        logged = self._ask(who, "GET", "/v1/log").json()["events"]
        assert [each["id"] for each in logged] == [event.id for _, event in mine.alone.log()]
        keys = self._ask(who, "GET", "/v1/keys").json()["keys"]
        assert {each["name"] for each in keys} == set(mine.names)

    @rule(who=WHO, id=IDS, event=IDS)
    def tools(self, who: int, id: str, event: str) -> None:
        mine = self.both[who].alone
        answer = self._ask(who, "POST", "/v1/explain", {"subscription": id, "event": event})
        known = id in mine and _done(lambda: mine.reading.event(event))
        assert (answer.status_code == 404) == (not known)
        found = self._ask(who, "POST", "/v1/preview", {"filters": [{"cql2": "n >= 0"}]}).json()
        live = {each.id for _, each in mine.reading.events(None, None)}
        assert {each["id"] for each in found["features"]} == live

    @rule(who=WHO)
    def reach_over(self, who: int) -> None:
        """With its own keys nobody does anything to the other."""
        other = self.both[1 - who]
        theirs = self.both[who].http["admin"]
        said = {"role": "admin", "tenant": other.name}
        assert theirs.post("/v1/keys", json=said).status_code == 403
        for name in other.names:
            assert theirs.delete(f"/v1/keys/{name}").status_code == 404
        for path, value in (("/v1/backup", {"file": "/tmp/never"}),):
            assert theirs.post(path, json=value).status_code == 403
        for field in ("tenant", "source"):
            asked = theirs.get(f"/v1/log?{field}={other.name}")
            assert other.mark not in asked.text.replace(asked.url.query.decode(), "")

    @rule(who=WHO, name=st.sampled_from(("ann",)))
    def listen(self, who: int, name: str) -> None:
        """By a socket, from the beginning."""
        wanted = self.both[who].told(name)
        url = self.server.url.replace("http", "ws") + "/v1/socket"
        with connect(url, subprotocols=["nearcast.v1"]) as socket:  # type: ignore[list-item]
            key = self.both[who].keys["subscribe"]
            socket.send(json.dumps({"type": "hello", "key": key, "after": 0}))
            heard: list[tuple[Any, ...]] = []
            while len(heard) < len(wanted) or not heard:
                text = socket.recv(240)
                assert self.both[1 - who].mark not in str(text)
                frame = json.loads(text)
                if frame["type"] == "welcome" and not wanted:
                    break
                for each in frame.get("notifications", ()):
                    heard.append((each["seq"], each["subscription"], each["event"]["id"]))
            assert heard == wanted


@pytest.mark.slow
def test_two_tenants_are_each_as_if_they_were_alone(tmp_path: Path):
    (key,) = make_keys(tmp_path / "t.db", {"role": "admin"})
    with serving(tmp_path / "t.db", space="planar") as server, client(server, key) as admin:
        Apart.server, Apart.admin = server, admin
        machine = Apart.TestCase
        machine.settings = settings(
            max_examples=6, stateful_step_count=30, deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        )  # fmt: skip
        machine().runTest()


# --- bounds ------------------------------------------------------------------------------------


@pytest.fixture
def shops(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, ...]]:
    """A server with bounds, clients of two tenants and of whoever keeps the server."""
    keys = make_keys(
        tmp_path / "s.db", {"role": "admin"}, {"role": "admin", "tenant": "one"},
        {"role": "admin", "tenant": "two"},
    )  # fmt: skip
    with serving(tmp_path / "s.db", space="planar", **request.param) as server:
        made = [client(server, key) for key in keys]
        yield server, keys, *(each.__enter__() for each in made)
        for each in made:
            each.__exit__(None, None, None)


@pytest.mark.parametrize("shops", [{"tenant_things": 2, "tenant_events": 3}], indirect=True)
def test_things_and_events_of_a_tenant_are_bounded(shops: Any):
    _, _, _, one, two = shops
    for http in (one, two):
        for id in ("a", "b"):
            assert http.put(f"/v1/subscriptions/{id}", json={}).status_code == 201
        full = http.put("/v1/subscriptions/c", json={})
        assert full.status_code == 429
        assert "tenant_things" in full.json()["remedy"]
        assert http.put("/v1/subscriptions/a", json={"subscriber": "x"}).status_code == 200
        many = [{"id": "c"}, {"id": "b"}]
        assert http.post("/v1/subscriptions", json=many).status_code == 429
        three = {"type": "FeatureCollection", "features": [feature(f"e{i}") for i in range(3)]}
        assert http.post("/v1/events", json=three).status_code == 200
        assert http.post("/v1/events", json=three).json()["repeated"] == 3
        full = http.post("/v1/events", json=feature("e9"))
        assert full.status_code == 429
        assert "tenant_events" in full.json()["remedy"]
        assert http.delete("/v1/events/e0").status_code == 204
        assert http.post("/v1/events", json=feature("e9")).status_code == 200


@pytest.mark.parametrize("shops", [{"tenant_rate": 0.001}], indirect=True)
def test_requests_of_a_tenant_are_bounded_whatever_its_keys(shops: Any):
    _, _, keeper, one, two = shops
    made = keeper.post("/v1/keys", json={"role": "publish", "tenant": "one"})
    assert made.status_code == 429  # the keeper's tenant has a bound, too
    assert one.get("/v1/events").status_code == 429
    assert two.get("/v1/events").status_code == 429


@pytest.mark.parametrize("shops", [{"tenant_streams": 1}], indirect=True)
def test_streams_of_a_tenant_are_bounded(shops: Any):
    server, keys, _, one, two = shops
    url = server.url.replace("http", "ws") + "/v1/socket"
    head = {"Authorization": f"Bearer {keys[1]}"}
    with connect(url, additional_headers=head):
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=head)
        assert refused.value.response.status_code == 429
        with connect(url) as late:  # says who it is when it is in
            late.send(json.dumps({"type": "hello", "subscriber": "x", "key": keys[1]}))
            assert json.loads(late.recv(240))["problem"]["status"] == 429
        with two.stream("GET", "/v1/subscribers/x/stream") as stream:
            assert stream.status_code == 200
    for _ in range(2000):
        with one.stream("GET", "/v1/subscribers/x/stream") as stream:
            if stream.status_code == 200:
                break
    else:
        raise AssertionError("the place of a socket that is closed stays taken")


@pytest.mark.parametrize("shops", [{}], indirect=True)
def test_figures_of_a_tenant_are_its_own(shops: Any):
    _, _, keeper, one, two = shops
    one.put("/v1/subscriptions/a", json={"subscriber": "x"})
    one.post("/v1/events", json=feature("e1"))
    two.post("/v1/events", json=feature("e1"))
    mine, all_ = one.get("/metrics").text, keeper.get("/metrics").text
    assert 'nearcast_tenant_accepted_total{tenant="one"} 1.0' in mine
    assert 'nearcast_tenant_told_total{tenant="one"} 1.0' in mine
    assert 'nearcast_tenant_things{tenant="one"} 1.0' in mine
    assert '"two"' not in mine
    assert '""' not in mine
    assert "nearcast_commit_seconds" not in mine
    for tenant in ("one", "two"):
        assert f'nearcast_tenant_live_events{{tenant="{tenant}"}} 1.0' in all_
    assert 'nearcast_tenant_turn_seconds_total{tenant="two"}' in all_
