"""Documents and pages for people: what there is to ask, without anything from elsewhere."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, Response

from nearcast.server.desk import Ask, answer

__all__ = ["get_asyncapi", "get_docs", "get_openapi"]

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}code{font-size:.95em}"
)


async def get_openapi(_: Ask) -> Response:
    """`GET /openapi.json`."""
    from nearcast.server.documents import openapi

    return answer(openapi())


async def get_asyncapi(_: Ask) -> Response:
    """`GET /asyncapi.json`."""
    from nearcast.server.documents import asyncapi

    return answer(asyncapi())


async def get_docs(_: Ask) -> Response:
    """`GET /docs`: every path and every frame in two tables."""
    from nearcast.server.operations import OPERATIONS
    from nearcast.server.schemas import FRAMES_IN, FRAMES_OUT

    rows = "".join(
        f"<tr><td><code>{each.method} {escape(each.path)}</code></td><td>{escape(each.summary)}"
        f"</td><td>{', '.join(sorted(each.roles)) if each.roles else 'anybody'}</td></tr>"
        for each in OPERATIONS
    )
    frames = "".join(
        f"<tr><td><code>{name}</code></td><td>{way}</td>"
        f"<td>{', '.join(escape(member) for member in schema['properties'])}</td></tr>"
        for way, table in (("in", FRAMES_IN), ("out", FRAMES_OUT))
        for name, schema in table.items()
    )
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>nearcast</title>"
        f"<style>{_STYLE}</style><h1>nearcast</h1><p>Everything that can be asked, also as "
        f"<a href=/openapi.json>OpenAPI</a> and <a href=/asyncapi.json>AsyncAPI</a>.</p>"
        f"<h2>HTTP</h2><table><tr><th>path<th>what<th>keys of role</tr>{rows}</table>"
        f"<h2>WebSocket <code>/v1/socket</code></h2>"
        f"<table><tr><th>type<th>way<th>members</tr>{frames}</table></html>"
    )
