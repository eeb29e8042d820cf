"""Fences over history: trucks that wander past circles, for the `spark` experiment.

Contenders tell of `enter` and `exit` end to end (Parquet in, transitions on disk out): fences on
a DataFrame and on files, and window functions over a grid join in Spark SQL. The truth is what
the broker tells of the same positions.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.bench.experiments.base import Plan
from nearcast.bench.experiments.spark_jobs import Engine, told_as_pairs, write
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Trial
from nearcast.bootstrap import Broker
from nearcast.clock import to_datetime
from nearcast.model.codec import events_from_arrow, fences_to_arrow
from nearcast.model.fences import Fence
from nearcast.model.geometry import Circle

__all__ = ["HISTORY", "claims", "trials", "wander"]

HISTORY = "fences over history, end to end"
_OURS = ("fences", "fences on files")
_STEPS = 100  # positions of each truck
_WEST, _SOUTH, _WIDE, _HIGH = 8.0, 47.0, 1.0, 0.7
_START, _MINUTE = 1_780_000_000_000_000, 60_000_000
_LARGE = 1_000_000
_TOGETHER = 50_000


class _History:
    """Positions and fences on disk, and what a broker tells of them."""

    def __init__(self, n: int, fences: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.positions = pa.concat_tables(wander(random, max(1, n // _STEPS)))
        x, y = _WEST + _WIDE * random.random(fences), _SOUTH + _HIGH * random.random(fences)
        sizes = random.uniform(100, 300, fences)
        self.fences = [
            Fence(f"f{i}", "ops", "truck", Circle(*at))
            for i, at in enumerate(zip(x.tolist(), y.tolist(), sizes.tolist(), strict=True))
        ]
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        write(self.positions, self.folder / "positions", 16)
        write(fences_to_arrow(self.fences), self.folder / "fences", 1)

    @cached_property
    def truth(self) -> pa.Table:
        """What the broker tells; events expire as they come, so it keeps none."""
        broker = Broker()
        broker.subscribe_many(self.fences)
        given = self.positions.sort_by([("end", "ascending"), ("id", "ascending")])
        given = given.append_column("expires", given.column("end"))
        told = [
            (n.subscription_id, n.object, n.transition, to_datetime(n.at), n.event.id)
            for first in range(0, given.num_rows, _TOGETHER)
            for n in broker.publish_many(events_from_arrow(given.slice(first, _TOGETHER)))
        ]
        names = ["fence_id", "object", "transition", "at", "event_id"]
        kinds = [pa.string(), pa.string(), pa.string(), pa.timestamp("us", tz="UTC"), pa.string()]
        rows = [dict(zip(names, each, strict=True)) for each in told]
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        return told_as_pairs(pa.Table.from_pylist(rows, schema))

    def job(self, engine: Engine, name: str, cell_m: float = 0.0) -> Task:
        """One job on Spark."""
        arguments = {
            "events": str(self.folder / "positions"),
            "subscriptions": str(self.folder / "fences"),
            "cell_m": cell_m,
        }
        return Task(lambda: engine.run(name, **arguments))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def wander(random: np.random.Generator, trucks: int) -> Iterator[pa.Table]:
    """A minute a table: each truck once, some 250 m from where it was."""
    x, y = _WEST + _WIDE * random.random(trucks), _SOUTH + _HIGH * random.random(trucks)
    heading = 2 * np.pi * random.random(trucks)
    names = pc.binary_join_element_wise("truck ", pa.array(np.arange(trucks)).cast(pa.string()), "")
    for step in range(_STEPS):
        heading += random.normal(0, 0.4, trucks)
        x = np.clip(x + 0.003 * np.cos(heading), _WEST, _WEST + _WIDE)
        y = np.clip(y + 0.002 * np.sin(heading), _SOUTH, _SOUTH + _HIGH)
        order = random.permutation(trucks)
        numbers = pa.array(step * trucks + np.arange(trucks)).cast(pa.string())
        ends = _START + step * _MINUTE + random.integers(0, _MINUTE, trucks)
        yield pa.table(
            {
                "id": pc.binary_join_element_wise("p", numbers, ""),
                "attributes": pa.StructArray.from_arrays([names.take(pa.array(order))], ["truck"]),
                "lon": x[order],
                "lat": y[order],
                "end": pa.array(ends).cast(pa.timestamp("us", tz="UTC")),
            }
        )


def trials(plan: Plan, engine: Engine) -> Iterator[Trial]:
    """One for each number of positions."""
    (count,) = plan.numbers("fences")
    for n in plan.numbers("positions"):
        data = _History(n, count, plan.seed)
        try:
            contenders = [Contender(name, partial(data.job, engine, name)) for name in _OURS]
            contenders += [
                Contender(f"windows, {cell} m", partial(data.job, engine, "windows", cell))
                for cell in plan.numbers("cell_m")
            ]
            yield Trial(
                HISTORY, tuple(contenders), partial(getattr, data, "truth"),
                {"workload": "trucks", "n": data.positions.num_rows, "fences": count},
                data.positions.num_rows, "position", at_most=3,
            )  # fmt: skip
        finally:
            data.close()


def claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """Against the fastest windows, at each size."""
    made = []
    mine = [m for m in measurements if m.operation == HISTORY]
    for n in sorted({int(m.parameters["n"]) for m in mine}):
        here = [m for m in mine if m.parameters["n"] == n]
        rivals = [m.spread.median for m in here if m.contender.startswith("windows")]
        for m in here:
            if m.contender not in _OURS:
                continue
            of = f"{m.contender}, {n:,} positions, {m.parameters['fences']:,} fences"
            made.append(Claim(f"positions a second, {of}", m.rate, "positions/s"))
            if rivals:
                label = f"times windows over a grid join, {of}"
                target = 5 if n >= _LARGE else None
                made.append(Claim(label, min(rivals) / m.spread.median, "×", target))
    return made
