"""How a database is reached, and what its errors mean."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Literal, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from nearcast.errors import StoreError
from nearcast.storage.postgres.migration import FENCED
from nearcast.storage.tables import LostError
from nearcast.storage.urls import StoreUrl

__all__ = ["Connection", "Synchronous", "connected", "is_mistake", "replaced", "reported"]

_Value = TypeVar("_Value")
#: When a commit returns: `on` is as the database is set up, if that is not `off`.
Synchronous = Literal["on", "off"]

#: What its library logs is raised, too.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
#: Whoever does not answer for some seconds is gone, for both sides: the database lets go of the
#: lock of a process that cannot be reached, and a process does not wait for a database for ever.
_PATIENCE: dict[str, Any] = {
    "connect_timeout": 5, "keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 2,
    "tcp_user_timeout": 3000,
}  # fmt: skip
#: Everything is found by an index, whatever the database believes about how full a table is.
_SETTINGS = """
    SET search_path = "{schema}";
    SET client_min_messages = warning;
    SET tcp_keepalives_idle = 1;
    SET tcp_keepalives_interval = 1;
    SET tcp_keepalives_count = 2;
    SET tcp_user_timeout = 3000;
    SET idle_in_transaction_session_timeout = 10000;
    SET default_transaction_isolation = 'read committed';
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
"""
_ALWAYS_SYNC = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'
"""


class Connection(psycopg.Connection[Any]):
    """One that can be told not to wait for ever."""

    _silence_s: float | None = None

    @contextmanager
    def answering(self, within_s: float) -> Iterator[None]:
        """OperationalError, and no connection any more, if the database says nothing so long."""
        self._silence_s = within_s
        try:
            yield
        finally:
            self._silence_s = None

    def wait(self, gen: PQGen[_Value], *given: Any, **options: Any) -> _Value:
        """Wait as the library does, which asks ten times a second whether to go on."""
        if self._silence_s is not None:
            gen = self._bounded(gen, self._silence_s)
        return super().wait(gen, *given, **options)

    def _bounded(self, gen: PQGen[_Value], silence_s: float) -> PQGen[_Value]:
        heard = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = monotonic()
                elif monotonic() - heard > silence_s:
                    self.pgconn.finish()
                    with suppress(psycopg.Error):  # it would go on with what is no more
                        gen.close()
                    raise psycopg.OperationalError(f"no answer for {silence_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            value: _Value = ended.value
            return value

    def __del__(self, *_: Any) -> None:
        """Closed quietly: an error's frames may have held it longer than whoever it belonged to."""
        if hasattr(self, "pgconn"):
            self.pgconn.finish()


def connected(url: StoreUrl, synchronous: Synchronous = "on") -> Connection:
    """A connection to a store's schema; StoreError if there is none to be had."""
    with reported(url.name):
        made = Connection.connect(
            url.reach, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor,
            application_name="nearcast", **_PATIENCE,
        )  # fmt: skip
        made.prepared_max = 500
        # One statement is prepared for one type, not for each width of integers.
        made.adapters.register_dumper(int, Int8BinaryDumper)
        made.adapters.register_dumper(int, Int8Dumper)
        try:
            made.execute(_SETTINGS.format(schema=url.schema), prepare=False)
            if synchronous == "on":
                made.execute(_ALWAYS_SYNC)
            else:
                made.execute("SET synchronous_commit = off")
        except BaseException:
            made.close()
            raise
    return made


def is_mistake(error: BaseException) -> bool:
    """Whether what was to be written is at fault, and neither the database nor the way there."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.IntegrityError | psycopg.DataError)
    return isinstance(error, Exception)


def replaced(name: str) -> LostError:
    """What is said to a writer that is one no more."""
    return LostError(
        f"{name}: another process writes there now; what was not answered is for it to "
        "answer: ask that one"
    )


@contextmanager
def reported(name: str) -> Iterator[None]:
    """What PostgreSQL says, as an error that says what to do."""
    try:
        yield
    except (psycopg.IntegrityError, psycopg.DataError):
        raise
    except psycopg.Error as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        if error.sqlstate == FENCED:
            raise replaced(name) from None
        if isinstance(error, psycopg.errors.DiskFull):
            raise StoreError(f"{name}: {said}; make room, then open it again") from error
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise StoreError(f"{name}: {said}; let the user have it, or make the schema") from error
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            raise LostError(
                f"{name}: {said}; see to the database and the way there, then open it again"
            ) from error
        raise StoreError(f"{name}: {said}; see to the database, then open it again") from error
