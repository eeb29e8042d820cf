"""Keeping a server: health, keys, backups."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from starlette.responses import Response

from nearcast.clock import format_micros, system_now
from nearcast.errors import NearcastError, StoreError, ValidationError
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, Desk, answer
from nearcast.server.figures import CONTENT_TYPE_LATEST
from nearcast.server.problems import Problem
from nearcast.storage.keys import Keys, digest_of
from nearcast.storage.sqlite import Database

__all__ = ["backup", "create_key", "health", "list_keys", "metrics", "ready", "revoke_key"]


async def health(ask: Ask) -> Response:
    """`GET /healthz`: the process is alive, and its core has not failed."""
    if ask.desk.core.broken:
        raise Problem(503, f"the core has stopped: {ask.desk.core.why}", remedy="start it again")
    return answer({"status": "ok"})


async def ready(ask: Ask) -> Response:
    """`GET /readyz`: it answers; with `?reads`, whoever only follows is served, too; with `?store`,
    which store it writes to."""
    if "reads" in ask.query and ask.desk.core.standing_by:
        return answer({"status": "standby"})
    if ask.desk.core.why is not None:
        raise Problem(
            503, f"not ready: {ask.desk.core.why}", remedy="wait", headers={"Retry-After": "1"}
        )
    said = {"status": "ready"}
    if "store" in ask.query:
        said["store"] = _shown(ask.desk.house.identity)
    return answer(said)


def _shown(identity: str) -> str:
    """A name of the store for whoever asks: it is told without a key, and transports sign in
    elsewhere by the identity itself."""
    return blake2b(identity.encode(), digest_size=8).hexdigest()


async def metrics(ask: Ask) -> Response:
    """`GET /metrics`: for Prometheus. The default tenant's admins see the whole server, another's
    only what is that one's."""
    if ask.who.tenant:
        return Response(ask.desk.tenants.text(ask.who.tenant), media_type=CONTENT_TYPE_LATEST)
    desk, figures = ask.desk, ask.desk.metrics
    places = desk.feeds.places()
    kept, waiting = await desk.look(ask.who, lambda _: (desk.house.kept(), _waiting(desk, places)))
    for what, count in kept.items():
        figures.kept.labels(what).set(count)
    for transport, count in waiting.items():
        figures.waiting.labels(transport).set(count)
    figures.queue.set(desk.core.calls)
    figures.expected.set(desk.core.expected_s)
    figures.listening.set(len(desk.feeds))
    figures.streams.set(desk.limits.streams)
    figures.broke = desk.core.mistakes
    return Response(figures.text(), media_type=CONTENT_TYPE_LATEST)


def _waiting(desk: Desk, places: list[tuple[str, str, str, int]]) -> dict[str, int]:
    """How many notifications are still to be sent over connections that are open."""
    found = {"sse": 0, "websocket": 0}
    for tenant, subscriber, transport, at in places:
        last = desk.house.broker(tenant).reading.last(subscriber)
        found[transport] += max(0, last - at)
    return found


def _keys(ask: Ask) -> Keys:
    keys = ask.desk.house.keys
    if keys is None:
        raise Problem(409, "a store in memory has no keys", remedy="serve a file")
    return keys


async def list_keys(ask: Ask) -> Response:
    """`GET /keys`: what may be shown of them."""
    keys = _keys(ask)
    found = await ask.desk.look(ask.who, lambda _: keys.all())
    return answer(
        {
            "keys": [
                {
                    "name": key.name,
                    "role": key.role,
                    "subscriber": key.subscriber,
                    "tenant": key.tenant,
                    "made": format_micros(key.made),
                }
                for _, key in found
                if _governs(ask, key.tenant)
            ]
        }
    )


def _governs(ask: Ask, tenant: str) -> bool:
    """The default tenant's admins keep the whole house, others their own part."""
    return ask.who.tenant in ("", tenant)


async def create_key(ask: Ask) -> Response:
    """`POST /keys`: `{"role", "subscriber", "tenant"}` → `{"key"}`, which nobody can read again."""
    said, keys = await ask.members(), _keys(ask)
    for name in said:
        if name not in ("role", "subscriber", "tenant"):
            raise ValidationError(name, said[name], "known are role, subscriber, tenant")
    tenant: Any = said.get("tenant", ask.who.tenant) or ""
    if not isinstance(tenant, str) or not _governs(ask, tenant):
        raise Problem(403, "this key may not make keys of that tenant", "tenant", tenant,
                      "leave it out")  # fmt: skip
    desk = ask.desk

    def call(_: Any) -> Answer:
        return Answer(keys.make(
            said.get("role"), system_now(), tenant=tenant, subscriber=said.get("subscriber")  # type: ignore[arg-type]
        ))  # fmt: skip

    key, what = await desk.call(ask.who, call)
    desk.keyring.add(digest_of(key), what)
    with suppress(NearcastError):  # the key is there, whatever comes of its tenant now
        await desk.core.note(tenant, lambda _: Answer(None))  # whose broker a turn of its own makes
    return answer({"key": key, "name": what.name}, 201)


async def revoke_key(ask: Ask) -> Response:
    """`DELETE /keys/{name}`."""
    keys = _keys(ask)

    def call(_: Any) -> Answer:
        mine = [key for _, key in keys.all() if _governs(ask, key.tenant) and key.name == ask.id]
        if not mine:
            raise Problem(404, "no key has this name", "name", ask.id, "list them first")
        return Answer(keys.end(ask.id))

    ask.desk.keyring.drop(await ask.desk.call(ask.who, call))
    return Response(status_code=204)


async def backup(ask: Ask) -> Response:
    """`POST /backup`: `{"file"}`, on the server's machine; everything committed is in it."""
    said = await ask.members()
    name = said.get("file")
    if not isinstance(name, str) or not name or not Path(name).is_absolute():
        raise ValidationError("file", name, "give an absolute path on the server's machine")
    if ask.who.tenant:
        raise Problem(403, "only the default tenant's admins copy the whole store", "tenant",
                      ask.who.tenant, "ask whoever keeps the server")  # fmt: skip
    database = ask.desk.house.database
    if database is None:
        raise Problem(409, "what is in memory only has no backup", remedy="serve a file")
    if not isinstance(database, Database):
        raise Problem(409, "a database has its own tools to copy it", remedy="use pg_dump")

    def call(_: Any) -> Answer:
        try:
            database.backup(name)
        except StoreError as error:
            said = str(error)
            raise Problem(409, said, "file", name, said.rpartition("; ")[2]) from None
        return Answer(Path(name).stat().st_size)

    return answer({"file": name, "bytes": await ask.desk.call(ask.who, call)})
