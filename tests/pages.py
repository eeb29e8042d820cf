"""What tests of the page share: its tools from npm, a browser, a page that is open."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir
from time import monotonic
from typing import Any

from playwright.sync_api import Browser, BrowserType, Page, sync_playwright

__all__ = ["PATIENCE_MS", "WEB", "browsing", "launched", "opened", "tab", "until", "web_tools"]

WEB = Path(__file__).parents[1] / "web"


def web_tools() -> Path:
    """The packages of web/package-lock.json, installed once for each lock: its node_modules."""
    lock = WEB / "package-lock.json"
    mine = WEB / "node_modules"
    if mine.is_dir() and (mine / ".package-lock.json").exists():
        return mine
    digest = blake2b(lock.read_bytes(), digest_size=8).hexdigest()
    folder = Path(gettempdir()) / f"nearcast-web-{digest}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as held:  # several workers may want it
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(WEB / name, folder)
            run = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True,
                text=True, timeout=600, check=False,
            )  # fmt: skip
            assert run.returncode == 0, run.stdout + run.stderr
            (folder / "done").touch()
    return folder / "node_modules"


#: CI is slow, and draws in software.
PATIENCE_MS = 120_000


@contextmanager
def browsing() -> Iterator[Browser]:
    """Debian's Chromium, which draws WebGL in software."""
    with sync_playwright() as playwright:
        browser = launched(playwright.chromium)
        yield browser
        browser.close()


def launched(kind: BrowserType, *arguments: str) -> Browser:
    """A browser, with arguments of its own."""
    return kind.launch(
        executable_path=shutil.which("chromium"), chromium_sandbox=False, args=[*arguments]
    )


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1000, height: int = 700, ready: bool = True,
    before: str | None = None, others: tuple[str, ...] = (), **options: Any,
) -> Iterator[Page]:  # fmt: skip
    """The page of a server, live and drawn; at the end nothing went wrong, and nobody else was
    asked but for `others`."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: _note(said.type, said.text, wrong))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    if before is not None:
        page.add_init_script(before)
    page.goto(url)
    if ready:
        until(page, "app.city.watch.status === 'live'")
        until(page, "app.noMap || app.scenery?.painter.frames")
    yield page
    assert wrong == [], wrong
    allowed = (_origin(url), "blob:", "data:", *others)
    assert [each for each in asked if not each.startswith(allowed)] == []
    context.close()


def _origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _note(kind: str, text: str, wrong: list[str]) -> None:
    """What a browser complains of, but for what a test of trouble brings about."""
    usual = ("Failed to load resource", "WebSocket connection", "GL Driver", "WebGL")
    if kind == "error" and not any(each in text for each in usual):
        wrong.append(text)


def until(page: Page, held: str, patience_ms: float = PATIENCE_MS) -> None:
    """Wait for something to hold of `app`, the page's element."""
    end = monotonic() + patience_ms / 1000
    script = f"() => {{ const app = document.querySelector('near-app'); return !!({held}); }}"
    while not page.evaluate(script):
        assert monotonic() < end, f"{held} never held"
        page.wait_for_timeout(100)


def tab(page: Page, name: str) -> None:
    """Open a tab."""
    page.get_by_role("tab", name=name, exact=True).click()
