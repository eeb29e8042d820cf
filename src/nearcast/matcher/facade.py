"""The matcher: subscriptions and events in, exact matches out, over any index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER, NEVER, Time, to_micros
from nearcast.errors import (
    BatchError,
    CapacityError,
    DuplicateIdError,
    NearcastError,
    ValidationError,
)
from nearcast.index import registry
from nearcast.index.base import (
    Capabilities,
    ClauseStore,
    Coming,
    Counters,
    DroppingIndex,
    EventBatch,
    MatchReport,
    Pairs,
    RebuiltIndex,
    Rows,
    new_counters,
)
from nearcast.jit import parallel_threads
from nearcast.kernels import verify
from nearcast.matcher import bulk, room, usage
from nearcast.matcher.encode import (
    EncodedClause,
    EncodedEvent,
    Plain,
    batch_of_one,
    encode_event,
    encode_plain,
    encode_subscription,
    encoded_row,
    plain_of,
    plain_query,
)
from nearcast.matcher.event_lists import encode_list
from nearcast.matcher.explain import Explanation, explain
from nearcast.matcher.ids import IdTable
from nearcast.matcher.live import Live, Spots, Standing
from nearcast.matcher.lock import ReadWriteLock
from nearcast.matcher.places import (
    Bounds,
    index_boxes,
    plain_place,
    search_boxes,
    shape_floats,
)
from nearcast.matcher.residual import Place, residuals_hold, shape_meets
from nearcast.matcher.sought import Sought
from nearcast.matcher.subscription_lists import encode_objects
from nearcast.matcher.tuning import GivenTuning, coded_options, read_tuning
from nearcast.matcher.waiting import NOBODY, Waiting
from nearcast.model.events import Event
from nearcast.model.geometry import SPACES, Box, Circle, Point, Polygon, Space, check_space
from nearcast.model.placing import Whereabouts, at_heading
from nearcast.model.schema import Schema
from nearcast.model.subscriptions import Subscription

__all__ = ["Matcher"]

Subscriptions: TypeAlias = Iterable[Subscription] | Any
"""Subscriptions, or an Arrow table or record batch of them."""
Events: TypeAlias = Iterable[Event] | Any
"""Events, or an Arrow table or record batch of them."""

_MOST_STAGED = 1024  # changes that may wait for the next match
_NO_ROWS = np.empty(0, np.int32)
_NO_EXTENT = frozenset((Point, type(None)))  # kinds of places that indexes know
_location = attrgetter("location")
_AS_ARRAYS = 64  # subscriptions from which on arrays for all are quicker than one by one
_SINGLY = 4  # events up to which arrays for all take longer than one by one
# Events that may wait for somebody who looks: more and more of them if nobody does, for those that
# go meanwhile cost nothing. Few are entered in some milliseconds, the most in less than half a
# second.
_FEW_COMING, _MOST_COMING = 2048, 131_072
_SPLIT = 256  # events below which a second thread costs more than it brings


class _WithdrawnError(Exception):
    """Takes back what a schema has learnt."""


class Matcher:
    """Which subscriptions want this event, and which live events does this subscription want.

    `index` names the structure that does the work (`nearcast.index.registry`), `space` is
    "globe" (lon/lat, metres) or "planar". `tuning`, measured by `nearcast pipeline tune`,
    decides what "auto" stands for and the index's options; those given here stand above it.
    Answers are exact whatever the index: what it does not decide is checked here.

    With `letters` strings are numbers by their first letters, too, so that `=`, `LIKE 'abc%'`
    and ranges of strings are intervals to the index (`nearcast.model.letters`). That is two values
    more for each string of an event, and never another answer.

    Where `max_bytes` would be exceeded, an addition raises CapacityError and adds nothing; a
    match never does: what it would make and keep for the next is then left out.

    One thread may change a matcher while others match; each match sees one state, and every
    change that was made before it began.

    >>> matcher = Matcher()
    >>> matcher.add_subscriptions([Subscription(id="s1", where="price < 3300")])
    >>> matcher.match_event(Event(id="e1", attributes={"price": 3200}))
    ['s1']
    """

    def __init__(
        self,
        index: str = "auto",
        space: Space = "globe",
        *,
        schema: Schema | None = None,
        letters: bool | None = None,
        max_bytes: int | None = None,
        threads: int | None = None,
        tuning: GivenTuning | None = None,
        **options: Any,
    ) -> None:
        if space not in SPACES:
            raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
        if not isinstance(index, str):
            raise ValidationError("index", index, "give a name, such as 'auto'")
        if schema is not None and not isinstance(schema, Schema):
            raise ValidationError("schema", schema, "give a Schema, or None for a new one")
        _check_positive("max_bytes", max_bytes)
        _check_positive("threads", threads)
        if letters is not None and not isinstance(letters, bool):
            raise ValidationError("letters", letters, "give True or False")
        if schema is not None and letters is not None and letters != schema.letters:
            raise ValidationError("letters", letters, f"the schema has letters={schema.letters}")
        self.schema = Schema(letters=bool(letters)) if schema is None else schema
        self.schema.shared = schema is not None
        if tuning is not None:
            index, tuned = read_tuning(tuning).settle(index, self.schema)
            options = tuned | options
        options = coded_options(options, self.schema)
        self.entry = registry.entry(index)
        self.space: Space = space
        self.max_bytes = max_bytes
        self._threads = parallel_threads() if threads is None else threads
        self._standing = Standing()
        self._live = Live(self.schema, space)
        self._coming: Waiting = NOBODY
        """Events that are live, and entered when somebody looks."""
        self._most_coming = _FEW_COMING
        """How many may be: the more, the longer nobody has looked."""
        self._lock = ReadWriteLock(self._settle, self._standing.staged)
        self._options = options
        self._most_texts = usage.allowed(self.schema, self._standing.store, self._live.store)
        try:
            self.index: Any = self.entry.load()(
                self._standing.store,
                self._live.store,
                **dict(self.entry.options),
                **options,
            )
        except TypeError as error:
            raise ValidationError(
                "options", options, f"index {self.entry.name!r} does not take them ({error})"
            ) from None

    def __len__(self) -> int:
        """The number of subscriptions."""
        return len(self._standing.ids)

    def __contains__(self, subscription_id: object) -> bool:
        with self._lock.read():
            return isinstance(subscription_id, str) and self._known(subscription_id)

    def _known(self, subscription_id: str) -> bool:
        return self._standing.ids.get(subscription_id) >= 0

    @property
    def event_count(self) -> int:
        """The number of live events; those that have expired count until they are removed."""
        return len(self._live.ids) + len(self._coming)

    # -- on disk ---------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write this matcher into a folder, whole or not at all; `load` maps it into memory."""
        from nearcast.matcher import saved

        if self._coming:
            self._receive()
        with self._lock.change():
            self._settle_all()
            self._prepare()
            saved.save(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        threads: int | None = None,
        verify: bool = False,
    ) -> Matcher:
        """Open a matcher that `save` wrote; raises SavedError.

        Takes milliseconds whatever the size: arrays are mapped, and processes of one machine
        share them until one makes a change, which stays its own. Open only what you trust;
        `verify` reads all of it and checks that it is what was written.
        """
        from nearcast.matcher import saved

        return saved.load(cls, folder, threads=threads, verify=verify)

    def prepare(self) -> None:
        """Build the index now if that was put off; the first match of one event would.

        A large table that comes into an empty matcher is only encoded. Batches of events are
        matched without an index for as long as that costs less than to build it.
        """
        with self._lock.change():
            self._prepare()

    def _prepare(self) -> None:
        rebuilds = _rebuilds(self.index)
        if rebuilds is not None:
            with self._lock.alone():
                rebuilds.prepare()

    def parts(self) -> dict[str, Any]:
        """What `of_parts` makes a matcher of; shared with this one, not copied."""
        if self._coming:
            self._receive()
        return {
            "schema": self.schema,
            "standing": self._standing,
            "live": self._live,
            "index": self.index,
            "max_bytes": self.max_bytes,
            "options": self._options,
        }

    @classmethod
    def of_parts(
        cls, index: str, space: Space, parts: dict[str, Any], threads: int | None
    ) -> Matcher:
        """A matcher of the parts of another; an index that is not among them is built."""
        shared = parts["schema"].shared
        made = cls(
            index,
            space,
            schema=parts["schema"],
            max_bytes=parts["max_bytes"],
            threads=threads,
            **parts["options"],
        )
        made.schema.shared = shared
        made._standing, made._live = parts["standing"], parts["live"]
        made._lock = ReadWriteLock(made._settle, made._standing.staged)
        if parts["index"] is not None:
            made.index = parts["index"]
            return made
        stores = made._standing.store, made._live.store
        options = dict(made.entry.options) | parts["options"]
        made.index = made.entry.load()(*stores, **options)
        if len(stores[0]):
            made.index.add_clauses(stores[0].live_rows())
        if len(stores[1]):
            made.index.add_events(stores[1].live_rows())
        return made

    # -- subscriptions ---------------------------------------------------------

    def add_subscriptions(
        self, subscriptions: Subscriptions, *, at: Point | None = None,
        heading: float | None = None,
    ) -> None:  # fmt: skip
        """Add all of them, or none: a bad one is a BatchError that names its row.

        Takes `Subscription` objects, or an Arrow table (or record batch) with the columns
        of `docs/wire.md`; ready `intervals` columns are the fast way. `at` says where
        the subscriber of `Around` regions is, and `heading` how they are turned.
        """
        self._require_subscriptions()
        given = bulk.listed(subscriptions, Subscription)
        where = at_heading(at, heading)
        if isinstance(given, list):
            self._add_objects(given, where)
        else:
            self._add_table(given, where)

    def _require_subscriptions(self) -> None:
        if self.entry.subscriptions is None:  # asking the registry takes as long as finding an id
            registry.require(self.entry.name, subscriptions=True)

    def _add_objects(self, subscriptions: list[Subscription], at: Whereabouts) -> None:
        standing = self._standing
        with self._lock.change():
            if len(subscriptions) == 1 and self._add_plain(subscriptions[0], at):
                return
            if len(subscriptions) >= _AS_ARRAYS and self.max_bytes is None:
                self._add_many(subscriptions, at)
                return
            with self.schema.attempt(self._lock.alone):
                encoded = self._encode_all(subscriptions, at)
                if self.max_bytes is not None:
                    every = [clause for clauses in encoded for clause in clauses]
                    ids = sum(len(each.id.encode()) for each in subscriptions)
                    coming = {"clauses": len(every), "wordless": room.wordless(every)}
                    self._check_room(room.clause_bytes(every) + ids, **coming)
            several = zip(subscriptions, encoded, strict=True)
            if self._can_stage(len(encoded), encoded):
                standing.stage([(each.id, each.expires, its[0]) for each, its in several])
                self._lock.offer()
            else:
                with self._lock.alone():
                    rows = [standing.add(each.id, each.expires, its) for each, its in several]
                    self._enter(np.concatenate([_NO_ROWS, *rows]))
            self._renew()

    def _add_plain(self, subscription: Subscription, at: Whereabouts) -> bool:
        """Add one that needs no preparation; whether it is such a one."""
        try:
            plain = self._plain(subscription, at)
            if plain is None:
                return False
            id, expires, standing = subscription.id, subscription.expires, self._standing
            if self._lock.seize():
                try:
                    tiles = self.index.one_step
                    if tiles is None or not standing.add_plain(
                        id, expires, plain, self.schema, tiles
                    ):
                        return False
                finally:
                    self._lock.let_go()
                if tiles.worn:
                    self._renew()
                return True
            clause = encode_plain(plain, self.schema)
            if clause is None:
                return False
            standing.stage([(id, expires, clause)])
            self._lock.offer()
        except NearcastError as error:
            raise BatchError(0, error) from error
        self._renew()
        return True

    def _move_plain(self, subscription: Subscription, at: Whereabouts) -> bool:
        """Replace one by another that needs no preparation; whether it is such a one."""
        plain = self._plain(subscription, at)
        return plain is not None and self._move_to(subscription.id, subscription.expires, plain)

    def _move_to(self, id: str, expires: int | None, plain: Plain) -> bool:
        standing = self._standing
        if self._lock.seize():
            try:
                tiles = self.index.one_step
                if tiles is None or not standing.move_plain(id, expires, plain, self.schema, tiles):
                    return False
            finally:
                self._lock.let_go()
            if tiles.worn:
                self._renew()
            return True
        if not standing.stage_plain(id, expires, plain, self.schema):
            return False
        self._lock.offer()
        self._renew()
        return True

    def _remove_plain(self, id: str) -> bool:
        """Forget one that nobody looks at, in one step; whether it is such a one."""
        able = hasattr(self.index, "rebuilt") and id.isprintable()  # no lone surrogates
        if not able or not self._lock.seize():
            return False
        try:
            tiles = self.index.one_step  # asked while nobody can change it
            if tiles is None or not self._standing.remove_plain(id, self.schema, tiles):
                return False
        finally:
            self._lock.let_go()
        return True

    def _plain(self, subscription: Subscription, at: Whereabouts) -> Plain | None:
        """What a subscription is that comes or moves without preparation."""
        if (
            self.max_bytes is None
            and hasattr(self.index, "rebuilt")
            and len(self._standing.staged) < _MOST_STAGED
            and isinstance(subscription, Subscription)
        ):
            return plain_of(subscription, self.schema, self.space, at)
        return None

    def _can_stage(self, more: int, clauses: Iterable[Sequence[object]]) -> bool:
        """Whether changes of subscriptions with these clauses can be left to the next match.

        The index must not mind rows in the store that it was not given, and no pair may come
        twice while an old clause is still seen: those of one clause only.
        """
        standing = self._standing
        return (
            self.max_bytes is None  # what it takes would be known too late
            and hasattr(self.index, "rebuilt")
            and len(standing.staged) + more <= _MOST_STAGED
            and all(len(each) == 1 for each in clauses)
        )

    def _settle(self) -> None:
        """Let changes that were left to others be seen; called while nobody looks."""
        self._standing.settle(self.index.exchange_clauses)

    def _settle_all(self) -> None:
        """Wait until what was left is settled and no trace of it is left; within `change`."""
        with self._lock.alone():
            self._standing.recycle()

    def _encode_all(
        self, subscriptions: list[Subscription], at: Whereabouts
    ) -> list[list[EncodedClause]]:
        """Rows of all subscriptions, or BatchError for the first that cannot be added."""
        seen: set[str] = set()
        encoded = []
        for i, subscription in enumerate(subscriptions):
            try:
                if not isinstance(subscription, Subscription):
                    raise ValidationError("subscription", subscription, "give a Subscription")
                if subscription.id in seen or self._known(subscription.id):
                    raise DuplicateIdError(
                        "subscription", subscription.id, "use update_subscription to replace it"
                    )
                seen.add(subscription.id)
                encoded.append(encode_subscription(subscription, self.schema, self.space, at))
            except NearcastError as error:
                raise BatchError(i, error) from error
        return encoded

    def check_subscription(self, subscription: Subscription, *, at: Whereabouts = None) -> None:
        """Raise what `update_subscription` would raise, its id apart; changes nothing."""
        _check_type("subscription", subscription, Subscription)
        with self._lock.change(), suppress(_WithdrawnError), self.schema.attempt(self._lock.alone):
            encode_subscription(subscription, self.schema, self.space, at)
            raise _WithdrawnError

    def _add_many(self, subscriptions: list[Subscription], at: Whereabouts) -> None:
        """Add so many that they are arrays sooner than one by one; within `change`."""
        with self.schema.attempt(self._lock.alone):
            try:
                draft = encode_objects(subscriptions, self.schema, self.space, at)
                self._add_draft(draft)
            except BatchError:
                self._encode_all(subscriptions, at)  # which finds the first that is wrong
                raise
        self._renew()

    def _add_table(self, table: Any, at: Whereabouts) -> None:
        with self._lock.change():
            with self.schema.attempt(self._lock.alone):
                enter, wait = None, False
                rebuilds = _rebuilds(self.index)
                if rebuilds is not None and rebuilds.outgrown(table.num_rows):
                    ids = self._standing.ids.copy()
                    enter, wait = partial(_entered, ids), self._may_wait(rebuilds)
                draft = bulk.encode_subscriptions(
                    table, self.schema, self.space, at, enter=enter, wait=wait
                )
                self._add_draft(draft)
            self._renew()

    def _may_wait(self, index: RebuiltIndex) -> bool:
        """What nobody has matched may wait; but bytes that are bounded must be known now."""
        return index.waits and self.max_bytes is None

    def _add_draft(self, draft: bulk.SubscriptionDraft) -> None:
        rows = draft.clauses
        if self.max_bytes is not None:
            self._check_room(draft.bytes_needed(), clauses=rows, wordless=draft.wordless)
        draft.check_limits()
        rebuilds = _rebuilds(self.index)
        if rebuilds is not None and (draft.entered is not None or rebuilds.outgrown(rows)):
            self._add_aside(draft, rebuilds)
        else:
            with self._lock.alone():
                self._add_in_place(draft)

    def _add_in_place(self, draft: bulk.SubscriptionDraft) -> None:
        standing = self._standing
        slots = standing.ids.add_many(draft.id_offsets, draft.id_data)
        rows = standing.extend(draft.pieces, draft.runs)
        hidden = standing.add_many(standing.ids, draft.expires, draft.positions, rows, slots)
        standing.show(hidden)
        self._enter(hidden.rows)

    def _enter(self, rows: Rows) -> None:
        """Give the index new rows; all of their subscriptions go again if that is too much."""
        self.index.add_clauses(rows)
        overfull = self._overfull()
        if overfull is not None:
            self.index.remove_clauses(rows)
            for slot in np.unique(self._standing.slots_of(rows)).tolist():
                self._standing.remove(slot)
            raise overfull

    def _add_aside(self, draft: bulk.SubscriptionDraft, index: RebuiltIndex) -> None:
        """Add so much that the index is built anew; matches go on until all is there."""
        self._settle_all()
        standing = self._standing
        store = standing.store
        here, first, free = store.live_rows(), store.rows, store.free_rows()
        slots = _NO_ROWS
        try:
            with ThreadPoolExecutor(1) as pool:
                entered = draft.entered
                if entered is None:
                    entered = pool.submit(
                        _entered, standing.ids.copy(), draft.id_offsets, draft.id_data
                    )
                rows = standing.extend(draft.pieces, draft.runs)
                ids, slots = entered.result()
            hidden = standing.add_many(ids, draft.expires, draft.positions, rows, slots)
            wait = self._may_wait(index)
            fresh = index.rebuilt(np.concatenate([here, rows]), wait=wait)
            more = fresh.memory_bytes() - self.index.memory_bytes()
            overfull = self._overfull(more + ids.memory_bytes() - standing.ids.memory_bytes())
            if overfull is not None:
                raise overfull
            with self._lock.alone():
                standing.show(hidden)
                self.index = fresh
        except BaseException:  # a taken id, no memory, an interrupt; once alone, nothing can fail
            standing.forget(first, free, slots)
            raise

    def _renew(self) -> None:
        """Make an index that is worn anew, while others match; within `change`."""
        if self.schema.texts > self._most_texts and not self.schema.shared:
            self._free_texts()
        worn = _rebuilds(self.index)
        if worn is not None and worn.worn:
            self._settle_all()
            try:
                fresh = worn.rebuilt(self._standing.store.live_rows())
            except MemoryError:
                return  # it works as it is, and may find room another time
            with self._lock.alone():
                self.index = fresh

    def _free_texts(self) -> None:
        """Free strings and words that no subscription and no live event has any more.

        Whoever matches has encoded its events before or will do so after that.
        """
        stores = self._standing.store, self._live.store
        try:
            used = usage.of(self.schema, *stores)
        except MemoryError:
            return  # they are in nobody's way, and may go another time
        with self._lock.alone():
            self.schema.keep(*used)
        self._most_texts = usage.allowed(self.schema, *stores)

    def remove_subscription(self, id: str) -> None:
        """Forget a subscription; raises UnknownIdError."""
        standing = self._standing
        with self._lock.change():
            if isinstance(id, str) and self._remove_plain(id):
                return
            slot = standing.ids.find(id)
            rows = standing.rows_of(slot)
            if self._can_stage(1, (rows,)) and not standing.ids.untidy:
                standing.stage_removal(slot)
                self._lock.offer()
            else:
                with self._lock.alone():
                    self.index.remove_clauses(np.array(standing.rows_of(slot), np.int32))
                    standing.remove(slot)
            self._renew()

    def update_subscription(
        self, subscription: Subscription, *, at: Point | None = None, heading: float | None = None
    ) -> None:
        """Replace a subscription, or move one whose region is `Around`; raises UnknownIdError."""
        _check_type("subscription", subscription, Subscription)
        standing, where = self._standing, at_heading(at, heading)
        with self._lock.change():
            if self._move_plain(subscription, where):
                return
            slot = standing.ids.find(subscription.id)
            expires = FOREVER if subscription.expires is None else subscription.expires
            same = standing.expires.item(slot) == expires
            old = standing.rows_of(slot)
            with self.schema.attempt(self._lock.alone):
                known = self.schema.memory_bytes()
                clauses = encode_subscription(subscription, self.schema, self.space, where)
                if self.max_bytes is not None:
                    more = room.clause_bytes(clauses) - room.stored_bytes(standing.store, old)
                    learnt = self.schema.memory_bytes() - known
                    coming = {"clauses": len(clauses), "wordless": room.wordless(clauses)}
                    self._check_room(more, learnt=learnt, leaving=len(old), **coming)
            if same and self._can_stage(1, (old, clauses)):
                standing.stage_other(slot, clauses[0])
                self._lock.offer()
            else:
                with self._lock.alone():
                    self.index.remove_clauses(np.array(standing.rows_of(slot), np.int32))
                    standing.remove(slot)
                    rows = standing.add(subscription.id, subscription.expires, clauses)
                    self.index.add_clauses(rows)
            self._renew()

    def move_box(self, subscription: Subscription, box: Bounds) -> bool:
        """`update_subscription` of one that has no region, as if it had this box.

        In a third of the time; False if it takes more than that, and then nothing is done.
        """
        with self._lock.change():
            plain = self._plain(subscription, None)
            place = plain_place(Box(*box), self.space, None)
            if plain is None or place is None or subscription.region is not None:
                return False
            return self._move_to(subscription.id, subscription.expires, (plain[0], place))

    # -- event matching --------------------------------------------------------

    def match_event(self, event: Event, now: Time | None = None) -> list[str]:
        """The ids of the subscriptions that want this event, sorted.

        `now` is the moment that a subscription must not have expired at, by default the
        event's own `end`; with neither, nothing has expired.
        """
        return self._match_one(event, now, new_counters())

    def match_report(self, event: Event, now: Time | None = None) -> tuple[list[str], MatchReport]:
        """`match_event` with a count of the work it was."""
        counters = new_counters()
        return self._match_one(event, now, counters), MatchReport.of(counters)

    def _match_one(self, event: Event, now: Time | None, counters: Counters) -> list[str]:
        self._require_subscriptions()
        _check_type("event", event, Event)
        moment = event.end if now is None else to_micros(now, "now")
        limit = NEVER if moment is None else moment
        with self._reading(self.entry.subscriptions):
            return self._standing.ids.sorted_ids(self._slots_for(event, limit, counters))

    def _slots_for(self, event: Event, now: int, counters: Counters) -> npt.NDArray[np.int32]:
        """The slots of those who want an event, each once; within `_reading`."""
        encoded = encode_event(event, self.schema, self.space, intern=False)
        batch = batch_of_one(encoded, len(self.schema.columns))
        rows = self.index.match_event(batch, 0, counters)
        if self._undecided:
            pairs = (np.zeros(rows.size, np.int32), rows)
            rows = self._verified(pairs, batch, np.array([now], np.int64), [event])[1]
        if isinstance(event.location, Box | Polygon):
            more = self._extended_rows(encoded, event, now, counters)
            rows = np.concatenate([rows, more])
        slots: npt.NDArray[np.int32] = self._standing.slots_of(rows)
        return slots if self._standing.one_row_each else np.unique(slots)

    def match_events(self, events: Events, now: Time | None = None) -> Any:
        """Pairs (event_id, subscription_id) for many events, as an Arrow table.

        Takes `Event` objects or an Arrow table of them. `now` applies to all of them, by
        default each event's own `end`.
        """
        import pyarrow as pa

        draft, event_numbers, _, ids = self._match_all(events, now, arrow=True)
        event_ids = draft.ids.take(pa.array(event_numbers))
        return pa.table({"event_id": event_ids, "subscription_id": ids})

    def match_numbers(
        self, events: Events, now: Time | None = None
    ) -> tuple[npt.NDArray[np.int32], list[str]]:
        """The pairs of `match_events` as numbers of events, counted from 0, and subscription ids.

        For callers that keep the events: ids of events need not be unique.
        """
        _, event_numbers, _, ids = self._match_all(events, now, arrow=False)
        return event_numbers, ids

    def match_pairs(
        self, events: Events, now: Time | None = None
    ) -> tuple[npt.NDArray[np.int32], Any]:
        """`match_numbers` with the ids as an Arrow array: no object a pair."""
        _, event_numbers, _, ids = self._match_all(events, now, arrow=True)
        return event_numbers, ids

    # Slots are numbers that stand for subscriptions while these are there: small ones, so that a
    # caller who keeps something with each subscription finds it without its id.

    def slot_of(self, subscription_id: str) -> int:
        """The slot of a subscription; raises UnknownIdError. It changes when it is updated."""
        with self._lock.read():
            return self._standing.ids.find(subscription_id)

    def id_of(self, slot: int) -> str:
        """The subscription in a slot."""
        with self._lock.read():
            return self._standing.ids.id_of(slot)

    def match_slots(self, event: Event, now: int) -> list[int]:
        """`match_event` as slots, in any order."""
        self._require_subscriptions()
        with self._reading(self.entry.subscriptions):
            found: list[int] = self._slots_for(event, now, new_counters()).tolist()
            return found

    def match_each(
        self, events: Sequence[Event], moments: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[list[int], list[int]]:
        """`match_slots` of each of many events at a moment of its own: how many, and all slots."""
        self._require_subscriptions()
        nows = np.asarray(moments, np.int64)
        with self._reading(self.entry.subscriptions):
            if len(events) <= _SINGLY:
                several = [
                    self._slots_for(event, now, new_counters())
                    for event, now in zip(events, nows.tolist(), strict=True)
                ]
                counts = np.array([each.size for each in several], np.int64)
                slots = np.concatenate([_NO_ROWS, *several])
            else:
                counts, slots = self._slots_of_each(events, nows)
            return counts.tolist(), slots.tolist()

    def _slots_of_each(
        self, events: Sequence[Event], nows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """(how many want each event, their slots); within `_reading`."""
        batch = encode_list(events, self.schema, self.space, intern=False)
        pairs = self._parallel(batch, nows, events)
        if not _NO_EXTENT.issuperset(map(type, map(_location, events))):
            for at, event in enumerate(events):
                if isinstance(event.location, Box | Polygon):
                    encoded = encoded_row(batch, at)
                    found = self._extended_rows(encoded, event, int(nows[at]), new_counters())
                    pairs = _joined(pairs, (np.full(found.size, at, np.int32), found))
        numbers, slots = self._owners(pairs)
        if bool((numbers[1:] < numbers[:-1]).any()):
            order = np.argsort(numbers, kind="stable")
            numbers, slots = numbers[order], slots[order]
        return np.bincount(numbers, minlength=len(events)), slots

    def _match_all(self, events: Events, now: Time | None, *, arrow: bool) -> tuple[Any, ...]:
        self._require_subscriptions()
        moment = None if now is None else to_micros(now, "now")
        given = bulk.listed(events, Event)
        with self._reading(self.entry.subscriptions):
            draft = bulk.encode_events(given, self.schema, self.space, intern=False)
            nows = draft.ends if moment is None else np.full(draft.size, moment, np.int64)
            pairs = self._parallel(draft.batch, nows, draft.view)
            for at, event, encoded in draft.extended:
                found = self._extended_rows(encoded, event, int(nows[at]), new_counters())
                pairs = _joined(pairs, (np.full(found.size, at, np.int32), found))
            event_numbers, slots = self._owners(pairs)
            known = self._standing.ids
            ids = known.arrow(slots, self._threads) if arrow else known.ids_of(slots)
            return draft, event_numbers, slots, ids

    def _parallel(
        self, batch: EventBatch, nows: npt.NDArray[np.int64], view: Sequence[Event]
    ) -> Pairs:
        """Match and verify a batch, cut into one piece a thread."""
        rebuilds = _rebuilds(self.index)
        found = None if rebuilds is None else rebuilds.join(batch, self._threads)
        if found is not None:
            return self._verified(found, batch, nows, view)
        capable = self.entry.subscriptions is not None and self.entry.subscriptions.threads
        threads = self._threads if capable and batch.size >= _SPLIT else 1

        def work(first: int, stop: int) -> Pairs:
            part = batch._replace(
                start=batch.start[first : stop + 1], word_start=batch.word_start[first : stop + 1]
            )
            found = self.index.match_events(part, new_counters())
            kept = self._verified(found, part, nows[first:stop], view[first:stop])
            return kept[0] + np.int32(first), kept[1]

        cuts = [batch.size * i // threads for i in range(threads + 1)]
        if threads == 1:
            return work(0, batch.size)
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(work, cuts[:-1], cuts[1:]))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    @property
    def _undecided(self) -> bool:
        """Whether there is anything about subscriptions that the index does not decide."""
        capabilities = self.entry.subscriptions
        assert capabilities is not None
        standing = self._standing
        return standing.expiring or standing.store.has_extras or not capabilities.exact

    def _verified(
        self,
        pairs: Pairs,
        batch: EventBatch,
        nows: npt.NDArray[np.int64],
        view: Sequence[Event],
    ) -> Pairs:
        """The pairs that hold in what the index does not decide."""
        events, rows = pairs
        capabilities = self.entry.subscriptions
        assert capabilities is not None
        store = self._standing.store
        if rows.size == 0 or not self._undecided:
            return events, rows
        if capabilities.exact and not store.has_extras:  # who has them put off keeps them so
            slots = self._standing.slots_of(rows)
            kept = self._standing.expires[slots] > nows[events]
            return events[kept], rows[kept]
        if not capabilities.exact:
            events, rows = _rechecked(store.table, batch, events, rows)
        count = verify.keep_pairs(
            store.table, batch, events, rows, nows, self._standing.expires,
            self.space == "globe", not capabilities.words,
        )  # fmt: skip
        events, rows = events[:count], rows[:count]
        if not store.residuals:
            return events, rows
        keep = np.ones(count, bool)
        for i in np.flatnonzero(store.table.extra[rows] >= 0).tolist():
            residuals = store.residuals.get(int(rows[i]))
            if residuals is not None:
                event = view[int(events[i])]
                keep[i] = residuals_hold(residuals, event, self._place(event))
        return events[keep], rows[keep]

    def _place(self, event: Event) -> Place | None:
        if event.location is None:
            return None
        return Place(shape_floats(event.location), self.space == "globe")

    def _extended_rows(
        self, encoded: EncodedEvent, event: Event, now: int, counters: Counters
    ) -> Rows:
        """Rows with a region that an event with an extended location satisfies."""
        location = event.location
        assert isinstance(location, Box | Polygon)
        capabilities = self.entry.subscriptions
        if capabilities is not None and capabilities.boxes and capabilities.words:
            rows = self._boxed_rows(encoded, location, counters)
        else:
            rows = self._rows_near(encoded, location)
        return self._meeting(rows, event, now)

    def _rows_near(self, encoded: EncodedEvent, location: Box | Polygon) -> Rows:
        """Rows near a place, found by the side tree, that hold in everything else.

        It sees every row of the store: no change is staged for an index that needs it.
        """
        standing = self._standing
        near = standing.tree.near(search_boxes(location, self.space))
        table = standing.store.table  # as it is now: others may have added what was found
        found: Rows = near[: verify.keep_elsewhere(table, near, *encoded)]
        return found

    def _boxed_rows(
        self, encoded: EncodedEvent, location: Box | Polygon, counters: Counters
    ) -> Rows:
        """The same by an index that knows boxes."""
        batch = batch_of_one(encoded, len(self.schema.columns))
        has_shapes = self._standing.store.has_shapes
        wide = search_boxes(location, self.space) if has_shapes else []
        counters[3:] = 0  # a cost model's numbers are to be those of the box
        left = None if self.max_bytes is None else self.max_bytes - self._memory()["total"]
        parts = [
            self.index.match_boxes(batch, np.array([box]), counters, left)[1]
            for box in dict.fromkeys(index_boxes(location, self.space) + wide)
        ]
        rows: Rows = np.unique(np.concatenate(parts))
        return rows

    def _meeting(self, rows: Rows, event: Event, now: int) -> Rows:
        """Those of the rows whose region meets the event's place; shapes and residuals hold."""
        location = event.location
        assert isinstance(location, Box | Polygon)
        standing, store = self._standing, self._standing.store
        rows = rows[standing.expires[store.table.owner[rows]] > now]
        rows, boxes = store.placed(rows)
        plain = store.plain(rows) if isinstance(location, Box) else np.zeros(rows.size, bool)
        meets = np.zeros(rows.size, bool)
        for xmin, ymin, xmax, ymax in index_boxes(location, self.space):
            meets |= (
                (boxes[:, 0] <= xmax)
                & (boxes[:, 2] >= xmin)
                & ((boxes[:, 1] <= ymax) & (boxes[:, 3] >= ymin))
            )
        place = self._place(event)
        assert place is not None
        for i in np.flatnonzero(~plain).tolist():
            row, box = int(rows[i]), tuple(boxes[i].tolist())
            meets[i] = self._regions_meet(row, box, place) and residuals_hold(
                store.residuals.get(row, ()), event, place
            )
        found: Rows = rows[meets]
        return found

    def _regions_meet(self, row: int, box: tuple[float, float, float, float], place: Place) -> bool:
        """Whether a place meets every region of a row; the box is the region if it has no shape."""
        shapes = self._standing.store.shapes(row) or [(2, np.array(box))]
        return all(shape_meets(kind, floats, place) for kind, floats in shapes)

    def _owners(self, pairs: Pairs) -> Pairs:
        """(event numbers, subscription slots), each pair once."""
        events, rows = pairs
        if self._standing.one_row_each:
            return events, self._standing.slots_of(rows)
        if events.size and bool((np.diff(events) < 0).any()):
            order = np.argsort(events, kind="stable")
            events, rows = events[order], rows[order]
        found: Pairs = verify.unique_owners(self._standing.store.table.owner, events, rows)
        return found

    # -- live events -----------------------------------------------------------

    def add_events(self, events: Events) -> None:
        """Make events live, all or none of them.

        An id is taken while its event is live: one that has expired, as far as time has come in
        `match_subscription` and `expire`, makes room.
        """
        if self.entry.events is None:
            registry.require(self.entry.name, events=True)
        given = bulk.listed(events, Event)
        if self._coming:
            self._receive()
        with self._changing():
            self._add_live(given)

    def await_events(self, coming: Waiting) -> None:
        """Take events from `coming` when somebody looks, as `add_events` would.

        For a caller who has checked them: events at places that the space has, under ids that
        no live event has. Many that come together take a quarter of the time of one by one, and
        those that go before anybody looks none at all.
        """
        self._coming = coming

    def staged(self, count: int) -> None:
        """So many are coming: they are entered if that is too many to wait for somebody."""
        if count >= self._most_coming:
            self._receive()
            self._most_coming = min(2 * self._most_coming, _MOST_COMING)

    def _receive(self) -> None:
        """Enter the events that are coming."""
        with self._changing():
            if self._coming:  # nobody else has done it meanwhile
                self._add_live(self._coming.events())
                self._coming.heard()

    def _add_live(self, given: Any) -> None:
        """Enter events; within `_changing`."""
        if isinstance(given, list) and len(given) <= _SINGLY and self.max_bytes is None:
            encoded = bulk.encode_each(given, self.schema, self.space, intern=True)
            self._add_singly(given, encoded)
            return
        draft = bulk.encode_events(given, self.schema, self.space, intern=True)
        self._check_room(draft.bytes_needed(), events=draft.size)
        if draft.extended:
            self._add_singly(draft.view, draft.encoded())
            return
        slots = self._new_slots(*draft.id_bytes())
        self._enter_events(self._live.add_many(slots, draft.batch, draft.expires))

    def _new_slots(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.int32]:
        """Slots for the ids of new events."""
        try:
            return self._live.ids.add_many(offsets, data)
        except BatchError:
            if not self._expire_events():  # who has the id may have expired
                raise
            return self._live.ids.add_many(offsets, data)

    def _add_singly(self, events: Sequence[Event], encoded: Iterable[EncodedEvent]) -> None:
        self._check_new_ids([event.id for event in events])
        rows = [self._live.add(*each) for each in zip(events, encoded, strict=True)]
        self._enter_events(np.array(rows, np.int32))

    def _enter_events(self, rows: Rows) -> None:
        """Give the index new rows of events; they go again if that is too much."""
        self.index.add_events(rows)
        overfull = self._overfull()
        if overfull is not None:
            self.index.remove_events(rows)
            for slot in self._live.slots_of(rows).tolist():
                self._live.remove(slot)
            raise overfull

    def _check_new_ids(self, ids: list[str]) -> None:
        seen: set[str] = set()
        over: list[int] = []
        for i, id in enumerate(ids):
            slot = self._live.ids.get(id)
            if slot >= 0 and self._live.expired(slot):
                over.append(slot)
                slot = -1
            if id in seen or slot >= 0:
                raise BatchError(i, DuplicateIdError("event", id, "remove it first"))
            seen.add(id)
        self._drop_events(over)

    def remove_event(self, id: str) -> None:
        """Forget a live event; raises UnknownIdError."""
        with self._lock.write():
            self._drop_events([self._live.ids.find(id)])

    def remove_events(self, ids: Iterable[str]) -> None:
        """Forget many live events; those that are not there are passed over."""
        with self._lock.write():
            slots = [slot for slot in map(self._live.ids.get, ids) if slot >= 0]
            self._drop_events([*dict.fromkeys(slots)])

    def _drop_events(self, slots: Sequence[int]) -> None:
        """Forget events in the index and beside it."""
        if slots:
            rows = [self._live.row_of(slot) for slot in slots]
            self.index.remove_events(np.array(rows, np.int32))
            for slot in slots:
                self._live.remove(slot)

    def _expire_events(self) -> list[str]:
        """Forget the events that have expired, as far as time has come; their ids, sorted."""
        store = self._live.store
        rows = store.live_rows()
        slots = store.table.slot[rows[store.table.expires[rows] <= self._live.now]]
        ids = self._live.ids.sorted_ids(slots)
        self._drop_events(slots.tolist())
        return ids

    def match_subscription(
        self, subscription: Subscription, now: Time | None = None, *, at: Point | None = None,
        heading: float | None = None,
    ) -> list[str]:  # fmt: skip
        """The ids of the live events this subscription wants, sorted.

        `at` says where the subscriber of an `Around` is, `heading` how its shape is turned.
        An event is live while `now < expires`. Time does not go back: an earlier `now` than one
        given before, or none, counts as that; before the first, nothing has expired.
        """
        with self._reading(self.entry.events):
            rows = self._live_rows(subscription, now, at_heading(at, heading))
            return self._live.ids.sorted_ids(self._live.slots_of(rows))

    def match_spots(
        self, subscription: Subscription, now: Time | None = None, *, at: Point | None = None,
        heading: float | None = None,
    ) -> Spots:  # fmt: skip
        """Where the live events are that this subscription wants, those with a place.

        For who asks often and needs few of the ids: `event_ids` makes them.
        """
        with self._reading(self.entry.events):
            return self._live.spots(self._live_rows(subscription, now, at_heading(at, heading)))

    def spots_within(self, sought: Sought, circle: Circle, now: int) -> Spots:
        """`match_spots` of a subscription with a circle for its region.

        In a third of the time where its filter is nothing but intervals.
        """
        with self._reading(self.entry.events):
            capabilities, live, schema = self.entry.events, self._live, self.schema
            exact = capabilities is not None and capabilities.exact
            if exact and not live.extended and not hasattr(self.index, "dropped"):
                clause = sought.clause(circle, schema, self.space)
                if clause is not None:
                    moment, rows, expires = live.at(now), _NO_ROWS, sought.subscription.expires
                    if expires is None or expires > moment:
                        rows = sought.rows(self.index, clause, moment)
                    return live.spots_within(rows, circle, moment, self.space)
            rows = self._live_rows(sought.at(circle), now, None)
            return live.spots(rows)

    def event_ids(self, numbers: npt.NDArray[np.int32]) -> list[str]:
        """The ids of live events by the numbers in `Spots`, as long as none was removed."""
        with self._reading(self.entry.events):
            return self._live.ids.ids_of(numbers)

    def _live_rows(self, subscription: Subscription, now: Time | None, at: Whereabouts) -> Rows:
        """The rows of the events that a subscription wants; within a reading."""
        if self.entry.events is None:
            registry.require(self.entry.name, events=True)
        _check_type("subscription", subscription, Subscription)
        moment = NEVER if now is None else to_micros(now, "now")
        rows = self._wanted_rows(subscription, at, self._live.at(moment))
        if hasattr(self.index, "dropped"):  # it is matched alone, so this is a change, too
            dropped = cast("DroppingIndex", self.index).dropped()
            for slot in self._live.slots_of(dropped).tolist():
                self._live.remove(slot)
        return rows

    def _wanted_rows(self, subscription: Subscription, at: Whereabouts, now: int) -> Rows:
        """The event rows that a subscription wants."""
        capabilities = self.entry.events
        assert capabilities is not None
        if capabilities.exact and not self._live.extended:
            query = plain_query(subscription, self.schema, self.space)
            if query is not None:  # half of the time around the index
                rows: Rows = _NO_ROWS
                if subscription.expires is None or subscription.expires > now:
                    rows = self.index.match_clause(query, 0, now, new_counters())
                    if query.shape.size:
                        live, globe = self._live.store.table, self.space == "globe"
                        rows = rows[: verify.keep_events(query, 0, live, rows, now, globe, False)]
                return rows
        clauses = encode_subscription(subscription, self.schema, self.space, at, intern=False)
        if not clauses or (subscription.expires is not None and subscription.expires <= now):
            return _NO_ROWS
        store = ClauseStore()
        found = [self._events_of(store, store.append(0, *clause), now) for clause in clauses]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def _events_of(self, query: ClauseStore, row: int, now: int) -> Rows:
        """The event rows that one clause row wants."""
        capabilities = self.entry.events
        assert capabilities is not None
        live, table = self._live.store.table, query.table
        candidates = self.index.match_clause(table, row, now, new_counters())
        count = candidates.size
        if table.extra[row] >= 0 or not capabilities.exact:
            count = verify.keep_events(
                table, row, live, candidates, now, self.space == "globe", not capabilities.words
            )
        found: Rows = candidates[:count]
        residuals = query.residuals.get(row)
        if residuals:
            kept = [e for e in found.tolist() if self._event_passes(residuals, e)]
            found = np.array(kept, np.int32)
        if self._live.extended:
            box = query.box(row)
            if box is not None:
                more = self._extended_events(query, row, box, now)
                found = np.concatenate([found, np.array(more, np.int32)])
        return found

    def _event_passes(self, residuals: tuple[Any, ...], row: int) -> bool:
        event = self._live.event(row)
        return residuals_hold(residuals, event, self._place(event))

    def _extended_events(
        self, query: ClauseStore, row: int, box: tuple[float, float, float, float], now: int
    ) -> list[int]:
        live, table = self._live.store.table, query.table
        shapes = query.shapes(row) or [(2, np.array(box))]
        residuals = query.residuals.get(row, ())
        found = []
        for e in self._live.tree.near([box]).tolist():
            location = self._live.extended.get(e)
            if location is None or live.expires[e] <= now:
                continue
            e0, w0 = int(live.start[e]), int(live.word_start[e])
            e1, w1 = e0 + int(live.count[e]), w0 + int(live.word_count[e])
            if not verify.holds_elsewhere(
                table, row, live.attr, live.value, e0, e1, live.word, w0, w1
            ):
                continue
            place = Place(shape_floats(location), self.space == "globe")
            if all(shape_meets(kind, floats, place) for kind, floats in shapes) and (
                not residuals or self._event_passes(residuals, e)
            ):
                found.append(e)
        return found

    # -- expiry ----------------------------------------------------------------

    def expire(self, now: Time) -> tuple[list[str], list[str]]:
        """Remove what has expired at `now`; returns ids of subscriptions and of events, sorted.

        Events that a match has dropped before, as `mo-tree` does, are not among them.
        """
        moment = to_micros(now, "now")
        if self._coming:
            self._receive()
        with self._lock.write():
            standing = self._standing
            standing.recycle()
            used = standing.expires[: standing.ids.slots]
            due = used <= moment
            due[standing.ids.free_slots()] = False
            over = np.flatnonzero(due).astype(np.int32)
            subscriptions = standing.ids.sorted_ids(over)
            rows = [row for slot in over.tolist() for row in standing.rows_of(slot)]
            if rows:
                self.index.remove_clauses(np.array(rows, np.int32))
            for slot in over.tolist():
                standing.remove(slot)
            self._live.at(moment)
            events = self._expire_events()
        return subscriptions, events

    # -- looking inside --------------------------------------------------------

    def explain(self, subscription_id: str, event: Event, now: Time | None = None) -> Explanation:
        """Which clause and predicate decided, readable with `str`."""
        _check_type("event", event, Event)
        if event.location is not None:
            check_space(event.location, self.space, "location")
        moment = event.end if now is None else to_micros(now, "now")
        with self._lock.read():
            slot = self._standing.ids.find(subscription_id)
            expires = int(self._standing.expires[slot])
            return explain(
                subscription_id,
                event,
                self._standing.store,
                self._standing.rows_of(slot),
                self.schema,
                self.space,
                None if expires == FOREVER else expires,
                moment,
            )

    def asked(self) -> tuple[frozenset[str], bool]:
        """(names of the attributes that any subscription asks for, whether any asks for words).

        What stands beside these in an event cannot change an answer. Names of subscriptions
        that have been removed may still be among them.
        """
        with self._lock.read():
            tests = [t for many in [*self._standing.store.residuals.values()] for t in many]
            names = {name for name, _ in self.schema.columns[2:]}
            names |= {t.attribute for t in tests if hasattr(t, "attribute")}
            words = bool(self.schema.words) or any(not hasattr(t, "attribute") for t in tests)
        return frozenset(names), words

    def memory(self) -> dict[str, int]:
        """Bytes by part: clauses, regions, ids, index, events, schema, and their total."""
        with self._lock.read():
            return self._memory()

    def _memory(self) -> dict[str, int]:
        parts = self._standing.memory()
        parts["index"] = int(self.index.memory_bytes())
        parts["events"] = self._live.memory_bytes()
        parts["schema"] = self.schema.memory_bytes()
        parts["total"] = sum(parts.values())
        return parts

    def _check_room(self, wanted: int, *, learnt: int = 0, **coming: int) -> None:
        """Refuse an addition of `wanted` bytes that would break `max_bytes`.

        It consists of so many rows (see `Coming`); `learnt` are the bytes by which the schema
        has grown for them.
        """
        if self.max_bytes is None or wanted + learnt <= 0:
            return
        rows = Coming(len(self.schema.columns), **coming)
        needed = room.foreseen(self._memory(), self.index, wanted, rows)
        if needed > self.max_bytes:
            raise room.full(needed, self.max_bytes)

    def _overfull(self, more: int = 0) -> CapacityError | None:
        """The error for what was added but took more than was foreseen."""
        if self.max_bytes is None:
            return None
        total = self._memory()["total"] + more
        return room.full(total, self.max_bytes) if total > self.max_bytes else None

    def check_invariants(self) -> None:
        """Raise AssertionError where stores or index contradict themselves. Slow; for tests."""
        if self._coming:
            self._receive()
        with self._lock.change():
            self._settle_all()
            self._standing.check_invariants()
            self._live.check_invariants()
            self.index.check_invariants()
            usage.check(self.schema, self._standing.store, self._live.store)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold off everybody; what the schema learnt is forgotten if the change is refused."""
        with self._lock.change():
            with self._lock.alone(), self.schema.attempt():
                yield
            self._renew()

    def _reading(self, side: Capabilities | None) -> Any:
        """Share the lock, unless a match on this side of the index changes something there.

        It may keep scratch space between calls, or drop what has expired.
        """
        if self._coming and side is self.entry.events:
            self._receive()
            self._most_coming = _FEW_COMING
        if side is not None and side.threads:
            return self._lock.read()
        return self._lock.write()


def _entered(
    ids: IdTable, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> tuple[IdTable, npt.NDArray[np.int32]]:
    """A table with more ids, and their slots."""
    return ids, ids.add_many(offsets, data)


def _rebuilds(index: object) -> RebuiltIndex | None:
    """The index if it can be built beside itself; asking the protocol would take 50 µs."""
    return cast("RebuiltIndex", index) if hasattr(index, "rebuilt") else None


def _check_positive(field: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ValidationError(field, value, "give a positive whole number, or None")


def _check_type(field: str, value: object, kind: type[Event] | type[Subscription]) -> None:
    if not isinstance(value, kind):
        article = "an" if kind is Event else "a"
        raise ValidationError(field, value, f"give {article} {kind.__name__}")


def _joined(first: Pairs, second: Pairs) -> Pairs:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def _rechecked(table: Any, batch: EventBatch, events: Rows, rows: Rows) -> Pairs:
    """The pairs of an approximate index that really hold."""
    count = verify.keep_true(table, batch, events, rows)
    return events[:count], rows[:count]
