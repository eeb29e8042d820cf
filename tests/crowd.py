"""Clients of one server, and what must be so however often that is killed in between.

Events do not expire here. So a subscription is told of every event that it matches, whichever
of the two came first, and what each subscriber is told in the end is known, although nobody
knows in which order the server took the calls. The numbers must be those of one sequence.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from nearcast import Around, Event, Notification, Point, Subscription
from nearcast.client import Client

__all__ = ["Crowd"]

_PATIENCE_S = 240.0
_PUBLISHERS = 2
_LOTS = 40
_HERE = Point(8.5, 47.4)
#: Who pulls; beside them there is one on the phone, who stands `_HERE`.
_PULLING = ("ann", "bob")
_PHONING = "mia"
#: Whose subscriptions come and go: what it is told is known only by its numbers.
_FICKLE = "tod"


class Promise(NamedTuple):
    """What had its answer at some moment."""

    published: frozenset[str]
    subscribed: frozenset[str]
    ended: frozenset[str]
    acknowledged: dict[str, int]


class Crowd:
    """Threads that work from `__enter__` on; `settle` ends that and compares everything."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._seed = seed
        self._lock = threading.Lock()
        self._enough, self._over = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._workers: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []
        self.published: dict[str, Event] = {}
        self.subscribed: dict[str, Subscription] = {}
        self.ended: set[str] = set()
        self.acknowledged: dict[str, int] = {}
        self.told: dict[str, list[tuple[str, str]]] = {}
        """Subscription and event of each notification, by subscriber, by number."""
        self._logged: set[str] = set()
        self._log_at = 0

    def __enter__(self) -> Self:
        with self._client() as client:
            for name in (*_PULLING, _PHONING):
                self._subscribe(client, Subscription(f"all-{name}", name, "kind < 2"))
            near = Subscription("near", _PHONING, region=Around(300))
            self._subscribe(client, near)
        for number in range(_PUBLISHERS):
            self._workers.append(self._thread(self._publish, number))
        self._workers.append(self._thread(self._change))
        for name in (*_PULLING, _FICKLE):
            self._readers.append(self._thread(self._pull, name))
        self._readers.append(self._thread(self._phone))
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._over.set()
        for thread in (*self._workers, *self._readers):
            thread.join(2 * _PATIENCE_S)

    def _client(self) -> Client:
        return Client(self._url, patience_s=_PATIENCE_S)

    def _thread(self, target: Callable[..., None], *of: object) -> threading.Thread:
        def run() -> None:
            try:
                target(*of)
            except BaseException as error:
                self._error = self._error or error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _sound(self) -> None:
        """Nobody has met anything that must not be."""
        if self._error is not None:
            raise AssertionError(f"somebody met {self._error!r}") from self._error

    # -- who works ---------------------------------------------------------------------

    def _publish(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        made = 0
        with self._client() as client:
            while not self._enough.is_set():
                batch = []
                for _ in range(rng.choice((1, 1, 1, 5))):
                    lot = rng.randrange(_LOTS)
                    place = rng.choice((_HERE, Point(-8.5, 47.4))) if lot < 8 else None
                    said = {"kind": rng.randrange(4), "lot": lot}
                    batch.append(Event(f"{number}-{made}", said, (), place))
                    made += 1
                if len(batch) == 1:
                    answer = client.publish(batch[0])
                else:
                    answer = client.publish_many(batch)
                assert answer.accepted + answer.repeated == len(batch)
                with self._lock:
                    self.published |= {event.id: event for event in batch}

    def _change(self) -> None:
        """Subscriptions that stay, up to some, and such that come and go."""
        rng = random.Random(f"{self._seed} change")
        made = 0
        with self._client() as client:
            while not self._enough.wait(0.05):
                made += 1
                where = f"lot = {rng.randrange(_LOTS)}"
                if len(self.subscribed) < 30:
                    name = rng.choice((*_PULLING, _PHONING))
                    self._subscribe(client, Subscription(f"s{made}", name, where))
                client.subscribe(Subscription(f"t{made}", _FICKLE, where))
                client.unsubscribe(f"t{made}")
                with self._lock:
                    self.ended.add(f"t{made}")

    def _subscribe(self, client: Client, one: Subscription) -> None:
        client.subscribe(one)
        with self._lock:
            self.subscribed[one.id] = one

    # -- who is told -------------------------------------------------------------------

    def _pull(self, name: str) -> None:
        rng = random.Random(f"{self._seed} {name}")
        with self._client() as client:
            after = 0
            while not self._over.is_set():
                page = client.page(name, after, 100, wait_s=0.5)
                assert page.lost == 0
                self._hear(name, page.notifications)
                after = page.next
                assert after == len(self.told.get(name, ()))
                if page.notifications and rng.random() < 0.5:
                    client.ack(name, after)
                    self._acknowledge(name, after)

    def _phone(self) -> None:
        rng = random.Random(f"{self._seed} phone")
        with self._client() as client, client.phone(_PHONING) as phone:
            phone.moved(_HERE)
            while not self._over.is_set():
                told = phone.told(0.3)
                if told is None:
                    phone.moved(_HERE)
                    continue
                assert told.lost == 0
                self._hear(_PHONING, [told])
                if rng.random() < 0.1:
                    told.ack()
                    assert told.seq is not None
                    self._acknowledge(_PHONING, told.seq)

    def _hear(self, name: str, notifications: Iterable[Notification]) -> None:
        """The next numbers, without a hole."""
        heard = self.told.setdefault(name, [])
        for told in notifications:
            assert told.subscriber == name
            assert told.seq == len(heard) + 1, f"{name}: {told.seq} after {len(heard)}"
            heard.append((told.subscription_id, told.event.id))

    def _acknowledge(self, name: str, upto: int) -> None:
        with self._lock:
            self.acknowledged[name] = upto

    # -- what must be ------------------------------------------------------------------

    def promised(self) -> Promise:
        """What has its answer now."""
        with self._lock:
            return Promise(
                frozenset(self.published), frozenset(self.subscribed), frozenset(self.ended),
                dict(self.acknowledged),
            )  # fmt: skip

    def check(self, promise: Promise) -> None:
        """The server has come back: everything that was answered is there."""
        self._sound()
        with self._client() as client:
            self._read_log(client, promise.published)
            assert promise.published <= self._logged
            answer = client._http.get("/subscriptions?limit=1000").json()
            there = {each["id"] for each in answer["subscriptions"]}
            assert promise.subscribed <= there
            assert not promise.ended & there
            for name, upto in promise.acknowledged.items():
                page = client.page(name, None, 1)
                first = page.notifications[0].seq if page.notifications else page.next + 1
                assert first is not None
                assert first > upto, f"{name} acknowledged {upto}"
        self._sound()

    def _read_log(self, client: Client, until: frozenset[str] | None = None) -> None:
        """Every event is there once, and offsets have no holes. To its end, or until some were
        there: while others publish as fast as it is read there is no end."""
        while until is None or not until <= self._logged:
            events, last = client.log(self._log_at)
            assert last == self._log_at + len(events)
            for event in events:
                assert event.id not in self._logged, f"{event.id} is there twice"
                self._logged.add(event.id)
            self._log_at = last
            if not events:
                return

    def settle(self, wait_s: float = _PATIENCE_S) -> int:
        """Nobody does more; when everybody has been told, all is compared. How many events."""
        self._enough.set()
        for thread in self._workers:
            thread.join(2 * _PATIENCE_S)
            assert not thread.is_alive()
        should = self._should()
        until = time.monotonic() + wait_s
        while time.monotonic() < until and self._error is None:
            if all(len(self.told.get(name, ())) >= len(pairs) for name, pairs in should.items()):
                break
            time.sleep(0.05)
        self.check(self.promised())
        with self._client() as client:
            self._read_log(client)
        assert self._logged == set(self.published)
        for name, pairs in should.items():
            heard = self.told[name]
            assert len(heard) == len(set(heard)), "something came under two numbers"
            assert set(heard) == pairs
            self._in_order(heard, f"all-{name}")
        fickle = self.told.get(_FICKLE, [])
        assert len(fickle) == len(set(fickle))
        return len(self.published)

    def _should(self) -> dict[str, set[tuple[str, str]]]:
        """By definition: every subscription with every event that it matches."""
        found: dict[str, set[tuple[str, str]]] = {name: set() for name in (*_PULLING, _PHONING)}
        for id, one in self.subscribed.items():
            assert one.subscriber is not None
            for event in self.published.values():
                if id == "near":
                    matches = event.location == _HERE
                elif id.startswith("all-"):
                    matches = event.attributes["kind"] in (0, 1)
                else:
                    matches = str(one.where) == f"lot = {event.attributes['lot']}"
                if matches:
                    found[one.subscriber].add((id, event.id))
        return found

    @staticmethod
    def _in_order(heard: list[tuple[str, str]], subscription: str) -> None:
        """What was there before all events hears of each publisher's as they were published."""
        last: dict[str, int] = {}
        for id, event in heard:
            if id == subscription:
                publisher, _, number = event.partition("-")
                assert last.get(publisher, -1) < int(number)
                last[publisher] = int(number)
