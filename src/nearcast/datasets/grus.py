"""The workloads of Grus (§5.1 to §5.3), seeded: composites as CPSL text, and their events.

All three live on a plane in metres. `logistics` says which detections it was made for; in `taxis`
and `shopping` regions cover half of the map, so that about half of the events match.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearcast.clock import Micros
from nearcast.datasets.base import EPOCH, require
from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["GRUS", "CompositeWorkload", "logistics", "shopping", "taxis"]

F8 = NDArray[np.float64]
_AGES = (15, 25, 40, 65)
_TAXI = 'STRING: type = "TAXI", STRING: state = "uncarry"'


@dataclass(frozen=True)
class CompositeWorkload:
    """Composites as texts, the events they wait for, and how many detections that makes.

    `runs` are the detections that the events were made for: the composite's number and the ids
    of the events. A workload of regions says instead where they are (`centres`, `size`: the
    radius of a disc or half the side of a square), which group each belongs to (`wanted`), and
    who published each event (`movers`) for which group (`given`).
    """

    name: str
    texts: tuple[str, ...]
    events: tuple[Event, ...]
    runs: tuple[tuple[int, tuple[str, ...]], ...] = ()
    centres: F8 | None = None
    size: float = 0.0
    wanted: NDArray[np.int64] | None = None
    given: NDArray[np.int64] | None = None
    movers: NDArray[np.int64] | None = None


def logistics(composites: int = 15_000, events: int = 60_000, seed: int = 1) -> CompositeWorkload:
    """§5.1: a third of the composites each are departures, arrivals and deviations.

    Events come in runs of two (departure, arrival) and of four (deviation); each run
    completes its composite once. Of 60 000 events, 20 000 runs have two and 5 000 four.
    """
    require(composites >= 3 and composites % 3 == 0, "composites", composites, "give n × 3")
    require(events >= 12 and events % 12 == 0, "events", events, "give n × 12")
    rng = np.random.default_rng([seed, 51])
    third = composites // 3
    depots = rng.uniform(0, 1e6, (composites, 2)).round(1)
    texts = [
        *(_departure(i, *depots[i]) for i in range(third)),
        *(_arrival(i, *depots[i]) for i in range(third, 2 * third)),
        *(_deviation(i) for i in range(2 * third, composites)),
    ]
    twos, fours = events // 3, events // 12
    runs = rng.permutation(np.arange(twos + fours))
    made: list[Event] = []
    expected: list[tuple[int, tuple[str, ...]]] = []
    for run in runs.tolist():
        first = len(made)
        if run < twos:
            i = run % (2 * third)
            _pair(made, i, i < third, *depots[i])
        else:
            i = 2 * third + (run - twos) % third
            _four(made, i, *depots[i])
        expected.append((i, tuple(event.id for event in made[first:])))
    return CompositeWorkload("logistics", tuple(texts), tuple(made), tuple(expected))


def _vehicle(number: int) -> str:
    return f'(ARITH: id = {number}, STRING: type = "truck")'


def _square(x: float, y: float, half: float = 50.0) -> str:
    left, right, low, high = x - half, x + half, y - half, y + half
    corners = ((left, low), (right, low), (right, high), (left, high))
    return ",".join(f"({x:.2f},{y:.2f})" for x, y in corners)


def _departure(i: int, x: float, y: float) -> str:
    depot = _square(x, y)
    return f"=|(@({depot}){_vehicle(i)}; 600)(DIST({depot};>;500){_vehicle(i)})"


def _arrival(i: int, x: float, y: float) -> str:
    depot = _square(x, y)
    return f"=|(DIST({depot};>;500){_vehicle(i)}; 600)(@({depot}){_vehicle(i)})"


def _deviation(i: int) -> str:
    head = _vehicle(10_000_000 + i)
    return (
        "=|($e1;; 600)$e2;, $e1; = (|($A;)$B; && DIST($A;;<;300)$B;), "
        "$e2; = (|($C;)$D; && DIST($C;;>;300)$D;), "
        f"$A; = {_vehicle(i)}, $B; = ({head}), $C; = {_vehicle(i)}, $D; = ({head})"
    )


def _truck(made: list[Event], number: int, x: float, y: float, at: Micros) -> None:
    place = Point(round(x, 1), round(y, 1))
    attributes: dict[str, float | int | str | bool] = {"id": number, "type": "truck"}
    made.append(Event(f"e{len(made)}", attributes, location=place, start=at, end=at))


def _pair(made: list[Event], i: int, leaves: bool, x: float, y: float) -> None:
    """A vehicle at its depot, then far away; or the other way round."""
    for k in range(2):
        away = 0.0 if (k == 0) == leaves else 900.0
        _truck(made, i, x + away, y, _tick(len(made)))


def _four(made: list[Event], i: int, x: float, y: float) -> None:
    """Two vehicles together, then apart: each pair at one instant."""
    for away in (0.0, 900.0):
        at = _tick(len(made))
        _truck(made, i, x + away, y, at)
        _truck(made, 10_000_000 + i, x, y, at)


def _tick(number: int) -> Micros:
    """1500 events a second."""
    return EPOCH + number * 1_000_000 // 1500


def taxis(subscriptions: int = 10_000, events: int = 80_000, seed: int = 1) -> CompositeWorkload:
    """§5.2: Subscription 4 round 2000 m, and free taxis on their ways, 500 events a second."""
    rng = np.random.default_rng([seed, 52])
    radius = 2000.0
    side = math.sqrt(subscriptions * math.pi * radius**2 / math.log(2))
    spots = rng.uniform(0, side, (subscriptions, 2)).round(1)
    texts = tuple(f"DIST(({x:.1f},{y:.1f});<;{radius:g})({_TAXI})" for x, y in spots.tolist())

    def attributes(mover: int) -> dict[str, float | int | str | bool]:
        return {"id": mover, "type": "TAXI", "state": "uncarry"}

    made, movers = _walks(rng, events, 800, side, 50.0, attributes)
    group = np.zeros(subscriptions, np.int64), np.zeros(events, np.int64)
    return CompositeWorkload("taxis", texts, made, (), spots, radius, *group, movers)


def shopping(subscriptions: int = 10_000, events: int = 80_000, seed: int = 1) -> CompositeWorkload:
    """§5.3: Subscription 5 round a shop, and five people on their ways, 500 events a second."""
    rng = np.random.default_rng([seed, 53])
    shop = 400.1  # positions have one decimal: none lies on a border
    side = math.sqrt(subscriptions / len(_AGES) * shop**2 / math.log(2))
    spots = rng.uniform(0, side, (subscriptions, 2)).round(1)
    texts = tuple(
        f"@({_square(x, y, shop / 2)})(ARITH: ageRange = {_AGES[i % len(_AGES)]})"
        for i, (x, y) in enumerate(spots.tolist())
    )

    def attributes(mover: int) -> dict[str, float | int | str | bool]:
        return {"username": "abcde"[mover], "ageRange": _AGES[mover % len(_AGES)]}

    made, movers = _walks(rng, events, 5, side, 20.0, attributes)
    groups = np.arange(subscriptions) % len(_AGES), movers % len(_AGES)
    return CompositeWorkload("shopping", texts, made, (), spots, shop / 2, *groups, movers)


def _walks(
    rng: np.random.Generator,
    events: int,
    movers: int,
    side: float,
    step: float,
    attributes: Callable[[int], dict[str, float | int | str | bool]],
) -> tuple[tuple[Event, ...], NDArray[np.int64]]:
    """Movers who go straight to one random place after another; arrivals are Poisson."""
    who = rng.integers(0, movers, events)
    times = EPOCH + np.cumsum(rng.exponential(1e6 / 500, events)).astype(np.int64)
    places = rng.uniform(0, side, (movers, 2))
    goals = rng.uniform(0, side, (movers, 2))
    made = []
    for i, (mover, at) in enumerate(zip(who.tolist(), times.tolist(), strict=True)):
        way = goals[mover] - places[mover]
        far = float(np.hypot(*way))
        places[mover] += way * min(1.0, step / max(far, 1e-9))
        if far <= step:
            goals[mover] = rng.uniform(0, side, 2)
        x, y = places[mover].round(1).tolist()
        made.append(Event(f"e{i}", attributes(mover), location=Point(x, y), start=at, end=at))
    return tuple(made), who


#: The workloads by name.
GRUS: dict[str, Callable[..., CompositeWorkload]] = {
    "logistics": logistics,
    "taxis": taxis,
    "shopping": shopping,
}
