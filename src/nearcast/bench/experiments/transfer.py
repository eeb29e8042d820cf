"""`transfer`: files in and out: subscriptions and live events, a store file and a server.

Each run takes a whole file into an empty store, or writes one out of a full one, as `nearcast
import` and `nearcast export` do. The truth is how many rows there are.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.load.process import Process
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Circle, Point
from nearcast.model.subscriptions import Subscription
from nearcast.transfer import export_file, import_file
from nearcast.transfer.columnar import write_tables

__all__ = ["EXPERIMENT"]

IMPORT, EXPORT = "import", "export"
_GOAL_S = 120.0
_LARGE = 1_000_000
_TOGETHER = 50_000
_LATER = "2100-01-01T00:00:00Z"


def _subscription(i: int, x: float, y: float, price: int) -> Subscription:
    where = f"kind = 'k{i % 50}' AND price < {price}"
    return Subscription(f"s{i:09}", f"u{i % 20_000}", where, ("sale",), Circle(x, y, 500.0), _LATER)


def _event(i: int, x: float, y: float, price: int) -> Event:
    attributes: dict[str, Value] = {"kind": f"k{i % 50}", "price": price}
    return Event(f"e{i:09}", attributes, ("sale",), Point(x, y), expires=_LATER)


def _parquet(path: Path, kind: str, n: int, seed: int) -> None:
    """The rows of one kind in a file."""
    rng = np.random.default_rng(seed)
    make: Any = _subscription if kind == "subscriptions" else _event
    table_of: Any = subscriptions_to_arrow if kind == "subscriptions" else events_to_arrow

    def tables() -> Iterator[Any]:
        for first in range(0, n, _TOGETHER):
            numbers = range(first, min(n, first + _TOGETHER))
            at = rng.uniform((116.0, 39.5), (117.0, 40.5), (len(numbers), 2)).tolist()
            prices = rng.integers(1, 1000, len(numbers)).tolist()
            rows = zip(numbers, at, prices, strict=True)
            yield table_of([make(i, *place, price) for i, place, price in rows])

    write_tables(path, "parquet", table_of([make(0, 116.0, 40.0, 1)]).schema, tables())


class _Folder:
    """Files of one kind in every format, made once, and a place for what is made of them."""

    def __init__(self, kind: str, n: int, seed: int) -> None:
        self.kind, self.n = kind, n
        self.path = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        self._runs = 0
        _parquet(self.file("parquet"), kind, n, seed)

    def file(self, format: str) -> Path:
        return self.path / f"in.{format}"

    def ready(self, format: str) -> Path:
        """The file in a format."""
        file = self.file(format)
        if not file.exists():
            export_file(file, self.kind, str(self.full()))
        return file

    def full(self) -> Path:
        """A store that holds all of it."""
        store = self.path / "full.db"
        if not store.exists():
            import_file(self.file("parquet"), self.kind, str(store))
        return store

    def fresh(self, name: str) -> Path:
        """A name that nothing has."""
        self._runs += 1
        return self.path / f"{self._runs}-{name}"

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _importing(folder: _Folder, format: str) -> Task:
    file = folder.ready(format)

    def run() -> int:
        return import_file(file, folder.kind, str(folder.fresh("in.db"))).rows

    return Task(run)


def _serving(folder: _Folder) -> Task:
    """Into a server that is a process beside; each run replaces nothing and is new by its ids."""
    served: list[Any] = []

    def before() -> None:
        _stop(served)
        served.append(Process(folder.fresh("served.db"), "globe"))

    def run() -> int:
        return import_file(folder.file("parquet"), folder.kind, served[-1].url).rows

    return Task(run, before=before, close=lambda: _stop(served))


def _stop(served: list[Any]) -> None:
    while served:
        served.pop().stop()


def _exporting(folder: _Folder, format: str) -> Task:
    store = folder.full()

    def run() -> int:
        return export_file(folder.fresh(f"out.{format}"), folder.kind, str(store)).rows

    return Task(run)


def _trials(plan: Plan) -> Iterator[Trial]:
    parts, formats = plan.texts("parts"), plan.texts("formats")
    for n in plan.numbers("n"):
        for kind in plan.texts("kinds"):
            folder = _Folder(kind, n, plan.seed)
            named: dict[str, Scalar] = {"n": n, "kind": kind}
            ways = [
                Contender(f"{each}, file", partial(_importing, folder, each)) for each in formats
            ]
            if "server" in parts:
                ways.append(Contender("parquet, server", partial(_serving, folder)))
            outs = [
                Contender(f"{each}, file", partial(_exporting, folder, each)) for each in formats
            ]
            try:
                if IMPORT in parts:
                    yield Trial(IMPORT, (*ways,), partial(int, n), named, n, "row", 3)
                if EXPORT in parts:
                    yield Trial(EXPORT, (*outs,), partial(int, n), named, n, "row", 3)
            finally:
                folder.close()


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims = []
    for found in measurements:
        n = int(found.parameters["n"])
        name = f"{found.operation} {n:,} {found.parameters['kind']}, {found.contender}"
        if n >= _LARGE:
            claims.append(Claim(name, found.spread.median, "s", _GOAL_S, "at most"))
        else:
            claims.append(Claim(name, found.spread.median, "s"))
    return claims


EXPERIMENT = Experiment(
    name="transfer",
    summary="files in and out: subscriptions and live events, of a store and of a server",
    settings=(
        Setting("n", (1_000_000,), (5_000,), "rows"),
        Setting("kinds", ("subscriptions", "events"), ("subscriptions", "events"), "what they are"),
        Setting("formats", ("parquet", "geojson"), ("parquet", "geojson"), "of the files"),
        Setting("parts", (IMPORT, EXPORT, "server"), (IMPORT, EXPORT), "which are measured"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(Figure("transfer", "A file in, and out", IMPORT, "seconds"),),
)
