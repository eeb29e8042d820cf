"""Every verb as what it sends and how its answer is read; who sends it is another matter."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from nearcast.broker.reporter import SafeRectangle
from nearcast.broker.wire import (
    composite_from_json,
    composite_to_json,
    notification_from_json,
)
from nearcast.client.answers import Checked, Page, Placed, Published
from nearcast.cpsl.composite import Composite
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.codec import (
    event_from_json,
    event_to_json,
    events_to_json,
    feature_from_json,
    fence_from_json,
    fence_to_json,
    subscription_from_json,
    subscription_to_json,
)
from nearcast.model.codec.events import batch
from nearcast.model.events import Event, check_id
from nearcast.model.fences import Fence
from nearcast.model.geometry import Box, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Call", "Calls"]

T = TypeVar("T")
Json = Any


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how to read what comes back."""

    method: str
    path: str
    read: Callable[[Json], T]
    body: Json = None
    media: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    """How long the server may take before it begins to answer, beyond the usual."""

    gone: Callable[[], T] | None = None
    """What it comes to if a try whose answer was lost may have left nothing to remove."""


class Calls:
    """The verbs, one method each; clients take them over as their own.

    What is refused raises the error that the broker would raise.
    """

    def __init__(self, space: Space) -> None:
        self._space: Space = space

    # -- subscriptions ---------------------------------------------------------------

    def subscribe(self, subscription: Subscription | Fence) -> Call[None]:
        """Begin a subscription or a fence, or put it in the place of one with its id."""
        one, id = subscription, subscription.id
        if isinstance(one, Fence):
            return Call("PUT", f"/fences/{_name(id)}", _nothing, fence_to_json(one))
        return Call("PUT", f"/subscriptions/{_name(id)}", _nothing, subscription_to_json(one))

    def subscribe_batch(self, many: Sequence[Subscription | Fence]) -> Call[None]:
        """Begin many of one kind, all of them or none; a BatchError names the bad row."""
        if many and isinstance(many[0], Fence):
            return Call("POST", "/fences", _nothing, batch(many, fence_to_json))
        return Call("POST", "/subscriptions", _nothing, batch(many, subscription_to_json))

    def things(
        self, kind: str = "subscriptions", after: str = "", limit: int = 1000
    ) -> Call[tuple[list[Subscription] | list[Fence], str]]:
        """The subscriptions or fences with greater ids, by id, and the id after which to go on.

        Whether one is paused, and where its sink is, is no part of them.
        """
        read: Any = fence_from_json if kind == "fences" else subscription_from_json

        def page(given: Json) -> tuple[Any, str]:
            return [read(_alone(each), space=self._space) for each in given[kind]], given["next"]

        return Call("GET", f"/{kind}", page, query={"after": after, "limit": str(limit)})

    def composites(self, after: str = "", limit: int = 1000) -> Call[tuple[list[Composite], str]]:
        """The same of composites."""

        def page(given: Json) -> tuple[list[Composite], str]:
            found = [composite_from_json(_alone(each)) for each in given["composites"]]
            return found, given["next"]

        return Call("GET", "/composites", page, query={"after": after, "limit": str(limit)})

    def live(self, after: int = 0, limit: int = 1000) -> Call[tuple[list[Event], int]]:
        """Live events in the order they came, and the offset after which to go on."""
        query = {"after": str(after), "limit": str(limit)}
        return Call(
            "GET", "/events", lambda given: (self._live(given), int(given["next"])), query=query
        )

    def detect(self, composite: Composite) -> Call[None]:
        """Begin to detect a composite."""
        path = f"/composites/{_name(composite.id)}"
        return Call("PUT", path, _nothing, composite_to_json(composite))

    def remove(self, id: str, kind: str = "subscriptions") -> Call[bool]:
        """End one of the subscriptions, fences or composites; raises UnknownIdError.

        False: it is not there, and may have been until a try whose answer was lost.
        """
        check_id(id, "id")
        return Call("DELETE", f"/{kind}/{_name(id)}", lambda _: True, gone=lambda: False)

    def stand(self, id: str, how: str, kind: str = "subscriptions") -> Call[None]:
        """`pause` or `resume` one of the subscriptions, fences or composites; UnknownIdError."""
        check_id(id, "id")
        return Call("POST", f"/{kind}/{_name(id)}/{how}", _nothing)

    def preview(self, subscription: Subscription, limit: int = 100) -> Call[list[Event]]:
        """Live events that a subscription would be told of; nothing is made."""
        query = {"limit": str(limit)}
        body = subscription_to_json(subscription)
        return Call("POST", "/preview", self._live, body, query=query)

    # -- events ----------------------------------------------------------------------

    def publish(self, event: Event) -> Call[Published]:
        """An event happens; it is on the server's disk when this is answered."""
        return Call("POST", "/events", _published, event_to_json(event), _ONE)

    def publish_many(self, events: Iterable[Event]) -> Call[Published]:
        """`publish` for many: all of them or none; a BatchError names the bad row."""
        return Call("POST", "/events", _published, events_to_json(events), _MANY)

    def report(
        self, publisher: str, event: Event, line: int | None, epoch: int
    ) -> Call[tuple[Published, SafeRectangle]]:
        """`publish` for one who moves, and where it may be silent if it is heard on this line."""
        query = {"epoch": str(epoch)} | ({} if line is None else {"line": str(line)})
        path = f"{_publisher(publisher)}/events"
        return Call("POST", path, _reported, event_to_json(event), _ONE, query)

    def line(self, publisher: str) -> Call[None]:
        """The stream on which a publisher hears that its rectangle is void."""
        return Call("GET", f"{_publisher(publisher)}/stream", _nothing)

    def retract(self, event_id: str, source: str | None = None) -> Call[None]:
        """Take a live event back; raises UnknownIdError."""
        check_id(event_id, "event_id")
        query = {} if source is None else {"source": source}
        gone = f"/events/{_name(event_id)}"
        return Call("DELETE", gone, _nothing, query=query, gone=lambda: None)

    def events(self, where: str | None = None, limit: int = 100) -> Call[list[Event]]:
        """Live events, those of a filter if there is one."""
        query = {"limit": str(limit)} | ({} if where is None else {"where": where})
        return Call("GET", "/events", self._live, query=query)

    def log(
        self, after: int = 0, limit: int = 1000, wait_s: float = 0.0
    ) -> Call[tuple[list[Event], int]]:
        """Events in the order they came, and the offset after which to go on."""
        return Call("GET", "/log", self._logged, query=_paged(after, limit, wait_s), wait_s=wait_s)

    # -- subscribers -----------------------------------------------------------------

    def move(
        self, subscriber: str, place: Point, *, heading: float | None = None,
        speed: float | None = None, epoch: int | None = None,
    ) -> Call[Placed]:  # fmt: skip
        """A subscriber reports a place: told what is in reach, and given a safe region."""
        said = {"heading": heading, "speed": speed, "epoch": epoch}
        body: Json = {"coordinates": [place.x, place.y]}
        body |= {name: value for name, value in said.items() if value is not None}
        return Call("PUT", f"{_whose(subscriber)}/place", self.read_place, body)

    def page(
        self, subscriber: str, after: int | None = None, limit: int = 1000, wait_s: float = 0.0
    ) -> Call[Page]:
        """Some of what a subscriber was told, after a number or after what it acknowledged.

        With `wait_s` an empty page comes only after that long.
        """
        query = _paged(after, limit, wait_s)
        return Call(
            "GET", f"{_whose(subscriber)}/notifications", self.read_page, None, "", query, wait_s
        )

    def ack(self, subscriber: str, upto: int) -> Call[None]:
        """A subscriber has everything up to a number: the server need not keep it."""
        return Call("POST", f"{_whose(subscriber)}/ack", _nothing, {"upto": upto})

    # -- asking ----------------------------------------------------------------------

    def check(self, where: str | None = None, *, cpsl: str | None = None) -> Call[Checked]:
        """Whether the server can read a filter or a pattern, and how."""
        body = {"where": where} if cpsl is None else {"cpsl": cpsl}
        return Call("POST", "/check", _checked, body)

    def explain(
        self, subscription: str | Subscription, event: str | Event
    ) -> Call[dict[str, Json]]:
        """Why an event does or does not match, as a tree; each by its id or as a value."""
        whose = subscription
        body = {
            "subscription": whose if isinstance(whose, str) else subscription_to_json(whose),
            "event": event if isinstance(event, str) else event_to_json(event),
        }
        return Call("POST", "/explain", dict, body)

    # -- reading ---------------------------------------------------------------------

    def read_page(self, given: Json) -> Page:
        """Notifications as they stand in a page or a frame."""
        told = [notification_from_json(each, space=self._space) for each in given["notifications"]]
        return Page(tuple(told), int(given["next"]), int(given.get("lost") or 0))

    def read_place(self, given: Json) -> Placed:
        """The answer to a report."""
        encoded = given.get("safe_region")
        region = None if encoded is None else SafeRegion.decode(b64decode(encoded))
        told = given.get("notifications") or ()
        return Placed(
            int(given["epoch"]),
            region,
            tuple(notification_from_json(each, space=self._space) for each in told),
        )

    def _live(self, given: Json) -> list[Event]:
        return [feature_from_json(each, space=self._space) for each in given["features"]]

    def _logged(self, given: Json) -> tuple[list[Event], int]:
        return [self._event(each) for each in given["events"]], int(given["next"])

    def _event(self, given: Json) -> Event:
        return event_from_json(given, space=self._space, extensions="ignore")


#: Members of a thing that are read back and are not its own.
_BESIDE = frozenset({"status", "sink", "protocol", "protocolsettings"})
_ONE, _MANY = "application/cloudevents+json", "application/cloudevents-batch+json"


def _alone(given: Json) -> Json:
    """A thing as it is listed, without what stands beside it."""
    return {name: value for name, value in given.items() if name not in _BESIDE}


def _nothing(given: Json) -> None:
    """What was asked is done; there is nothing to read."""


def _published(given: Json) -> Published:
    return Published(given["accepted"], given["repeated"], given["offset"])


def _reported(given: Json) -> tuple[Published, SafeRectangle]:
    sides = given["safe_rectangle"]
    return _published(given), SafeRectangle(given["epoch"], None if sides is None else Box(*sides))


def _checked(given: Json) -> Checked:
    said = {name: given.get(name) for name in ("normal", "detail", "line", "column", "length")}
    return Checked(bool(given.get("ok")), **said)


def _paged(after: int | None, limit: int, wait_s: float) -> dict[str, str]:
    query = {"limit": str(limit)}
    if after is not None:
        query["after"] = str(after)
    if wait_s:
        query["wait"] = f"{wait_s:g}"
    return query


def _name(id: str) -> str:
    return quote(id, safe="")


def _publisher(name: str) -> str:
    check_id(name, "publisher")
    return f"/publishers/{_name(name)}"


def _whose(subscriber: str) -> str:
    check_id(subscriber, "subscriber")
    return f"/subscribers/{_name(subscriber)}"
