"""One schema of a PostgreSQL database, one writer: locked, fenced, written in transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b, md5
from pathlib import Path
from typing import Any

import platformdirs
import psycopg

from nearcast.storage.postgres.connection import (
    Connection,
    Synchronous,
    connected,
    is_mistake,
    replaced,
    reported,
)
from nearcast.storage.postgres.dialect import (
    Columns,
    Insertion,
    insertion,
    numbered,
    read,
    written,
)
from nearcast.storage.postgres.migration import CHANGES, KEYS, migrate, version_of
from nearcast.storage.schema import VERSION
from nearcast.storage.tables import Row, Runs, Tables, TakenError
from nearcast.storage.urls import StoreUrl

__all__ = ["PostgresDatabase"]

_LOCK = 0x6E637374
"""The first half of the lock's number; the second is the schema's."""
_PATIENCE_S, _LOOKS_S = 2.0, 0.05
_TEXT = 25
_COLUMNS = """
    SELECT relname, attname, format_type(atttypid, NULL) FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
    ORDER BY attrelid, attnum
"""
_HOLDER = """
    SELECT pg_stat_activity.pid, coalesce(client_addr::text, 'this machine')
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND classid = $1 AND objid = hashtext($2)::oid AND granted
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_TAKE = "UPDATE store SET epoch = epoch + 1, url = $1 RETURNING epoch"
#: Rows that are there, times what the columns and indexes of one take: what a table had to be
#: larger for once is not given back, and holds nothing.
_USED = """
    SELECT sum(n_live_tup * (28 + coalesce(width, 200) + 40 * (
        SELECT count(*) FROM pg_index WHERE indrelid = relid)))
    FROM pg_stat_user_tables LEFT JOIN (
        SELECT tablename, sum(avg_width) AS width FROM pg_stats WHERE schemaname = $1
        GROUP BY tablename) AS widths ON tablename = relname
    WHERE schemaname = $1
"""
_WEIGHED_S = 60.0
#: Whoever waits for a commit for so long gives up: what has become of it is found out by opening
#: the store again.
_SILENCE_S = 60.0


class PostgresDatabase(Tables):
    """A schema that this process alone writes to.

    A lock of the session says who writes: it is gone with the process, or some seconds after the
    way to it was cut. Whoever has it counts the epoch up, and each commit looks whether that is
    still its own; so one that believes to have the lock, and has it no more, can commit nothing.

    Raises StoreError if the schema is another's, somebody else has it, or the database cannot
    be reached. After a failed commit nothing more is written: whether it has happened is found
    out by opening it again. Rows that cannot be written at all (a mistake of whoever staged them)
    raise as they are, and nothing of their transaction has happened.

    `served_at` is where others may ask the writer. A `guest` neither waits for the lock nor takes
    the store: it reads, and writes what is nobody's (keys). `force` takes the store from whoever
    has it, `synchronous` is for tests of just that.
    """

    def __init__(
        self, url: StoreUrl, *, served_at: str | None = None, patience_s: float = _PATIENCE_S,
        guest: bool = False, force: bool = False, synchronous: Synchronous = "on",
    ) -> None:  # fmt: skip
        super().__init__()
        self.url = url
        self.name = url.name
        self.epoch: int | None = None
        """The writer's number; None: a guest."""
        self._broken = False
        self._insertions: dict[str, Insertion | None] = {}
        self._weighed = -_WEIGHED_S
        self._listens: set[str] = set()
        self._connection = connected(url, synchronous)
        try:
            with reported(self.name):
                known = version_of(self._connection, url.schema, self.name)
                if not (force or (guest and known == VERSION)):
                    self._lock(patience_s, guest)
                migrate(self._connection, url.schema, self.name)
                if guest:
                    self._first("SELECT pg_advisory_unlock_all()")
                self._tables = _columns(self._connection, url.schema)
                self._id: str = self._first("SELECT id FROM store")
                if not guest:
                    self.epoch = self._first(_TAKE, served_at)
        except BaseException:
            self.close()
            raise

    def _first(self, query: str, *given: Any) -> Any:
        return self._connection.execute(query, given).fetchall()[0][0]

    def _lock(self, patience_s: float, guest: bool) -> None:
        """A process that has just ended may hold it for some milliseconds yet."""
        until = time.monotonic() + patience_s
        row = _LOCK, self.url.schema
        take = "SELECT pg_try_advisory_lock($1::int, hashtext($2))"
        while not self._first(take, *row):
            if guest and version_of(self._connection, self.url.schema, self.name) == VERSION:
                return  # somebody else has just made the tables
            if time.monotonic() >= until:
                who = self._connection.execute(_HOLDER, row).fetchall()
                said = " and ".join(f"session {pid} from {place}" for pid, place in who)
                raise TakenError(
                    f"{self.name}: in use by another process ({said or 'gone just now'}); stop "
                    "that one first, or name another schema with ?schema=…"
                )
            time.sleep(_LOOKS_S)

    # -- reading -------------------------------------------------------------------

    def rows(self, query: str, parameters: Row = ()) -> Iterator[Row]:
        """The rows of a query, over what is committed. They are read at once."""
        with reported(self.name):
            cursor = self._connection.cursor(binary=True)
            cursor.execute(numbered(query), [*map(written, parameters)])
            texts = [at for at, c in enumerate(cursor.description or ()) if c.type_code == _TEXT]
            yield from read(iter(cursor), texts)

    def value(self, query: str, parameters: Row = ()) -> Any:
        """The one value of a query; None if there is no row."""
        for row in self.rows(query, parameters):
            return row[0]
        return None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read within stood there at one moment."""
        with reported(self.name):
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def writer(self) -> str | None:
        """Where the writer is asked, if it has said so."""
        with reported(self.name):
            found: str | None = self._first("SELECT url FROM store")
            return found

    def heard(self, *, keys: bool, changes: bool, patience_s: float) -> set[str]:
        """Wait until somebody else has committed something, or made a key, or for so long."""
        digest = md5(self.url.schema.encode(), usedforsecurity=False).hexdigest()
        with reported(self.name):
            for prefix, wanted in ((KEYS, keys), (CHANGES, changes)):
                if wanted != (prefix in self._listens):
                    word = "LISTEN" if wanted else "UNLISTEN"
                    self._connection.execute(f'{word} "{prefix}{digest}"')
                    self._listens ^= {prefix}
            told = self._connection.notifies(timeout=patience_s, stop_after=1)
            return {each.channel.removesuffix(digest) for each in told}

    # -- writing -------------------------------------------------------------------

    def _commit(self, runs: Runs) -> None:
        connection = self._connection
        with reported(self.name), connection.answering(_SILENCE_S):
            try:
                ready = [*self._encoded(runs)]
                with connection.pipeline(), connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    if self.epoch is not None:
                        cursor.execute("SELECT nearcast_guard($1)", (self.epoch,))
                    for text, rows in ready:
                        if len(rows) == 1:
                            cursor.execute(text, rows[0])
                        else:
                            cursor.executemany(text, rows)
                    cursor.execute("COMMIT")
            except BaseException as error:
                self._broken = not is_mistake(error) or not self._rolled_back()
                if self._broken:
                    connection.close()  # whatever is under way does not become a commit later
                raise

    def _confirm(self) -> None:
        """Look at the epoch alone: nothing is written, so nobody need wait or be woken for it."""
        if self.epoch is None:
            return
        with reported(self.name):
            if self._first("SELECT epoch FROM store") != self.epoch:
                raise replaced(self.name)

    def _encoded(self, runs: Runs) -> Iterator[tuple[str, list[Any]]]:
        """Statements with the parameters of each time that they run."""
        for statement, rows in runs:
            made = self._insertion(statement)
            if made is None:
                yield numbered(statement), [[*map(written, row)] for row in rows]
            else:
                for part in made.parts(rows):
                    yield made.text, [made.arrays(part)]

    def _insertion(self, statement: str) -> Insertion | None:
        try:
            return self._insertions[statement]
        except KeyError:
            made = self._insertions[statement] = insertion(statement, self._tables)
            return made

    def _rolled_back(self) -> bool:
        """Nothing of this transaction has happened, and the next one may."""
        with suppress(psycopg.Error):
            self._connection.rollback()
            return True
        return False

    def close(self) -> None:
        """Let go of the lock and the connection; what is staged is dropped. Twice is harmless."""
        self._staged = []
        with suppress(psycopg.Error):
            self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):  # else there was none to be had
            self.close()

    def beside(self, part: str) -> Path:
        """A path of this machine's user, under the store's own number."""
        folder = Path(platformdirs.user_cache_dir("nearcast")) / "stores"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{blake2b(self._id.encode(), digest_size=8).hexdigest()}-{part}"

    @property
    def used(self) -> int:
        """Bytes that hold something, as the database's statistics have it."""
        with reported(self.name):
            now = time.monotonic()
            if now - self._weighed >= _WEIGHED_S:
                self._weighed = now
                self._connection.execute("ANALYZE log, outbox, events, things, changes")
            return int(self._first(_USED, self.url.schema) or 0)


def _columns(connection: Connection, schema: str) -> Mapping[str, Columns]:
    found: dict[str, dict[str, str]] = {}
    for table, name, kind in connection.execute(_COLUMNS, (f'"{schema}"',)):
        found.setdefault(table, {})[name] = kind
    return found
