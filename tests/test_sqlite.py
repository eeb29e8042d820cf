"""The SQLite store itself: one writer, migrations, retention, snapshots, backups, keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from nearcast import (
    Around,
    Box,
    Broker,
    Circle,
    Composite,
    Event,
    Fence,
    Point,
    Polygon,
    Subscription,
)
from nearcast.broker.memory import MemoryStore
from nearcast.errors import StoreError, UnknownIdError, ValidationError
from nearcast.storage import retention as retention_module
from nearcast.storage import snapshot as snapshot_module
from nearcast.storage import statements as sql
from nearcast.storage.keys import Keys
from nearcast.storage.opening import open_store
from nearcast.storage.retention import Retention
from nearcast.storage.schema import STEPS, VERSION, Step
from nearcast.storage.sqlite import Database, SqliteStore
from nearcast.storage.sqlite.migration import APPLICATION
from nearcast.storage.urls import parse_url

S = 1_000_000
HOUR = 3600 * S


def wish(i: int = 0, **given: Any) -> Subscription:
    return Subscription(**{"id": f"s{i}", "subscriber": f"u{i % 7}", **given})


# --- where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("city.db", "city.db"),
        ("sqlite:///city.db", "city.db"),
        ("sqlite:////var/lib/city.db", "/var/lib/city.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        (Path("x/y.db"), "x/y.db"),
        ("memory:", None),
    ],
)
def test_urls(url: Any, path: str | None):
    assert parse_url(url).path == (None if path is None else Path(path))


@pytest.mark.parametrize(
    "url", ["", None, 5, ":memory:", "sqlite://x.db", "sqlite:///", "mysql:///x", "folder/"]
)
def test_urls_that_name_no_store(url: Any):
    with pytest.raises(ValidationError, match="store"):
        parse_url(url)


def test_memory_is_a_store_of_its_own(tmp_path: Path):
    assert isinstance(open_store("memory:", "globe"), MemoryStore)
    with Broker.open("memory:") as broker:
        broker.subscribe(wish())
        assert broker.publish(Event("e1"))[0].seq == 1


# --- one writer ------------------------------------------------------------------------------


def test_a_second_process_is_refused(tmp_path: Path):
    file = tmp_path / "city.db"
    code = "import sys; from nearcast import Broker; Broker.open(sys.argv[1])"
    with Broker.open(file) as broker:
        broker.subscribe(wish())
        with pytest.raises(StoreError, match=r"in use by another process; stop that one"):
            Broker.open(file)
        run = subprocess.run(
            [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False
        )
        assert "in use by another process; stop that one" in run.stderr
        assert len(broker) == 1
        broker.publish(Event("e1"))
    with Broker.open(file) as broker:
        assert broker.event_count == 1


def test_what_is_not_ours_is_refused(tmp_path: Path):
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StoreError, match="not one of nearcast's"):
        Broker.open(other)
    text = tmp_path / "text.db"
    text.write_text("hello, this is not a database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Broker.open(text)
    with pytest.raises(StoreError, match=r"cannot be opened"):
        Broker.open(tmp_path / "nowhere" / "city.db")
    newer = tmp_path / "newer.db"
    Broker.open(newer).close()
    connection = apsw.Connection(str(newer))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    with pytest.raises(StoreError, match="newer nearcast"):
        Broker.open(newer)


def test_a_space_is_for_good(tmp_path: Path):
    Broker.open(tmp_path / "x.db", "planar").close()
    with pytest.raises(StoreError, match="made with space='planar', and not 'globe'"):
        Broker.open(tmp_path / "x.db")
    Broker.open(tmp_path / "x.db", "planar").close()


def test_commits_are_synced_and_the_log_is_long_beforehand(tmp_path: Path):
    database = Database(tmp_path / "x.db")
    assert database.value("PRAGMA synchronous") == 2
    assert database.value("PRAGMA journal_mode") == "wal"
    wal = Path(f"{database.path}-wal")
    before = wal.stat().st_size
    assert before > 8_000_000
    for i in range(50):
        database.stage("INSERT OR REPLACE INTO facts VALUES (1, 'x', ?)", (i,))
        database.flush()
    assert wal.stat().st_size == before
    database.close()
    database.close()
    assert Database(tmp_path / "x.db").value("SELECT value FROM facts") == 49


def test_tenants_do_not_see_each_other(tmp_path: Path):
    database = Database(tmp_path / "x.db")
    one, two = (Broker(store=SqliteStore(database, name)) for name in ("one", "two"))
    one.subscribe(wish(0, subscriber="ann"))
    two.subscribe(wish(0, subscriber="ann", where="price > 1"))
    one.publish(Event("e1", {"price": 1}))
    two.publish(Event("e1", {"price": 2}))
    database.close()
    database = Database(tmp_path / "x.db")
    one, two = (Broker(store=SqliteStore(database, name)) for name in ("one", "two"))
    for broker, price in ((one, 1), (two, 2)):
        (told,) = broker.notifications("ann").notifications
        assert (told.seq, told.event.attributes["price"]) == (1, price)
        assert [offset for offset, _ in broker.log()] == [1]
    database.close()


# --- versions --------------------------------------------------------------------------------


def test_a_file_of_version_one_becomes_one_of_today(tmp_path: Path):
    file = tmp_path / "old.db"
    connection = apsw.Connection(str(file))
    connection.execute(STEPS[0].tables)
    connection.pragma("application_id", APPLICATION)
    connection.pragma("user_version", 1)
    connection.execute(
        """
        INSERT INTO tenants VALUES (1, '');
        INSERT INTO facts VALUES (1, 'space', 'planar'), (1, 'now', 7), (1, 'entry', 1),
            (1, 'arrived', 1), (1, 'version', 1);
        INSERT INTO things
            VALUES (1, 's1', 'subscription', 'ann', NULL, 1, 1, '["price < 5",[],null]');
        INSERT INTO log VALUES (1, 1, 'event', 7, '["e1",null,{"price":3},[],[1,2],null,7,null]');
        INSERT INTO events VALUES (1, 'e1', 1, NULL, NULL);
        INSERT INTO subscribers VALUES (1, 'ann', 1, 1, 0);
        INSERT INTO outbox VALUES (1, 1, 1, 's1', 1, 7, NULL);
        """
    )
    connection.close()
    with Broker.open(file, "planar") as broker:
        (told,) = broker.notifications("ann").notifications
        assert told.event == Event("e1", {"price": 3}, (), Point(1, 2), end=7)
        assert (broker.now, len(broker), broker.event_count) == (7, 1, 1)
        assert broker.publish(Event("e2", {"price": 4}))[0].seq == 2
    database = Database(file)
    assert database.value("PRAGMA user_version") == VERSION
    assert len(Keys(database)) == 0
    database.close()


def test_a_migration_that_breaks_off_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "x.db"
    Broker.open(file).close()
    more = (*STEPS, Step("CREATE TABLE new (x); CREATE TABLE keys (x)"))
    monkeypatch.setattr("nearcast.storage.schema.STEPS", more)
    monkeypatch.setattr("nearcast.storage.schema.VERSION", len(more))
    with pytest.raises(StoreError, match="already exists"):
        Broker.open(file)
    monkeypatch.undo()
    with Broker.open(file) as broker:
        broker.subscribe(wish())


# --- retention -------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with every commit."""
    monkeypatch.setattr(retention_module, "_STEP", 1)
    monkeypatch.setattr(retention_module, "_LOOKED_AT", 4)


def kept(file: Path, **given: Any) -> Broker:
    return Broker("planar", store=SqliteStore(Database(file), retention=Retention(**given)))


@pytest.mark.usefixtures("eager")
def test_what_is_old_goes_and_leaves_a_gap(tmp_path: Path):
    with kept(tmp_path / "x.db", age_s=3600) as broker:
        broker.subscribe(wish(0, subscriber="ann"))
        broker.publish(Event("stays", end=0))
        for i in range(1, 40):
            broker.publish(Event(f"e{i}", end=i * 600 * S, expires=i * 600 * S + 1))
        offsets = [event.id for _, event in broker.log()]
        assert offsets[0] == "stays"
        assert "e1" not in offsets
        assert "e39" in offsets
        forgotten = broker.reading.forgotten
        assert [id for at, id in ((at, e.id) for at, e in broker.log()) if at < forgotten] == [
            "stays"
        ]
        page = broker.notifications("ann")
        assert page.lost > 20
        assert page.notifications[0].seq == page.lost + 1
        assert page.notifications[-1].seq == 40
        recent = [told.seq for told in page.notifications]
        assert recent == list(range(page.lost + 1, 41))
        assert min(told.at for told in page.notifications) >= 39 * 600 * S - 2 * HOUR
    with kept(tmp_path / "x.db") as broker:
        assert broker.event_count == 2  # what is live is kept
        assert broker.reading.forgotten == forgotten
        broker.retract("stays")
    with kept(tmp_path / "x.db", age_s=3600) as broker:
        while next(event.id for _, event in broker.log()) == "stays":
            now = broker.now or 0
            broker.publish(Event("more", end=now, expires=now + 1))
            broker.advance(now + S)
            assert broker.reading.forgotten >= forgotten
        assert broker.reading.forgotten >= forgotten


@pytest.mark.usefixtures("eager")
def test_a_gap_at_the_end_is_told_too(tmp_path: Path):
    with kept(tmp_path / "x.db", age_s=1) as broker:
        broker.subscribe(wish(0, subscriber="ann", where="told = TRUE"))
        broker.publish(Event("e0", {"told": True}, end=0, expires=1))
        for i in range(1, 20):
            broker.publish(Event(f"e{i}", end=i * 600 * S, expires=i * 600 * S + 1))
        assert broker.notifications("ann") == ((), 1, 1)
        broker.ack("ann", 1)
        assert broker.notifications("ann") == ((), 1, 0)
        assert broker.notifications("ann", after=0).lost == 0  # it has said that it has it


@pytest.mark.usefixtures("eager")
def test_a_notification_is_as_old_as_its_telling(tmp_path: Path):
    with kept(tmp_path / "x.db", age_s=3600) as broker:
        broker.publish(Event("old", end=0, expires=100 * HOUR))
        broker.advance(99 * HOUR)
        broker.subscribe(wish(0, subscriber="ann"))
        broker.advance(100 * HOUR)
        for i in range(9):
            broker.publish(Event(f"e{i}"))
        told = broker.notifications("ann").notifications
        assert told[0].event.id == "old"


@pytest.mark.usefixtures("eager")
def test_a_file_that_is_too_large_loses_its_oldest(tmp_path: Path):
    with kept(tmp_path / "x.db", max_bytes=400_000) as broker:
        for i in range(600):
            broker.publish(Event(f"e{i}", {"text": "x" * 2000}, end=i, expires=i + 1))
        ids = [event.id for _, event in broker.log(limit=10_000)]
        assert 20 < len(ids) < 300
        assert ids == [f"e{i}" for i in range(600 - len(ids), 600)]


@pytest.mark.usefixtures("eager")
def test_patterns_keep_what_they_need(tmp_path: Path):
    late = Composite("c1", "ops", "=|(ARITH: a = 1; PT9000H)(ARITH: a = 2)")
    with kept(tmp_path / "x.db", age_s=1) as broker:
        broker.detect(late)
        broker.publish(Event("e1", {"a": 1}, end=1, expires=2))
        for i in range(20):
            broker.publish(Event(f"x{i}", end=(i + 1) * HOUR, expires=(i + 1) * HOUR + 1))
    with kept(tmp_path / "x.db", age_s=1) as broker:
        (told,) = broker.publish(Event("e2", {"a": 2}, end=30 * HOUR))
        assert told.event.parts == ("e1", "e2")  # type: ignore[attr-defined]
        broker.unsubscribe("c1")
        for i in range(20):
            broker.publish(Event(f"y{i}", end=(i + 31) * HOUR, expires=(i + 31) * HOUR + 1))
        assert "x3" not in [event.id for _, event in broker.log()]


@pytest.mark.usefixtures("eager")
def test_what_waits_for_late_events_outlives_retention(tmp_path: Path):
    """A position that is over, too: a fence has yet to hear of it."""

    def opened() -> Broker:
        store = SqliteStore.open(tmp_path / "x.db", retention=Retention(age_s=1))
        return Broker("planar", store=store, lateness="PT100H")

    with opened() as broker:
        broker.subscribe(Fence("f", "ann", "car", Box(0, 0, 1, 1)))
        broker.publish(Event("p", {"car": 1}, (), Point(0, 0), end=1, expires=2))
        for i in range(20):
            broker.publish(Event(f"x{i}", end=(i + 1) * HOUR, expires=(i + 1) * HOUR + 1))
        assert next(event.id for _, event in broker.log()) == "p"
        assert "x3" not in [event.id for _, event in broker.log()]
    with opened() as broker:
        (told,) = broker.advance(200 * HOUR)
        assert (told.transition, told.event.id) == ("enter", "p")


def test_retention_is_checked():
    with pytest.raises(ValidationError, match="age_s"):
        Retention(age_s=-1)
    with pytest.raises(ValidationError, match="max_bytes"):
        Retention(max_bytes=0)


# --- snapshots -------------------------------------------------------------------------------


REGIONS = (
    None, Circle(1, 2, 3), Box(0, 0, 2, 2), Around(5), Polygon([(0, 0), (3, 0), (0, 3)]),
)  # fmt: skip


def many(count: int) -> list[Subscription]:
    words = ((), ("sale",), ("sale", "phone"))
    return [
        wish(i, where=(None, f"price < {i % 9}")[i % 2], keywords=words[i % 3],
             region=REGIONS[i % 5], expires=(None, 10 * HOUR)[i % 2])
        for i in range(count)
    ]  # fmt: skip


def probe(broker: Broker) -> list[tuple[Any, ...]]:
    """What a broker tells of some events, which leave no trace."""
    found = []
    for i in range(12):
        event = Event(f"p{i}", {"price": i % 9}, ("sale",) * (i % 2), Point(i % 4, 1))
        found.append([told.subscription_id for told in broker.publish(event)])
        broker.retract(event.id)
    return [tuple(each) for each in found]


def snapshot_of(broker: Broker) -> Any:
    return broker._outlet._store._snapshot  # type: ignore[attr-defined]


def changed(broker: Broker) -> None:
    broker.unsubscribe("s3")
    broker.subscribe(wish(5, where="price > 3"))
    broker.subscribe(wish(1000, where="price = 2"))
    broker.unsubscribe("s8")
    broker.subscribe(wish(8, where="price = 3"))


def test_a_saved_matcher_and_what_came_since_is_the_same_as_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(snapshot_module, "_FEW", 10)
    file = tmp_path / "x.db"
    with Broker.open(file, "planar") as broker:
        broker.subscribe_many(many(200))
    reference = Broker("planar")
    reference.subscribe_many(many(200))
    broker = Broker.open(file, "planar")
    assert snapshot_of(broker).used
    changed(broker)
    broker._outlet._store.close()  # it dies, and saves nothing
    changed(reference)
    with Broker.open(file, "planar") as broker:
        assert snapshot_of(broker).used
        assert len(broker) == len(reference)
        broker.check_invariants()
        assert probe(broker) == probe(reference)
        broker.advance(11 * HOUR)
    reference.advance(11 * HOUR)
    with Broker.open(file, "planar") as broker:
        assert snapshot_of(broker).used
        assert probe(broker) == probe(reference)
    with Broker.open(file, "planar", subscription_index="scan") as broker:
        assert probe(broker) == probe(reference)
    with Broker.open(file, "planar", letters=True) as broker:
        assert broker._subscriptions._matcher.schema.letters
        assert probe(broker) == probe(reference)


@pytest.mark.parametrize("harm", ["data", "header", "gone", "other"])
def test_a_saved_matcher_is_thrown_away_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
):
    monkeypatch.setattr(snapshot_module, "_FEW", 10)
    file = tmp_path / "x.db"
    with Broker.open(file, "planar") as broker:
        broker.subscribe_many(many(60))
    folder = tmp_path / "x.db-matcher-1"
    (data,) = folder.glob("matcher-*.bin")
    match harm:
        case "data":
            found = bytearray(data.read_bytes())
            found[100] ^= 1
            data.write_bytes(found)
        case "header":
            (folder / "matcher.json").write_text("{")
        case "gone":
            data.unlink()
        case "other":
            with Broker.open(tmp_path / "y.db", "planar") as broker:
                broker.subscribe_many(many(60)[:-1])
            for path in (tmp_path / "y.db-matcher-1").iterdir():
                (folder / path.name).write_bytes(path.read_bytes())
    with Broker.open(file, "planar") as broker:
        assert not snapshot_of(broker).used
        assert len(broker) == 60
        broker.check_invariants()
        reference = Broker("planar")
        reference.subscribe_many(many(60))
        assert probe(broker) == probe(reference)


# --- backups and keys ------------------------------------------------------------------------


def test_a_backup_is_a_store(tmp_path: Path):
    with Broker.open(tmp_path / "x.db") as broker:
        broker.subscribe(wish(0, subscriber="ann"))
        broker.publish(Event("e1"))
        broker._outlet._store.database.backup(tmp_path / "copy.db")  # type: ignore[attr-defined]
        broker.publish(Event("e2"))
        with pytest.raises(StoreError, match="exists already"):
            broker._outlet._store.database.backup(tmp_path / "copy.db")  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="there is no folder"):
            broker._outlet._store.database.backup(tmp_path / "none/copy.db")  # type: ignore[attr-defined]
    with Broker.open(tmp_path / "copy.db") as broker:
        assert [told.event.id for told in broker.notifications("ann").notifications] == ["e1"]
    assert not list(tmp_path.glob(".copy*"))


def test_keys_are_known_by_their_digests(tmp_path: Path):
    database = Database(tmp_path / "x.db")
    keys = Keys(database)
    key = keys.create("subscribe", 5, subscriber="ann", tenant="shop")
    other = keys.create("admin", 6)
    found = keys.find(key)
    assert found is not None
    assert found[:4] == ("shop", "subscribe", "ann", 5)
    assert [known.role for _, known in keys.all()] == ["subscribe", "admin"]
    assert keys.all()[0][1] == found
    assert found.name not in (key, other)
    assert keys.find(key[:-1]) is None
    database.close()
    assert key.encode() not in (tmp_path / "x.db").read_bytes()
    keys = Keys(Database(tmp_path / "x.db"))
    keys.revoke(key)
    assert keys.find(key) is None
    assert len(keys) == 1
    with pytest.raises(UnknownIdError):
        keys.revoke(key)
    for bad in ({"role": "root"}, {"role": "subscribe"}, {"role": "admin", "subscriber": "x"}):
        with pytest.raises(ValidationError):
            keys.create(now=0, **bad)  # type: ignore[arg-type]


def test_the_command_copies_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from typer.testing import CliRunner

    from nearcast.cli import app

    file, copy = tmp_path / "x.db", tmp_path / "copy.db"
    with Broker.open(file) as broker:
        broker.publish(Event("e1"))
        busy = CliRunner().invoke(app, ["backup", "--store", str(file), str(copy)])
        assert busy.exit_code != 0
        assert not copy.exists()
    done = CliRunner().invoke(app, ["backup", "--store", f"sqlite:///{file}", str(copy)])
    assert done.exit_code == 0
    with Broker.open(copy) as broker:
        assert broker.event_count == 1
    for bad in ("memory:", str(tmp_path / "nothing.db")):
        assert CliRunner().invoke(app, ["backup", "--store", bad, "z.db"]).exit_code != 0
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.usefixtures("eager")
def test_changes_are_forgotten_with_the_log_of_their_time(tmp_path: Path):
    with kept(tmp_path / "x.db", age_s=3600) as broker:
        broker.subscribe(wish(0, where="price < 5"))
        broker.subscribe(wish(1))
        broker.publish(Event("e", end=0, expires=1))
        broker.subscribe(wish(0, where="price < 7"))
        broker.unsubscribe("s1")
        assert len(broker.changes().altered) == 4
        for i in range(1, 40):
            broker.publish(Event(f"e{i}", end=i * 600 * S, expires=i * 600 * S + 1))
        (left,) = broker.changes().altered
        assert left.subscription == wish(0, where="price < 7")
        assert broker.changes().forgotten >= 2
    with kept(tmp_path / "x.db", age_s=3600) as broker:
        assert broker.changes().forgotten >= 2
        assert broker.changes().last >= broker.changes().forgotten


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 15, 16, 17, 20, 37, 64])
def test_rows_that_go_in_together_are_as_one_by_one(tmp_path: Path, count: int) -> None:
    """Those of a key that comes again, too: the last one counts."""
    database = Database(tmp_path / "some.db")
    rows = [(1, f"name{i % 7}", f"value{i}") for i in range(count)]
    database.stage_all(sql.SET_FACT, rows)
    database.flush()
    kept = {name: value for _, name, value in rows}
    found: dict[str, str] = dict(database.rows("SELECT name, value FROM facts WHERE tenant = 1"))
    assert found == kept
    database.close()


def test_a_row_that_cannot_be_written_undoes_those_beside_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.db")
    entries = [(1, i, "event", None, "{}") for i in [*range(20), 3]]
    database.stage_all(sql.ADD_ENTRY, entries)
    with pytest.raises(apsw.ConstraintError):
        database.flush()
    assert database.value("SELECT count(*) FROM log") == 0
    database.close()
