"""What both clients do with a request and its response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, TypeVar

import httpx2

from nearcast.client.calls import Call
from nearcast.client.problems import error_of
from nearcast.errors import ServerError

__all__ = [
    "KINDS",
    "TIMEOUT_S",
    "answer_of",
    "headers_of",
    "in_batches",
    "request_of",
    "store_call",
    "unreachable",
]

T = TypeVar("T")

#: What ids may belong to, the likeliest first.
KINDS = ("subscriptions", "fences", "composites")
#: How long a server may be silent before a call is tried again.
TIMEOUT_S = 30.0
_TOGETHER = 1000


def headers_of(key: str | None) -> dict[str, str]:
    """What every request of one client says."""
    headers = {"user-agent": "nearcast-client"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


def request_of(call: Call[Any]) -> dict[str, Any]:
    """A call as arguments of an HTTP library."""
    request: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": call.query,
        "timeout": TIMEOUT_S + call.wait_s,
    }
    if call.body is not None:
        request["json"] = call.body
        request["headers"] = {"content-type": call.media}
    return request


def store_call(url: str) -> Call[str | None]:
    """Ask a server which store it writes to; None: it is of a release that does not say so."""
    return Call("GET", f"{url}/readyz", lambda said: said.get("store"), query={"store": ""})


def in_batches(many: Iterable[T]) -> Iterator[tuple[int, list[T]]]:
    """Values in their order, at most a thousand and of one type, behind the row of the first."""
    first = 0
    for _, some in groupby(many, type):
        while together := list(islice(some, _TOGETHER)):
            yield first, together
            first += len(together)


def unreachable(url: str, error: Exception) -> ServerError:
    """What to say when patience has ended."""
    why = str(error) or type(error).__name__
    return ServerError(f"{url} cannot be reached ({why}); is `nearcast serve` running there?", 0)


def answer_of(call: Call[T], response: httpx2.Response, lost: bool = False) -> T:
    """What a response says, or the error it stands for.

    `lost`: an earlier try may have been taken though its answer was lost. What it was to remove
    is gone then, as it should be.
    """
    if response.is_success:
        return call.read(response.json() if response.content else None)
    if lost and call.gone is not None and response.status_code == 404:
        return call.gone()
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    raise error_of(response.status_code, problem)
