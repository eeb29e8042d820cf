"""`first`: how long until it answers, as whoever tries it sees it.

Real processes, timed from their start to the line with the answer: the README's example, and a
broker's first subscribe, move and publish; with an empty compile cache and with a filled one.
And how long it takes behind them until everything they met is compiled.
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
from time import perf_counter

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.errors import BenchError

__all__ = ["EXPERIMENT"]

ANSWER = "to the first answer"
COMPILED = "until all of it is compiled"

_SCRIPTS = {
    "README": """
import json
from nearcast import Circle, Event, Matcher, Point, Subscription

matcher = Matcher()
matcher.add_subscriptions([
    Subscription(id="s1", subscriber="ann", where="brand = 'Huawei' AND price < 3300",
                 keywords={"sale"}, region=Circle(121.4419, 36.1628, radius_m=1000)),
])
offer = Event(id="e1", attributes={"brand": "Huawei", "price": 3200},
              keywords={"sale", "phone"}, location=Point(121.44, 36.16))
print(json.dumps(matcher.match_event(offer)), flush=True)
""",
    "broker": """
import json
from nearcast import Around, Broker, Circle, Event, Point, Subscription

broker = Broker()
broker.subscribe(Subscription(id="s1", subscriber="ann", where="brand = 'Huawei' AND price < 3300",
                              keywords={"sale"}, region=Around(radius_m=1000)))
broker.subscribe(Subscription(id="s2", subscriber="bob", keywords={"sale"},
                              region=Circle(121.4419, 36.1628, radius_m=1000)))
broker.move("ann", Point(121.4419, 36.1628))
told = broker.publish(Event(id="e1", attributes={"brand": "Huawei", "price": 3200},
                            keywords={"sale", "phone"}, location=Point(121.44, 36.16)))
print(json.dumps([[n.subscription_id for n in told], list(told.location_requests)]), flush=True)
""",
}
_ANSWERS: dict[str, object] = {"README": ["s1"], "broker": [["s2"], ["ann"]]}
_SETTLE = """
from nearcast.jit import behind
print(json.dumps(behind.settled()), flush=True)
"""
#: Seconds by what, and by what is in the cache.
_GOALS = {
    ("README", "empty cache"): 1.0,
    ("README", "warm cache"): 0.6,
    ("broker", "empty cache"): 2.5,
    ("broker", "warm cache"): 1.2,
}


def _trials(plan: Plan) -> Iterator[Trial]:
    caches = [f"{name} cache" for name in plan.texts("caches")]
    for what in plan.texts("what"):
        if what not in _SCRIPTS:
            raise BenchError(f"what={what} is not known; there are: {', '.join(_SCRIPTS)}")
        contenders = tuple(Contender(cache, partial(_opened, what, cache)) for cache in caches)
        yield Trial(ANSWER, contenders, partial(_ANSWERS.get, what), {"what": what})
    for what in plan.texts("compiled"):
        behind = Contender("empty cache", partial(_opened, what, "empty cache", settle=True))
        yield Trial(COMPILED, (behind,), lambda: True, {"what": what}, at_most=1)


def _opened(what: str, cache: str, settle: bool = False) -> Task:
    """A process a run; its cache is emptied before each, or is this installation's, filled once."""
    script = _SCRIPTS[what] + (_SETTLE if settle else "")
    run = partial(_timed, script, 1 + settle)
    if cache != "empty cache":
        run(NEARCAST_JIT="1")
        return Task(run)
    folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))

    def empty() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    def close() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    return Task(partial(run, NEARCAST_CACHE=str(folder)), before=empty, close=close)


def _timed(script: str, line: int, **environment: str) -> Timed:
    """Seconds from a process's start to a line of its output, which is the answer."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NEARCAST_JIT", "NUMBA_CACHE_DIR")}
    started = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", script], env=kept | environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(line)]
        elapsed = perf_counter() - started
        _, trouble = child.communicate()
    if child.returncode != 0 or trouble:
        raise BenchError(f"a child process failed:\n{trouble.strip()}")
    return Timed(elapsed, json.loads(said[-1]), 0.0)


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims = []
    for found in measurements:
        what = str(found.parameters["what"])
        name = f"{what} {found.operation}, {found.contender}"
        goal = _GOALS.get((what, found.contender)) if found.operation == ANSWER else None
        if goal is None:
            claims.append(Claim(name, found.spread.median, "s"))
        else:
            claims.append(Claim(name, found.spread.median, "s", goal, "at most"))
    return claims


EXPERIMENT = Experiment(
    name="first",
    summary="how long until it answers: from an empty compile cache and from a filled one",
    settings=(
        Setting("what", ("README", "broker"), ("README", "broker"), "who is timed"),
        Setting("caches", ("empty", "warm"), ("empty",), "what is in the compile cache"),
        Setting("compiled", ("README",), (), "whose compiler behind is waited for"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("first", "From the start of a process to its first answer", ANSWER, "seconds"),
    ),
)
