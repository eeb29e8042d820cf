"""What many calls come to that are made, written and told together: the same as one by one."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nearcast import Event, Subscription
from nearcast.broker.memory import MemoryStore
from nearcast.broker.replies import Notification, Reply
from nearcast.broker.service import Service
from nearcast.broker.wire import notification_to_json
from nearcast.mobility.safe_region import Ball, SafeRegion
from nearcast.server.core import Answer, Core, Turn, _Job, _made
from nearcast.server.events import Publishing
from nearcast.server.feeds import Feeds, Who
from nearcast.server.house import House
from nearcast.server.reader import Reader
from nearcast.server.settings import Settings
from nearcast.server.socket import Connection
from nearcast.server.wire import Texts
from nearcast.storage.keys import Keys
from nearcast.storage.sqlite import Database
from tests.served import client, feature, serving
from tests.test_broker_wire import told_by_all_kinds
from tests.test_server_streams import Talk, socket

NOW = 10**15


def made_broker() -> Service:
    broker = Service(store=MemoryStore(), clock=lambda: NOW)
    broker.subscribe_many(Subscription(f"s{n}", f"u{n % 3}", f"n < {10 * n}") for n in range(9))
    return broker


def request(rng: random.Random) -> Publishing:
    """Of events that are new, repeated, under an id that is taken, over, or too far ahead."""
    events = []
    for _ in range(rng.choice((1, 1, 1, 3))):
        id = rng.randrange(40)
        price = 30 * (id % 3) + (rng.random() < 0.1)
        end = rng.choice((None, NOW + 10**10)) if rng.random() < 0.05 else NOW - 5
        expires = (None, None, NOW - 1, NOW + 1)[id % 4]
        events.append(Event(f"e{id}", {"n": price}, end=end, expires=expires))
    return Publishing(events, rng.choice((None, None, None, "k")))


def outcome(answers: list[Any]) -> list[Any]:
    return [each.value if isinstance(each, Answer) else str(each) for each in answers]


def test_requests_made_together_are_as_one_by_one():
    rng = random.Random(5)
    joined = 0
    for _ in range(60):
        one, other = made_broker(), made_broker()
        for _ in range(3):
            said = [request(rng) for _ in range(rng.randrange(1, 6))]
            job: Any = [_Job("", each, 1, False, None) for each in said]  # type: ignore[arg-type]
            (together,) = one.together([lambda jobs=job, on=one: [*_made(on, jobs)]])  # type: ignore[misc]
            alone = other.together([lambda each=each, on=other: each(on) for each in said])  # type: ignore[misc]
            assert isinstance(together, list)
            assert outcome(together) == outcome(alone)
            told = [[n for a in each if isinstance(a, Answer) for r in a.replies for n in r]
                    for each in (together, alone)]  # fmt: skip
            assert told[0] == told[1]
            joined += sum(isinstance(a, Answer) and not a.replies for a in together) > 0
        for event in one.reading.events(None, NOW):
            assert one.reading.publisher(event[1]) == other.reading.publisher(event[1])
        assert [*one.log()] == [*other.log()]
    assert joined > 20


def test_the_text_of_a_notification_is_the_same_however_it_is_made():
    told = told_by_all_kinds()
    odd = [each._replace(subscription_id='"},"at":é', subscriber=None) for each in told]
    late = [each._replace(at=each.at + 7, seq=n) for n, each in enumerate(told)]
    texts = Texts()
    for each in [*told, *odd, *late, *told]:
        assert msgspec.json.decode(texts.of(each)) == msgspec.json.decode(
            msgspec.json.encode(notification_to_json(each))
        )


def test_a_table_hears_of_things_in_their_order(tmp_path: Path):
    """And a statement that looks at several of all that was said before it."""
    rng = random.Random(3)
    database = Database(tmp_path / "x.db")
    facts: dict[str, int] = {}
    for turn in range(40):
        for _ in range(rng.randrange(12)):
            name = rng.choice("abc")
            if rng.random() < 0.5:
                facts[name] = turn
                database.stage("INSERT OR REPLACE INTO facts VALUES (1, ?, ?)", (name, turn))
            elif rng.random() < 0.5:
                facts.pop(name, None)
                database.stage("DELETE FROM facts WHERE tenant = 1 AND name = ?", (name,))
            else:
                row = (1, "s", turn, "b", b"")
                database.stage(
                    "INSERT OR REPLACE INTO saved VALUES (?, ?, ?, ?)", row[:2] + row[2:3] + row[4:]
                )
        copied = "INSERT OR REPLACE INTO facts SELECT 2, name, value FROM facts WHERE tenant = ?"
        database.stage("DELETE FROM facts WHERE tenant = 2", ())
        database.stage(copied, (1,))
        database.stage("INSERT OR REPLACE INTO facts VALUES (1, 'z', ?)", (turn,))
        database.flush()
        for tenant, more in ((1, {"z": turn}), (2, {})):
            found = database.rows("SELECT name, value FROM facts WHERE tenant = ?", (tenant,))
            assert dict(found) == facts | more
        facts["z"] = turn
    keys = Keys(database)
    assert keys.find(keys.create("admin", NOW, tenant="new")) is not None


def test_a_slow_turn_is_soon_forgotten():
    """One that had to compile, or waited for the disk, says nothing of those to come."""

    async def run() -> None:
        core = Core(House(Settings(store="memory:"), None), released=lambda _: None,
                    failed=lambda _: None)  # fmt: skip
        core.why, core._loop = None, asyncio.get_running_loop()

        def turn(calls: int, seconds: float) -> None:
            futures = [core.submit("", lambda _: Answer(None)) for _ in range(calls)]
            jobs = [core._queue.get_nowait() for _ in range(calls)]
            done = [(job, Answer(None)) for job in jobs if job is not None]
            core._release(Turn(done, calling_s=seconds, committing_s=1e-3))
            assert all(future.done() for future in futures)

        turn(100, 40.0)
        assert core._unit_s > 0.05
        for _ in range(12):
            turn(1, 0.0005)
        assert core._unit_s < 0.001

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 60, 300, 70_000])
def test_a_frame_of_any_length_comes_whole(tmp_path: Path, size: int):
    with serving(tmp_path / "f.db") as server, client(server) as http, socket(server) as end:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        talk = Talk(end)
        talk.say("hello", subscriber="ann", after=0)
        talk.hear("welcome")
        for n in range(3):
            assert http.post("/v1/events", json=feature(f"e{n}", text="x" * size)).is_success
            (told,) = talk.hear("notifications")["notifications"]
            assert told["event"]["data"]["properties"]["text"] == "x" * size
            assert told["seq"] == n + 1
        talk.done("ping")


def test_who_is_told_goes_before_who_only_gets_a_region():
    feeds, order = Feeds(1000), list[str]()
    listeners = {name: feeds.listen(Who("", name)) for name in ("a", "b", "c", "d")}

    def takes(name: str) -> bool:
        order.append(name)
        return True

    for name, listener in listeners.items():
        listener.takes = partial(takes, name)
    region = SafeRegion(3, Ball("planar", 0.0, 0.0, 5.0))
    told = Notification("s", "c", Event("e"), NOW, seq=1)
    feeds.release([
        ("", Reply((), {"a": region})), ("", Reply((), {"b": region}, {"d": 7})),
        ("", Reply([told], {"c": region})),
    ])  # fmt: skip
    assert order == ["d", "c", "a", "b"]
    assert [each.region for each in listeners.values()] == [region, region, region, None]
    assert listeners["d"].request == 7
    assert feeds.asked(Who("", "d")) == 7


class _Line:
    """A line that takes some frames, then none for a while."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.room = 0

    def say(self, text: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.taken.append(msgspec.json.decode(text))
        return True


@pytest.mark.parametrize("room", range(4))
def test_what_a_full_line_does_not_take_is_kept(room: int):
    """Of a notification, a region and a request as many as fit go at once, the rest later."""
    with serving() as running:
        feeds, line = Feeds(1000), _Line()
        desk = running.desk
        reader = Reader(desk, Who("", "ann"), 0, "websocket")
        reader._listener.feed = feeds.listen(Who("", "ann")).feed
        reader._behind, reader._idle = False, True
        on = Connection(desk, None, None)  # type: ignore[arg-type]
        reader._listener.feed.take(1, b"{}")
        region = SafeRegion(3, Ball("planar", 0.0, 0.0, 5.0))
        reader._listener.region, reader._listener.request = region, 4
        line.room = room
        assert on._takes(reader, line.say) == (room == 3)
        line.room = 3
        assert on._takes(reader, line.say)
        assert [each["type"] for each in line.taken] == ["notifications", "region", "request"]
        assert not reader.moves
