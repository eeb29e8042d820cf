"""The wiring: the public broker, with its clock, store and sinks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from nearcast.broker.ports import Sink, Store
from nearcast.broker.service import Service
from nearcast.broker.silence import REACH_M
from nearcast.broker.timeline import Clock
from nearcast.fences.watch import MAX_OBJECTS
from nearcast.model.geometry import Box, Space
from nearcast.storage.opening import open_store

__all__ = ["Broker"]


class Broker(Service):
    """Tells subscribers of events, in memory: what already matches, then everything after.

    `space` is "globe" or "planar"; `safe_region` names the method that draws safe regions
    ("disc", "vm", "gm", "igm", "idgm", "igm:printed", "idgm:printed"), `extent` the space they
    may use a grid of, and `safe_region_options` are its numbers (`nearcast.mobility.tracker`).
    `subscription_index` and `event_index` name the structures that find subscriptions and live
    events (`nearcast.index.registry`); each of `index_options` goes to those that take it.
    With `letters` strings are numbers by their first letters to both (`nearcast.Matcher`).

    Durations are seconds, timedeltas or ISO 8601: `lateness` is how late an event may come
    (patterns wait that long; None: matched however late, and patterns wait for nobody),
    `max_ahead` how far ahead of the clock, `longest` how long an event may last (None: as long as
    it likes), `composite_life` how long a composite event is live. `tolerance_m` is that of
    patterns' `SPL` and `DIST(…;=;…)`, `max_pending` bounds every queue of theirs, `max_objects`
    the last positions that fences keep; what is let go is counted in `overflows`.
    `safe_rectangle` says how publishers' rectangles are grown ("greedy", "quadrants"), and
    `safe_rectangle_m` how far they reach. `clock` is a
    function that returns microseconds (`nearcast.clock.system_now`); without one, time is what
    events and `advance` say. `store` remembers what happens, `sinks` take every notification
    (`nearcast.broker.ports`).

    >>> from nearcast import Event, Subscription
    >>> broker = Broker()
    >>> broker.subscribe(Subscription(id="s1", subscriber="ann", where="price < 3300"))
    Reply([])
    >>> broker.publish(Event(id="e1", attributes={"price": 3200}))[0].subscriber
    'ann'
    """

    def __init__(
        self, space: Space = "globe", safe_region: str = "disc", *, extent: Box | None = None,
        lateness: object = None, max_ahead: object = 5, clock: Clock | None = None,
        subscription_index: str = "auto", event_index: str = "auto",
        index_options: Mapping[str, Any] | None = None, letters: bool = False,
        safe_region_options: Mapping[str, Any] | None = None,
        composite_life: object = 3600, longest: object = None, tolerance_m: float = 1.0,
        max_pending: int = 100_000, max_objects: int = MAX_OBJECTS,
        safe_rectangle: str = "greedy", safe_rectangle_m: float = REACH_M,
        store: Store | None = None, sinks: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            space=space, safe_region=safe_region, extent=extent, lateness=lateness,
            max_ahead=max_ahead, clock=clock, subscription_index=subscription_index,
            event_index=event_index, index_options=index_options, letters=letters,
            safe_region_options=safe_region_options, composite_life=composite_life,
            longest=longest, tolerance_m=tolerance_m, max_pending=max_pending,
            max_objects=max_objects, safe_rectangle=safe_rectangle,
            safe_rectangle_m=safe_rectangle_m, store=store, sinks=sinks,
        )  # fmt: skip

    @classmethod
    def open(
        cls, url: str | os.PathLike[str], space: Space = "globe", safe_region: str = "disc",
        **settings: Any,
    ) -> Self:  # fmt: skip
        """A broker that survives its process: what a call answers is on disk before it does.

        `url` is a file, made if it is not there, `sqlite:///file`, `postgresql://…` or
        `memory:`; the other settings are the broker's. One process at a time. Close it, or use it
        as a context manager. If the disk fails it stops, and every later call says so: open it
        again then.
        """
        store = open_store(url, space)
        try:
            return cls(space, safe_region, store=store, **settings)
        except BaseException:
            store.close()
            raise
