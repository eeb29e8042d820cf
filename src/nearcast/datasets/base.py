"""What every seeded workload offers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.clock import to_micros
from nearcast.datasets.digest import digest_batches
from nearcast.datasets.streams import BATCH_ROWS, BLOCK_ROWS, regroup
from nearcast.errors import DatasetError
from nearcast.model.geometry import Space

__all__ = ["EPOCH", "Workload", "arrival_times", "require", "settle_types"]

#: When seeded time begins: 1 January 2026, 00:00 UTC.
EPOCH = to_micros("2026-01-01T00:00:00Z")


def require(holds: bool, name: str, value: object, remedy: str) -> None:
    """Refuse a parameter, naming it, its value and the remedy."""
    if not holds:
        raise DatasetError(f"{name}: {value!r} is not valid; {remedy}")


def settle_types(parameters: Any) -> None:
    """Refuse fields of a frozen dataclass that are not of their type; lists become tuples.

    A whole number may stand for a float and a list for a tuple, so that parameters survive
    a trip through JSON.
    """
    hints = get_type_hints(type(parameters))
    for field in fields(parameters):
        given, hint = getattr(parameters, field.name), hints[field.name]
        value = tuple(given) if isinstance(given, list) else given
        wanted = str(hint).removeprefix("typing.") if get_origin(hint) else hint.__name__
        require(_fits(value, hint), field.name, given, f"give {wanted}")
        object.__setattr__(parameters, field.name, value)


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        if not isinstance(value, tuple) or len(value) != len(inner):
            return False
        return all(_fits(one, kind) for one, kind in zip(value, inner, strict=True))
    if inner:  # a union
        return any(_fits(value, kind) for kind in inner)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, hint)


def arrival_times(
    rng: np.random.Generator, first: int, rows: int, rate_hz: float, start: int = EPOCH
) -> NDArray[np.int64]:
    """Times of rows `first` …: `rate_hz` a second on average, never going back."""
    places = np.arange(first, first + rows) + rng.random(rows)
    micros: NDArray[np.int64] = start + (places * (1e6 / rate_hz)).astype(np.int64)
    return micros


@dataclass(frozen=True)
class Workload(ABC):
    """Seeded streams of subscriptions and events; its parameters are its fields.

    The same parameters give the same rows, whatever the batch size, and row i is the
    same however many rows are asked for. Columns are those of the Arrow tables that
    `Matcher` takes; what a workload does not use is left out.
    """

    name: ClassVar[str]

    seed: int = 0

    def __post_init__(self) -> None:
        settle_types(self)
        require(self.seed >= 0, "seed", self.seed, "give an integer ≥ 0")
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse parameters that make no sense."""

    @property
    @abstractmethod
    def space(self) -> Space:
        """Where its places lie."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by name: what a record of a run must keep."""
        return asdict(self)

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """What `workload(name, …)` accepts."""
        return tuple(sorted(field.name for field in fields(cls)))

    @abstractmethod
    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch: ...

    @abstractmethod
    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch: ...

    @property
    def _event_block_rows(self) -> int:
        return BLOCK_ROWS

    def subscriptions(
        self, n: int, batch_rows: int = BATCH_ROWS, first: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """`n` subscriptions from number `first` on, in batches: one batch in memory."""
        make = self._subscription_block
        return regroup(make, self.seed, "subscriptions", first, n, batch_rows, BLOCK_ROWS)

    def events(
        self, n: int, batch_rows: int = BATCH_ROWS, first: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """`n` events from number `first` on, in batches, in the order of time."""
        rows = self._event_block_rows
        return regroup(self._event_block, self.seed, "events", first, n, batch_rows, rows)

    def subscription_table(self, n: int, first: int = 0) -> pa.Table:
        """`n` subscriptions as one table."""
        return _table(self.subscriptions(n, first=first), self.subscriptions(1))

    def event_table(self, n: int, first: int = 0) -> pa.Table:
        """`n` events as one table."""
        return _table(self.events(n, first=first), self.events(1))

    def digest(self, n: int, n_events: int | None = None) -> str:
        """The sha256 of `n` subscriptions and `n_events` (by default `n`) events."""
        subscriptions = digest_batches(self.subscriptions(n))
        events = digest_batches(self.events(n if n_events is None else n_events))
        return digest_batches([pa.record_batch({"digest": [subscriptions, events]})])


def _table(batches: Iterator[pa.RecordBatch], sample: Iterator[pa.RecordBatch]) -> pa.Table:
    kept = list(batches)
    schema = kept[0].schema if kept else next(sample).schema
    return pa.Table.from_batches(kept, schema)
