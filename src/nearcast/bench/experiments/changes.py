"""What comes, goes and moves in `maintenance`, and who matches before and after."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from nearcast.bench.experiments.cases import Case, event_object, subscription_object
from nearcast.bench.truth import sure_events, true_live_events, true_matches
from nearcast.datasets import workload
from nearcast.datasets.base import EPOCH
from nearcast.model.events import Event
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["DUE", "Change", "LiveChange"]

#: When everything with an end ends.
DUE = EPOCH + 1_000_000
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_ASKING = 20
_MOST_PAIRS = 1_000_000


@dataclass(frozen=True)
class Change:
    """A case, and subscriptions of it that come, go, or move elsewhere."""

    case: Case
    extra: pa.Table

    @classmethod
    def draw(
        cls, name: str, rows: int, changes: int, events: int, seed: int, k: int = 10
    ) -> Change:
        """A case of so many subscriptions, and as many newcomers as there are changes."""
        source = workload(name, seed=seed, k=k)
        case = Case.draw(source, rows, events, seed).within(_MOST_PAIRS)
        return cls(case, source.subscription_table(changes, first=rows))

    @cached_property
    def newcomers(self) -> list[Subscription]:
        """Subscriptions that are not among those of the case; parsed."""
        return [subscription_object(row) for row in self.extra.to_pylist()]

    @cached_property
    def due(self) -> list[Subscription]:
        """The same, with an end."""
        return [subscription_object(row, expires=DUE) for row in self.extra.to_pylist()]

    @cached_property
    def stayers(self) -> list[Subscription]:
        """The first subscriptions of the case, as they are."""
        few = self.case.subscriptions.slice(0, self.extra.num_rows)
        return [subscription_object(row) for row in few.to_pylist()]

    @cached_property
    def movers(self) -> list[Subscription]:
        """The same, elsewhere."""
        return [subscription_object(row) for row in self._moved.to_pylist()]

    @cached_property
    def _moved(self) -> pa.Table:
        """The first subscriptions of the case in the places of others, or with their intervals."""
        few = self.case.subscriptions.slice(0, self.extra.num_rows)
        other = self.extra.slice(0, few.num_rows)
        for name in _SIDES if "xmin" in few.column_names else ("intervals",):
            few = few.set_column(few.column_names.index(name), name, other[name])
        return few

    @cached_property
    def truth_with(self) -> pa.Table:
        """Who matches after the newcomers came."""
        return self._truth(pa.concat_tables([self.case.subscriptions, self.extra]))

    @cached_property
    def truth_moved(self) -> pa.Table:
        """Who matches after the movers moved."""
        rest = self.case.subscriptions.slice(self._moved.num_rows)
        return self._truth(pa.concat_tables([self._moved, rest]))

    def _truth(self, subscriptions: pa.Table) -> pa.Table:
        return true_matches(
            subscriptions.combine_chunks(), pa.concat_tables([self.case.events, self.case.sure])
        )


@dataclass(frozen=True)
class LiveChange:
    """Live events, some that come and go, and subscriptions that see which are there."""

    space: Space
    base: pa.Table
    extra: pa.Table
    asking: pa.Table

    @classmethod
    def draw(cls, rows: int, changes: int, seed: int) -> LiveChange:
        """Live events of `mo`, and newcomers; each asking one wants one of both at least."""
        source = workload("mo", seed=seed)
        asking = source.subscription_table(_ASKING)
        extra = source.event_table(changes, first=rows)
        spare = source.event_table(2 * _ASKING, first=rows + changes)
        here, coming = (
            sure_events(asking, spare.slice(first, _ASKING), seed) for first in (0, _ASKING)
        )
        base = pa.concat_tables([source.event_table(rows), here]).combine_chunks()
        return cls(source.space, base, pa.concat_tables([extra, coming]).combine_chunks(), asking)

    @cached_property
    def newcomers(self) -> list[Event]:
        """The events that come and go."""
        return [event_object(row) for row in self.extra.to_pylist()]

    @cached_property
    def due(self) -> pa.Table:
        """The same, with an end."""
        ends = pa.array([DUE] * self.extra.num_rows, pa.timestamp("us", tz="UTC"))
        return self.extra.append_column("expires", ends)

    @cached_property
    def subscriptions(self) -> list[Subscription]:
        """Those who ask."""
        return [subscription_object(row) for row in self.asking.to_pylist()]

    @cached_property
    def truth(self) -> pa.Table:
        """What they see without the newcomers."""
        return true_live_events(self.asking, self.base)

    @cached_property
    def truth_with(self) -> pa.Table:
        """What they see with the newcomers."""
        both = pa.concat_tables([self.base, self.extra]).combine_chunks()
        return true_live_events(self.asking, both)
