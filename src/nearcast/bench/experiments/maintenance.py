"""`maintenance`: what changes cost, and what they cost those who match meanwhile.

Adding, removing, moving and expiring subscriptions, adding, removing and expiring events,
at several bases: MO-Tree's figures 8 to 11, DI-Tree's figure 8, Elaps' figure 11. Then
matching while another thread changes the same matcher 10 000 times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.cases import (
    BareMatcher,
    Case,
    Team,
    adding,
    contenders,
    pair_table,
)
from nearcast.bench.experiments.changes import DUE, Change, LiveChange
from nearcast.bench.experiments.meanwhile import LEAST_S, changing, matching
from nearcast.bench.experiments.scores import checklist, claim, judged
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Scalar, Task, Trial
from nearcast.matcher import Matcher
from nearcast.model.subscriptions import Subscription

__all__ = ["EXPERIMENT"]

ADD, REMOVE, MOVE = "add a subscription", "remove a subscription", "move a subscription"
EXPIRE, BULK = "expire a subscription", "add subscriptions in bulk"
ADD_EVENT, REMOVE_EVENT, EXPIRE_EVENT = "add an event", "remove an event", "expire an event"
QUIET, BUSY = "", ", under changes"
UNDER = "match one event while others change subscriptions"
RATE = "change subscriptions while another thread matches"


def _named(operation: str, name: str) -> str:
    return f"{name}: {operation}"


def _trials(plan: Plan) -> Iterator[Trial]:
    for name in plan.texts("workloads"):
        indexes = plan.texts(f"{name}_indexes")
        for rows in plan.numbers("n"):
            yield from _subscriptions(plan, name, rows, indexes)
        if name == "mo":
            for rows in plan.numbers("n"):
                yield from _events(plan, rows)
        else:
            for k in plan.numbers("di_k"):
                yield from _by_size(plan, k, indexes)


def _subscriptions(plan: Plan, name: str, rows: int, indexes: Sequence[str]) -> Iterator[Trial]:
    change = Change.draw(name, rows, plan.number("changes"), plan.number("events"), plan.seed)
    case = change.case
    few = len(change.newcomers)
    point: dict[str, Scalar] = {"n": rows}
    team = Team(case)
    for group in team.groups(indexes):
        yield Trial(
            _named(BULK, name),
            contenders(group, partial(adding, case, case.subscriptions)),
            lambda: case.truth,
            point,
            rows,
            "subscription",
            at_most=3,
        )
        for operation, opened, truth, work in (
            (ADD, _adds, lambda: change.truth_with, few),
            (REMOVE, _removes, lambda: case.truth, few),
            (MOVE, _moves, lambda: change.truth_moved, len(change.stayers)),
            (EXPIRE, _expires, lambda: case.truth, few),
        ):
            among = contenders(group, partial(opened, team, change))
            yield Trial(_named(operation, name), among, truth, point, work, "change")
        team.release()
    change = Change.draw(name, rows, plan.number("changes"), plan.number("stream"), plan.seed)
    yield from _meanwhile(plan, name, change, point)


def _by_size(plan: Plan, k: int, indexes: Sequence[str]) -> Iterator[Trial]:
    """Adding and removing subscriptions of `k` predicates, at the first base."""
    rows, changes, events = plan.numbers("n")[0], plan.number("changes"), plan.number("events")
    change = Change.draw("di", rows, changes, events, plan.seed, k)
    point: dict[str, Scalar] = {"n": rows, "k": k}
    team = Team(change.case)
    for group in team.groups(indexes):
        for operation, opened, truth in (
            (f"{ADD}, by k", _adds, lambda: change.truth_with),
            (f"{REMOVE}, by k", _removes, lambda: change.case.truth),
        ):
            among = contenders(group, partial(opened, team, change))
            yield Trial(_named(operation, "di"), among, truth, point, changes, "change")
        team.release()


def _asked(case: Case, matcher: BareMatcher) -> pa.Table:
    return matcher.match_events(pa.concat_tables([case.events, case.sure]))


def _absent(matcher: Matcher, subscriptions: Sequence[Subscription]) -> None:
    for subscription in subscriptions:
        if subscription.id in matcher:
            matcher.remove_subscription(subscription.id)


def _task(
    team: Team, index: str, before: Callable[[Matcher], None], run: Callable[[Matcher], None]
) -> Task:
    """Prepare, change, and ask the matcher what matches now."""
    matcher = team.matcher(index)
    return Task(
        lambda: run(matcher),
        before=lambda: before(matcher),
        answer=lambda _: _asked(team.case, matcher),
        memory=matcher.memory,
    )


def _adds(team: Team, change: Change, index: str) -> Task:
    def run(matcher: Matcher) -> None:
        for subscription in change.newcomers:
            matcher.add_subscriptions((subscription,))

    return _task(team, index, lambda matcher: _absent(matcher, change.newcomers), run)


def _removes(team: Team, change: Change, index: str) -> Task:
    def before(matcher: Matcher) -> None:
        _absent(matcher, change.newcomers)
        for subscription in change.newcomers:
            matcher.add_subscriptions((subscription,))

    def run(matcher: Matcher) -> None:
        for subscription in change.newcomers:
            matcher.remove_subscription(subscription.id)

    return _task(team, index, before, run)


def _moves(team: Team, change: Change, index: str) -> Task:
    def updated(matcher: Matcher, subscriptions: Sequence[Subscription]) -> None:
        for subscription in subscriptions:
            matcher.update_subscription(subscription)

    task = _task(
        team,
        index,
        lambda matcher: updated(matcher, change.stayers),
        lambda matcher: updated(matcher, change.movers),
    )
    return replace(task, close=lambda: updated(team.matcher(index), change.stayers))


def _expires(team: Team, change: Change, index: str) -> Task:
    def before(matcher: Matcher) -> None:
        matcher.add_subscriptions(change.due)

    def run(matcher: Matcher) -> None:
        matcher.expire(DUE)

    return _task(team, index, before, run)


def _meanwhile(plan: Plan, name: str, change: Change, point: dict[str, Scalar]) -> Iterator[Trial]:
    """Matching with and without changes; and how many changes a second there really were."""
    per_s, indexes = plan.number("per_s"), plan.texts("meanwhile")
    point = {**point, "changes/s": per_s}
    team = Team(change.case)
    among = contenders(indexes, partial(matching, team, change, 0), QUIET)
    among += contenders(indexes, partial(matching, team, change, per_s), BUSY)
    events, changes = change.case.events.num_rows, max(1, int(per_s * LEAST_S))
    truth = partial(getattr, change.case, "truth")
    yield Trial(_named(UNDER, name), among, truth, point, events, "event")
    among = contenders(indexes, partial(changing, team, change, per_s, changes))
    yield Trial(_named(RATE, name), among, truth, point, changes, "change")
    team.release()


def _events(plan: Plan, rows: int) -> Iterator[Trial]:
    """Live events that come, go and expire."""
    change = LiveChange.draw(rows, plan.number("changes"), plan.seed)
    held: dict[str, Matcher] = {}
    for operation, opened, truth in (
        (ADD_EVENT, _adds_events, lambda: change.truth_with),
        (REMOVE_EVENT, _removes_events, lambda: change.truth),
        (EXPIRE_EVENT, _expires_events, lambda: change.truth),
    ):
        among = contenders(plan.texts("event_indexes"), partial(_live_task, opened, held, change))
        work = change.extra.num_rows
        yield Trial(_named(operation, "mo"), among, truth, {"n": rows}, work, "change")


_Steps: TypeAlias = tuple[Callable[[Matcher], None], Callable[[Matcher], None]]


def _live_task(
    opened: Callable[[LiveChange], _Steps],
    held: dict[str, Matcher],
    change: LiveChange,
    index: str,
) -> Task:
    """Prepare, change, and ask the matcher what the subscriptions see now."""
    if index not in held:
        held[index] = Matcher(index=index, space=change.space)
        held[index].add_events(change.base)
    matcher = held[index]
    before, run = opened(change)

    def answer(_: None) -> pa.Table:
        seen = [matcher.match_subscription(each) for each in change.subscriptions]
        table = pair_table([each.id for each in change.subscriptions], seen)
        return table.rename_columns(["subscription_id", "event_id"])

    return Task(lambda: run(matcher), lambda: before(matcher), answer, matcher.memory)


def _without_newcomers(change: LiveChange, matcher: Matcher) -> None:
    if matcher.event_count > change.base.num_rows:
        for event in change.newcomers:
            matcher.remove_event(event.id)


def _with_newcomers(change: LiveChange, matcher: Matcher) -> None:
    for event in change.newcomers:
        matcher.add_events((event,))


def _adds_events(change: LiveChange) -> _Steps:
    return partial(_without_newcomers, change), partial(_with_newcomers, change)


def _removes_events(change: LiveChange) -> _Steps:
    def before(matcher: Matcher) -> None:
        if matcher.event_count == change.base.num_rows:
            _with_newcomers(change, matcher)

    return before, partial(_without_newcomers, change)


def _expires_events(change: LiveChange) -> _Steps:
    def before(matcher: Matcher) -> None:
        matcher.add_events(change.due)

    def run(matcher: Matcher) -> None:
        matcher.expire(DUE)

    return before, run


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for name in ("mo", "di"):
        for row in judged(measurements, _named(BULK, name)):
            for m in row.by_contender.values():
                what = f"{_named(BULK, name)}, {m.contender}"
                least = 500_000 if m.contender == "pivot" else None
                claims += claim(row, what, m.rate, "subscriptions/s", least)
        for operation in (ADD, REMOVE, MOVE, EXPIRE):
            claims += _single_claims(measurements, _named(operation, name), operation != EXPIRE)
        claims += _meanwhile_claims(measurements, name)
    for operation in (ADD_EVENT, REMOVE_EVENT, EXPIRE_EVENT):
        claims += _single_claims(measurements, _named(operation, "mo"), False)
    return checklist(claims)


def _single_claims(measurements: Sequence[Measurement], operation: str, asked: bool) -> list[Claim]:
    """What one change costs; pivot has a target."""
    return [
        found
        for row in judged(measurements, operation)
        for m in row.by_contender.values()
        for found in claim(
            row,
            f"{operation}, {m.contender}",
            m.item_s * 1e6,
            "µs",
            20 if asked and m.contender == "pivot" else None,
            "at most",
        )
    ]


def _meanwhile_claims(measurements: Sequence[Measurement], name: str) -> list[Claim]:
    """How much changes slow matching down, and whether there were as many as was asked for."""
    claims: list[Claim] = []
    for row in judged(measurements, _named(UNDER, name)):
        for contender in row.by_contender:
            if not contender.endswith(BUSY):
                slower = row.ratio([contender + BUSY], [contender])
                what = (
                    f"{name}: slow-down of {contender} under {row.point['changes/s']:,} changes/s"
                )
                claims += claim(row, what, slower, "×", 1.5, "at most")
    for row in judged(measurements, _named(RATE, name)):
        wanted = int(row.point["changes/s"])
        for m in row.by_contender.values():
            what = f"{name}: changes reached while matching, {m.contender}"
            claims += claim(row, what, m.rate, "changes/s", 0.95 * wanted)
    return claims


def _figure(slug: str, operation: str, name: str, source: str, x: str = "n") -> Figure:
    title = f"{_named(operation, name)} ({source})"
    label = "base" if x == "n" else "predicates of a subscription"
    return Figure(
        f"{name}-{slug}",
        title,
        _named(operation, name),
        x=x,
        x_label=label,
        log_x=x == "n",
        log_y=True,
    )


_MO = ("scan", "pivot", "mo-tree", "tama", "op-index", "r-star-tree", "quad-tree")
_DI = ("scan", "pivot", "di-tree", "rein", "tama", "op-index", "pem", "k-index")
_EVENTS = ("scan", "pivot", "mo-tree", "beq-tree", "quad-tree", "r-star-tree", "k-index")

EXPERIMENT = Experiment(
    name="maintenance",
    summary="add, remove, move, expire, one by one and in bulk; matching under changes",
    settings=(
        Setting("n", (30_000, 100_000), (300,), "bases: subscriptions (or events) already there"),
        Setting("changes", (1000,), (20,), "changes in a repetition"),
        Setting("events", (50,), (5,), "events that are matched, to see what is there"),
        Setting("di_k", (2, 6, 10), (4,), "predicates of di, at the first base"),
        Setting("per_s", (10_000,), (1000,), "changes a second while matching"),
        Setting("stream", (500,), (5,), "events that are matched under changes, one after another"),
        Setting("workloads", ("mo", "di"), ("mo", "di"), "whose subscriptions"),
        Setting("mo_indexes", _MO, ("scan", "pivot", "mo-tree"), "contenders on mo"),
        Setting("di_indexes", _DI, ("scan", "pivot", "di-tree"), "contenders on di"),
        Setting("event_indexes", _EVENTS, ("scan", "pivot", "mo-tree"), "contenders with events"),
        Setting("meanwhile", ("pivot", "mo-tree"), ("pivot",), "who matches under changes"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        _figure("add-event", ADD_EVENT, "mo", "MO-Tree, figure 8; Elaps, figure 11"),
        _figure("remove-event", REMOVE_EVENT, "mo", "MO-Tree, figure 9"),
        _figure("expire-event", EXPIRE_EVENT, "mo", "MO-Tree, section 6.2.4"),
        *(
            _figure(slug, operation, name, source)
            for name, papers in (
                ("mo", ("figure 10", "figure 11", "section 6.2.5", "section 6.2.5")),
                ("di", ("section V-D",) * 4),
            )
            for (slug, operation), figure in zip(
                (("add", ADD), ("remove", REMOVE), ("move", MOVE), ("expire", EXPIRE)),
                papers,
                strict=True,
            )
            for source in (f"{'MO' if name == 'mo' else 'DI'}-Tree, {figure}",)
        ),
        _figure("add-by-k", f"{ADD}, by k", "di", "DI-Tree, figure 8a", "k"),
        _figure("remove-by-k", f"{REMOVE}, by k", "di", "DI-Tree, figure 8b", "k"),
        *(
            Figure(
                f"{name}-bulk",
                _named(BULK, name),
                _named(BULK, name),
                "rate",
                x="n",
                x_label="subscriptions",
                log_x=True,
            )
            for name in ("mo", "di")
        ),
        *(
            Figure(f"{name}-meanwhile", _named(UNDER, name), _named(UNDER, name), x="n", log_x=True)
            for name in ("mo", "di")
        ),
    ),
)
