"""Matching while another thread changes the same matcher, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event as Signal
from threading import Thread
from time import perf_counter, sleep

import pyarrow as pa

from nearcast.bench.experiments.cases import Team, pair_table
from nearcast.bench.experiments.changes import Change
from nearcast.bench.trial import Task, Timed
from nearcast.matcher import Matcher
from nearcast.model.subscriptions import Subscription

__all__ = ["LEAST_S", "changing", "matching"]

#: A run under changes lasts at least so long.
LEAST_S = 0.2


def matching(team: Team, change: Change, per_s: int, index: str) -> Task:
    """Match event after event, for long enough, while another thread changes.

    What one event takes on average counts; those not reached are matched afterwards.
    """
    matcher, objects, stayers = team.matcher(index), team.case.objects, change.stayers

    def run() -> Timed:
        stop = Signal()
        writer = Thread(target=_change_until, args=(matcher, stayers, per_s, stop.is_set))
        found: dict[int, list[str]] = {}
        if per_s:
            writer.start()
        try:
            done, started = 0, perf_counter()
            while done == 0 or perf_counter() - started < LEAST_S:
                at = done % len(objects)
                found[at] = matcher.match_event(objects[at])
                done += 1
            elapsed = perf_counter() - started
        finally:
            stop.set()
            if per_s:
                writer.join()
        every = range(len(objects))
        answers = [found[at] if at in found else matcher.match_event(objects[at]) for at in every]
        return Timed(elapsed / done * len(objects), answers)

    def answer(found: list[list[str]]) -> pa.Table:
        timed = pair_table([event.id for event in objects], found)
        return pa.concat_tables([timed, matcher.match_events(team.case.sure)])

    return Task(run, answer=answer, memory=matcher.memory)


def changing(team: Team, change: Change, per_s: int, changes: int, index: str) -> Task:
    """So many changes, at the pace that is asked for, while another thread matches."""
    matcher, objects = team.matcher(index), team.case.objects

    def match_until(stop: Signal) -> None:
        while not stop.is_set():
            for event in objects:
                matcher.match_event(event)

    def run() -> Timed:
        stop = Signal()
        reader = Thread(target=match_until, args=(stop,))
        reader.start()
        try:
            started = perf_counter()
            made = _change_until(matcher, change.stayers, per_s, lambda: False, changes)
            elapsed = perf_counter() - started
        finally:
            stop.set()
            reader.join()
        return Timed(elapsed, made)

    def answer(_: int) -> pa.Table:
        return matcher.match_events(pa.concat_tables([team.case.events, team.case.sure]))

    return Task(run, answer=answer, memory=matcher.memory)


def _change_until(
    matcher: Matcher,
    subscriptions: Sequence[Subscription],
    per_s: int,
    stop: Callable[[], bool],
    most: int | None = None,
) -> int:
    """Replace subscriptions by themselves, never ahead of the pace; returns how many.

    Each takes one removal and one addition, and what matches stays the same.
    """
    started, made = perf_counter(), 0
    while not stop() and (most is None or made < most):
        ahead = made / per_s - (perf_counter() - started)
        if ahead > 0:
            sleep(ahead)
        matcher.update_subscription(subscriptions[made % len(subscriptions)])
        made += 1
    return made
