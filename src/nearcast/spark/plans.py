"""How a match is carried out: who is indexed, who streams, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from nearcast.errors import ValidationError

__all__ = ["Direction", "Kind", "Plan", "Weight", "choose"]

Kind: TypeAlias = Literal["broadcast", "partitioned"]
Direction: TypeAlias = Literal["event-matching", "subscription-matching"]


@dataclass(frozen=True, slots=True)
class Weight:
    """How large one side is, in rows and (guessed from a sample) bytes when it is indexed."""

    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, about {self.bytes / 1e6:,.0f} MB"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided about one match, for people to read."""

    kind: Kind
    direction: Direction
    reason: str
    index: str
    facts: tuple[str, ...] = ()
    why_index: str = ""
    settings: tuple[str, ...] = ()
    """What was asked for beside plan, direction and index."""

    def explain(self) -> str:
        """The plan in a few lines."""
        if self.kind == "partitioned":
            how = "both sides are cut into cells, and each cell is matched by itself"
        elif self.direction == "event-matching":
            how = "the subscriptions are indexed once and mapped by every worker; events stream"
        else:
            how = "the events are shipped once and mapped by every worker; subscriptions stream"
        lines = [f"plan       {self.kind}, {self.direction}: {how}", f"because    {self.reason}"]
        why = f": {self.why_index}" if self.why_index else ""
        lines.append(f"index      {self.index}{why}")
        if self.settings:
            lines.append(f"settings   {', '.join(self.settings)}")
        return "\n".join([*lines, *(f"           {fact}" for fact in self.facts)])


def choose(
    plan: str, direction: str, events: Weight | None, subscriptions: Weight | None, most: int
) -> tuple[Kind, Direction, str]:
    """The kind, the direction and the reason.

    The smaller side is shipped if it fits into `most` bytes; sides of which no weight is given
    have been decided on by the caller. Raises ValidationError for words it does not know.
    """
    kinds, directions = get_args(Kind), get_args(Direction)
    if plan not in (*kinds, "auto"):
        raise ValidationError("plan", plan, f"give auto, {' or '.join(kinds)}")
    if direction not in (*directions, "auto"):
        raise ValidationError("direction", direction, f"give auto, {' or '.join(directions)}")
    if plan == "partitioned":
        return "partitioned", "event-matching", "it was asked for"
    if plan == "broadcast" and direction != "auto":
        return "broadcast", _known(direction), "it was asked for"
    assert events is not None
    assert subscriptions is not None
    smaller: Direction = "event-matching"
    if direction != "auto":
        smaller = _known(direction)
    elif events.bytes < subscriptions.bytes:
        smaller = "subscription-matching"
    shipped = subscriptions if smaller == "event-matching" else events
    what = "subscriptions" if smaller == "event-matching" else "events"
    if plan == "broadcast":
        return "broadcast", smaller, f"broadcast was asked for, and {what} are smaller ({shipped})"
    if shipped.bytes <= most:
        return "broadcast", smaller, f"the {what} fit one machine ({shipped})"
    return (
        "partitioned", "event-matching",
        f"the {what}, {shipped}, are more than the {most / 1e6:,.0f} MB one machine may hold",
    )  # fmt: skip


def _known(direction: str) -> Direction:
    return "event-matching" if direction == "event-matching" else "subscription-matching"
