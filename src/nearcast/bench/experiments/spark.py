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

from nearcast.bench.experiments import spark_history
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

    def job(self, engine: Engine, name: str, cell_m: float = 0.0) -> Task:
        """One job on Spark; a grid join has cells so wide."""
        arguments: dict[str, str | float] = {
            "events": str(self.folder / "events"),
            "subscriptions": str(self.folder / "subscriptions"),
            "space": self.case.space,
            "index": self.index,
            "cell_m": cell_m,
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


_CHOICES = ("whole", "ready", "nested", "history")
_PLANS = ("broadcast", "partitioned")


def _trials(plan: Plan) -> Iterator[Trial]:
    most = max(plan.numbers("cores"))
    with ExitStack() as stack:
        engines = {}
        for cores in plan.numbers("cores"):
            engines[cores] = Engine(cores)
            stack.callback(engines[cores].close)
        if "history" in plan.texts("parts"):
            yield from spark_history.trials(plan, engines[most])
        (index,) = plan.texts("index")
        for name in plan.texts("workloads"):
            if name not in _SOURCES:
                raise BenchError(f"workloads: {name!r} is none of {', '.join(_SOURCES)}")
            for n, operations in _sizes(plan).items():
                data = _Data(name, n, plan.seed, index)
                stack.callback(data.close)
                point: dict[str, Scalar] = {"workload": name, "n": n}
                if NESTED in operations:
                    jobs = _jobs(data, engines[most], ("nested loop", "broadcast"))
                    yield _trial(NESTED, data, jobs, point)
                if WHOLE in operations:
                    jobs = _jobs(data, engines[most], _PLANS)
                    if n <= plan.number("joined"):
                        jobs += _grid_joins(plan, data, engines[most])
                    yield _trial(WHOLE, data, jobs, point)
                if READY in operations:
                    yield _trial(READY, data, _past_a_ready_index(data, engines), point)
                data.close()


def _sizes(plan: Plan) -> dict[int, set[str]]:
    """What is measured at which size.

    Where n is more than a grid join is given, it is measured at two smaller sizes.
    """
    n, joined, parts = plan.number("n"), plan.number("joined"), plan.texts("parts")
    asked = [(WHOLE, n)] * ("whole" in parts) + [(READY, n)] * ("ready" in parts)
    if "whole" in parts and n > joined:
        asked += [(WHOLE, joined // 2), (WHOLE, joined)]
    if "nested" in parts:
        asked += [(NESTED, few) for few in plan.numbers("nested")]
    sizes: dict[int, set[str]] = {}
    for operation, size in sorted(asked, key=lambda each: each[1]):
        sizes.setdefault(size, set()).add(operation)
    return sizes


def _jobs(data: _Data, engine: Engine, names: Sequence[str]) -> list[Contender]:
    return [Contender(name, partial(data.job, engine, name)) for name in names]


def _grid_joins(plan: Plan, data: _Data, engine: Engine) -> list[Contender]:
    return [
        Contender(f"grid join, {cell} m", partial(data.job, engine, "grid join", cell))
        for cell in plan.numbers("cell_m")
    ]


def _past_a_ready_index(data: _Data, engines: dict[int, Engine]) -> list[Contender]:
    contenders = []
    for cores, engine in engines.items():
        of = _cores(cores)
        contenders += [
            Contender(f"bare, {of}", partial(data.bare, cores)),
            Contender(f"Spark, {of}", partial(data.job, engine, "ready")),
            Contender(f"Spark on files, {of}", partial(data.job, engine, "files")),
        ]
    return contenders


def _trial(
    operation: str, data: _Data, contenders: Sequence[Contender], point: dict[str, Scalar]
) -> Trial:
    truth = partial(getattr, data, "truth")
    return Trial(
        operation, tuple(contenders), truth, point, data.events.num_rows, "event", at_most=3
    )


def _cores(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims = spark_history.claims(measurements)
    measurements = [m for m in measurements if m.operation != spark_history.HISTORY]
    for name in dict.fromkeys(str(m.parameters["workload"]) for m in measurements):
        mine = [m for m in measurements if m.parameters["workload"] == name]
        largest = max((int(m.parameters["n"]) for m in mine if m.operation != NESTED), default=0)
        found = {
            (m.operation, m.contender): m
            for m in mine
            if m.operation != NESTED and m.parameters["n"] == largest
        }
        judged = largest >= _LARGE
        claims += _whole(name, largest, found, mine)
        claims += _nested(name, largest, mine)
        claims += _overhead(name, largest, found, judged)
    return claims


_Found = dict[tuple[str, str], Measurement]


def _whole(name: str, n: int, found: _Found, mine: Sequence[Measurement]) -> list[Claim]:
    """Both plans against the fastest grid join; where there is none at this size, the time that
    it would take.
    """
    claims = []
    joins = [m for m in mine if m.operation == WHOLE and m.contender.startswith("grid join")]
    best = _best(joins)
    here = best.get(n)
    grid = here.spread.median if here else _at(n, list(best.values()))
    for plan in _PLANS:
        if (WHOLE, plan) not in found:
            continue
        m = found[WHOLE, plan]
        of = f"{plan}, {name}, {n:,}"
        claims.append(Claim(f"events a second end to end, {of}", m.rate, "events/s"))
        if grid is not None:
            target = 10 if n >= _LARGE and here else None
            label = f"times a grid join in SQL, {of}{'' if here else _said(list(best.values()))}"
            claims.append(Claim(label, grid / m.spread.median, "×", target))
    return claims


def _best(joins: Sequence[Measurement]) -> dict[int, Measurement]:
    """At each size, the fastest; sizes in order."""
    best: dict[int, Measurement] = {}
    for m in sorted(joins, key=lambda m: (int(m.parameters["n"]), m.spread.median)):
        best.setdefault(int(m.parameters["n"]), m)
    return best


def _nested(name: str, n: int, mine: Sequence[Measurement]) -> list[Claim]:
    loops = [m for m in mine if (m.operation, m.contender) == (NESTED, "nested loop")]
    loops = list(_best(loops).values())
    seconds = _at(n, loops)
    if seconds is None or n == 0:  # or nothing was measured at the size it is wanted for
        return []
    return [Claim(f"nested-loop join, {name}, {n:,}{_said(loops)}", seconds, "s")]


def _at(n: int, joins: Sequence[Measurement]) -> float | None:
    """What a join would take at n, from its times at two sizes: a start, and a slope by pairs."""
    if len(joins) < 2:
        return None
    small, large = joins[0], joins[-1]
    pairs = [m.work * int(m.parameters["n"]) for m in (small, large)]
    slope = (large.spread.median - small.spread.median) / (pairs[1] - pairs[0])
    if slope <= 0:  # too small to tell
        return None
    return large.spread.median + slope * (n * n - pairs[1])


def _said(joins: Sequence[Measurement]) -> str:
    small, large = (int(m.parameters["n"]) for m in (joins[0], joins[-1]))
    return f": extrapolated from {small:,} and {large:,}, not measured"


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
        Setting(
            "joined",
            (1_000_000,),
            (300,),
            "the most that a grid join is given; half and all of it, where n is more",
        ),
        Setting("cell_m", (500, 1000), (1000,), "widths of its cells; the fastest counts"),
        Setting("workloads", ("mo",), ("mo",), "mo, or cabs: mo at real pick-ups"),
        Setting("cores", (1, 2), (2,), "Spark's cores; the most take part in all"),
        Setting("index", ("auto",), ("auto",), "which index matches"),
        Setting("positions", (100_000,), (2_000,), "of trucks, past fences"),
        Setting("fences", (10_000,), (100,), "how many fences these pass"),
        Setting("apart_m", (250, 40), (250,), "metres between positions: a minute, or ten seconds"),
        Setting(
            "parts",
            _CHOICES,
            _CHOICES,
            "end to end, past a ready index, a nested-loop join, fences over history",
        ),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("whole", "From DataFrames to matches on disk", WHOLE, "seconds"),
        Figure("history", "Fences over history", spark_history.HISTORY, "rate"),
        Figure("ready", "Events past a ready index", READY, "rate"),
    ),
)
