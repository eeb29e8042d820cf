"""What one tenant's map is shown: places, events, who is told, what came and went.

A scene is there while somebody watches, and costs nothing otherwise. It keeps the last place of
every mover, and for each watcher what that one has yet to be sent: bounded, so that a page that
reads slowly misses frames and holds nobody up. Places are the latest ones, whatever was missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Raw

from nearcast.broker.replies import Notification, Reply
from nearcast.clock import format_micros, system_now
from nearcast.model.codec import feature_to_json
from nearcast.model.events import Event
from nearcast.server.core import Answer, Turn
from nearcast.server.lamps import Lamps
from nearcast.server.wire import encode, sayable

__all__ = ["MOVERS", "Places", "Scene", "Scenes", "Watcher"]

#: Movers of a map, and what waits for one page: events, notifications, other news.
MOVERS, EVENTS, TOLD, NEWS = 100_000, 2_000, 1_000, 500
_AT_ONCE = 2_000
"""Notifications of a turn that are looked at; of more only the number is told."""
_HEAD = np.dtype([("magic", "S2"), ("version", "u1"), ("kind", "u1"), ("count", "<u4"),
                  ("x", "<f8"), ("y", "<f8")])  # fmt: skip

Kind = Literal["reported", "true"]
_KINDS: dict[Kind, int] = {"reported": 0, "true": 1}


class Places:
    """Where many are, each with the moment it was put there: who saw an earlier one is told."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.names: list[str] = []
        self.moment = 0
        self._number: dict[str, int] = {}
        self._xy = np.zeros((256, 2))
        self._when = np.zeros(256, np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._number

    def put(self, name: str, x: float, y: float) -> None:
        """Somebody is here now. Beyond `MOVERS` newcomers are left out."""
        number = self._number.get(name)
        if number is None:
            number = len(self.names)
            if number >= MOVERS:
                return
            self._number[name] = number
            self.names.append(name)
            self._reserve(number + 1)
        self.moment += 1
        self._xy[number] = x, y
        self._when[number] = self.moment

    def put_all(self, names: Iterable[str], xy: Any) -> None:
        """All of them at once, always the same ones in the same order."""
        if not self.names:
            self.names = [*names][:MOVERS]
            self._number = {name: number for number, name in enumerate(self.names)}
            self._reserve(len(self.names))
        self.moment += 1
        count = min(len(self.names), len(xy))
        self._xy[:count] = xy[:count]
        self._when[:count] = self.moment

    def _reserve(self, count: int) -> None:
        while count > len(self._when):
            self._xy = np.concatenate([self._xy, np.zeros_like(self._xy)])
            self._when = np.concatenate([self._when, np.zeros_like(self._when)])

    def since(self, moment: int) -> bytes | None:
        """The places that are newer, as a binary frame: docs/server.md says how it is read."""
        changed = np.flatnonzero(self._when[: len(self.names)] > moment)
        if not changed.size:
            return None
        at = self._xy[changed]
        head = np.zeros(1, _HEAD)
        head["magic"], head["version"], head["kind"] = b"nM", 1, _KINDS[self.kind]
        head["count"], head["x"], head["y"] = changed.size, at[0, 0], at[0, 1]
        offsets = (at - at[0]).astype("<f4")
        return b"".join((
            head.tobytes(), changed.astype("<u4").tobytes(),
            offsets[:, 0].tobytes(), offsets[:, 1].tobytes(),
        ))  # fmt: skip


class _News(NamedTuple):
    """A frame's members that are lists: at most so many wait."""

    name: str
    waiting: deque[Raw]


@dataclass(eq=False)
class Watcher:
    """One page: what it has yet to be sent."""

    scene: Scene
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    follows: str | None = None
    stirred: bool = False
    """Whether something of the one it follows has changed."""
    missed: int = 0
    """Events, notifications and news that did not wait for it."""
    figures: dict[str, Any] | None = None
    lamps: Lamps | None = None
    """Those of the pattern that it looks at …"""
    lit: bool = False
    """… and whether one of them lit up."""
    _seen: dict[Kind, int] = field(default_factory=lambda: {"reported": 0, "true": 0})
    _named: dict[Kind, int] = field(default_factory=lambda: {"reported": 0, "true": 0})
    _waiting: tuple[_News, ...] = field(
        default_factory=lambda: (
            _News("events", deque(maxlen=EVENTS)),
            _News("told", deque(maxlen=TOLD)),
            _News("news", deque(maxlen=NEWS)),
        )
    )

    def add(self, name: str, texts: Iterable[Raw]) -> None:
        """Something for it; the oldest goes if there is too much."""
        waiting = next(each.waiting for each in self._waiting if each.name == name)
        for text in texts:
            self.missed += len(waiting) == waiting.maxlen
            waiting.append(text)
        self.woken.set()

    def frames(self) -> Iterator[bytes]:
        """What there is for it, text and bytes; afterwards there is nothing."""
        for places in self.scene.places.values():
            kind = places.kind
            if places.moment > self._seen[kind]:
                if self._named[kind] < len(places):
                    first, self._named[kind] = self._named[kind], len(places)
                    yield encode({"type": "names", "kind": kind, "first": first,
                                  "names": places.names[first:]})  # fmt: skip
                frame, self._seen[kind] = places.since(self._seen[kind]), places.moment
                if frame is not None:
                    yield frame
        said: dict[str, Any] = {each.name: [*each.waiting] for each in self._waiting if each[1]}
        if said or self.missed:
            yield encode({"type": "happened", "missed": self.missed} | said)
            self.missed = 0
            for each in self._waiting:
                each.waiting.clear()
        if self.lit:
            self.lit = False
            yield encode({"type": "lit", "counts": self.lamps.counts if self.lamps else []})
        if self.figures is not None:
            yield encode({"type": "figures"} | self.figures)
            self.figures = None


class Scene:
    """Those who watch one tenant, and what they are shown."""

    def __init__(self) -> None:
        self.watchers: set[Watcher] = set()
        self.places: dict[Kind, Places] = {kind: Places(kind) for kind in _KINDS}

    def placed(self, subscriber: str, x: float, y: float) -> None:
        """Somebody has reported a place."""
        self.places["reported"].put(subscriber, x, y)
        for watcher in self.watchers:
            watcher.stirred = watcher.stirred or watcher.follows == subscriber
            watcher.woken.set()

    def add(self, name: str, texts: list[Raw]) -> None:
        """Something for all of them."""
        if texts:
            for watcher in self.watchers:
                watcher.add(name, texts)

    def miss(self, count: int) -> None:
        """So much is not even told of."""
        for watcher in self.watchers:
            watcher.missed += max(0, count)

    def light(self, events: Sequence[Event]) -> None:
        """The lamps of those who look at a pattern."""
        for watcher in self.watchers:
            if watcher.lamps is not None and watcher.lamps.see(events, system_now()):
                watcher.lit = True
                watcher.woken.set()

    def stir(self, subscribers: Collection[str]) -> None:
        """Something about these has changed: who follows one looks again."""
        for watcher in self.watchers:
            if watcher.follows is not None and watcher.follows in subscribers:
                watcher.stirred = True
                watcher.woken.set()


class Scenes:
    """The scenes that are watched, by tenant. In the loop only."""

    def __init__(self) -> None:
        self._scenes: dict[str, Scene] = {}
        self.reports_of: Counter[str] = Counter()
        """Places that were reported since the server began."""
        self.steps: int | None = None
        """How many there would have been without safe regions, where a simulator knows that."""
        self._true: tuple[list[str], Any] | None = None

    def __len__(self) -> int:
        return sum(len(each.watchers) for each in self._scenes.values())

    def of(self, tenant: str) -> Scene | None:
        """A tenant's, if it is watched."""
        return self._scenes.get(tenant)

    def watched(self) -> Iterator[tuple[str, Scene]]:
        """All that there are."""
        yield from [*self._scenes.items()]

    def watch(self, tenant: str) -> Watcher:
        """Begin to watch; `leave` ends it."""
        scene = self._scenes.get(tenant)
        if scene is None:
            scene = self._scenes[tenant] = Scene()
            if self._true is not None and not tenant:
                scene.places["true"].put_all(*self._true)
        watcher = Watcher(scene)
        scene.watchers.add(watcher)
        return watcher

    def leave(self, tenant: str, watcher: Watcher) -> None:
        """Watch no more."""
        watcher.scene.watchers.discard(watcher)
        if not watcher.scene.watchers:
            self._scenes.pop(tenant, None)

    def end(self) -> None:
        """The server stops."""
        for _, scene in self.watched():
            for watcher in scene.watchers:
                watcher.woken.set()

    def placed(self, tenant: str, subscriber: str, x: float, y: float) -> None:
        """A subscriber has reported a place."""
        self.reports_of[tenant] += 1
        scene = self._scenes.get(tenant)
        if scene is not None:
            scene.placed(subscriber, x, y)

    def simulated(self, names: list[str], xy: Any, steps: int) -> None:
        """Where a simulator's people truly are, and how many steps they have made together."""
        self._true, self.steps = (names, xy), steps
        scene = self._scenes.get("")
        if scene is not None:
            scene.places["true"].put_all(names, xy)
            for watcher in scene.watchers:
                watcher.woken.set()

    def news(
        self, tenant: str, kind: str, id: str, thing: Callable[[], Any] | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        """A thing stands from now on, or without one: it, or an event, is gone."""
        scene = self._scenes.get(tenant)
        if scene is not None:
            said = {"kind": kind, "id": id, "thing": None if thing is None else thing()}
            scene.add("news", [Raw(encode(said | {"source": source}))])

    def turned(self, turn: Turn) -> None:
        """A turn of the core is over: what it took and told."""
        if not self._scenes:
            return
        for job, value in turn.done:
            events = getattr(job.call, "events", ())  # what publishes says what
            scene = self._scenes.get(job.tenant)
            if scene is not None and events and isinstance(value, Answer):
                scene.miss(len(events) - EVENTS)
                scene.add("events", [*map(_event_text, events[-EVENTS:])])
                scene.light(events[-EVENTS:])
        left = _AT_ONCE
        for tenant, reply in turn.replies:
            scene = self._scenes.get(tenant)
            if scene is None:
                continue
            left -= len(reply)
            if left >= 0:
                scene.add("told", [*map(_told_text, reply)])
            else:
                scene.miss(len(reply))
            _stir(scene, reply)


def _stir(scene: Scene, reply: Reply) -> None:
    scene.stir(reply.safe_regions)
    scene.stir(reply.location_requests)


def _event_text(event: Event) -> Raw:
    return Raw(encode(feature_to_json(sayable(event))))


def _told_text(told: Notification) -> Raw:
    """Who was told of what; the event itself where nobody published it."""
    event = told.event
    said: dict[str, Any] = {
        "to": told.subscription_id, "subscriber": told.subscriber, "event": event.id,
        "source": event.source, "at": format_micros(told.at),
    }  # fmt: skip
    if told.transition is not None:
        said |= {"transition": told.transition, "object": told.object}
    parts = getattr(event, "parts", None)
    if parts:
        said |= {"parts": [*parts], "composite": feature_to_json(sayable(event))}
    return Raw(encode(said))
