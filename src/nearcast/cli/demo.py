"""`nearcast demo`: a city of subscribers and offers, matched before your eyes."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    subscriptions: Annotated[int, typer.Option(min=1, help="How many people subscribe.")] = 100_000,
    events: Annotated[int, typer.Option(min=1, help="How many offers are published.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Which city: the same seed, the same city.")] = 1,
    index: Annotated[str, typer.Option(help="Which index does the matching.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the numbers.")] = False,
) -> None:
    """Draw a city, subscribe its people, publish its shops' offers, and show who is told.

    Everything is made up from the seed: roads, shops, people and what they want. One match
    and one non-match are explained, and the speed is held against a plain scan.

    Examples:

      nearcast demo

      nearcast demo --subscriptions 1000000 --events 2000 --seed 7
    """
    from nearcast.cli.showcase import Showcase
    from nearcast.index import registry

    registry.require(index, subscriptions=True)
    Showcase(subscriptions, events, seed, index, quiet).run()
