"""Events as rows: what any log has, as a stream that patterns, fences and Spark itself can use.

`spark.readStream.format("nearcast-events")` with the options of `event_stream`. Rows that are no
events are left out and told of. A source that is idle may beat: a row that is no event says how far
time has come, so that windows end and timers fire while nothing happens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nearcast.errors import NearcastError, SparkError
from nearcast.model.geometry import Space
from nearcast.spark import shipping
from nearcast.spark.packs import BEAT
from nearcast.spark.rows import accepted
from nearcast.spark.stream import logs
from nearcast.spark.stream.lines import attributes_as_json
from nearcast.spark.stream.patience import Patience
from nearcast.spark.stream.worker import Rejects, dealt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FeedReader", "FeedSource", "Feeding", "general_columns"]

_SECOND = 1_000_000


def general_columns(*, offsets: bool = False) -> StructType:
    """The columns of events whose source does not say what attributes they have."""
    from pyspark.sql import types as T  # noqa: N812  # everybody's name for it

    text = T.StringType()
    given: list[tuple[str, Any]] = [
        ("id", text), ("attributes_json", T.MapType(text, text)), ("keywords", T.ArrayType(text)),
        ("lon", T.DoubleType()), ("lat", T.DoubleType()), ("geometry", T.BinaryType()),
        *[(name, T.TimestampType()) for name in ("start", "end", "expires")],
        *[("offset", T.LongType())] * offsets,
    ]  # fmt: skip
    return T.StructType([T.StructField(name, kind) for name, kind in given])


@dataclass(frozen=True)
class Feeding:
    """The options of the source."""

    events: str
    columns: str
    """Of the rows: Spark's schema as JSON."""
    space: Space = "globe"
    max_rows: int = 200_000
    tasks: int = 2
    heartbeat_s: float | None = None
    shared: str | None = None
    key: str | None = None
    patience_s: float = 120.0

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Feeding:
        """What `written` wrote; Spark does not tell names by case."""
        said: dict[str, Any] = json.loads({k.casefold(): v for k, v in options.items()}["feeding"])
        return cls(**said)

    def written(self) -> dict[str, str]:
        """As options."""
        return {"feeding": json.dumps(asdict(self))}

    @property
    def job(self) -> str:
        """What must stay the same for a checkpoint to be of use."""
        return f"events={self.events} space={self.space}"

    @property
    def schema(self) -> StructType:
        """The columns, as Spark has them."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.columns))


class FeedSource(DataSource):
    """`format("nearcast-events")`: the rows of a log as they come."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._feeding = Feeding.read(dict(options))

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "nearcast-events"

    def schema(self) -> StructType:
        """What it gives."""
        return self._feeding.schema

    def streamReader(self, schema: Any) -> FeedReader:  # noqa: ARG002, N802  # Spark's name
        """The reader of one query."""
        return FeedReader(self._feeding)


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches: how far to read, and when to say that time goes on without events."""

    def __init__(self, feeding: Feeding) -> None:
        self.feeding = feeding
        self._log: Any = None
        self._until: Any = None
        self._at: Any = None
        self._rest: tuple[int, float] | None = None
        self._patience = Patience(feeding.patience_s)

    def __getstate__(self) -> dict[str, Any]:
        return FeedReader(self.feeding).__dict__ | {"_log": None}

    @property
    def log(self) -> Any:
        """The log, opened when first needed."""
        if self._log is None:
            given = self.feeding
            root = Path(given.shared) if given.shared else shipping._fresh(None)
            root.mkdir(parents=True, exist_ok=True)
            self._log = logs.event_log(given.events, given.key, root, given.space)
            self._rejected = str(root / "rejected")
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything."""
        return self._said(self.log.first, 0, None, None)

    def _said(self, events: Any, read: int, clock: int | None, beat: int | None) -> dict[str, Any]:
        job = self.feeding.job
        return {"events": events, "read": read, "clock": clock, "beat": beat, "job": job}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many events a batch, in whole files."""
        return ReadMaxRows(self.feeding.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads; the start if there is nothing."""
        most = None if isinstance(limit, ReadAllAvailable) else self.feeding.max_rows
        self._check(start)
        try:
            at, rows = self.log.latest(start["events"], most, self._until)
            if at != start["events"]:
                return self._moved(start, at, rows)
        except (OSError, NearcastError) as error:
            if self._until is not None or not self._patience.lasts(error):
                raise
            return start
        self._patience.renew()
        return self._beating(start)

    def _check(self, said: dict[str, Any]) -> None:
        if said.get("job") != self.feeding.job:
            raise SparkError(
                f"the checkpoint belongs to another job ({said.get('job')}, and not "
                f"{self.feeding.job}): give a new checkpoint"
            )

    def _moved(self, start: dict[str, Any], at: Any, rows: int) -> dict[str, Any]:
        clock, beat = start["clock"], start["beat"]
        if self.feeding.heartbeat_s is not None:
            newest = self.log.newest(start["events"], at)
            clock = max((each for each in (clock, newest) if each is not None), default=None)
        self._patience.renew()
        self._rest = None
        return self._said(at, rows, clock, beat)

    def _beating(self, start: dict[str, Any]) -> dict[str, Any]:
        """The start, or with a beat when nothing has come for long enough.

        Time goes on from the latest `end` that was read as fast as the clock, from when this
        process saw that there was no more; never back.
        """
        every, clock = self.feeding.heartbeat_s, start["clock"]
        if every is None or clock is None or self._until is not None:
            return start
        now = time.monotonic()
        known = max(clock, start["beat"] or clock)
        if self._rest is None:
            self._rest = known, now
        since, at = self._rest
        beat = since + int((now - at) * _SECOND)
        if beat - known < every * _SECOND:
            return start
        return self._said(start["events"], 0, clock, beat)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How much is not read yet, for whoever watches."""
        if self._at is None:
            return None
        try:
            return {"behind": self.log.behind(self._at)}
        except (OSError, NearcastError):
            return None  # it is asked again soon, by who reads

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self._until = self.log.end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        self._check(start)
        self._at = end["events"]
        made: list[InputPartition] = []
        if end["events"] != start["events"]:
            pieces = self.log.pieces(start["events"], end["events"])
            given = self.feeding
            made += [
                Rows(part, given.columns, given.space, self._rejected)
                for part in dealt(pieces, given.tasks)
            ]
        if end["beat"] is not None and end["beat"] != start["beat"]:
            made.append(Beat(end["beat"], self.feeding.columns))
        return made

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task."""
        assert isinstance(partition, Rows | Beat)
        return partition.batches()

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done: what only it needed may go."""
        self.log.tidy(end["events"])

    def stop(self) -> None:
        """The query has ended."""


# --- in tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Named:
    """The columns that are read: all that the rows have."""

    names: tuple[str, ...]

    def of(self, schema: Any) -> list[str]:
        """Those of a file; attributes in whichever form it has them."""
        wanted = set(self.names)
        if "attributes_json" in wanted:
            wanted.add("attributes")
        return [name for name in schema.names if name in wanted]


class Rows(InputPartition):
    """Some events of a batch."""

    def __init__(self, pieces: list[Any], columns: str, space: Space, rejected: str) -> None:
        super().__init__(None)
        self.pieces, self.columns, self.space, self.rejected = pieces, columns, space, rejected

    def batches(self) -> Iterator[Any]:
        """They, as record batches of the columns; what is no event is told of and left out."""
        schema = _arrow(self.columns)
        wanted = _Named(tuple(schema.names))
        for piece in self.pieces:
            for number, table in enumerate(piece.tables(wanted)):
                own = [n for n in table.column_names if n not in ("offset", BEAT)]
                _, bad = accepted(table.select(own), "events", self.space)
                if bad:
                    where = f"{piece!r} {number}"
                    Rejects(self.rejected, where).tell(bad, where)
                    wrong = {each.row for each in bad}
                    kept = [row for row in range(table.num_rows) if row not in wrong]
                    table = table.take(pa.array(kept, pa.int64()))
                yield from _shaped(table, schema).to_batches()


class Beat(InputPartition):
    """A row that is no event: time has come so far."""

    def __init__(self, at: int, columns: str) -> None:
        super().__init__(None)
        self.at, self.columns = at, columns

    def batches(self) -> Iterator[Any]:
        """It."""
        given = {"end": pa.array([self.at], pa.timestamp("us", tz="UTC")), BEAT: pa.array([True])}
        yield from _shaped(pa.table(given), _arrow(self.columns)).to_batches()


def _arrow(columns: str) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(columns)), timezone="UTC")


def _shaped(table: Any, schema: Any) -> Any:
    """A table in these columns; what it lacks is null."""
    if "attributes_json" in schema.names:
        table = attributes_as_json(table)
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(_cast(table.column(field.name), field.type))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: Any, kind: Any) -> Any:
    if not pa.types.is_struct(kind) or column.type == kind:
        return column.cast(kind, safe=False) if column.type != kind else column
    struct = column.combine_chunks()
    if isinstance(struct, pa.ChunkedArray):
        struct = struct.chunk(0) if struct.num_chunks else pa.array([], column.type)
    there = {struct.type.field(at).name: at for at in range(struct.type.num_fields)}
    fields = [
        struct.field(there[field.name]).cast(field.type) if field.name in there
        else pa.nulls(len(struct), field.type)
        for field in kind
    ]  # fmt: skip
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=struct.is_null())
