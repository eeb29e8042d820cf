"""The pictures of docs/map: `python -m tests.pictures` takes them anew from a living demo.

`--all FOLDER` takes every state of the page there, for somebody to look at.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.pages import WEB, browsing, launched, opened, tab, until
from tests.served import make_keys, serving

__all__ = ["STATES", "main"]

FOLDER = WEB.parent / "docs" / "map"
_SETTLE_MS = 3000
_TRIED = 30
_COLOURS = 200

#: Somebody with a reach and many events around.
_FOLLOW = """(which) => {
  const app = document.querySelector("near-app");
  const { city } = app;
  const wants = (name) => city.of(name).some((each) => each.region?.radius_m);
  const places = [...city.events.values()].map((each) => each.place).filter(Boolean);
  const around = (name) => {
    const [x, y] = city.whereabouts(name) ?? [0, 0];
    return places.filter((place) => Math.hypot(place[0] - x, place[1] - y) < 0.01).length;
  };
  const busy = city.reported.names.filter(wants).map((name) => [around(name), name]);
  busy.sort(([one], [other]) => other - one);
  app.follow(busy[(10 + 7 * which) % busy.length][1]);
}"""
_HOLES = """() => {
  const { region } = document.querySelector("near-app").scenery.closeup;
  return region?.shape.discs?.length > 1 && region.shape.runs.length > 60;
}"""
_NEAREST = """() => {
  const app = document.querySelector("near-app");
  const { city } = app;
  const at = city.whereabouts(city.follows);
  const far = ({ place }) => Math.hypot(place[0] - at[0], place[1] - at[1]);
  const offers = [...city.shown()].filter((each) => each.place && "price" in each.properties);
  app.select(offers.sort((one, other) => far(one) - far(other))[0]);
}"""
_PATTERN = """() => {
  const { text } = document.querySelector("near-app").city.things.composite.get("idle taxi");
  document.querySelector("near-patterns").shadowRoot.querySelector("near-editor").value = text;
}"""


def _middle(page: Page) -> tuple[float, float]:
    box = page.locator(".map").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def _draw(page: Page, far: float = 90) -> None:
    x, y = _middle(page)
    page.get_by_role("button", name="Circle", exact=True).click()
    page.mouse.click(x, y)
    page.mouse.move(x + far / 2, y + 10, steps=4)
    page.mouse.click(x + far, y)


def _write(page: Page, text: str) -> None:
    page.locator("near-do .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)
    page.keyboard.press("Escape")


def city(page: Page) -> None:
    """As it opens."""
    until(page, "app.city.told.length > 8")


def follow(page: Page) -> None:
    """One mover closely, and why an event is none for it."""
    for which in range(_TRIED):  # until somebody's has round holes
        page.evaluate(_FOLLOW, which)
        with suppress(AssertionError):
            until(page, "app.scenery.closeup.region", _SETTLE_MS)
        if page.evaluate(_HOLES) or which == _TRIED - 1:
            break
    page.wait_for_timeout(2 * _SETTLE_MS)
    page.evaluate(_NEAREST)
    page.get_by_test_id("explained").wait_for()


def preview(page: Page) -> None:
    """A circle and a filter, and what they would match."""
    tab(page, "Do")
    _draw(page)
    _write(page, "category = 'coffee' OR category = 'restaurant'")
    page.get_by_role("button", name="Preview").click()
    page.get_by_test_id("preview").wait_for()


def subscribe(page: Page) -> None:
    """The same, subscribed to, with the Python for it."""
    preview(page)
    page.get_by_role("button", name="Python").click()
    page.locator("near-do").get_by_role("button", name="Subscribe").last.click()


def draw(page: Page) -> None:
    """In the middle of drawing."""
    tab(page, "Do")
    page.get_by_role("button", name="Circle", exact=True).click()
    x, y = _middle(page)
    page.mouse.click(x, y)
    page.mouse.move(x + 80, y + 40, steps=4)


def completion(page: Page) -> None:
    """Names and values that were seen."""
    tab(page, "Do")
    page.locator("near-do .cm-content").click()
    page.keyboard.type("category = ")
    page.keyboard.press("Control+Space")
    page.locator(".cm-tooltip-autocomplete").wait_for()


def wrong(page: Page) -> None:
    """A filter that does not parse."""
    tab(page, "Do")
    _write(page, "price < 30 AND AND stock > 1")
    page.locator("near-do .verdict.bad").wait_for()


def fence(page: Page) -> None:
    """A fence about to be set."""
    tab(page, "Do")
    page.get_by_role("button", name="Fence", exact=True).click()
    _draw(page)


def publish(page: Page) -> None:
    """An event about to be published."""
    tab(page, "Do")
    page.get_by_role("button", name="Publish", exact=True).first.click()
    page.get_by_role("button", name="Choose on the map").click()
    page.mouse.click(*_middle(page))


def patterns(page: Page) -> None:
    """A pattern's graph while taxis light it up."""
    tab(page, "Patterns")
    page.locator("near-patterns near-editor").wait_for()
    page.evaluate(_PATTERN)
    page.locator("near-patterns rect").first.wait_for()
    with suppress(AssertionError):
        until(page, "app.city.lamps.some((each) => each > 0)", 60_000)


def mistake(page: Page) -> None:
    """A pattern that does not parse."""
    tab(page, "Patterns")
    page.locator("near-patterns .cm-content").click()
    page.keyboard.type("Q(2)(STRING: category = ")
    page.keyboard.press("Escape")
    page.locator("near-patterns .verdict.bad").wait_for()


def figures(page: Page) -> None:
    """How the server does."""
    tab(page, "Figures")
    until(page, "app.city.figures.length > 20")


def replay(page: Page) -> None:
    """The log again."""
    page.get_by_role("button", name="Replay").click()
    page.get_by_label("Speed").select_option("10")


STATES: dict[str, Callable[[Page], None]] = {
    each.__name__: each
    for each in (
        city, follow, draw, completion, wrong, preview, subscribe, fence, publish, patterns,
        mistake, figures, replay,
    )
}  # fmt: skip
#: The pictures of the docs: file, state, dark or not.
_SHOWN = (("city", "city", False), ("follow", "follow", False), ("preview", "preview", False),
          ("patterns", "patterns", True), ("replay", "replay", True))  # fmt: skip


def _take(browser: Browser, url: str, state: str, path: Path, dark: bool, phone: bool) -> None:
    size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 800}
    scheme = "dark" if dark else "light"
    more = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2} if phone else {}
    with opened(browser, url, **size, color_scheme=scheme, **more) as page:  # type: ignore[arg-type]
        until(page, "app.city.told.length > 3 && app.city.things.subscription.size > 500")
        STATES[state](page)
        page.wait_for_timeout(_SETTLE_MS)
        _keep(page, path)


def _keep(page: Page, path: Path) -> None:
    """A picture of few colours, which is a quarter of the bytes."""
    from PIL import Image

    taken = Image.open(io.BytesIO(page.screenshot(timeout=300_000))).convert("RGB")
    path.parent.mkdir(parents=True, exist_ok=True)
    taken.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def _every(browser: Browser, url: str, folder: Path) -> None:
    """Every state, light and dark, some on a phone, and those of trouble."""
    for state in STATES:
        for dark in (False, True):
            _take(browser, url, state, folder / f"{state}-{'dark' if dark else 'light'}.png",
                  dark, phone=False)  # fmt: skip
    for state in ("city", "follow", "figures", "replay"):
        _take(browser, url, state, folder / f"{state}-phone.png", dark=False, phone=True)
    plain = launched(browser.browser_type, "--disable-3d-apis")
    with opened(plain, url) as page:
        page.wait_for_timeout(_SETTLE_MS)
        _keep(page, folder / "no-webgl.png")
    plain.close()
    with tempfile.TemporaryDirectory() as kept:
        make_keys(Path(kept) / "keys.db", {"role": "admin"})
        with (
            serving(Path(kept) / "keys.db") as server,
            opened(browser, server.url, ready=False) as page,
        ):
            page.get_by_role("textbox", name="Key").fill("nck_wrong")
            page.get_by_role("button", name="Open").click()
            page.get_by_role("alert").wait_for()
            _keep(page, folder / "key.png")
    with serving() as server:
        gone = opened(browser, server.url)
        page = gone.__enter__()
    until(page, "app.city.watch.status === 'away'")
    _keep(page, folder / "away.png")


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, help="every state, into this folder")
    parser.add_argument("--url", help="a demo that lives already")
    asked = parser.parse_args()
    with browsing() as browser, tempfile.TemporaryDirectory() as kept:
        if asked.url:
            _shoot(browser, asked.url, asked.all)
        else:
            with serving(Path(kept) / "city.db", demo=True, demo_people=1500) as server:
                _shoot(browser, server.url, asked.all)


def _shoot(browser: Browser, url: str, folder: Path | None) -> None:
    with opened(browser, url) as page:  # until everybody has come, and something has happened
        until(page, "app.city.reported.names.length > 800 && app.city.events.size > 400")
        page.wait_for_timeout(20_000)
    if folder is not None:
        _every(browser, url, folder)
        return
    for name, state, dark in _SHOWN:
        _take(browser, url, state, FOLDER / f"{name}.png", dark, phone=False)


if __name__ == "__main__":
    main()
