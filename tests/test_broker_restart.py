"""Patterns and fences over restarts: the history is that of a broker that never stopped."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from nearcast import Around, Box, Broker, Circle, Composite, Event, Fence, Point, Subscription
from nearcast.broker import service
from nearcast.broker.memory import MemoryStore
from nearcast.errors import DuplicateIdError, StoreError, UnknownIdError
from tests.stores import EVERY_STORE, STORES, Opener

S = 1_000_000
PATTERNS = (
    "=|(ARITH: a = 1; 60)(ARITH: a = 2)",
    "!(ARITH: a = 1; PT20S)(ARITH: a = 3)",
    "Q(3)(ARITH: a > 1)",
    "P(PT10S)(ARITH: a = 1)",
    "=|(STRING: composite = \"c0\"; 90)(ARITH: a = 2)",
    "!(STRING: composite = \"c1\"; PT15S)(STRING: composite = \"c0\")",
)  # fmt: skip
MODES = ("first-matching", "chronicle", "recent", "continuous", "cumulative")


def calls(seed: int, length: int) -> list[tuple[str, tuple[Any, ...]]]:
    rng = random.Random(seed)
    made: list[tuple[str, tuple[Any, ...]]] = []
    now = 0
    if rng.random() < 0.5:  # patterns that come before there is a time
        made.append(("detect", (Composite("c0", "ops", PATTERNS[0]),)))
    made.append(("subscribe", (Subscription("s1", "ann", "composite = 'c0' OR a = 3"),)))
    for step in range(length):
        now += rng.choice((0, 0, 1, 3, 11)) * S
        dice = rng.random()
        if dice < 0.7:
            end = rng.choice((None, now, now, max(0, now - 2 * S)))
            start = None if end is None or rng.random() < 0.6 else max(0, end - 3 * S)
            made.append(("publish", (Event(
                f"e{step}", {"a": rng.choice((1, 2, 3))}, (), Point(rng.randrange(3), 0),
                start=start, end=end, expires=rng.choice((None, now + 4 * S)),
            ),)))  # fmt: skip
        elif dice < 0.82:
            made.append(("advance", (now,)))
        elif dice < 0.94:
            text, mode = rng.choice(PATTERNS), rng.choice(MODES)
            until = rng.choice((None, None, now, now + 7 * S, now + 30 * S))
            id = f"c{rng.randrange(3)}"
            made.append(("detect", (Composite(id, "ops", text, mode, expires=until),)))  # type: ignore[arg-type]
        else:
            made.append(("unsubscribe", (rng.choice(("c0", "c1", "c2")),)))
    return made


def answer(broker: Broker, call: tuple[str, tuple[Any, ...]]) -> Any:
    verb, given = call
    try:
        return [(t.subscription_id, t.event, t.at, t.seq) for t in getattr(broker, verb)(*given)]
    except (UnknownIdError, DuplicateIdError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("store", EVERY_STORE)
def test_a_restart_is_not_noticed(
    tmp_path: Path, store: str, seed: int, monkeypatch: pytest.MonkeyPatch
):
    rng = random.Random(seed)
    monkeypatch.setattr(service, "_FEW_INPUTS", rng.choice((0, 3, 10, 5000)))
    settings: dict[str, Any] = rng.choice(
        ({}, {"lateness": 3}, {"composite_life": 5}, {"composite_life": 0})
    )
    opener = STORES[store](tmp_path)
    steady = Broker("planar", store=MemoryStore(), **settings)
    broker = Broker("planar", store=opener(), **settings)
    for call in calls(seed, 70):
        assert answer(broker, call) == answer(steady, call), call
        if rng.random() < 0.3:
            broker.close()
            broker = Broker("planar", store=opener(), **settings)
            broker.check_invariants()
    assert broker.late == steady.late
    broker.close()


@pytest.fixture(params=EVERY_STORE)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return STORES[request.param](tmp_path)


def test_what_is_given_again_is_bounded(opener: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "_FEW_INPUTS", 10)
    broker = Broker("planar", store=opener())
    broker.detect(Composite("c0", "ops", PATTERNS[0]))
    most = 0
    for i in range(60):
        broker.publish(Event(f"e{i}", {"a": 2}, end=i))
        broker.close()
        store = opener()
        most = max(most, len(store.load().inputs))
        store.close()
        broker = Broker("planar", store=opener())
    assert 5 < most <= 12
    broker.close()


def test_another_lateness_counts_from_the_restart_on(opener: Opener):
    with Broker("planar", store=opener(), lateness=10) as broker:
        broker.detect(Composite("c0", "ops", PATTERNS[0]))
        broker.publish(Event("e1", {"a": 1}, end=1 * S))
        broker.publish(Event("e2", {"a": 2}, end=2 * S))
    with Broker("planar", store=opener()) as broker:
        (told,) = broker.advance(3 * S)
        assert told.event.parts == ("e1", "e2")  # type: ignore[attr-defined]


def test_a_log_that_its_events_do_not_lead_to_is_refused(tmp_path: Path):
    file = tmp_path / "x.db"
    with Broker.open(file, "planar") as broker:
        broker.detect(Composite("c0", "ops", PATTERNS[0]))
        broker.publish(Event("e1", {"a": 1}, end=1 * S))
        assert len(broker.publish(Event("e2", {"a": 2}, end=2 * S))) == 1
    from nearcast.storage.sqlite import Database

    database = Database(file)
    database.stage("UPDATE log SET body = replace(body, '\"a\":1', '\"a\":7')", ())
    database.flush()
    database.close()
    with pytest.raises(StoreError, match="restore a backup"):
        Broker.open(file, "planar")


def test_fences_go_on_after_a_restart(opener: Opener):
    """Who is inside is known, and so is a position that has expired meanwhile."""
    broker = Broker("planar", store=opener())
    on = {"enter", "exit", "lost"}
    broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 1, 1), on=on, lost=60))
    for car in ("a", "b"):
        at = Event(car, {"car": car}, (), Point(0, 0), end=0, expires=5 * S)
        assert [told.transition for told in broker.publish(at)] == ["enter"]
    broker.close()
    again = Broker("planar", store=opener())
    left = Event("a2", {"car": "a"}, (), Point(5, 5), end=30 * S)
    assert [(told.object, told.transition) for told in again.publish(left)] == [("a", "exit")]
    (lost,) = again.advance(61 * S)
    assert (lost.object, lost.transition, lost.event.id, lost.seq) == ("b", "lost", "b", 4)
    assert [told.seq for told in again.notifications("ann").notifications] == [1, 2, 3, 4]


@pytest.mark.parametrize("many", [1, 20])
@pytest.mark.parametrize("clock", [False, True])
def test_a_fence_counts_from_when_a_position_came_that_does_not_say_its_end(
    opener: Opener, clock: bool, many: int
):
    """Whether it came by itself or with others, and whoever was there then."""
    now = [1000 * S]

    def opened() -> Broker:
        return Broker("planar", store=opener(), clock=(lambda: now[0]) if clock else None)

    def later(broker: Broker, at: int) -> list[tuple[str | None, int]]:
        now[0] = at * S
        told = broker.advance() if clock else broker.advance(now[0])
        return [(each.transition, each.at // S) for each in told if each.object == 0]

    broker = opened()
    later(broker, 1000)
    events = [Event(f"p{i}", {"car": i}, (), Point(0, 0)) for i in range(many)]
    events.append(Event("q", {"car": 99}, (), Point(0, 0), start=1002 * S))
    assert not broker.publish_many(events)
    for again in range(2):
        on = {"enter", "dwell", "lost"}
        fence = Fence(f"f{again}", "ann", "car", Box(0, 0, 1, 1), on=on, dwell=60, lost=300)
        told = broker.subscribe(fence)
        assert [each.at // S for each in told] == [1000] * many + [1002]
        broker.unsubscribe(fence.id)
        broker.close()
        broker = opened()
    broker.subscribe(fence)
    assert later(broker, 1400) == [("dwell", 1060), ("lost", 1300)]
    broker.close()


def crossings(told: Any) -> list[tuple[str | None, str, int, str, int | None]]:
    return [(n.transition, n.subscription_id, n.at // S, n.event.id, n.seq) for n in told]


def at(id: str, x: float, end: int | None, **more: Any) -> Event:
    return Event(id, {"car": "a"}, (), Point(x, 0), end=None if end is None else end * S, **more)


def test_a_fence_that_waits_is_there_after_a_restart(opener: Opener):
    """One that is new, and one in the place of another; each begins in its turn."""
    old, new = (Fence("f", "ann", "car", Box(0, 0, x, 1)) for x in (1, 5))
    with Broker("planar", store=opener(), lateness=5) as broker:
        broker.advance(100 * S)
        broker.subscribe(old)
    with Broker("planar", store=opener(), lateness=5) as broker:
        assert broker.reading.thing("f") == old
        broker.subscribe(new)
        broker.publish(at("e1", 4, 98))
    with Broker("planar", store=opener(), lateness=5) as broker:
        assert broker.reading.thing("f") == new
        broker.publish(at("e2", 4, 101))
        assert crossings(broker.advance(104 * S)) == []
    with Broker("planar", store=opener(), lateness=5) as broker:
        # e1 was before the fence, and is live: it is inside from the beginning
        assert crossings(broker.advance(200 * S)) == [("enter", "f", 98, "e1", 1)]
        broker.unsubscribe("f")
    with Broker("planar", store=opener(), lateness=5) as broker:
        assert not len(broker)
        assert broker.publish(at("e3", 4, 201)) == broker.advance(300 * S) == ()


def test_what_waits_has_its_turn_after_a_restart(opener: Opener):
    """Positions, two of one key among them, a loss, and where a region was meanwhile."""
    on = {"enter", "exit", "lost"}
    with Broker("planar", store=opener(), lateness=5) as broker:
        broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 1, 1), on=on, lost=1000))
        broker.subscribe(Fence("g", "bob", "car", Around(2)))
        broker.move("bob", Point(50, 0))
        broker.publish(at("e0", 0, 100))
        broker.advance(110 * S)
        broker.publish(at("e1", 9, 113))
        broker.retract("e1")
        broker.publish(at("e1", 9, 113, expires=114 * S))
        broker.move("bob", Point(30, 0))
        broker.move("bob", Point(10, 0))  # and not there when e1 came
        broker.lose("car", "a")
    happened = [
        ("exit", "f", 113, "e1", 2), ("enter", "g", 113, "e1", 1), ("lost", "f", 113, "e1", 3),
    ]  # fmt: skip
    for until, told in ((117, []), (119, happened), (300, [])):
        with Broker("planar", store=opener(), lateness=5) as broker:
            assert crossings(broker.advance(until * S)) == told
    store = opener()
    assert store.load().turns == {}
    store.close()


def test_who_waits_no_longer_after_a_restart_hears_it_at_once(opener: Opener):
    with Broker("planar", store=opener(), lateness=10) as broker:
        broker.advance(100 * S)
        broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 1, 1)))
        broker.publish(at("e1", 0, 100))
    with Broker("planar", store=opener()) as broker:
        told = broker.publish_many([at("e2", 9, 100), at("e3", 0, 101)])
        assert crossings(told) == [
            ("enter", "f", 100, "e1", 1), ("exit", "f", 100, "e2", 2), ("enter", "f", 101, "e3", 3),
        ]  # fmt: skip


def watched(seed: int, length: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Calls that fences hear of, composites whose detections are positions among them."""
    rng = random.Random(seed)
    made: list[tuple[str, tuple[Any, ...]]] = []
    now = 0
    for step in range(length):
        now += rng.choice((0, 0, 1, 3)) * S
        dice = rng.random()
        if dice < 0.5:
            events = []
            for i in range(rng.choice((1, 1, 1, 4))):
                end = rng.choice((None, now, now, max(0, now - rng.randrange(4) * S)))
                given = {"car": rng.choice("ab"), "a": rng.choice((1, 2, 3))}
                events.append(Event(
                    rng.choice(("e", f"e{step}.{i}")), given, (), Point(rng.randrange(8), 0),
                    end=end, expires=rng.choice((None, now + 2 * S, now + 9 * S)),
                ))  # fmt: skip
            made.append(("publish_many", (events,)))
        elif dice < 0.62:
            made.append(("advance", (now,)))
        elif dice < 0.8:
            on = set(rng.sample(("enter", "exit", "cross", "dwell", "lost", "inside"), 3))
            region = rng.choice((Box(0, 0, 3, 1), Circle(4, 0, 1), Around(2), Around(5)))
            made.append(("subscribe", (Fence(
                f"f{rng.randrange(4)}", rng.choice(("ann", "bob")),
                rng.choice(("car", "car", "composite")), region, on=on,
                dwell=rng.choice((1, 4)) if "dwell" in on else None,
                lost=rng.choice((2, 8)) if "lost" in on else None,
                expires=rng.choice((None, None, now + 6 * S)),
            ),)))  # fmt: skip
        elif dice < 0.9:
            made.append(("move", (rng.choice(("ann", "bob")), Point(rng.randrange(8), 0))))
        elif dice < 0.93:
            made.append(("lose", ("car", rng.choice("ab"))))
        elif dice < 0.96:
            made.append(("detect", (Composite("c0", "ops", rng.choice(PATTERNS[:4])),)))
        else:
            verb = rng.choice(("unsubscribe", "retract"))
            made.append((verb, (f"f{rng.randrange(4)}" if verb == "unsubscribe" else "e",)))
    return made


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("store", EVERY_STORE)
def test_fences_do_not_notice_a_restart(tmp_path: Path, store: str, seed: int):
    rng = random.Random(seed)
    settings: dict[str, Any] = rng.choice(({}, {"lateness": 3}, {"lateness": 3}, {"lateness": 9}))
    opener = STORES[store](tmp_path)
    steady = Broker("planar", store=MemoryStore(), **settings)
    broker = Broker("planar", store=opener(), **settings)
    for call in watched(seed, 70):
        assert seen(broker, call) == seen(steady, call), call
        if rng.random() < 0.3:
            broker.close()
            broker = Broker("planar", store=opener(), **settings)
            broker.check_invariants()
    broker.close()


def seen(broker: Broker, call: tuple[str, tuple[Any, ...]]) -> Any:
    verb, given = call
    try:
        told = getattr(broker, verb)(*given)
        return [(t.subscription_id, t.transition, t.object, t.event, t.at, t.seq) for t in told]
    except (UnknownIdError, DuplicateIdError, ValueError) as error:
        return str(error)
