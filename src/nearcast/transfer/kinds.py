"""What is transferred, and the codec of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nearcast.errors import ValidationError
from nearcast.model import codec
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.subscriptions import Subscription

__all__ = ["KINDS", "Kind", "Name", "Row", "kind_of"]

Name: TypeAlias = Literal["subscriptions", "fences", "events"]
Row: TypeAlias = Subscription | Fence | Event


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: from and to a Feature, from and to an Arrow table."""

    name: Name
    from_feature: Callable[..., Row]
    to_feature: Callable[[Any], dict[str, Any]]

    def from_table(self, table: Any, space: Any) -> list[Any]:
        """The rows of a table; a BatchError names the bad one."""
        read: Any = getattr(codec, f"{self.name}_from_arrow")
        found: list[Any] = read(table, space=space)
        return found

    def to_table(self, rows: Iterable[Any]) -> Any:
        """Rows as a table."""
        write: Any = getattr(codec, f"{self.name}_to_arrow")
        return write(rows)


KINDS: dict[str, Kind] = {
    each.name: each
    for each in (
        Kind("subscriptions", codec.subscription_from_feature, codec.subscription_to_feature),
        Kind("fences", codec.fence_from_feature, codec.fence_to_feature),
        Kind("events", codec.feature_from_json, codec.feature_to_json),
    )
}


def kind_of(name: str) -> Kind:
    """The kind of a name."""
    if name not in KINDS:
        raise ValidationError("kind", name, f"choose one of {', '.join(KINDS)}")
    return KINDS[name]
