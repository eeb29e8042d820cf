"""Tools for people: is this filter right, what would it match, why does it not."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from nearcast.broker.service import Service
from nearcast.cpsl.analyze import problems
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.draw import graph
from nearcast.cpsl.parser import parse
from nearcast.errors import FilterError, PatternError, ValidationError
from nearcast.matcher.explain import Check, Explanation
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.filters import Filter
from nearcast.model.subscriptions import Subscription
from nearcast.server.desk import Ask, answer
from nearcast.server.events import collection, page_size, read_event
from nearcast.server.problems import problem_of
from nearcast.server.things import KINDS, mine, read
from nearcast.server.wire import whole

__all__ = ["check", "explain", "preview"]

_ANYTHING = "preview"


async def check(ask: Ask) -> Response:
    """`POST /check`: `{"where"}` or `{"cpsl"}` → `{"ok", "normal"}`, or what is wrong and where."""
    said = await ask.members()
    if len(said) != 1 or not {"where", "cpsl"} & said.keys():
        raise ValidationError("body", said, 'give {"where": …} or {"cpsl": …}')
    ((name, text),) = said.items()
    ask.desk.limits.filter(text, name)
    try:
        normal = _filter(text) if name == "where" else _pattern(text, ask)
    except (FilterError, PatternError) as error:
        wrong = problem_of(error).members() | {"ok": False, "field": name}
        place = {"line": None, "column": None, "length": None}
        return answer(place | {n: v for n, v in wrong.items() if n not in ("status", "type")})
    if name == "cpsl":
        return answer({"ok": True, "normal": normal, "graph": graph(parse(text))})
    return answer({"ok": True, "normal": normal})


def _filter(text: Any) -> str:
    if not isinstance(text, str | dict):
        raise ValidationError("where", text, "give CQL2 text or CQL2 JSON")
    return str(Filter.parse(text))


def _pattern(text: Any, ask: Ask) -> str:
    if not isinstance(text, str):
        raise ValidationError("cpsl", text, "give CPSL text")
    pattern = parse(text)
    for wrong in problems(pattern, text, space=ask.desk.settings.space):
        raise wrong
    return str(pattern)


async def preview(ask: Ask) -> Response:
    """`POST /preview`: the live events that a subscription would be told of; nothing is made."""
    wanted = _wanted(ask, await ask.members())
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    found: list[tuple[int, Event]] = await ask.desk.look(
        ask.who, lambda broker: broker.reading.events(wanted, broker.now, after, limit)
    )
    return collection(ask.desk, found, after)


def _wanted(ask: Ask, said: dict[str, Any]) -> Subscription:
    given = {"id": _ANYTHING} | said
    found = read(ask.desk, ask.who, KINDS["subscription"], given, None)
    assert isinstance(found, Subscription)
    return found


async def explain(ask: Ask) -> Response:
    """`POST /explain`: `{"subscription", "event"}`, each an id or a value → a tree."""
    said = await ask.members()
    for name in said:
        if name not in ("subscription", "event"):
            raise ValidationError(name, said[name], "known are subscription, event")
    one, other = said.get("subscription"), said.get("event")
    wanted = _wanted(ask, one) if isinstance(one, dict) else one
    event = read_event(other, ask.desk.settings.space) if isinstance(other, dict) else other
    for name, value in (("subscription", wanted), ("event", event)):
        if not isinstance(value, str | Subscription | Event):
            raise ValidationError(name, value, "give an id, or the thing itself")

    def look(broker: Service) -> Explanation:
        about = _named(broker, ask, wanted) if isinstance(wanted, str) else wanted
        what = broker.reading.event(event) if isinstance(event, str) else event
        assert isinstance(about, Subscription)
        assert isinstance(what, Event)
        return broker.reading.explain(about, what, broker.now)

    return answer(tree(await ask.desk.look(ask.who, look)))


def _named(broker: Service, ask: Ask, id: str) -> Subscription:
    found = mine(broker, ask.who, id, None)
    if isinstance(found, Composite):
        raise ValidationError(
            "subscription", id, "it is a composite: explain subscriptions and fences"
        )
    return found.subscription() if isinstance(found, Fence) else found


def tree(told: Explanation) -> dict[str, Any]:
    """An explanation as an object: what decided, clause by clause, test by test."""
    return {
        "subscription": told.subscription_id,
        "event": told.event_id,
        "matched": told.matched,
        "validity": None if told.validity is None else _check(told.validity),
        "clauses": [
            {"matched": clause.matched, "checks": [_check(each) for each in clause.checks]}
            for clause in told.clauses
        ],
        "text": str(told),
    }


def _check(check: Check) -> dict[str, Any]:
    return {"wanted": check.wanted, "held": check.held, "found": check.found}
