"""Notifications as webhooks: POST requests, signed as Standard Webhooks 1.0 has it.

Each is one request whose body is the notification. By default one is on its way at a time, so that
they arrive in order; with `flight` more are, and they need not.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import math
import re
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

from nearcast import __version__
from nearcast.errors import ValidationError
from nearcast.server.settings import Settings
from nearcast.server.sinks.addresses import Allowed, networks
from nearcast.server.sinks.http import Answer, Connection, LostError, connect
from nearcast.server.sinks.names import RefusedError
from nearcast.server.sinks.ports import (
    DELIVERED,
    Letter,
    Means,
    Outcome,
    Terms,
    gone,
    never,
    retry,
)
from nearcast.storage.sinks import Sink

__all__ = ["Webhook", "signature"]

_KNOWN = ("method", "headers", "secret", "timeout", "flight")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Ours, the connection's, or another's business.
_OURS = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding",
    "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "user-agent",
    "proxy-authorization", "proxy-connection",
})  # fmt: skip
_MOST_HEADERS, _MOST_BYTES = 32, 8192
_SECRET = "whsec_"
_PORTS = {"http": 80, "https": 443}
_IDLE_S = 15.0  # after which a connection that nobody uses is closed
_REST_S = 0.25  # for the rest of an answer whose head has come
_ITS_OWN = (413, 422)  # of this letter, and not of the sink


def signature(secret: bytes, id: str, timestamp: int, body: bytes) -> bytes:
    """Of a webhook, as its header has it."""
    said = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return b"v1," + base64.b64encode(hmac.digest(secret, said, "sha256"))


def _key(secret: str) -> bytes:
    """The bytes that a secret stands for."""
    try:
        if not secret.startswith(_SECRET):
            raise ValueError
        found = base64.b64decode(secret.removeprefix(_SECRET), validate=True)
        if not 24 <= len(found) <= 64:
            raise ValueError
    except (ValueError, binascii.Error):
        raise ValidationError(
            "protocolsettings.secret", "…", "give whsec_ and 24 to 64 random bytes in base64, or "
            "leave it out to have one made up",
        ) from None  # fmt: skip
    return found


class Webhook:
    """The protocol."""

    name = "HTTP"
    schemes: tuple[str, ...] = ("https", "http")

    def check(self, uri: str, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """What stands in `protocolsettings`, and whether the URI may be one at all."""
        _check_host(uri, settings)
        for name in given:
            if name not in _KNOWN:
                known = ", ".join(_KNOWN)
                raise ValidationError(f"protocolsettings.{name}", given[name], f"known are {known}")
        found: dict[str, Any] = {}
        if given.get("method") not in (None, "POST"):
            raise ValidationError("protocolsettings.method", given["method"], "webhooks are POSTed")
        if given.get("secret") is not None:
            secret = given["secret"]
            _key(secret if isinstance(secret, str) else "")
            found["secret"] = secret
        if given.get("headers"):
            found["headers"] = _headers(given["headers"])
        if given.get("timeout") is not None:
            most = settings.sink_timeout_s
            found["timeout"] = _number(given["timeout"], "timeout", most)
        if given.get("flight") is not None:
            flight = given["flight"]
            if isinstance(flight, bool) or not isinstance(flight, int):
                flight = math.nan
            found["flight"] = int(_number(flight, "flight", settings.sink_flight, least=1))
        return found

    def complete(
        self, given: Mapping[str, Any], known: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A secret is made up where none is given or known; headers without a value keep theirs."""
        made, told = dict(given), dict[str, Any]()
        before = known or {}
        if "headers" in made:
            values = before.get("headers", {})
            made["headers"] = {
                name: values.get(name) if value is None else value
                for name, value in made["headers"].items()
            }
            for name, value in made["headers"].items():
                if value is None:
                    raise ValidationError(
                        f"protocolsettings.headers.{name}", None, "it has no value yet: give one"
                    )
        if "secret" not in made:
            made["secret"] = before.get("secret")
        if made["secret"] is None:
            made["secret"] = _SECRET + base64.b64encode(token_bytes(32)).decode()
            told["secret"] = made["secret"]
        return made, told

    def shown(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Without the secret, and headers without their values."""
        said = {name: value for name, value in settings.items() if name != "secret"}
        if "headers" in said:
            said["headers"] = dict.fromkeys(said["headers"])
        return said

    def open(self, sink: Sink, means: Means, tenant: str) -> Hook:  # noqa: ARG002
        """A way there."""
        return Hook(sink, means)


def _check_host(uri: str, settings: Settings) -> None:
    """Refuse at once what can be seen to be private; names are looked up when they are used."""
    host = urlsplit(uri).hostname or ""
    allowed = Allowed(settings.sink_private, networks(settings.sink_allow))
    try:
        refused = not allowed.takes(str(ip_address(host)))
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
        refused = local and not (allowed.takes("127.0.0.1") or allowed.takes("::1"))
    if refused:
        raise ValidationError(
            "sink", uri, "this is a private address: give a public one, or have whoever keeps the "
            "server allow it (sink_allow, sink_private)",
        )  # fmt: skip


def _headers(given: Any) -> dict[str, str | None]:
    where = "protocolsettings.headers"
    if not isinstance(given, Mapping) or len(given) > _MOST_HEADERS:
        raise ValidationError(where, "…", f"give an object of at most {_MOST_HEADERS} headers")
    size = 0
    for name, value in given.items():
        if not _TOKEN.fullmatch(name):
            raise ValidationError(f"{where}.{name}", "…", "give a name as HTTP has them")
        if name.lower() in _OURS or name.lower().startswith("webhook-"):
            raise ValidationError(f"{where}.{name}", "…", "leave it out: the server sets it")
        if value is None:
            continue
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValidationError(f"{where}.{name}", "…", "give printable ASCII text")
        size += len(name) + len(value)
    if size > _MOST_BYTES:
        raise ValidationError(where, "…", f"give at most {_MOST_BYTES} bytes of headers")
    return dict(given)


def _number(given: Any, name: str, most: float, *, least: float = 0) -> float:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not least <= given <= most or not given:
        raise ValidationError(
            f"protocolsettings.{name}", given, f"give a number up to {most:g}, the server's bound"
        )
    return float(given)


@cache
def _trusting() -> ssl.SSLContext:
    """With the system's authorities, once for all."""
    return ssl.create_default_context()


class Hook:
    """The way to one webhook: its connections, kept for as long as they are used."""

    def __init__(self, sink: Sink, means: Means) -> None:
        settings = sink.settings
        self._means = means
        self._timeout_s: float = settings.get("timeout", means.settings.sink_timeout_s)
        self.terms = Terms(flight=settings.get("flight", 1))
        self._secret = _key(settings["secret"])
        parts = urlsplit(sink.uri)
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme.lower()]
        self._secure = parts.scheme.lower() == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {path} HTTP/1.1", f"Host: {parts.netloc}", f"User-Agent: nearcast/{__version__}",
            "Content-Type: application/json",
            *(f"{name}: {value}" for name, value in settings.get("headers", {}).items()),
        ]  # fmt: skip
        self._head = "".join(f"{line}\r\n" for line in lines).encode("ascii")
        self._idle: list[Connection] = []
        self._last_used = 0.0
        self._closing: asyncio.TimerHandle | None = None

    async def begin(self, upto: int, last: int) -> int:  # noqa: ARG002
        """Webhooks know of no numbers."""
        return upto

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """One request a letter; the runner gives one."""
        return [await self._send(letter) for letter in letters]

    async def _send(self, letter: Letter) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._asked(letter)
        except TimeoutError:
            return retry(f"no answer within {self._timeout_s:g} s")
        except ssl.SSLError as error:
            return retry(f"no secure connection ({error.reason or error})")
        except (RefusedError, LostError) as error:
            return retry(str(error))
        except OSError as error:
            return retry(f"no connection ({error.strerror or error})")
        return self._outcome(answer)

    def _outcome(self, answer: Answer) -> Outcome:
        """As Standard Webhooks advises."""
        status = answer.status
        if 200 <= status < 300:
            return DELIVERED
        why = f"answered {status}"
        if status == 410:
            return gone(f"{why}: it wants nothing any more")
        if status in _ITS_OWN:
            return never(f"{why}: it does not take this one")
        if 300 <= status < 400:
            why += ": redirects are not followed, name the new place instead"
        return retry(why, answer.wait_s(self._means.now()))

    async def _asked(self, letter: Letter) -> Answer:
        while True:
            connection = await self._connection()
            again = connection.uses > 0
            try:
                answer = await connection.ask(self._request(letter))
            except LostError as error:
                connection.close()
                if again and not error.heard:
                    continue  # it was closed for being idle: that says nothing of the sink
                raise
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return answer

    def _request(self, letter: Letter) -> bytes:
        now = int(self._means.now())
        signed = signature(self._secret, letter.id, now, letter.text)
        return (
            b"%bwebhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: %b\r\n"
            b"Content-Length: %d\r\n\r\n%b"
        ) % (self._head, letter.id.encode(), now, signed, len(letter.text), letter.text)

    async def _connection(self) -> Connection:
        while self._idle:
            found = self._idle.pop()
            if found.usable or await found.finished(_REST_S):
                return found
            found.close()
        error: OSError | None = None
        for address in await self._means.names.addresses(self._host, self._port):
            context = _trusting() if self._secure else None
            try:
                return await connect(address, self._port, self._host, context)
            except ssl.SSLError:
                raise
            except OSError as failed:
                error = failed
        raise error or OSError("its name has no address")

    def _keep(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._last_used = loop.time()
        self._idle.append(connection)
        if self._closing is None:
            self._closing = loop.call_later(_IDLE_S, self._tidy)

    def _tidy(self) -> None:
        """Close what nobody has used lately."""
        loop = asyncio.get_running_loop()
        self._closing = None
        left = self._last_used + _IDLE_S - loop.time()
        if left > 0:
            self._closing = loop.call_later(left, self._tidy)
            return
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """Let go of the connections."""
        if self._closing is not None:
            self._closing.cancel()
        while self._idle:
            self._idle.pop().close()
