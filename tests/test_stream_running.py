"""Watching a query: what a batch did, failures that are tried again, and those that are not."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, StreamingQueryException

from nearcast.cli.commands import app
from nearcast.errors import NearcastError, SparkError, ValidationError
from nearcast.spark import listen
from nearcast.spark.stream import sinks
from nearcast.spark.stream.beats import Beat
from nearcast.spark.stream.figures import Figures
from nearcast.spark.stream.running import supervise
from nearcast.spark.stream.sinks import row_event


def _progress(batch: int, rows: int = 10) -> Any:
    said = {
        "runId": "r", "batchId": batch, "numInputRows": 3,
        "durationMs": {"addBatch": 5, "triggerExecution": 500},
        "sources": [{"endOffset": {"rows": rows}, "latestOffset": {"behind": 7},
                     "numInputRows": 3}],
        "sink": {"numOutputRows": -1},
    }  # fmt: skip
    return SimpleNamespace(json=json.dumps(said))


class Query:
    """A query that does its batches, and then ends or fails."""

    def __init__(self, batches: list[int], error: Exception | None = None) -> None:
        self.recentProgress: list[Any] = []
        self.batches, self.error = batches, error
        self.isActive = True
        self.stopped = False

    def awaitTermination(self, _: float) -> bool:  # noqa: N802
        self.recentProgress += [_progress(each) for each in self.batches]
        self.batches = []
        if self.error is not None:
            self.isActive = False
            raise self.error
        self.isActive = False
        return True

    def stop(self) -> None:
        self.stopped = True
        self.isActive = False


def _run(queries: list[Any], **more: Any) -> tuple[list[int], list[float]]:
    """Queries, or why there is none."""
    heard: list[int] = []
    pauses: list[float] = []
    waiting = iter(queries)

    def start() -> Any:
        found = next(waiting)
        if isinstance(found, Exception):
            raise found
        return found

    supervise(
        start,
        lambda beat: heard.append(beat.batch), sleep=pauses.append, warn=lambda _: None, **more,
    )  # fmt: skip
    return heard, pauses


FAILED = StreamingQueryException("nearcast.errors.ServerError: no answer")


def test_a_failed_query_is_started_again_and_each_batch_told_once():
    heard, pauses = _run([Query([0, 1], FAILED), Query([], FAILED), Query([], FAILED), Query([2])])
    assert heard == [0, 1, 2]
    assert pauses == [1, 2, 4]


GONE = [
    ValidationError("events", "/gone", "give a folder"),
    FileNotFoundError("/gone"),
    AnalysisException("[PATH_NOT_FOUND] /gone"),
]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_source_that_is_away_when_the_query_is_started_again_is_waited_for(error: Exception):
    heard, pauses = _run([Query([0], FAILED), error, error, Query([1])])
    assert heard == [0, 1]
    assert pauses == [1, 2, 4]
    with pytest.raises(SparkError, match="/gone"):
        _run([Query([0], FAILED), *[error] * 3], tries=3)


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_what_cannot_be_started_at_all_is_an_error_at_once(error: Exception):
    with pytest.raises(type(error), match="/gone"):
        _run([error, Query([0])])


def test_what_who_is_told_of_batches_raises_is_not_a_failure_of_the_query():
    def tell(_: Beat) -> None:
        raise ValidationError("metrics", "x", "make room")

    with pytest.raises(ValidationError, match="make room"):
        supervise(lambda: Query([0]), tell)  # type: ignore[arg-type, return-value]


def test_it_is_given_up_when_it_fails_without_a_batch_in_between():
    with pytest.raises(SparkError, match="no answer"):
        _run([Query([], FAILED) for _ in range(3)], tries=3)
    heard, _ = _run([Query([n], FAILED) for n in range(5)] + [Query([])], tries=3)
    assert heard == [0, 1, 2, 3, 4]


def test_what_would_fail_again_is_not_tried_again():
    error = StreamingQueryException("nearcast.errors.SparkError: it belongs to another job (x)")
    with pytest.raises(SparkError, match="another job"):
        _run([Query([], error)])


def test_java_that_is_gone_is_an_error():
    with pytest.raises(SparkError, match="Java process has ended"):
        _run([Query([], Py4JNetworkError("Answer from Java side is empty"))])


def test_a_beat_says_how_many_events_were_read_and_pairs_written():
    beat = Beat.of(json.loads(_progress(4, 20).json))
    assert (beat.batch, beat.rows_in, beat.rows_out, beat.seconds, beat.behind) == (
        4,
        20,
        3,
        0.5,
        7,
    )


def test_figures_add_up(tmp_path: Path):
    figures = Figures(str(tmp_path / "stream.prom"))
    for batch in range(2):
        figures.add(Beat.of(json.loads(_progress(batch).json)), "match")
    figures.failed("match")
    lines = (tmp_path / "stream.prom").read_text("utf-8").splitlines()
    assert 'nearcast_stream_rows_in_total{job="match"} 20' in lines
    assert 'nearcast_stream_batch{job="match"} 1' in lines
    assert 'nearcast_stream_behind{job="match"} 7' in lines
    assert 'nearcast_stream_failures_total{job="match"} 1' in lines


def test_time_that_moves_alone_reads_nothing_anew():
    said = json.loads(_progress(4).json)
    said["sources"][0]["startOffset"] = said["sources"][0]["endOffset"]
    assert Beat.of(said).rows_in == 0


def test_a_listener_counts_every_query_of_a_session(spark, tmp_path: Path):
    """Over HTTP, as Prometheus reads it; a failure is counted too."""
    figures = listen(spark, ":0")
    try:
        rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        query = rates.writeStream.format("noop").queryName('the "ticks"').start()
        text = ""
        until = time.monotonic() + 120
        while "rows_in_total" not in text:
            assert time.monotonic() < until, text
            with urllib.request.urlopen(f"http://127.0.0.1:{figures.port}/metrics") as answer:
                text = answer.read().decode()
        query.stop()
    finally:
        figures.close()
    (line,) = [each for each in text.splitlines() if each.startswith("nearcast_stream_rows_in")]
    name, _, value = line.rpartition(" ")
    assert name == 'nearcast_stream_rows_in_total{job="the \\"ticks\\""}'
    assert float(value) % 5 == 0
    with pytest.raises(ValidationError, match="metrics"):
        listen(spark, "")


def test_a_row_has_the_same_id_whenever_it_is_sent():
    row = {"event_id": "e1", "subscription_id": "s1", "version": 3}
    assert row_event(row) == row_event(dict(reversed(row.items())))
    assert row_event(row)["id"] != row_event(row | {"version": 4})["id"]


def test_rows_are_the_same_wherever_the_driver_stands(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their moments are in UTC, also in an hour that a clock has twice."""
    made = spark.createDataFrame([(1_793_509_200_000_000,), (1_793_512_800_250_000,)], "at bigint")
    rows = made.selectExpr(
        "'yard' as fence_id", "timestamp_micros(at) as at", "timestamp_micros(null) as start"
    )
    sent: list[Any] = []
    monkeypatch.setattr(sinks, "post", lambda _, features, __: sent.extend(features))
    try:
        for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            sinks.server_sink("http://h")(rows, 0)
    finally:
        monkeypatch.undo()
        time.tzset()
    moments = [each["properties"]["at"] for each in sent]
    assert moments == ["2026-11-01T05:00:00Z", "2026-11-01T06:00:00.25Z"] * 3
    assert len({each["id"] for each in sent}) == 2
    assert all("start" not in each["properties"] for each in sent)


def test_the_command_explains_itself(tmp_path: Path, capsys):
    for name in ("e", "c"):
        (tmp_path / name).mkdir()
    words = [
        "stream", "match", "--events", str(tmp_path / "e"), "--changes", str(tmp_path / "c"),
        "--out", str(tmp_path / "o"), "--checkpoint", str(tmp_path / "k"), "--explain",
    ]  # fmt: skip
    app(words, standalone_mode=False)
    said = capsys.readouterr().out
    assert "the beginning" in said
    assert str(tmp_path / "k" / "nearcast" / "rejected") in said
    commits = tmp_path / "k" / "commits"
    commits.mkdir(parents=True)
    (commits / "3").touch()
    app(words, standalone_mode=False)
    assert "after batch 3" in capsys.readouterr().out


@pytest.mark.parametrize(("job", "what"), [("detect", "--composites"), ("fences", "--fences")])
def test_jobs_that_remember_explain_themselves(tmp_path: Path, capsys, job: str, what: str):
    words = [
        "stream", job, "--events", "kafka://h:1/t", what, str(tmp_path),
        "--out", str(tmp_path / "o"), "--checkpoint", str(tmp_path / "k"),
        "--heartbeat", "PT5S", "--once", "--explain",
    ]  # fmt: skip
    app(words, standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "kafka://h:1/t" in said
    assert "after PT5S goes on with the clock" in said
    assert "what is there has been read" in said


def test_nowhere_to_write_is_refused(tmp_path: Path):
    words = [
        "stream", "match", "--events", str(tmp_path), "--changes", str(tmp_path), "--out", "",
        "--checkpoint", str(tmp_path / "k"), "--explain",
    ]  # fmt: skip
    with pytest.raises((NearcastError, SystemExit)):
        app(words, standalone_mode=False)
