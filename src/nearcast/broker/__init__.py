"""The broker's core: who is told of what, once, in event time. Synchronous; no sockets.

`service` is the broker itself. `roster` keeps subscriptions and `live` events, each with a
matcher; `seats` says who was found, when somebody asks. `outlook` says whether an event may come,
`timeline` keeps time and expiry, `past` what has expired lately, `patterns` composite events,
`delivery` who was told where nothing else says so. `draft` is what a call has come to, `replies`
what it answers, `parts` makes them of options. `ports` are the doors for a store and for sinks,
`memory` what stands behind them by default.
"""

from nearcast.broker.replies import Notification, Reply
from nearcast.broker.service import Service

__all__ = ["Notification", "Reply", "Service"]
