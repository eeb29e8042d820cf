"""Changes made beside a match: nobody waits, nobody sees half of one, the next match sees all."""

from __future__ import annotations

import threading
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Around, Box, Circle, Event, Matcher, Point, Subscription
from nearcast.errors import BatchError, UnknownIdError
from nearcast.index.base import new_counters
from nearcast.index.pivot.boxed import PlacedClauses
from nearcast.index.pivot.clause_tiles import ClauseTiles
from nearcast.matcher import facade
from nearcast.matcher.encode import batch_of_one, encode_event
from nearcast.matcher.lock import ReadWriteLock
from nearcast.model.codec import subscriptions_to_arrow
from tests import oracle

HERE, THERE = Box(0, 0, 4, 4), Box(6, 6, 9, 9)
SPOTS: list[Point | Box] = [Point(1, 1), Point(3, 3), Point(7, 7), Box(2, 2, 7, 7)]
EVENTS = [
    Event(id=f"e{k}", location=spot, attributes={"p": float(k)}, keywords={"shoe"} if k % 2 else ())
    for k, spot in enumerate(SPOTS)
]


def crowd(count: int, prefix: str = "c") -> list[Subscription]:
    """So many that there are tiles."""
    return [
        Subscription(id=f"{prefix}{k}", where=f"p < {k % 5}", region=(HERE, THERE)[k % 2])
        for k in range(count)
    ]


#: Once a box has come, a change has more to see to.
AT_POINTS = EVENTS[:3]


def seen(matcher: Matcher, events: list[Event] = EVENTS) -> list[list[str]]:
    return [matcher.match_event(event) for event in events]


def wanted(standing: dict[str, Subscription], events: list[Event] = EVENTS) -> list[list[str]]:
    return [oracle.match_event(standing.values(), event, "planar") for event in events]


ASKED = st.sampled_from(
    [
        {"where": "p < 2", "region": HERE},
        {"where": "p >= 1", "region": THERE},
        {"where": "p BETWEEN 0 AND 2"},
        {"keywords": {"shoe"}, "region": HERE},
        {"keywords": {"shoe"}},
        {"where": "p <> 3", "region": THERE},
        {"where": "p < 2", "region": Circle(3, 3, 2.5)},
        {"where": "p < 3", "region": Circle(7, 7, 0.5)},
        {},
    ]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "remove", "hold", "let go", "match"]),
        st.integers(0, 9),
        ASKED,
    ),
    max_size=40,
)


@pytest.mark.parametrize("events", [AT_POINTS, EVENTS])
@pytest.mark.parametrize("size", [3, 200])
@settings(deadline=None, max_examples=25)
@given(steps=STEPS)
def test_changes_beside_a_match(size: int, events: list[Event], steps) -> None:
    matcher = Matcher(index="pivot", space="planar")
    standing = {each.id: each for each in crowd(size)}
    matcher.add_subscriptions([*standing.values()])
    held = False
    there: list[list[int]] = []
    for step, number, asked in steps:
        id = f"s{number}"
        each = Subscription(id=id, **asked)
        if step in ("hold", "let go", "match") and held:
            assert found_by_index(matcher) == there  # nothing moves under who is looking
            matcher._lock.read().__exit__()
            held = False
        if step == "hold":
            matcher._lock.read().__enter__()
            held, there = True, found_by_index(matcher)
        elif step == "match":
            assert seen(matcher, events) == wanted(standing, events)
        elif step == "remove":
            if id in standing:
                matcher.remove_subscription(id)
                del standing[id]
            with pytest.raises(UnknownIdError):
                matcher.remove_subscription(id)
        elif step == "add" and id in standing:
            with pytest.raises(BatchError):
                matcher.add_subscriptions([each])
        elif step == "add":
            matcher.add_subscriptions([each])
            standing[id] = each
        elif step == "change" and id in standing:
            matcher.update_subscription(each)
            standing[id] = each
        assert len(matcher) == len(standing)
    if held:
        matcher._lock.read().__exit__()
    assert seen(matcher) == wanted(standing)
    matcher.check_invariants()


@pytest.mark.parametrize("beside", [False, True])
def test_who_is_around_moves_with_its_circle(beside: bool) -> None:
    matcher = Matcher(index="pivot", space="globe")
    matcher.add_subscriptions(
        [Subscription(id=f"c{k}", where=f"p < {k % 5}", region=HERE) for k in range(200)]
    )
    spots = [Point(1, 1), Point(2, 3), Point(179.9999, 1), Point(0.5, 89.9999), Point(3, 3)]
    if beside:
        del spots[2]  # two clauses have to wait for who matches
    events = [Event(id=f"e{k}", location=at, attributes={"p": 1}) for k, at in enumerate(spots)]
    walkers = [
        Subscription(id="near", where="p < 3", region=Around(2000)),
        Subscription(id="n" * 100, where="p < 3", region=Around(2000)),  # an id that is long
    ]
    for walker in walkers:
        matcher.add_subscriptions([walker], at=spots[0])
    for at in [*spots, *reversed(spots)]:
        if beside:  # two steps, so that a row is left to be used again
            for where in (spots[1], at):
                with matcher._lock.read():
                    for walker in walkers:
                        matcher.update_subscription(walker, at=where)
                matcher.match_event(events[0])
        else:
            for walker in walkers:
                matcher.update_subscription(walker, at=at)
        for event, spot in zip(events, spots, strict=True):
            found = matcher.match_event(event)
            assert [id for id in found if id[0] == "n"] == (
                sorted(walker.id for walker in walkers) if spot == at else []
            )
        matcher.check_invariants()
    with pytest.raises(BatchError):
        matcher.add_subscriptions([walkers[0]], at=spots[0])
    assert len(matcher) == 202
    for walker in walkers:
        matcher.remove_subscription(walker.id)
    matcher.check_invariants()


def found_by_index(matcher: Matcher) -> list[list[int]]:
    """The rows that the index has for the events with points, as they are now."""
    found = []
    for event in EVENTS[:3]:
        encoded = encode_event(event, matcher.schema, "planar", intern=False)
        batch = batch_of_one(encoded, len(matcher.schema.columns))
        found.append(sorted(matcher.index.match_event(batch, 0, new_counters()).tolist()))
    return found


def test_several_that_come_together_are_seen_together() -> None:
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions(crowd(100))
    base = seen(matcher)[0]
    pair = [Subscription(id="x", region=HERE), Subscription(id="y", region=HERE)]
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            found = matcher.match_event(EVENTS[0])
            if found not in (base, [*base, "x", "y"], [*base, "y"]):
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        matcher.add_subscriptions(pair)
        matcher.remove_subscription("x")
        matcher.remove_subscription("y")
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert matcher.match_event(EVENTS[0]) == base
    matcher.check_invariants()


@pytest.mark.parametrize("most", [1, 7, 1024])
def test_who_moves_is_never_missed_nor_seen_twice(monkeypatch, most: int) -> None:
    """Wherever they are, the event is near: a match sees the old place or the new one."""
    monkeypatch.setattr(facade, "_MOST_STAGED", most)
    matcher = Matcher(index="pivot", space="planar")
    places = [Box(0, 0, 4, 4), Box(1, 1, 5, 5), Box(2, 2, 9, 9)]
    walkers = [f"w{k:03}" for k in range(150)]
    matcher.add_subscriptions([Subscription(id=id, region=places[0]) for id in walkers])
    spots = [Event(id="p", location=Point(3, 3)), Event(id="b", location=Box(3, 3, 3.5, 3.5))]
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            for event in spots:
                found = matcher.match_event(event)
                if found != walkers:
                    wrong.append(found)
            found = matcher.match_events(spots[:1])["subscription_id"].to_pylist()
            if sorted(found) != walkers:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(10):
        for k, id in enumerate(walkers):
            matcher.update_subscription(Subscription(id=id, region=places[(turn + k) % 3]))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    matcher.check_invariants()


def test_saved_with_changes_that_nobody_has_seen(tmp_path) -> None:
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions(crowd(100))
    with matcher._lock.read():
        matcher.remove_subscription("c3")
        matcher.update_subscription(Subscription(id="c4", region=HERE))
    matcher.save(tmp_path / "m")
    assert seen(Matcher.load(tmp_path / "m")) == seen(matcher)


def test_who_comes_while_cells_for_boxes_are_made(monkeypatch) -> None:
    """The arrays are full and grow between the look at rows and the look at their places."""
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions(subscriptions_to_arrow(crowd(100)))
    matcher.update_subscription(Subscription(id="c0", region=HERE))
    matcher.match_event(EVENTS[0])

    def and_some_more(clauses, rows):
        if "late" not in matcher:
            matcher.add_subscriptions([Subscription(id=f"late{k}", region=HERE) for k in range(50)])
            matcher.add_subscriptions([Subscription(id="late", region=HERE)])
        return PlacedClauses(clauses, rows)

    monkeypatch.setattr("nearcast.index.pivot.PlacedClauses", and_some_more)
    assert not any("late" in id for id in matcher.match_event(EVENTS[3]))
    assert sum("late" in id for id in matcher.match_event(EVENTS[3])) == 51
    matcher.check_invariants()


@pytest.mark.parametrize("size", [3, 200])
def test_what_was_half_entered_is_entered_once(monkeypatch, size: int) -> None:
    matcher = Matcher(index="pivot", space="planar")
    standing = {each.id: each for each in crowd(size)}
    matcher.add_subscriptions([*standing.values()])
    add = matcher.index.add_clauses

    def fails(rows) -> None:
        add(rows)
        monkeypatch.undo()
        raise MemoryError

    with matcher._lock.read():
        for each in (
            Subscription(id="new", region=HERE),
            Subscription(id="word", region=HERE, keywords={"shoe"}),
        ):
            matcher.add_subscriptions([each])
            standing[each.id] = each
        standing["c0"] = Subscription(id="c0", region=HERE)
        matcher.update_subscription(standing["c0"])
    monkeypatch.setattr(matcher.index, "add_clauses", fails)
    with pytest.raises(MemoryError):
        matcher.match_event(EVENTS[0])
    assert seen(matcher) == wanted(standing)
    matcher.check_invariants()


def test_an_addition_that_finds_no_room_leaves_nothing(monkeypatch) -> None:
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions(crowd(100))
    before = seen(matcher)
    append = matcher._standing.store.append
    calls = []

    def fails(*given) -> int:
        calls.append(given)
        if len(calls) == 3:
            raise MemoryError
        return append(*given)

    monkeypatch.setattr(matcher._standing.store, "append", fails)
    many = [Subscription(id=f"n{k}", region=HERE) for k in range(5)]
    with pytest.raises(MemoryError):
        matcher.add_subscriptions(many)
    assert len(matcher) == 100
    assert seen(matcher) == before
    matcher.check_invariants()
    matcher.add_subscriptions(many)
    assert "n0" in matcher.match_event(EVENTS[0])


def test_nothing_is_remembered_of_who_has_gone() -> None:
    matcher = Matcher(index="pivot", space="planar")
    for turn in range(3):
        matcher.add_subscriptions(crowd(200, f"t{turn}-"))
        for each in crowd(200, f"t{turn}-"):
            matcher.remove_subscription(each.id)
    assert matcher._standing.store.rows <= 201
    matcher.check_invariants()


def test_who_has_gone_does_not_expire() -> None:
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions([Subscription(id=id, region=HERE, expires=10) for id in "ab"])
    matcher.remove_subscription("a")
    assert matcher.expire(20) == (["b"], [])
    assert len(matcher) == 0
    matcher.check_invariants()


def test_long_ids_that_go_are_cleared_away() -> None:
    matcher = Matcher(index="pivot", space="planar")
    long = [Subscription(id=f"{k:0300}", region=HERE) for k in range(100)]
    matcher.add_subscriptions(long)
    for each in long[:90]:
        matcher.remove_subscription(each.id)
    assert matcher.match_event(EVENTS[0]) == [each.id for each in long[90:]]
    assert matcher._standing.ids._garbage < 90 * 300
    matcher.check_invariants()


class TestOneStep:
    """Who comes or moves while nobody looks, from the id to the tile in one call."""

    def test_an_id_that_is_taken(self) -> None:
        matcher = Matcher(index="pivot", space="planar")
        matcher.add_subscriptions(crowd(100))
        before, rows = seen(matcher, AT_POINTS), matcher._standing.store.rows
        for _ in range(3):
            with pytest.raises(BatchError, match="c3"):
                matcher.add_subscriptions([Subscription(id="c3", where="p < 9", region=HERE)])
        assert (len(matcher), seen(matcher, AT_POINTS)) == (100, before)
        matcher.check_invariants()
        matcher.add_subscriptions([Subscription(id="late", where="p < 3", region=HERE)])
        assert matcher._standing.store.rows == rows + 1

    def test_an_id_that_nobody_has(self) -> None:
        matcher = Matcher(index="pivot", space="planar")
        matcher.add_subscriptions(crowd(100))
        with pytest.raises(UnknownIdError):
            matcher.update_subscription(Subscription(id="late", where="p < 3", region=HERE))
        matcher.check_invariants()

    @pytest.mark.parametrize("asked", ["p < 3", "p < 99", "p < 3 AND q < 1", "q < 1", "p <> 2"])
    def test_what_fits_and_what_does_not(self, asked: str) -> None:
        """More predicates, a new column or a value beyond those so far take another way."""
        matcher = Matcher(index="pivot", space="planar")
        standing = {each.id: each for each in crowd(100)}
        matcher.add_subscriptions([*standing.values()])
        for each in (
            Subscription(id="c7", where=asked, region=THERE),
            Subscription(id="c8", where=asked),
            Subscription(id="c9", where=asked, region=HERE, expires=5),
            Subscription(id="new", where=asked, region=HERE),
        ):
            if each.id in matcher:
                matcher.update_subscription(each)
            else:
                matcher.add_subscriptions([each])
            standing[each.id] = each
            assert seen(matcher, AT_POINTS) == wanted(standing, AT_POINTS)
        assert matcher.expire(5) == (["c9"], [])
        matcher.check_invariants()

    @pytest.mark.parametrize("moves", [False, True])
    def test_no_room_for_a_larger_tree(self, monkeypatch, moves: bool) -> None:
        """A tile is full and there is no memory to split it: it is tried again."""
        matcher = Matcher(index="pivot", space="planar")
        standing = {each.id: each for each in crowd(1200)}
        matcher.add_subscriptions([*standing.values()])
        failed: list[int] = []

        def fails(self: ClauseTiles, node: int, odd: bool) -> None:
            monkeypatch.undo()
            failed.append(node)
            raise MemoryError

        monkeypatch.setattr(ClauseTiles, "_make_room", fails)
        for k in range(1200):
            id = f"c{k}" if moves else f"n{k}"
            standing[id] = Subscription(id=id, where="p < 1", region=Box(1, 1, 2, 2 + k / 1200))
            try:
                if moves:
                    matcher.update_subscription(standing[id])
                else:
                    matcher.add_subscriptions([standing[id]])
            except MemoryError:
                break
        assert failed
        assert seen(matcher, AT_POINTS) == wanted(standing, AT_POINTS)
        matcher.check_invariants()

    def test_what_finds_no_room_leaves_nothing(self, monkeypatch) -> None:
        matcher = Matcher(index="pivot", space="planar")
        matcher.add_subscriptions(crowd(100))
        before = seen(matcher, AT_POINTS)

        def fails(self: ClauseTiles, row: int, *given: object) -> tuple[int, int, bool]:
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setattr(ClauseTiles, "add_plain", fails)
            for k in range(30):
                with pytest.raises(MemoryError):
                    matcher.add_subscriptions([Subscription(id=f"n{k}", region=HERE)])
        assert matcher._standing.store.rows <= 101
        assert (len(matcher), seen(matcher, AT_POINTS)) == (100, before)
        matcher.check_invariants()

    @pytest.mark.parametrize("change", ["add", "move", "remove"])
    def test_boxes_that_come_before_the_first_change(self, monkeypatch, change: str) -> None:
        """What boxes are matched with is made between a change's first step and its second."""
        matcher = Matcher(index="pivot", space="planar")
        standing = {each.id: each for each in crowd(100)}
        matcher.add_subscriptions([*standing.values()])
        seize = matcher._lock.seize

        def late() -> bool:
            monkeypatch.undo()
            reader = threading.Thread(target=seen, args=(matcher,))
            reader.start()
            reader.join()
            return seize()

        monkeypatch.setattr(matcher._lock, "seize", late)
        if change == "remove":
            matcher.remove_subscription("c3")
            del standing["c3"]
        else:
            id = "late" if change == "add" else "c3"
            standing[id] = Subscription(id=id, where="p < 9", region=Box(2, 2, 3, 3))
            if change == "add":
                matcher.add_subscriptions([standing[id]])
            else:
                matcher.update_subscription(standing[id])
        assert seen(matcher) == wanted(standing)
        matcher.check_invariants()
        for id in [*standing]:
            matcher.remove_subscription(id)
        assert seen(matcher) == [[]] * len(EVENTS)

    def test_boxes_and_a_change_that_fails_at_first(self, monkeypatch) -> None:
        matcher = Matcher(index="pivot", space="planar")
        standing = {each.id: each for each in crowd(100)}
        matcher.add_subscriptions([*standing.values()])
        assert seen(matcher) == wanted(standing)

        def fails(self: PlacedClauses, rows: object) -> None:
            monkeypatch.undo()
            raise MemoryError

        monkeypatch.setattr(PlacedClauses, "add", fails)
        standing["n"] = Subscription(id="n", where="p < 1", region=HERE)
        with pytest.raises(MemoryError):
            matcher.add_subscriptions([standing["n"]])
        assert seen(matcher) == wanted(standing)
        matcher.check_invariants()


class TestLock:
    def test_what_is_left_waits_for_readers(self) -> None:
        left: deque[int] = deque()
        done: list[int] = []
        lock = ReadWriteLock(lambda: done.extend(left.popleft() for _ in range(len(left))), left)
        with lock.change(), lock.read():
            left.append(1)
            lock.offer()
            assert done == []
        with lock.change():
            left.append(2)
            lock.offer()
        assert done == [1, 2]
        left.append(3)
        with lock.read():
            assert done == [1, 2, 3]
        left.append(4)
        with lock.write():
            assert done == [1, 2, 3, 4]

    def test_what_cannot_be_settled_is_tried_again(self) -> None:
        left = deque([1])
        fails = [True]

        def settle() -> None:
            if fails.pop():
                fails.append(False)
                raise MemoryError
            left.clear()

        lock = ReadWriteLock(settle, left)
        with pytest.raises(MemoryError), lock.read():
            raise AssertionError("there is something to settle first")
        with lock.read():
            assert not left
        with lock.write():
            pass

    def test_a_reader_waits_for_others_before_it_settles(self) -> None:
        left = deque([1])
        lock = ReadWriteLock(left.clear, left)
        entered = threading.Event()

        def read() -> None:
            with lock.read():
                entered.set()

        left.clear()
        with lock.read():
            left.append(1)
            late = threading.Thread(target=read)
            late.start()
            assert not entered.wait(0.05)
            assert left
        late.join(240)
        assert entered.is_set()
        assert not left

    def test_readers_that_waited_together_go_together(self) -> None:
        left = deque([1])
        lock = ReadWriteLock(left.clear, left)
        inside = threading.Semaphore(0)
        leave = threading.Event()

        def read() -> None:
            with lock.read():
                left.append(1)  # somebody changes something again
                inside.release()
                leave.wait(240)

        left.clear()
        with lock.read():
            left.append(1)
            both = [threading.Thread(target=read) for _ in range(2)]
            for each in both:
                each.start()
            assert not inside.acquire(timeout=0.05)
        assert inside.acquire(timeout=240)
        assert inside.acquire(timeout=240)
        leave.set()
        for each in both:
            each.join()

    def test_who_cannot_settle_wakes_those_who_wait(self) -> None:
        left: deque[int] = deque()

        def fails() -> None:
            raise MemoryError

        lock = ReadWriteLock(fails, left)
        errors: list[type] = []

        def attempt(turn) -> None:
            try:
                with turn():
                    pass
            except MemoryError as error:
                errors.append(type(error))

        with lock.read():
            left.append(1)
            threads = [threading.Thread(target=attempt, args=(t,)) for t in (lock.write, lock.read)]
            for each in threads:
                each.start()
        for each in threads:
            each.join(240)
        assert errors == [MemoryError] * 2


@pytest.mark.parametrize("region", [Box(3, 3, 4, 4), Circle(3.5, 3.5, 0.5)])
def test_who_is_interrupted_while_it_comes_does_not_come(monkeypatch, region):
    matcher = Matcher(space="planar")
    matcher.add_subscriptions(
        [
            Subscription(id=f"s{k}", where=f"a < {k % 50}", region=Box(0, 0, 9, 9))
            for k in range(400)
        ]
    )
    event = Event(id="e", attributes={"a": 3}, location=Point(3.5, 3.5))
    before = matcher.match_event(event)
    enter = ClauseTiles.add_plain

    def interrupted(self, *given):
        enter(self, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(ClauseTiles, "add_plain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        matcher.add_subscriptions([Subscription(id="late", where="a < 9", region=region)])
    monkeypatch.undo()
    assert "late" not in matcher
    assert matcher.match_event(event) == before
    matcher.check_invariants()
    matcher.add_subscriptions([Subscription(id="late", where="a < 9", region=region)])
    assert matcher.match_event(event) == sorted([*before, "late"])
