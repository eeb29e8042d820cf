"""Events: published, looked at, retracted; and their log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from nearcast.broker.ports import Altered
from nearcast.broker.service import Service
from nearcast.errors import NearcastError, StoreError, UnknownIdError, ValidationError
from nearcast.model.codec import (
    event_from_json,
    feature_from_json,
    feature_to_json,
    subscription_to_json,
)
from nearcast.model.codec.events import batch
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Space, check_space
from nearcast.model.subscriptions import Subscription
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, Desk, answer
from nearcast.server.problems import malformed
from nearcast.server.wire import (
    decode,
    encode,
    event_json,
    event_text,
    fitting,
    number,
    sayable,
    whole,
)

__all__ = [
    "MOST",
    "Publishing",
    "came",
    "collection",
    "publish",
    "read_event",
    "read_events",
    "retract",
]

#: Rows of one page.
MOST = 1000


def read_events(said: Any, desk: Desk) -> list[Event]:
    """The events of a body: a CloudEvent, a list of them, a Feature or a FeatureCollection."""
    space: Space = desk.settings.space
    if isinstance(said, list):
        desk.limits.batch(len(said))
        return batch(said, lambda each: read_event(each, space))
    if isinstance(said, dict) and said.get("type") == "FeatureCollection":
        features = said.get("features")
        if not isinstance(features, list):
            raise ValidationError("features", features, "give a list of Features")
        desk.limits.batch(len(features))
        return batch(features, lambda each: feature_from_json(each, space=space))
    return [read_event(said, space)]


def read_event(said: Any, space: Space) -> Event:
    """One event: a CloudEvent or a Feature."""
    if isinstance(said, dict) and said.get("type") == "Feature" and "specversion" not in said:
        return feature_from_json(said, space=space)
    return event_from_json(said, space=space, extensions="ignore")


@dataclass(frozen=True, slots=True)
class Publishing:
    """The call that publishes the events of a request, all or none."""

    events: list[Event]
    by: str | None
    room: Callable[[int, int], None] | None = None
    """Refuses more than there may be, given how many there are."""

    def __call__(self, broker: Service) -> Answer:
        """By itself."""
        if self.room is not None:
            self.room(broker.event_count, broker.reading.new(self.events))
        events, before = self.events, broker.published
        if len(events) == 1:
            reply = broker.publish(events[0], by=self.by)
        else:
            reply = broker.publish_many(events, by=self.by)
        new = broker.published - before
        return Answer(_accepted(new, len(events) - new, broker.reading.offset), (reply,))

    def joined(self, broker: Service, others: Sequence[Publishing]) -> list[Answer] | None:
        """With others: as if it were one request, where all of them are sure to be new."""
        requests = [self, *others]
        if any(each.by != self.by or each.room is not None for each in others):
            return None
        events = [event for each in requests for event in each.events]
        if not broker.reading.strange(events):
            return None
        offset = broker.reading.offset
        try:
            reply = broker.publish_many(events, by=self.by)
        except StoreError:
            raise
        except NearcastError:
            return None  # and each hears what is wrong with it, if anything is
        answers: list[Answer] = []
        for each in requests:
            offset += len(each.events)
            answers.append(Answer(_accepted(len(each.events), 0, offset)))
        answers[0] = Answer(answers[0].value, (reply,))
        return answers


def _accepted(new: int, repeated: int, offset: int) -> dict[str, int]:
    return {"accepted": new, "repeated": repeated, "offset": offset}


def came(desk: Desk, who: Principal, found: Mapping[str, int]) -> None:
    """Events that came are counted."""
    for result in ("accepted", "repeated"):
        desk.metrics.came[result] += found[result]
        desk.tenants.count(result, who.tenant, found[result])


async def publish(desk: Desk, who: Principal, events: list[Event]) -> dict[str, int]:
    """Publish events, all or none."""
    room = None if not desk.settings.tenant_events else partial(desk.limits.tenant, who, "events")
    call = Publishing(events, who.key if who.role == "publish" else None, room)
    found: dict[str, int] = await desk.call(who, call, weight=max(1, len(events)))
    came(desk, who, found)
    return found


async def post(ask: Ask) -> Response:
    """`POST /events`."""
    said = decode(await ask.body(), ask.desk.settings.max_depth)
    return answer(await publish(ask.desk, ask.who, read_events(said, ask.desk)))


async def get_one(ask: Ask) -> Response:
    """`GET /events/{id}`."""
    source = ask.query.get("source")
    event = await ask.desk.look(ask.who, lambda broker: broker.reading.event(ask.id, source))
    return Response(bytes(event_text(event)), media_type="application/cloudevents+json")


async def retract(desk: Desk, who: Principal, id: str, source: str | None) -> None:
    """Retract a live event; to whom it is not its own it is not there."""

    def call(broker: Service) -> Answer:
        event = broker.reading.event(id, source)
        if not who.admin and broker.reading.publisher(event) != who.key:
            raise UnknownIdError("event", id, "it may have expired; check the id")
        return Answer((event.id, event.source), (broker.retract(event.id, event.source),))

    gone, its = await desk.call(who, call)
    desk.scenes.news(who.tenant, "event", gone, source=its)


async def delete(ask: Ask) -> Response:
    """`DELETE /events/{id}`."""
    await retract(ask.desk, ask.who, ask.id, ask.query.get("source"))
    return Response(status_code=204)


async def get_many(ask: Ask) -> Response:
    """`GET /events?bbox=&where=&limit=&after=`: live events, in the order they came."""
    wanted = _wanted(ask)
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    found: list[tuple[int, Event]] = await ask.desk.look(
        ask.who, lambda broker: broker.reading.events(wanted, broker.now, after, limit)
    )
    return collection(ask.desk, found, after)


def collection(desk: Desk, found: list[tuple[int, Event]], after: int) -> Response:
    """A page of events, each behind its number, as far as they fit."""
    texts = fitting(
        (encode(feature_to_json(sayable(event))) for _, event in found), desk.settings.page_bytes
    )
    next = found[len(texts) - 1][0] if found else after
    features = [*map(msgspec.Raw, texts)]
    return answer({"type": "FeatureCollection", "features": features, "next": next})


def _wanted(ask: Ask) -> Subscription | None:
    where, bbox = ask.query.get("where"), ask.query.get("bbox")
    if where is None and bbox is None:
        return None
    if where is not None:
        ask.desk.limits.filter(where, "where")
    region = None if bbox is None else _box(bbox, ask.desk.settings.space)
    return Subscription("?", where=where, region=region)


def _box(said: str, space: Space) -> Box:
    try:
        xmin, ymin, xmax, ymax = map(float, said.split(","))
    except ValueError:
        raise malformed(
            "bbox is not four numbers", "give bbox=west,south,east,north", "bbox", said
        ) from None
    box = Box(xmin, ymin, xmax, ymax)
    check_space(box, space, "bbox")
    return box


def page_size(ask: Ask) -> int:
    """The `limit` of a query, cut to what a page holds."""
    return min(whole(ask.query, "limit", MOST, least=1), MOST)


async def get_log(ask: Ask) -> Response:
    """`GET /log?after=&limit=&wait=`: events in the order they came, as they were."""
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    wait = min(number(ask.query, "wait", 0), ask.desk.settings.poll_s)
    clock = asyncio.get_running_loop().time
    until, most = clock() + wait, ask.desk.settings.page_bytes
    while True:
        changed = ask.desk.changed(ask.who.tenant)
        found, forgotten = await ask.desk.look(
            ask.who,
            lambda broker: (broker.log(after, limit, most), broker.reading.forgotten),
        )
        if found or clock() >= until or ask.desk.feeds.ended:
            break
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await changed.wait()
    texts = fitting(
        (encode(event_json(event) | {"offset": offset}) for offset, event in found), most
    )
    next = found[len(texts) - 1][0] if found else after
    ask.desk.keyring.check(ask.who)
    last = await ask.desk.look(ask.who, lambda broker: broker.reading.offset)
    said = {"events": [*map(msgspec.Raw, texts)], "next": next}
    return answer(said | {"last": last, "forgotten": forgotten})


async def get_changes(ask: Ask) -> Response:
    """`GET /changes?after=&limit=`: how subscriptions came, changed and went."""
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    most = ask.desk.settings.page_bytes
    page = await ask.desk.look(ask.who, lambda broker: broker.changes(after, limit, most))
    texts = fitting((encode(_change_json(each)) for each in page.altered), most)
    next = page.altered[len(texts) - 1].number if texts else after
    said = {"changes": [*map(msgspec.Raw, texts)], "next": next}
    return answer(said | {"last": page.last, "forgotten": page.forgotten})


def _change_json(change: Altered) -> dict[str, Any]:
    said = {"seq": change.number, "offset": change.offset, "id": change.id}
    if change.subscription is None:
        return said | {"op": "remove"}
    return said | {"op": "update", "subscription": subscription_to_json(change.subscription)}
