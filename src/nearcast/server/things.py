"""Subscriptions, fences and composites: one space of ids, one set of verbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from msgspec import Raw
from starlette.responses import Response

from nearcast.broker.ports import Kind, Thing
from nearcast.broker.service import Service
from nearcast.broker.wire import composite_from_json, composite_to_json
from nearcast.cpsl.composite import Composite
from nearcast.errors import DuplicateIdError, UnknownIdError, ValidationError
from nearcast.model.codec import (
    fence_from_json,
    fence_to_json,
    subscription_from_json,
    subscription_to_json,
)
from nearcast.model.fences import Fence
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, Desk, answer
from nearcast.server.events import MOST, page_size
from nearcast.server.problems import Problem
from nearcast.server.wire import Texts, encode, fitting

__all__ = ["KINDS", "Sort", "end", "mine", "put", "read"]


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
    if given.get("sink") is not None:
        raise ValidationError("sink", given["sink"], "notifications are fetched here; leave it out")
    return sort.read(given, desk.settings.space)


async def put(desk: Desk, who: Principal, thing: Thing, *, fresh: bool = False) -> dict[str, Any]:
    """Begin a thing, or put it in the place of another; `fresh`: but not of a different one."""

    def call(broker: Service) -> Answer:
        old = broker.reading.thing(thing.id)
        if old is None:
            desk.limits.things(broker.reading.count(who.subscriber or ""), who)
        elif not who.owns(old.subscriber) or (fresh and old != thing):
            raise DuplicateIdError(_kind(old), thing.id, "choose another id")
        if isinstance(thing, Composite):
            reply = broker.detect(thing)
        else:
            reply = broker.subscribe(thing)
        return Answer((old is None, reply), (reply,))

    created, reply = await desk.call(who, call)
    told = [*map(Raw, fitting(map(Texts().of, reply[:MOST]), desk.settings.page_bytes))]
    return {"id": thing.id, "created": created, "notifications": told}


def _kind(thing: Thing) -> str:
    return next(sort.kind for sort in KINDS.values() if isinstance(thing, sort.type))


async def end(desk: Desk, who: Principal, id: str, sort: Sort | None = None) -> None:
    """End a thing; 404 if it is not there, of another kind, or another's."""

    def call(broker: Service) -> Answer:
        mine(broker, who, id, sort)
        return Answer(None, (broker.unsubscribe(id),))

    await desk.call(who, call)


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
        thing = read(ask.desk, ask.who, sort, await ask.json(), ask.id)
        done = await put(ask.desk, ask.who, thing)
        return answer(done, 201 if done["created"] else 200)

    return handler


def posting(sort: Sort) -> Callable[[Ask], Any]:
    """`POST /…`: named for whoever asks; under one Idempotency-Key it is made once."""

    async def handler(ask: Ask) -> Response:
        said = await ask.json()
        if isinstance(said, dict) and "id" in said:
            raise ValidationError(
                "id", said["id"], f"PUT it to /v1/{sort.path}/ID, or leave it out"
            )
        id = _named(ask, sort)
        thing = read(ask.desk, ask.who, sort, said, id)
        done = await put(ask.desk, ask.who, thing, fresh=True)
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
        found = await ask.desk.look(ask.who, lambda broker: mine(broker, ask.who, ask.id, sort))
        return answer(sort.write(found))

    return handler


def deleting(sort: Sort) -> Callable[[Ask], Any]:
    """`DELETE /…/{id}`."""

    async def handler(ask: Ask) -> Response:
        await end(ask.desk, ask.who, ask.id, sort)
        return Response(status_code=204)

    return handler


def listing(sort: Sort) -> Callable[[Ask], Any]:
    """`GET /…?limit=&after=`: by id; one's own, or all for an admin."""

    async def handler(ask: Ask) -> Response:
        after, limit = ask.query.get("after", ""), page_size(ask)
        whose = ask.query.get("subscriber") if ask.who.admin else ask.who.subscriber
        found = await ask.desk.look(
            ask.who, lambda broker: broker.reading.things(sort.kind, after, limit, whose)
        )
        texts = fitting((encode(sort.write(each)) for each in found), ask.desk.settings.page_bytes)
        next = found[len(texts) - 1].id if found else after
        return answer({sort.path: [*map(Raw, texts)], "next": next})

    return handler
