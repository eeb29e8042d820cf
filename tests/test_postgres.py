"""The shared store: one writer, fenced, killed, cut off. What holds for all is in test_stores."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from nearcast import Broker, Event, Subscription
from nearcast.cli import app
from nearcast.errors import StoppedError, StoreError, ValidationError
from nearcast.storage.keys import Keys
from nearcast.storage.postgres import PostgresDatabase
from nearcast.storage.postgres.dialect import insertion, numbered, read, written
from nearcast.storage.retention import Retention
from nearcast.storage.schema import VERSION
from nearcast.storage.store import TableStore
from nearcast.storage.tables import Runs
from nearcast.storage.urls import parse_url, shown
from tests.history import Client, Story, Witness
from tests.postgres import Postgres, shared_postgres

real = pytest.mark.needs("postgres")
S1 = Subscription("s1", "ann")


@pytest.fixture
def postgres() -> Postgres:
    return shared_postgres()


@pytest.fixture
def own() -> Iterator[Postgres]:
    """One that may be killed."""
    made = Postgres()
    made.start()
    yield made
    made.remove()


# --- URLs and words --------------------------------------------------------------------------


def test_urls():
    url = parse_url("postgresql://ann:secret@db.example:5433/city?schema=north&sslmode=require")
    assert (url.kind, url.path, url.schema) == ("postgresql", None, "north")
    assert url.reach == "postgresql://ann:secret@db.example:5433/city?sslmode=require"
    assert parse_url("postgres:///city").schema == "nearcast"
    for secret in ("postgresql://ann:secret@h/city", "postgresql://ann@h/city?password=secret"):
        assert "secret" not in shown(secret)
        assert "ann" in shown(secret)


@pytest.mark.parametrize("schema", ["", 'a"b', "A", "1a", "a&schema=b"])
def test_schemas_that_are_no_names(schema: str):
    with pytest.raises(ValidationError, match="schema"):
        parse_url(f"postgresql://h/city?schema={schema}")


def test_parameters_are_numbered():
    assert numbered("a = ? AND b = ?") == "a = $1 AND b = $2"
    assert numbered("a = ?2 OR b = ?1 OR c = ?2") == "a = $2 OR b = $1 OR c = $2"


def test_text_without_nul_keeps_its_order():
    texts = [
        "",
        "\0",
        "\0\0",
        "\0\1",
        "\0a",
        "\1",
        "\1\0",
        "\1\1",
        "\1\2",
        "\2",
        "a",
        "a\0",
        "a\1b",
    ]
    kept = [written(each) for each in texts]
    assert not any("\0" in each for each in kept)
    assert [each.encode() for each in kept] == sorted(each.encode() for each in kept)
    assert [row[0] for row in read(iter([(each,) for each in kept]), [0])] == texts


def test_rows_go_in_as_columns_and_no_key_twice_in_one_statement():
    tables = {"t": {"a": "bigint", "b": "text", "c": "bytea"}}
    said = "INSERT INTO t VALUES (?, ?, NULL) ON CONFLICT (b) DO UPDATE SET a = excluded.a"
    made = insertion(said, tables)
    assert made is not None
    assert "SELECT a, b, NULL FROM unnest($1::bigint[], $2::text[])" in made.text
    rows: list[Any] = [(1, "x"), (2, 'y"\\'), (3, "x"), (4, None)]
    assert [*made.parts(rows)] == [rows[:2], rows[2:]]
    assert made.arrays(rows[:2]) == ["{1,2}", '{"x","y\\"\\\\"}']
    assert made.arrays(rows[2:]) == ["{3,4}", '{"x",NULL}']
    assert insertion("DELETE FROM t WHERE a = ?", tables) is None


# --- one writer ------------------------------------------------------------------------------


@real
def test_a_second_writer_is_refused_and_told_by_whom(postgres: Postgres):
    url = postgres.url()
    with Broker.open(url):
        with pytest.raises(StoreError, match=r"in use by another process \(session \d+ from"):
            Broker.open(url)
        Broker.open(postgres.url()).close()  # another schema is another store
    Broker.open(url).close()


@real
def test_what_is_not_ours_is_refused(postgres: Postgres):
    postgres.ask("CREATE SCHEMA theirs; CREATE TABLE theirs.log (x int)")
    with pytest.raises(StoreError, match="other tables than nearcast's"):
        Broker.open(postgres.url("theirs"))
    with pytest.raises(StoreError, match=r"see to the database and the way there"):
        Broker.open("postgresql://nearcast@127.0.0.1:1/city")
    with pytest.raises(StoreError, match="does not exist"):
        Broker.open(f"postgresql://nearcast@127.0.0.1:{postgres.port}/nowhere")
    url = postgres.url("newer")
    Broker.open(url).close()
    postgres.ask(f"UPDATE newer.store SET version = {VERSION + 1}")
    with pytest.raises(StoreError, match="written by a newer nearcast"):
        Broker.open(url)


@real
def test_a_space_is_for_good(postgres: Postgres):
    url = postgres.url()
    Broker.open(url, "planar").close()
    with pytest.raises(StoreError, match="made with space='planar'"):
        Broker.open(url, "globe")
    Broker.open(url, "planar").close()


@real
def test_a_password_is_not_in_what_is_said():
    with pytest.raises(StoreError) as refused:
        Broker.open("postgresql://ann:sesame@127.0.0.1:1/city")
    assert "sesame" not in str(refused.value)


@real
def test_keys_are_made_beside_a_writer(postgres: Postgres):
    url = postgres.url()
    with Broker.open(url) as broker:
        asked = ["keys", "create", "--store", url, "--role", "admin", "--tenant", "n"]
        made = CliRunner().invoke(app, asked)
        assert made.exit_code == 0, made.output
        database = PostgresDatabase(parse_url(url), guest=True)
        found = Keys(database).find(made.stdout.strip())
        database.close()
        assert found is not None
        assert found.tenant == "n"
        broker.publish(Event("e1"))


@real
def test_a_backup_is_what_the_database_makes(postgres: Postgres, tmp_path: Path):
    refused = CliRunner().invoke(app, ["backup", "--store", postgres.url(), str(tmp_path / "x")])
    assert refused.exit_code == 2
    assert "pg_dump" in refused.output


@real
def test_a_row_that_cannot_be_written_undoes_those_beside_it(postgres: Postgres):
    database = PostgresDatabase(postgres.place())
    database.stage("INSERT INTO facts VALUES (?, ?, ?)", (1, "a", "x"))
    database.flush()
    database.stage("INSERT INTO facts VALUES (?, ?, ?)", (1, "b", "x"))
    database.stage("INSERT INTO facts VALUES (?, ?, ?)", (1, "a", "y"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.flush()
    database.stage("INSERT INTO facts VALUES (?, ?, ?)", (1, "c", None))
    database.flush()
    assert [*database.rows("SELECT name, value FROM facts ORDER BY name")] == [
        ("a", "x"), ("c", None),
    ]  # fmt: skip
    database.close()


@real
def test_a_store_that_is_too_large_loses_its_oldest(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nearcast.storage.retention._STEP", 100)
    monkeypatch.setattr("nearcast.storage.postgres.database._WEIGHED_S", 0.0)
    database = PostgresDatabase(postgres.place())
    store = TableStore(database, retention=Retention(max_bytes=300_000))
    with Broker("planar", store=store) as broker:
        for first in range(0, 4000, 100):
            some = range(first, first + 100)
            broker.publish_many([Event(f"e{i}", {"x": "y" * 300}, end=i, expires=i + 1)
                                 for i in some])  # fmt: skip
        first = broker.log()[0][0]
        assert 1000 < first < 3990, "the oldest are gone, and not all"
        assert broker.reading.forgotten == first - 1
        assert 0 < database.used < 1_000_000


# --- two at once, by force -------------------------------------------------------------------


class Deaf(PostgresDatabase):
    """Does not look whether it still writes alone."""

    def _commit(self, runs: Runs) -> None:
        self.epoch = None
        super()._commit(runs)


def _refused(call: Any) -> bool:
    try:
        call()
    except (StoreError, StoppedError):
        return True
    return False


def _two(postgres: Postgres, kind: type[PostgresDatabase]) -> None:
    """The first goes on until it is told, while a second has taken the store."""
    place = postgres.place()
    old = Broker("planar", store=TableStore(kind(place)))
    old.subscribe(S1)
    answered = [old.publish(Event("e0"))[0].event.id]
    new = Broker("planar", store=TableStore(PostgresDatabase(place, force=True)))
    assert [each.event.id for each in new.notifications("ann").notifications] == answered
    for call in (lambda: old.publish(Event("e1")), lambda: old.ack("ann", 1), old.advance):
        assert _refused(call), "the old one has answered"
    assert [told.seq for told in new.publish(Event("e1"))] == [2]
    assert new._outlet.store.cursor("ann") == 0
    new.close()
    old.close()
    again = Broker("planar", store=TableStore(PostgresDatabase(place)))
    assert [e.event.id for e in again.notifications("ann").notifications] == ["e0", "e1"]
    again.close()


@real
def test_who_has_been_replaced_answers_nothing(postgres: Postgres):
    _two(postgres, PostgresDatabase)


@real
def test_control_a_writer_that_does_not_look_is_found_out(postgres: Postgres):
    with pytest.raises(AssertionError):
        _two(postgres, Deaf)


#: Calls that change nothing in the memory of one that has S1, e0, and an acknowledged 1.
IDLE: dict[str, Any] = {
    "publish": lambda broker: broker.publish(Event("e0")),
    "publish_many": lambda broker: broker.publish_many([Event("e0")]),
    "subscribe": lambda broker: broker.subscribe(S1),
    "subscribe_many": lambda broker: broker.subscribe_many([S1]),
    "resume": lambda broker: broker.resume("s1"),
    "ack": lambda broker: broker.ack("ann", 1),
    "together": lambda broker: broker.together([lambda: broker.publish(Event("e0"))]),
}


def acknowledges(postgres: Postgres, kind: type[PostgresDatabase], call: Any) -> bool:
    """Whether one that was replaced says yes to what is so no more."""
    place = postgres.place()
    old = Broker("planar", store=TableStore(kind(place)))
    old.subscribe(S1)
    old.publish(Event("e0"))
    old.ack("ann", 1)
    call(old)  # as long as it writes that is no more than a repetition
    with Broker("planar", store=TableStore(PostgresDatabase(place, force=True))) as new:
        new.retract("e0")
        new.unsubscribe("s1")
    said = not _refused(lambda: call(old))
    old.close()
    return said


@real
@pytest.mark.parametrize("verb", IDLE)
def test_who_has_been_replaced_acknowledges_no_repetition(postgres: Postgres, verb: str):
    assert not acknowledges(postgres, PostgresDatabase, IDLE[verb])


@real
def test_control_a_writer_that_asks_only_to_commit_is_found_out(postgres: Postgres):
    class Sure(PostgresDatabase):
        def _confirm(self) -> None: ...

    assert acknowledges(postgres, Sure, IDLE["publish"])


@real
def test_a_repetition_costs_a_look_and_reading_none(postgres: Postgres):
    looks: list[int] = []

    class Counted(PostgresDatabase):
        def _confirm(self) -> None:
            looks.append(1)
            super()._confirm()

    broker = Broker("planar", store=TableStore(Counted(postgres.place())))
    broker.subscribe(S1)
    broker.publish(Event("e0"))
    assert not looks
    broker.notifications("ann")
    looked: list[Any] = [broker.log, lambda: broker.reading.last("ann")]
    broker.together(looked)
    assert not looks
    broker.publish(Event("e0"))
    broker.together([lambda: broker.publish(Event("e0")), lambda: broker.subscribe(S1)])
    assert len(looks) == 2
    broker.close()


@real
def test_whoever_takes_over_waits_for_a_commit_that_is_under_way(postgres: Postgres):
    """Between the look at the epoch and the end of the commit nobody becomes the writer."""
    place = postgres.place()
    old = PostgresDatabase(place)
    old._connection.execute("BEGIN")
    old._connection.execute("SELECT nearcast_guard($1)", (old.epoch,))
    taken: list[PostgresDatabase] = []
    thread = threading.Thread(target=lambda: taken.append(PostgresDatabase(place, force=True)))
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    until = time.monotonic() + 120
    while not postgres.ask(waiting):
        assert time.monotonic() < until
        assert not taken
    old._connection.execute("COMMIT")
    thread.join(120)
    assert taken
    old.stage("INSERT INTO facts VALUES (?, ?, ?)", (1, "a", "x"))
    with pytest.raises(StoreError, match="another process writes there now"):
        old.flush()
    taken[0].close()


# --- killed ----------------------------------------------------------------------------------


@real
def test_a_commit_that_is_never_answered_is_given_up(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    """Somebody has locked the table, and sleeps."""
    monkeypatch.setattr("nearcast.storage.postgres.database._SILENCE_S", 0.5)
    place = postgres.place()
    with Broker.open(postgres.url(place.schema)) as broker:
        broker.publish(Event("e1"))
        with psycopg.connect(place.reach) as other:
            other.execute(f'LOCK TABLE "{place.schema}".log IN ACCESS EXCLUSIVE MODE'.encode())
            with pytest.raises(StoreError, match=r"no answer for 0\.5 s"):
                broker.publish(Event("e2"))
    with Broker.open(postgres.url(place.schema)) as broker:
        broker.publish(Event("e2"))
        assert [event.id for _, event in broker.log()] == ["e1", "e2"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_database_that_is_killed_again_and_again(own: Postgres, seed: int):
    """What was answered is there; what was not is asked again, and happens once."""
    rng = random.Random(seed)
    place = own.place()
    client = Client(Story(seed, 60, plain=seed == 1), Witness(naive=seed == 1))

    def opened() -> Broker:
        return Broker("planar", store=TableStore(PostgresDatabase(place)))

    deaths = 0
    while not client.over and deaths < 4:
        broker = opened()
        client.go_on(broker, rng.randrange(1, 12))
        killer = threading.Timer(rng.random() / 50, own.kill)
        killer.start()
        with suppress(StoreError):
            client.go_on(broker)
        killer.join()
        deaths += 1
        if not client.over:
            with pytest.raises(StoppedError, match="open it again"):
                client.go_on(broker)
        broker.close()
        own.start()
        again = opened()
        client.recovered(again)
        again.close()
    assert deaths > 1
    broker = opened()
    client.go_on(broker)
    client.check(broker)
    broker.close()


@real
def test_a_session_that_is_ended_from_outside(postgres: Postgres):
    url = postgres.url()
    broker = Broker.open(url, "planar")
    broker.subscribe(S1)
    broker.publish(Event("e1"))
    postgres.ask("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    with pytest.raises(StoreError, match="open it again"):
        broker.publish(Event("e2"))
    with pytest.raises(StoppedError):
        broker.publish(Event("e2"))
    with Broker.open(url, "planar") as broker:
        assert [each.seq for each in broker.publish(Event("e2"))] == [2]
        assert not broker.publish(Event("e1"))
