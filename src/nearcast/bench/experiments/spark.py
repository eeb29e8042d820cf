"""`spark`: matching in bulk, against what one writes without us, and what Spark itself costs.

End to end (DataFrames from Parquet in, matches on disk out) for both plans and for a grid-cell
equi-join in Spark SQL; a nested-loop join at a size that it can finish, extrapolated and said
to be; events past a ready index against the bare `match_events`, with one core and with two;
and how much of the index the workers copy. Answers are compared with the matcher's, and that
with the truth on some of the events.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import BareMatcher, Case
from nearcast.bench.experiments.spark_jobs import Engine, write
from nearcast.bench.metrics import compare
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.bench.truth import true_matches
from nearcast.datasets import workload
from nearcast.errors import BenchError

__all__ = ["EXPERIMENT"]

WHOLE = "match, end to end"
NESTED = "match few, end to end"
READY = "events past a ready index"

_SOURCES = {"mo": None, "cabs": "sf_cab_trips"}
_PARTS = 16
_LOOKED_AT = 20  # events about which the truth is worked out
_LARGE = 1_000_000


class _Data:
    """Both sides on disk, the matcher over them, and what it answers."""

    def __init__(self, name: str, n: int, seed: int, index: str) -> None:
        source = workload("mo", seed=seed, k=10, source=_SOURCES[name])
        self.case = Case.draw(source, n, n, seed)
        self.events = pa.concat_tables([self.case.events, self.case.sure])
        self.index = index
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        write(self.events, self.folder / "events", _PARTS)
        write(self.case.subscriptions, self.folder / "subscriptions", _PARTS)

    @cached_property
    def matcher(self) -> BareMatcher:
        """With all subscriptions."""
        return self.case.filled(self.index)

    @cached_property
    def truth(self) -> pa.Table:
        """The matcher's answer; BenchError if it is wrong about some of the events."""
        some = pa.concat_tables([self.events.slice(0, _LOOKED_AT), self.case.sure])
        agreement = compare(
            self.matcher.match_events(some), true_matches(self.case.subscriptions, some)
        )
        if not agreement.exact:
            raise BenchError(f"the matcher itself is wrong: {agreement}; mend it first")
        return self.matcher.match_events(self.events)

    @cached_property
    def saved(self) -> str:
        """Where the matcher lies."""
        folder = self.folder / "nearcast-saved"
        self.matcher.save(folder)
        return str(folder)

    def job(self, engine: Engine, name: str) -> Task:
        """One job on Spark."""
        arguments = {
            "events": str(self.folder / "events"),
            "subscriptions": str(self.folder / "subscriptions"),
            "space": self.case.space,
            "index": self.index,
        }
        if name in ("ready", "files"):
            arguments["saved"] = self.saved
        return Task(lambda: engine.run(name, **arguments), memory=lambda: engine.memory)

    def bare(self, threads: int) -> Task:
        """`match_events` in this process: Arrow in, Arrow out."""
        return Task(lambda: self.matcher.match_with(self.events, threads))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


_CHOICES = ("whole", "ready", "nested")


def _trials(plan: Plan) -> Iterator[Trial]:
    most = max(plan.numbers("cores"))
    with ExitStack() as stack:
        engines = {}
        for cores in plan.numbers("cores"):
            engines[cores] = Engine(cores)
            stack.callback(engines[cores].close)
        (index,) = plan.texts("index")
        for name in plan.texts("workloads"):
            if name not in _SOURCES:
                raise BenchError(f"workloads: {name!r} is none of {', '.join(_SOURCES)}")
            for n in plan.numbers("n"):
                data = _Data(name, n, plan.seed, index)
                stack.callback(data.close)
                yield from _large(plan, data, engines, name, n)
                data.close()
            if "nested" not in plan.texts("parts"):
                continue
            for few in plan.numbers("nested"):
                data = _Data(name, few, plan.seed, index)
                stack.callback(data.close)
                jobs = ("nested loop", "broadcast")
                yield _trial(NESTED, data, engines[most], jobs, {"workload": name, "n": few})
                data.close()


def _large(
    plan: Plan, data: _Data, engines: dict[int, Engine], name: str, n: int
) -> Iterator[Trial]:
    point: dict[str, Scalar] = {"workload": name, "n": n}
    if "whole" in plan.texts("parts"):
        jobs = ("broadcast", "partitioned", "grid join")
        yield _trial(WHOLE, data, engines[max(engines)], jobs, point)
    if "ready" not in plan.texts("parts"):
        return
    contenders = []
    for cores, engine in engines.items():
        contenders.append(Contender(f"bare, {_cores(cores)}", partial(data.bare, cores)))
        contenders.append(Contender(f"Spark, {_cores(cores)}", partial(data.job, engine, "ready")))
        contenders.append(
            Contender(f"Spark on files, {_cores(cores)}", partial(data.job, engine, "files"))
        )
    truth = partial(getattr, data, "truth")
    yield Trial(READY, tuple(contenders), truth, point, data.events.num_rows, "event", at_most=3)


def _trial(
    operation: str, data: _Data, engine: Engine, jobs: Sequence[str], point: dict[str, Scalar]
) -> Trial:
    contenders = tuple(Contender(job, partial(data.job, engine, job)) for job in jobs)
    truth = partial(getattr, data, "truth")
    return Trial(operation, contenders, truth, point, data.events.num_rows, "event", at_most=3)


def _cores(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for name in dict.fromkeys(str(m.parameters["workload"]) for m in measurements):
        mine = [m for m in measurements if m.parameters["workload"] == name]
        largest = max((int(m.parameters["n"]) for m in mine if m.operation != NESTED), default=0)
        found = {
            (m.operation, m.contender): m
            for m in mine
            if m.operation != NESTED and m.parameters["n"] == largest
        }
        judged = largest >= _LARGE
        claims += _whole(name, largest, found, judged)
        claims += _nested(name, largest, mine)
        claims += _overhead(name, largest, found, judged)
    return claims


_Found = dict[tuple[str, str], Measurement]


def _whole(name: str, n: int, found: _Found, judged: bool) -> list[Claim]:
    if (WHOLE, "grid join") not in found:
        return []
    grid = found[WHOLE, "grid join"].spread.median
    claims = []
    for plan in ("broadcast", "partitioned"):
        m = found[WHOLE, plan]
        of = f"{plan}, {name}, {n:,}"
        claims.append(Claim(f"events a second end to end, {of}", m.rate, "events/s"))
        ratio = grid / m.spread.median
        claims.append(Claim(f"times a grid join in SQL, {of}", ratio, "×", 10 if judged else None))
    return claims


def _nested(name: str, n: int, mine: Sequence[Measurement]) -> list[Claim]:
    """What a nested loop would take, from its times at two sizes: a start, and a slope by pairs."""
    loops = [m for m in mine if (m.operation, m.contender) == (NESTED, "nested loop")]
    if len(loops) < 2:
        return []
    small, large = sorted(loops, key=lambda m: m.work)[:: len(loops) - 1]
    pairs = [m.work * int(m.parameters["n"]) for m in (small, large)]
    slope = (large.spread.median - small.spread.median) / (pairs[1] - pairs[0])
    if slope <= 0:  # too small to tell
        return []
    return [
        Claim(
            f"nested-loop join, {name}, {n:,}: extrapolated from "
            f"{int(small.parameters['n']):,} and {int(large.parameters['n']):,}, not measured",
            large.spread.median + slope * (n * n - pairs[1]),
            "s",
        )
    ]


def _overhead(name: str, n: int, found: _Found, judged: bool) -> list[Claim]:
    claims = []
    rates = {contender: m.rate for (op, contender), m in found.items() if op == READY}
    for contender, rate in rates.items():
        way, _, cores = contender.partition(", ")
        if way != "bare":
            share = rate / rates[f"bare, {cores}"]
            label = f"share of the bare rate, {contender}, {name}, {n:,}"
            claims.append(Claim(label, share, "", 0.6 if judged else None))
    for way in ("Spark", "Spark on files"):
        if f"{way}, 1 core" in rates and f"{way}, 2 cores" in rates:
            gain = rates[f"{way}, 2 cores"] / rates[f"{way}, 1 core"]
            label = f"two cores against one, {way}, {name}, {n:,}"
            claims.append(Claim(label, gain, "×", 1.7 if judged else None))
    for (operation, contender), m in found.items():
        if operation == READY and contender.startswith("Spark") and m.memory.get("index file"):
            copied = m.memory["copied"] / m.memory["index file"]
            label = f"the index copied by workers, {contender}, {name}, {n:,}"
            claims.append(Claim(label, copied, "of it", 0.1 if judged else None, "at most"))
    return claims


EXPERIMENT = Experiment(
    name="spark",
    summary="matching in bulk on Spark, against Spark SQL's joins and the bare matcher",
    settings=(
        Setting("n", (20_000,), (300,), "subscriptions, and as many events"),
        Setting("nested", (2000, 8000), (50, 150), "how many of each a nested-loop join is given"),
        Setting("workloads", ("mo",), ("mo",), "mo, or cabs: mo at real pick-ups"),
        Setting("cores", (1, 2), (2,), "Spark's cores; the most take part in all"),
        Setting("index", ("auto",), ("auto",), "which index matches"),
        Setting("parts", _CHOICES, _CHOICES, "end to end, past a ready index, a nested-loop join"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("whole", "From DataFrames to matches on disk", WHOLE, "seconds"),
        Figure("ready", "Events past a ready index", READY, "rate"),
    ),
)
