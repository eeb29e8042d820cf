"""What is over lately: what comes once more is known for a repetition.

Events that have expired, and things that have told as much as they were to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TypeAlias

from nearcast.broker.contents import Contents, content_of, kept_contents
from nearcast.clock import NEVER, Micros
from nearcast.model.events import Event

__all__ = ["REMEMBERED", "REMEMBERED_FOR", "Past", "forget", "keep", "thing_key"]

#: How long after its expiry an event is remembered, in microseconds: an hour.
REMEMBERED_FOR: Micros = 3_600_000_000
#: How many are remembered at most, the latest of them.
REMEMBERED = 100_000

_TOGETHER = 512  # expired events that are kept as they are until their contents are
_THING = "\0thing\0"  # behind a NUL keys of events have another, or a number
_NOTHING: Mapping[str, tuple[bytes, Micros]] = MappingProxyType({})
_id, _key, _source = map(attrgetter, ("id", "key", "source"))
_first = itemgetter(0)

#: What a store knows of the past: by key, in the order of expiry, contents and until when.
Known: TypeAlias = OrderedDict[str, tuple[bytes, Micros]]


def thing_key(id: str) -> str:
    """The key of a subscription, fence or composite among those of events: none has it."""
    return _THING + id


def keep(known: Known, key: str, content: bytes, until: Micros) -> None:
    """An event has expired, says a store."""
    known.pop(key, None)
    known[key] = content, until
    while len(known) > REMEMBERED:
        known.popitem(last=False)


def forget(known: Known, now: Micros) -> None:
    """Time has come to `now`, says a store."""
    while known and next(iter(known.values()))[1] <= now:
        known.popitem(last=False)


class Past:
    """Keys and contents of expired events, for a time and up to a number. O(1) each way.

    The same as `keep` and `forget` of a store, with a number for each in the order of expiry:
    contents lie in chunks, where most digests are never made. Who expired last is kept as it was.
    """

    def __init__(self, known: Mapping[str, tuple[bytes, Micros]] = _NOTHING) -> None:
        self._load(known)

    def _load(self, known: Mapping[str, tuple[bytes, Micros]]) -> None:
        self._begin = 0
        """The number of the first that is kept."""
        self._keys: list[str] = [*known]
        self._untils: list[Micros] = [until for _, until in known.values()]
        self._gone = 0
        """How many of the first keys are forgotten, and not taken away yet."""
        self._numbers = {key: number for number, key in enumerate(known)}
        """By key, of the last event that had it; older ones are not remembered."""
        self._chunks: deque[tuple[int, Contents]] = deque()
        """Each behind the number of its first."""
        if known:
            self._chunks.append((0, [content for content, _ in known.values()]))
        self._fresh: list[Event | bytes] = []
        """Those that expired after them, or what they said."""
        self._things = any(key.startswith(_THING) for key in known)
        """Whether a thing may be remembered."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def keep(self, events: Sequence[Event], untils: Sequence[Micros]) -> None:
        """Events have expired, in this order, and are remembered until a moment each."""
        keys: list[str] = [*map(_id, events)]
        if any(map(_source, events)) or (keys and min(keys) < "\1"):
            keys = [*map(_key, events)]
        self._keep(keys, events, untils)

    def keep_contents(
        self, keys: Sequence[str], contents: Sequence[bytes], untils: Sequence[Micros]
    ) -> None:
        """The same where their contents are known."""
        self._keep(keys, contents, untils)

    def _keep(
        self, keys: Sequence[str], what: Sequence[Event | bytes], untils: Sequence[Micros]
    ) -> None:
        end = self._end
        self._numbers.update(zip(keys, range(end, end + len(keys)), strict=True))
        self._keys += keys
        self._untils += untils
        self._fresh += what
        if len(self._fresh) >= _TOGETHER:
            self._fold()
        while len(self._numbers) > REMEMBERED:
            self._drop(len(self._numbers) - REMEMBERED)
        if self._end - self._begin > _TOGETHER + 2 * len(self._numbers):  # most have had followers
            self._load(self.contents())

    def _fold(self) -> None:
        """Keep contents instead of the last ones."""
        fresh, self._fresh = self._fresh, []
        made: Contents
        if bytes in {*map(type, fresh)}:
            made = [each if isinstance(each, bytes) else content_of(each) for each in fresh]
        else:
            made = kept_contents(fresh)  # type: ignore[arg-type]
        self._chunks.append((self._end - len(fresh), made))

    def _drop(self, count: int) -> None:
        """Forget the first ones."""
        begin, end, first = self._begin, self._begin + count, self._gone
        if self._end - len(self._fresh) < end:
            self._fold()
        going = self._keys[first : first + count]
        self._gone += count
        if 8 * self._gone > len(self._keys):  # eight words are moved for each that goes
            del self._keys[: self._gone], self._untils[: self._gone]
            self._gone = 0
        numbers = self._numbers
        known = [*map(numbers.pop, going, repeat(NEVER))]
        if known != [*range(begin, end)]:  # some have had followers, which stay
            numbers.update((key, n) for key, n in zip(going, known, strict=True) if n >= end)
        self._begin = end
        chunks = self._chunks
        while chunks and chunks[0][0] + len(chunks[0][1]) <= self._begin:
            chunks.popleft()

    def _content(self, number: int) -> bytes:
        fresh = number - self._end + len(self._fresh)
        if fresh >= 0:
            found = self._fresh[fresh]
            return found if isinstance(found, bytes) else content_of(found)
        first, contents = self._chunks[bisect_right(self._chunks, number, key=_first) - 1]
        return contents[number - first]

    def holds(self, event: Event, now: Micros) -> bool:
        """Whether an equal event has expired, and is remembered."""
        number = self._known(event.key, now)
        return number is not None and self._content(number) == content_of(event)

    def _known(self, key: str, now: Micros) -> int | None:
        """The number of what is remembered under a key."""
        number = self._numbers.get(key)
        return None if number is None or self._until(number) <= now else number

    # -- things ------------------------------------------------------------------------

    def knows_thing(self, id: str) -> bool:
        """Whether a thing that had this id is remembered."""
        return self._things and thing_key(id) in self._numbers

    def keep_thing(self, id: str, content: bytes, until: Micros) -> None:
        """A thing has told as much as it was to."""
        self._things = True
        self._keep([thing_key(id)], [content], [until])

    def holds_thing(self, id: str, content: bytes, now: Micros) -> bool:
        """Whether a thing with this content is remembered."""
        number = self._known(thing_key(id), now)
        return number is not None and self._content(number) == content

    def drop_thing(self, id: str) -> None:
        """A thing is remembered no longer."""
        self._numbers.pop(thing_key(id), None)

    # -- what is forgotten -------------------------------------------------------------

    def forget(self, now: Micros) -> None:
        """Time has come to `now`."""
        first = self._begin
        while first < self._end and (self._until(first) <= now or self._is_old(first)):
            first += 1
        if first > self._begin:
            self._drop(first - self._begin)

    @property
    def _end(self) -> int:
        """The number of the next one."""
        return self._begin + len(self._keys) - self._gone

    def _until(self, number: int) -> Micros:
        return self._untils[number - self._begin + self._gone]

    def _is_old(self, number: int) -> bool:
        """Whether it was dropped, or has been followed by another under its key."""
        return self._numbers.get(self._keys[number - self._begin + self._gone]) != number

    def contents(self) -> dict[str, tuple[bytes, Micros]]:
        """What is remembered, in the order of expiry. O(n)."""
        return {
            key: (self._content(number), until)
            for number, (key, until) in enumerate(
                zip(self._keys[self._gone :], self._untils[self._gone :], strict=True), self._begin
            )
            if self._numbers.get(key) == number
        }
