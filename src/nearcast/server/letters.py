"""Sinks and what could not be sent: looked at, tried again, dropped."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from starlette.responses import Response

from nearcast.broker.service import Service
from nearcast.clock import format_micros
from nearcast.errors import UnknownIdError
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, answer
from nearcast.server.events import page_size
from nearcast.server.problems import Problem
from nearcast.server.sinks import delivery
from nearcast.server.sinks.runner import Runner
from nearcast.server.wire import encode, fitting, whole
from nearcast.storage.letters import DeadLetter
from nearcast.storage.sinks import Sink, Sinks

__all__ = [
    "drop_all", "drop_one", "get_letter", "get_letters", "get_sink", "get_sinks", "replay_all",
    "replay_one", "resume",
]  # fmt: skip

_ALL = 1000  # letters of one step, where all are meant


def _number(ask: Ask, kind: str) -> int:
    """The number in the path; what is none has no such thing."""
    said = ask.id
    if not said.isascii() or not said.isdigit() or len(said) > 15:
        raise UnknownIdError(kind, said, "list them first")
    return int(said)


def _mine(ask: Ask) -> Runner:
    """A sink that whoever asks may see; 404 otherwise."""
    found = ask.desk.sinks.runner(ask.who.tenant, _number(ask, "sink"))
    if found is None or not ask.who.owns(found.sink.subscriber):
        raise UnknownIdError("sink", ask.id, "nothing goes there any more; list them first")
    return found


def _written(runner: Runner) -> dict[str, Any]:
    sink = runner.sink
    settings = {"protocolsettings": {}} | delivery.shown(sink)
    return {"id": str(sink.number), "subscriber": sink.subscriber} | settings | runner.shown()


# -- sinks --------------------------------------------------------------------------------------


async def get_sinks(ask: Ask) -> Response:
    """`GET /sinks?after=&limit=&subscriber=`: what there is, and how it is."""
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    whose = ask.query.get("subscriber") if ask.who.admin else ask.who.subscriber
    mine = sorted(
        (
            each
            for each in ask.desk.sinks.runners()
            if each.tenant == ask.who.tenant and each.sink.number > after
            and whose in (None, each.sink.subscriber)
        ),
        key=lambda each: each.sink.number,
    )[:limit]  # fmt: skip
    texts = fitting((encode(_written(each)) for each in mine), ask.desk.settings.page_bytes)
    next = mine[len(texts) - 1].sink.number if texts else after
    return answer({"sinks": [*map(Raw, texts)], "next": next})


async def get_sink(ask: Ask) -> Response:
    """`GET /sinks/{id}`."""
    return answer(_written(_mine(ask)))


async def resume(ask: Ask) -> Response:
    """`POST /sinks/{id}/resume`: try at once, disabled or not."""
    number = _mine(ask).sink.number

    def call(_: Service) -> Answer:
        ask.desk.house.sinks(ask.who.tenant).disable(number, None)
        return Answer(None)

    await ask.desk.call(ask.who, call)
    return answer(_written(_mine(ask)))


# -- dead letters -------------------------------------------------------------------------------


def _letter(each: DeadLetter) -> dict[str, Any]:
    return {
        "id": str(each.number), "subscriber": each.subscriber, "sink_id": str(each.sink),
        "sink": each.uri, "protocol": each.protocol, "subscription": each.thing, "seq": each.seq,
        "why": each.why, "tries": each.tries, "at": format_micros(each.at),
        "replaying": each.replay is not None, "notification": Raw(each.body.encode()),
    }  # fmt: skip


async def get_letters(ask: Ask) -> Response:
    """`GET /dead-letters?after=&limit=&subscriber=&sink=`: in the order they died."""
    after, limit = whole(ask.query, "after", 0), page_size(ask)
    whose = ask.query.get("subscriber") if ask.who.admin else ask.who.subscriber
    sink = whole(ask.query, "sink", 0) or None

    def look(_: Service) -> list[DeadLetter]:
        letters = ask.desk.house.letters(ask.who.tenant)
        found = letters.page(after, limit, whose, sink)
        return [each for each in found if whose in (None, each.subscriber)]

    found = await ask.desk.look(ask.who, look)
    texts = fitting((encode(_letter(each)) for each in found), ask.desk.settings.page_bytes)
    next = found[len(texts) - 1].number if texts else after
    return answer({"dead_letters": [*map(Raw, texts)], "next": next})


def _known(ask: Ask) -> DeadLetter:
    """In the core's thread."""
    found = ask.desk.house.letters(ask.who.tenant).get(_number(ask, "dead letter"))
    if found is None or not ask.who.owns(found.subscriber):
        raise UnknownIdError("dead letter", ask.id, "it may have been sent; list them first")
    return found


async def get_letter(ask: Ask) -> Response:
    """`GET /dead-letters/{id}`."""
    return answer(_letter(await ask.desk.look(ask.who, lambda _: _known(ask))))


def _goes(letter: DeadLetter, sinks: Sinks) -> Sink | None:
    """Where a dead letter goes: where its thing's notifications go now, else where it went."""
    now = sinks.where(letter.thing)
    if now is not None and now.subscriber == letter.subscriber:
        return now
    return sinks.get(letter.sink)


async def replay_one(ask: Ask) -> Response:
    """`POST /dead-letters/{id}/replay`: it is tried once more, soon."""

    def call(_: Service) -> Answer:
        house, tenant = ask.desk.house, ask.who.tenant
        letter, sinks = _known(ask), house.sinks(tenant)
        if letter.sink == 0:
            raise Problem(
                409, "it is no notification but a message that came and was refused", "sink",
                letter.uri, "send it again, mended, and drop this one",
            )  # fmt: skip
        sink = _goes(letter, sinks)
        if sink is None:
            raise Problem(
                409, "nothing goes to its sink any more", "sink", letter.uri,
                f"PUT {letter.thing!r} with a sink first, or drop it",
            )  # fmt: skip
        house.letters(tenant).replay(letter.number, sink.number)
        sinks.replay(sink.number)
        return Answer(None)

    await ask.desk.call(ask.who, call)
    return answer({"replaying": 1}, 202)


async def replay_all(ask: Ask) -> Response:
    """`POST /sinks/{id}/replay`: all dead letters of a sink."""
    number = _mine(ask).sink.number

    def call(_: Service) -> Answer:
        house, tenant = ask.desk.house, ask.who.tenant
        letters, sinks = house.letters(tenant), house.sinks(tenant)
        count, after = 0, 0
        goes: set[int] = set()
        while found := letters.page(after, _ALL, None, number):
            for each in found:
                sink = _goes(each, sinks)
                if sink is not None:
                    letters.replay(each.number, sink.number)
                    goes.add(sink.number)
                    count += 1
            after = found[-1].number
        for one in goes:
            sinks.replay(one)
        return Answer(count)

    return answer({"replaying": await ask.desk.call(ask.who, call)}, 202)


async def drop_one(ask: Ask) -> Response:
    """`DELETE /dead-letters/{id}`."""

    def call(_: Service) -> Answer:
        ask.desk.house.letters(ask.who.tenant).drop(_known(ask).number)
        return Answer(None)

    await ask.desk.call(ask.who, call)
    return Response(status_code=204)


async def drop_all(ask: Ask) -> Response:
    """`DELETE /dead-letters?sink=ID`: all of a sink, be it gone; one's own."""
    sink = whole(ask.query, "sink", 0)
    if not sink:
        raise Problem(422, "all dead letters of which sink?", "sink", None,
                      "give sink=ID, or name one dead letter in the path")  # fmt: skip

    def call(_: Service) -> Answer:
        letters = ask.desk.house.letters(ask.who.tenant)
        count, after = 0, 0
        while found := letters.page(after, _ALL, None, sink):
            for each in found:
                if ask.who.owns(each.subscriber):
                    letters.drop(each.number)
                    count += 1
            after = found[-1].number
        return Answer(count)

    return answer({"dropped": await ask.desk.call(ask.who, call)})
