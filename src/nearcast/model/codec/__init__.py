"""How events and subscriptions are written down: JSON for people, Arrow for bulk.

The functions on JSON are there at once; the ones on Arrow are imported at their first use,
because pyarrow is slow to import and not everybody needs it. docs/wire.md describes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.model.codec.events import (
    EVENT_SOURCE,
    EVENT_TYPE,
    event_from_json,
    event_to_json,
    events_from_json,
    events_to_json,
)
from nearcast.model.codec.features import (
    feature_from_json,
    feature_to_json,
    fence_from_feature,
    fence_to_feature,
    subscription_from_feature,
    subscription_to_feature,
)
from nearcast.model.codec.fences import (
    fence_from_json,
    fence_to_json,
    fences_from_json,
    fences_to_json,
)
from nearcast.model.codec.subscriptions import (
    delivery_from_json,
    subscription_from_json,
    subscription_to_json,
    subscriptions_from_json,
    subscriptions_to_json,
)

if TYPE_CHECKING:
    from nearcast.model.codec.arrow import (
        EVENT_COLUMNS,
        FENCE_COLUMNS,
        SUBSCRIPTION_COLUMNS,
        check_event_columns,
        check_fence_columns,
        check_subscription_columns,
        events_from_arrow,
        events_to_arrow,
        fences_from_arrow,
        fences_to_arrow,
        subscriptions_from_arrow,
        subscriptions_to_arrow,
    )

__all__ = [
    "EVENT_COLUMNS",
    "EVENT_SOURCE",
    "EVENT_TYPE",
    "FENCE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "check_event_columns",
    "check_fence_columns",
    "check_subscription_columns",
    "delivery_from_json",
    "event_from_json",
    "event_to_json",
    "events_from_arrow",
    "events_from_json",
    "events_to_arrow",
    "events_to_json",
    "feature_from_json",
    "feature_to_json",
    "fence_from_feature",
    "fence_from_json",
    "fence_to_feature",
    "fence_to_json",
    "fences_from_arrow",
    "fences_from_json",
    "fences_to_arrow",
    "fences_to_json",
    "subscription_from_feature",
    "subscription_from_json",
    "subscription_to_feature",
    "subscription_to_json",
    "subscriptions_from_arrow",
    "subscriptions_from_json",
    "subscriptions_to_arrow",
    "subscriptions_to_json",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nearcast.model.codec import arrow

    return getattr(arrow, name)
