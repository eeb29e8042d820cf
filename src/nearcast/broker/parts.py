"""The parts a broker is made of, from the options it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from nearcast.errors import ValidationError
from nearcast.index import registry
from nearcast.matcher import Matcher
from nearcast.mobility.search import EventSearch
from nearcast.mobility.tracker import Tracker
from nearcast.model.geometry import Box, Space

__all__ = ["matchers", "tracker"]

_GIVEN = {"search", "space", "safe_region", "extent"}  # what a tracker is given anyway


def matchers(
    space: Space, subscription_index: str, event_index: str, options: Mapping[str, Any] | None,
    *, letters: bool = False,
) -> tuple[Matcher, Matcher]:  # fmt: skip
    """(of subscriptions, of live events); an option goes to each index that takes it."""
    given = _mapping("index_options", options)
    first = _entry("subscription_index", subscription_index, subscriptions=True)
    second = _entry("event_index", event_index, events=True)
    taken = [_options_of(entry.load(), 2) - dict(entry.options).keys() for entry in (first, second)]
    _check_names("index_options", given, taken[0] | taken[1])
    pair = zip((first, second), taken, strict=True)
    made = [
        Matcher(
            entry.name, space, letters=letters,
            **{name: given[name] for name in given if name in mine},
        )
        for entry, mine in pair
    ]  # fmt: skip
    return made[0], made[1]


def tracker(
    search: EventSearch, space: Space, method: str, extent: Box | None,
    options: Mapping[str, Any] | None,
) -> Tracker:  # fmt: skip
    """Safe regions by a method, with options of its own."""
    given = _mapping("safe_region_options", options)
    _check_names("safe_region_options", given, _options_of(Tracker) - _GIVEN)
    try:
        return Tracker(search, space=space, safe_region=method, extent=extent, **given)
    except TypeError as error:
        raise ValidationError("safe_region_options", given, f"give numbers ({error})") from None


def _entry(field: str, name: object, **able: bool) -> registry.Entry:
    if not isinstance(name, str):
        raise ValidationError(field, name, "give a name, such as 'auto'")
    try:
        return registry.require(name, **able)
    except ValidationError as error:
        raise ValidationError(field, name, error.remedy) from None


def _options_of(made: Callable[..., Any], first: int = 0) -> set[str]:
    """The names of what something takes, from an argument on."""
    return set([*inspect.signature(made).parameters][first:])


def _mapping(field: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValidationError(field, given, "give a mapping of names to values")
    return dict(given)


def _check_names(field: str, given: Collection[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
            raise ValidationError(field, name, f"no such option; {there}")
