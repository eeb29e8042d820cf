"""The application: routes made of the table of operations, errors made of problems.

An ASGI callable of its own: a path is found in a dictionary, or by one expression if it has an
id in it, where Starlette's router and its middleware took 40 µs of every request.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn.protocols.utils import ClientDisconnected

from nearcast.errors import NearcastError
from nearcast.server.auth import ANYBODY
from nearcast.server.desk import Ask, Desk
from nearcast.server.lines import room_of
from nearcast.server.logs import log
from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.problems import CONTENT_TYPE, Problem, mistake, problem_of, unavailable
from nearcast.server.socket import denied, make_endpoint
from nearcast.server.watch import make_watch

__all__ = ["App"]

_SOCKET, _WATCH = "/v1/socket", "/v1/watch"
_GOING = 1001
Methods = dict[str, Operation]


class _Pattern(NamedTuple):
    """A path with an id, which may hold slashes."""

    expression: re.Pattern[str]
    methods: Methods


class App:
    """The ASGI application of a desk; whoever runs it starts and stops the desk's core."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._sockets = {_SOCKET: make_endpoint(desk), _WATCH: make_watch(desk)}
        self._plain: dict[str, Methods] = {}
        for operation in OPERATIONS:
            self._plain.setdefault(operation.path, {})[operation.method] = operation
        with_ids = [path for path in self._plain if "{id}" in path]
        self._patterns = [
            _Pattern(
                re.compile(re.escape(path).replace(r"\{id\}", "(.+)"), re.DOTALL),
                self._plain.pop(path),
            )
            for path in sorted(with_ids, key=len, reverse=True)  # /…/{id}/place before /…/{id}
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket."""
        if scope["type"] == "websocket":
            socket = WebSocket(scope, receive, send)
            endpoint = self._sockets.get(scope["path"])
            if endpoint is not None:
                await endpoint(socket)
                await self._part(socket)
            else:
                await denied(socket, _nowhere())
            return
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _part(self, socket: WebSocket) -> None:
        """Say goodbye where the server stops, to whoever reads."""
        room = room_of(socket.scope)
        if (
            self._desk.feeds.ended
            and socket.application_state is WebSocketState.CONNECTED
            and (room is None or room.is_set())
        ):
            with suppress(WebSocketDisconnect, ClientDisconnected, RuntimeError):
                await socket.close(_GOING, "the server stops")

    async def _answer(self, request: Request) -> Response:
        operation: Operation | None = None
        try:
            operation = self._found(request)
            response = await operation.handler(self._asked(request, operation))
        except NearcastError as error:
            response = said(problem_of(error))
        except ClientDisconnect:
            response = Response(status_code=499)
        except asyncio.CancelledError:  # the server stops, and does not wait any longer
            why = "it stops, and this was not done yet: nobody knows whether it will be"
            response = said(unavailable(why, "ask again, under the same id"))
        except Exception as error:
            log.error("mistake", path=request.url.path, method=request.method, error=repr(error))
            response = said(mistake())
        if operation is not None:
            key = operation.method, operation.path, response.status_code
            answered = self._desk.metrics.answered
            answered[key] = answered.get(key, 0) + 1
        return response

    def _found(self, request: Request) -> Operation:
        """What is asked for; 404 or 405 if there is no such thing."""
        path = request.scope["path"]
        method = "GET" if request.method == "HEAD" else request.method
        methods = self._plain.get(path)
        if methods is not None:
            operation = methods.get(method)
            if operation is None:
                raise _no_method(request, methods)
            return operation
        others: Methods = {}
        for pattern in self._patterns:
            found = pattern.expression.fullmatch(path)
            if found is None:
                continue
            if method in pattern.methods:
                request.scope["path_params"] = {"id": found[1]}
                return pattern.methods[method]
            others |= pattern.methods  # an id may end as that path does: /…/{id} comes later
        if others:
            raise _no_method(request, others)
        raise _no_socket() if path in self._sockets else _nowhere()

    def _asked(self, request: Request, operation: Operation) -> Ask:
        """Somebody asks, and may."""
        desk = self._desk
        if operation.roles is None:
            return Ask(desk, request, ANYBODY)
        who = desk.principal(request)
        if who.role not in operation.roles:
            raise Problem(
                403, f"a key of role {who.role} may not {operation.method} {operation.path}",
                "role", who.role, f"use a key of role {' or '.join(sorted(operation.roles))}",
            )  # fmt: skip
        desk.tenants.count("requests", who.tenant)
        desk.limits.spend(who)
        return Ask(desk, request, who)


def _nowhere() -> Problem:
    return Problem(404, "there is no such path", remedy="see /openapi.json")


def _no_method(request: Request, known: Methods) -> Problem:
    return Problem(405, "this path has no such method", "method", request.method,
                   "see /openapi.json", headers={"Allow": ", ".join(known)})  # fmt: skip


def _no_socket() -> Problem:
    return Problem(426, "this path speaks WebSocket", "upgrade", None,
                   "open a WebSocket (RFC 6455); see /asyncapi.json",
                   headers={"Upgrade": "websocket"})  # fmt: skip


def said(problem: Problem) -> Response:
    """A problem as a response."""
    return Response(problem.body(), problem.status, problem.headers, CONTENT_TYPE)
