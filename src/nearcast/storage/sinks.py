"""Where a tenant's notifications are sent: sinks, what goes to which, and how far each has come.

A sink is a reader of its subscriber's outbox with a cursor of its own, `upto`. What it has not
been given yet stays in the outbox, whatever the subscriber itself has acknowledged (`held`).
A thing that ends, or goes elsewhere from now on, keeps its old delivery until the sink has all that
was told before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from nearcast.clock import FOREVER
from nearcast.storage import statements as sql
from nearcast.storage.tables import Tables

__all__ = [
    "Closed", "Delivery", "News", "Opened", "Own", "Routed", "Sink", "Sinks", "Span", "Switched",
]  # fmt: skip


#: What a subscriber's fact begins with, as `sql.OWN` has it: what is known of `Own`.
_OWN = "own "


class Delivery(NamedTuple):
    """Where a thing's notifications go."""

    protocol: str
    uri: str
    settings: Mapping[str, Any]
    """Checked by the protocol; secrets are among them."""


class Sink(NamedTuple):
    """Somewhere that a subscriber's notifications are sent."""

    number: int
    subscriber: str
    protocol: str
    uri: str
    settings: Mapping[str, Any]


class Span(NamedTuple):
    """Which of a thing's notifications go to a sink, by their numbers."""

    since: int
    ended: int | None = None

    def covers(self, seq: int) -> bool:
        """Whether this is one of them."""
        return self.since < seq and (self.ended is None or seq <= self.ended)


class Own(NamedTuple):
    """What of a subscriber's notifications goes to no sink: he reads it himself."""

    upto: int
    """That is known up to this number."""
    last: int
    """The greatest of them; or one that is as great, where they are not known."""


class Opened(NamedTuple):
    """A sink is there."""

    sink: Sink
    upto: int
    last: int
    """The number that its subscriber's outbox has come to."""
    disabled: str | None
    replays: bool
    """Whether dead letters wait to be sent once more."""


class Closed(NamedTuple):
    """A sink is there no more: nothing goes to it."""

    number: int


class Routed(NamedTuple):
    """What goes to a sink of a thing; None: nothing any more."""

    number: int
    thing: str
    span: Span | None


class Switched(NamedTuple):
    """Somebody asks that a sink be tried again, be it with dead letters; or it is disabled."""

    number: int
    disabled: str | None
    replays: bool = False


News: TypeAlias = Opened | Closed | Routed | Switched


@dataclass(slots=True)
class _Known:
    sink: Sink
    upto: int
    disabled: str | None
    spans: dict[str, Span] = field(default_factory=dict)
    ending: dict[str, int] = field(default_factory=dict)
    """Things of which it gets nothing after a number."""


class Sinks:
    """One tenant's; in the thread that owns the database, staged with whatever else is.

    `last` tells the last number of a subscriber's outbox, `moved` hears whose cursors moved.
    """

    def __init__(
        self, database: Tables, tenant: int, last: Callable[[str], int],
        moved: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._database = database
        self._tenant = tenant
        self._last = last
        self._moved = moved
        self._known: dict[int, _Known] = {}
        self._by_place: dict[tuple[str, str, str, str], int] = {}
        """Numbers by subscriber, protocol, URI and settings."""
        self._of: dict[str, set[int]] = {}
        self._by_thing: dict[str, set[int]] = {}
        self._own: dict[str, Own] = {}
        self._news: list[News] = []
        self._greatest = 0
        self._load()

    def _load(self) -> None:
        tenant = self._tenant
        replaying = {number for (number,) in self._database.rows(sql.REPLAYING, (tenant,))}
        for number, subscriber, protocol, uri, settings, upto, disabled in self._database.rows(
            sql.SINKS, (tenant,)
        ):
            sink = Sink(number, subscriber, protocol, uri, json.loads(settings))
            self._enter(_Known(sink, upto, disabled), replays=number in replaying)
        for thing, number, since, ended in self._database.rows(sql.DELIVERIES, (tenant,)):
            self._route(number, thing, Span(since, ended))
        query = "SELECT value FROM facts WHERE tenant = ? AND name = ?"
        greatest = self._database.value(query, (tenant, "sink"))
        self._greatest = int(greatest or 0)
        for name, said in self._database.rows(sql.OWN, (tenant,)):
            self._own[name.removeprefix(_OWN)] = Own(*map(int, said.split()))

    # -- looking -------------------------------------------------------------------

    def __iter__(self) -> Iterator[Sink]:
        """Those that there are, as they came."""
        return (each.sink for each in self._known.values())

    def get(self, number: int) -> Sink | None:
        """The sink of a number."""
        known = self._known.get(number)
        return None if known is None else known.sink

    def of(self, subscriber: str) -> list[Sink]:
        """One subscriber's."""
        return [self._known[number].sink for number in sorted(self._of.get(subscriber, ()))]

    def upto(self, number: int) -> int:
        """The number up to which a sink has everything."""
        return self._known[number].upto

    def disabled(self, number: int) -> str | None:
        """Why nothing is sent to a sink any more, if so."""
        return self._known[number].disabled

    def where(self, thing: str) -> Sink | None:
        """Where a thing's notifications go now."""
        for number in self._by_thing.get(thing, ()):
            if self._known[number].spans[thing].ended is None:
                return self._known[number].sink
        return None

    def held(self, subscriber: str) -> int:
        """The number after which some sink still reads a subscriber's outbox."""
        mine = self._of.get(subscriber)
        return min(self._known[number].upto for number in mine) if mine else FOREVER

    def sent(self, subscriber: str) -> int:
        """How many things of a subscriber have a sink. O(its sinks)."""
        mine = (self._known[number] for number in self._of.get(subscriber, ()))
        return sum(len(each.spans) - len(each.ending) for each in mine)

    def own(self, subscriber: str) -> Own:
        """What of somebody's notifications goes to no sink, as far as that is known.

        Where nothing was entered the sinks are new: of what was told before only its reader knows.
        """
        held = self.held(subscriber)
        return self._own.get(subscriber) or Own(held, held)

    def takes(self, thing: str, seq: int) -> bool:
        """Whether a thing's notification goes to a sink, or went to one that is not past it."""
        those = self._by_thing.get(thing, ())
        return any(self._known[number].spans[thing].covers(seq) for number in those)

    def news(self) -> list[News]:
        """What has changed since this was asked last; after a commit."""
        news, self._news = self._news, []
        return news

    # -- changing ------------------------------------------------------------------

    def put(self, thing: str, subscriber: str, delivery: Delivery | None, since: int) -> None:
        """From the number behind `since` on, a thing's notifications go there; None: nowhere."""
        wanted = None if delivery is None else self._number(subscriber, delivery, since)
        known = None if wanted is None else self._known[wanted].spans.get(thing)
        if known is not None and known.ended is None:
            return
        self._end(thing, since)
        if wanted is not None:
            self._set(wanted, thing, Span(since if known is None else known.since))

    def ended(self, thing: str) -> None:
        """A thing is there no more; what was told of it still goes where it went."""
        self._end(thing, None)

    def _end(self, thing: str, at: int | None) -> None:
        for number in sorted(self._by_thing.get(thing, ())):
            known = self._known[number]
            span = known.spans[thing]
            if span.ended is None:
                last = self._last(known.sink.subscriber) if at is None else at
                if last <= max(known.upto, span.since):
                    self._unset(number, thing)
                    self._tidy(number)
                else:
                    self._set(number, thing, Span(span.since, last))

    def move(self, number: int, upto: int) -> None:
        """A sink has everything up to a number, or that is in dead letters."""
        known = self._known.get(number)
        if known is None or upto <= known.upto:
            return
        known.upto = upto
        self._database.stage(sql.SET_UPTO, (upto, self._tenant, number))
        for thing in [thing for thing, ended in known.ending.items() if ended <= upto]:
            self._unset(number, thing)
        self._moved(known.sink.subscriber)
        self._tidy(number)

    def know(self, subscriber: str, own: Own, *, keep: bool) -> None:
        """What goes to no sink is known so far; `keep` it, if the outbox cannot tell it again."""
        if subscriber not in self._of:
            return
        self._own[subscriber] = own
        if keep:
            row = (self._tenant, _OWN + subscriber, f"{own.upto} {own.last}")
            self._database.stage(sql.SET_FACT, row)

    def disable(self, number: int, why: str | None) -> None:
        """Send nothing there any more; None: send again."""
        known = self._known.get(number)
        if known is not None:
            known.disabled = why
            self._database.stage(sql.DISABLE, (why, self._tenant, number))
            self._news.append(Switched(number, why))

    def replay(self, number: int) -> None:
        """Dead letters wait for a sink."""
        known = self._known.get(number)
        if known is not None:
            self._news.append(Switched(number, known.disabled, True))

    # -- the parts -----------------------------------------------------------------

    def _number(self, subscriber: str, delivery: Delivery, since: int) -> int:
        """The sink that is meant, made if it is not there."""
        settings = json.dumps(delivery.settings, sort_keys=True)
        place = subscriber, delivery.protocol, delivery.uri, settings
        number = self._by_place.get(place)
        if number is None:
            self._greatest = number = self._greatest + 1
            self._database.stage(sql.SET_FACT, (self._tenant, "sink", number))
            row = (self._tenant, number, *place, since, None)
            self._database.stage(sql.ADD_SINK, row)
            self._enter(_Known(Sink(number, subscriber, *delivery), since, None))
        elif self._known[number].disabled is not None:
            self.disable(number, None)  # whoever names it once more wants it
        return number

    def _enter(self, known: _Known, *, replays: bool = False) -> None:
        sink = known.sink
        self._known[sink.number] = known
        self._by_place[_place(sink)] = sink.number
        self._of.setdefault(sink.subscriber, set()).add(sink.number)
        last = self._last(sink.subscriber)
        self._news.append(Opened(sink, known.upto, last, known.disabled, replays))

    def _tidy(self, number: int) -> None:
        """Close a sink that nothing goes to."""
        known = self._known[number]
        if known.spans:
            return
        del self._known[number], self._by_place[_place(known.sink)]
        mine = self._of[known.sink.subscriber]
        mine.discard(number)
        if not mine:
            del self._of[known.sink.subscriber]
            if self._own.pop(known.sink.subscriber, None) is not None:
                row = (self._tenant, _OWN + known.sink.subscriber)
                self._database.stage(sql.DROP_FACT, row)
        self._database.stage(sql.DROP_SINK, (self._tenant, number))
        self._news.append(Closed(number))
        self._moved(known.sink.subscriber)

    def _set(self, number: int, thing: str, span: Span) -> None:
        self._database.stage(sql.PUT_DELIVERY, (self._tenant, thing, number, *span))
        self._route(number, thing, span)

    def _route(self, number: int, thing: str, span: Span) -> None:
        known = self._known[number]
        known.spans[thing] = span
        if span.ended is None:
            known.ending.pop(thing, None)
        else:
            known.ending[thing] = span.ended
        self._by_thing.setdefault(thing, set()).add(number)
        self._news.append(Routed(number, thing, span))

    def _unset(self, number: int, thing: str) -> None:
        del self._known[number].spans[thing]
        self._known[number].ending.pop(thing, None)
        self._by_thing[thing].discard(number)
        if not self._by_thing[thing]:
            del self._by_thing[thing]
        self._database.stage(sql.DROP_DELIVERY, (self._tenant, thing, number))
        self._news.append(Routed(number, thing, None))


def _place(sink: Sink) -> tuple[str, str, str, str]:
    settings = json.dumps(sink.settings, sort_keys=True)
    return sink.subscriber, sink.protocol, sink.uri, settings
