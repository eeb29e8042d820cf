"""The wiring: the public broker, with its clock, store and sinks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

from nearcast.broker.ports import Sink, Store
from nearcast.broker.service import Service
from nearcast.broker.timeline import Clock
from nearcast.model.geometry import Box, Space
from nearcast.storage.opening import open_store

__all__ = ["Broker"]


class Broker(Service):
    """Tells subscribers of events, in memory: what already matches, then everything after.

    `space` is "globe" or "planar"; `safe_region` names the method that draws safe regions
    ("disc", "vm", "gm", "igm", "idgm"), `extent` the space they may use a grid of; `index` the
    matcher's index. Durations are seconds, timedeltas or ISO 8601: `lateness` is how late
    an event may come (patterns wait that long; None: matched however late, and patterns wait
    for nobody), `max_ahead` how far ahead of the clock, `composite_life` how long a composite
    event is live. `clock` is a function that returns microseconds
    (`nearcast.clock.system_now`); without one, time is what events and `advance` say. `store`
    remembers what happens, `sinks` take every notification (`nearcast.broker.ports`).

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
        index: str = "auto", composite_life: object = 3600, store: Store | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            space=space, safe_region=safe_region, extent=extent, lateness=lateness,
            max_ahead=max_ahead, clock=clock, index=index, composite_life=composite_life,
            store=store, sinks=sinks,
        )  # fmt: skip

    @classmethod
    def open(
        cls, url: str | os.PathLike[str], space: Space = "globe", safe_region: str = "disc",
        **settings: Any,
    ) -> Self:  # fmt: skip
        """A broker that survives its process: what a call answers is on disk before it does.

        `url` is a file, made if it is not there, `sqlite:///file` or `memory:`; the other
        settings are the broker's. One process at a time. Close it, or use it as a context
        manager. If the disk fails it stops, and every later call says so: open it again then.
        """
        store = open_store(url, space)
        try:
            return cls(space, safe_region, store=store, **settings)
        except BaseException:
            store.close()
            raise
