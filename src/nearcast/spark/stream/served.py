"""Logs of a server: events by offset from `/v1/log`, changes of subscriptions from `/v1/changes`.

The driver reads pages of the log and spools them as files; workers read these. A change says
behind which offset of the log it came, so whoever reads both logs knows what each event sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.clock import NEVER
from nearcast.errors import NearcastError, ServerError
from nearcast.model.codec import (
    event_from_json,
    events_to_arrow,
    subscription_from_json,
    subscriptions_to_arrow,
)
from nearcast.model.geometry import Around, Space
from nearcast.model.subscriptions import Subscription
from nearcast.spark.stream import sinks, spool
from nearcast.spark.stream.changes import canonical
from nearcast.spark.stream.moments import newest_of
from nearcast.spark.stream.spool import SpooledPiece

__all__ = ["ChangeLog", "EventLog"]

_PAGE = 1000


def _pages(url: str, key: str | None, path: str, after: Any, list_name: str) -> Iterator[Any]:
    """The pages of a list, up to one that is empty."""
    while True:
        said = sinks.request(f"{url}{path}?{urlencode({'after': after, 'limit': _PAGE})}", key)
        if not isinstance(said, dict) or not isinstance(said.get(list_name), list):
            raise ServerError(f"{url}{path}: that is no answer of a nearcast server")
        yield said
        if not said[list_name]:
            return
        after = said["next"]


@dataclass
class EventLog:
    """The events of a server: a position is an offset of its log."""

    url: str
    key: str | None
    root: Path
    space: Space = "globe"

    first = 0

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")

    def _path(self, start: int, stop: int) -> Path:
        return self.root / "spool" / f"events-{start:012d}-{stop:012d}.parquet"

    def end(self) -> int:
        """The last entry now."""
        said = sinks.request(f"{self.url}/v1/log?{urlencode({'after': 0, 'limit': 1})}", self.key)
        if "last" not in said:
            raise ServerError(f"{self.url}: its log does not say how long it is; update the server")
        return int(said["last"])

    def latest(self, start: int, most: int | None, until: int | None) -> tuple[int, int]:
        """(how far to read, the events up to there), read and spooled by then."""
        stop, rows, _ = self.reach(start, most, until)
        return stop, rows

    def reach(self, start: int, most: int | None, until: int | None) -> tuple[int, int, int]:
        """As `latest`, and the offset up to which these are all events there are."""
        last = self.end() if until is None else until
        if last < start:
            raise ServerError(
                f"{self.url}: its log ends at {last:,}, before {start:,}, which was read: it is "
                "another log; give the stream a new checkpoint"
            )
        found: list[Any] = []
        stop = start
        for page in _pages(self.url, self.key, "/v1/log", start, "events"):
            if 0 < start < page.get("forgotten", 0):
                raise ServerError(
                    f"{self.url}: events after offset {start:,}, which were not read, are not kept "
                    "any more; give the stream a new checkpoint"
                )
            for said in page["events"]:
                if said["offset"] > last:
                    break
                found.append(said)
                stop = said["offset"]
            if most is not None and len(found) >= most:
                last = stop
            if stop < page["next"] or stop >= last:
                break
        if stop > start:
            spool.put(self._path(start, stop), self._table(found))
        return stop, len(found), max(last, stop)

    def fetch(self, start: int, stop: int) -> Any:
        """The events in (start, stop] once more."""
        found: list[Any] = []
        for page in _pages(self.url, self.key, "/v1/log", start, "events"):
            found += [said for said in page["events"] if said["offset"] <= stop]
            if page["next"] >= stop:
                break
        return self._table(found)

    def _table(self, said: list[Any]) -> Any:
        events, offsets = [], []
        for each in said:
            if each.get("source") == sinks.SENT:
                continue  # what a stream has told would be told again, and so on
            given = {name: value for name, value in each.items() if name != "offset"}
            try:
                events.append(event_from_json(given, space=self.space, extensions="ignore"))
            except NearcastError:
                continue  # of another space than the stream's: it can match nothing
            offsets.append(each["offset"])
        table = events_to_arrow(events) if events else pa.table({"id": pa.array([], pa.string())})
        return table.append_column("offset", pa.array(offsets, pa.int64()))

    def ends(self, start: int, stop: int) -> tuple[list[int], list[int]]:
        """The offsets in (start, stop], and the greatest `end` that was known at each."""
        offsets: list[int] = []
        ends: list[int] = []
        for piece in self.pieces(start, stop):
            table = pq.read_table(piece.ensured())
            if "end" not in table.column_names:
                continue
            times = table.column("end").cast(pa.int64()).fill_null(NEVER).to_numpy()
            offsets += table.column("offset").to_pylist()
            ends += np.maximum.accumulate(times).tolist()
        return offsets, ends

    def newest(self, start: int, stop: int) -> int | None:
        """The greatest `end` in (start, stop]."""
        return newest_of(self.pieces(start, stop))

    def pieces(self, start: int, stop: int) -> list[SpooledPiece]:
        """One file."""
        if stop <= start:
            return []
        fetch = partial(EventLog(self.url, self.key, self.root, self.space).fetch, start, stop)
        return [SpooledPiece(str(self._path(start, stop)), stop - start, fetch)]

    def behind(self, start: int) -> int:
        """Entries that are not read yet."""
        return max(0, self.end() - start)

    def tidy(self, oldest: int) -> None:
        """Remove files of ranges that end before the oldest that is remembered."""
        for path in (self.root / "spool").glob("events-*.parquet"):
            if int(path.stem.rpartition("-")[2]) <= oldest:
                path.unlink(missing_ok=True)


@dataclass
class ChangeLog:
    """The changes of a server's subscriptions: a position is the number of one."""

    url: str
    key: str | None
    space: Space = "globe"
    _read: tuple[int, int, Any] | None = field(default=None, repr=False)
    """What was read last: from, to, and the changes."""

    first = 0
    plain = False

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")

    def _page(self, after: int, limit: int = _PAGE) -> dict[str, Any]:
        query = urlencode({"after": after, "limit": limit})
        said = sinks.request(f"{self.url}/v1/changes?{query}", self.key)
        if not isinstance(said, dict) or not isinstance(said.get("changes"), list):
            raise ServerError(f"{self.url}: that is no log of changes; update the server")
        return said

    def end(self) -> int:
        """The number of the last change now."""
        return int(self._page(0, 1)["last"])

    def latest(
        self, start: int, most: int | None, until: int | None, bound: int | None = None
    ) -> int:
        """How far to read; `bound`: only what came before the events behind that offset."""
        found: list[Any] = []
        at, stop = start, start
        while True:
            page = self._page(at)
            if 0 < start < page["forgotten"]:
                raise ServerError(
                    f"{self.url}: changes from number {start:,} on are not kept any more; give "
                    "the stream a new checkpoint"
                )
            if page["last"] < start:
                raise ServerError(
                    f"{self.url}: its changes end at {page['last']:,}, before {start:,}, which was "
                    "read: it is another log; give the stream a new checkpoint"
                )
            if not page["changes"]:  # what is forgotten need not be asked for again
                stop = page["forgotten"]
                break
            fits = [
                said
                for said in page["changes"]
                if (until is None or said["seq"] <= until)
                and (bound is None or said["offset"] <= bound)
            ]
            found += fits
            if len(fits) < len(page["changes"]) or (most is not None and len(found) >= most):
                break
            at = page["next"]
        if most is not None:
            del found[most:]
        stop = max(start, stop, found[-1]["seq"] if found else start)
        self._read = start, stop, self._table(found)
        return stop

    def next_offset(self, position: int) -> int | None:
        """Behind which event the first change after a position came; None: there is none yet."""
        said = self._page(position, 1)["changes"]
        return int(said[0]["offset"]) if said else None

    def reaches(self, first: int, second: int) -> bool:
        """Whether the second position is not before the first."""
        return first <= second

    def read(self, start: int, stop: int) -> Any:
        """The changes in (start, stop], with the column `offset`: behind which event each came."""
        if self._read is None or self._read[:2] != (start, stop):
            self.latest(start, None, stop)
        assert self._read is not None
        self._read = start, stop, self._read[2]
        return self._read[2]

    def _table(self, said: list[Any]) -> Any:
        rows: list[Subscription] = []
        ops = []
        for each in said:
            wanted = None
            if each["op"] == "update":
                wanted = subscription_from_json(each["subscription"], space=self.space)
            stands = wanted is not None and not isinstance(wanted.region, Around)
            rows.append(
                _plain(wanted) if wanted is not None and stands else Subscription(each["id"])
            )
            # What follows somebody is not matched here.
            ops.append("update" if stands else "remove")
        nothing = pa.table({"id": pa.array([], pa.string())})
        table = subscriptions_to_arrow(rows) if rows else nothing
        table = table.append_column("op", pa.array(ops, pa.string()))
        table = table.append_column("seq", pa.array([each["seq"] for each in said], pa.int64()))
        offsets = pa.array([each["offset"] for each in said], pa.int64())
        return canonical(table, f"{self.url}/v1/changes").append_column("offset", offsets)


def _plain(wanted: Subscription) -> Subscription:
    """What matches, without the terms on which a server tells of it."""
    w = wanted
    return Subscription(w.id, w.subscriber, w.filter, w.keywords, w.region, w.expires)
