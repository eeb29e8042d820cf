"""What a broker says in JSON comes back as it was."""

from __future__ import annotations

import json

import pytest

from nearcast import Box, Broker, Composite, Event, Fence, Notification, Point, Subscription
from nearcast.broker.wire import (
    composite_from_json,
    composite_to_json,
    notification_from_json,
    notification_to_json,
)
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import PatternError, ValidationError

BURST = 'Q(2)(STRING: kind = "alarm")'


def over_the_wire(told: Notification) -> Notification:
    text = json.dumps(notification_to_json(told), allow_nan=False)
    return notification_from_json(json.loads(text), space="planar")


def told_by_all_kinds() -> list[Notification]:
    broker = Broker.open("memory:", "planar")
    broker.subscribe(Subscription(id="s", subscriber="ann", where="kind = 'alarm'"))
    broker.subscribe(Fence(id="f", subscriber="ops", object="who", region=Box(0, 0, 9, 9)))
    broker.detect(Composite(id="c", subscriber="ops", text=BURST))
    broker.subscribe(Subscription(id="none", where="kind = 'alarm'"))
    return [
        told
        for number in range(2)
        for told in broker.publish(
            Event(
                f"e{number}",
                {"kind": "alarm", "who": number},
                {"loud"},
                Point(number, 2.5),
                end=1_000_000 * (number + 1),
                expires=9_000_001,
                source="/siren",
            )
        )
    ]


def test_notifications_of_every_kind_come_back_as_they_were():
    everything = told_by_all_kinds()
    assert {told.subscription_id for told in everything} == {"s", "f", "c", "none"}
    for told in everything:
        back = over_the_wire(told)
        assert back == told
        assert type(back.event) is type(told.event) or isinstance(back.event, CompositeEvent)
    parts = [told.event.parts for told in everything if isinstance(told.event, CompositeEvent)]
    assert ("e0", "e1") in parts


def test_the_members_are_those_that_users_rely_on():
    said = [notification_to_json(told) for told in told_by_all_kinds()]
    wanted = ["seq", "subscription", "subscriber", "at", "event", "transition", "object", "parts"]
    assert all(list(each) == wanted for each in said)
    (fence, *_) = [each for each in said if each["subscription"] == "f"]
    assert (fence["seq"], fence["transition"], fence["object"]) == (1, "enter", 0)
    assert fence["at"] == "1970-01-01T00:00:01Z"
    assert fence["event"]["source"] == "/siren"
    assert fence["parts"] is None
    (pattern,) = [each for each in said if each["subscription"] == "c"]
    assert pattern["parts"] == ["e0", "e1"]


def test_a_notification_without_a_time_is_refused():
    said = notification_to_json(told_by_all_kinds()[0])
    with pytest.raises(ValidationError, match=r"at: None .* says when"):
        notification_from_json(said | {"at": None}, space="planar")


@pytest.mark.parametrize("subscriber", [None, "ops"])
def test_composites_come_back_as_they_were(subscriber):
    composite = Composite("c1", subscriber, BURST, "chronicle")
    assert composite_from_json(json.loads(json.dumps(composite_to_json(composite)))) == composite


def test_a_composite_that_says_nothing_of_consumption_matches_first():
    assert composite_from_json({"id": "c", "text": BURST}).consume == "first-matching"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([], ValidationError, "composite"),
        ({"text": BURST}, ValidationError, "id: None"),
        ({"id": "c"}, ValidationError, "text: None"),
        ({"id": "c", "text": 7}, ValidationError, "text: 7"),
        ({"id": "c", "text": BURST, "consume": "all"}, ValidationError, "consume"),
        ({"id": "c", "text": BURST, "mode": "recent"}, ValidationError, "mode"),
        ({"id": "c", "text": "Q(2"}, PatternError, "line 1"),
    ],
)
def test_what_is_no_composite_is_refused(given, error, said):
    with pytest.raises(error, match=said):
        composite_from_json(given)
