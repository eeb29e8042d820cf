"""A stream in a process of its own that is killed, again and again, and must not show it.

As a script it runs the job on a folder: `events` and `changes` in, `out`, with its checkpoint in
`state`. `Killable` starts it, kills it or one of its workers by what the checkpoint says has been
committed, and reads the answer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
_PATIENCE_S = 300.0


def main(home: Path) -> None:
    """Run the job until it is killed, or all is read and `home/stop` is there."""
    from nearcast.spark import match_stream, session
    from nearcast.spark.stream.running import Run, supervise

    spark = session(
        "killable", "local[2]",
        settings={"spark.python.authenticate.socketTimeout": "300s",
            "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": 2,
                  "spark.sql.warehouse.dir": home / "warehouse", "spark.local.dir": home / "local"},
    )  # fmt: skip
    run = Run(str(home / "out"), str(home / "state"))

    def start() -> Any:
        pairs = match_stream(
            spark, home / "events", home / "changes", shared=home / "shared", max_rows=1,
            max_changes=1,
        )  # fmt: skip
        return run.start(pairs)

    def over() -> bool:
        return (home / "stop").exists() and _commits(home) + 1 >= int(
            (home / "stop").read_text("utf-8")
        )

    supervise(start, lambda beat: None, over=over)
    spark.stop()


def _commits(home: Path) -> int:
    """The last batch that is committed in `home/state`, −1 before the first."""
    folder = home / "state" / "commits"
    names = folder.iterdir() if folder.is_dir() else ()
    return max((int(each.name) for each in names if each.name.isdigit()), default=-1)


class Killable:
    """A job on a folder, started and killed; by default the one of this module.

    `told` are the folders of its queries, in which `out` and the checkpoint `state` are.
    """

    def __init__(
        self, home: Path, seed: int, words: Sequence[str] = ("tests.stream_killable",),
        told: Sequence[str] = (".",),
    ) -> None:  # fmt: skip
        self.home, self.words = home, words
        self.told = [home / each for each in told]
        self.random = random.Random(seed)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Killable:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        words = [sys.executable, "-m", self.words[0], str(self.home), *self.words[1:]]
        with (self.home / "said").open("ab") as said:
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdout=said, stderr=said,
                stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                     "SPARK_AUTH_SOCKET_TIMEOUT": "300"},
            )  # fmt: skip

    def wait_for(self, commits: int) -> bool:
        """Until so many more batches are committed; False if the job has ended before."""
        assert self.process is not None
        wanted = self._committed() + commits
        until = time.monotonic() + _PATIENCE_S
        while self._committed() < wanted:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < until, (self.home / "said").read_text("utf-8")[-4000:]
            time.sleep(0.02)
        return True

    def _committed(self) -> int:
        return sum(_commits(each) for each in self.told)

    def kill(self) -> None:
        """All of it, at once."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def kill_a_worker(self) -> bool:
        """One of the processes of Python's that belong to it; False if there is none."""
        assert self.process is not None
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != self.process.pid:
                try:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    words = (folder / "cmdline").read_bytes()
                except OSError:
                    continue  # it has ended meanwhile
                if int(fields[2]) == self.process.pid and b"\0-m\0pyspark." in words:
                    found.append(int(folder.name))
        if not found:
            return False
        try:
            os.kill(self.random.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def finish(self, batches: int) -> None:
        """Let it read what is there, and end."""
        (self.home / "stop").write_text(str(batches), "utf-8")
        self.end()

    def end(self) -> None:
        """Wait until it has ended by itself."""
        assert self.process is not None
        try:
            self.process.wait(4 * _PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError((self.home / "said").read_text("utf-8")[-4000:]) from None

    def found(self) -> list[tuple[Any, ...]]:
        """The answer: the rows of the files that Spark's list has, in their order."""
        return sorted(tuple(row.values()) for row in self.rows())

    def rows(self, told: int = 0) -> list[dict[str, Any]]:
        """The rows of one of the queries, by Spark's list of files, if it has one.

        Moments are microseconds.
        """
        out = self.told[told] / "out"
        names = {each.name for each in out.glob("*.parquet")}
        log = out / "_spark_metadata"
        if log.is_dir():
            lines = [line for each in log.iterdir() if each.name.partition(".")[0].isdigit()
                     for line in each.read_text("utf-8").splitlines()[1:]]  # fmt: skip
            names = {json.loads(line)["path"].rpartition("/")[2] for line in lines}
        found = []
        for name in names:
            table = pq.ParquetFile(out / name).read()
            for at, field in enumerate(table.schema):
                if pa.types.is_timestamp(field.type):
                    moments = table.column(at).cast(pa.timestamp("us")).cast(pa.int64())
                    table = table.set_column(at, field.name, moments)
            found += table.to_pylist()
        return found

    def batches(self) -> list[dict[str, Any]]:
        """The offsets of all batches, as the checkpoint has them."""
        folder = self.home / "state" / "offsets"
        names = sorted((each for each in folder.iterdir() if each.name.isdigit()),
                       key=lambda each: int(each.name))  # fmt: skip
        return [json.loads(each.read_text("utf-8").splitlines()[-1]) for each in names]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
