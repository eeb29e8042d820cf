"""What a watching page is shown: what happens, latest places, and no more than it takes."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point
from nearcast.server.feeds import Who
from nearcast.server.run import Running
from nearcast.server.scene import EVENTS, Places, Scenes
from tests.served import client, feature, make_keys, serving

AROUND = {"subscriber": "ann", "region": {"type": "Around", "radius_m": 500}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("watch") / "x.db") as running:
        yield running


class Page:
    """A page's end: what it was sent, put together."""

    def __init__(self, end: ClientConnection) -> None:
        self.end = end
        self.names: dict[int, list[str]] = {0: [], 1: []}
        self.places: dict[str, tuple[float, float]] = {}

    def hear(self, type: str, member: str | None = None) -> dict[str, Any]:
        """The next frame of a type, with a member if one is named."""
        for _ in range(2000):  # figures come every second
            said = self.end.recv(timeout=120)
            if isinstance(said, bytes):
                self.places |= self.read(said)
                if type == "places":
                    return {}
                continue
            frame = json.loads(said)
            if frame["type"] == "names":
                known = self.names[int(frame["kind"] == "true")]
                assert len(known) == frame["first"]
                known += frame["names"]
            if frame["type"] == type and (member is None or member in frame):
                return dict(frame)
        raise AssertionError(f"no {type} {member or ''} came")

    def read(self, data: bytes) -> dict[str, tuple[float, float]]:
        magic, version, kind, count, x, y = struct.unpack_from("<2sBBIdd", data)
        assert (magic, version, len(data)) == (b"nM", 1, 24 + 12 * count)
        numbers = np.frombuffer(data, "<u4", count, 24)
        east, north = (
            np.frombuffer(data, "<f4", 2 * count, 24 + 4 * count).reshape(2, -1).astype(float)
        )
        found = zip(numbers.tolist(), (x + east).tolist(), (y + north).tolist(), strict=True)
        return {self.names[kind][number]: (lon, lat) for number, lon, lat in found}


@contextmanager
def watching(server: Running, **hello: Any) -> Iterator[Page]:
    url = server.url.replace("http", "ws") + "/v1/watch"
    with connect(url, subprotocols=["nearcast.watch.v1"], open_timeout=240) as end:  # type: ignore[list-item]
        end.send(json.dumps({"type": "hello"} | hello))
        yield Page(end)


def test_a_page_sees_what_happens_in_its_order(server: Running):
    with client(server) as http, watching(server) as page:
        welcome = page.hear("welcome")
        assert (welcome["space"], welcome["demo"]) == ("globe", False)
        http.put("/v1/subscriptions/seen", json={"subscriber": "ann", "keywords": ["sale"]})
        began = page.hear("happened", "news")["news"][0]
        assert (began["kind"], began["id"], began["thing"]["keywords"]) == (
            "subscription", "seen", ["sale"],
        )  # fmt: skip
        http.post("/v1/events", json=feature("offer", 8.5, 47.4, price=3) | {"keywords": ["sale"]})
        shown = page.hear("happened", "events")
        assert [each["id"] for each in shown["events"]] == ["offer"]
        told = (shown if "told" in shown else page.hear("happened", "told"))["told"]
        assert [(each["to"], each["subscriber"], each["event"]) for each in told] == [
            ("seen", "ann", "offer")
        ]
        http.delete("/v1/events/offer")
        assert page.hear("happened", "news")["news"][0] == {
            "kind": "event", "id": "offer", "thing": None, "source": None,
        }  # fmt: skip
        http.delete("/v1/subscriptions/seen")
        assert page.hear("happened", "news")["news"][0]["thing"] is None
        figures = page.hear("figures")
        assert figures["events"] >= 1
        assert figures["notifications"] >= 1
        assert figures["calling_count"] > 0


def test_fences_and_patterns_are_told_with_what_made_them(server: Running):
    fence = {
        "subscriber": "ops", "object": "van", "on": ["enter", "exit"],
        "region": {"type": "Circle", "coordinates": [8.5, 47.4], "radius_m": 1000},
    }  # fmt: skip
    with client(server) as http, watching(server) as page:
        page.hear("welcome")
        http.put("/v1/fences/yard", json=fence)
        http.put("/v1/composites/pair", json={"subscriber": "ops", "text": 'Q(2)(STRING: a = "b")'})
        http.post("/v1/events", json=[feature("v1", 9.0, 47.4, van="V1")])
        http.post("/v1/events", json=[feature("v2", 8.5, 47.4, van="V1")])
        crossed = page.hear("happened", "told")["told"][0]
        assert (crossed["to"], crossed["transition"], crossed["object"]) == ("yard", "enter", "V1")
        http.post("/v1/events", json=[feature("p1", 8.5, 47.4, a="b")])
        http.post("/v1/events", json=[feature("p2", 8.6, 47.5, a="b")])
        found = page.hear("happened", "told")["told"][0]
        assert (found["to"], found["parts"]) == ("pair", ["p1", "p2"])
        assert found["composite"]["geometry"]["type"] in ("Polygon", "LineString", "Point")


def test_lamps_light_up_by_what_each_part_of_a_pattern_sees(server: Running):
    text = 'Q(2)(STRING: lamp = "x")'
    with client(server) as http, watching(server) as page:
        page.hear("welcome")
        graph = http.post("/v1/check", json={"cpsl": text}).json()["graph"]
        assert [box["kind"] for box in graph["boxes"]] == ["operator", "event"]
        page.end.send(json.dumps({"type": "lamps", "cpsl": text}))
        assert page.hear("lit")["counts"] == [0, 0]
        for number, counts in enumerate(([0, 1], [1, 2], [1, 3])):
            http.post("/v1/events", json=feature(f"lamp{number}", 8.5, 47.4, lamp="x"))
            assert page.hear("lit")["counts"] == counts
        page.end.send(json.dumps({"type": "lamps", "cpsl": "no pattern"}))
        assert page.hear("error")["problem"]["line"] == 1


def test_who_is_followed_is_shown_as_it_was_told(server: Running):
    with client(server) as http, watching(server) as page:
        page.hear("welcome")
        http.put("/v1/subscriptions/around", json=AROUND)
        http.post("/v1/events", json=feature("far", 8.52, 47.4))
        page.end.send(json.dumps({"type": "follow", "subscriber": "ann"}))
        assert page.hear("followed")["safe_region"] is None
        placed = http.put(
            "/v1/subscribers/ann/place", json={"coordinates": [8.5, 47.4], "epoch": 1}
        )
        followed = page.hear("followed")
        assert followed["safe_region"] == placed.json()["safe_region"]
        assert followed["place"] == [8.5, 47.4]
        assert SafeRegion.decode(b64decode(followed["safe_region"])).contains(Point(8.5, 47.4))
        assert followed["impact"]["kind"] in ("cells", "ball")
        if not page.places:
            page.hear("places")
        assert page.places["ann"] == pytest.approx((8.5, 47.4), abs=1e-7)
        # an event in the impact region voids it, and the page hears of that
        http.post("/v1/events", json=feature("near", 8.5001, 47.4))
        while page.hear("followed")["safe_region"] is not None:
            pass  # said before that
        assert server.desk.feeds.asked(Who("", "ann")) is not None
        page.end.send(json.dumps({"type": "follow", "subscriber": None}))
        while page.hear("followed")["subscriber"] is not None:
            pass
        http.delete("/v1/subscriptions/around")


def test_who_comes_later_sees_where_everybody_is(server: Running):
    with client(server) as http:
        http.put("/v1/subscriptions/late", json=AROUND | {"subscriber": "bob"})
        http.put("/v1/subscribers/bob/place", json={"coordinates": [8.6, 47.5]})
        with watching(server) as page:
            extent = page.hear("welcome")["extent"]
            assert extent[0] <= 8.6 <= extent[2]
            while "bob" not in page.places:
                page.hear("places")
            assert page.places["bob"] == pytest.approx((8.6, 47.5), abs=1e-7)


@pytest.mark.parametrize(
    ("frame", "field"),
    [({"type": "fly"}, "type"), ({"type": "follow", "subscriber": ""}, "subscriber"),
     ({"type": "follow", "subscriber": 3}, "subscriber"), ({"type": "lamps", "cpsl": 3}, "cpsl")],
)  # fmt: skip
def test_a_wrong_frame_is_refused_and_the_page_goes_on(
    server: Running, frame: dict[str, Any], field: str
):
    with watching(server) as page:
        page.hear("welcome")
        page.end.send(json.dumps(frame))
        assert page.hear("error")["problem"]["field"] == field
        page.end.send("{")
        assert page.hear("error")["problem"]["status"] == 400
        assert page.hear("figures")


def test_the_first_frame_is_hello(server: Running):
    with watching(server, type="follow") as page:
        assert page.hear("error")["problem"]["status"] == 409
        with pytest.raises(ConnectionClosed):
            page.hear("welcome")


def test_a_page_is_told_that_the_server_stops():
    with serving() as server, watching(server) as page:
        page.hear("welcome")
        server.stop()
        with pytest.raises(ConnectionClosed, match="1001"):
            page.hear("nothing")


def test_only_an_admin_watches(tmp_path: Path):
    admin, ann = make_keys(
        tmp_path / "k.db", {"role": "admin"}, {"role": "subscribe", "subscriber": "ann"}
    )
    with serving(tmp_path / "k.db") as server:
        for key, status in ((None, 401), ("nck_no", 401), (ann, 403)):
            said = {} if key is None else {"key": key}
            with watching(server, **said) as page:
                assert page.hear("error")["problem"]["status"] == status
                with pytest.raises(ConnectionClosed):
                    page.hear("welcome")
        with watching(server, key=admin) as page:
            assert page.hear("welcome")["space"] == "globe"
        url = server.url.replace("http", "ws") + "/v1/watch"
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers={"Authorization": f"Bearer {ann}"}, open_timeout=240)
        assert refused.value.response.status_code == 403


def test_tenants_are_watched_apart(tmp_path: Path):
    one, other = make_keys(
        tmp_path / "t.db", {"role": "admin"}, {"role": "admin", "tenant": "shop"}
    )
    with (
        serving(tmp_path / "t.db") as server,
        client(server, one) as http,
        client(server, other) as shop,
        watching(server, key=one) as page,
        watching(server, key=other) as theirs,
    ):
        page.hear("welcome")
        theirs.hear("welcome")
        shop.post("/v1/events", json=feature("shop's", 1.0, 1.0))
        assert theirs.hear("happened", "events")["events"][0]["id"] == "shop's"
        http.post("/v1/events", json=feature("own", 1.0, 1.0))
        assert page.hear("happened", "events")["events"][0]["id"] == "own"


def test_figures_of_a_tenant_are_that_ones(tmp_path: Path):
    """Its admins see nothing of how much others have to do."""
    one, other = make_keys(
        tmp_path / "t.db", {"role": "admin"}, {"role": "admin", "tenant": "shop"}
    )
    with (
        serving(tmp_path / "t.db") as server,
        client(server, one) as http,
        client(server, other) as shop,
    ):
        for number in range(7):
            http.post("/v1/events", json=feature(f"e{number}")).raise_for_status()
            http.put("/v1/subscribers/ann/place", json={"coordinates": [1, 1]}).raise_for_status()
        shop.put("/v1/subscriptions/s", json={"subscriber": "eve"}).raise_for_status()
        shop.post("/v1/events", json=feature("shop's")).raise_for_status()
        assert shop.get("/v1/subscribers/eve/notifications").json()["next"] == 1
        with watching(server, key=other) as theirs, watching(server, key=one) as page:
            mine, whole = theirs.hear("figures"), page.hear("figures")
        counted = ("events", "notifications", "delivered", "reports", "queue", "steps")
        assert [mine[name] for name in counted] == [1, 1, 1, 0, 0, None]
        assert mine.keys() - {"type", "now", "streams", "connected"} == {*counted}
        assert 1 <= mine["streams"] <= 2
        assert (whole["events"], whole["reports"]) == (8, 7)
        assert "queue_s" in whole


def test_a_page_that_does_not_read_misses_frames_and_is_told_so():
    scenes = Scenes()
    watcher = scenes.watch("")
    for number in range(EVENTS + 7):
        watcher.add("events", [_text(number)])
    for number in range(30_000):
        scenes.placed("", f"p{number % 10}", number, number)
    frames = [*watcher.frames()]
    shown = json.loads(next(frame for frame in frames if b'"happened"' in frame))
    assert shown["missed"] == 7
    assert [shown["events"][0], shown["events"][-1]] == [7, EVENTS + 6]
    places = next(frame for frame in frames if frame[:2] == b"nM")
    assert len(places) == 24 + 12 * 10  # the latest of each
    assert [*watcher.frames()] == []
    scenes.leave("", watcher)
    assert scenes.of("") is None


def _text(number: int) -> Any:
    from msgspec import Raw

    return Raw(str(number).encode())


def test_places_are_within_a_millimetre_of_a_town():
    places = Places("reported")
    rng = np.random.default_rng(3)
    at = np.array([8.5, 47.4]) + rng.uniform(-0.1, 0.1, (5000, 2))
    for number, (x, y) in enumerate(at):
        places.put(f"p{number}", x, y)
    frame = places.since(0)
    assert frame is not None
    x, y = struct.unpack_from("<dd", frame, 8)
    east, north = np.frombuffer(frame, "<f4", 10_000, 24 + 4 * 5000).reshape(2, -1).astype(float)
    assert np.abs(x + east - at[:, 0]).max() < 1e-8
    assert np.abs(y + north - at[:, 1]).max() < 1e-8
    assert places.since(places.moment) is None
    places.put("p7", 8.5, 47.4)
    later = places.since(5000)
    assert later is not None
    assert struct.unpack_from("<I", later, 24) == (7,)


def test_the_simulators_places_are_marked_as_such():
    scenes = Scenes()
    scenes.simulated(["a", "b"], np.array([[1.0, 2.0], [3.0, 4.0]]), 2)
    watcher = scenes.watch("")
    names, frame = [*watcher.frames()]
    assert json.loads(names) == {"type": "names", "kind": "true", "first": 0, "names": ["a", "b"]}
    assert frame[3] == 1
    scenes.simulated(["a", "b"], np.array([[1.0, 2.0], [3.0, 5.0]]), 4)
    assert len([*watcher.frames()]) == 1
    assert scenes.steps == 4
