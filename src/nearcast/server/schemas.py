"""JSON schemas of what goes in and out, each with an example; OpenAPI and AsyncAPI share them."""

from __future__ import annotations

from typing import Any

from nearcast.cpsl.composite import MODES
from nearcast.model.fences import TRANSITIONS
from nearcast.model.terms import MEANWHILE
from nearcast.server.sinks.protocols import PROTOCOLS
from nearcast.storage.keys import ROLES

__all__ = ["FRAMES_IN", "FRAMES_OUT", "SCHEMAS", "WATCH_IN", "WATCH_OUT", "Schema", "ref"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SEQ: Schema = {"type": "integer", "minimum": 1, "maximum": 2**53}
_NUMBER: Schema = {"type": "number"}
_POSITION: Schema = {
    "type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2,
}  # fmt: skip
_WORDS: Schema = {"type": "array", "items": {"type": "string"}}


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: tuple[str, ...] = (), /, *, open: bool = False, **members: Any) -> Schema:
    made: Schema = {"type": "object", "properties": members}
    if required:
        made["required"] = [*required]
    if not open:
        made["additionalProperties"] = False
    return made


def _of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_PROPERTIES: Schema = {
    "type": ["object", "null"],
    "additionalProperties": {"type": ["number", "string", "boolean", "null"]},
}
_GEOMETRY: Schema = _or_null(ref("Geometry"))
_OFFER = {"brand": "Huawei", "price": 3200}
_AT = {"type": "Point", "coordinates": [121.44, 36.16]}
_FEATURE = {
    "type": "Feature", "id": "e1", "geometry": _AT, "properties": _OFFER, "keywords": ["sale"],
}  # fmt: skip
_EVENT = {
    "specversion": "1.0", "id": "e1", "source": "/shops/7", "type": "nearcast.event",
    "datacontenttype": "application/geo+json",
    "data": {"type": "Feature", "geometry": _AT, "properties": _OFFER, "keywords": ["sale"]},
}  # fmt: skip
_CIRCLE = {"type": "Circle", "coordinates": [121.4419, 36.1628], "radius_m": 1000}
_TOLD = {
    "seq": 1, "subscription": "s1", "subscriber": "ann", "at": "2026-03-01T12:00:00Z",
    "event": _EVENT, "transition": None, "object": None, "parts": None,
}  # fmt: skip

_SINK = {
    "id": "1", "subscriber": "ann", "sink": "https://example.org/hook", "protocol": "HTTP",
    "protocolsettings": {"timeout": 5}, "state": "closed", "why": None, "upto": 12, "last": 12,
    "waiting": 0, "delivered": 11, "failed": 16, "retried": 15, "dead": 1, "lost": 0,
    "failures": 0, "again": None,
}  # fmt: skip
_DEAD = {
    "id": "7", "subscriber": "ann", "sink_id": "1", "sink": "https://example.org/hook",
    "protocol": "HTTP", "subscription": "s1", "seq": 1, "why": "answered 500", "tries": 16,
    "at": "2026-03-01T18:00:00Z", "replaying": False, "notification": _TOLD,
}  # fmt: skip
_TO: dict[str, Any] = {
    "sink": {"type": "string", "format": "uri", "maxLength": 2048},
    "protocol": {"enum": [*PROTOCOLS]},
    "protocolsettings": _object(open=True),
}
_STATUS: Schema = {"enum": ["ACTIVE", "INACTIVE"]}
_CONFIG: Schema = _object(
    subscriptionExpireTime=_TIME,
    subscriptionMaxEvents={"type": "integer", "minimum": 1, "maximum": 2**53 - 1},
    initialEvent={"type": "boolean"},
    quietHours=_object(
        ("start", "end"), start=_TEXT, end=_TEXT, zone=_TEXT, keep={"type": "boolean"}
    ),
    digest={"type": ["string", "number"]},
    whilePaused={"enum": [*MEANWHILE]},
)
_ASKED: dict[str, Any] = {
    "id": _TEXT,
    "types": {"const": ["nearcast.event"]},
    "subscriber": _TEXT,
    "filters": _of(_object(open=True)),
    "keywords": _WORDS,
    "region": ref("Region"),
    "config": _CONFIG,
    "status": _STATUS,
    **_TO,
}

SCHEMAS: dict[str, Schema] = {
    "Geometry": {
        "oneOf": [
            _object(("type", "coordinates"), type={"const": "Point"}, coordinates=_POSITION),
            _object(
                ("type", "coordinates"), type={"enum": ["Polygon", "MultiPolygon"]},
                coordinates={"type": "array"}, bbox={"type": "array", "items": _NUMBER},
            ),
        ],
        "example": _AT,
    },
    "Region": {
        "oneOf": [
            _object(
                ("type", "coordinates", "radius_m"), type={"const": "Circle"},
                coordinates=_POSITION, radius_m=_NUMBER,
            ),
            _object(("type", "radius_m"), open=True, type={"const": "Around"}, radius_m=_NUMBER),
            _object(
                ("type", "coordinates"), type={"enum": ["Polygon", "MultiPolygon"]},
                coordinates={"type": "array"}, bbox={"type": "array", "items": _NUMBER},
            ),
            {"type": "string", "description": "WKT"},
        ],
        "example": _CIRCLE,
    },
    "Feature": {
        **_object(
            ("type", "id"), type={"const": "Feature"},
            id={"anyOf": [_TEXT, {"type": "integer"}]}, geometry=_GEOMETRY,
            properties=_PROPERTIES, keywords=_WORDS, text={"type": "string"},
            source=_TEXT, start=_TIME, time=_TIME, expirytime=_TIME,
            bbox={"type": "array", "items": _NUMBER},
        ),
        "example": _FEATURE,
    },
    "CloudEvent": {
        **_object(
            ("specversion", "id", "source", "type", "data"), open=True,
            specversion={"const": "1.0"}, id=_TEXT, source=_TEXT, type=_TEXT, time=_TIME,
            expirytime=_TIME, datacontenttype={"type": "string"},
            data=_object(
                ("type",), type={"const": "Feature"}, geometry=_GEOMETRY, properties=_PROPERTIES,
                keywords=_WORDS, text={"type": "string"}, start=_TIME,
                bbox={"type": "array", "items": _NUMBER},
            ),
        ),
        "example": _EVENT,
    },
    "FeatureCollection": {
        **_object(
            ("type", "features"), open=True, type={"const": "FeatureCollection"},
            features=_of(ref("Feature")), next=_COUNT,
        ),
        "example": {"type": "FeatureCollection", "features": [_FEATURE]},
    },
    "Events": {
        "anyOf": [
            ref("CloudEvent"), ref("Feature"), ref("FeatureCollection"),
            _of({"anyOf": [ref("CloudEvent"), ref("Feature")]}),
        ],
        "example": _FEATURE,
    },
    "OneEvent": {"anyOf": [ref("CloudEvent"), ref("Feature")], "example": _FEATURE},
    "Published": {
        **_object(
            ("accepted", "repeated", "offset"), accepted=_COUNT, repeated=_COUNT, offset=_COUNT
        ),
        "example": {"accepted": 1, "repeated": 0, "offset": 1},
    },
    "Silenced": {
        **_object(
            ("accepted", "repeated", "offset", "epoch", "safe_rectangle"), accepted=_COUNT,
            repeated=_COUNT, offset=_COUNT, epoch=_COUNT, safe_rectangle=_or_null(_of(_NUMBER)),
        ),
        "example": {"accepted": 1, "repeated": 0, "offset": 1, "epoch": 1,
                    "safe_rectangle": [121.4, 36.1, 121.5, 36.2]},
    },
    "Log": {
        **_object(
            ("events", "next", "last", "forgotten"), events=_of(ref("CloudEvent")), next=_COUNT,
            last=_COUNT, forgotten=_COUNT,
        ),
        "example": {"events": [_EVENT | {"offset": 1}], "next": 1, "last": 1, "forgotten": 0},
    },
    "Changes": {
        **_object(("changes", "next", "last", "forgotten"), changes=_of(ref("Change")),
                  next=_COUNT, last=_COUNT, forgotten=_COUNT),
        "example": {"changes": [{"seq": 1, "offset": 0, "id": "s1", "op": "remove"}],
                    "next": 1, "last": 1, "forgotten": 0},
    },
    "Change": {
        **_object(("seq", "offset", "id", "op"), seq=_COUNT, offset=_COUNT, id=_TEXT,
                  op={"enum": ["update", "remove"]}, subscription=ref("Subscription")),
        "example": {"seq": 1, "offset": 0, "id": "s1", "op": "remove"},
    },
    "Subscription": {
        **_object(**_ASKED),
        "example": {
            "subscriber": "ann", "filters": [{"cql2": "brand = 'Huawei' AND price < 3300"}],
            "keywords": ["sale"], "region": _CIRCLE,
        },
    },
    "Fence": {
        **_object(
            ("object", "region"), **_ASKED, object=_TEXT,
            on=_of({"enum": [*TRANSITIONS]}), margin_m={"type": "number", "minimum": 0},
            dwell={"type": ["string", "number"]}, lost={"type": ["string", "number"]},
        ),
        "example": {
            "subscriber": "ops", "object": "truck", "region": _CIRCLE, "on": ["enter", "exit"],
        },
    },
    "Composite": {
        **_object(
            ("text",), id=_TEXT, subscriber=_TEXT, text=_TEXT, consume={"enum": [*MODES]},
            config=_CONFIG, status=_STATUS, **_TO,
        ),
        "example": {"subscriber": "ops", "text": 'Q(3)(STRING: type = "alarm")'},
    },
    "NewSubscription": {
        "anyOf": [ref("Subscription"), _of({"allOf": [ref("Subscription"), {"required": ["id"]}]})],
        "example": {"subscriber": "ann", "filters": [{"cql2": "price < 3300"}]},
    },
    "NewFence": {
        "anyOf": [ref("Fence"), _of({"allOf": [ref("Fence"), {"required": ["id"]}]})],
        "example": {"subscriber": "ops", "object": "truck", "region": _CIRCLE},
    },
    "NewlyBegun": {
        "anyOf": [
            ref("Begun"), _object(("accepted", "repeated"), accepted=_COUNT, repeated=_COUNT),
        ],
        "example": {"id": "s1", "created": True, "notifications": []},
    },
    "Begun": {
        **_object(
            ("id", "created"), id=_TEXT, created={"type": "boolean"},
            notifications=_of(ref("Notification")), protocolsettings=_object(open=True),
        ),
        "example": {"id": "s1", "created": True, "notifications": []},
    },
    "Notification": {
        **_object(
            ("seq", "subscription", "subscriber", "at", "event", "transition", "object", "parts"),
            seq=_or_null(_SEQ), subscription=_TEXT, subscriber=_or_null(_TEXT), at=_TIME,
            event=ref("CloudEvent"), transition=_or_null({"enum": [*TRANSITIONS]}),
            object={"type": ["string", "number", "null"]}, parts=_or_null(_of(_TEXT)),
            digest=_COUNT,
        ),
        "example": _TOLD,
    },
    "Notifications": {
        **_object(
            ("notifications", "next"), notifications=_of(ref("Notification")), next=_COUNT,
            lost=_COUNT, request=_or_null(_COUNT),
        ),
        "example": {"notifications": [_TOLD], "next": 1, "lost": 0, "request": None},
    },
    "Place": {
        **_object(
            ("coordinates",), coordinates=_POSITION, heading=_or_null(_NUMBER),
            speed=_or_null({"type": "number", "minimum": 0}), epoch=_or_null(_COUNT),
        ),
        "example": {"coordinates": [121.44, 36.16], "heading": 90, "speed": 1.4, "epoch": 1},
    },
    "Placed": {
        **_object(
            ("epoch", "safe_region", "notifications"), epoch=_COUNT,
            safe_region={"type": ["string", "null"], "contentEncoding": "base64"},
            notifications=_of(ref("Notification")), request=_or_null(_COUNT),
        ),
        "example": {"epoch": 1, "safe_region": "blIBAgAB", "notifications": [], "request": None},
    },
    "Ack": {**_object(("upto",), upto=_COUNT), "example": {"upto": 1}},
    "Check": {
        "oneOf": [
            _object(("where",), where={"type": ["string", "object"]}),
            _object(("cpsl",), cpsl={"type": "string"}),
        ],
        "example": {"where": "price < 3300"},
    },
    "Checked": {
        **_object(("ok",), open=True, ok={"type": "boolean"}, normal={"type": "string"}),
        "example": {"ok": True, "normal": "price < 3300"},
    },
    "Explain": {
        **_object(
            ("subscription", "event"), subscription={"anyOf": [_TEXT, ref("Subscription")]},
            event={"anyOf": [_TEXT, ref("CloudEvent"), ref("Feature")]},
        ),
        "example": {
            "subscription": {"filters": [{"cql2": "price < 3300"}]}, "event": _FEATURE,
        },
    },
    "Explanation": {
        **_object(
            ("subscription", "event", "matched", "clauses"), subscription=_TEXT, event=_TEXT,
            matched={"type": "boolean"}, validity=_or_null(ref("Test")),
            clauses=_of(
                _object(("matched", "checks"), matched={"type": "boolean"},
                        checks=_of(ref("Test")))
            ),
            text={"type": "string"},
        ),
        "example": {
            "subscription": "s1", "event": "e1", "matched": True, "validity": None,
            "clauses": [{"matched": True, "checks": [
                {"wanted": "price < 3300", "held": True, "found": "3200"}]}],
            "text": "s1 matches e1",
        },
    },
    "Test": _object(
        ("wanted", "held", "found"), wanted={"type": "string"}, held={"type": "boolean"},
        found={"type": "string"},
    ),
    "Sink": {
        **_object(
            ("id", "subscriber", "sink", "protocol", "state", "upto", "last", "waiting"),
            id=_TEXT, subscriber=_TEXT, **_TO,
            state={"enum": ["closed", "half-open", "open", "disabled"]},
            why=_or_null({"type": "string"}), upto=_COUNT, last=_COUNT, waiting=_COUNT,
            delivered=_COUNT, failed=_COUNT, retried=_COUNT, dead=_COUNT, lost=_COUNT,
            failures=_COUNT, again=_or_null(_TIME),
        ),
        "example": _SINK,
    },
    "Sinks": {
        **_object(("sinks", "next"), sinks=_of(ref("Sink")), next=_COUNT),
        "example": {"sinks": [_SINK], "next": 1},
    },
    "Refused": {
        **_object(("topic",), open=True, topic={"type": "string"}, value={"type": "string"}),
        "description": "A message of a source (sink 0) that could not be taken.",
        "example": {"topic": "offers", "partition": 0, "offset": 7, "headers": {}, "value": "?"},
    },
    "DeadLetter": {
        **_object(
            ("id", "subscriber", "sink_id", "sink", "protocol", "subscription", "seq", "why",
             "tries", "at", "replaying", "notification"),
            id=_TEXT, subscriber=_TEXT, sink_id=_TEXT, sink=_TEXT, protocol=_TEXT,
            subscription=_TEXT, seq=_SEQ, why={"type": "string"}, tries=_COUNT, at=_TIME,
            replaying={"type": "boolean"},
            notification={"anyOf": [ref("Notification"), ref("Digest"), ref("Refused")]},
        ),
        "example": _DEAD,
    },
    "DeadLetters": {
        **_object(("dead_letters", "next"), dead_letters=_of(ref("DeadLetter")), next=_COUNT),
        "example": {"dead_letters": [_DEAD], "next": 7},
    },
    "Digest": {
        **_object(("notifications", "next"), notifications=_of(ref("Notification")), next=_COUNT),
        "example": {"notifications": [_TOLD | {"digest": 0}], "next": 1},
    },
    "Standing": {
        **_object(("id", "status"), id=_TEXT, status=_STATUS),
        "example": {"id": "s1", "status": "INACTIVE"},
    },
    "Replaying": {**_object(("replaying",), replaying=_COUNT), "example": {"replaying": 1}},
    "Dropped": {**_object(("dropped",), dropped=_COUNT), "example": {"dropped": 1}},
    "NewKey": {
        **_object(
            ("role",), role={"enum": [*ROLES]}, subscriber=_or_null(_TEXT),
            tenant={"type": ["string", "null"]},
        ),
        "example": {"role": "subscribe", "subscriber": "ann"},
    },
    "MadeKey": {
        **_object(("key", "name"), key=_TEXT, name=_TEXT),
        "example": {"key": "nck_…", "name": "0123456789ab"},
    },
    "Keys": {**_object(("keys",), keys=_of(_object(open=True))), "example": {"keys": []}},
    "Backup": {**_object(("file",), file=_TEXT), "example": {"file": "/backups/monday.db"}},
    "Copied": {
        **_object(("file", "bytes"), file=_TEXT, bytes=_COUNT),
        "example": {"file": "/backups/monday.db", "bytes": 4096},
    },
    "Status": {**_object(("status",), status=_TEXT, store=_TEXT), "example": {"status": "ok"}},
    "Problem": {
        **_object(
            ("type", "title", "status", "detail"), open=True, type=_TEXT, title=_TEXT,
            status={"type": "integer"}, detail={"type": "string"},
            field={"type": ["string", "null"]}, value={}, remedy={"type": ["string", "null"]},
        ),
        "example": {
            "type": "urn:nearcast:problem:invalid", "title": "What was sent is not valid",
            "status": 422, "detail": "id: '' is not valid; give a non-empty string",
            "field": "id", "value": "", "remedy": "give a non-empty string",
        },
    },
}  # fmt: skip
for _name in ("subscription", "fence", "composite"):
    _one = _name.capitalize()
    _members: dict[str, Any] = {f"{_name}s": _of(ref(_one)), "next": {"type": "string"}}
    SCHEMAS[f"{_one}s"] = {
        **_object((f"{_name}s", "next"), **_members),
        "example": {f"{_name}s": [], "next": ""},
    }

_REF: Schema = {"type": ["string", "number", "null"]}
_PLACED_MEMBERS: dict[str, Any] = SCHEMAS["Place"]["properties"]

#: Frames of the socket that clients send: members, and which of them must be there.
FRAMES_IN: dict[str, Schema] = {
    "hello": _object(subscriber=_TEXT, after=_COUNT, key=_TEXT),
    "place": _object(("coordinates",), **_PLACED_MEMBERS, subscriber=_TEXT),
    "ack": _object(("upto",), upto=_COUNT, subscriber=_TEXT),
    "publish": _object(event=ref("Events"), events=ref("Events")),
    "retract": _object(("id",), id=_TEXT, source=_or_null(_TEXT)),
    "subscribe": _object(("subscription",), subscription=ref("Subscription")),
    "fence": _object(("fence",), fence=ref("Fence")),
    "composite": _object(("composite",), composite=ref("Composite")),
    "unsubscribe": _object(("id",), id=_TEXT),
    "pause": _object(("id",), id=_TEXT),
    "resume": _object(("id",), id=_TEXT),
    "ping": _object(),
}
#: And those that the server sends.
FRAMES_OUT: dict[str, Schema] = {
    "welcome": _object(
        ("subscriber", "after", "role"), subscriber=_or_null(_TEXT), after=_or_null(_COUNT),
        role={"enum": [*ROLES]},
    ),
    "notifications": _object(
        ("notifications", "next", "lost"), notifications=_of(ref("Notification")), next=_COUNT,
        lost=_COUNT,
    ),
    "region": _object(("epoch", "safe_region"), epoch=_COUNT, safe_region=_TEXT),
    "request": _object(("after",), after=_COUNT),
    "done": _object(("ref",), open=True, ref=_REF),
    "error": _object(("ref", "problem"), ref=_REF, problem=ref("Problem")),
}  # fmt: skip

#: Frames of the map's socket that pages send …
WATCH_IN: dict[str, Schema] = {
    "hello": _object(key=_TEXT),
    "follow": _object(("subscriber",), subscriber=_or_null(_TEXT)),
    "lamps": _object(("cpsl",), cpsl=_or_null(_TEXT)),
}
_ANY: Schema = {"type": "object"}
#: … and those it sends, but for places, which are binary.
WATCH_OUT: dict[str, Schema] = {
    "welcome": _object(
        ("space", "demo", "extent", "build", "offset", "now", "tiles"),
        space={"enum": ["globe", "planar"]},
        demo={"type": "boolean"}, extent=_or_null(_of(_NUMBER)), build=_TEXT, offset=_COUNT,
        now=_TIME,
        tiles=_or_null(_object(("url", "credit"), url=_TEXT, credit={"type": "string"})),
    ),
    "names": _object(
        ("kind", "first", "names"), kind={"enum": ["reported", "true"]}, first=_COUNT,
        names=_of(_TEXT),
    ),
    "happened": _object(
        ("missed",), missed=_COUNT, events=_of(ref("Feature")),
        told=_of(
            _object(
                ("to", "subscriber", "event", "source", "at"), to=_TEXT,
                subscriber=_or_null(_TEXT), event=_TEXT, source=_or_null(_TEXT), at=_TIME,
                transition={"enum": [*TRANSITIONS]}, object={}, parts=_of(_TEXT),
                composite=ref("Feature"),
            )
        ),
        news=_of(
            _object(
                ("kind", "id", "thing", "source"), id=_TEXT, thing=_or_null(_ANY),
                kind={"enum": ["subscription", "fence", "composite", "event"]},
                source=_or_null(_TEXT),
            )
        ),
    ),
    "figures": _object(
        ("events", "notifications", "delivered", "reports", "steps", "queue", "now"), open=True,
        events=_COUNT, notifications=_NUMBER, delivered=_COUNT, reports=_COUNT,
        steps=_or_null(_COUNT), queue=_COUNT, now=_TIME,
    ),
    "followed": _object(
        ("subscriber",), subscriber=_or_null(_TEXT), place=_or_null(_POSITION), epoch=_COUNT,
        safe_region=_or_null(_TEXT), impact=_or_null(_ANY),
    ),
    "lit": _object(("counts",), counts=_of(_COUNT)),
    "error": _object(("problem",), problem=ref("Problem")),
}  # fmt: skip
