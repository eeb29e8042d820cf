"""Files into and out of stores and servers: exact, resumed, with bad rows named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Around, Box, Broker, Circle, Event, Fence, Point, Polygon, Subscription
from nearcast.client import Client
from nearcast.errors import (
    DatasetError,
    NearcastError,
    RowError,
    StoreError,
    UnknownIdError,
    ValidationError,
)
from nearcast.model.codec import (
    fence_from_feature,
    fence_to_feature,
    subscription_from_feature,
    subscription_to_feature,
    subscriptions_to_arrow,
)
from nearcast.storage.opening import open_tables
from nearcast.storage.sqlite import Database
from nearcast.storage.urls import parse_url
from nearcast.transfer import KINDS, ends, export_file, import_file
from nearcast.transfer.geojson import features_of, lines_of
from nearcast.transfer.notes import Note
from tests.postgres import shared_postgres
from tests.served import client, free_port, make_keys, serving
from tests.strategies import events, subscriptions

ENDINGS = ("geojson", "geojsonl", "arrow", "parquet")
POSTGRES = pytest.mark.needs("postgres")
BOX = Box(1, 1, 2, 2)


def things(store: str | Path, kind: str, space: Any = "globe") -> list[Any]:
    """What a store holds, by its own pages."""
    end: Any = ends.opened_from(str(store), space, None, "")
    try:
        return [row for rows, _ in end.pages(KINDS[kind], None) for row in rows]
    finally:
        end.close()


def filled(store: Path, kind: str, rows: Sequence[Any], space: Any = "globe") -> None:
    with Broker.open(store, space) as broker:
        if kind == "events":
            broker.publish_many(rows)
        else:
            broker.subscribe_many(rows)


def wishes(count: int) -> list[Subscription]:
    return [
        Subscription(f"s{i:05}", f"u{i % 7}", f"price < {i}", ("sale",), Circle(i % 90, 1, 10 + i))
        for i in range(count)
    ]


def fences() -> list[Fence]:
    return [
        Fence("a", "ops", "truck", BOX, "state = 'x'", ("w",), {"enter", "dwell"}, 5.0, 60),
        Fence("b", "ops", "truck", Around(500), on={"lost"}, lost="PT1.5S"),
        Fence("c", None, "bus", Polygon([(0, 1), (2, 1), (1, 3)]), expires="2031-01-01T00:00:00Z"),
    ]


# --- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", ["subscriptions", "events"])
@pytest.mark.parametrize("space", ["globe", "planar"])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_exported_and_imported_is_what_there_was(
    tmp_path: Path, ending: str, kind: str, space: Any, data: st.DataObject
):
    drawn = st.lists((subscriptions if kind == "subscriptions" else events)(space), max_size=6)
    found: list[Any] = data.draw(drawn)
    rows = [*{each.id: each for each in found}.values()]
    folder = tmp_path / str(len([*tmp_path.iterdir()]))
    folder.mkdir()
    first, again = folder / f"1.{ending}", folder / f"2.{ending}"
    filled(folder / "1.db", kind, rows, space)
    done = export_file(first, kind, str(folder / "1.db"), space=space, skip_bad=True)
    there = things(folder / "1.db", kind, space)
    assert done.rows + done.rejected == len(there)
    assert import_file(first, kind, str(folder / "2.db"), space=space).rows == done.rows
    kept = things(folder / "2.db", kind, space)
    if not done.rejected:
        assert kept == there
    else:  # what JSON or columns cannot say
        assert [each for each in there if each in kept] == kept
    export_file(again, kind, str(folder / "2.db"), space=space)
    if "geo" in ending:
        assert again.read_bytes() == first.read_bytes()
    assert things(folder / "2.db", kind, space) == kept


@pytest.mark.parametrize("ending", ENDINGS)
def test_fences_come_back(tmp_path: Path, ending: str):
    filled(tmp_path / "1.db", "fences", fences())
    export_file(tmp_path / f"f.{ending}", "fences", str(tmp_path / "1.db"))
    import_file(tmp_path / f"f.{ending}", "fences", str(tmp_path / "2.db"))
    assert things(tmp_path / "2.db", "fences") == fences()


def test_features_of_things_are_read_as_they_were_written():
    shape = Around(shape=Polygon([(-50, 0), (50, 0), (50, 2000)]), turns=True)
    for region in (None, BOX, Circle(1, 2, 3), Around(7), shape, Polygon([(0, 1), (2, 1), (1, 3)])):
        one = Subscription("s", "ann", "a = 1", {"w"}, region, "2030-01-01T00:00:00Z")
        feature = json.loads(json.dumps(subscription_to_feature(one)))
        assert feature["type"] == "Feature"
        assert subscription_from_feature(feature) == one
    for fence in fences():
        assert fence_from_feature(fence_to_feature(fence)) == fence
    assert subscription_from_feature({"type": "Feature", "id": 7}).id == "7"


@pytest.mark.parametrize(
    ("feature", "field"),
    [
        ({"type": "Circle", "id": "a"}, "type"),
        ({"type": "Feature", "id": "a", "colour": 1}, "colour"),
        ({"type": "Feature", "id": "a", "properties": {"colour": 1}}, "colour"),
        ({"type": "Feature", "id": "a", "properties": {"radius_m": 1}}, "geometry"),
        (
            {"type": "Feature", "id": "a", "geometry": {"type": "Point", "coordinates": [1, 2]}},
            "properties.radius_m",
        ),
        ({"type": "Feature", "id": "a", "properties": {"id": "b"}}, "properties.id"),
    ],
)
def test_a_feature_that_is_no_subscription_says_why(feature: Any, field: str):
    with pytest.raises(ValidationError) as caught:
        subscription_from_feature(feature)
    assert caught.value.field == field


def test_attributes_whose_types_differ_between_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ends, "_FILE_ROWS", 2)
    values: list[Any] = [1, 2.5, "x", "y", True, 2**60, None, 3]
    rows = [Event(f"e{i}", {"v": v, f"n{i}": i}) for i, v in enumerate(values)]
    rows.append(Event("e", {"v": 1}, source="/s"))
    filled(tmp_path / "1.db", "events", rows)
    export_file(tmp_path / "e.parquet", "events", str(tmp_path / "1.db"))
    import_file(tmp_path / "e.parquet", "events", str(tmp_path / "2.db"))
    assert things(tmp_path / "2.db", "events") == things(tmp_path / "1.db", "events") == rows


def test_events_keep_their_order_and_notify(tmp_path: Path):
    rows = [Event(f"e{9 - i}", {"price": i}, end=1000 - i) for i in range(10)]
    filled(tmp_path / "1.db", "events", rows)
    export_file(tmp_path / "e.geojson", "events", str(tmp_path / "1.db"))
    with Broker.open(tmp_path / "2.db") as broker:
        broker.subscribe(Subscription("s", "ann", "price < 3"))
    import_file(tmp_path / "e.geojson", "events", str(tmp_path / "2.db"))
    with Broker.open(tmp_path / "2.db") as broker:
        told = broker.notifications("ann").notifications
    assert [each.event.id for each in told] == ["e9", "e8", "e7"]


# --- a server ------------------------------------------------------------------------------------


def test_through_a_server_with_a_key(tmp_path: Path):
    store = tmp_path / "city.db"
    key, other = make_keys(store, {"role": "admin", "tenant": "acme"}, {"role": "admin"})
    rows = wishes(2500)
    table = subscriptions_to_arrow(rows)
    pq.write_table(table, tmp_path / "in.parquet")
    live = [Event(f"e{i}", {"n": i}, expires="2100-01-01T00:00:00Z") for i in range(1200)]
    filled(tmp_path / "live.db", "events", live)
    export_file(tmp_path / "live.arrow", "events", str(tmp_path / "live.db"))
    with serving(store) as server:
        for _ in range(2):  # the second time nothing changes
            done = import_file(tmp_path / "in.parquet", "subscriptions", server.url, key=key)
            assert done.rows == 2500
            import_file(tmp_path / "live.arrow", "events", server.url, key=key)
        export_file(tmp_path / "out.parquet", "subscriptions", server.url, key=key)
        export_file(tmp_path / "out.geojson", "events", server.url, key=key)
        export_file(tmp_path / "none.parquet", "subscriptions", server.url, key=other)
        bad = [*rows[:1500], rows[0], *rows[1500:]]
        lines = [json.dumps(subscription_to_feature(each)) for each in bad]
        lines[1500] = lines[1500].replace("price < 0", "price << 0")
        (tmp_path / "bad.geojsonl").write_text("\n".join(lines))
        with pytest.raises(RowError) as caught:
            import_file(tmp_path / "bad.geojsonl", "subscriptions", server.url, key=key)
        assert caught.value.row == 1501
        with pytest.raises(NearcastError, match="key"):
            import_file(tmp_path / "in.parquet", "subscriptions", server.url, key="nck_wrong")
    assert pq.read_table(tmp_path / "out.parquet").equals(table)
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
    import_file(tmp_path / "out.geojson", "events", str(tmp_path / "back.db"))
    assert things(tmp_path / "back.db", "events") == live


def test_what_is_paused_is_exported_through_a_server(tmp_path: Path):
    with serving() as server, Client(server.url) as client:
        client.subscribe_many(wishes(3))
        client.pause(wishes(3)[1].id)
        export_file(tmp_path / "out.geojson", "subscriptions", server.url)
    import_file(tmp_path / "out.geojson", "subscriptions", str(tmp_path / "back.db"))
    assert things(tmp_path / "back.db", "subscriptions") == wishes(3)


def test_rows_that_are_too_large_together_go_by_halves(tmp_path: Path):
    rows = [Subscription(f"s{i}", "ann", "a = '" + "x" * 900 + "'") for i in range(60)]
    pq.write_table(subscriptions_to_arrow(rows), tmp_path / "in.parquet")
    with serving(max_body=20_000) as server:
        import_file(tmp_path / "in.parquet", "subscriptions", server.url)
        export_file(tmp_path / "out.parquet", "subscriptions", server.url)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 60


# --- bad rows ------------------------------------------------------------------------------------


def spoilt(path: Path, count: int, bad: set[int]) -> None:
    features = [subscription_to_feature(each) for each in wishes(count)]
    for row in bad:
        features[row]["properties"]["filters"] = [{"cql2": "price <"}]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}, indent=1))


def test_a_bad_row_ends_it_and_mended_it_goes_on(tmp_path: Path):
    file, store = tmp_path / "w.geojson", str(tmp_path / "w.db")
    spoilt(file, 300, {200})
    with pytest.raises(RowError) as caught:
        import_file(file, "subscriptions", store)
    assert caught.value.row == 201
    assert "200 rows before it are there" in str(caught.value)
    assert "price <" in str(caught.value)
    assert things(store, "subscriptions") == wishes(200)
    with pytest.raises(RowError):  # the same again, from where it was
        import_file(file, "subscriptions", store)
    spoilt(file, 300, set())
    assert import_file(file, "subscriptions", store).rows == 300
    assert things(store, "subscriptions") == wishes(300)
    assert not [each for each in tmp_path.iterdir() if "import" in each.name]


@pytest.mark.parametrize("bad", [{0}, {299}, {0, 1, 2, 150, 152, 299}, set(range(300))])
def test_bad_rows_are_set_aside(tmp_path: Path, bad: set[int]):
    file, store = tmp_path / "w.geojson", str(tmp_path / "w.db")
    spoilt(file, 300, bad)
    done = import_file(file, "subscriptions", store, skip_bad=True)
    assert (done.rows, done.rejected) == (300 - len(bad), len(bad))
    good = [each for row, each in enumerate(wishes(300)) if row not in bad]
    assert things(store, "subscriptions") == good
    lines = (tmp_path / "w.geojson.rejected.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    assert [each["row"] for each in said] == sorted(row + 1 for row in bad)
    for each in said:
        assert each["remedy"]
        assert each["is"]["id"] == f"s{each['row'] - 1:05}"


def test_bad_rows_of_columns_and_of_the_broker(tmp_path: Path):
    table = pa.table({"id": ["a", "b", "c"], "where": ["x = 1", "x >", "x = 3"]})
    pq.write_table(table, tmp_path / "w.parquet")
    done = import_file(
        tmp_path / "w.parquet", "subscriptions", str(tmp_path / "w.db"), skip_bad=True
    )
    assert (done.rows, done.rejected) == (2, 1)
    said = json.loads((tmp_path / "w.parquet.rejected.jsonl").read_text())
    assert (said["row"], said["is"]["id"]) == (2, "b")
    # an id that a fence has: the broker refuses it, not the codec
    filled(tmp_path / "w.db", "fences", [Fence("d", "ops", "truck", BOX)])
    (tmp_path / "v.geojsonl").write_text('{"type":"Feature","id":"d"}\nnonsense\n')
    done = import_file(
        tmp_path / "v.geojsonl", "subscriptions", str(tmp_path / "w.db"), skip_bad=True
    )
    assert (done.rows, done.rejected) == (0, 2)


def test_what_columns_cannot_say_is_set_aside(tmp_path: Path):
    shape = Around(shape=Polygon([(-50, 0), (50, 0), (50, 2000)]))
    rows = [Subscription("a", "ann", region=shape), Subscription("b", "ann")]
    filled(tmp_path / "1.db", "subscriptions", rows)
    with pytest.raises(RowError, match="'a'"):
        export_file(tmp_path / "w.parquet", "subscriptions", str(tmp_path / "1.db"))
    done = export_file(
        tmp_path / "w.parquet", "subscriptions", str(tmp_path / "1.db"), skip_bad=True
    )
    assert (done.rows, done.rejected) == (1, 1)
    assert pq.read_table(tmp_path / "w.parquet")["id"].to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.geojson", '{"type": "FeatureCollection", "features": [{"type": "Feat', "row 1"),
        ("b.geojson", '{"features": [{"id": "a", "type": "Feature"},', "row 2"),
        ("c.geojson", '{"features": [{"id": "a", "type": "Feature"} 2]}', "missing"),
        ("d.geojson", '{"type": "FeatureCollection"}', "features"),
        ("e.geojson", "[]", "missing"),
        ("f.geojson", "", "ends"),
        ("g.parquet", "PAR1", "cannot be read"),
        ("h.arrow", "ARROW1", "cannot be read"),
    ],
)
def test_files_that_are_not_whole(tmp_path: Path, name: str, text: str, says: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=says):
        import_file(tmp_path / name, "subscriptions", str(tmp_path / "w.db"))
    there = things(tmp_path / "w.db", "subscriptions")
    assert [each.id for each in there] == (["a"] if name[0] in "bc" else [])


@given(
    rows=st.lists(
        st.recursive(
            st.none() | st.integers() | st.text() | st.floats(allow_nan=False),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
        max_size=5,
    ),
    indent=st.sampled_from([None, 0, 3]), more=st.dictionaries(st.text(), st.integers()),
    chunk=st.integers(1, 50),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_features_are_found_wherever_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Any], indent: int | None,
    more: dict[str, int], chunk: int,
):  # fmt: skip
    monkeypatch.setattr("nearcast.transfer.geojson._CHUNK", chunk)
    more.pop("features", None)
    file = tmp_path / "x.geojson"
    file.write_text(json.dumps(more | {"features": rows} | {"z": 1}, indent=indent), "utf-8")
    assert [*features_of(file)] == rows
    lines = tmp_path / "x.geojsonl"
    lines.write_text("".join(f"\x1e{json.dumps(row)}\n" for row in rows), "utf-8")
    assert [*lines_of(lines)] == rows


# --- resumed -------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from nearcast.transfer import {verb}_file, ends
from nearcast.transfer import notes
ends._FILE_ROWS = ends._IntoFile.rows = 100
left = [int(sys.argv[4])]
write = notes.Note.write
def dying(self, *about, **said):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, *about, **said)
    if left[0] == 1 and sys.argv[5] == "behind":
        os.kill(os.getpid(), signal.SIGKILL)
notes.Note.write = dying
{verb}_file(sys.argv[1], sys.argv[2], sys.argv[3], skip_bad=True)
"""


def killed(verb: str, *arguments: str) -> None:
    command = [sys.executable, "-c", _KILLED.format(verb=verb), *arguments]
    ended = subprocess.run(
        command, env=os.environ | {"NEARCAST_JIT": "0"}, check=False, timeout=300
    )
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "behind"])
def test_killed_and_asked_again_gives_the_same(tmp_path: Path, when: str):
    file = tmp_path / "w.geojson"
    spoilt(file, 730, {5, 350, 701})
    import_file(file, "subscriptions", str(tmp_path / "whole.db"), skip_bad=True)
    expected = (tmp_path / "w.geojson.rejected.jsonl").read_text()
    for turn in (3, 4):
        killed("import", str(file), "subscriptions", str(tmp_path / "cut.db"), str(turn), when)
    done = import_file(file, "subscriptions", str(tmp_path / "cut.db"), skip_bad=True)
    assert done.resumed > 0
    assert (done.rows, done.rejected) == (727, 3)
    assert (tmp_path / "w.geojson.rejected.jsonl").read_text() == expected
    whole = things(tmp_path / "whole.db", "subscriptions")
    assert things(tmp_path / "cut.db", "subscriptions") == whole

    export_file(tmp_path / "whole.parquet", "subscriptions", str(tmp_path / "whole.db"))
    out = tmp_path / "cut.parquet"
    killed("export", str(out), "subscriptions", str(tmp_path / "cut.db"), "4", when)
    assert not out.exists()
    assert export_file(out, "subscriptions", str(tmp_path / "cut.db")).resumed > 0
    assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"))
    with pytest.raises(DatasetError, match="exists already"):
        export_file(out, "subscriptions", str(tmp_path / "cut.db"))


class PowerCut(BaseException):
    """Nothing more happens, and what was not synced is lost."""


def lines(path: Path, features: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in features))
    return path


@contextmanager
def dying_note(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """The process dies behind a commit, in front of the note of it."""
    left, write = [number], Note.write

    def dying(self: Note, about: dict[str, Any], **said: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise PowerCut
        write(self, about, **said)

    with monkeypatch.context() as patch:
        patch.setattr(Note, "write", dying)
        yield


def events_by_id_again(count: int, at: str) -> list[dict[str, Any]]:
    """One id, over and over: each is over before the next begins, but the last."""
    return [
        {
            "type": "Feature", "id": "e", "geometry": None, "properties": {"n": n},
            "time": f"{at}T{n:02}:00:00Z",
        } | ({"expirytime": f"{at}T{n:02}:10:00Z"} if n < count - 1 else {})
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("relative", [True, False])
def test_an_import_into_another_store_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
):
    """Under the same name: removed and made anew, or in another folder."""
    monkeypatch.setattr(ends._IntoFile, "rows", 2)
    file = lines(tmp_path / "w.geojsonl", [*map(subscription_to_feature, wishes(6))])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    store = "w.db" if relative else str(tmp_path / "a" / "w.db")
    with pytest.raises(PowerCut):
        import_file(file, "subscriptions", store, told=cut_after(2))
    if relative:
        monkeypatch.chdir(tmp_path / "b")
    else:
        for each in (tmp_path / "a").iterdir():
            each.unlink()
    done = import_file(file, "subscriptions", store)
    assert (done.rows, done.resumed) == (6, 0)
    assert things(store, "subscriptions") == wishes(6)


def test_an_import_goes_on_where_a_restored_store_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ends._IntoFile, "rows", 2)
    file = lines(tmp_path / "w.geojsonl", [*map(subscription_to_feature, wishes(8))])
    store = tmp_path / "w.db"
    with pytest.raises(PowerCut):
        import_file(file, "subscriptions", str(store), told=cut_after(1))
    Database(store).backup(tmp_path / "monday.db")
    with pytest.raises(PowerCut):
        import_file(file, "subscriptions", str(store), told=cut_after(2))
    for each in tmp_path.glob("w.db*"):
        each.unlink()
    (tmp_path / "monday.db").rename(store)
    assert import_file(file, "subscriptions", str(store)).rows == 8
    assert things(store, "subscriptions") == wishes(8)


def test_an_import_into_another_server_store_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ends._Server, "rows", 2)
    file, port = tmp_path / "w.geojsonl", free_port()
    lines(file, [*map(subscription_to_feature, wishes(6))])
    with serving(port=port) as server, pytest.raises(PowerCut):
        import_file(file, "subscriptions", server.url, told=cut_after(2))
    with serving(port=port) as server:
        done = import_file(file, "subscriptions", server.url)
        with Client(server.url) as ask:
            assert len(ask.things()[0]) == 6
    assert (done.rows, done.resumed) == (6, 0)


def test_a_server_of_which_only_v1_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def hidden(_: Client) -> str | None:
        raise UnknownIdError("body", "None", "there is no such page")

    monkeypatch.setattr(Client, "store", hidden)
    file = lines(tmp_path / "w.geojsonl", [*map(subscription_to_feature, wishes(6))])
    with serving() as server:
        assert import_file(file, "subscriptions", server.url).rows == 6


def test_an_export_from_another_store_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ends, "_FILE_ROWS", 2)
    store, out = tmp_path / "w.db", tmp_path / "w.geojsonl"
    filled(store, "subscriptions", wishes(6))
    with pytest.raises(PowerCut):
        export_file(out, "subscriptions", str(store), told=cut_after(2))
    for each in tmp_path.glob("w.db*"):
        each.unlink()
    again = [replace(each, subscriber="bob") for each in wishes(6)]
    filled(store, "subscriptions", again)
    done = export_file(out, "subscriptions", str(store))
    assert (done.rows, done.resumed) == (6, 0)
    assert [subscription_from_feature(each) for each in lines_of(out)] == again


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=POSTGRES)])
def test_no_row_is_put_twice_into_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
):
    """Killed behind the commit of a batch that has an id twice, and asked again."""
    monkeypatch.setattr(ends._IntoFile, "rows", 3)
    file = lines(tmp_path / "e.geojsonl", events_by_id_again(8, "2026-01-01"))
    store = str(tmp_path / "e.db") if kind == "sqlite" else shared_postgres().url()
    with Broker.open(store) as broker:
        broker.subscribe(Subscription("s", "ann"))
    with dying_note(monkeypatch, number), pytest.raises(PowerCut):
        import_file(file, "events", store)
    assert import_file(file, "events", store).rows == 8
    with Broker.open(store) as broker:
        assert [event.attributes["n"] for _, event in broker.log()] == [*range(8)]
        told = broker.notifications("ann").notifications
    assert [each.event.attributes["n"] for each in told] == [*range(8)]
    facts = open_tables(parse_url(store)).rows("SELECT name FROM facts WHERE tenant = 0")
    assert [*facts] == [("identity",)]


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_batch_that_is_sent_twice_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    file = lines(tmp_path / "e.geojsonl", events_by_id_again(5, "2026-01-01"))
    with serving(tmp_path / "e.db") as server:
        with dying_note(monkeypatch, number), pytest.raises(PowerCut):
            import_file(file, "events", server.url)
        assert import_file(file, "events", server.url).rows == 5
        with Client(server.url) as ask:
            assert [event.attributes["n"] for event in ask.events()] == [4]


class Synced:
    """What has reached the disk: contents by inode and time, names by folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: set[tuple[int, int]] = set()
        self.names: dict[int, set[int]] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        stands = os.fstat(handle)
        self.contents.add((stands.st_ino, stands.st_mtime_ns))
        if S_ISDIR(stands.st_mode):
            self.names[stands.st_ino] = {each.inode() for each in os.scandir(handle)}

    def cut(self, folder: Path) -> None:
        """What is in a folder after the power has come back."""
        known = self.names.get(folder.stat().st_ino, set())
        for path in folder.iterdir():
            stands = path.stat()
            if stands.st_ino not in known:
                path.unlink()
            elif (stands.st_ino, stands.st_mtime_ns) not in self.contents:
                os.truncate(path, 0)


def cut_after(parts: int) -> Any:
    """Told of progress: the power goes when so many parts are noted."""
    left = [parts + 1]

    def told(more: int, total: int | None) -> None:
        left[0] -= 1
        if not left[0]:
            raise PowerCut

    return told


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_export_goes_on_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    monkeypatch.setattr(ends, "_FILE_ROWS", 10)
    store, out = str(tmp_path / "w.db"), tmp_path / f"cut.{ending}"
    filled(tmp_path / "w.db", "subscriptions", wishes(45))
    whole = tmp_path / f"whole.{ending}"
    export_file(whole, "subscriptions", store)

    disk = Synced(monkeypatch)
    for parts in (1, 3):
        with pytest.raises(PowerCut):
            export_file(out, "subscriptions", store, told=cut_after(parts))
        disk.cut(tmp_path / f"{out.name}.parts")
    done = export_file(out, "subscriptions", store)
    assert done.rows == 45
    assert done.resumed == 40
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_part_that_has_lost_rows_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    monkeypatch.setattr(ends, "_FILE_ROWS", 10)
    store, out = str(tmp_path / "w.db"), tmp_path / f"w.{ending}"
    filled(tmp_path / "w.db", "subscriptions", wishes(45))
    with pytest.raises(PowerCut):
        export_file(out, "subscriptions", store, told=cut_after(2))
    os.truncate(tmp_path / f"{out.name}.parts" / "part-000001", 0)
    with pytest.raises(DatasetError, match="part-000001"):
        export_file(out, "subscriptions", store)
    assert not out.exists()


def test_what_cannot_be_done_says_so(tmp_path: Path):
    (tmp_path / "x.txt").write_text("")
    store = str(tmp_path / "none.db")
    with pytest.raises(ValidationError, match="format"):
        import_file(tmp_path / "x.txt", "events", store)
    with pytest.raises(ValidationError, match="kind"):
        import_file(tmp_path / "x.geojson", "people", store)
    with pytest.raises(StoreError, match="no such store"):
        export_file(tmp_path / "y.geojson", "events", store)
    with pytest.raises(ValidationError, match="memory"):
        export_file(tmp_path / "y.geojson", "events", "memory:")
    assert not (tmp_path / "none.db").exists()


def test_the_command(tmp_path: Path):
    filled(tmp_path / "1.db", "events", [Event("e", {"a": 1}, location=Point(1, 2))])
    run = [sys.executable, "-c", "from nearcast.cli import main; main()"]
    for arguments, says in (
        (["export", "events", "e.geojson", "--store", "1.db"], "exported 1 events"),
        (["import", "events", "e.geojson", "--store", "2.db"], "imported 1 events"),
    ):
        ended = subprocess.run(
            [*run, *arguments], capture_output=True, text=True, cwd=tmp_path, check=True
        )
        assert says in ended.stdout
    assert things(tmp_path / "2.db", "events") == things(tmp_path / "1.db", "events")


def test_a_list_over_http_is_taken_whole_or_not_at_all(tmp_path: Path):
    with serving(max_batch=3) as server, client(server) as ask:
        path = "/v1/subscriptions"
        two = [{"id": "a", "subscriber": "ann"}, {"id": "b", "subscriber": "ann"}]
        assert ask.post(path, json=two).json() == {"accepted": 2, "repeated": 0}
        changed = [two[0], {"id": "b", "subscriber": "bob"}]
        assert ask.post(path, json=changed).json() == {"accepted": 1, "repeated": 1}
        bad = ask.post(path, json=[{"id": "c"}, {"id": "d", "keywords": 3}])
        assert (bad.status_code, bad.json()["row"], bad.json()["field"]) == (422, 1, "keywords")
        nameless = ask.post(path, json=[{"subscriber": "ann"}])
        assert (nameless.status_code, nameless.json()["field"]) == (422, "id")
        assert ask.post(path, json=[{"id": str(i)} for i in range(4)]).status_code == 413
        assert ask.post("/v1/composites", json=[]).status_code == 422
        sunk = {"id": "e", "subscriber": "ann", "sink": "https://example.org/hook"}
        unsaid = ask.post(path, json=[{"id": "d"}, sunk])
        assert (unsaid.status_code, unsaid.json()["row"]) == (422, 1)
        there = ask.get(path).json()["subscriptions"]
        assert [each["id"] for each in there] == ["a", "b"]


def test_what_is_imported_once_more_keeps_its_sink(tmp_path: Path):
    """A file says nothing of sinks, and a row of a list need not."""
    hook = {"sink": "http://127.0.0.1:9/hook"}
    with serving(sink_private=True) as server, client(server) as http:

        def sink(id: str) -> str | None:
            found: str | None = http.get(f"/v1/subscriptions/{id}").json().get("sink")
            return found

        for id in "abc":
            body = {"subscriber": "ann"} | hook
            http.put(f"/v1/subscriptions/{id}", json=body).raise_for_status()
        export_file(tmp_path / "s.geojson", "subscriptions", server.url)
        import_file(tmp_path / "s.geojson", "subscriptions", server.url)
        assert [sink(id) for id in "abc"] == [hook["sink"]] * 3
        rows: list[dict[str, Any]] = [
            {"id": "a", "subscriber": "ann", "sink": None},
            {"id": "b", "subscriber": "ann", "keywords": ["other"]},
            {"id": "c", "subscriber": "ann", "sink": "http://127.0.0.1:9/else"},
            {"id": "d", "subscriber": "ann"},
        ]
        secret = {"protocolsettings": {"secret": "whsec_" + "c2VjcmV0" * 4}}
        rows[2] |= secret
        http.post("/v1/subscriptions", json=rows).raise_for_status()
        assert [sink(id) for id in "abcd"] == [None, None, "http://127.0.0.1:9/else", None]
