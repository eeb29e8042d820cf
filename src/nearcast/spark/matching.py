"""How a match is carried out: checked, decided, shipped or cut, and handed to the workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from nearcast.errors import BatchError, ValidationError
from nearcast.index import registry
from nearcast.matcher import Matcher
from nearcast.matcher.tuning import GivenTuning, read_tuning
from nearcast.model.geometry import SPACES, Space
from nearcast.spark import cellwise, duplicates, shipping
from nearcast.spark.frames import mapped, pruned, pruned_names, read_files
from nearcast.spark.parquet import SPLITS, EventFiles, splits
from nearcast.spark.plans import Plan, Weight, choose
from nearcast.spark.rows import Reject, Side, accepted
from nearcast.spark.schemas import (
    MATCHES,
    REJECTS,
    check_pair,
    event_names,
    position_names,
    subscription_names,
)
from nearcast.spark.workers import EventStream, LiveStream, RejectStream, SubscriptionStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Explained", "carry_out", "carry_out_changing", "rejects"]

_SAMPLE = 1000
_log = logging.getLogger("nearcast.spark")


@dataclass(frozen=True)
class _Request:
    """What was asked for, checked."""

    events: DataFrame
    event_names: list[str]
    paths: list[str] | None
    """The Parquet files of the events, if a path was given."""
    space: Space
    index: str
    strict: bool
    shared: str | None
    options: Mapping[str, Any]


def carry_out(
    events: DataFrame | str | os.PathLike[str],
    subscriptions: DataFrame | Matcher | str | os.PathLike[str],
    space: Space,
    index: str,
    plan: str,
    direction: str,
    strict: bool,
    shared: str | os.PathLike[str] | None,
    most_bytes: int,
    cell_rows: int,
    tuning: GivenTuning | None,
    options: Mapping[str, Any] | None,
) -> DataFrame:
    """`nearcast.spark.match.match`, with everything said."""
    if space not in SPACES:
        raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
    given = isinstance(subscriptions, Matcher | str | os.PathLike)
    if given:
        _refuse_beside_matcher(index, plan, direction, tuning, options)
    chosen, why_index, made_with = _tuned(index, tuning, options)
    said = _said(strict, shared, most_bytes, cell_rows, made_with)
    paths = None
    if isinstance(events, str | os.PathLike):
        spark = None if given else getattr(subscriptions, "sparkSession", None)
        events, paths = read_files(os.fspath(events), spark, "events")
    request = _Request(
        events=events,
        event_names=event_names(events),
        paths=paths,
        space=space,
        index=chosen,
        strict=strict,
        shared=None if shared is None else os.fspath(shared),
        options=made_with,
    )
    if isinstance(subscriptions, Matcher | str | os.PathLike):
        return _against_matcher(request, subscriptions)
    names = subscription_names(subscriptions)
    check_pair(request.event_names, names)
    plan, direction = _settled(request, plan, direction)
    wanted = subscriptions.select(*[name for name in names if name != "subscriber"])
    rows = events.select(*request.event_names)
    weights: tuple[Weight | None, Weight | None] = (None, None)
    alone = request.shared is None and not shipping.can_ship(events.sparkSession)
    if plan == "auto" and direction != "subscription-matching" and alone:
        kind, way, reason = choose("partitioned", direction, *weights, most_bytes)
        reason = "through Spark Connect nothing can be shipped, and no shared folder was given"
    else:
        if plan == "auto" or (plan == "broadcast" and direction == "auto"):
            weights = _weigh(rows), _weigh(wanted)
        kind, way, reason = choose(plan, direction, *weights, most_bytes)
    decided = Plan(kind, way, reason, request.index, why_index=why_index, settings=said)
    if kind == "partitioned":
        registry.require(request.index, subscriptions=True)
        return _partitioned(request, wanted, decided, cell_rows)
    if way == "event-matching":
        registry.require(request.index, subscriptions=True)
        matcher, facts = _built(request, wanted)
        return _streamed(request, matcher, replace(decided, facts=facts))
    return _past_events(request, wanted, decided)


def carry_out_changing(
    events: Any,
    subscriptions: Any,
    changes: str,
    space: Space,
    index: str,
    plan: str,
    direction: str,
    strict: bool,
    shared: str | os.PathLike[str] | None,
    tuning: GivenTuning | None,
    options: Mapping[str, Any] | None,
) -> DataFrame:
    """`nearcast.spark.match.match` with `changes`, with everything said."""
    from nearcast.spark.stream import following

    if subscriptions is not None:
        raise ValidationError(
            "subscriptions", subscriptions, "changes were given: they make the subscriptions"
        )
    if space not in SPACES:
        raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
    if plan not in ("auto", "broadcast") or direction not in ("auto", "event-matching"):
        raise ValidationError("plan", plan, "what changes is matched by broadcast of subscriptions")
    if strict:
        raise ValidationError(
            "strict", strict, "a stream goes on: what is bad is told of beside it"
        )
    if isinstance(events, str | os.PathLike):
        events = read_files(os.fspath(events), None, "events")[0]
    names = event_names(events)
    chosen, _, made_with = _tuned(index, tuning, options)
    registry.require(chosen, subscriptions=True)
    if "://" not in changes:
        changes = os.path.abspath(changes)
    folder = None if shared is None else os.path.abspath(os.fspath(shared))
    return following.carry_out(events, names, changes, space, chosen, made_with, folder, None)


def _refuse_beside_matcher(
    index: str, plan: str, direction: str, tuning: Any, options: Mapping[str, Any] | None
) -> None:
    """A matcher is ready-made, and events stream past it: nothing else can be asked for."""
    if plan not in ("auto", "broadcast"):
        raise ValidationError("plan", plan, "a matcher was given: only broadcast is possible")
    if direction not in ("auto", "event-matching"):
        raise ValidationError("direction", direction, "a matcher was given: events stream")
    asked = {"index": None if index == "auto" else index, "tuning": tuning, "options": options}
    for name, value in asked.items():
        if value:
            raise ValidationError(name, value, "a matcher was given: make it with these instead")


def _tuned(
    index: str, tuning: GivenTuning | None, options: Mapping[str, Any] | None
) -> tuple[str, str, dict[str, Any]]:
    """(the index, why this one, options of the matchers); a tuning is read here, not by workers."""
    made_with = dict(options or {})
    found = made_with.pop("tuning", None) if tuning is None else tuning
    why = "the default" if index == "auto" else "it was asked for"
    if found is not None:
        read = read_tuning(found)
        if index == "auto":
            index = read.index
            why = f"the tuning says so ({read.value['why']})" if "why" in read.value else "tuned"
        made_with["tuning"] = dict(read.value)
    return registry.entry(index).name, why, made_with


def _said(
    strict: bool,
    shared: str | os.PathLike[str] | None,
    most_bytes: int,
    cell_rows: int,
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    """The settings that decide how a match is carried out, for people to read."""
    said = [f"most_bytes={most_bytes:_}", f"cell_rows={cell_rows:_}", f"strict={strict}"]
    if shared is not None:
        said.append(f"shared={os.fspath(shared)}")
    for name, value in options.items():
        said.append("a tuning" if name == "tuning" else f"{name}={value!r}")
    return tuple(said)


def _settled(request: _Request, plan: str, direction: str) -> tuple[str, str]:
    """Plan and direction, where the index or the DataFrames leave no choice."""
    if request.events.isStreaming:
        if plan == "partitioned" or direction == "subscription-matching":
            raise ValidationError(
                "plan", plan, "a stream of events is matched by broadcast and event-matching only"
            )
        return "broadcast", "event-matching"
    if registry.entry(request.index).subscriptions is None and direction == "auto":
        return ("broadcast" if plan == "auto" else plan), "subscription-matching"
    return plan, direction


def _weigh(frame: DataFrame) -> Weight:
    """Rows, and bytes as an index would take: twice what Arrow needs."""
    rows = frame.count()
    sample = frame.limit(_SAMPLE).toArrow()
    each = sample.nbytes / max(1, sample.num_rows)
    return Weight(rows, int(2 * each * rows))


# --- the subscriptions are indexed ----------------------------------------------------------------


def _against_matcher(request: _Request, given: Matcher | str | os.PathLike[str]) -> DataFrame:
    """Event matching against a matcher that is there already."""
    matcher = given if isinstance(given, Matcher) else Matcher.load(given)
    if matcher.space != request.space:
        raise ValidationError(
            "space", request.space, f"the matcher's is {matcher.space!r}: give the same"
        )
    registry.require(matcher.entry.name, subscriptions=True)
    decided = Plan(
        "broadcast", "event-matching", "a matcher was given", matcher.entry.name,
        (f"{len(matcher):,} subscriptions",),
    )  # fmt: skip
    folder = None if isinstance(given, Matcher) else os.fspath(given)
    return _streamed(request, matcher, decided, folder)


def _built(request: _Request, subscriptions: DataFrame) -> tuple[Matcher, tuple[str, ...]]:
    """A matcher with all good subscriptions, built on the driver."""
    table, bad = duplicates.resolved(subscriptions.toArrow(), request.strict)
    matcher = Matcher(request.index, request.space, **request.options)
    try:
        matcher.add_subscriptions(table)
    except BatchError:
        if request.strict:
            raise
        good, more = accepted(table, "subscriptions", request.space)
        matcher.add_subscriptions(good)
        bad += more
    _warn(bad)
    total = matcher.memory()["total"]
    facts = (f"{len(matcher):,} subscriptions in {total / 1e6:,.1f} MB, {len(bad):,} rejected",)
    return matcher, facts


def _warn(bad: list[Reject]) -> None:
    if bad:
        _log.warning(
            "%s subscriptions are rejected, the first is %r: %s",
            f"{len(bad):,}", bad[0].id, bad[0].reason.partition("\n")[0],
        )  # fmt: skip


def _streamed(
    request: _Request, matcher: Matcher, decided: Plan, folder: str | None = None
) -> DataFrame:
    """Events past a matcher, of each only what some subscription asks for."""
    spark = request.events.sparkSession
    shipped = shipping.ship_matcher(spark, matcher, request.shared, folder)
    attributes, words = matcher.asked()
    facts = (*decided.facts, f"mapped from {shipped.file or shipped.path}")
    work: Any
    if request.paths is None:
        work = EventStream(shipped, request.space, request.strict)
        given = request.events.select(
            *pruned(request.events, request.event_names, attributes, words)
        )
    else:
        pieces = splits(request.paths, request.event_names)
        names = pruned_names(request.events, request.event_names, attributes, words)
        work = EventFiles(shipped, tuple(names), request.space, request.strict)
        rows = [tuple(piece) for piece in pieces]
        given = spark.createDataFrame(rows, SPLITS).repartition(max(1, len(pieces)))
        facts += (f"workers read {len(request.paths):,} files in {len(pieces):,} pieces",)
    return _explained(mapped(given, work, MATCHES), replace(decided, facts=facts))


# --- the events are shipped -----------------------------------------------------------------------


def _past_events(request: _Request, subscriptions: DataFrame, decided: Plan) -> DataFrame:
    """Subscriptions past events that every worker maps."""
    spark = request.events.sparkSession
    table = request.events.select(*request.event_names).toArrow()
    if request.strict:
        good = table
    else:
        good, bad = accepted(table, "events", request.space)
        if bad:
            _log.warning("%s events are rejected, the first is %r: %s",
                         f"{len(bad):,}", bad[0].id, bad[0].reason)  # fmt: skip
    streaming = duplicates.without_duplicates(subscriptions, request.strict)
    work: Any
    if registry.entry(request.index).subscriptions is None:
        live, about = shipping.live_events(good, request.index, request.space, request.options)
        work = LiveStream(
            shipping.ship_matcher(spark, live, request.shared),
            shipping.ship_table(spark, about, request.shared),
            request.space,
            request.strict,
        )
    else:
        shipped = shipping.ship_table(spark, good, request.shared)
        work = SubscriptionStream(
            shipped, request.index, request.space, request.strict, request.options
        )
    facts = (f"{good.num_rows:,} events in {good.nbytes / 1e6:,.1f} MB",)
    return _explained(mapped(streaming, work, MATCHES), replace(decided, facts=facts))


# --- neither fits ---------------------------------------------------------------------------------


def _partitioned(
    request: _Request, subscriptions: DataFrame, decided: Plan, cell_rows: int
) -> DataFrame:
    streaming = duplicates.without_duplicates(subscriptions, request.strict)
    sides = cellwise.Sides(
        request.events.select(*request.event_names), streaming, request.space, request.strict
    )
    cells, facts = cellwise.plan_cells(sides, cell_rows)
    found = cellwise.matched(sides, cells, request.index, request.options)
    return _explained(found, replace(decided, facts=facts))


# --- looking at it --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explained:
    """What stands behind a DataFrame of matches: its `nearcast` attribute."""

    plan: Plan = field()

    def explain(self) -> str:
        """The plan in a few lines."""
        return self.plan.explain()


def _explained(frame: DataFrame, decided: Plan) -> DataFrame:
    object.__setattr__(frame, "nearcast", Explained(decided))
    return frame


_NAMES = {
    "events": event_names,
    "positions": position_names,
    "subscriptions": subscription_names,
}


def rejects(frame: DataFrame, side: Side, space: Space) -> DataFrame:
    """`nearcast.spark.match.rejected`, with everything said."""
    if side not in get_args(Side):
        raise ValidationError("side", side, f"give one of {', '.join(get_args(Side))}")
    names = _NAMES[side](frame)
    chosen = frame.select(*[name for name in names if name not in ("subscriber", "offset")])
    bad = mapped(chosen, RejectStream(side, space), REJECTS)
    if side != "subscriptions":
        return bad
    return bad.unionByName(duplicates.conflicting(chosen))
