"""The live map in a real browser: what one sees and does there, and what goes wrong."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from nearcast.server.run import Running
from tests.pages import PATIENCE_MS, browsing, launched, opened, tab, until, web_tools
from tests.served import client, feature, make_keys, serving

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]
expect.set_options(timeout=PATIENCE_MS)
X, Y = 8.5, 47.4
VIEW = f"#map=13/{Y}/{X}"
#: A picture of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
AROUND = {"subscriber": "ann", "region": {"type": "Around", "radius_m": 800}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("map") / "x.db") as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    with opened(browser, f"{server.url}/{VIEW}") as made:
        yield made


def offer(http: httpx2.Client, id: str, x: float = X, y: float = Y, **properties: Any) -> None:
    answer = http.post("/v1/events", json=feature(id, x, y, **properties))
    assert answer.status_code == 200, answer.text


#: Whether something of the safe region is drawn.
INKED = """(() => { const canvas = document.querySelector('.closeup canvas.safe');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let n = 0; for (let i = 3; i < data.length; i += 4) n += data[i] > 0; return n > 0; })()"""


def middle(page: Page) -> tuple[float, float]:
    box = page.locator(".map").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_draw_preview_subscribe_and_be_told(page: Page, http: httpx2.Client):
    offer(http, "there", kind="tea", price=3)
    offer(http, "other", kind="tea", price=30)
    x, y = middle(page)
    at = page.evaluate(
        """([x, y]) => { const { scenery } = document.querySelector('near-app');
        const { left, top } = scenery.chart.getCanvas().getBoundingClientRect();
        return scenery.chart.unproject([x - left, y - top]).toArray(); }""",
        [x + 120, y],
    )
    offer(http, "rim", *at)
    until(page, "app.city.events.size === 3")
    tab(page, "Do")
    page.get_by_role("button", name="Circle", exact=True).click()
    x, y = middle(page)
    page.mouse.click(x, y)
    page.mouse.move(x + 60, y + 10, steps=3)
    page.mouse.click(x + 120, y)  # on an event, which is not chosen by this
    until(page, "app.querySelector('near-do').region?.radius_m > 100")
    page.wait_for_timeout(500)
    assert page.evaluate("() => document.querySelector('near-app').tab") == "do"
    page.locator("near-do .cm-content").click()
    page.keyboard.type("kind = 'tea' AND price < ")
    expect(page.locator("near-do .verdict.bad")).to_contain_text("expected a value")
    page.keyboard.type("10")
    expect(page.locator("near-do .verdict")).to_contain_text("reads as")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_test_id("preview")).to_contain_text("1 live events match")
    page.get_by_role("button", name="curl").click()
    expect(page.get_by_test_id("copied")).to_contain_text("curl -X PUT")
    page.get_by_role("button", name="Python").click()
    expect(page.get_by_test_id("copied")).to_contain_text("client.subscribe(")
    page.locator("near-do #id").fill("tea")
    page.locator("near-do").get_by_role("button", name="Subscribe").last.click()
    expect(page.locator("near-do")).to_contain_text(
        "tea stands, and 1 that match already were told"
    )
    offer(http, "new", kind="tea", price=2)
    tab(page, "Now")
    expect(page.get_by_test_id("told")).to_contain_text("tea, price 2")
    wish = http.get("/v1/subscriptions/tea").json()
    assert wish["region"]["type"] == "Circle"
    assert wish["region"]["coordinates"] == pytest.approx([X, Y], abs=1e-3)
    http.delete("/v1/subscriptions/tea")


def test_completion_knows_what_was_seen(page: Page, http: httpx2.Client):
    offer(http, "seen", colour="ultramarine")
    until(page, "app.city.vocabulary.has('colour')")
    tab(page, "Do")
    page.locator("near-do .cm-content").click()
    page.keyboard.type("col")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("colour")
    page.keyboard.type("our = ")
    page.keyboard.press("Control+Space")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("'ultramarine'")


def test_follow_a_mover_and_why_not(page: Page, http: httpx2.Client):
    wish = AROUND | {"filters": [{"cql2": "price < 10"}]}
    assert http.put("/v1/subscriptions/near", json=wish).status_code in (200, 201)
    offer(http, "hole", X + 0.02, price=5)
    http.put("/v1/subscribers/ann/place", json={"coordinates": [X, Y], "epoch": 1})
    offer(http, "dear", price=50)
    until(page, "app.city.whereabouts('ann')")
    x, y = middle(page)
    until(page, "app.scenery.painter.find(app.querySelector('.map').clientWidth / 2,"
                " app.querySelector('.map').clientHeight / 2)")  # fmt: skip
    tab(page, "Follow")
    page.get_by_label("Follow a mover").fill("ann")
    page.get_by_label("Follow a mover").press("Enter")
    expect(page.get_by_test_id("followed")).to_contain_text("inside: silent")
    until(page, "app.scenery.closeup.region?.contains(8.5, 47.4)")
    until(page, INKED)
    assert "follow=ann" in page.url
    page.evaluate("() => { const app = document.querySelector('near-app');"
                  " app.select(app.city.event('dear')); }")  # fmt: skip
    told = page.get_by_test_id("explained")
    expect(told).to_contain_text("✗ it does not match")
    expect(told.locator("li", has_text="price")).to_contain_text("✗")
    page.get_by_role("button", name="Let go").click()
    until(page, "!app.city.follows")
    until(page, f"!{INKED}")
    assert "follow" not in page.url
    page.mouse.click(x, y)  # what is nearest there is chosen
    until(page, "app.tab === 'follow'")
    http.delete("/v1/subscriptions/near")


def test_a_fence_lights_up_on_enter_and_exit(page: Page, http: httpx2.Client):
    tab(page, "Do")
    page.get_by_role("button", name="Fence", exact=True).click()
    page.get_by_text("Type a circle instead").click()
    for label, value in (("Longitude", X), ("Latitude", Y), ("Radius", 500)):
        page.get_by_label(label).fill(str(value))
    page.get_by_role("button", name="Take it").click()
    page.locator("near-do #object").fill("truck")
    page.locator("near-do #id").fill("yard")
    page.get_by_role("button", name="Set the fence").click()
    expect(page.locator("near-do")).to_contain_text("yard stands")
    offer(http, "t1", X + 0.1, truck="T1")
    offer(http, "t2", truck="T1")
    until(page, "app.scenery.isLit('yard')")
    tab(page, "Now")
    expect(page.get_by_test_id("fences")).to_contain_text("1 truck inside")
    offer(http, "t3", X + 0.1, truck="T1")
    expect(page.get_by_test_id("told")).to_contain_text("T1 exit yard")
    page.get_by_role("button", name="End yard").click()
    expect(page.locator("near-now")).to_contain_text("yard has ended")
    assert http.get("/v1/fences/yard").status_code == 404


def test_publish_by_a_click(page: Page, http: httpx2.Client):
    tab(page, "Do")
    page.get_by_role("button", name="Publish", exact=True).first.click()
    page.get_by_role("button", name="Choose on the map").click()
    page.mouse.click(*middle(page))
    until(page, "app.querySelector('near-do').place")
    page.locator("near-do").get_by_role("button", name="Publish").last.click()
    expect(page.locator("near-do")).to_contain_text("is published")
    (made,) = http.get("/v1/events?where=category%20%3D%20%27coffee%27").json()["features"]
    assert made["geometry"]["coordinates"] == pytest.approx([X, Y], abs=1e-3)
    assert made["properties"] == {"category": "coffee", "price": 3.5}


def test_a_pattern_with_its_errors_and_its_graph(page: Page, http: httpx2.Client):
    tab(page, "Patterns")
    page.locator("near-patterns .cm-content").click()
    page.keyboard.type("Q(2)(STRING: lamp ")
    expect(page.locator("near-patterns .verdict.bad")).to_contain_text("line 1")
    expect(page.locator("near-patterns .cm-lintRange-error")).to_have_count(1)
    page.evaluate("""() => { document.querySelector('near-patterns').shadowRoot
        .querySelector('near-editor').value = 'Q(2)(STRING: lamp = "x")'; }""")
    expect(page.locator("near-patterns rect")).to_have_count(2)
    page.get_by_role("button", name="Detect it").click()
    expect(page.locator("near-patterns")).to_contain_text("is detected from now on")
    until(page, "app.city.lamps.length === 2")
    offer(http, "l1", lamp="x")
    offer(http, "l2", X + 0.01, lamp="x")
    until(page, "app.city.lamps[0] === 1 && app.city.lamps[1] === 2")
    expect(page.locator("near-patterns .count").first).to_contain_text("1×")
    tab(page, "Now")
    expect(page.get_by_test_id("told")).to_contain_text("made of 2")
    # on the map it is a sign of its own, with a line to each of its parts
    until(page, "[...app.city.shown()].some(each => app.city.group(each) === 7"
                " && each.spokes?.length === 2)")  # fmt: skip
    until(page, "app.scenery.extents().filter(each =>"
                " each.geometry.type === 'LineString').length === 2")  # fmt: skip
    expect(page.get_by_test_id("legend")).to_contain_text("pattern")
    http.delete("/v1/composites/map-pattern")


def test_it_comes_back_with_the_server(browser: Browser, tmp_path: Path):
    with serving(tmp_path / "r.db") as server:
        port = server.port
        with client(server) as http:
            http.put("/v1/subscriptions/kept", json=AROUND)
        made = opened(browser, f"{server.url}/{VIEW}")
        page = made.__enter__()
    until(page, "app.city.watch.status === 'away'")
    expect(page.get_by_test_id("status")).to_contain_text("away")
    with serving(tmp_path / "r.db", port=port) as server, client(server) as http:
        until(page, "app.city.watch.status === 'live'")
        offer(http, "after", price=1)
        until(page, "app.city.event('after') && app.city.things.subscription.has('kept')")
        made.__exit__(None, None, None)


def test_without_webgl_the_lists_still_work(browser: Browser, server: Running, http: httpx2.Client):
    plain = launched(browser.browser_type, "--disable-3d-apis")
    with opened(plain, server.url) as page:
        expect(page.get_by_test_id("no-map")).to_contain_text("no WebGL")
        offer(http, "unseen", fog="dense")
        expect(page.locator("near-now")).to_contain_text("fog dense")
        page.locator("near-now").get_by_role("button", name="fog dense").click()
        expect(page.get_by_role("region", name="Event")).to_contain_text("unseen")
    plain.close()


def test_a_lost_context_comes_back(page: Page, http: httpx2.Client):
    page.evaluate("""() => { const canvas = document.querySelector('canvas.maplibregl-canvas');
        window.lose = canvas.getContext('webgl2').getExtension('WEBGL_lose_context');
        window.lose.loseContext(); }""")
    expect(page.get_by_test_id("lost")).to_be_visible()
    offer(http, "meanwhile", price=1)
    page.evaluate("() => window.lose.restoreContext()")
    expect(page.get_by_test_id("lost")).to_have_count(0)
    page.evaluate("() => { document.querySelector('near-app').scenery.painter.frames = 0; }")
    until(page, "app.scenery.painter.frames > 0 && app.scenery.chart.getLayer('street')")


def test_a_phone_has_room_for_everything(browser: Browser, server: Running):
    with opened(browser, f"{server.url}/{VIEW}", width=360, height=700, has_touch=True) as page:
        for name in ("Now", "Follow", "Do", "Patterns", "Figures"):
            tab(page, name)
            until(page, "document.documentElement.scrollWidth <= innerWidth")
            box = page.get_by_role("tabpanel").bounding_box()
            assert box is not None
            assert box["height"] > 150


def test_a_plane_is_drawn_as_it_is(browser: Browser, tmp_path: Path):
    base = tmp_path / "hall.geojson"
    base.write_text('{"type": "Feature", "properties": {}, "geometry": {"type": "Polygon",'
                    '"coordinates": [[[0, 0], [80, 0], [80, 60], [0, 60], [0, 0]]]}}')  # fmt: skip
    with serving(space="planar", base=str(base)) as server, client(server) as http:
        offer(http, "corner", 80, 60, a=1)
        offer(http, "origin", 0, 0, a=2)
        with opened(browser, server.url) as page:
            until(page, "app.city.space.kind === 'planar' && app.city.event('corner')")
            until(page, "app.scenery.painter.events.length === 2")
            back = page.evaluate("""() => {
                const { city, scenery } = document.querySelector('near-app');
                const at = scenery.chart.project(city.space.toMap([80, 60]));
                const { lng, lat } = scenery.chart.unproject(at);
                return [...city.space.fromMap([lng, lat]), at.x, at.y]; }""")
            assert back[:2] == pytest.approx([80, 60], abs=1e-4)
            box = page.locator(".map").bounding_box()
            assert box is not None
            assert 0 < back[2] < box["width"]
            assert 0 < back[3] < box["height"]


def test_a_wrong_clock_and_an_old_page_are_told(browser: Browser, server: Running):
    late = "const now = Date.now; Date.now = () => now() - 3600e3;"
    with opened(browser, server.url, before=late) as page:
        expect(page.get_by_test_id("skew")).to_contain_text("behind")
    stale = """addEventListener('DOMContentLoaded', () => {
        document.querySelector('meta[name=build]').content = 'older'; });"""
    with opened(browser, server.url, before=stale) as page:
        expect(page.get_by_test_id("stale")).to_contain_text("older than the server")


def test_a_key_is_asked_for_and_stays_out_of_the_address(browser: Browser, tmp_path: Path):
    store = tmp_path / "keys.db"
    admin, reader = make_keys(store, {"role": "admin"}, {"role": "subscribe", "subscriber": "ann"})
    with (
        serving(store) as server,
        opened(browser, f"{server.url}/{VIEW}", ready=False) as page,
    ):
        key = page.get_by_role("textbox", name="Key")
        for wrong, said in (("nck_" + "x" * 32, "key"), (reader, "may not watch")):
            key.fill(wrong)
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_role("alert")).to_contain_text(said)
        key.fill(admin)
        page.get_by_role("button", name="Open").click()
        until(page, "app.city.watch.status === 'live'")
        until(page, "app.scenery?.painter.frames")
        assert admin not in page.url
        tab(page, "Do")
        page.get_by_role("button", name="curl").click()
        expect(page.get_by_test_id("copied")).to_contain_text("$NEARCAST_KEY")
        expect(page.get_by_test_id("copied")).not_to_contain_text(admin)
        page.reload()  # it stays in this tab
        until(page, "app.city.watch.status === 'live'")
        assert admin not in page.content()


def test_the_log_is_shown_again(browser: Browser):
    with serving() as server, client(server) as http:
        for second in range(0, 60, 2):
            time = f"2026-05-01T12:00:{second:02d}Z"
            said = feature(f"e{second}", X, Y, n=second) | {"time": time}
            assert http.post("/v1/events", json=said).status_code == 200
        url = f"{server.url}/{VIEW}"
        with opened(browser, url) as page:
            until(page, "app.city.events.size === 30")
            page.get_by_role("button", name="Replay").click()
            expect(page.get_by_test_id("replaying")).to_be_visible()
            page.get_by_label("Speed").select_option("20")
            until(page, "app.querySelector('near-time').moment > Date.parse('2026-05-01T12:00:20')")
            assert "at=2026-05-01T12" in page.url
            page.locator("near-time").evaluate("(time) => time.play(false)")
            bar = page.get_by_label("Moment")
            bar.focus()
            page.keyboard.press("Home")
            until(page, "app.scenery.painter.events.length === 1")
            page.keyboard.press("End")
            until(page, "app.scenery.painter.events.length === 15")  # what holds, for 30 s
            bar.evaluate("""(bar) => { bar.value = Date.parse('2026-05-01T12:00:11Z');
                bar.dispatchEvent(new Event('input')); }""")
            until(page, "app.scenery.painter.events.length === 6")
            again = page.url
            page.get_by_role("button", name="Back to live").click()
            until(page, "app.scenery.painter.events.length === 30")
            assert "at=" not in page.url
        with opened(browser, again) as page:  # the address says when
            until(
                page, "app.querySelector('near-time').moment >= Date.parse('2026-05-01T12:00:11')"
            )
            expect(page.get_by_test_id("when")).to_contain_text("12:00:")


def test_the_address_says_what_is_looked_at(browser: Browser, server: Running):
    with opened(browser, f"{server.url}/#map=14.5/47.5/8.6&follow=bob") as page:
        assert page.evaluate("() => document.querySelector('near-app').scenery.view()") == {
            "centre": pytest.approx([8.6, 47.5], abs=1e-6), "zoom": pytest.approx(14.5),
        }  # fmt: skip
        expect(page.get_by_label("Follow a mover")).to_have_value("bob")
        page.evaluate("() => document.querySelector('near-app').scenery.chart.jumpTo("
                      "{ center: [8.4, 47.3], zoom: 12 })")  # fmt: skip
        until(page, "location.hash.includes('map=12.00/47.30000/8.40000')")
        page.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        until(page, "!location.hash.includes('map=12.00')")


def test_a_region_that_lies_elsewhere_is_said_to(page: Page, http: httpx2.Client):
    offer(http, "here")
    page.reload()
    until(page, "app.scenery?.painter.frames && app.city.extent")
    tab(page, "Do")
    page.get_by_text("Type a circle instead").click()
    for label, value in (("Longitude", -40), ("Latitude", 10), ("Radius", 500)):
        page.get_by_label(label).fill(str(value))
    page.get_by_role("button", name="Take it").click()
    expect(page.locator("near-do")).to_contain_text("outside of everything that was seen")
    until(page, "app.scenery.view().centre[0] < 0")
    page.get_by_label("Radius").fill("-1")
    page.get_by_role("button", name="Take it").click()
    expect(page.locator("near-do")).to_contain_text("a radius that is not negative")


def test_what_is_under_the_pointer_is_said(page: Page, http: httpx2.Client):
    http.put("/v1/subscribers/ulf/place", json={"coordinates": [X, Y], "epoch": 1})
    until(page, "app.scenery.painter.find(app.querySelector('.map').clientWidth / 2,"
                " app.querySelector('.map').clientHeight / 2)")  # fmt: skip
    x, y = middle(page)
    page.mouse.move(x - 90, y - 90)
    page.mouse.move(x + 1, y + 1, steps=4)
    page.wait_for_timeout(100)
    page.mouse.move(x, y)
    expect(page.locator(".tip")).to_contain_text("click")


def test_who_wants_no_motion_gets_none(browser: Browser, server: Running, http: httpx2.Client):
    with opened(browser, f"{server.url}/{VIEW}", reduced_motion="reduce") as page:
        http.put("/v1/subscriptions/calm", json=AROUND | {"subscriber": "cal"})
        http.put("/v1/subscribers/cal/place", json={"coordinates": [X, Y], "epoch": 1})
        until(page, "app.city.whereabouts('cal')")
        offer(http, "still", X + 0.001)
        until(page, "app.city.told.some(each => each.subscriber === 'cal')")
        assert page.evaluate("() => document.querySelector('near-app').scenery.painter.calm")
        assert not page.evaluate(
            "() => document.querySelector('near-app').scenery.painter.flashes.length"
        )
        http.delete("/v1/subscriptions/calm")


def test_tiles_come_from_where_the_server_says_and_from_nowhere_else(browser: Browser):
    asked = []

    class Tile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(PNG)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Tile) as tiles:
        thread = threading.Thread(target=tiles.serve_forever)
        thread.start()
        origin = f"http://127.0.0.1:{tiles.server_port}"
        said = {"tiles": f"{origin}/{{z}}/{{x}}/{{y}}.png", "tiles_credit": "somebody"}
        try:
            with serving(**said) as server:
                url = f"{server.url}/{VIEW}"
                with opened(browser, url, others=(origin,)) as page:
                    until(page, "app.scenery.chart.getLayer('tiles')")
                    until(page, "app.scenery.chart.areTilesLoaded()")
                    expect(page.locator(".map")).to_contain_text("somebody")
        finally:
            tiles.shutdown()
            thread.join()
    assert any(re.fullmatch(r"/1[2-4]/\d+/\d+\.png", each) for each in asked), asked


def test_a_hundred_thousand_events_at_once(browser: Browser):
    with (
        serving() as server,
        client(server) as http,
        opened(browser, f"{server.url}/{VIEW}") as page,
    ):
        for part in range(10):
            many = [
                feature(f"{part}-{n}", X + n % 100 / 1e4, Y + n // 100 / 1e4) for n in range(10_000)
            ]
            assert http.post("/v1/events", json=many).status_code == 200
        until(page, "app.city.missed > 50000 && app.city.events.size > 1000")
        tab(page, "Figures")
        expect(page.locator("near-figures")).to_contain_text("did not reach this page")
        offer(http, "last", last=1)
        until(page, "app.city.event('last')")
        page.reload()  # what is shown is bounded
        until(page, "app.city.events.size >= 20000 && app.scenery?.painter.frames")


@pytest.mark.needs("npm")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, server: Running, dark: bool):
    axe = (web_tools() / "axe-core" / "axe.min.js").read_text()
    scheme = "dark" if dark else "light"
    with opened(browser, f"{server.url}/{VIEW}", color_scheme=scheme) as page:
        for name in ("Now", "Follow", "Do", "Patterns", "Figures"):
            tab(page, name)
            page.wait_for_timeout(300)
            page.evaluate(axe)
            found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
            serious = [
                (each["id"], [node["html"][:200] for node in each["nodes"]])
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            assert serious == [], name
