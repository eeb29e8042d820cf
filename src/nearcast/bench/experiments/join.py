"""`join`: two tables once, the build included; and how fast filters come in as text.

A join takes an Arrow table of subscriptions and one of events and gives the table of pairs:
a fresh matcher is filled and asked once. The rival is shapely's tree with NumPy. Filters are
CQL2 texts of ten predicates, as a column `where` and as objects, whose shapes repeat or of
which no two are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from nearcast.bench.experiments import strtree
from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import Case, adding
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.datasets import workload
from nearcast.jit import parallel_threads
from nearcast.matcher import Matcher
from nearcast.model.subscriptions import Subscription

__all__ = ["EXPERIMENT"]

JOIN = "join two tables, build included"
BUILD = "add from Arrow"
TEXTS = "add from CQL2 text"
OBJECTS = "make objects of CQL2 text and add them"
OURS, BUILT, RIVAL = "nearcast", "nearcast, index built", "shapely + NumPy"
#: Predicates of a filter, and the attributes they are drawn from.
_PREDICATES, _NAMES = 10, 20


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    source = workload("mo", seed=plan.seed, k=10)
    for rows in plan.numbers("n"):
        case = Case.draw(source, rows, plan.number("events"), plan.seed)
        point: dict[str, Scalar] = {"subscriptions": rows, "events": plan.number("events")}
        if "joins" in parts:
            yield _join(case, point)
        if "builds" in parts:
            few = case.first(20)
            one = Contender(OURS, partial(adding, few, few.subscriptions, "auto"))
            yield Trial(BUILD, (one,), partial(getattr, few, "truth"), point, rows, "subscription")
    if "texts" in parts:
        for shapes in plan.texts("shapes"):
            yield from _texts(plan, shapes)


def _join(case: Case, point: dict[str, Scalar]) -> Trial:
    events = pa.concat_tables([case.events, case.sure]).combine_chunks()

    def ours(prepared: bool) -> pa.Table:
        matcher = Matcher(space=case.space)
        matcher.add_subscriptions(case.subscriptions)
        if prepared:
            matcher.prepare()
        return matcher.match_events(events)

    def theirs(threads: int) -> pa.Table:
        return strtree.joined(case.subscriptions, events, threads)

    def contender(name: str, run: Callable[[], pa.Table]) -> Contender:
        return Contender(name, lambda: Task(run))

    threads = parallel_threads()
    contenders = [
        contender(OURS, partial(ours, False)),
        contender(BUILT, partial(ours, True)),
        contender(RIVAL, partial(theirs, 1)),
    ]
    if threads > 1:
        contenders.append(contender(f"{RIVAL}, {threads} threads", partial(theirs, threads)))
    rows = case.subscriptions.num_rows
    return Trial(JOIN, tuple(contenders), lambda: case.truth, point, rows, "subscription")


# --- filters as text ------------------------------------------------------------------------


def _texts(plan: Plan, shapes: str) -> Iterator[Trial]:
    rows = plan.number("texts")
    case = _text_case(plan, rows, shapes)
    where = case.subscriptions["where"].to_pylist()
    ids = case.subscriptions["id"].to_pylist()
    point: dict[str, Scalar] = {"subscriptions": rows, "shapes": shapes}
    column = Contender(OURS, partial(adding, case, case.subscriptions, "auto"))
    truth = case.truth
    yield Trial(TEXTS, (column,), lambda: truth, point, rows, "subscription")

    def objects() -> Matcher:
        matcher = Matcher(space=case.space)
        matcher.add_subscriptions(
            [Subscription(id=id, where=text) for id, text in zip(ids, where, strict=True)]
        )
        return matcher

    asked = pa.concat_tables([case.events, case.sure])
    made = Contender(OURS, lambda: Task(objects, answer=lambda m: m.match_events(asked)))
    yield Trial(OBJECTS, (made,), lambda: truth, point, rows, "subscription")


def _text_case(plan: Plan, rows: int, shapes: str) -> Case:
    """Filters of ten predicates: all on the same attributes, or in an order of their own."""
    rng = np.random.default_rng(plan.seed)
    names = [f"a{i:02}" for i in range(_NAMES)]
    low, high = np.sort(rng.random((2, rows, _PREDICATES)), axis=0)
    texts, intervals = [], []
    for row in range(rows):
        picked = np.arange(_PREDICATES)
        kinds = picked % 2
        if shapes == "none":
            picked = rng.permutation(_NAMES)[:_PREDICATES]
            kinds = rng.integers(0, 4, _PREDICATES)
        parts, own = [], []
        for k, (at, kind) in enumerate(zip(picked.tolist(), kinds.tolist(), strict=True)):
            text, a, b = _predicate(names[at], kind, float(low[row, k]), float(high[row, k]))
            parts.append(text)
            own.append({"attribute": names[at], "low": a, "high": b})
        texts.append(" AND ".join(parts))
        intervals.append(own)
    ids = pa.array([f"s{row:08}" for row in range(rows)])
    source = workload("di", seed=plan.seed, k=_PREDICATES, m=_NAMES)
    drawn = source.event_table(plan.number("asked")).combine_chunks()
    kind = pa.list_(
        pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
    )
    exact = Case(
        source.space, pa.table({"id": ids, "intervals": pa.array(intervals, kind)}), drawn,
        drawn.slice(0, 0),
    )  # fmt: skip
    made = Case(exact.space, pa.table({"id": ids, "where": texts}), drawn, exact.sure)
    made.__dict__["truth"] = exact.truth  # the same filters as intervals are judged
    return made


def _predicate(name: str, kind: int, low: float, high: float) -> tuple[str, float, float]:
    if kind == 0:
        return f"{name} BETWEEN {low!r} AND {high!r}", low, high
    if kind == 1:
        return f"{name} <= {high!r}", -np.inf, high
    if kind == 2:
        return f"{name} >= {low!r}", low, np.inf
    return f"{name} < {high!r}", -np.inf, float(np.nextafter(high, -np.inf))


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    joins: dict[int, list[Measurement]] = {}
    for m in measurements:
        if m.operation == JOIN:
            joins.setdefault(int(m.parameters["subscriptions"]), []).append(m)
        elif m.operation == BUILD:
            rows = int(m.parameters["subscriptions"])
            claims.append(Claim(f"{BUILD}, {rows:,}", m.rate, "subscriptions/s", 2_000_000))
        else:
            repeat = m.parameters["shapes"] == "one"
            of = "one shape" if repeat else "no shape twice"
            goal = 60_000 if repeat else 8000
            claims.append(Claim(f"{m.operation}, {of}", m.rate, "subscriptions/s", goal))
    for rows, several in joins.items():
        mine = next(m for m in several if m.contender == OURS)
        best = min((m for m in several if m.contender.startswith(RIVAL)), key=lambda m: m.item_s)
        ratio = best.item_s / mine.item_s
        claims.append(Claim(f"{best.contender} / {OURS}, {rows:,}", ratio, "×", 6.0))
    return claims


EXPERIMENT = Experiment(
    name="join",
    summary="two tables joined once, build included, against shapely; filters as text",
    settings=(
        Setting("n", (100_000, 1_000_000), (6000,), "how many subscriptions"),
        Setting("events", (10_000,), (200,), "how many events"),
        Setting("texts", (20_000,), (200,), "how many filters as text"),
        Setting("asked", (50,), (20,), "how many events the filters are asked"),
        Setting("shapes", ("one", "none"), ("one", "none"), "filters of one shape, or no two"),
        Setting("parts", ("joins", "builds", "texts"), ("joins", "builds", "texts"), "what"),
    ),
    trials=_trials,
    claims=_claims,
)
