"""A real PostgreSQL on this machine, which tests start, stop, kill and start again.

One server for all tests of a process, with a schema for each store. `python -m tests.postgres`
runs one by hand.
"""

from __future__ import annotations

import signal
from functools import cache
from itertools import count

import psycopg

from nearcast.bench.load.postgres import PostgresNode
from nearcast.storage.urls import StoreUrl, parse_url
from tests.served import free_port

__all__ = ["Postgres", "shared_postgres"]


class Postgres(PostgresNode):
    """A server in which stores have schemas of their own. Processes are killed here, never the
    machine: nothing need reach the disk for that."""

    def __init__(self) -> None:
        super().__init__(free_port(), durable=False)
        self._numbers = count(1)

    def url(self, schema: str | None = None, port: int | None = None) -> str:
        """A store, by default one that nobody has used."""
        return super().url(schema or f"s{next(self._numbers)}", port)

    def place(self, schema: str | None = None) -> StoreUrl:
        return parse_url(self.url(schema))

    def ask(self, query: str) -> list[tuple[object, ...]]:
        """As somebody else who looks in."""
        reach = f"postgresql://nearcast@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(reach, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


@cache
def shared_postgres() -> Postgres:
    """This process's server, started when first asked for; `conftest` ends it."""
    made = Postgres()
    made.start()
    return made


def end_shared() -> None:
    """It is needed no more."""
    if shared_postgres.cache_info().currsize:
        shared_postgres().remove()
        shared_postgres.cache_clear()


def _main() -> None:
    made = shared_postgres()
    print(f"{made.url('nearcast')}, until Ctrl-C", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        end_shared()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    _main()
