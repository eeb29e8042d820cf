"""`moving`: messages that subscribers who move cost, by method (Elaps, figures 7, 9, 10, 12–14).

All methods run on the same scene: the same paths, the same events, the same seed. The truth
is a client that reports at every step; a run that misses one notification, tells one late or
tells one wrongly is refused. "messages" are exchanges, as the paper counts them: one report
and its answer, whatever began it. The floor is the number of steps in which something had to
be delivered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nearcast.bench.experiments import reach
from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Timed, Trial
from nearcast.mobility.scene import Scene, plane_scene
from nearcast.mobility.simulate import Outcome, baseline, simulate
from nearcast.mobility.town_scene import cab_scene, city_scene

__all__ = ["EXPERIMENT"]

FLOOR, EVERY = "floor", "every step"
_SWEEPS = {
    "f": "fig. 7a: messages, by arrivals a step",
    "v": "fig. 7b: messages, by metres a step",
    "r": "fig. 7c: messages, by radius",
    "live": "fig. 7d: messages, by live events",
    "beta": "fig. 9: messages, by β",
    "ramp": "fig. 10: messages, with f or v going up and down",
    "cells": "fig. 14: messages, by N",
    "alpha": "fig. 14: messages, by α",
    "server": "fig. 13: server time over an event index, by arrivals a step",
    "city": "city: messages",
    "cabs": "cabs: messages",
    "cabs_f": "fig. 7e: messages of cabs, by arrivals a step",
    "cabs_r": "fig. 7f: messages of cabs, by radius",
    "reach": reach.SERVE,
}
_PER = 1000  # steps
#: Methods that go by b_m, and those of the paper among them, which have cells to count.
_GUIDED = ("disc", "igm", "idgm", "igm:printed", "idgm:printed")
_DIRECTED = ("idgm", "idgm:printed")


def _plane(plan: Plan, side_km: int, **changes: object) -> Scene:
    given: dict[str, object] = {
        "side_m": side_km * 1000.0,
        "subscribers": plan.number("subscribers"),
        "steps": plan.number("steps"),
        "live": plan.number("live"),
        "seed": plan.seed,
        **changes,
    }
    return plane_scene(**given)  # type: ignore[arg-type]


def _trials(plan: Plan) -> Iterator[Trial]:
    chosen = plan.texts("sweeps")
    methods = plan.texts("methods")
    sides = plan.numbers("side_km")
    first = sides[0]
    if "f" in chosen:
        for side in sides:
            for f in plan.numbers("f"):
                scene = _plane(plan, side, arrivals=float(f))
                yield _trial("f", scene, _runs(methods), {"side_km": side, "f": f})
    for name, values, option, unit in (
        ("v", plan.numbers("v"), "step_m", 1.0),
        ("r", plan.numbers("r_km"), "radius", 1000.0),
    ):
        if name in chosen:
            for value in values:
                scene = _plane(plan, first, **{option: value * unit})
                yield _trial(name, scene, _runs(methods), {"side_km": first, name: value})
    if "live" in chosen:
        for value in plan.numbers("live_sizes"):
            scene = _plane(plan, first, live=value)
            yield _trial("live", scene, _runs(methods), {"side_km": first, "live": value})
    yield from _tuned(plan, chosen, first)
    if "city" in chosen:
        scene = city_scene(plan.number("subscribers"), plan.number("steps"), plan.seed)
        yield _trial("city", scene, _runs(methods), {"subscribers": scene.size})
    if "cabs" in chosen:
        yield from _cabs(plan, "cabs", {"subscribers": None})
    if "cabs_f" in chosen:
        yield from _cabs(plan, "cabs_f", {"f": plan.numbers("cabs_f")})
    if "cabs_r" in chosen:
        yield from _cabs(plan, "cabs_r", {"r": plan.settings["cabs_r_km"]})
    if "reach" in chosen:
        yield from reach.trials(plan)


def _cabs(plan: Plan, sweep: str, axis: Mapping[str, Sequence[Scalar] | None]) -> Iterator[Trial]:
    """Real cabs, where there are data, along one axis: arrivals a step, or kilometres."""
    ((name, values),) = axis.items()
    for value in (None,) if values is None else values:
        more: dict[str, Any] = {}
        if value is not None:
            more = {"arrivals": float(value)} if name == "f" else {"radius": 1000 * float(value)}
        found = cab_scene(plan.number("subscribers"), plan.number("steps"), plan.seed, **more)
        if found is not None:
            point = {name: found.size if value is None else value}
            yield _trial(sweep, found, _runs(plan.texts("methods")), point)


def _tuned(plan: Plan, chosen: Sequence[str], side: int) -> Iterator[Trial]:
    """Figures 9, 10, 13 and 14: β, a changing world, event indexes, N and α."""
    guided = [name for name in plan.texts("methods") if name in _GUIDED]
    celled = [name for name in guided if name != "disc"]
    if "beta" in chosen:
        for f in plan.numbers("f"):
            scene = _plane(plan, side, arrivals=float(f))
            runs: dict[str, Callable[[Scene], Outcome]] = {}
            for name in guided:
                if not name.endswith(":printed"):  # there β is 1 where none is given
                    runs[f"{name}, adaptive"] = partial(simulate, safe_region=name)
                for beta in plan.settings["beta"]:
                    runs[f"{name}, β = {beta}"] = partial(
                        simulate, safe_region=name, beta=float(beta)
                    )
            yield _trial("beta", scene, runs, {"side_km": side, "f": f})
    if "ramp" in chosen:
        steps = plan.number("steps")
        wave = 1 - np.abs(np.linspace(-1, 1, max(steps // 10, 2)))
        ramp = np.resize(wave, steps)
        for name, scene in (
            ("f", _plane(plan, side, arrivals=500.0 * ramp + 1e-3)),
            ("v", _plane(plan, side, step_m=100.0 * ramp + 1e-3)),
        ):
            runs = {m: partial(simulate, safe_region=m) for m in guided}
            for m in celled:
                runs[f"{m}-opt"] = partial(simulate, safe_region=m, knowing=True)
            yield _trial("ramp", scene, runs, {"side_km": side, "changing": name})
    if "cells" in chosen:
        scene = _plane(plan, side)
        for cells in plan.numbers("cells"):
            runs = {m: partial(simulate, safe_region=m, cells=cells) for m in celled}
            if runs:
                yield _trial("cells", scene, runs, {"side_km": side, "cells": cells})
    directed = [name for name in guided if name in _DIRECTED]
    if "alpha" in chosen and directed:
        scene = _plane(plan, side)
        for alpha in plan.settings["alpha"]:
            runs = {m: partial(simulate, safe_region=m, alpha=float(alpha)) for m in directed}
            yield _trial("alpha", scene, runs, {"side_km": side, "alpha": alpha})
    if "server" in chosen:
        for f in plan.numbers("f"):
            scene = _plane(plan, side, arrivals=float(f))
            runs = {
                f"{m}, {index}": partial(simulate, safe_region=m, index=index)
                for index in plan.texts("event_indexes")
                for m in plan.texts("methods")
            }
            yield _trial("server", scene, runs, {"side_km": side, "f": f})


def _runs(methods: Sequence[str]) -> dict[str, Callable[[Scene], Outcome]]:
    return {name: partial(simulate, safe_region=name) for name in methods}


def _trial(
    sweep: str,
    scene: Scene,
    runs: Mapping[str, Callable[[Scene], Outcome]],
    point: Mapping[str, Scalar],
) -> Trial:
    contenders = [Contender(name, partial(_task, scene, run)) for name, run in runs.items()]
    contenders.append(Contender(EVERY, partial(_task, scene, baseline)))
    contenders.append(Contender(FLOOR, partial(_task, scene, _floor)))
    work = max(1, scene.size * scene.steps // _PER)
    unit = "subscriber and 1000 steps"
    return Trial(
        _SWEEPS[sweep], tuple(contenders), partial(_truth, scene), dict(point), work, unit, 1
    )


def _truth(scene: Scene) -> str:
    """Who is told of what, and when, by a client that reports every step."""
    return json.dumps(sorted([*pair, step] for pair, step in scene.truth.items()))


def _floor(scene: Scene) -> Outcome:
    out = baseline(scene)
    out.left, out.bytes_up = scene.floor, 40 * scene.floor
    return out


def _task(scene: Scene, run: Callable[[Scene], Outcome]) -> Task:
    """A run of seconds or minutes: done once, asked many times."""
    held: list[Outcome] = []

    def once() -> Timed:
        if not held:
            held.append(run(scene))
        return Timed(max(held[0].server_s, 1e-9), held[0])

    def answer(out: Outcome) -> str:
        told = sorted([*pair, step] for pair, step in out.told.items())
        return json.dumps(told) if not out.surplus else "repeated"

    def memory() -> dict[str, int]:
        return _numbers(held[0]) if held else {}

    return Task(once, answer=answer, memory=memory)


def _numbers(out: Outcome) -> dict[str, int]:
    """What else a record keeps of a run, messages by cause first."""
    times = np.array(out.build_s or [0.0]) * 1e9
    sizes = np.array(out.region_bytes or [0])
    return {
        "messages": out.exchanges,
        "left": out.left,
        "asked": out.asked,
        "notices": out.notices,
        "bytes_up": out.bytes_up,
        "bytes_down": out.bytes_down,
        "missed": out.missed,
        "late": out.late,
        "latency_steps": max(out.delay_steps, default=0),
        "region_bytes_p50": int(np.median(sizes)),
        "region_bytes_p99": int(np.percentile(sizes, 99)),
        "build_ns_p50": int(np.median(times)),
        "build_ns_p99": int(np.percentile(times, 99)),
    }


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    found = [*_rivals(measurements), *_betas(measurements), *reach.claims(measurements)]
    ran = [m for m in measurements if m.contender not in (FLOOR, EVERY) and "missed" in m.memory]
    if ran:
        missed = float(sum(m.memory["missed"] + m.memory["late"] for m in ran))
        found.append(Claim("missed notifications, all runs", missed, "", 0.0, "at most"))
    for m in ran:
        if m.contender == "disc" and m.operation in (
            _SWEEPS["f"],
            _SWEEPS["city"],
            _SWEEPS["cabs"],
        ):
            at = _at(m)
            found += [
                Claim(f"disc{at}: construction, p50", m.memory["build_ns_p50"] / 1e6, "ms", 3.0,
                      "at most"),
                Claim(f"disc{at}: construction, p99", m.memory["build_ns_p99"] / 1e6, "ms", 25.0,
                      "at most"),
                Claim(f"disc{at}: region, median", m.memory["region_bytes_p50"], "bytes", 2000.0,
                      "at most"),
                Claim(f"disc{at}: region against a 600 × 600 bitmap",
                      100 * m.memory["region_bytes_p50"] / 45_000, "%", 10.0, "at most"),
            ]  # fmt: skip
    return found


def _at(m: Measurement) -> str:
    points = ", ".join(f"{name} {value}" for name, value in m.parameters.items())
    return f" at {points}" if points else ""


def _groups(
    measurements: Sequence[Measurement], sweeps: Sequence[str]
) -> Iterator[tuple[Measurement, dict[str, int]]]:
    """For each point: one of its measurements, and the messages of all contenders."""
    points: dict[tuple[object, ...], dict[str, int]] = {}
    first: dict[tuple[object, ...], Measurement] = {}
    for m in measurements:
        if m.operation in [_SWEEPS[sweep] for sweep in sweeps]:
            key: tuple[object, ...] = (m.operation, *m.parameters.items())
            first.setdefault(key, m)
            points.setdefault(key, {})[m.contender] = m.memory["messages"]
    for key, counts in points.items():
        yield first[key], counts


def _rivals(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """How many times fewer messages `disc` sends, at each point."""
    for m, counts in _groups(measurements, ("f", "city", "cabs")):
        if "disc" not in counts:
            continue
        wide = m.parameters.get("side_km") == 200
        ours, at = max(counts["disc"], 1), _at(m)
        wanted = {"gm": 15.0, "vm": 1.5, EVERY: 60.0} if wide else {}
        for rival, count in counts.items():
            if rival not in ("disc", FLOOR):
                least = None if "side_km" in m.parameters else 1.0
                yield Claim(f"{m.operation.split(':')[0]}{at}: {rival} beside disc",
                            count / ours, "times", wanted.get(rival, least))  # fmt: skip
        most = 2.0 if wide else 1.2 if "side_km" in m.parameters else None
        floor = max(counts[FLOOR], 1)
        yield Claim(f"{m.operation.split(':')[0]}{at}: disc beside the floor",
                    ours / floor, "times", most, "at most")  # fmt: skip


def _betas(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    for m, counts in _groups(measurements, ("beta",)):
        for name in ("disc", "igm", "idgm"):
            fixed = [n for c, n in counts.items() if c.startswith(f"{name}, β")]
            adaptive = counts.get(f"{name}, adaptive")
            if fixed and adaptive is not None:
                target = 1.05 if name == "disc" else None
                yield Claim(f"{name}{_at(m)}: adaptive β beside the best fixed one",
                            adaptive / max(min(fixed), 1), "times", target, "at most")  # fmt: skip


def _figure(name: str, sweep: str, title: str, x: str | None = None, label: str = "") -> Figure:
    return Figure(name, title, _SWEEPS[sweep], "messages", x=x, x_label=label)


EXPERIMENT = Experiment(
    name="moving",
    summary="messages, bytes, server time and misses of subscribers who move, by method",
    settings=(
        Setting(
            "sweeps",
            tuple(_SWEEPS),
            tuple(_SWEEPS),
            "which figures",
        ),
        Setting(
            "methods",
            ("disc", "vm", "gm", "igm", "idgm"),
            ("disc", "vm", "igm", "idgm"),
            "who competes",
        ),
        Setting("subscribers", (50,), (2,), "how many move"),
        Setting("steps", (1000,), (20,), "of 5 s each"),
        Setting("side_km", (200, 50), (20, 10), "squares; the first is for the other sweeps"),
        Setting("live", (1_000_000,), (20_000,), "live events, of which 0.1 % match"),
        Setting("f", (100, 500), (100, 500), "arrivals a step"),
        Setting("v", (20, 40, 60, 80, 100), (60,), "metres a step"),
        Setting("r_km", (1, 2, 3, 4, 5), (2,), "radius"),
        Setting("live_sizes", (500_000, 1_000_000, 2_000_000), (20_000,), "live events"),
        Setting("beta", (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), (0.5, 1.0), "fixed β"),
        Setting("cells", (200, 400, 600, 800, 1000), (100,), "N of the N × N grid"),
        Setting("alpha", (0.0, 0.25, 0.5, 0.75, 0.9), (0.5,), "idGM's α"),
        Setting("cabs_f", (10, 20, 40, 80), (20,), "for cabs_f: arrivals a step"),
        Setting("cabs_r_km", (0.5, 1.0, 2.0, 3.0), (1.0,), "for cabs_r: radius"),
        Setting(
            "event_indexes", ("beq-tree", "k-index"), ("beq-tree",), "for server: who searches"
        ),
        Setting("movers", (500, 2000, 4000), (50, 100), "for reach: who all want everything"),
        Setting("events", (100,), (10,), "for reach: timed, after as many to warm up"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        _figure(
            "fig7a", "f", "Messages by event arrival rate (Elaps fig. 7a)", "f", "arrivals a step"
        ),
        _figure("fig7b", "v", "Messages by speed (Elaps fig. 7b)", "v", "metres a step"),
        _figure("fig7c", "r", "Messages by radius (Elaps fig. 7c)", "r", "radius (km)"),
        _figure("fig7d", "live", "Messages by live events (Elaps fig. 7d)", "live", "live events"),
        _figure("fig9", "beta", "Messages by β (Elaps fig. 9)"),
        _figure("fig10", "ramp", "Messages in a changing world (Elaps fig. 10)"),
        _figure("fig12", "city", "Messages in the city (beside Elaps fig. 12)"),
        Figure(
            "fig13",
            "Server time (Elaps fig. 13)",
            _SWEEPS["server"],
            "item_s",
            x="f",
            x_label="arrivals a step",
            log_y=True,
        ),
        _figure("fig14a", "cells", "Messages by N (Elaps fig. 14a)", "cells", "N"),
        _figure("fig14b", "alpha", "Messages by α (Elaps fig. 14b)", "alpha", "α"),
        _figure("cabs", "cabs", "Messages of real cabs (beside Elaps fig. 7e)"),
        _figure(
            "fig7e",
            "cabs_f",
            "Messages of cabs by arrival rate (Elaps fig. 7e)",
            "f",
            "arrivals a step",
        ),
        _figure(
            "fig7f", "cabs_r", "Messages of cabs by radius (Elaps fig. 7f)", "r", "radius (km)"
        ),
    ),
)
