"""What tests share: one Spark session for all of them, started when first asked for; who runs
which of them; and what becomes of those that need a program which is not here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.needs import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafkas import Kafka


#: Tests see one form of a kernel throughout, by default the compiled one: tests/test_jit_tiers.py
#: has both, and the switch between them.
os.environ.setdefault("NEARCAST_JIT", "1")
#: Tests run Spark for seconds: what its JVMs would compile thoroughly does not pay any more.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
#: How long an example takes says what else the machine does. Where CI is set that is so by itself.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if "CI" not in os.environ:
    settings.load_profile("patient")
#: Tests that start Spark in processes of their own.
_ALONE = ("test_spark_bench.py", "test_spark_cluster.py", "test_spark_connect.py")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the tests of a file to one worker, which keeps what they share, and Spark's to one.

    A second JVM would warm up for nothing; Kafka is one, too.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if file.endswith(_ALONE):
            return file
        if "kafka" in file:
            return "kafka"
        shared = "spark" in file or file.endswith("test_pipeline.py") or "spark_example" in name
        return "spark" if shared else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile | None:
    """What `--dist=loadfile` means here."""
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: at the end the other worker would have nothing to do."""
    rank = {}
    for item in items:
        on_spark = "spark" in getattr(item, "fixturenames", ())
        rank[item] = 0 if on_spark else 1 if item.get_closest_marker("slow") else 2
    items.sort(key=rank.__getitem__)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures: is there what it needs?"""
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            require(program)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, small and quick; whoever changes a setting puts it back.

    A session that is running already, since a test asked for one by itself, is taken.
    """
    from pyspark.sql import SparkSession

    from nearcast.spark import session

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return

    scratch: Path = tmp_path_factory.mktemp("spark")
    made = session(
        "nearcast tests",
        "local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.default.parallelism": 2,
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.adaptive.enabled": False,
            "spark.local.dir": scratch / "local",
            "spark.sql.warehouse.dir": scratch / "warehouse",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.noDataMicroBatches.enabled": False,
            "spark.python.authenticate.socketTimeout": "300s",  # 15 are few on a busy machine
        },
    )
    yield made
    made.stop()


@pytest.fixture
def stateful(spark: SparkSession) -> Iterator[SparkSession]:
    """That session for streams with state: two partitions, and a batch more when time has moved."""
    wanted = {
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
    }
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A real Kafka that runs. Who stops it starts it again; tests with it need mvn and java."""
    from tests.kafkas import Kafka

    node = Kafka(tmp_path_factory.mktemp("kafka"))
    node.start()
    yield node
    node.kill()


@pytest.fixture(scope="session", autouse=True)
def _postgres_ends() -> Iterator[None]:
    """The server that tests with tests.postgres have started, if any has."""
    yield
    if "tests.postgres" in sys.modules:
        sys.modules["tests.postgres"].end_shared()
