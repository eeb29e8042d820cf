"""`map`: what the live map costs a browser and a server, in a real Chromium that draws in software.

`frames`: processor time of all of the browser's processes for a frame, of a map without anybody
and of one with many movers whose places come twice a second, in turns. `first`: from the request
of the page to its first picture, with an empty cache. `watch`: the share of a core that a server
with the demo's people takes, with nobody watching and with one page, in turns.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import numpy as np

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.load.process import Process
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.seeing.chromium import Chromium, Driver, driving, until
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.datasets.city import City

__all__ = ["EXPERIMENT"]

FRAMES, FIRST, WATCH = "frames", "first", "watch"
EMPTY, MOVERS, NOBODY, PAGE, PICTURE = "empty", "movers", "nobody", "one page", "first picture"
_EVERY_S, _SETTLE_S = 0.5, 2.0
_COME = 0.95  # of the demo's people, and then it is measured
_PATIENCE_S = 600.0
#: Draw without pause for so many ms; how many frames there were.
_DRAW = """(ms) => new Promise((done) => {
  const { chart } = document.querySelector("near-app").scenery;
  const end = performance.now() + ms;
  let frames = 0;
  const next = () => {
    frames++;
    if (performance.now() < end) chart.triggerRepaint();
    else { chart.off("render", next); done(frames); }
  };
  chart.on("render", next);
  chart.triggerRepaint();
})"""


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    with driving() as driver:
        if FRAMES in parts:
            yield _frames(plan, driver)
        if FIRST in parts:
            yield _first(plan, driver)
        if WATCH in parts:
            yield _watch(plan, driver)


# --- a server for the page -----------------------------------------------------------------------


class _Shown:
    """A server in this process with the demo's town under it, and movers that a simulator shows."""

    def __init__(self, movers: int, seed: int) -> None:
        from nearcast.server.logs import set_up
        from nearcast.server.page import city_base
        from nearcast.server.run import Running
        from nearcast.server.settings import Settings

        set_up("error", "console")
        self._folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        base = self._folder / "town.geojson"
        base.write_bytes(city_base())
        self._server = Running(Settings(store="memory:", port=0, base=str(base), log="error"))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        self._server.started.wait(_PATIENCE_S)
        self.url = self._server.url
        self._over = threading.Event()
        self._names = [f"m{number}" for number in range(movers)]
        self._walk = City(seed=seed).walk(max(1, movers), 10**9, _EVERY_S)
        self._simulator = threading.Thread(target=self._simulate)
        self._simulator.start()

    def _simulate(self) -> None:
        steps = 0
        while self._names and not self._over.wait(_EVERY_S):
            where = next(self._walk)
            steps += len(self._names)
            places = np.column_stack([where.lon, where.lat])
            self._server.simulated(self._names, places, steps)

    def close(self) -> None:
        self._over.set()
        self._simulator.join()
        self._server.stop()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _frames(plan: Plan, driver: Driver) -> Trial:
    movers, seconds = plan.number("movers"), plan.number("seconds")
    ways = tuple(
        Contender(name, partial(_drawing, driver, count, seconds, plan.seed))
        for name, count in ((EMPTY, 0), (MOVERS, movers))
    )
    named = {"movers": movers, "updates/s": round(1 / _EVERY_S)}
    return Trial(FRAMES, ways, lambda: True, named, 1, "frame")


def _drawing(driver: Driver, movers: int, seconds: int, seed: int) -> Task:
    shown = _Shown(movers, seed)

    def run() -> Timed:
        with driver.browser() as browser, browser.page(shown.url) as page:
            until(page, "app?.scenery?.painter.frames")
            until(page, f"app.city.simulated.names.length === {movers}")
            time.sleep(_SETTLE_S)
            version = page.evaluate("document.querySelector('near-app').city.simulated.version")
            cpu = browser.cpu_s
            frames = page.evaluate(_DRAW, 1000 * seconds)
            taken = browser.cpu_s - cpu
            came = page.evaluate("document.querySelector('near-app').city.simulated.version")
            # places came as often as is said, as far as a machine with much to do takes them
            return Timed(taken / frames, not movers or came - version >= seconds / 2)

    return Task(run, close=shown.close)


def _first(plan: Plan, driver: Driver) -> Trial:
    movers = plan.number("people")
    way = Contender(PICTURE, partial(_opening, driver, movers, plan.seed))
    return Trial(FIRST, (way,), lambda: True, {"movers": movers}, 1, "page")


def _opening(driver: Driver, movers: int, seed: int) -> Task:
    held = ExitStack()
    shown = _Shown(movers, seed)
    held.callback(shown.close)
    browser: Chromium = held.enter_context(driver.browser())

    def run() -> Timed:
        started = time.perf_counter()
        with browser.page(shown.url) as page:
            until(page, "app?.scenery?.painter.frames")
            return Timed(time.perf_counter() - started, True)

    return Task(run, memory=lambda: {"gzipped bytes": _packed()}, close=held.close)


def _packed() -> int:
    """Everything that the page may ever load, as it goes over the wire."""
    folder = files("nearcast.server").joinpath("static")
    return sum(len(gzip.compress(each.read_bytes(), 6)) for each in folder.iterdir())


# --- what it costs to be watched -----------------------------------------------------------------


class _Demo:
    """The demo's city in a server of its own, as people run it; started when first asked for."""

    def __init__(self, people: int) -> None:
        self._people = people
        self._folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        self._users = 0
        self.process: Process | None = None

    def open(self) -> Process:
        self._users += 1
        if self.process is None:
            settings = {"demo": "true", "demo_people": str(self._people)}
            self.process = Process(self._folder / "city.db", "globe", settings=settings)
            end = time.monotonic() + _PATIENCE_S
            while self._come() < _COME * self._people and time.monotonic() < end:
                time.sleep(1)
            time.sleep(_SETTLE_S)
        return self.process

    def _come(self) -> float:
        assert self.process is not None
        with urlopen(f"{self.process.url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return max((float(each.rpartition(" ")[2]) for each in lines
                    if each.startswith("nearcast_streams")), default=0.0)  # fmt: skip

    def close(self) -> None:
        self._users -= 1
        if not self._users and self.process is not None:
            self.process.stop()
            shutil.rmtree(self._folder, ignore_errors=True)


def _watch(plan: Plan, driver: Driver) -> Trial:
    people, seconds = plan.number("people"), plan.number("seconds")
    demo = _Demo(people)
    ways = (
        Contender(NOBODY, partial(_serving, demo, seconds, None)),
        Contender(PAGE, partial(_serving, demo, seconds, driver)),
    )
    return Trial(WATCH, ways, lambda: True, {"movers": people}, 1, "second")


def _serving(demo: _Demo, seconds: int, driver: Driver | None) -> Task:
    process = demo.open()

    def run() -> Timed:
        with ExitStack() as held:
            if driver is not None:
                browser = held.enter_context(driver.browser())
                page = held.enter_context(browser.page(process.url))
                until(page, "app?.scenery?.painter.frames && app.city.simulated.names.length")
            time.sleep(_SETTLE_S)
            started, cpu = time.perf_counter(), process.cpu_s
            time.sleep(seconds)
            return Timed((process.cpu_s - cpu) / (time.perf_counter() - started), True)

    return Task(run, close=demo.close)


# --- claims --------------------------------------------------------------------------------------

_MOST_TIMES, _MOST_BYTES, _MOST_S, _MOST_SHARE = 1.6, 700_000, 2.0, 0.05
_MANY, _PEOPLE, _LONG = 20_000, 2_000, 3


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    found = {(m.operation, m.contender): m for m in measurements}
    drawn, empty = found.get((FRAMES, MOVERS)), found.get((FRAMES, EMPTY))
    if drawn is not None and empty is not None:
        for m in (empty, drawn):
            claims.append(Claim(f"a frame, {m.contender}", 1000 * median(m.seconds), "CPU-ms"))
        many = int(drawn.parameters["movers"])
        counts = many >= _MANY and len(drawn.seconds) >= _LONG
        times = median(drawn.seconds) / median(empty.seconds)
        goal = _MOST_TIMES if counts else None
        name = f"a frame with {many:,} movers against an empty map"
        claims.append(Claim(name, times, "× CPU", goal, "at most"))
    if (first := found.get((FIRST, PICTURE))) is not None:
        counts = int(first.parameters["movers"]) >= _PEOPLE
        goal = _MOST_S if counts else None
        claims.append(Claim("the first picture", median(first.seconds), "s", goal, "at most"))
        size = first.memory["gzipped bytes"]
        claims.append(Claim("the whole page", size / 1000, "kB", _MOST_BYTES / 1000, "at most"))
    watched, alone = found.get((WATCH, PAGE)), found.get((WATCH, NOBODY))
    if watched is not None and alone is not None:
        counts = int(watched.parameters["movers"]) >= _PEOPLE and len(watched.seconds) >= _LONG
        share = median(watched.seconds) - median(alone.seconds)
        goal = _MOST_SHARE if counts else None
        claims.append(Claim("one page that watches", share, "of a core", goal, "at most"))
        claims.append(Claim("nobody watching", median(alone.seconds), "of a core"))
    return claims


EXPERIMENT = Experiment(
    name="map",
    summary="the live map: CPU of a frame, the first picture, a page that watches",
    settings=(
        Setting("parts", (FRAMES, FIRST, WATCH), (FRAMES, FIRST, WATCH), "what is measured"),
        Setting("movers", (20_000,), (200,), "how many are drawn in a frame"),
        Setting("people", (2_000,), (20,), "how many the watched demo has, and the first picture"),
        Setting("seconds", (6,), (1,), "how long each turn is"),
    ),
    trials=_trials,
    claims=_claims,
)
