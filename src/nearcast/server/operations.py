"""Everything that can be asked, in one table: method, path, who may, what goes in and out.

The routes, the check of roles and the OpenAPI document all come from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from nearcast.server import (
    events,
    letters,
    page,
    pages,
    publishers,
    sse,
    subscribers,
    things,
    tools,
    upkeep,
)
from nearcast.server.desk import Ask
from nearcast.storage.keys import Role

__all__ = ["OPERATIONS", "Operation"]

Handler: TypeAlias = Callable[[Ask], Awaitable[Response]]
Roles: TypeAlias = frozenset[Role]

_ADMIN: Roles = frozenset({"admin"})
_PUBLISH: Roles = frozenset({"admin", "publish"})
_SUBSCRIBE: Roles = frozenset({"admin", "subscribe"})
_ALL: Roles = frozenset({"admin", "publish", "subscribe"})
_TEXT, _HTML, _STREAM = "text/plain", "text/html", "text/event-stream"
_SCRIPT = "text/javascript"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    roles: Roles | None
    """Whose keys may; None: anybody, without a key."""
    summary: str
    takes: str | None = None
    """The schema of its body."""
    gives: str | None = None
    """The schema of its answer."""
    query: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media: str = "application/json"

    @property
    def refusals(self) -> list[int]:
        """With which statuses it may refuse."""
        found = {503}
        if self.roles is not None:
            found |= {401, 403, 429}
        if self.takes is not None:
            found |= {400, 413, 422}
        if self.query:
            found |= {400, 413, 422}
        if "{id}" in self.path or self.takes == "Explain":
            found |= {404, 422}
        if self.method in ("PUT", "POST", "DELETE"):
            found |= {409}
        return sorted(found)


def _of(sort: things.Sort) -> list[Operation]:
    many, one, name = f"/v1/{sort.path}", f"/v1/{sort.path}/{{id}}", sort.kind.capitalize()
    takes, gives = (f"New{name}", "NewlyBegun") if name != "Composite" else (name, "Begun")
    return [
        Operation("GET", many, things.listing(sort), _SUBSCRIBE, f"List {sort.path} by id",
                  gives=f"{name}s", query=("limit", "after_id", "subscriber")),
        Operation("POST", many, things.posting(sort), _SUBSCRIBE,
                  f"Begin a {sort.kind} under an id that is made up, or a list", takes, gives,
                  statuses=(200, 201)),
        Operation("GET", one, things.getting(sort), _SUBSCRIBE, f"One {sort.kind}", gives=name),
        Operation("PUT", one, things.putting(sort), _SUBSCRIBE,
                  f"Begin a {sort.kind}, or put it in the place of another", name, "Begun",
                  statuses=(200, 201)),
        Operation("DELETE", one, things.deleting(sort), _SUBSCRIBE, f"End a {sort.kind}",
                  statuses=(204,)),
        Operation("POST", f"{one}/pause", things.pausing(sort, over=False), _SUBSCRIBE,
                  f"Tell nothing of a {sort.kind} until it is resumed", gives="Standing"),
        Operation("POST", f"{one}/resume", things.pausing(sort, over=True), _SUBSCRIBE,
                  f"Tell of a {sort.kind} again, and of what was kept", gives="Standing"),
    ]  # fmt: skip


_SUBSCRIBER = "/v1/subscribers/{id}"
OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/events", events.post, _PUBLISH, "Publish events", "Events",
              "Published"),
    Operation("GET", "/v1/events", events.get_many, _ADMIN, "Live events, in the order they came",
              gives="FeatureCollection", query=("bbox", "where", "limit", "after")),
    Operation("GET", "/v1/events/{id}", events.get_one, _ADMIN, "A live event",
              gives="CloudEvent", query=("source",), media="application/cloudevents+json"),
    Operation("DELETE", "/v1/events/{id}", events.delete, _PUBLISH, "Retract a live event",
              query=("source",), statuses=(204,)),
    Operation("POST", "/v1/publishers/{id}/events", publishers.post, _PUBLISH,
              "Publish an event of somebody who moves, and learn where it may be silent",
              "OneEvent", "Silenced", ("line", "epoch")),
    Operation("GET", "/v1/publishers/{id}/stream", publishers.get_stream, _PUBLISH,
              "The line on which a publisher hears that its safe rectangle is void, as "
              "server-sent events", media=_STREAM),
    Operation("GET", "/v1/log", events.get_log, _ADMIN, "The event log, in order", gives="Log",
              query=("after", "limit", "wait")),
    Operation("GET", "/v1/changes", events.get_changes, _ADMIN,
              "How subscriptions came, changed and went, in order", gives="Changes",
              query=("after", "limit")),
    *_of(things.KINDS["subscription"]),
    *_of(things.KINDS["fence"]),
    *_of(things.KINDS["composite"]),
    Operation("POST", "/v1/check", tools.check, _ALL, "Is this filter or pattern right?", "Check",
              "Checked"),
    Operation("POST", "/v1/preview", tools.preview, _SUBSCRIBE,
              "Live events that a subscription would match", "Subscription", "FeatureCollection",
              ("limit", "after")),
    Operation("POST", "/v1/explain", tools.explain, _SUBSCRIBE,
              "Why an event matches a subscription, or does not", "Explain", "Explanation"),
    Operation("PUT", f"{_SUBSCRIBER}/place", subscribers.put_place, _SUBSCRIBE,
              "Report where a subscriber is", "Place", "Placed"),
    Operation("GET", f"{_SUBSCRIBER}/notifications", subscribers.get_notifications,
              _SUBSCRIBE, "What a subscriber was told", gives="Notifications",
              query=("after", "limit", "wait")),
    Operation("GET", f"{_SUBSCRIBER}/stream", sse.get_stream, _SUBSCRIBE,
              "What a subscriber is told, as server-sent events", query=("after",),
              media=_STREAM),
    Operation("POST", f"{_SUBSCRIBER}/ack", subscribers.post_ack, _SUBSCRIBE,
              "Acknowledge notifications", "Ack", "Ack"),
    Operation("GET", "/v1/sinks", letters.get_sinks, _SUBSCRIBE,
              "Where notifications are sent, and how that goes", gives="Sinks",
              query=("after", "limit", "subscriber")),
    Operation("GET", "/v1/sinks/{id}", letters.get_sink, _SUBSCRIBE, "One sink", gives="Sink"),
    Operation("POST", "/v1/sinks/{id}/resume", letters.resume, _SUBSCRIBE,
              "Try a sink at once, disabled or not", gives="Sink"),
    Operation("POST", "/v1/sinks/{id}/replay", letters.replay_all, _SUBSCRIBE,
              "Send all dead letters of a sink once more", gives="Replaying", statuses=(202,)),
    Operation("GET", "/v1/dead-letters", letters.get_letters, _SUBSCRIBE,
              "Notifications that could not be sent", gives="DeadLetters",
              query=("after", "limit", "subscriber", "sink")),
    Operation("DELETE", "/v1/dead-letters", letters.drop_all, _SUBSCRIBE,
              "Drop all dead letters of a sink", gives="Dropped", query=("sink",)),
    Operation("GET", "/v1/dead-letters/{id}", letters.get_letter, _SUBSCRIBE, "A dead letter",
              gives="DeadLetter"),
    Operation("DELETE", "/v1/dead-letters/{id}", letters.drop_one, _SUBSCRIBE,
              "Drop a dead letter", statuses=(204,)),
    Operation("POST", "/v1/dead-letters/{id}/replay", letters.replay_one, _SUBSCRIBE,
              "Send a dead letter once more", gives="Replaying", statuses=(202,)),
    Operation("GET", "/v1/keys", upkeep.list_keys, _ADMIN, "Keys, without what is secret",
              gives="Keys"),
    Operation("POST", "/v1/keys", upkeep.create_key, _ADMIN, "Make a key", "NewKey", "MadeKey",
              statuses=(201,)),
    Operation("DELETE", "/v1/keys/{id}", upkeep.revoke_key, _ADMIN, "Revoke a key",
              statuses=(204,)),
    Operation("POST", "/v1/backup", upkeep.backup, _ADMIN, "Copy the store into a file", "Backup",
              "Copied"),
    Operation("GET", "/metrics", upkeep.metrics, _ADMIN, "Figures for Prometheus", media=_TEXT),
    Operation("GET", "/v1/base", page.get_base, _ADMIN, "What is drawn under the map",
              media="application/geo+json"),
    Operation("GET", "/", page.get_root, None, "The map's page, which asks for a key",
              media=_HTML),
    Operation("GET", "/static/{id}", page.get_asset, None, "What belongs to the page",
              media=_SCRIPT),
    Operation("GET", "/openapi.json", pages.get_openapi, _ALL, "This document"),
    Operation("GET", "/asyncapi.json", pages.get_asyncapi, _ALL, "The same for the WebSocket"),
    Operation("GET", "/docs", pages.get_docs, _ALL, "Everything in two tables", media=_HTML),
    Operation("GET", "/healthz", upkeep.health, None, "Whether the process is alive",
              gives="Status"),
    Operation("GET", "/readyz", upkeep.ready, None, "Whether it answers", gives="Status"),
)  # fmt: skip
