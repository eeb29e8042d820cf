"""Who may do what: every role against every path, tenants apart, keys out of sight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearcast.cli import app
from nearcast.server.documents import openapi
from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.run import Running
from nearcast.server.schemas import SCHEMAS
from nearcast.server.socket import FRAMES
from tests.served import client, feature, make_keys, serving

#: What design and docs promise, apart from the table in the code.
PUBLISH = {
    "POST /v1/events", "DELETE /v1/events/{id}", "POST /v1/check",
    "POST /v1/publishers/{id}/events", "GET /v1/publishers/{id}/stream",
}  # fmt: skip
READS = {"GET /openapi.json", "GET /asyncapi.json", "GET /docs"}
OPEN = {"GET /healthz", "GET /readyz", "GET /", "GET /static/{id}"}
SUBSCRIBE = {
    f"{verb} /v1/{kind}{id}"
    for kind in ("subscriptions", "fences", "composites")
    for verb, id in (("GET", ""), ("POST", ""), ("GET", "/{id}"), ("PUT", "/{id}"),
                     ("DELETE", "/{id}"), ("POST", "/{id}/pause"), ("POST", "/{id}/resume"))
} | {
    "POST /v1/check", "POST /v1/preview", "POST /v1/explain", "PUT /v1/subscribers/{id}/place",
    "GET /v1/subscribers/{id}/notifications", "GET /v1/subscribers/{id}/stream",
    "POST /v1/subscribers/{id}/ack",
    "GET /v1/sinks", "GET /v1/sinks/{id}", "POST /v1/sinks/{id}/resume",
    "POST /v1/sinks/{id}/replay", "GET /v1/dead-letters", "DELETE /v1/dead-letters",
    "GET /v1/dead-letters/{id}", "DELETE /v1/dead-letters/{id}",
    "POST /v1/dead-letters/{id}/replay",
}  # fmt: skip

Keys = dict[str, str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Keys]]:
    store = tmp_path_factory.mktemp("roles") / "x.db"
    names = ("admin", "publish", "other publish", "ann", "bob", "shop admin", "shop ann")
    keys = make_keys(
        store, {"role": "admin"}, {"role": "publish"}, {"role": "publish"},
        {"role": "subscribe", "subscriber": "ann"}, {"role": "subscribe", "subscriber": "bob"},
        {"role": "admin", "tenant": "shop"},
        {"role": "subscribe", "subscriber": "ann", "tenant": "shop"},
    )  # fmt: skip
    with serving(store) as server:
        yield server, dict(zip(names, keys, strict=True))


@pytest.fixture(scope="module")
def by(house: tuple[Running, Keys]) -> Iterator[Any]:
    """Clients by the name of their key."""
    server, keys = house
    made: dict[str, Any] = {}
    opened = []
    for name, key in [*keys.items(), ("nobody", None), ("guess", "nck_guess")]:
        each = client(server, key)
        opened.append(each)
        made[name] = each.__enter__()
    yield made
    for each in opened:
        each.__exit__(None, None, None)


def ask(http: httpx2.Client, operation: Operation, id: str) -> int:
    """The status of a request with the document's example for a body."""
    said = None if operation.takes is None else SCHEMAS[operation.takes]["example"]
    things = ("Subscription", "Fence", "Composite", "NewSubscription", "NewFence")
    if said is not None and operation.takes in things:
        said = {name: value for name, value in said.items() if name != "subscriber"}
    if operation.path.endswith("/stream"):
        with http.stream("GET", operation.path.replace("{id}", id)) as answer:
            return int(answer.status_code)
    path = operation.path.replace("{id}", id)
    return int(http.request(operation.method, path, json=said).status_code)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_every_role_against_every_path(by: Any, operation: Operation):
    name = f"{operation.method} {operation.path}"
    nobody = ask(by["nobody"], operation, "ann")
    assert (nobody == 401) == (name not in OPEN)
    assert (ask(by["publish"], operation, "ann") == 403) == (name not in PUBLISH | READS | OPEN)
    assert (ask(by["ann"], operation, "ann") == 403) == (name not in SUBSCRIBE | READS | OPEN)
    assert ask(by["admin"], operation, "ann") not in (401, 403)
    if "/subscribers/" in operation.path:
        assert ask(by["bob"], operation, "ann") == 404


def test_the_promised_paths_are_all_there():
    there = {f"{each.method} {each.path}" for each in OPERATIONS}
    assert there >= PUBLISH | READS | OPEN | SUBSCRIBE
    assert there >= {
        "GET /v1/events",
        "GET /v1/events/{id}",
        "GET /v1/log",
        "GET /v1/changes",
        "GET /metrics",
    }


def test_what_is_anothers_is_not_there(by: Any):
    ann, bob, admin = by["ann"], by["bob"], by["admin"]
    assert ann.put("/v1/subscriptions/mine", json={"keywords": ["x"]}).status_code == 201
    assert admin.get("/v1/subscriptions/mine").json()["subscriber"] == "ann"
    assert ann.put("/v1/subscriptions/theirs", json={"subscriber": "bob"}).status_code == 403
    for path in ("/v1/subscriptions/mine", "/v1/subscriptions/nobodys"):
        assert bob.get(path).status_code == 404
        assert bob.delete(path).status_code == 404
    seen = [bob.get(f"/v1/subscriptions/{id}").json() for id in ("mine", "none")]
    assert seen[0]["detail"].replace("mine", "none") == seen[1]["detail"]
    for kind, said in (
        ("subscriptions", {}),
        ("composites", {"text": 'Q(2)(STRING: a = "b")'}),
        ("fences", SCHEMAS["Fence"]["example"] | {"subscriber": "bob"}),
    ):
        assert bob.put(f"/v1/{kind}/mine", json=said).status_code == 409
    assert "mine" not in bob.get("/v1/subscriptions").text
    assert bob.post("/v1/explain", json={"subscription": "mine", "event": feature("e")}
                    ).status_code == 404  # fmt: skip
    assert ann.post("/v1/explain", json={"subscription": "mine", "event": feature("e")}
                    ).status_code == 200  # fmt: skip
    assert ann.delete("/v1/subscriptions/mine").status_code == 204


def test_a_publisher_retracts_its_own_only(house: tuple[Running, Keys], by: Any):
    publish, other = by["publish"], by["other publish"]
    assert publish.post("/v1/events", json=feature("own")).status_code == 200
    assert publish.post("/v1/events", json=[feature("own2"), feature("own3")]).status_code == 200
    by["admin"].post("/v1/events", json=feature("admin's"))
    for id in ("own", "own2", "admin's"):
        assert other.delete(f"/v1/events/{id}").status_code == 404
    for id, status in (("own", 204), ("own2", 204), ("admin's", 404)):
        assert publish.delete(f"/v1/events/{id}").status_code == status
    assert by["admin"].delete("/v1/events/own3").status_code == 204


def test_tenants_do_not_see_each_other(by: Any):
    admin, shop, ann = by["admin"], by["shop admin"], by["shop ann"]
    assert admin.put("/v1/subscriptions/t", json={"subscriber": "ann"}).status_code == 201
    assert shop.get("/v1/subscriptions/t").status_code == 404
    assert shop.put("/v1/subscriptions/t", json={"subscriber": "ann"}).status_code == 201
    shop.post("/v1/events", json=feature("shop's"))
    assert admin.get("/v1/events/shop's").status_code == 404
    assert "shop's" not in admin.get("/v1/log").text
    told = ann.get("/v1/subscribers/ann/notifications").json()["notifications"]
    assert [(each["seq"], each["event"]["id"]) for each in told] == [(1, "shop's")]
    assert "shop's" not in by["ann"].get("/v1/subscribers/ann/notifications").text
    assert "nearcast_commit_seconds" not in shop.get("/metrics").text
    assert shop.post("/v1/keys", json={"role": "admin", "tenant": "x"}).status_code == 403
    listed = shop.get("/v1/keys").json()["keys"]
    assert {each["tenant"] for each in listed} == {"shop"}
    theirs = next(e["name"] for e in admin.get("/v1/keys").json()["keys"] if not e["tenant"])
    assert shop.delete(f"/v1/keys/{theirs}").status_code == 404
    admin.delete("/v1/subscriptions/t")


def test_keys_come_and_go_while_it_runs(house: tuple[Running, Keys], by: Any):
    server, _ = house
    made = by["admin"].post("/v1/keys", json={"role": "subscribe", "subscriber": "eve"})
    assert made.status_code == 201
    with client(server, made.json()["key"]) as http:
        assert http.get("/v1/subscriptions").status_code == 200
        assert by["admin"].delete(f"/v1/keys/{made.json()['name']}").status_code == 204
        assert http.get("/v1/subscriptions").status_code == 401
    store = server.settings.store
    run = CliRunner().invoke(app, ["keys", "create", "--store", store, "--role", "admin"])
    assert run.exit_code == 0, run.output
    with client(server, run.stdout.strip()) as http:
        assert http.get("/v1/log").status_code == 200
    shown = CliRunner().invoke(app, ["keys", "list", "--store", store]).stdout
    assert "nck_" not in shown
    revoked = CliRunner().invoke(app, ["keys", "revoke", "--store", store, run.stdout.strip()])
    assert revoked.exit_code == 0, revoked.output
    with client(server, run.stdout.strip()) as http:
        assert http.get("/v1/log").status_code == 401


def test_a_backup_of_a_running_server(house: tuple[Running, Keys], by: Any, tmp_path: Path):
    by["admin"].put("/v1/subscriptions/kept", json={"subscriber": "ann"})
    copy = tmp_path / "copy.db"
    run = CliRunner().invoke(app, ["backup", "--store", house[0].settings.store, str(copy)])
    assert run.exit_code == 0, run.output
    again = by["admin"].post("/v1/backup", json={"file": str(copy)})
    assert again.status_code == 409
    (key,) = make_keys(copy, {"role": "admin"})
    with serving(copy) as server, client(server, key) as http:
        assert http.get("/v1/subscriptions/kept").status_code == 200


def test_wrong_keys_are_counted(tmp_path: Path):
    (key,) = make_keys(tmp_path / "g.db", {"role": "admin"})
    with serving(tmp_path / "g.db") as server:
        with client(server, "nck_no") as http:
            seen = [http.get("/v1/log").status_code for _ in range(22)]
            assert seen == [401] * 20 + [429] * 2
            assert int(http.get("/v1/log").headers["retry-after"]) >= 1
            with pytest.raises(InvalidStatus) as refused:
                connect(server.url.replace("http", "ws") + "/v1/socket", open_timeout=240,
                        additional_headers={"Authorization": "Bearer nck_no"})  # fmt: skip
            assert refused.value.response.status_code == 429
        with client(server, key) as http:  # others, behind the same proxy, guess at nothing
            assert http.get("/v1/log").status_code == 200


def test_without_keys_other_sites_are_refused():
    with serving() as server, client(server) as http:
        assert http.get("/v1/log", headers={"Origin": "https://evil.example"}).status_code == 403
        assert http.get("/v1/log", headers={"Host": "evil.example"}).status_code == 403
        assert http.get("/v1/log", headers={"Origin": server.url}).status_code == 200
        assert "access-control-allow-origin" not in http.get("/v1/log").headers


def test_a_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr("nearcast.server.limits.monotonic", lambda: now)
    one, other = make_keys(tmp_path / "r.db", {"role": "admin"}, {"role": "admin"})
    with serving(tmp_path / "r.db", rate=2.0) as server, client(server, one) as http:
        seen = [http.get("/v1/keys") for _ in range(6)]
        assert [each.status_code for each in seen] == [200] * 4 + [429] * 2
        assert int(seen[-1].headers["retry-after"]) >= 1
        with client(server, other) as another:  # each key has its own
            assert another.get("/v1/keys").status_code == 200
        now += 1.0
        assert [http.get("/v1/keys").status_code for _ in range(3)] == [200, 200, 429]


def test_counts_are_bounded(tmp_path: Path):
    admin, ann = make_keys(
        tmp_path / "c.db", {"role": "admin"}, {"role": "subscribe", "subscriber": "ann"}
    )
    with serving(tmp_path / "c.db", max_things=2) as server:
        with client(server, ann) as http:
            for n, status in enumerate((201, 201, 429)):
                assert http.put(f"/v1/subscriptions/{n}", json={}).status_code == status
            assert http.put("/v1/subscriptions/1", json={"keywords": ["a"]}).status_code == 200
        with client(server, admin) as http:
            assert http.put("/v1/subscriptions/9", json={"subscriber": "ann"}).status_code == 201


def test_no_key_is_logged_or_documented(house: tuple[Running, Keys], capfd: Any):
    from nearcast.server.logs import log, set_up

    set_up("info", "json")
    _, keys = house
    log.info("asked", path=f"/v1/events?key={keys['admin']}")
    said = capfd.readouterr().err
    assert keys["admin"] not in said
    assert "nck_…" in said
    assert set(openapi()["paths"]) == {each.path for each in OPERATIONS}


def test_every_frame_of_a_subscriber_is_about_its_own(house: tuple[Running, Keys], by: Any):
    """What may not be said is 403, what is another's is not there, a taken id is 409."""
    server, keys = house
    bobs = SCHEMAS["Subscription"]["example"] | {"id": "bob's", "subscriber": "bob"}
    assert by["admin"].put("/v1/subscriptions/bob's", json=bobs).status_code == 201
    fence = SCHEMAS["Fence"]["example"] | {"id": "f", "subscriber": "bob"}
    composite = SCHEMAS["Composite"]["example"] | {"id": "c", "subscriber": "bob"}
    mine = {"subscriber": "ann"}
    frames: list[tuple[dict[str, Any], int | None]] = [
        ({"type": "publish", "event": feature("e")}, 403),
        ({"type": "publish", "events": [feature("e")]}, 403),
        ({"type": "retract", "id": "e"}, 403),
        ({"type": "place", "subscriber": "bob", "coordinates": [0, 0]}, 404),
        ({"type": "ack", "subscriber": "bob", "upto": 0}, 404),
        ({"type": "subscribe", "subscription": bobs}, 403),
        ({"type": "subscribe", "subscription": bobs | mine}, 409),
        ({"type": "fence", "fence": fence}, 403),
        ({"type": "fence", "fence": fence | mine | {"id": "bob's"}}, 409),
        ({"type": "composite", "composite": composite}, 403),
        ({"type": "composite", "composite": composite | mine | {"id": "bob's"}}, 409),
        ({"type": "unsubscribe", "id": "bob's"}, 404),
        ({"type": "pause", "id": "bob's"}, 404),
        ({"type": "resume", "id": "bob's"}, 404),
        ({"type": "ping"}, None),
    ]
    assert {said["type"] for said, _ in frames} | {"hello"} == set(FRAMES)
    headers = {"Authorization": f"Bearer {keys['ann']}"}
    url = server.url.replace("http", "ws") + "/v1/socket"
    with connect(url, additional_headers=headers, open_timeout=120) as end:
        end.send('{"type": "hello"}')
        assert json.loads(end.recv(timeout=120))["subscriber"] == "ann"
        for ref, (said, status) in enumerate(frames):
            end.send(json.dumps(said | {"ref": ref}))
            while (heard := json.loads(end.recv(timeout=120))).get("ref") != ref:
                pass
            found = heard["problem"]["status"] if heard["type"] == "error" else None
            assert found == status, (said, heard)
    assert by["bob"].delete("/v1/subscriptions/bob's").status_code == 204


def test_keys_are_digests_on_the_disk(house: tuple[Running, Keys]):
    server, keys = house
    files = [path for path in Path(server.settings.store).parent.iterdir() if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    assert len(kept) > 10_000
    assert not any(key.encode() in kept for key in keys.values())


def test_a_key_in_a_url_is_none(house: tuple[Running, Keys], by: Any):
    _, keys = house
    assert by["nobody"].get(f"/v1/log?key={keys['admin']}").status_code == 401
    assert by["nobody"].get("/v1/log", params={"authorization": keys["admin"]}).status_code == 401


def test_cors_is_off(house: tuple[Running, Keys], by: Any):
    """No page of another site reads an answer: neither of a request nor of a preflight."""
    origin = {"Origin": "https://evil.example"}
    asked = origin | {"Access-Control-Request-Method": "PUT"}
    for answer in (
        by["admin"].get("/v1/log", headers=origin),
        by["admin"].options("/v1/subscriptions/s", headers=asked),
        by["nobody"].get("/healthz", headers=origin),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]
