"""Subscriptions as they stand when their subscriber is at a place."""

from __future__ import annotations

from nearcast import Around, Circle, Point, Subscription


def placed(subscription: Subscription, at: Point) -> Subscription:
    """The subscription with an `Around` region fixed at the place."""
    if not isinstance(subscription.region, Around):
        return subscription
    return Subscription(
        id=subscription.id,
        subscriber=subscription.subscriber,
        where=subscription.where,
        keywords=subscription.keywords,
        region=Circle(at.x, at.y, subscription.region.reach_m),
        expires=subscription.expires,
    )
