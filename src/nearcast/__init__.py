"""nearcast tells the right people about the right things, near them, in time.

Subscriptions say what somebody wants to hear of and where; events say what happens. The
`Matcher` finds the pairs::

    from nearcast import Circle, Event, Matcher, Point, Subscription

    matcher = Matcher()
    matcher.add_subscriptions([
        Subscription(id="s1", subscriber="ann", where="price < 3300", keywords={"sale"},
                     region=Circle(121.4419, 36.1628, radius_m=1000)),
    ])
    matcher.match_event(Event(id="e1", attributes={"price": 3200}, keywords={"sale"},
                              location=Point(121.44, 36.16)))        # ['s1']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from nearcast.bootstrap import Broker
    from nearcast.broker.replies import Notification, Reply
    from nearcast.broker.reporter import Reporter, SafeRectangle
    from nearcast.cpsl.composite import Composite
    from nearcast.matcher import Matcher
    from nearcast.mobility.mover import Mover
    from nearcast.mobility.safe_region import SafeRegion
    from nearcast.model.events import Event
    from nearcast.model.fences import Fence
    from nearcast.model.geometry import Around, Box, Circle, Point, Polygon
    from nearcast.model.moves import Move
    from nearcast.model.subscriptions import Subscription
    from nearcast.model.terms import QuietHours, Terms

__version__ = "0.1.0"

__all__ = [
    "Around",
    "Box",
    "Broker",
    "Circle",
    "Composite",
    "Event",
    "Fence",
    "Matcher",
    "Move",
    "Mover",
    "NearcastError",
    "Notification",
    "Point",
    "Polygon",
    "QuietHours",
    "Reply",
    "Reporter",
    "SafeRectangle",
    "SafeRegion",
    "Subscription",
    "Terms",
    "__version__",
]

# Everything is imported when first used: `import nearcast` is quick, and so is the command's start.
_LAZY = {
    "Around": "nearcast.model.geometry",
    "Box": "nearcast.model.geometry",
    "Broker": "nearcast.bootstrap",
    "Circle": "nearcast.model.geometry",
    "Composite": "nearcast.cpsl.composite",
    "Event": "nearcast.model.events",
    "Fence": "nearcast.model.fences",
    "Matcher": "nearcast.matcher",
    "Move": "nearcast.model.moves",
    "Mover": "nearcast.mobility.mover",
    "Notification": "nearcast.broker.replies",
    "Point": "nearcast.model.geometry",
    "Polygon": "nearcast.model.geometry",
    "QuietHours": "nearcast.model.terms",
    "Reply": "nearcast.broker.replies",
    "Reporter": "nearcast.broker.reporter",
    "SafeRectangle": "nearcast.broker.reporter",
    "SafeRegion": "nearcast.mobility.safe_region",
    "Subscription": "nearcast.model.subscriptions",
    "Terms": "nearcast.model.terms",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'nearcast' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
