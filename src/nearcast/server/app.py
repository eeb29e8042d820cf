"""The application: routes made of the table of operations, errors made of problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from nearcast.errors import NearcastError
from nearcast.server.auth import ANYBODY
from nearcast.server.desk import Ask, Desk
from nearcast.server.logs import log
from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.problems import CONTENT_TYPE, Problem, problem_of
from nearcast.server.socket import make_endpoint

__all__ = ["make_app"]

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(desk: Desk, more: Sequence[BaseRoute] = ()) -> Starlette:
    """The ASGI application of a desk; whoever runs it starts and stops the desk's core."""
    return Starlette(
        routes=[*_routes(desk), WebSocketRoute("/v1/socket", make_endpoint(desk)), *more],
        exception_handlers={HTTPException: _not_ours, Exception: _at_fault},
    )


def _routes(desk: Desk) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        by_path[operation.path][operation.method] = operation
    # Longer paths first: an id may hold slashes.
    paths = sorted(by_path, key=lambda path: -path.count("/"))
    return [
        Route(
            path.replace("{id}", "{id:path}"),
            _endpoint(desk, by_path[path]),
            methods=[*by_path[path]],
        )
        for path in paths
    ]


def _endpoint(desk: Desk, methods: dict[str, Operation]) -> Endpoint:
    head, count = methods.get("GET"), desk.metrics.requests.labels

    async def endpoint(request: Request) -> Response:
        operation = methods.get(request.method) or head
        assert operation is not None  # the route has let it pass
        try:
            response = await operation.handler(_asked(desk, request, operation))
        except NearcastError as error:
            response = said(problem_of(error))
        except ClientDisconnect:
            response = Response(status_code=499)
        count(operation.method, operation.path, str(response.status_code)).inc()
        return response

    return endpoint


def _asked(desk: Desk, request: Request, operation: Operation) -> Ask:
    """Somebody asks, and may."""
    if operation.roles is None:
        return Ask(desk, request, ANYBODY)
    who = desk.principal(request)
    if who.role not in operation.roles:
        raise Problem(
            403, f"a key of role {who.role} may not {operation.method} {operation.path}",
            "role", who.role, f"use a key of role {' or '.join(sorted(operation.roles))}",
        )  # fmt: skip
    desk.limits.spend(who)
    return Ask(desk, request, who)


def said(problem: Problem) -> Response:
    """A problem as a response."""
    return Response(problem.body(), problem.status, problem.headers, CONTENT_TYPE)


async def _not_ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        problem = Problem(405, "this path has no such method", headers=error.headers or {},
                          remedy="see /openapi.json")  # fmt: skip
    else:
        problem = Problem(error.status_code, error.detail, remedy="see /openapi.json")
    return said(problem)


async def _at_fault(request: Request, error: Exception) -> Response:
    log.error("mistake", path=request.url.path, method=request.method, error=repr(error))
    return said(Problem(500, "a mistake of the server's; its log has more", remedy="report it"))
