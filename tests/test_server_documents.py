"""The documents tell the truth: examples work, and answers to generated requests fit them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS
from websockets.sync.client import connect

from nearcast.server.documents import asyncapi, openapi
from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.run import Running
from nearcast.server.schemas import FRAMES_IN, FRAMES_OUT, SCHEMAS, WATCH_IN, WATCH_OUT
from nearcast.server.socket import FRAMES
from nearcast.server.watch import FRAMES as WATCHED
from tests.served import client, serving

CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
schema = schemathesis.openapi.from_dict(openapi())
#: Streams do not end, pages are no JSON; the others write where they are told, or ask for a store.
asked = schema.exclude(path_regex="/stream$|^/v1/keys|^/v1/backup|^/$|^/static")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(poll_s=0.01) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


def fits(value: Any, wanted: Any, components: Any) -> None:
    """Whether a value is what a schema of a document says."""
    jsonschema_rs.validate(wanted | {"components": components}, value)


@asked.parametrize()
@settings(
    max_examples=3, deadline=None, database=None, derandomize=True,
    suppress_health_check=[*HealthCheck],
)  # fmt: skip
def test_answers_fit_the_document(case: Any, server: Running):
    chosen = [check for check in CHECKS.get_all() if check.__name__ in CHECKED]
    assert len(chosen) == len(CHECKED)
    case.call_and_validate(base_url=server.url, checks=chosen)


def test_every_path_is_in_the_document():
    paths = openapi()["paths"]
    there = {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
    assert there == {f"{each.method} {each.path}" for each in OPERATIONS}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_example_is_what_its_schema_says(name: str):
    if "example" in SCHEMAS[name]:
        fits(SCHEMAS[name]["example"], SCHEMAS[name], openapi()["components"])


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.takes and each.path not in ("/v1/keys", "/v1/backup")],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_every_example_of_a_body_is_taken(http: httpx2.Client, operation: Operation):
    assert operation.takes is not None
    path = operation.path.replace("{id}", f"example {operation.takes}")
    said = SCHEMAS[operation.takes]["example"] | ({"upto": 0} if operation.takes == "Ack" else {})
    answer = http.request(operation.method, path, json=said)
    assert answer.status_code in operation.statuses, answer.text
    fits(answer.json(), SCHEMAS[operation.gives or ""], openapi()["components"])


def test_the_frames_are_those_of_the_document(server: Running):
    document = asyncapi()
    messages = document["components"]["messages"]
    watch = {f"watch.{name}" for name in (*WATCH_IN, *WATCH_OUT)}
    assert set(messages) == {*FRAMES_IN, *FRAMES_OUT, *watch}
    assert set(FRAMES_IN) == set(FRAMES)
    url = server.url.replace("http", "ws") + "/v1/socket"
    with connect(url, open_timeout=240) as end:

        def hear(type: str) -> None:
            frame = json.loads(end.recv(timeout=120))
            while frame["type"] != type:
                frame = json.loads(end.recv(timeout=120))
            fits(frame, messages[type]["payload"], document["components"])

        around = {"id": "frames", "region": {"type": "Around", "radius_m": 50}}
        feature = {"type": "Feature", "id": "frames", "properties": {},
                   "geometry": {"type": "Point", "coordinates": [3, 3]}}  # fmt: skip
        sent: list[tuple[dict[str, Any], str]] = [
            ({"type": "hello", "subscriber": "frames"}, "welcome"),
            ({"type": "subscribe", "subscription": around, "ref": 1}, "done"),
            ({"type": "place", "coordinates": [3, 3], "epoch": 1}, "region"),
            ({"type": "publish", "event": feature}, "request"),
            ({"type": "place", "coordinates": [3, 3], "epoch": 2}, "notifications"),
            ({"type": "unsubscribe", "id": "nothing"}, "error"),
        ]
        assert {type for _, type in sent} == set(FRAMES_OUT)
        for frame, type in sent:
            fits(frame, messages[frame["type"]]["payload"], document["components"])
            end.send(json.dumps(frame))
            hear(type)


def test_the_frames_of_the_map_are_those_of_the_document(server: Running, http: httpx2.Client):
    document = asyncapi()
    messages = document["components"]["messages"]
    assert set(WATCH_IN) == set(WATCHED)
    heard: set[str] = set()
    with connect(server.url.replace("http", "ws") + "/v1/watch", open_timeout=120) as end:

        def hear(type: str) -> None:
            while True:
                said = end.recv(timeout=120)
                if isinstance(said, bytes):
                    continue
                frame = json.loads(said)
                name = f"watch.{frame['type']}"
                fits(frame, messages[name]["payload"], document["components"])
                heard.add(frame["type"])
                if frame["type"] == type:
                    return

        around = {"subscriber": "watched", "region": {"type": "Around", "radius_m": 50}}
        event = {"type": "Feature", "id": "watched", "properties": {"a": 1},
                 "geometry": {"type": "Point", "coordinates": [5, 5]}}  # fmt: skip
        sent: list[tuple[dict[str, Any], str]] = [
            ({"type": "hello"}, "welcome"),
            ({"type": "follow", "subscriber": "watched"}, "followed"),
            ({"type": "lamps", "cpsl": 'Q(2)(STRING: a = "b")'}, "lit"),
            ({"type": "follow", "subscriber": ""}, "error"),
        ]
        for frame, type in sent:
            if type != "error":
                fits(frame, messages[f"watch.{frame['type']}"]["payload"], document["components"])
            end.send(json.dumps(frame))
            hear(type)
        http.put("/v1/subscriptions/watched", json=around)
        hear("happened")
        http.put("/v1/subscribers/watched/place", json={"coordinates": [5, 5]})
        hear("followed")
        http.post("/v1/events", json=event)
        hear("happened")
        hear("figures")
        assert heard | {"names"} == set(WATCH_OUT)


def test_the_documents_are_served(http: httpx2.Client):
    assert http.get("/openapi.json").json() == json.loads(json.dumps(openapi()))
    assert http.get("/asyncapi.json").json()["asyncapi"] == "3.0.0"
    page = http.get("/docs").text
    for operation in OPERATIONS:
        assert operation.path in page
    assert not re.search(r"https?://", page)  # nothing from elsewhere
    assert "<near-app>" in http.get("/").text
