"""The simulator: clients and the tracker, step by step, against a client that reports every step.

Within a step events expire, new ones arrive, then everybody moves. A client speaks at most
once a step: an exchange, whatever its cause, is one report and its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from nearcast.clock import Micros
from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Notice, Report
from nearcast.mobility.mover import Mover
from nearcast.mobility.safe_region import SafeRegion
from nearcast.mobility.scene import Scene, SceneIndex
from nearcast.mobility.search import MatcherSearch
from nearcast.mobility.tracker import Tracker
from nearcast.model.geometry import Point

__all__ = ["Outcome", "baseline", "simulate"]

_REPORT_BYTES = 40  # subscriber, place, epoch, heading, speed
_REQUEST_BYTES = 16
_NOTICE_BYTES = 48
#: Steps before the first whose arrivals the server has seen: it has been running for a while.
_HISTORY = 100


@dataclass(slots=True)
class Outcome:
    """What a run cost and whether it told everybody everything.

    `left` exchanges began because a client left its region, `asked` because an event fell
    into the impact region; the first exchange of each client is neither. `late` counts pairs
    told in a later step than by a client that reports at every step, `missed` those never
    told, `surplus` those told wrongly or twice.
    """

    left: int = 0
    asked: int = 0
    notices: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    region_bytes: list[int] = field(default_factory=list)
    build_s: list[float] = field(default_factory=list)
    publish_s: float = 0.0
    told: dict[tuple[int, int], int] = field(default_factory=dict)
    missed: int = 0
    late: int = 0
    surplus: int = 0
    delay_steps: list[int] = field(default_factory=list)

    @property
    def exchanges(self) -> int:
        """Messages as the paper counts them."""
        return self.left + self.asked

    @property
    def server_s(self) -> float:
        """Seconds the server worked."""
        return sum(self.build_s) + self.publish_s


def baseline(scene: Scene) -> Outcome:
    """A client that reports at every step: nothing missed, every step an exchange."""
    count = (scene.steps - 1) * scene.size
    out = Outcome(left=count, told=dict(scene.truth), notices=len(scene.truth))
    out.bytes_up, out.bytes_down = count * _REPORT_BYTES, out.notices * _NOTICE_BYTES
    return out


def _unbroken(region: SafeRegion) -> SafeRegion:
    return region


def simulate(
    scene: Scene,
    safe_region: str = "disc",
    *,
    beta: float | None = None,
    alpha: float = 0.5,
    cells: int = 600,
    knowing: bool = False,
    index: str = "auto",
    tampered: Callable[[SafeRegion], SafeRegion] = _unbroken,
    deaf: Callable[[int], bool] = lambda _: False,
) -> Outcome:
    """Run one method over a scene, whose live events an index holds.

    `knowing` redraws silent clients' regions at every step for nothing, as iGM-opt and
    idGM-opt do. `tampered` and `deaf` (subscribers whose requests the server forgets) break
    things on purpose, to show that the check would notice.
    """
    run = _Run(scene, safe_region, beta, alpha, cells, index, tampered, deaf)
    for step in range(scene.steps):
        run.publish(step)
        run.move(step, knowing)
    return run.judged()


class _Run:
    """One run: the tracker, its clients, and what came out so far."""

    def __init__(
        self, scene: Scene, safe_region: str, beta: float | None, alpha: float, cells: int,
        index: str, tampered: Callable[[SafeRegion], SafeRegion], deaf: Callable[[int], bool],
    ) -> None:  # fmt: skip
        self.scene = scene
        self.index = SceneIndex(scene, index)
        self.tracker = Tracker(
            MatcherSearch(self.index.matcher), space=scene.space, safe_region=safe_region,
            extent=scene.extent, cells=cells, beta=beta, alpha=alpha,
        )  # fmt: skip
        self.out = Outcome()
        self.clients = [Mover(f"p{i}") for i in range(scene.size)]
        self.requested: set[int] = set()
        self.tampered, self.deaf = tampered, deaf
        self.times_told: Counter[tuple[int, int]] = Counter()
        for i in range(scene.size):
            self.tracker.joined(scene.subscription(i), self._now(-_HISTORY))
        for step in range(-_HISTORY, 0):
            self.tracker.observed(*scene.crowd(step), self._now(step))

    def _now(self, step: int) -> Micros:
        return round(step * self.scene.step_s * 1e6)

    def publish(self, step: int) -> None:
        scene, now = self.scene, self._now(step)
        gone, coming = self.index.come_to(step)
        started = perf_counter()
        for id in gone:
            self.tracker.expired(id, now)
        self.tracker.observed(*scene.crowd(step), now)
        for event in coming:
            self.index.matcher.add_events([event])
            for message in self.tracker.published(event, now):
                self._carry(message, step)
        self.out.publish_s += perf_counter() - started

    def move(self, step: int, knowing: bool) -> None:
        scene, out = self.scene, self.out
        xs, ys = scene.x[step].tolist(), scene.y[step].tolist()
        for i, client in enumerate(self.clients):
            place = Point(xs[i], ys[i])
            asked = i in self.requested
            heading, speed = float(scene.heading[step, i]), float(scene.speed[step, i])
            report = client.moved(place, heading, speed)
            if report is None:
                if knowing:
                    client.region = None  # as if it had left that
                    redrawn = client.moved(place, heading, speed)
                    assert redrawn is not None
                    self._answer(redrawn, step, free=True)
                continue
            if step:
                out.asked += asked
                out.left += not asked
            self._answer(report, step)
        self.requested.clear()

    def _answer(self, report: Report, step: int, *, free: bool = False) -> None:
        now = self._now(step)
        started = perf_counter()
        messages = self.tracker.moved(
            report.subscriber, report.place, now, heading=report.heading, speed=report.speed,
            epoch=report.epoch,
        )  # fmt: skip
        if not free:
            self.out.build_s.append(perf_counter() - started)
            self.out.bytes_up += _REPORT_BYTES
        for message in messages:
            self._carry(message, step, free=free)

    def _carry(self, message: Message, step: int, *, free: bool = False) -> None:
        i = int(message.subscriber[1:])
        client, out = self.clients[i], self.out
        if isinstance(message, Notice):
            pair = (i, int(message.event_id[1:]))
            self.times_told[pair] += 1
            out.told.setdefault(pair, step)
            out.notices += 1
            out.bytes_down += _NOTICE_BYTES
            self.tracker.delivered(message.subscription_id, message.event_id)
        elif isinstance(message, LocationRequest):
            if self.deaf(i):
                return
            self.requested.add(i)
            out.bytes_down += _REQUEST_BYTES
            client.received(message)
        else:
            data = message.region.encode()
            if not free:
                out.region_bytes.append(len(data))
                out.bytes_down += len(data)
            region = self.tampered(SafeRegion.decode(data))
            client.received(NewRegion(message.subscriber, region))

    def judged(self) -> Outcome:
        out, truth = self.out, self.scene.truth
        out.missed = sum(pair not in out.told for pair in truth)
        out.late = sum(out.told.get(pair, step) > step for pair, step in truth.items())
        out.surplus = sum(pair not in truth for pair in out.told)
        out.surplus += sum(times - 1 for times in self.times_told.values())
        born = self.scene.born
        out.delay_steps = [
            step - truth[pair] for pair, step in out.told.items() if pair in truth and born[pair[1]]
        ]
        return out
