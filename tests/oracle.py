"""The oracle: what nearcast's answers are compared with, and so their definition.

Slow, obvious, pure Python. It reads the CQL2 tree of `subscription.where` as the parser
gives it and evaluates it by recursion: no clauses, no normal form, no index, no interning.
Whatever nearcast computes in a clever way must come out as this module says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import cql2

from nearcast.model.events import Event, Value
from nearcast.model.geometry import Box, Location, Point, Polygon
from nearcast.model.subscriptions import Subscription
from nearcast.model.words import normalise_words
from tests.oracle_geometry import fixed, place_in_region, place_within, places_meet, places_near

_NEGATION = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRROR = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


# --- matching ---------------------------------------------------------------------------------


def matches(
    subscription: Subscription,
    event: Event,
    space: str = "globe",
    now: int | None = None,
    at: Point | None = None,
    heading: float = 0.0,
) -> bool:
    """Whether the subscription wants the event, at `now` (by default when the event ends)."""
    moment = event.end if now is None else now
    return _valid(subscription.expires, moment) and wants(subscription, event, space, at, heading)


def match_event(
    subscriptions: Iterable[Subscription],
    event: Event,
    space: str = "globe",
    now: int | None = None,
) -> list[str]:
    """The ids of the subscriptions that want the event, sorted."""
    return sorted(s.id for s in subscriptions if matches(s, event, space, now))


def match_subscription(
    subscription: Subscription,
    events: Iterable[Event],
    space: str = "globe",
    now: int | None = None,
    at: Point | None = None,
    heading: float = 0.0,
) -> list[str]:
    """The ids of the events visible at `now` that the subscription wants, sorted."""
    if not _valid(subscription.expires, now):
        return []
    visible = (event for event in events if _valid(event.expires, now))
    return sorted(event.id for event in visible if wants(subscription, event, space, at, heading))


def wants(
    subscription: Subscription,
    event: Event,
    space: str = "globe",
    at: Point | None = None,
    heading: float = 0.0,
) -> bool:
    """Whether filter, keywords and region accept the event, whatever the time."""
    if not subscription.keywords <= event.keywords:
        return False
    if subscription.region is not None:
        region = fixed(subscription.region, at, heading)
        if region is None or event.location is None:
            return False
        if not place_in_region(event.location, region, space):
            return False
    return subscription.where is None or holds(parsed(subscription.where), event, space)


def _valid(expires: int | None, now: int | None) -> bool:
    return expires is None or now is None or now < expires


# --- filters ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parsed(text: str) -> Any:
    """The CQL2 tree of a filter's text, as the parser gives it; CQL2 JSON is a tree already."""
    return json.loads(text) if text.startswith("{") else cql2.parse_text(text).to_json()


def holds(node: Any, event: Event, space: str = "globe", negated: bool = False) -> bool:
    """Whether a CQL2 expression, or its negation, holds of an event.

    NOT goes down to the predicates, and a predicate and its negation may both be false.
    """
    if isinstance(node, bool):
        return node is not negated
    if "property" in node:
        return _compares("<>" if negated else "=", node, True, event)
    operator, args = node["op"].lower().replace("!=", "<>"), node["args"]
    if operator == "not":
        return holds(args[0], event, space, not negated)
    if operator in ("and", "or"):
        parts = (holds(part, event, space, negated) for part in args)
        return all(parts) if (operator == "and") is not negated else any(parts)
    if operator in _NEGATION:
        left, right = args
        return _compares(_NEGATION[operator] if negated else operator, left, right, event)
    if operator == "between":
        value, low, high = args
        if negated:
            return _compares("<", value, low, event) or _compares(">", value, high, event)
        return _compares(">=", value, low, event) and _compares("<=", value, high, event)
    if operator == "in":
        value, choices = args
        if negated:
            return all(_compares("<>", value, choice, event) for choice in choices)
        return any(_compares("=", value, choice, event) for choice in choices)
    if operator == "isnull":
        return (args[0]["property"] not in event.attributes) is not negated
    if operator == "like":
        value = event.attributes.get(args[0]["property"])
        return isinstance(value, str) and _like(value, args[1]) is not negated
    if operator == "a_contains":
        return (normalise_words(args[1]) <= event.keywords) is not negated
    if operator in ("s_intersects", "s_within", "s_dwithin"):
        if event.location is None:
            return False
        return _spatial(operator, args, event.location, space) is not negated
    raise AssertionError(f"the oracle does not know the operator {operator!r}")


def _compares(operator: str, left: Any, right: Any, event: Event) -> bool:
    if not isinstance(left, dict):
        operator, left, right = _MIRROR[operator], right, left
    value = event.attributes.get(left["property"])
    if value is None or _type(value) != _type(right):
        return False
    if not isinstance(value, str):
        value, right = float(value), float(right)
        if math.isnan(value):
            return False
    answers: dict[str, bool] = {
        "=": value == right,
        "<>": value != right,
        "<": value < right,
        "<=": value <= right,
        ">": value > right,
        ">=": value >= right,
    }
    return answers[operator]


def _type(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def _like(text: str, pattern: str) -> bool:
    """% stands for any characters, _ for one; a backslash takes the next one literally."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    regex = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


# --- places in filters ------------------------------------------------------------------------


def _spatial(operator: str, args: list[Any], location: Location, space: str) -> bool:
    literal = args[0] if args[1] == {"property": "location"} else args[1]
    parts = literal_places(literal)
    if operator == "s_intersects":
        return any(places_meet(location, part, space) for part in parts)
    if operator == "s_within":
        return place_within(location, parts, space)
    distance = args[2]
    if len(args) == 4:
        unit = args[3]["property"] if isinstance(args[3], dict) else args[3]
        distance *= 1000.0 if unit.lower().startswith("k") else 1.0
    return any(places_near(part, location, distance, space) for part in parts)


def literal_places(literal: dict[str, Any]) -> list[Location]:
    """The parts of a CQL2 geometry."""
    if "bbox" in literal:
        return [Box(*literal["bbox"])]
    kind, coordinates = literal["type"], literal["coordinates"]
    if kind == "Point":
        return [Point(*coordinates)]
    polygons = [coordinates] if kind == "Polygon" else coordinates
    return [Polygon(exterior, tuple(holes)) for exterior, *holes in polygons]
