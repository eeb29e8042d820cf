"""Subscriptions, fences and composites: one space of ids, one set of verbs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from secrets import token_urlsafe
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import Raw
from starlette.responses import Response

from nearcast.broker.ports import Kind, Thing
from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.broker.wire import composite_from_json, composite_to_json
from nearcast.cpsl.composite import Composite
from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    NearcastError,
    UnknownIdError,
    ValidationError,
)
from nearcast.model.codec import (
    fence_from_json,
    fence_to_json,
    subscription_from_json,
    subscription_to_json,
)
from nearcast.model.codec.events import batch
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Space
from nearcast.model.subscriptions import Subscription
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, Desk, answer
from nearcast.server.events import MOST, page_size
from nearcast.server.feeds import Who
from nearcast.server.problems import Problem
from nearcast.server.sinks import delivery
from nearcast.server.wire import Texts, encode, fitting
from nearcast.storage.sinks import Delivery, Sink, Sinks

__all__ = ["KINDS", "Sort", "Wanted", "end", "mine", "pause", "put", "read", "wanted"]


_STATUS = "status"
_PAUSED, _ACTIVE = "INACTIVE", "ACTIVE"


@dataclass(frozen=True, slots=True)
class Sort:
    """One kind of thing: its path, its type, how it is read and written."""

    kind: Kind
    path: str
    type: type
    read: Callable[[Any, Space], Thing]
    write: Callable[[Any], dict[str, Any]]


KINDS: dict[str, Sort] = {
    "subscription": Sort(
        "subscription", "subscriptions", Subscription,
        lambda said, space: subscription_from_json(said, space=space), subscription_to_json,
    ),
    "fence": Sort(
        "fence", "fences", Fence,
        lambda said, space: fence_from_json(said, space=space), fence_to_json,
    ),
    "composite": Sort(
        "composite", "composites", Composite,
        lambda said, _: composite_from_json(said), composite_to_json,
    ),
}  # fmt: skip


def read(desk: Desk, who: Principal, sort: Sort, said: Any, id: str | None) -> Thing:
    """The thing that a body describes, under the id of its path, for the one who asks."""
    if not isinstance(said, dict):
        raise ValidationError(sort.kind, said, "give an object")
    for name in ("filters", "text"):
        if name in said:
            desk.limits.filter(said[name], name)
    given = dict(said)
    if id is not None and given.setdefault("id", id) != id:
        raise ValidationError("id", given["id"], f"leave it out, or give that of the path: {id!r}")
    if who.role == "subscribe" and given.setdefault("subscriber", who.subscriber) is not None:
        who.must_be(str(given["subscriber"]))
    if given.get("subscriber") is None and who.subscriber is not None:
        given["subscriber"] = who.subscriber
    for name in (*delivery.MEMBERS, _STATUS):  # what was read may be written
        given.pop(name, None)
    return sort.read(given, desk.settings.space)


class Wanted(NamedTuple):
    """A thing, and where its notifications are to go."""

    thing: Thing
    delivery: Delivery | None = None
    named: bool = True
    """Whether a sink was spoken of, be it to say that there is none."""


def wanted(desk: Desk, who: Principal, sort: Sort, said: Any, id: str | None) -> Wanted:
    """The thing that a body describes, and its sink."""
    thing = read(desk, who, sort, said, id)
    to = delivery.read(said, desk.settings)
    if to is not None and thing.subscriber is None:
        raise ValidationError("subscriber", None, "say whose notifications the sink is to get")
    return Wanted(thing, to, "sink" in said)


async def put(desk: Desk, who: Principal, wanted: Wanted, *, fresh: bool = False) -> dict[str, Any]:
    """Begin a thing, or put it in the place of another; `fresh`: but not of a different one."""
    thing, to, _ = wanted

    def call(broker: Service) -> Answer:
        old = broker.reading.thing(thing.id)
        over = broker.reading.spent(thing)  # a repetition of what has told enough
        if old is None and not over:
            desk.limits.things(broker.reading.count(who.subscriber or ""), who)
            desk.limits.tenant(who, "things", len(broker), 1)
        elif old is not None and (not who.owns(old.subscriber) or (fresh and old != thing)):
            raise DuplicateIdError(_kind(old), thing.id, "choose another id")
        sinks, name = desk.house.sinks(who.tenant), thing.subscriber or ""
        known = sinks.where(thing.id)
        goes, told = to, dict[str, Any]()
        if to is not None and not over:
            goes, told = delivery.completed(to, thing.id, name, sinks)
        since = broker.reading.last(name)
        if isinstance(thing, Composite):
            reply = broker.detect(thing)
        else:
            reply = broker.subscribe(thing)
        if not over and (goes is not None or known is not None):
            _send(thing, goes, since, sinks, broker, reply)
        return Answer((old is None and not over, over, reply, told), (reply,))

    created, over, reply, told_once = await desk.call(who, call)
    kind = KINDS[_kind(thing)]
    if not over:
        desk.scenes.news(who.tenant, kind.kind, thing.id, lambda: kind.write(thing))
    if not created:
        await _unasked(desk, who, thing.subscriber)
    told = [*map(Raw, fitting(map(Texts().of, reply[:MOST]), desk.settings.page_bytes))]
    done: dict[str, Any] = {"id": thing.id, "created": created, "notifications": told}
    return done | ({"protocolsettings": told_once} if told_once else {})


async def put_all(desk: Desk, who: Principal, sort: Sort, said: list[Any]) -> dict[str, int]:
    """Begin many, all or none; how many are new or others now, and how many were there already."""
    if sort.kind == "composite":
        raise ValidationError("body", said, "composites come one by one: PUT each")
    desk.limits.batch(len(said), f"{sort.path} of one request")
    asked: list[Wanted] = batch(said, lambda each: wanted(desk, who, sort, each, None))
    given: list[Any] = [each.thing for each in asked]

    def call(broker: Service) -> Answer:
        standing = [_standing(broker, each) for each in given]
        new = len({each.id for each, old in zip(given, standing, strict=True) if old is None})
        if new:
            desk.limits.things(broker.reading.count(who.subscriber or "") + new - 1, who)
            desk.limits.tenant(who, "things", len(broker), new)
        for row, (each, old) in enumerate(zip(given, standing, strict=True)):
            if old is not None and not who.owns(old.subscriber):
                taken = DuplicateIdError(_kind(old), each.id, "choose another id")
                raise BatchError(row, taken)
        goings = _goings(asked, standing, desk.house.sinks(who.tenant), broker)
        reply = broker.subscribe_many(given)
        for each, goes, since in goings:
            _send(each, goes, since, desk.house.sinks(who.tenant), broker, reply)
        same = sum(each == old for each, old in zip(given, standing, strict=True))
        return Answer({"accepted": len(given) - same, "repeated": same}, (reply,))

    done: dict[str, int] = await desk.call(who, call, weight=max(1, len(given)))
    for each in given:
        desk.scenes.news(who.tenant, sort.kind, each.id, partial(sort.write, each))
    return done


def _send(
    thing: Thing, to: Delivery | None, since: int, sinks: Sinks, broker: Service, reply: Reply
) -> None:
    """Send what a thing tells from a number on; it may have told all it was to, and be over."""
    over = thing.id not in broker
    if not over or any(told.subscription_id == thing.id for told in reply):
        sinks.put(thing.id, thing.subscriber or "", to, since)
    if over:
        sinks.ended(thing.id)


def _goings(
    asked: list[Wanted], standing: list[Thing | None], sinks: Sinks, broker: Service
) -> list[tuple[Thing, Delivery | None, int]]:
    """Things that go to a sink or went to one, where each goes, and from which number on.

    What stands already and says nothing of a sink goes where it went: files have none in them.
    """
    found: list[tuple[Thing, Delivery | None, int]] = []
    for row, ((thing, to, named), old) in enumerate(zip(asked, standing, strict=True)):
        name, goes = thing.subscriber or "", to
        if to is not None:
            goes, told = delivery.completed(to, thing.id, name, sinks)
            if told:
                alone = "say it, or PUT this one by itself: what is made up is told only there"
                raise BatchError(row, ValidationError("protocolsettings.secret", None, alone))
        elif sinks.where(thing.id) is None or (not named and thing == old):
            continue
        found.append((thing, goes, broker.reading.last(name)))
    return found


def _standing(broker: Service, thing: Thing) -> Thing | None:
    """What has a thing's id: it itself, too, if it has told enough and comes once more."""
    return thing if broker.reading.spent(thing) else broker.reading.thing(thing.id)


def _kind(thing: Thing) -> str:
    return next(sort.kind for sort in KINDS.values() if isinstance(thing, sort.type))


async def end(desk: Desk, who: Principal, id: str, sort: Sort | None = None) -> None:
    """End a thing; 404 if it is not there, of another kind, or another's."""

    def call(broker: Service) -> Answer:
        thing = mine(broker, who, id, sort)
        return Answer(thing, (broker.unsubscribe(id),))

    ended: Thing = await desk.call(who, call)
    desk.scenes.news(who.tenant, _kind(ended), id)
    await _unasked(desk, who, ended.subscriber)


async def _unasked(desk: Desk, who: Principal, subscriber: str | None) -> None:
    """Ask a subscriber for no report if nothing follows it any more."""
    mover = Who(who.tenant, subscriber or "")
    asked = desk.feeds.asked(mover)
    if asked is None:
        return

    def look(broker: Service) -> bool:
        after, found = "", True
        while found:
            some = broker.reading.things("subscription", after, MOST, subscriber)
            if any(isinstance(each.region, Around) for each in some):  # type: ignore[union-attr]
                return True
            found, after = len(some) == MOST, some[-1].id if some else ""
        return False

    with suppress(NearcastError):  # it is over all the same
        if not await desk.look(who, look) and desk.feeds.asked(mover) == asked:
            desk.feeds.unasked(mover)


async def pause(
    desk: Desk, who: Principal, id: str, sort: Sort | None = None, *, over: bool = False
) -> dict[str, Any]:
    """Tell nothing of a thing for a while, or again if that is over; 404 as in `end`."""

    def call(broker: Service) -> Answer:
        mine(broker, who, id, sort)
        reply = broker.resume(id) if over else broker.pause(id)
        return Answer(None, (reply,))

    await desk.call(who, call)
    return {"id": id, _STATUS: _ACTIVE if over else _PAUSED}


def _shown(sort: Sort, thing: Thing, sink: Sink | None, paused: bool) -> dict[str, Any]:
    """A thing as it is read; that one is paused is said of those that are."""
    return sort.write(thing) | delivery.shown(sink) | ({_STATUS: _PAUSED} if paused else {})


def mine(broker: Service, who: Principal, id: str, sort: Sort | None) -> Thing:
    """A thing that whoever asks may see; 404 otherwise."""
    found = broker.reading.thing(id)
    of = object if sort is None else sort.type
    if found is None or not isinstance(found, of) or not who.owns(found.subscriber):
        kind = "subscription, fence or composite" if sort is None else sort.kind
        raise UnknownIdError(kind, id, "it may have expired; check the id")
    return found


def putting(sort: Sort) -> Callable[[Ask], Any]:
    """`PUT /…/{id}`."""

    async def handler(ask: Ask) -> Response:
        asked = wanted(ask.desk, ask.who, sort, await ask.json(), ask.id)
        done = await put(ask.desk, ask.who, asked)
        return answer(done, 201 if done["created"] else 200)

    return handler


def posting(sort: Sort) -> Callable[[Ask], Any]:
    """`POST /…`: named for whoever asks; under one Idempotency-Key it is made once.

    A list is of things that have their ids: each as if it were PUT, all of them or none.
    """

    async def handler(ask: Ask) -> Response:
        said = await ask.json()
        if isinstance(said, list):
            return answer(await put_all(ask.desk, ask.who, sort, said))
        if isinstance(said, dict) and "id" in said:
            raise ValidationError(
                "id", said["id"], f"PUT it to /v1/{sort.path}/ID, or leave it out"
            )
        id = _named(ask, sort)
        asked = wanted(ask.desk, ask.who, sort, said, id)
        done = await put(ask.desk, ask.who, asked, fresh=True)
        headers = {"Location": f"/v1/{sort.path}/{quote(id, safe='')}"}
        return answer(done, 201 if done["created"] else 200, headers)

    return handler


def _named(ask: Ask, sort: Sort) -> str:
    """An id that nobody has, or the one that follows from the Idempotency-Key and who sent it."""
    given = ask.request.headers.get("idempotency-key")
    if given is None:
        return f"{sort.kind[0]}-{token_urlsafe(16)}"
    if not given or len(given) > 256:
        raise Problem(
            400, "the Idempotency-Key is empty or too long", "idempotency-key", given,
            "give 1 to 256 characters",
        )  # fmt: skip
    who = ask.who
    said = "\0".join((sort.kind, who.role, who.subscriber or "", given))
    return f"{sort.kind[0]}-{blake2b(said.encode(), digest_size=16).hexdigest()}"


def getting(sort: Sort) -> Callable[[Ask], Any]:
    """`GET /…/{id}`."""

    async def handler(ask: Ask) -> Response:
        def look(broker: Service) -> tuple[Thing, Sink | None, bool]:
            found = mine(broker, ask.who, ask.id, sort)
            sink = ask.desk.house.sinks(ask.who.tenant).where(found.id)
            return found, sink, broker.reading.paused(found.id)

        return answer(_shown(sort, *await ask.desk.look(ask.who, look)))

    return handler


def deleting(sort: Sort) -> Callable[[Ask], Any]:
    """`DELETE /…/{id}`."""

    async def handler(ask: Ask) -> Response:
        await end(ask.desk, ask.who, ask.id, sort)
        return Response(status_code=204)

    return handler


def pausing(sort: Sort, *, over: bool) -> Callable[[Ask], Any]:
    """`POST /…/{id}/pause` and `/…/{id}/resume`."""

    async def handler(ask: Ask) -> Response:
        return answer(await pause(ask.desk, ask.who, ask.id, sort, over=over))

    return handler


def listing(sort: Sort) -> Callable[[Ask], Any]:
    """`GET /…?limit=&after=`: by id; one's own, or all for an admin."""

    async def handler(ask: Ask) -> Response:
        after, limit = ask.query.get("after", ""), page_size(ask)
        whose = ask.query.get("subscriber") if ask.who.admin else ask.who.subscriber

        def look(broker: Service) -> list[tuple[Thing, Sink | None, bool]]:
            sinks, paused = ask.desk.house.sinks(ask.who.tenant), broker.reading.paused
            things = broker.reading.things(sort.kind, after, limit, whose)
            return [(each, sinks.where(each.id), paused(each.id)) for each in things]

        found = await ask.desk.look(ask.who, look)
        written = (encode(_shown(sort, *each)) for each in found)
        texts = fitting(written, ask.desk.settings.page_bytes)
        next = found[len(texts) - 1][0].id if found else after
        return answer({sort.path: [*map(Raw, texts)], "next": next})

    return handler
