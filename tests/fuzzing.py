"""Requests and frames that nobody would send, by seed: a little wrong, very wrong, and no HTTP."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote

from nearcast.server.operations import OPERATIONS, Operation
from nearcast.server.schemas import SCHEMAS

__all__ = ["filter_that_does_not_parse", "frames", "raw", "raw_frames", "request", "rounds"]

#: What is put in the place of something else.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.0, 1e308,
    5e-324, "", " ", "a", "\x00", "\ud7ff", "\U0010ffff", "x" * 300, "x" * 20_000, "'; DROP TABLE",
    "../..", "nck_guess", "é\u0301", "\u202e", [], {}, [[]], [None], {"": None}, [1, 2], [181, 91],
    [0, 0, 0],
    {"type": "Point"}, {"type": "Polygon", "coordinates": [[]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [0, 0], [0, 0], [0, 0]]]},
    {"type": "Around", "radius_m": -1},
    {"type": "Circle", "coordinates": [0, 0], "radius_m": 1e300},
    "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "P1Y",
    "price <", "price < 3300", "NOT " * 500 + "a = 1", "(" * 500, "a = 1 OR " * 500 + "a = 2",
    'Q(2)(STRING: a = "b")', "Q(0)()", '=|(ARITH: a = 1; 60)(ARITH: a = 2)',
)  # fmt: skip
IDS = (
    "ann",
    "bob",
    "e1",
    "s1",
    "f1",
    "c1",
    "é",
    "a/b",
    "..",
    " ",
    "%",
    "x" * 300,
    "\x00",
    "?",
    "#",
)
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "BREW")


class Request(NamedTuple):
    """An HTTP request that a library can send."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


def rounds(small: int, seconds: float) -> Iterator[int]:
    """Seeds: so many, or if `seconds` are given as many as there is time for."""
    until = monotonic() + seconds
    seed = 0
    while monotonic() < until if seconds else seed < small:
        yield seed
        seed += 1


def spoiled(rng: random.Random, value: Any, chance: float = 0.25) -> Any:
    """A value of which something is otherwise."""
    if rng.random() < chance:
        return deepcopy(rng.choice(ODD))
    if isinstance(value, dict):
        made = {name: spoiled(rng, each, chance / 2) for name, each in value.items()}
        dice = rng.random()
        if made and dice < 0.15:
            del made[rng.choice([*made])]
        elif dice < 0.3:
            made[rng.choice(("id", "type", "extra", "", "where", "expires", "ref"))] = deepcopy(
                rng.choice(ODD)
            )
        return made
    if isinstance(value, list):
        made_list = [spoiled(rng, each, chance / 2) for each in value]
        return made_list * rng.choice((1, 1, 2)) if rng.random() < 0.9 else []
    return value


def _nested(rng: random.Random) -> bytes:
    depth = rng.choice((63, 64, 65, 66, 100, 5000, 50_000))
    opens, closes = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return opens * depth + b"1" + closes * rng.choice((depth, depth, 0))


def _bitten(rng: random.Random, data: bytes) -> bytes:
    """Some bytes flipped, lost, doubled or added."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                del made[at : at + rng.choice((1, 3, 30))]
            case 2:
                made[at:at] = made[at : at + 20]
            case 3:
                made[at:at] = rng.randbytes(rng.choice((1, 4)))
            case _:
                del made[at:]
    return bytes(made)


def body(rng: random.Random, takes: str) -> bytes:
    """What an operation takes, more or less."""
    dice = rng.random()
    if dice < 0.05:
        return _nested(rng)
    if dice < 0.08:
        return rng.randbytes(rng.randrange(100))
    example = SCHEMAS[takes].get("example")
    value = {"file": "relative.db"} if takes == "Backup" else example
    text = json.dumps(spoiled(rng, value)).encode()
    return _bitten(rng, text) if rng.random() < 0.2 else text


def _query(rng: random.Random, operation: Operation) -> str:
    said = []
    for name in operation.query:
        if rng.random() < 0.5:
            value = rng.choice(("", "0", "1", "-1", "999", "1e9", "nan", "x", "0,0,1,1", "9" * 40,
                                "a = 1", "a <", "\x00", "é"))  # fmt: skip
            if name == "wait":
                value = rng.choice(("0", "0.01", "-1", "soon"))
            said.append(f"{name.removesuffix('_id')}={quote(value)}")
    return f"?{'&'.join(said)}" if said else ""


def request(rng: random.Random) -> Request:
    """Anything that the documents name, spoiled; never a stream, which has no end."""
    operation = rng.choice([each for each in OPERATIONS if not each.path.endswith("/stream")])
    path = operation.path.replace("{id}", quote(rng.choice(IDS), safe=rng.choice(("", "/"))))
    headers = {}
    if rng.random() < 0.1:
        headers["Idempotency-Key"] = rng.choice(("", "k", "x" * 300, "é"))
    if rng.random() < 0.1:
        headers["Content-Type"] = rng.choice(("text/plain", "application/xml", "nonsense", ""))
    if rng.random() < 0.03:
        headers["Authorization"] = rng.choice(("Bearer", "Bearer nck_guess", "Basic eDp5", "é"))
    method = rng.choice(_METHODS) if rng.random() < 0.1 else operation.method
    content = None if operation.takes is None else body(rng, operation.takes)
    if method == "DELETE" and path.startswith("/v1/keys"):
        path = "/v1/keys/nobody"
    return Request(method, path + _query(rng, operation), content, headers)


def raw(rng: random.Random, key: str) -> bytes:
    """What goes over a plain socket: HTTP with bytes that are otherwise, or none at all."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(1, 2000))
    said = request(rng)
    content = said.body or b""
    length = rng.choice((str(len(content)), str(len(content)), "0", "-1", "1e3", "9" * 30, "nan"))
    lines = [
        f"{said.method} {said.path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
    ]
    lines += [f"{name}: {value}" for name, value in said.headers.items()]
    if rng.random() < 0.3:
        lines.append("Transfer-Encoding: chunked")
        content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    if rng.random() < 0.8:
        lines.append(f"Content-Length: {length}")
    if rng.random() < 0.2:
        lines.append(rng.choice((
            "Upgrade: websocket\r\nConnection: upgrade", "Expect: 100-continue",
            "Connection: close", "Connection: upgrade\r\nUpgrade: h2c", "Range: bytes=0-1",
            "X: " + "x" * 3000,
        )))  # fmt: skip
    text = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + content
    return _bitten(rng, text) if rng.random() < 0.6 else text


def frames(rng: random.Random, hello: dict[str, Any]) -> Iterator[bytes | str]:
    """What is said over a socket, in an order that may be wrong."""
    examples: list[dict[str, Any]] = [
        hello,
        {"type": "place", "coordinates": [8.5, 47.4], "epoch": rng.randrange(4)},
        {"type": "ack", "upto": rng.randrange(3)},
        {"type": "publish", "event": SCHEMAS["Feature"]["example"]},
        {"type": "publish", "events": [SCHEMAS["CloudEvent"]["example"]] * 2},
        {"type": "retract", "id": "e1"},
        {"type": "subscribe", "subscription": SCHEMAS["Subscription"]["example"] | {"id": "s1"}},
        {"type": "fence", "fence": SCHEMAS["Fence"]["example"] | {"id": "f1"}},
        {"type": "composite", "composite": SCHEMAS["Composite"]["example"] | {"id": "c1"}},
        {"type": "unsubscribe", "id": "s1"},
        {"type": "ping"},
    ]
    if rng.random() < 0.8:
        yield json.dumps(hello)
    for _ in range(rng.randrange(12)):
        frame = rng.choice(examples) | ({"ref": rng.randrange(9)} if rng.random() < 0.7 else {})
        text = json.dumps(spoiled(rng, frame, 0.1) if rng.random() < 0.7 else frame).encode()
        dice = rng.random()
        if dice < 0.1:
            yield _bitten(rng, text)
        elif dice < 0.15:
            yield rng.randbytes(rng.randrange(200))
        elif dice < 0.18:
            yield _nested(rng)
        elif dice < 0.3:
            yield text
        else:
            yield text.decode("utf-8", "replace")


def raw_frames(rng: random.Random) -> bytes:
    """Frames as bytes: wrong opcodes, lengths that are not true, pieces out of order, no mask."""
    made = b""
    for _ in range(rng.randrange(1, 6)):
        opcode = rng.choice((0, 1, 2, 3, 7, 8, 9, 10, 11, 15))
        payload = rng.choice(
            (b"", b"{}", b'{"type":"ping"}', rng.randbytes(130), b"\x03\xe8", b"\xff")
        )
        first = opcode | rng.choice((0x80, 0x80, 0, 0xC0))
        masked = 0x80 if rng.random() < 0.8 else 0
        dice = rng.random()
        if dice < 0.1:
            size = bytes((masked | 127,)) + rng.choice((1 << 62, 1 << 40, 20 << 20)).to_bytes(8)
        elif dice < 0.2 or len(payload) > 125:
            size = bytes((masked | 126,)) + len(payload).to_bytes(2)
        else:
            size = bytes((masked | len(payload),))
        mask = rng.randbytes(4) if masked else b""
        if masked:
            payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        made += bytes((first,)) + size + mask + payload
    return made


def filter_that_does_not_parse(rng: random.Random) -> str:
    """CQL2 with something missing, doubled or out of place."""
    parts = ["price", "<", "3300", "AND", "brand", "=", "'Huawei'", "OR", "NOT", "(", ")", "IN",
             "BETWEEN", "LIKE", "IS NULL", ",", "'", "\"", "S_INTERSECTS(", "A_CONTAINS(", "\x00",
             "1e", "POINT(1", "é", "--", ";", "%"]  # fmt: skip
    text = " ".join(rng.choice(parts) for _ in range(rng.randrange(1, 12)))
    return text + rng.choice((" <", " AND", " (", " '", " BETWEEN 1", " IN (", ""))
