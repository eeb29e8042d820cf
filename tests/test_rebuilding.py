"""Large additions and worn indexes: built anew beside the index that is matched meanwhile."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from nearcast import Box, Event, Matcher, Subscription
from nearcast.errors import BatchError, CapacityError
from nearcast.index import pivot
from nearcast.model.codec import subscriptions_to_arrow


def sold(price: float) -> Event:
    return Event(id="e", attributes={"price": price})


def rising(first: int, count: int) -> pa.Table:
    """Subscriptions to prices first, first + 1, …, as a table."""
    ends = [
        [{"attribute": "price", "low": float(k), "high": k + 0.5}]
        for k in range(first, first + count)
    ]
    kind = pa.list_(
        pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
    )
    ids = pa.array([f"s{k}" for k in range(first, first + count)])
    return pa.table({"id": ids, "intervals": pa.array(ends, kind)})


@pytest.mark.parametrize("fails", [False, True])
def test_matches_go_on_while_a_large_addition_is_built(monkeypatch, fails: bool) -> None:
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions(rising(0, 5000))
    building, go_on = threading.Event(), threading.Event()
    plain = pivot.Pivot.rebuilt

    def slowly(self: pivot.Pivot, rows: Any, **how: bool) -> pivot.Pivot:
        building.set()
        assert go_on.wait(240)
        if fails:
            raise MemoryError
        return plain(self, rows, **how)

    monkeypatch.setattr(pivot.Pivot, "rebuilt", slowly)
    wanted = Event(id="e", attributes={"price": 7000.25, "cost": 3.0})
    kept = Event(id="k", attributes={"price": 70.25}, location=Box(0, 0, 1, 1))
    refused: list[BaseException] = []

    def add() -> None:
        try:
            matcher.add_subscriptions(rising(5000, 5000))
        except MemoryError as error:
            refused.append(error)

    writer = threading.Thread(target=add)
    writer.start()
    assert building.wait(240)
    assert matcher.match_event(wanted) == []  # half-built: not there yet, and nobody waits
    assert matcher.match_event(kept) == ["s70"]
    assert matcher.match_events([wanted, kept])["subscription_id"].to_pylist() == ["s70"]
    go_on.set()
    writer.join(240)
    assert bool(refused) == fails
    if not fails:
        assert matcher.match_event(wanted) == ["s7000"]
        assert len(matcher) == 10_000
    assert matcher.match_event(kept) == ["s70"]
    matcher.check_invariants()


def test_an_addition_that_is_interrupted_leaves_nothing(monkeypatch) -> None:
    """The interrupt comes when all is built, and a match is still under way."""
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions([Subscription(id="kept", where="price < 1")])

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(matcher._lock, "alone", interrupted)
        patched.setattr(matcher.schema, "attempt", lambda _: nullcontext())
        with pytest.raises(KeyboardInterrupt):
            matcher.add_subscriptions(rising(0, 6000))
    assert len(matcher) == 1
    assert "s5" not in matcher
    matcher.check_invariants()
    matcher.add_subscriptions(rising(0, 6000))
    assert matcher.match_event(sold(5.25)) == ["s5"]
    matcher.check_invariants()


def test_a_large_addition_with_a_taken_id_leaves_rows_for_the_next() -> None:
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions(rising(0, 9000))
    for k in range(0, 9000, 3):
        matcher.remove_subscription(f"s{k}")
    event = Event(id="e", attributes={"price": 9500.25, "cost": 3.0})
    bad = pa.concat_tables([rising(9000, 9000), rising(1, 1)])
    for _ in range(3):
        with pytest.raises(BatchError) as caught:
            matcher.add_subscriptions(bad)
        assert caught.value.row == 9000
        matcher.check_invariants()
        assert matcher.match_event(event) == []
    taken = matcher._standing.store.rows
    assert taken <= 9000 + bad.num_rows
    matcher.add_subscriptions(rising(9000, 9000))
    matcher.check_invariants()
    assert matcher._standing.store.rows == taken
    assert "s9500" in matcher.match_event(event)


def test_a_clause_of_too_many_words_leaves_nothing() -> None:
    matcher = Matcher(index="pivot")
    words = [["one"], [f"word {k}" for k in range(70_000)]]
    table = pa.table({"id": ["a", "b"], "keywords": pa.array(words, pa.list_(pa.string()))})
    for _ in range(2):  # the second time, nothing of the first is in the way
        with pytest.raises(CapacityError, match="words of one clause"):
            matcher.add_subscriptions(table)
        assert len(matcher) == 0
        matcher.check_invariants()


def test_what_is_asked_while_a_table_is_added() -> None:
    """`in`, `explain` and `asked` beside a large addition with residuals in it."""
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions([Subscription(id="kept", where="price < 1")])
    done = threading.Event()
    rows = [Subscription(id=f"r{k}", where=f"name LIKE 'a{k}%'") for k in range(5000)]
    table = subscriptions_to_arrow(rows)

    def add() -> None:
        matcher.add_subscriptions(table)
        done.set()

    writer = threading.Thread(target=add)
    writer.start()
    while not done.is_set():
        assert "kept" in matcher
        matcher.asked()
        assert matcher.explain("kept", sold(0.5)).matched
        assert matcher.match_event(sold(0.5)) == ["kept"]
    writer.join()
    assert "r4999" in matcher
    matcher.check_invariants()


def test_a_worn_index_that_cannot_be_made_anew_stays(monkeypatch) -> None:
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions(rising(0, 100))
    matcher.index._clauses.worn = True

    def no_room(self: pivot.Pivot, rows: Any) -> pivot.Pivot:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(pivot.Pivot, "rebuilt", no_room)
        matcher.add_subscriptions([Subscription(id="z", where="price = 0.75")])
    assert matcher.match_event(sold(0.75)) == ["z"]
    assert matcher.index.worn
    matcher.add_subscriptions(rising(100, 1))
    assert not matcher.index.worn


def test_a_worn_index_is_made_anew(monkeypatch) -> None:
    monkeypatch.setattr("nearcast.index.pivot.tree._FEW_TILES", 4)
    matcher = Matcher(index="pivot")
    made = [matcher.index]
    for step in range(0, 64 * 120, 64):  # what comes is ever higher, what goes is the lowest
        matcher.add_subscriptions(
            [
                Subscription(id=f"s{k}", where=f"p BETWEEN {k} AND {k + 1}")
                for k in range(step, step + 64)
            ]
        )
        if matcher.index is not made[-1]:
            made.append(matcher.index)
        if step >= 512:
            for k in range(step - 512, step - 448):
                matcher.remove_subscription(f"s{k}")
    assert len(made) > 1
    assert len(matcher.index._clauses._spare) <= 2
    assert matcher.match_event(Event(id="e", attributes={"p": step + 2.5})) == [f"s{step + 2}"]
    matcher.check_invariants()


def test_small_tables_wear_an_index_too(monkeypatch) -> None:
    monkeypatch.setattr("nearcast.index.pivot.tree._FEW_TILES", 4)
    matcher = Matcher(index="pivot")
    for step in range(0, 64 * 120, 64):
        matcher.add_subscriptions(rising(step, 64))
        for k in range(step - 512, step - 448) if step >= 512 else ():
            matcher.remove_subscription(f"s{k}")
    assert len(matcher.index._clauses._spare) <= 2
