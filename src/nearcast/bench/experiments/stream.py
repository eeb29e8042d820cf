"""`stream`: events matched on Spark as they come, while subscriptions change; patterns and fences.

The source `nearcast` with and without changes, at several sizes, against the join of a stream with
static subscriptions on grid cells that one writes without us, and that has to start anew to see
changes; newcomers told of live events; the
time from a file to the commit of its batch, and from the start of a process to its first commit.
Each run is a process and a query of its own; batches after the first are timed. Answers are
compared with the matcher's. The parts that remember are in `stream_detect`.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.bench.experiments import stream_detect, stream_jobs
from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.metrics import compare
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.datasets import workload
from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.errors import BenchError
from nearcast.matcher import Matcher

__all__ = ["EXPERIMENT", "LATE", "LATENCY", "MATCH", "RESTART"]

MATCH = "a batch of a stream"
LATE = "a batch with newcomers"
LATENCY = "from a file to its commit"
RESTART = "from a start to the first commit"

SOURCE, CHANGING, GRID = "no changes", "changes", "grid join"
ANEW = "grid join, started anew"
_PAIR = ["event_id", "subscription_id"]
_EVERY_S = 0.2
_CHECKED = pa.table([["checked"], ["checked"]], names=_PAIR)

_Batch = tuple[Sequence[pa.Table], Sequence[pa.Table]]
"""Changes, and the events that see them."""


class _Data:
    """Files of a stream: subscriptions, changes and events, and what is to be answered."""

    def __init__(self, plan: Plan, n: int, batches: int, size: int, changes: int, quiet: int = 0):
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-stream-"))
        self.source = workload("mo", seed=plan.seed, k=10)
        self.n, self.batches, self.size, self.quiet = n, batches, size, quiet
        fresh = changes * (batches - 1)
        subscriptions = pa.Table.from_batches(list(self.source.subscriptions(n + fresh)))
        self.first = subscriptions.slice(0, n).combine_chunks()
        self.fresh = [
            _renamed(subscriptions.slice(n + at * changes, changes), self.first, at, not quiet)
            for at in range(batches - 1 if changes else 0)
        ]
        events = pa.Table.from_batches(list(self.source.events(batches * size)))
        self.events = [events.slice(at * size, size).combine_chunks() for at in range(batches)]
        for at, each in enumerate(self.events):
            _put(each, self.folder / "events" / f"e{at:05d}.parquet", max(1, size // 4))
        _put(self.first, self.folder / "plain" / "s.parquet")
        self.write_changes(self.folder / "changes", [])
        self.write_changes(self.folder / "changing", self.fresh)

    def write_changes(self, folder: Path, fresh: Sequence[pa.Table]) -> None:
        """The first subscriptions, and with each batch after `quiet` ones some changes."""
        _put(_log(self.first, 1), folder / f"c{0:05d}.parquet")
        seq = self.first.num_rows + 1
        for at in range(1, self.batches if fresh else 1):
            table = fresh[at - 1] if at > self.quiet else None
            log = _log(table, seq) if table is not None else _nothing(self.first, seq)
            _put(log, folder / f"c{at:05d}.parquet")
            seq += log.num_rows

    def write_standing(self) -> Path:
        """What stands after each batch's changes, a folder each: for who starts anew."""
        standing = self.first
        for at in range(self.batches):
            if at and self.fresh:
                ids = self.fresh[at - 1].column("id")
                kept = pc.invert(pc.is_in(standing.column("id"), value_set=ids))
                standing = pa.concat_tables([standing.filter(kept), self.fresh[at - 1]])
            _put(standing, self.folder / "standing" / f"{at:05d}" / "s.parquet")
        return self.folder / "standing"

    def answer(self, changing: bool, late: bool = False) -> pa.Table:
        """All pairs of all batches, by a matcher that is changed between them."""
        batches = [
            ([self.fresh[at - 1]] if changing and at > self.quiet else [], [events])
            for at, events in enumerate(self.events)
        ]
        return self._answer(batches, late)

    def _answer(self, batches: Sequence[_Batch], late: bool = False) -> pa.Table:
        matcher = Matcher("auto", self.source.space)
        matcher.add_subscriptions(self.first)
        parts, before = [], list[pa.Table]()
        for changes, events in batches:
            for table in changes:
                for id in table.column("id").to_pylist():
                    if id in matcher:
                        matcher.remove_subscription(id)
                matcher.add_subscriptions(table)
                if late:
                    newcomers = Matcher("auto", self.source.space)
                    newcomers.add_subscriptions(table)
                    parts += [newcomers.match_events(each) for each in before]
            parts += [matcher.match_events(each) for each in events]
            before += events
        return pa.concat_tables(parts)

    def live(self) -> Path:
        """A folder for a run to which files come one by one: `waiting`, `events`, `changes`."""
        home = Path(tempfile.mkdtemp(dir=self.folder, prefix="live-"))
        for name in ("events", "changes", "waiting"):
            (home / name).mkdir()
        _put(_log(self.first, 1), home / "changes" / "c00000.parquet")
        _put(self.events[0], home / "events" / "e00000.parquet")
        seq = self.first.num_rows + 1
        for at, (events, fresh) in enumerate(
            zip(self.events[1:-1], self.fresh[:-1], strict=True), 1
        ):
            _put(events, home / "waiting" / f"e{at:05d}.parquet")
            _put(_log(fresh, seq), home / "waiting" / f"c{at:05d}.parquet")
            seq += fresh.num_rows
        _put(self.events[-1], home / "waiting" / "last.parquet")
        return home

    def check(self, home: Path) -> None:
        """Refuse a run whose answer is not what its own checkpoint says it should be."""
        batches: list[_Batch] = []
        upto = {"events": -1, "changes": 0}
        for offset in stream_jobs.offsets_of(home / "state"):
            now = {name: int(offset[name][1:6]) for name in upto}
            first = {name: upto[name] + 1 for name in upto}
            events = [self.events[min(at, len(self.events) - 1)]
                      for at in range(first["events"], now["events"] + 1)
                      if at < len(self.events) - 1 or at == 99_999]  # fmt: skip
            changes = [self.fresh[at - 1] for at in range(first["changes"], now["changes"] + 1)]
            batches.append((changes, events))
            upto = now
        agreement = compare(_found(home), self._answer(batches))
        if not agreement.exact:
            raise BenchError(f"the stream's answer is wrong: {agreement}")

    def job(self, job: str, changes: str, cores: int, remember: int = 0, **more: Any) -> Task:
        """A query from the beginning; the batches after the first (and the quiet ones) count."""

        def work() -> Timed:
            home = Path(tempfile.mkdtemp(dir=self.folder, prefix="run-"))
            said = stream_jobs.run(
                job=job, home=str(home), cores=cores, space=self.source.space, remember=remember,
                events=str(self.folder / "events"), changes=str(self.folder / changes),
                plain=str(self.folder / "plain"), max_rows=self.size, **more,
            )  # fmt: skip
            if len(said["seconds"]) != self.batches:
                raise BenchError(f"{job}: {len(said['seconds'])} batches, and not {self.batches}")
            found = _found(home)
            shutil.rmtree(home, ignore_errors=True)
            return Timed(sum(said["seconds"][1 + self.quiet :]), found)

        return Task(work)

    @property
    def work(self) -> int:
        """The events that are timed."""
        return (self.batches - 1 - self.quiet) * self.size

    @cached_property
    def cell(self) -> float:
        """Width of a grid cell: half of what a region is wide."""
        width = pc.mean(pc.subtract(self.first.column("xmax"), self.first.column("xmin"))).as_py()
        return float(width or METRES_PER_DEGREE) / 2

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _found(home: Path) -> pa.Table:
    """The pairs of a run."""
    files = stream_jobs.files_of(home / "out")
    return pa.concat_tables([pq.read_table(each).select(_PAIR) for each in files])


def _renamed(rows: pa.Table, first: pa.Table, at: int, updates: bool) -> pa.Table:
    """Changes: half of them of subscriptions that are there, if there are to be `updates`."""
    half = rows.num_rows // 2 if updates else 0
    old = first.column("id").slice((at * half) % max(1, first.num_rows - half), half).to_pylist()
    ids = old + rows.column("id").to_pylist()[len(old) :]
    return rows.set_column(rows.column_names.index("id"), "id", pa.array(ids, pa.string()))


def _log(rows: pa.Table, seq: int) -> pa.Table:
    ops = pa.array(["update"] * rows.num_rows, pa.string())
    numbers = pa.array(range(seq, seq + rows.num_rows), pa.int64())
    return rows.append_column("op", ops).append_column("seq", numbers)


def _nothing(like: pa.Table, seq: int) -> pa.Table:
    """A change that changes nothing, so that a batch has a file to read."""
    row = pa.table({"id": ["nobody"], "op": ["remove"], "seq": pa.array([seq], pa.int64())})
    return pa.concat_tables([_log(like.slice(0, 0), seq), row], promote_options="default")


def _put(table: pa.Table, path: Path, group: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group, use_dictionary=False, compression="none")


def _trials(plan: Plan) -> Iterator[Trial]:
    parts, cores = plan.texts("parts"), plan.numbers("cores")[0]
    size, changes = plan.number("batch"), plan.number("changes")
    if "match" in parts:
        for n in plan.numbers("n"):
            data = _Data(plan, n, plan.number("batches"), size, changes)
            point = {"n": n, "batch": size, "changes": changes}
            still = [Contender(SOURCE, partial(data.job, "source", "changes", cores))]
            if n <= plan.number("joined"):
                join = partial(data.job, "grid join", "changes", cores, cell_m=data.cell)
                still.append(Contender(GRID, join))
            yield Trial(MATCH, tuple(still), partial(data.answer, False), point, data.work,
                        "event", at_most=3)  # fmt: skip
            moving = [Contender(CHANGING, partial(data.job, "source", "changing", cores))]
            if n <= plan.number("joined"):
                standing = str(data.write_standing())
                anew = partial(
                    data.job, "anew", "changing", cores, cell_m=data.cell, standing=standing
                )
                moving.append(Contender(ANEW, anew))
            yield Trial(MATCH, tuple(moving), partial(data.answer, True), point, data.work, "event",
                        at_most=3)  # fmt: skip
            data.close()
    if "late" in parts:
        live, newcomers = plan.number("live"), plan.number("newcomers")
        quiet = -(-live // size)
        few = plan.numbers("n")[0]
        data = _Data(plan, few, quiet + 1 + plan.number("batches"), size, newcomers, quiet)
        job = partial(data.job, "source", "changing", cores, remember=data.batches * size)
        yield Trial(
            LATE, (Contender("newcomers", job),), partial(data.answer, True, True),
            {"n": few, "live": live, "newcomers": newcomers}, data.work, "event", at_most=3,
        )  # fmt: skip
        data.close()
    for part, operation in (("latency", LATENCY), ("restart", RESTART)):
        if part in parts:
            yield from _moments(plan, operation, cores)
    yield from stream_detect.trials(plan)


def _moments(plan: Plan, operation: str, cores: int) -> Iterator[Trial]:
    """Times of a running stream: from file to commit, or from a start to the first commit."""
    few, rate = plan.numbers("n")[0], plan.number("rate")
    size = max(1, round(rate * _EVERY_S))
    changes = round(plan.number("changes") * _EVERY_S)
    files = max(3, round(plan.number("seconds") / _EVERY_S))
    data = _Data(plan, few, files + 1, size, changes)
    point = {"n": few, "rate": rate, "changes": changes}

    def run() -> Timed:
        home = data.live()
        given: dict[str, Any] = {
            "home": str(home), "cores": cores, "space": data.source.space, "remember": 0,
            "events": str(home / "events"), "changes": str(home / "changes"),
            "max_rows": 10_000_000,
        }  # fmt: skip
        said = stream_jobs.run(job="latency", every_s=_EVERY_S, **given)
        seconds = statistics.median(said["latency_s"])
        if operation == RESTART:
            (home / "waiting" / "last.parquet").rename(home / "events" / "e99999.parquet")
            seconds = stream_jobs.run(job="again", **given)["first_s"]
        data.check(home)
        shutil.rmtree(home)
        return Timed(seconds, _CHECKED)

    yield Trial(
        operation, (Contender("source", lambda: Task(run)),), lambda: _CHECKED, point, 1, "run",
        at_most=3,
    )  # fmt: skip
    data.close()


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    rest = [m for m in measurements if m.operation in stream_detect.OPERATIONS]
    measurements = [m for m in measurements if m.operation not in stream_detect.OPERATIONS]
    claims = stream_detect.claims(rest)
    found = {(m.operation, m.contender, m.parameters["n"]): m for m in measurements}
    for (operation, contender, n), m in found.items():
        of = f"{contender}, {n:,} subscriptions"
        judged = {100_000: 250_000, 1_000_000: 90_000}
        if operation == MATCH and contender == CHANGING:
            target = judged.get(int(n)) if m.parameters["changes"] == 1000 else None
            claims.append(Claim(f"events a second, {of}", m.rate, "events/s", target))
            still = found.get((MATCH, SOURCE, n))
            if still is not None:
                loss = 1 - m.rate / still.rate
                least = 0.15 if int(n) == 100_000 else None
                claims.append(Claim(f"loss to changes, {n:,}", loss, "", least, "at most"))
        elif operation == MATCH:
            claims.append(Claim(f"events a second, {of}", m.rate, "events/s"))
        elif operation == LATE:
            target = 50_000 if m.parameters["live"] == 1_000_000 else None
            claims.append(Claim(f"events a second, {of}", m.rate, "events/s", target))
        elif operation == LATENCY:
            claims.append(
                Claim(f"p50 {operation}", m.spread.median, "s", _if_large(n, 0.5), "at most")
            )
        else:
            claims.append(Claim(f"{operation}", m.spread.median, "s", _if_large(n, 20), "at most"))
        join = found.get((MATCH, GRID, n))
        if (operation, contender) == (MATCH, SOURCE) and join is not None:
            times = m.rate / join.rate
            claims.append(Claim(f"times a grid join, {n:,}", times, "×", _if_large(n, 10)))
        anew = found.get((MATCH, ANEW, n))
        if (operation, contender) == (MATCH, CHANGING) and anew is not None:
            claims.append(Claim(f"times a grid join started anew, {n:,}", m.rate / anew.rate, "×"))
    return claims


def _if_large(n: object, target: float) -> float | None:
    """Goals are for a hundred thousand subscriptions and more."""
    return target if int(str(n)) >= 100_000 else None


EXPERIMENT = Experiment(
    name="stream",
    summary="matching on a stream on Spark, while subscriptions change; patterns, fences, movers",
    settings=(
        Setting("n", (100_000, 1_000_000), (3000,), "subscriptions; the first also for the rest"),
        Setting("batch", (200_000,), (4000,), "events a batch, in one file"),
        Setting("batches", (5,), (2,), "the first is not timed"),
        Setting("changes", (1000,), (20,), "changes of subscriptions a batch, and a second"),
        Setting("joined", (100_000,), (3000,), "the most that a grid join is given"),
        Setting("live", (1_000_000,), (800,), "events that newcomers are told of"),
        Setting("newcomers", (800,), (10,), "of them a batch"),
        Setting("rate", (20_000,), (500,), "events a second, for the latency"),
        Setting("seconds", (20,), (1,), "how long these come"),
        Setting("cores", (2,), (2,), "Spark's cores; what remembers is run on each"),
        Setting(
            "parts",
            ("match", "late", "latency", "restart", *stream_detect.PARTS),
            ("match", "late", "latency", "restart", *stream_detect.PARTS),
            "batches, newcomers, file to commit, start to commit; patterns, beside a function by "
            "key, fences, and movers as one job",
        ),
        *stream_detect.SETTINGS,
    ),
    trials=_trials,
    claims=_claims,
    figures=(Figure("match", "Batches of a stream", MATCH, "rate"),),
)
