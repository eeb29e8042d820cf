"""`ground`: what everything else stands on.

How fast subscriptions come in (Arrow with ready intervals, CQL2 text), how many bytes each
takes, how fast `scan` is, how long `import nearcast` takes and what it drags in, and how
long the first match takes with an empty and with a filled compile cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import Case, adding, all_at_once, contenders, one_by_one
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Timed, Trial
from nearcast.datasets import Workload, workload
from nearcast.errors import BenchError

__all__ = ["EXPERIMENT"]

ADD_ARROW = "add from Arrow"
ADD_TEXT = "add from CQL2 text"
ONE_EVENT = "match one event at a time"
BATCH = "match a batch of events"
IMPORT = "import nearcast"
FIRST_MATCH = "first match"

_HEAVY = ("numba", "pyarrow", "shapely", "matplotlib", "pandas", "pyspark")


def _trials(plan: Plan) -> Iterator[Trial]:
    for name in plan.texts("workloads"):
        source = workload(name, seed=plan.seed, k=10)
        for rows in plan.numbers("subscriptions"):
            yield from _bulk(plan, source, rows)
        yield _texts(plan, source)
    yield _importing()
    for index in plan.texts("compile"):
        yield _compiling(index)


def _bulk(plan: Plan, source: Workload, rows: int) -> Iterator[Trial]:
    """Adding and matching, with the same subscriptions and the same truth."""
    case = Case.draw(source, rows, plan.number("batch"), plan.seed)
    indexes = plan.texts("indexes")
    few = case.first(plan.number("events"))
    point: dict[str, Scalar] = {"workload": source.name, "subscriptions": rows}
    yield Trial(
        ADD_ARROW,
        contenders(indexes, partial(adding, few, few.subscriptions)),
        lambda: few.truth,
        point,
        rows,
        "subscription",
    )
    one = contenders(indexes, partial(one_by_one, few, few.filled))
    yield Trial(ONE_EVENT, one, lambda: few.truth, point, few.events.num_rows, "event")
    many = contenders(indexes, partial(all_at_once, case, case.filled))
    many += contenders(indexes, partial(all_at_once, case, case.filled, threads=1), ", one core")
    yield Trial(BATCH, many, lambda: case.truth, point, case.events.num_rows, "event")


def _texts(plan: Plan, source: Workload) -> Trial:
    case = Case.draw(source, plan.number("texts"), plan.number("events"), plan.seed)
    rows = case.subscriptions.num_rows
    return Trial(
        ADD_TEXT,
        contenders(plan.texts("indexes"), partial(adding, case, _as_text(case.subscriptions))),
        lambda: case.truth,
        {"workload": source.name, "subscriptions": rows},
        rows,
        "subscription",
    )


def _as_text(subscriptions: pa.Table) -> pa.Table:
    """The same subscriptions with their intervals as CQL2; floats are written exactly."""
    where = [
        " AND ".join(f"{i['attribute']} BETWEEN {i['low']!r} AND {i['high']!r}" for i in intervals)
        for intervals in subscriptions["intervals"].to_pylist()
    ]
    kept = subscriptions.drop_columns(["intervals"])
    return kept.append_column("where", pa.array(where, pa.string()))


_IMPORT_SCRIPT = f"""
import json, sys, time
started = time.perf_counter()
import nearcast
elapsed = time.perf_counter() - started
print(json.dumps([elapsed, [name for name in {_HEAVY!r} if name in sys.modules], 0.0]))
"""

_FIRST_MATCH_SCRIPT = """
import json, sys, time
started = time.perf_counter()
from nearcast import jit
from nearcast.bench.rehearsal import rehearse
rehearse(sys.argv[1])
print(json.dumps([time.perf_counter() - started, "rehearsed", jit.compile_seconds()]))
"""


def _child(script: str, *arguments: str, **environment: str) -> Timed:
    """Run a script in a new interpreter: it prints seconds, answer and seconds compiling."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"a child process failed:\n{done.stderr.strip()}")
    return Timed(*json.loads(done.stdout))


def _importing() -> Trial:
    """The truth is that nothing heavy is loaded: an import that drags it in is refused."""
    contender = Contender("import nearcast", lambda: Task(lambda: _child(_IMPORT_SCRIPT)))
    return Trial(IMPORT, (contender,), list)


def _compiling(index: str) -> Trial:
    return Trial(
        FIRST_MATCH,
        (
            Contender("cold cache", partial(_first_match, index, True)),
            Contender("warm cache", partial(_first_match, index, False)),
        ),
        lambda: "rehearsed",
        {"index": index},
        at_most=3,
    )


def _first_match(index: str, cold: bool) -> Task:
    """A child's first match; its cache is emptied before each run, or filled once."""
    folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))

    def run() -> Timed:
        return _child(_FIRST_MATCH_SCRIPT, index, NEARCAST_CACHE=str(folder))

    def empty() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    def close() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    if cold:
        return Task(run, before=empty, close=close)
    run()
    return Task(run, close=close)


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """The numbers with a target, at the largest size that was measured."""
    claims: list[Claim] = []
    for (operation, contender, where), found in _largest(measurements).items():
        of = " ".join(part for part in (contender, where) if part)
        rows = int(found.parameters.get("subscriptions", 0))
        if operation == ADD_ARROW:
            claims.append(Claim(f"{operation}, {of}", found.rate, "subscriptions/s", 500_000))
            claims += _memory_claims(found, of, rows)
        elif operation == ADD_TEXT:
            claims.append(Claim(f"{operation}, {of}", found.rate, "subscriptions/s"))
        elif operation in (ONE_EVENT, BATCH):
            claims.append(Claim(f"{operation}, {of}, {rows:,}", found.rate, "events/s"))
        elif operation == IMPORT:
            claims.append(Claim(operation, found.spread.median, "s", 0.5, "at most"))
        else:
            claims.append(Claim(f"{operation}, {of}", found.spread.median, "s"))
            claims.append(Claim(f"of this compiling, {of}", found.compile_s, "s"))
    return claims


def _memory_claims(found: Measurement, of: str, rows: int) -> list[Claim]:
    clause = found.memory["clauses"] / rows
    whole = clause + (found.memory["ids"] + found.memory["regions"]) / rows
    return [
        Claim(f"the clause of a subscription, {of}", clause, "bytes", 200, "at most"),
        Claim(f"the same with ids and region, {of}", whole, "bytes", 280, "at most"),
    ]


def _largest(
    measurements: Sequence[Measurement],
) -> dict[tuple[str, str, str], Measurement]:
    """Of each operation, contender and workload (or index), the largest."""
    found: dict[tuple[str, str, str], Measurement] = {}
    for m in measurements:
        where = str(m.parameters.get("workload", m.parameters.get("index", "")))
        key = (m.operation, m.contender, where)
        if key not in found or found[key].work <= m.work:
            found[key] = m
    return found


EXPERIMENT = Experiment(
    name="ground",
    summary="adding, bytes per subscription, scan, import and compile time",
    settings=(
        Setting("subscriptions", (100_000, 1_000_000), (500, 1000), "how many, from Arrow"),
        Setting("texts", (20_000,), (100,), "how many, from CQL2 text"),
        Setting("events", (50,), (10,), "how many to match one at a time"),
        Setting("batch", (300,), (20,), "how many to match in a batch"),
        Setting("workloads", ("di", "mo"), ("di", "mo"), "of 10 predicates; mo has regions"),
        Setting("indexes", ("scan",), ("scan",), "who adds and matches"),
        Setting("compile", ("scan",), (), "whose first match is timed, cold and warm"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure(
            "add",
            "Adding subscriptions of 10 predicates from Arrow",
            ADD_ARROW,
            "rate",
            x="subscriptions",
            x_label="subscriptions",
        ),
        Figure(
            "match",
            "Matching one event at a time",
            ONE_EVENT,
            "rate",
            x="subscriptions",
            x_label="subscriptions",
        ),
        Figure(
            "first-match", "First match, empty and filled compile cache", FIRST_MATCH, "seconds"
        ),
    ),
)
