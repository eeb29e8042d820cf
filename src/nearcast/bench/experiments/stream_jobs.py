"""What the `stream` experiment times: one streaming query in a process of its own.

Run as a module with a JSON object as its argument; prints one with the seconds of each batch, the
rows in it, and when the first was committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nearcast.errors import BenchError

__all__ = ["files_of", "offsets_of", "run"]

_TIMEOUT_S = 3600.0


def run(**asked: Any) -> dict[str, Any]:
    """Run a job in a child, and what it says."""
    words = [sys.executable, "-m", __name__, json.dumps(asked)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise BenchError(f"the stream {asked['job']} ended: {done.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def files_of(out: Path) -> list[str]:
    """The files that Spark's own list names; others are of batches that were not committed."""
    names = []
    for each in (out / "_spark_metadata").iterdir():
        if each.name.partition(".")[0].isdigit():
            lines = each.read_text("utf-8").splitlines()[1:]
            names += [json.loads(line)["path"].rpartition("/")[2] for line in lines]
    return sorted({str(out / name) for name in names})


def offsets_of(state: Path) -> list[dict[str, Any]]:
    """The offsets of all batches, in their order."""
    names = sorted((state / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    return [json.loads(each.read_text("utf-8").splitlines()[-1]) for each in names]


# --- in the child ---------------------------------------------------------------------------------


def _main(asked: dict[str, Any]) -> dict[str, Any]:
    began = time.time()
    from nearcast.spark import match_stream, session
    from nearcast.spark.stream.beats import Beat
    from nearcast.spark.stream.running import Run, supervise

    home = Path(asked["home"])
    cores = asked["cores"]
    spark = session(
        "nearcast bench stream", f"local[{cores}]",
        settings={"spark.local.dir": home / "local", "spark.sql.warehouse.dir": home / "warehouse",
                  "spark.sql.shuffle.partitions": 4 * cores, "spark.driver.memory": "4g"},
    )  # fmt: skip
    live = asked["job"] == "latency"
    run = Run(str(home / "out"), str(home / "state"), once=not live)
    beats: list[Beat] = []
    old = {each.name for each in (home / "state" / "commits").glob("[0-9]*")}

    def start() -> Any:
        if asked["job"] == "grid join":
            return run.start(_grid_join(spark, asked))
        limits: dict[str, Any] = {} if live else {"max_changes": 1}
        frame = match_stream(
            spark, asked["events"], asked["changes"], asked["space"], shared=home / "shared",
            remember=asked["remember"], max_rows=asked["max_rows"], **limits,
        )  # fmt: skip
        return run.start(frame)

    if asked["job"] == "anew":
        said = _anew(spark, asked, home)
        spark.stop()
        return said
    feeder = None
    if live:
        feeder = threading.Thread(target=_feed, args=(asked, home), daemon=True)
        feeder.start()
    supervise(start, beats.append, over=lambda: feeder is not None and not feeder.is_alive())
    commits = (home / "state" / "commits").glob("[0-9]*")
    first = min((each.stat().st_mtime for each in commits if each.name not in old), default=began)
    said = {
        "seconds": [beat.seconds for beat in beats], "rows": [beat.rows_in for beat in beats],
        "first_s": first - began,
    }  # fmt: skip
    if live:
        said["latency_s"] = _latencies(Path(asked["events"]), home / "state")
    spark.stop()
    return said


def _grid_join(
    spark: Any, asked: dict[str, Any], events: str | None = None, plain: str | None = None
) -> Any:
    from nearcast.spark.sql_join import sql_join

    schema = spark.read.parquet(asked["events"]).schema
    given = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    given = given.parquet(events or asked["events"])
    return sql_join(given, spark.read.parquet(plain or asked["plain"]), asked["cell_m"])


def _anew(spark: Any, asked: dict[str, Any], home: Path) -> dict[str, Any]:
    """A query a batch, each started from the checkpoint of the last with what stands by then."""
    from nearcast.spark.stream.running import Run

    events = home / "events"
    events.mkdir()
    seconds, rows = [], []
    for at, path in enumerate(sorted(Path(asked["events"]).iterdir())):
        os.link(path, events / path.name)
        began = time.monotonic()
        plain = str(Path(asked["standing"]) / f"{at:05d}")
        run = Run(str(home / "out"), str(home / "state"), once=True)
        query = run.start(_grid_join(spark, asked, str(events), plain))
        query.awaitTermination()
        seconds.append(time.monotonic() - began)
        rows.append(sum(each["numInputRows"] for each in query.recentProgress))
    return {"seconds": seconds, "rows": rows, "first_s": seconds[0]}


def _feed(asked: dict[str, Any], home: Path) -> None:
    """Move files that are there into the folders that are watched, one of each a moment."""
    events, changes = Path(asked["events"]), Path(asked["changes"])
    commits = home / "state" / "commits"
    while not (commits.is_dir() and any(commits.glob("[0-9]*"))):
        time.sleep(0.05)
    due = time.monotonic()
    for path in sorted((home / "waiting").glob("e*.parquet")):
        change = home / "waiting" / f"c{path.name[1:]}"
        if change.exists():
            change.rename(changes / change.name)
        path.touch()
        path.rename(events / path.name)
        due += asked["every_s"]
        time.sleep(max(0.0, due - time.monotonic()))
    last = max(events.glob("*.parquet")).name
    until = time.monotonic() + 120
    while _read_by(home / "state") < last and time.monotonic() < until:
        time.sleep(0.1)


def _read_by(state: Path) -> str:
    """The last file whose batch is committed."""
    done = [int(each.name) for each in (state / "commits").glob("[0-9]*")]
    offset = json.loads((state / "offsets" / str(max(done))).read_text("utf-8").splitlines()[-1])
    return str(offset["events"])


def _latencies(events: Path, state: Path) -> list[float]:
    """From each file to the commit of its batch; without those of the first."""
    found: list[float] = []
    before = None
    for commit in sorted((state / "commits").glob("[0-9]*"), key=lambda each: int(each.name)):
        lines = (state / "offsets" / commit.name).read_text("utf-8").splitlines()
        upto = json.loads(lines[-1])["events"]
        if before is not None:
            found += [
                commit.stat().st_mtime - path.stat().st_mtime
                for path in events.glob("*.parquet")
                if before < path.name <= upto
            ]
        before = upto
    return found


if __name__ == "__main__":
    print(json.dumps(_main(json.loads(sys.argv[1]))))
