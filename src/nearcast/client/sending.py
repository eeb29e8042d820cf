"""Sending a call until it is answered, for who awaits it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import httpx2

from nearcast.client import retries
from nearcast.client.calls import Call
from nearcast.client.connection import answer_of, request_of, unreachable

__all__ = ["sent"]

T = TypeVar("T")


async def sent(http: httpx2.AsyncClient, call: Call[T], url: str, patience_s: float) -> T:
    """What a call comes to; what fails for the moment is tried again for so long."""
    waits = retries.delays(patience_s)
    lost = False
    while True:
        try:
            response = await http.request(**request_of(call))
        except httpx2.TransportError as error:
            delay = next(waits, None)
            if delay is None:
                raise unreachable(url, error) from error
            lost = True
        else:
            delay = retries.before(response.status_code, response.headers, waits)
            if delay is None:
                return answer_of(call, response, lost)
            lost = lost or response.status_code in retries.LOST
        await asyncio.sleep(delay)
