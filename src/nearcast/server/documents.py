"""The OpenAPI and AsyncAPI documents, made from the tables that the server itself works by."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from nearcast import __version__
from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.problems import CONTENT_TYPE, TITLES
from nearcast.server.schemas import (
    FRAMES_IN,
    FRAMES_OUT,
    SCHEMAS,
    WATCH_IN,
    WATCH_OUT,
    Schema,
    ref,
)

__all__ = ["asyncapi", "openapi"]

_STRING = {"schema": {"type": "string"}}
_ABOUT = "Tells the right people about the right things, near them, in time."
_QUERY: dict[str, dict[str, Any]] = {
    "limit": {"schema": {"type": "integer", "minimum": 1}, "description": "at most 1000"},
    "after": {"schema": {"type": "integer", "minimum": 0}, "description": "where the last ended"},
    "after_id": {"schema": {"type": "string"}, "description": "the last id"},
    "wait": {
        "schema": {"type": "number", "minimum": 0, "maximum": 60},
        "description": "seconds to wait for something",
    },
    "bbox": {"schema": {"type": "string"}, "description": "west,south,east,north"},
    "where": {"schema": {"type": "string"}, "description": "CQL2"},
    "source": {"schema": {"type": "string"}, "description": "of several that have the id"},
    "sink": {"schema": {"type": "integer", "minimum": 1}, "description": "the id of a sink"},
    "subscriber": {"schema": {"type": "string"}, "description": "whose (admin)"},
    "line": {"schema": {"type": "integer", "minimum": 0}, "description": "its number"},
    "epoch": {"schema": {"type": "integer", "minimum": 1}, "description": "the report's number"},
}


def openapi() -> dict[str, Any]:
    """What can be asked over HTTP."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nearcast", "version": __version__, "description": _ABOUT},
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", operation.path.removeprefix("/v1")).strip("_")
    parameters: list[dict[str, Any]] = []
    if "{id}" in operation.path:
        schema = {"type": "string", "minLength": 1}
        parameters.append({"name": "id", "in": "path", "required": True, "schema": schema})
    for each in operation.query:
        parameters.append({"name": each.removesuffix("_id"), "in": "query"} | _QUERY[each])
    if operation.method == "POST" and operation.path in _NAMED:
        schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    made: dict[str, Any] = {
        "operationId": f"{operation.method.lower()}_{name}",
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation),
    }
    if operation.roles is None:
        made["security"] = []
    else:
        made["x-roles"] = sorted(operation.roles)
    if operation.takes is not None:
        example = SCHEMAS[operation.takes].get("example")
        body = {"schema": ref(operation.takes), "example": example}
        made["requestBody"] = {"required": True, "content": {"application/json": body}}
    return made


_NAMED = ("/v1/subscriptions", "/v1/fences", "/v1/composites")


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in operation.statuses:
        said: dict[str, Any] = {"description": "done"}
        if operation.gives is not None:
            shown = {"schema": ref(operation.gives)}
            example = SCHEMAS[operation.gives].get("example")
            said["content"] = {operation.media: shown | {"example": example}}
        elif status != 204:
            said["content"] = {operation.media: {} if "json" in operation.media else _STRING}
        found[str(status)] = said
    for status in operation.refusals:
        _, title = TITLES[status]
        problem = {CONTENT_TYPE: {"schema": ref("Problem")}}
        found[str(status)] = {"description": title, "content": problem}
    return found


class _Channel(NamedTuple):
    name: str
    about: str
    taken: dict[str, Schema]
    sent: dict[str, Schema]


_CHANNELS = (
    _Channel("socket", "WebSocket, subprotocol nearcast.v1; the first frame is hello",
             FRAMES_IN, FRAMES_OUT),
    _Channel("watch", "WebSocket of the map, subprotocol nearcast.watch.v1; the first frame is "
             "hello, and binary frames are places", WATCH_IN, WATCH_OUT),
)  # fmt: skip


def asyncapi() -> dict[str, Any]:
    """What is said over the two WebSockets."""
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for channel in _CHANNELS:
        mark = "" if channel.name == "socket" else f"{channel.name}."
        ways = {"take": ("receive", channel.taken), "send": ("send", channel.sent)}
        links: dict[str, Any] = {}
        for verb, (action, table) in ways.items():
            names = [mark + name for name in table]
            for name, (kind, schema) in zip(names, table.items(), strict=True):
                answered = channel.name == "socket" and verb == "take"
                messages[name] = _message(kind, schema, answered=answered)
                links[name] = {"$ref": f"#/components/messages/{name}"}
            operations[mark + verb] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{channel.name}"},
                "messages": [{"$ref": f"#/channels/{channel.name}/messages/{n}"} for n in names],
            }
        about = {"address": f"/v1/{channel.name}", "description": channel.about}
        channels[channel.name] = about | {"messages": links}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "nearcast", "version": __version__, "description": _ABOUT},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": SCHEMAS},
    }


def _message(name: str, schema: dict[str, Any], *, answered: bool) -> dict[str, Any]:
    members = {"type": {"const": name}} | schema["properties"]
    if answered:
        members["ref"] = {"type": ["string", "number", "null"]}
    payload = schema | {
        "properties": members,
        "required": ["type", *schema.get("required", ())],
    }
    return {"name": name, "contentType": "application/json", "payload": payload}
