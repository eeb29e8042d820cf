"""The parts of `stream` that remember: patterns and fences, shards with state on Spark; and movers.

Detection is Grus' logistics (§5.1), the embedded detector on the same files beside it, and what
one writes without us: a Python function by vehicle, with state of its own. Fences are trucks that
wander past circles. A stream is timed from its second batch on: in the first one
workers start, and build what they keep. Its answer is what is told in all. Movers are the
simulator's, as one job: what it says of the first group is compared with one process.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.bench.experiments.base import Plan, Setting
from nearcast.bench.experiments.by_key import by_vehicle
from nearcast.bench.experiments.spark_history import wander
from nearcast.bench.experiments.spark_jobs import told_as_pairs
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Timed, Trial
from nearcast.bootstrap import Broker
from nearcast.clock import to_datetime
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.datasets.grus import logistics
from nearcast.mobility.scene import plane_scene
from nearcast.model.codec import events_from_arrow, events_to_arrow, fences_to_arrow
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Circle, Point
from nearcast.spark import detect, fences, session, simulate
from nearcast.spark.progress import following
from nearcast.spark.simulate import group_seed, outcome_row

__all__ = ["OPERATIONS", "PARTS", "SETTINGS", "claims", "trials"]

DETECT, FENCES, MOVERS = "detect on a stream", "fences on a stream", "movers as one job"
OPERATIONS = frozenset({DETECT, FENCES, MOVERS})
PARTS = ("detect", "by-key", "fences", "movers")
EMBEDDED, BY_KEY = "embedded, from files", "Python by key"
_COMPOSITES, _OBJECTS, _USUAL = 15_000, 100_000, 2  # at which targets count
_WARM = 3000
_DAY = 86_400_000_000
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.sql.adaptive.enabled": False,
    "spark.sql.streaming.stateStore.providerClass": _ROCKS,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
}


def trials(plan: Plan) -> Iterator[Trial]:
    """Those of the parts that were asked for, on so many cores one after the other."""
    chosen = set(plan.texts("parts")) & set(PARTS)
    for cores in plan.numbers("cores") if chosen else ():
        spark = session("nearcast bench", f"local[{cores}]", settings=_SETTINGS)
        try:
            if "detect" in chosen:
                yield from _detecting(plan, spark, cores)
            if "by-key" in chosen:
                yield from _detecting(plan, spark, cores, by_key=True)
            if "fences" in chosen:
                yield from _fencing(plan, spark, cores)
            if "movers" in chosen:
                yield _moving(plan, spark, cores)
        finally:
            spark.stop()


class _Files:
    """Events in files, one a batch; the last one is a beat that moves the watermark past all."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        self.events = self.folder / "events"
        self.events.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, self.events / f"{number:05}.parquet")
        self.work = sum(table.num_rows for table in tables[1:])
        self.messages: dict[int, int] = {}
        """What went to so many shards."""

    def stream(self, spark: Any, shards: int, made: Callable[[Any, int], Any]) -> Timed:
        """The seconds of all batches but the first, and what they and the first told."""
        spark.conf.set("spark.sql.shuffle.partitions", str(shards))
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        schema = spark.read.parquet(str(self.events)).schema
        given = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        writer = made(given.parquet(str(self.events)), shards).writeStream.format("parquet")
        writer = writer.option("path", str(scratch / "out"))
        query = (
            writer.option("checkpointLocation", str(scratch / "state"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        batches = list(query.recentProgress)
        sent = [batch.observedMetrics.get("nearcast_sent") for batch in batches]
        if any(sent):
            self.messages[shards] = sum(each["messages"] or 0 for each in sent if each is not None)
        seconds = sum(batch.durationMs["triggerExecution"] for batch in batches[1:]) / 1e3
        return Timed(seconds, pq.read_table(scratch / "out"))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _sliced(table: pa.Table, batch: int, beat: pa.Table) -> list[pa.Table]:
    rest = table.slice(_WARM)
    parts = [rest.slice(first, batch) for first in range(0, rest.num_rows, batch)]
    return [table.slice(0, _WARM), *parts, beat]


# --- patterns -------------------------------------------------------------------------------------


def _detecting(plan: Plan, spark: Any, cores: int, by_key: bool = False) -> Iterator[Trial]:
    number, batch = plan.number("keyed" if by_key else "patterned"), plan.number("slice")
    source = logistics(plan.number("composites"), number, plan.seed)
    composites = [Composite(str(i), text=text) for i, text in enumerate(source.texts)]
    last = source.events[-1]
    assert last.end is not None
    beat = Event("beat", {"id": -1, "type": "beat"}, location=Point(0, 0), end=last.end + _DAY)
    table = events_to_arrow([*source.events, beat])
    count = len(source.events)
    files = _Files(_sliced(table.slice(0, count), batch, table.slice(count)))

    def made(given: Any, shards: int) -> Any:
        return detect(given, composites, 1, space="planar", longest=0, shards=shards)

    def opened(shards: int) -> Task:
        return Task(
            lambda: files.stream(spark, shards, made),
            answer=lambda told: _detected(told.to_pylist()),
            memory=lambda: {"messages": files.messages[shards], "everywhere": shards * count},
        )

    def rival() -> Task:
        return Task(
            lambda: files.stream(spark, 2 * cores, lambda given, _: by_vehicle(given, composites)),
            answer=lambda told: _detected(told.to_pylist()),
        )

    point: dict[str, Scalar] = {"composites": len(composites), "batch": batch, "cores": cores}
    shards = plan.numbers("shards")
    if by_key:
        shards = shards[:1]
    contenders = [Contender(f"{each} shards", partial(opened, each)) for each in shards]
    if by_key:
        contenders.append(Contender(BY_KEY, rival))
        point["rival"] = True
    else:
        contenders.append(Contender(EMBEDDED, lambda: _embedded(files, composites)))
    try:
        yield Trial(
            DETECT, tuple(contenders), lambda: sorted((str(i), ids) for i, ids in source.runs),
            point, files.work, "event", at_most=1 if by_key else 2,
        )  # fmt: skip
    finally:
        files.close()


def _detected(rows: Sequence[Mapping[str, Any]]) -> object:
    return sorted((row["composite_id"], tuple(row["event_ids"])) for row in rows)


def _embedded(files: _Files, composites: Sequence[Composite]) -> Task:
    """The same files, read and fed one after the other in this process."""
    made: list[Detector] = []

    def before() -> None:
        made[:] = [Detector("planar", longest=0)]
        for composite in composites:
            made[0].add(composite)
        made[0].feed(())

    def run() -> object:
        return [
            found
            for path in sorted(files.events.iterdir())
            for found in made[0].feed(events_from_arrow(pq.read_table(path)))
        ]

    def answer(found: Any) -> object:
        return sorted((one.composite_id, one.parts) for one in found)

    return Task(run, before=before, answer=answer)


# --- fences ---------------------------------------------------------------------------------------


class _Trucks:
    """Positions and fences, and what a broker tells of them."""

    def __init__(self, objects: int, rounds: int, fences: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        steps = list(islice(wander(random, objects), rounds))
        x, y = 8.0 + random.random(fences), 47.0 + 0.7 * random.random(fences)
        sizes = random.uniform(100, 300, fences)
        self.fences = [
            Fence(f"f{i}", "ops", "truck", Circle(*at))
            for i, at in enumerate(zip(x.tolist(), y.tolist(), sizes.tolist(), strict=True))
        ]
        beat = steps[-1].slice(0, 1)
        end = pa.array([beat.column("end").cast(pa.int64())[0].as_py() + _DAY], pa.int64())
        nobody = pa.StructArray.from_arrays([pa.array(["beat"])], ["truck"])
        for name, column in (
            ("id", pa.array(["beat"])), ("attributes", nobody), ("lon", pa.array([0.0])),
            ("end", end.cast(beat.schema.field("end").type)),
        ):  # fmt: skip
            beat = beat.set_column(beat.column_names.index(name), name, column)
        self.steps = steps
        self.files = _Files([*steps, beat])

    @cached_property
    def truth(self) -> pa.Table:
        """What the broker tells; events expire as they come, so it keeps none."""
        broker = Broker()
        broker.subscribe_many(self.fences)
        told = []
        for step in self.steps:
            given = step.sort_by([("end", "ascending"), ("id", "ascending")])
            given = given.append_column("expires", given.column("end"))
            told += [
                (n.subscription_id, n.object, n.transition, to_datetime(n.at), n.event.id)
                for n in broker.publish_many(events_from_arrow(given))
            ]
        names = ["fence_id", "object", "transition", "at", "event_id"]
        kinds = [pa.string(), pa.string(), pa.string(), pa.timestamp("us", tz="UTC"), pa.string()]
        rows = [dict(zip(names, each, strict=True)) for each in told]
        return _pairs(pa.Table.from_pylist(rows, pa.schema(list(zip(names, kinds, strict=True)))))


def _pairs(told: pa.Table) -> object:
    pairs = told_as_pairs(told)
    return sorted(zip(*(column.to_pylist() for column in pairs.columns), strict=True))


def _fencing(plan: Plan, spark: Any, cores: int) -> Iterator[Trial]:
    objects, count = plan.number("objects"), plan.number("fences")
    trucks = _Trucks(objects, plan.number("rounds"), count, plan.seed)
    wanted = spark.createDataFrame(fences_to_arrow(trucks.fences))

    def made(given: Any, shards: int) -> Any:
        return fences(given, wanted, lateness=1, shards=shards)

    def opened(shards: int) -> Task:
        return Task(lambda: trucks.files.stream(spark, shards, made), answer=_pairs)

    shards = plan.numbers("shards")
    point: dict[str, Scalar] = {"fences": count, "objects": objects, "cores": cores}
    try:
        yield Trial(
            FENCES, tuple(Contender(f"{n} shards", partial(opened, n)) for n in shards),
            lambda: trucks.truth, point, trucks.files.work, "position", at_most=2,
        )  # fmt: skip
    finally:
        trucks.files.close()


# --- movers ---------------------------------------------------------------------------------------


def _moving(plan: Plan, spark: Any, cores: int) -> Trial:
    subscribers, steps = plan.number("subscribers"), plan.number("steps")
    methods, seed, together = plan.texts("methods"), plan.seed, 50
    world = {"steps": steps, "live": plan.number("world")}
    names = ("left", "asked", "notices", "bytes_up", "bytes_down", "region_bytes")

    def run() -> object:
        with following(spark, _progress):
            return simulate(
                spark, plane_scene, subscribers, methods, together=together, seed=seed,
                scene_options=world,
            ).collect()  # fmt: skip

    def answer(rows: Any) -> object:
        wrong = sum(row["missed"] + row["late"] + row["surplus"] for row in rows)
        first = {r["method"]: [r[name] for name in names] for r in rows if r["group"] == 0}
        return len(rows), wrong, first

    def truth() -> object:
        size = min(together, subscribers)
        scene = plane_scene(subscribers=size, seed=group_seed(seed, 0), **world)  # type: ignore[arg-type]
        first = {name: outcome_row(scene, 0, name) for name in methods}
        groups = -(-subscribers // together)
        kept = {name: [row[each] for each in names] for name, row in first.items()}
        return groups * len(methods), 0, kept

    point: dict[str, Scalar] = {
        "subscribers": subscribers, "steps": steps, "methods": len(methods), "cores": cores,
    }  # fmt: skip
    task = Task(run, answer=answer)
    work = subscribers * steps * len(methods)
    return Trial(MOVERS, (Contender("Spark", lambda: task),), truth, point, work, "step", at_most=1)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rmovers: {done:,} of {total:,} groups", end="", file=sys.stderr, flush=True)


# --- claims ---------------------------------------------------------------------------------------


def claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """Rates with their goals, messages saved, and how much quicker than the rival by key."""
    made = []
    keyed = {m.contender: m for m in measurements if "rival" in m.parameters}
    for m in measurements:
        cores = m.parameters["cores"]
        of = f"{m.contender}, {cores} cores" if cores != _USUAL else m.contender
        if "rival" in m.parameters:
            if m.contender == BY_KEY:
                ours = next(other for name, other in keyed.items() if name != BY_KEY)
                made.append(Claim("detect, times Python by key", ours.rate / m.rate, "×"))
                made.append(Claim(f"detect, {of}", m.rate, "events/s"))
        elif m.operation == DETECT:
            large = int(m.parameters["composites"]) >= _COMPOSITES and m.contender != EMBEDDED
            goal = 15_000 if large and cores == _USUAL else None
            made.append(Claim(f"detect, {of}", m.rate, "events/s", goal))
            if "everywhere" in m.memory:
                share = m.memory["everywhere"] / max(1, m.memory["messages"])
                name = f"messages saved against sending everything everywhere, {of}"
                made.append(Claim(name, share, "×"))
        elif m.operation == FENCES:
            large = int(m.parameters["objects"]) >= _OBJECTS and cores == _USUAL
            made.append(Claim(f"fences, {of}", m.rate, "positions/s", 50_000 if large else None))
        elif m.operation == MOVERS:
            made.append(Claim("movers as one job", m.rate, "subscriber steps/s"))
    return made


SETTINGS = (
    Setting("shards", (2, 8), (2,), "into how many parts the state is cut"),
    Setting("composites", (15_000,), (30,), "how many patterns"),
    Setting("patterned", (240_000,), (6_000,), "how many events of patterns"),
    Setting("keyed", (63_000,), (4_500,), "how many beside the rival by key"),
    Setting("slice", (60_000,), (1_500,), "how many of them in a batch"),
    Setting("fences", (100_000,), (200,), "how many fences"),
    Setting("objects", (100_000,), (1_000,), "how many trucks, each once a batch"),
    Setting("rounds", (6,), (3,), "how many positions of each"),
    Setting("subscribers", (10_000,), (60,), "how many movers"),
    Setting("steps", (1_000,), (20,), "how many steps of each"),
    Setting("methods", ("disc", "vm", "gm", "igm", "idgm"), ("disc", "igm"), "of regions"),
    Setting("world", (100_000,), (2_000,), "how many events live"),
)
