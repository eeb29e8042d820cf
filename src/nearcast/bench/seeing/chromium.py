"""A real browser, headless, and the processor time that all its processes take. Linux only."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from nearcast.errors import BenchError

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Chromium", "Driver", "driving", "until"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 120.0
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def driving() -> Iterator[Driver]:
    """What starts browsers; BenchError says what is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise BenchError("this needs playwright; run: pip install playwright") from None
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise BenchError("this needs a Chromium; on Debian and Ubuntu: apt install chromium")
    with sync_playwright() as playwright:
        yield Driver(playwright, program)


class Driver:
    """Starts browsers."""

    def __init__(self, playwright: Any, program: str) -> None:
        self._playwright = playwright
        self._program = program

    @contextmanager
    def browser(self) -> Iterator[Chromium]:
        """A browser of its own, ended afterwards."""
        mark = f"--nearcast-bench={token_hex(8)}"
        made = self._playwright.chromium.launch(
            executable_path=self._program, chromium_sandbox=False, args=[mark]
        )
        try:
            yield Chromium(made, mark)
        finally:
            made.close()


class Chromium:
    """A browser that runs."""

    def __init__(self, browser: Any, mark: str) -> None:
        self._browser = browser
        self._mark = mark.encode()

    @contextmanager
    def page(self, url: str) -> Iterator[Page]:
        """The map at an address, with an empty cache, from the moment it is asked for."""
        context = self._browser.new_context(viewport={"width": 1280, "height": 800})
        try:
            page = context.new_page()
            page.goto(url, wait_until="commit")
            yield page
        finally:
            context.close()

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time that its living processes have taken."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        root = None
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                said = (folder / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            number = int(folder.name)
            parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
            if self._mark in said and b"--type=" not in said:
                root = number
        if root is None:
            raise BenchError("the browser has gone")
        return sum(many for number, many in ticks.items() if _under(number, root, parents)) / _TICKS


def _under(number: int, root: int, parents: dict[int, int]) -> bool:
    while number > 1:
        if number == root:
            return True
        number = parents.get(number, 0)
    return False


def until(page: Page, held: str) -> None:
    """Wait for something to hold of `app`, the page's element."""
    script = f"() => {{ const app = document.querySelector('near-app'); return !!({held}); }}"
    end = time.monotonic() + _PATIENCE_S
    while not page.evaluate(script):
        if time.monotonic() > end:
            raise BenchError(f"the map does not come as far as {held}")
        page.wait_for_timeout(5)
