"""Subscriptions as JSON, in the shape of the CloudEvents Subscriptions API.

What is wanted: `filters` (all must hold; the dialects `cql2`, `all`, `any` and `not`), and our
own members `subscriber`, `keywords` and `region`. `config` says when it ends, and on what terms
somebody is told (`nearcast.model.codec.config`).
Where it goes: `sink`, `protocol` and `protocolsettings`, which a `Subscription` does not have:
`delivery_from_json` reads them. docs/wire.md shows one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.codec.config import config_from_json, config_to_json
from nearcast.model.codec.events import EVENT_TYPE, batch, words_from_json
from nearcast.model.codec.places import members, refuse_unknown, region_from_json, region_to_json
from nearcast.model.events import check_text
from nearcast.model.filters import Filter
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = [
    "delivery_from_json",
    "subscription_from_json",
    "subscription_to_json",
    "subscriptions_from_json",
    "subscriptions_to_json",
]

_DELIVERY = ("sink", "protocol", "protocolsettings")
_MEMBERS = ("id", "types", "subscriber", "filters", "keywords", "region", "config", *_DELIVERY)
#: Deeper nesting of all, any and not than people write; it bounds the recursion.
_DEEPEST = 16


def subscription_to_json(
    subscription: Subscription, delivery: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The subscription as an object `json.dumps` takes; what is not set is left out.

    `delivery` adds what `delivery_from_json` reads.
    """
    given: dict[str, Any] = {"id": subscription.id, "types": [EVENT_TYPE]}
    if subscription.subscriber is not None:
        given["subscriber"] = subscription.subscriber
    if subscription.where is not None:
        given["filters"] = [{"cql2": subscription.where}]
    if subscription.keywords:
        given["keywords"] = sorted(subscription.keywords)
    if subscription.region is not None:
        given["region"] = region_to_json(subscription.region)
    if config := config_to_json(subscription.expires, subscription.terms):
        given["config"] = config
    return given | delivery_from_json(delivery or {})


def subscription_from_json(given: object, *, space: Space = "globe") -> Subscription:
    """The subscription of an object, as `json.loads` gives it."""
    wanted = members(given, "subscription", "an object")
    refuse_unknown(wanted, _MEMBERS, "")
    types = wanted.get("types")
    if types is not None and types != [EVENT_TYPE]:
        raise ValidationError(
            "types", types, f"events have one type, {EVENT_TYPE}: filter by an attribute instead"
        )
    delivery_from_json({name: wanted[name] for name in _DELIVERY if name in wanted})
    region = wanted.get("region")
    expires, terms = config_from_json(wanted.get("config"))
    return Subscription(
        id=wanted.get("id"),  # type: ignore[arg-type]  # the constructor checks it
        subscriber=wanted.get("subscriber"),
        where=_where(wanted.get("filters")),
        keywords=words_from_json(wanted.get("keywords"), "keywords"),
        region=None if region is None else region_from_json(region, space, "region"),
        expires=expires,
        terms=terms,
    )


def subscriptions_to_json(subscriptions: Iterable[Subscription]) -> list[dict[str, Any]]:
    """Subscriptions as a list of objects."""
    return batch(subscriptions, subscription_to_json)


def subscriptions_from_json(given: object, *, space: Space = "globe") -> list[Subscription]:
    """The subscriptions of a list of objects; a bad one raises a BatchError with its row."""
    if not isinstance(given, list | tuple):
        raise ValidationError("subscriptions", given, "give a list of objects")
    return batch(given, lambda each: subscription_from_json(each, space=space))


def delivery_from_json(given: object) -> dict[str, Any]:
    """Where notifications go: the checked members `sink`, `protocol` and `protocolsettings`."""
    wanted = members(given, "delivery", "an object")
    refuse_unknown(wanted, _DELIVERY, "")
    for name in ("sink", "protocol"):
        text = wanted.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or not text:
            raise ValidationError(name, text, "give a non-empty string")
        check_text(text, name)
    settings = wanted.get("protocolsettings")
    if settings is not None:
        members(settings, "protocolsettings", "an object")
    return {name: value for name, value in wanted.items() if value is not None}


def _where(given: object) -> Any:
    if given is None:
        return None
    if not isinstance(given, list | tuple):
        raise ValidationError("filters", given, 'give a list such as [{"cql2": "price < 3300"}]')
    if not given:
        return None
    if len(given) == 1 and isinstance(given[0], Mapping) and set(given[0]) == {"cql2"}:
        return _cql2(given[0]["cql2"], "filters[0].cql2")
    return _all(given, "AND", "filters", 0)


def _filter(given: object, field: str, depth: int) -> str:
    """One filter of any dialect, as CQL2 text in parentheses."""
    dialects = "one of cql2, all, any, not"
    filter = members(given, field, f"an object with {dialects}")
    if len(filter) != 1:
        raise ValidationError(field, given, f"give {dialects}")
    if depth > _DEEPEST:
        raise ValidationError(field, given, f"nest filters at most {_DEEPEST} deep, or write CQL2")
    (dialect, content), *_ = filter.items()
    at = f"{field}.{dialect}"
    if dialect == "cql2":
        text = _cql2(content, at)
        parsed = Filter.parse(text)  # by itself first: it must not close our parenthesis
        return f"({text if isinstance(text, str) else parsed})"
    if dialect in ("all", "any"):
        return f"({_all(content, 'AND' if dialect == 'all' else 'OR', at, depth)})"
    if dialect == "not":
        return f"(NOT {_filter(content, at, depth + 1)})"
    raise ValidationError(at, content, f"nearcast reads {dialects}")


def _all(given: object, operator: str, field: str, depth: int) -> str:
    if not isinstance(given, list | tuple) or not given:
        raise ValidationError(field, given, "give a list of at least one filter")
    texts = [_filter(each, f"{field}[{i}]", depth + 1) for i, each in enumerate(given)]
    return f" {operator} ".join(texts)


def _cql2(given: object, field: str) -> str | Mapping[str, Any]:
    if not isinstance(given, str | Mapping):
        raise ValidationError(field, given, "give CQL2 text or CQL2 JSON")
    return given
