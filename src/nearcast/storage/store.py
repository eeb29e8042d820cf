"""The broker's store in tables: one tenant's part of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from nearcast.broker.past import REMEMBERED, thing_key
from nearcast.broker.ports import (
    Acknowledged,
    Altered,
    Change,
    Changes,
    Closed,
    Decided,
    Detecting,
    Expired,
    Fenced,
    Gone,
    Held,
    Input,
    Kept,
    Kind,
    Moved,
    Page,
    Published,
    Queued,
    Reached,
    Released,
    SavedPatterns,
    Spent,
    Standing,
    State,
    Subscribed,
    Thing,
    Told,
    Traced,
    Unsubscribed,
)
from nearcast.broker.replies import Notification
from nearcast.broker.subscriptions import Sealed, Subscriptions
from nearcast.broker.turns import Loss, Report, Turn, Waiting
from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import StoreError
from nearcast.fences.groups import Key, key_of
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Point
from nearcast.storage import rows
from nearcast.storage import statements as sql
from nearcast.storage.letters import Letters
from nearcast.storage.positions import Positions
from nearcast.storage.retention import Retention, Sweeper
from nearcast.storage.sinks import Sinks
from nearcast.storage.snapshot import Snapshot
from nearcast.storage.tables import Tables

__all__ = ["TableStore"]

_WISHES = ("moving", "subscription")  # the kinds of subscriptions


class TableStore:
    """What one tenant's broker remembers, in `Tables` that others may share.

    Staging encodes values and costs some microseconds a change; `flush` commits what all
    stores of the database have staged. Beside the tables it keeps in memory the entry of every
    live event and the number of every subscriber that was told something.
    """

    def __init__(
        self, database: Tables, tenant: str = "", *, retention: Retention | None = None,
        shared: bool = False, most_letters: int = 100_000,
    ) -> None:  # fmt: skip
        self._database = database
        self._shared = shared
        """Whether somebody else closes the database."""
        self._tenant = self._number_of(tenant)
        self._now: Micros | None = None
        self._entry = 0
        self._arrived = 0
        self._version = 0
        self._kinds: dict[str, str] = {}
        """The kind of what is no plain subscription, by id."""
        self._entries: dict[str, int] = {}
        """The log's entry of every live event, by key."""
        self._paired: set[int] = set()
        """Entries of which `told` speaks."""
        self._boxes: dict[str, int] = {}
        """The number of every subscriber that has an outbox."""
        self._cursors: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._touched: dict[str, int] = {}
        """Subscribers with new notifications, and the last number of each."""
        self._read: set[str] = set()
        """Subscribers of whose outboxes something was read since the last commit, where others
        read, too."""
        self._most_letters = most_letters
        self._standing: set[str] = set()
        """What may have a row of `standings`, or of `held`."""
        self._fences: dict[str, tuple[int, Key]] = {}
        """A number of its own for every fence, and what it counts."""
        self._traced: dict[tuple[int, str], str | None] = {}
        """What fences know since the last commit, by what they count and whom; None: forgotten."""
        self._fresh: dict[int, tuple[int, str, Event]] = {}
        """By identity, events that came since the last commit: their entry and text."""
        self._saved_at = 0
        """The last entry of which what was saved of patterns knows."""
        self._facts: dict[str, Any] = {}
        self._snapshot = Snapshot(database, self._tenant)
        self._sweeper = Sweeper(database, self._tenant, retention or Retention())
        database.before_commit(self._finish)

    @property
    def database(self) -> Tables:
        """What others may share."""
        return self._database

    @property
    def version(self) -> int:
        """Grows with every change of a subscription; never used twice."""
        return self._version

    def agree(self, name: str, value: str) -> None:
        """Refuse to be opened with another setting than the one it was made with."""
        known = self._fact(name)
        if known is None:
            self._set_fact(name, value)
            self._database.flush()
        elif known != value:
            raise StoreError(
                f"{self._database.name}: made with {name}={known!r}, and not {value!r}; "
                "open it as it was made, or name another store"
            )

    def _number_of(self, tenant: str) -> int:
        found = self._database.value("SELECT number FROM tenants WHERE name = ?", (tenant,))
        if found is None:
            self._database.stage("INSERT INTO tenants (name) VALUES (?)", (tenant,))
            self._database.flush()
            found = self._database.value("SELECT number FROM tenants WHERE name = ?", (tenant,))
        return int(found)

    def _fact(self, name: str) -> Any:
        query = "SELECT value FROM facts WHERE tenant = ? AND name = ?"
        return self._database.value(query, (self._tenant, name))

    def _number(self, name: str) -> int | None:
        found = self._fact(name)  # some databases keep all facts as text
        return None if found is None else int(found)

    def _set_fact(self, name: str, value: Any) -> None:
        self._database.stage(sql.SET_FACT, (self._tenant, name, value))

    # -- loading -------------------------------------------------------------------

    def load(self) -> State:
        """Everything that was committed. O(what is there)."""
        state = State(now=self._number("now"))
        self._now = state.now
        # Counters are kept, not found: what had the greatest number may be gone.
        self._entry = self._number("entry") or 0
        self._arrived = self._number("arrived") or 0
        self._version = self._number("version") or 0
        self._load_things(state)
        self._load_events(state)
        self._load_standings(state)
        self._load_boxes(state)
        for name, x, y, at, heading in self._all(sql.PLACES):
            state.places[name] = Moved(name, Point(x, y), at, heading)
        self._load_objects(state)
        self._load_turns(state)
        self._load_inputs(state)
        self.sinks = Sinks(
            self._database, self._tenant, lambda name: self._last.get(name, 0), self._read.add
        )
        self.letters = Letters(self._database, self._tenant, self._most_letters)
        self.positions = Positions(self._database, self._tenant)
        return state

    def _all(self, query: str, *more: Any) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(query, (self._tenant, *more))

    def _load_things(self, state: State) -> None:
        kept = Subscriptions(rows.subscription_opened, rows.subscriptions_to_table)
        for id, kind, subscriber, expires, changed, body in self._all(sql.THINGS):
            if kind == "composite":
                self._kinds[id] = kind
                state.composites[id] = rows.composite_from_text(id, subscriber, body)
            elif kind == "fence":
                known = rows.fence_from_text(id, subscriber, expires, body)
                self._fences[id] = changed, key_of(known.fence)
                state.fences[id] = known
            else:
                kept.seal(id, Sealed(subscriber, expires, kind == "moving", body))
        state.subscriptions = kept
        state.matcher = self._snapshot.load(kept)

    def _load_events(self, state: State) -> None:
        by_entry: dict[int, str] = {}
        for key, entry, publisher, at, body in self._all(sql.LIVE):
            self._entries[key] = entry
            by_entry[entry] = key
            if publisher is not None:
                state.publishers[key] = publisher
            state.events[key] = event = rows.event_from_text(body)
            if event.end is None and at is not None:
                state.came[key] = at
        for subscription, entry in self._all(sql.PAIRS):
            self._paired.add(entry)
            state.told.setdefault(by_entry[entry], set()).add(subscription)
        past = list(self._all(sql.PAST, NEVER if state.now is None else state.now, REMEMBERED))
        state.expired = OrderedDict(
            (key, (content, until)) for key, content, until in reversed(past)
        )

    def _load_standings(self, state: State) -> None:
        for thing, told, paused, opened, since in self._all(sql.STANDINGS):
            self._standing.add(thing)
            state.standings[thing] = Standing(thing, told, bool(paused), opened, since)
        live = {entry: key for key, entry in self._entries.items()}
        for thing, number, subscriber, entry, at, extra, body in self._all(sql.HELD):
            if entry in live:
                event = state.events[live[entry]]
            else:
                event = rows.event_from_text(body)
            found = _notification(thing, subscriber, event, at, None, extra)
            self._standing.add(thing)
            state.held.setdefault(thing, []).append((number, found))

    def _load_objects(self, state: State) -> None:
        state.closed = self._number("closed")
        keys = {rows.group_digest(key): key for _, key in self._fences.values()}
        for digest, who, body in self._all(sql.OBJECTS):
            if digest not in keys:  # nothing counts its positions any more
                self._database.stage(sql.DROP_OBJECT, (self._tenant, digest, who))
                continue
            key, who = keys[digest], rows.value_from_text(who)
            state.objects[key, who] = rows.object_from_text(key, who, body, self._fences)

    def _load_turns(self, state: State) -> None:
        live = {entry: key for key, entry in self._entries.items()}
        for number, at, kind, entry, body, event in self._all(sql.TURNS):
            what: Waiting
            if kind == "report":
                what = rows.report_from_text(body)
            elif kind == "loss":
                what = Loss(*rows.value_from_text(body))
            else:
                known = state.events[live[entry]] if entry in live else None
                what = rows.event_from_text(event) if known is None else known
            state.turns[number] = Turn(at, number, what)

    def _load_boxes(self, state: State) -> None:
        for name, number, last, acknowledged in self._all(sql.BOXES):
            self._boxes[name] = number
            self._cursors[name] = acknowledged
            state.numbers[name] = self._last[name] = last

    def _load_inputs(self, state: State) -> None:
        saved = list(self._all(sql.SAVED, "patterns"))
        if not saved:
            return
        ((entry, state.patterns),) = saved
        self._saved_at = entry
        if state.composites:
            for kind, at, body in self._all(sql.INPUTS, entry):
                state.inputs.append(Input(at, _input(kind, at, body)))

    # -- changing ------------------------------------------------------------------

    def stage(self, changes: Sequence[Change]) -> None:
        """Encode changes for the next flush."""
        self._database.ask()
        for change in changes:
            _STAGES[type(change)](self, change)

    def flush(self) -> None:
        """Commit what is staged; on disk when this returns."""
        self._database.flush()

    def keep(self, matcher: Matcher) -> None:
        """Save a matcher beside the store, if that spares a restart something."""
        self._snapshot.save(matcher, self._version)

    def close(self) -> None:
        """Let go of the database; what is staged and not committed is dropped."""
        if self._shared:
            self._database.forget(self._finish)
        else:
            self._database.close()

    def _finish(self) -> None:
        """Stage what is written once a transaction, however often it has changed."""
        for name, last in self._touched.items():
            number = self._boxes[name]
            self._database.stage(sql.SET_LAST, (self._tenant, name, number, last))
        self._touched.clear()
        for name in self._read:
            upto = min(self.cursor(name), self.sinks.held(name))
            if upto and name in self._boxes:
                self._database.stage(sql.DROP_TOLD, (self._tenant, self._boxes[name], upto))
        self._read.clear()
        for (digest, who), body in self._traced.items():
            if body is None:
                self._database.stage(sql.DROP_OBJECT, (self._tenant, digest, who))
            else:
                self._database.stage(sql.PUT_OBJECT, (self._tenant, digest, who, body))
        self._traced.clear()
        self._fresh.clear()
        # Only while something is detected or watched must its inputs be given again.
        self._sweeper.needed = self._saved_at if self._kinds else FOREVER
        self._sweeper.sweep(self._now, self._facts)
        for name, value in self._facts.items():
            self._set_fact(name, value)
        self._facts.clear()

    def _log(self, kind: str, body: str) -> int:
        self._entry += 1
        self._facts["entry"] = self._entry
        self._database.stage(sql.ADD_ENTRY, (self._tenant, self._entry, kind, self._now, body))
        return self._entry

    def _put(
        self, id: str, kind: str, subscriber: str | None, expires: int | None, body: str
    ) -> None:
        self._arrived += 1
        self._version += 1
        self._facts["arrived"], self._facts["version"] = self._arrived, self._version
        row = (id, kind, subscriber, expires, self._arrived, self._version, body, self._entry)
        self._database.stage(sql.PUT_THING, (self._tenant, *row))

    def _subscribed(self, change: Subscribed) -> None:
        s = change.subscription
        kind = "moving" if isinstance(s.region, Around) else "subscription"
        self._put(s.id, kind, s.subscriber, s.expires, rows.subscription_to_text(s))

    def _detecting(self, change: Detecting) -> None:
        c = change.composite
        body = rows.composite_to_text(c)
        self._kinds[c.id] = "composite"
        self._put(c.id, "composite", c.subscriber, c.expires, body)
        self._log("detect", rows.pair_to_text(c.id, body))

    def _unsubscribed(self, change: Unsubscribed) -> None:
        if self._kinds.pop(change.id, None) == "composite":
            self._log("end", change.id)
        self._fences.pop(change.id, None)
        self.sinks.ended(change.id)
        self._version += 1
        self._facts["version"] = self._version
        self._database.stage(sql.RETIRE, (self._version, self._entry, self._tenant, change.id))
        self._database.stage(sql.DROP_THING, (self._tenant, change.id))
        if self._snapshot.there:
            self._database.stage(sql.ADD_REMOVED, (self._tenant, change.id, self._version))
        self._database.stage(sql.DROP_PAIRS_OF_THING, (self._tenant, change.id))
        if change.id in self._standing:
            self._standing.remove(change.id)
            self._database.stage(sql.DROP_STANDING, (self._tenant, change.id))
            self._database.stage(sql.DROP_HELD, (self._tenant, change.id, FOREVER))

    def _fenced(self, change: Fenced) -> None:
        fence = change.known.fence
        body = rows.fence_to_text(change.known)
        self._put(fence.id, "fence", fence.subscriber, fence.expires, body)
        self._fences[fence.id] = self._version, key_of(fence)

    def _object_traced(self, change: Traced) -> None:
        known = change.known
        body = None
        if known.event is not None:
            _, text, _ = self._fresh.get(id(known.event)) or (0, rows.event_to_text(known.event), 0)
            body = rows.object_to_text(known, text, self._fences)
        self._traced[rows.group_digest(known.key), rows.value_to_text(known.object)] = body

    def _queued(self, change: Queued) -> None:
        at, number, what = change.turn
        row: tuple[int | None, str, str | None]
        if isinstance(what, Report):
            row = None, "report", rows.report_to_text(what)
        elif isinstance(what, Loss):
            row = None, "loss", rows.value_to_text(what)
        else:
            assert isinstance(what, Event)
            row = self._entry_of(what), "event", None
        self._database.stage(sql.ADD_TURN, (self._tenant, number, at, *row))

    def _decided(self, change: Decided) -> None:
        done = [(self._tenant, number) for number in change.numbers]
        self._database.stage_all(sql.DROP_TURN, done)

    def _closed(self, change: Closed) -> None:
        self._facts["closed"] = change.at

    def _published(self, change: Published) -> None:
        event = change.event
        kind = "composite" if isinstance(event, CompositeEvent) else "event"
        text = rows.event_to_text(event)
        entry = self._log(kind, text)
        if self._fences:
            self._fresh[id(event)] = entry, text, event
        self._entries[event.key] = entry
        self._database.stage(sql.PUT_EVENT, (self._tenant, event.key, entry, change.by))

    def _gone(self, change: Gone) -> None:
        self._over(change.key)
        self._database.stage(sql.DROP_EVENT, (self._tenant, change.key))

    def _expired(self, change: Expired) -> None:
        self._over(change.key)
        row = (change.content, change.until, self._tenant, change.key)
        self._database.stage(sql.EXPIRE_EVENT, row)

    def _spent(self, change: Spent) -> None:
        key = thing_key(change.id)
        if change.content is None:
            self._database.stage(sql.DROP_EVENT, (self._tenant, key))
        else:
            self._database.stage(sql.PUT_SPENT, (self._tenant, key, change.content, change.until))

    def _over(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry in self._paired:
            self._paired.remove(entry)
            self._database.stage(sql.DROP_PAIRS_OF_ENTRY, (self._tenant, entry))

    def _told(self, change: Told) -> None:
        told: list[tuple[Any, ...]] = []
        last, entry = None, 0
        for each in change.notifications:
            thing, subscriber, event, at, transition, _, seq, digest = each
            if subscriber is None or seq is None:
                continue
            number = self._boxes.get(subscriber)
            if number is None:
                number = self._boxes[subscriber] = len(self._boxes) + 1
            self._touched[subscriber] = self._last[subscriber] = seq
            extra = None
            if transition is not None or digest is not None:
                last, entry = None, self._found_entry(each)
                extra = _extra(each)
            elif event is not last:  # those of one event come one behind the other
                last, entry = event, self._found_entry(each)
            told.append((self._tenant, number, seq, thing, entry, at, extra))
        self._database.stage_all(sql.ADD_TOLD, told)

    def _found_entry(self, found: Notification) -> int:
        """The entry of the event of a notification."""
        event = found.event
        entry = None if found.transition is not None else self._entries.get(event.key)
        return self._entry_of(event) if entry is None else entry

    def _held(self, change: Held) -> None:
        self._standing.update(each.subscription_id for each in change.notifications)
        held = [
            (
                self._tenant, each.subscription_id, number, each.subscriber,
                self._found_entry(each), each.at, _extra(each),
            )
            for number, each in enumerate(change.notifications, change.first)
        ]  # fmt: skip
        self._database.stage_all(sql.ADD_HELD, held)

    def _released(self, change: Released) -> None:
        self._database.stage(sql.DROP_HELD, (self._tenant, change.id, change.upto))

    def _stands(self, change: Standing) -> None:
        self._standing.add(change.id)
        row = (change.id, change.told, int(change.paused), change.opened, change.since)
        self._database.stage(sql.PUT_STANDING, (self._tenant, *row))

    def _entry_of(self, event: Event) -> int:
        """The entry of what may have come long ago: then it is entered once more."""
        fresh = self._fresh.get(id(event))
        if fresh is None:
            text = rows.event_to_text(event)
            fresh = self._fresh[id(event)] = self._log("position", text), text, event
        return fresh[0]

    def _kept(self, change: Kept) -> None:
        for key in change.keys:
            entry = self._entries[key]
            self._paired.add(entry)
            self._database.stage(sql.ADD_PAIR, (self._tenant, change.subscription_id, entry))

    def _acknowledged(self, change: Acknowledged) -> None:
        if change.upto <= self.cursor(change.subscriber):
            return
        self._cursors[change.subscriber] = change.upto
        number = self._boxes[change.subscriber]
        row = (self._tenant, change.subscriber, number, change.upto, change.upto)
        self._database.stage(sql.SET_CURSOR, row)
        if self.sinks.held(change.subscriber) < change.upto:
            self._read.add(change.subscriber)
        else:
            self._database.stage(sql.DROP_TOLD, (self._tenant, number, change.upto))

    def _moved(self, change: Moved) -> None:
        place = change.place
        row = (self._tenant, change.subscriber, place.x, place.y, change.at, change.heading)
        self._database.stage(sql.PUT_PLACE, row)

    def _reached(self, change: Reached) -> None:
        self._now = self._facts["now"] = change.now
        if change.closing:
            self._log("close", "")

    def _saved(self, change: SavedPatterns) -> None:
        self._saved_at = self._entry
        row = (self._tenant, "patterns", self._entry, change.patterns)
        self._database.stage(sql.PUT_SAVED, row)

    # -- reading -------------------------------------------------------------------

    def outbox(self, subscriber: str, after: int, limit: int, max_bytes: int | None = None) -> Page:
        """Committed notifications with greater numbers."""
        number = self._box(subscriber)
        if number is None:
            return Page((), after)
        found: list[Notification] = []
        rest = FOREVER if max_bytes is None else max_bytes
        for seq, thing, at, extra, body in self._all(sql.OUTBOX, number, after, limit):
            rest -= len(body)
            if rest < 0 and found:
                break
            event = rows.event_from_text(body)
            found.append(_notification(thing, subscriber, event, at, seq, extra))
        known = max(after, self.cursor(subscriber))
        if found:
            first, last = found[0].seq or 0, found[-1].seq or 0
            return Page(tuple(found), last, max(0, first - 1 - known))
        told = self._database.value(sql.LAST, (self._tenant, subscriber)) or 0
        return Page((), max(after, told), max(0, told - known))

    def _box(self, subscriber: str) -> int | None:
        return self._boxes.get(subscriber)

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged."""
        return self._cursors.get(subscriber, 0)

    def log(
        self, after: int, limit: int, max_bytes: int | None = None
    ) -> Sequence[tuple[int, Event]]:
        """Events in the order they came, as far as they are kept."""
        found: list[tuple[int, Event]] = []
        rest = FOREVER if max_bytes is None else max_bytes
        for entry, body in self._all(sql.LOG, after, limit):
            rest -= len(body)
            if rest < 0 and found:
                break
            found.append((entry, rows.event_from_text(body)))
        return found

    def offset(self, key: str | None = None) -> int:
        """The entry of a live event, or the last one."""
        return self._entry if key is None else self._entries[key]

    def forgotten(self) -> int:
        """The last entry whose event was let go of, as far as that was committed."""
        return self._number("let_go") or 0

    def changes(self, after: int, limit: int, max_bytes: int | None = None) -> Changes:
        """How subscriptions have changed, as far as that is kept. Opens them: 90 µs a filter."""
        found: list[Altered] = []
        rest = FOREVER if max_bytes is None else max_bytes
        for number, entry, id, subscriber, expires, body in self._all(sql.CHANGES, after, limit):
            rest -= len(body or "")
            if rest < 0 and found:
                break
            now = None if body is None else rows.subscription_from_text(
                id, subscriber, expires, body
            )  # fmt: skip
            found.append(Altered(number, entry, id, now))
        return Changes(found, self._version, self._sweeper.forgotten)

    def things(self, kind: Kind, after: str, limit: int, subscriber: str | None) -> list[Thing]:
        """Committed things with greater ids. Opens them: 90 µs a filter."""
        kinds = _WISHES if kind == "subscription" else (kind, kind)
        query, whose = sql.THINGS_AFTER, () if subscriber is None else (subscriber,)
        if subscriber is not None:
            query = sql.THINGS_OF
        return [_thing(*row) for row in self._all(query, *whose, after, *kinds, limit)]

    def count(self, subscriber: str) -> int:
        """How many committed things are somebody's. O(that)."""
        return int(self._database.value(sql.COUNT_OF, (self._tenant, subscriber)))


def _extra(told: Notification) -> str | None:
    """What most notifications do not have."""
    if told.digest is not None:
        return rows.value_to_text([told.transition, told.object, told.digest])
    if told.transition is not None:
        return rows.value_to_text([told.transition, told.object])
    return None


def _notification(
    thing: str, subscriber: str | None, event: Event, at: Micros, seq: int | None, extra: str | None
) -> Notification:
    transition, who, *digest = (None, None) if extra is None else rows.value_from_text(extra)
    return Notification(thing, subscriber, event, at, transition, who, seq, *digest)


def _thing(id: str, kind: str, subscriber: str | None, expires: int | None, body: str) -> Thing:
    if kind == "composite":
        return rows.composite_from_text(id, subscriber, body)
    if kind == "fence":
        return rows.fence_from_text(id, subscriber, expires, body).fence
    return rows.subscription_from_text(id, subscriber, expires, body)


def _input(kind: str, at: Micros | None, body: str) -> Any:
    match kind:
        case "event" | "composite":
            return Published(rows.event_from_text(body))
        case "detect":
            id, text = rows.pair_from_text(body)
            return Detecting(rows.composite_from_text(id, None, text))
        case "end":
            return Unsubscribed(body)
        case "close":
            assert at is not None
            return Reached(at, True)
    raise StoreError(f"the log has an entry of the kind {kind!r}, which this release does not know")


_STAGES: dict[type[Any], Any] = {
    Subscribed: TableStore._subscribed,
    Detecting: TableStore._detecting,
    Fenced: TableStore._fenced,
    Traced: TableStore._object_traced,
    Queued: TableStore._queued,
    Decided: TableStore._decided,
    Closed: TableStore._closed,
    Unsubscribed: TableStore._unsubscribed,
    Published: TableStore._published,
    Gone: TableStore._gone,
    Expired: TableStore._expired,
    Spent: TableStore._spent,
    Told: TableStore._told,
    Held: TableStore._held,
    Released: TableStore._released,
    Standing: TableStore._stands,
    Kept: TableStore._kept,
    Acknowledged: TableStore._acknowledged,
    Moved: TableStore._moved,
    Reached: TableStore._reached,
    SavedPatterns: TableStore._saved,
}
