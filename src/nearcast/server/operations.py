"""Everything that can be asked, in one table: method, path, who may, what it does.

The routes, the check of roles and the OpenAPI document all come from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from nearcast.server import events, sse, subscribers, things, upkeep
from nearcast.server.desk import Ask
from nearcast.storage.sqlite.keys import Role

__all__ = ["OPERATIONS", "Operation"]

Handler: TypeAlias = Callable[[Ask], Awaitable[Response]]

_ADMIN: frozenset[Role] = frozenset({"admin"})
_PUBLISH: frozenset[Role] = frozenset({"admin", "publish"})
_SUBSCRIBE: frozenset[Role] = frozenset({"admin", "subscribe"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    roles: frozenset[Role] | None
    """Whose keys may; None: anybody, without a key."""
    summary: str


def _of(sort: things.Sort) -> list[Operation]:
    many, one = f"/v1/{sort.path}", f"/v1/{sort.path}/{{id}}"
    return [
        Operation("GET", many, things.listing(sort), _SUBSCRIBE, f"List {sort.path} by id"),
        Operation("POST", many, things.posting(sort), _SUBSCRIBE,
                  f"Begin a {sort.kind} under an id that is made up"),
        Operation("GET", one, things.getting(sort), _SUBSCRIBE, f"One {sort.kind}"),
        Operation("PUT", one, things.putting(sort), _SUBSCRIBE,
                  f"Begin a {sort.kind}, or put it in the place of another"),
        Operation("DELETE", one, things.deleting(sort), _SUBSCRIBE, f"End a {sort.kind}"),
    ]  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/events", events.post, _PUBLISH, "Publish events"),
    Operation("GET", "/v1/events", events.get_many, _ADMIN, "Live events, in the order they came"),
    Operation("GET", "/v1/events/{id}", events.get_one, _ADMIN, "A live event"),
    Operation("DELETE", "/v1/events/{id}", events.delete, _PUBLISH, "Retract a live event"),
    Operation("GET", "/v1/log", events.get_log, _ADMIN, "The event log, in order"),
    *_of(things.KINDS["subscription"]),
    *_of(things.KINDS["fence"]),
    *_of(things.KINDS["composite"]),
    Operation("PUT", "/v1/subscribers/{id}/place", subscribers.put_place, _SUBSCRIBE,
              "Report where a subscriber is"),
    Operation("GET", "/v1/subscribers/{id}/notifications", subscribers.get_notifications,
              _SUBSCRIBE, "What a subscriber was told"),
    Operation("GET", "/v1/subscribers/{id}/stream", sse.get_stream, _SUBSCRIBE,
              "What a subscriber is told, as server-sent events"),
    Operation("POST", "/v1/subscribers/{id}/ack", subscribers.post_ack, _SUBSCRIBE,
              "Acknowledge notifications"),
    Operation("GET", "/v1/keys", upkeep.list_keys, _ADMIN, "Keys, without what is secret"),
    Operation("POST", "/v1/keys", upkeep.create_key, _ADMIN, "Make a key"),
    Operation("DELETE", "/v1/keys/{id}", upkeep.revoke_key, _ADMIN, "Revoke a key"),
    Operation("POST", "/v1/backup", upkeep.backup, _ADMIN, "Copy the store into a file"),
    Operation("GET", "/healthz", upkeep.health, None, "Whether the process is alive"),
    Operation("GET", "/readyz", upkeep.ready, None, "Whether it answers"),
)  # fmt: skip
