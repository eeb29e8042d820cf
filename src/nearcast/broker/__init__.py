"""The broker's core: who is told of what, once, in event time. Synchronous; no sockets.

`service` is the broker itself; `timeline` keeps time and expiry, `patterns` composite events,
`delivery` who was told, `replies` what every call answers. `ports` are the doors for a store
and for sinks, `memory` what stands behind them by default.
"""

from nearcast.broker.replies import Notification, Reply
from nearcast.broker.service import Service

__all__ = ["Notification", "Reply", "Service"]
