"""A Spark session that works at once on a laptop, and leaves clusters as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import MissingExtraError, SparkError, ValidationError
from nearcast.spark.java import cache_folder, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]

#: What a session of ours has anywhere.
_EVERYWHERE = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
}
#: What it has beside that on one machine.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.faulthandler.enabled": "true",
}
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

#: A third less time for a pipeline of a minute; what runs for long is better compiled well.
_BRIEF = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(
    app: str = "nearcast",
    master: str | None = None,
    *,
    remote: str | None = None,
    settings: Mapping[str, object] | None = None,
    brief: bool = False,
) -> SparkSession:
    """The Spark session to work with: the running one if there is one, else a new one.

    A running session is given back as it is, with `settings` applied where Spark lets them
    change. Under `spark-submit`, or where `spark-defaults.conf` names a master, that master
    is taken. `remote` (or `SPARK_REMOTE`) connects through Spark Connect, which needs no
    Java here unless it is `local[…]`, a server of one's own. In all other cases Spark runs
    on this machine (`master`, by default `local[*]`), with Java found or supplied
    (`find_java`). `settings` stand above all defaults. `brief`: it will not live for more than a
    minute or two, so that Java had better compile quickly than well. Raises SparkError, before
    anything is started, if there is no Java that Spark can use. A local start takes 3 to 10
    seconds.
    """
    try:
        running = _running()
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark") from error
    wanted = {name: _text(value) for name, value in (settings or {}).items()}
    if running is not None:
        return _adjusted(running, wanted)
    url = remote or os.environ.get("SPARK_REMOTE")
    if url and master is None:
        return _remote(url, app, {**_EVERYWHERE, **wanted})
    return _started(app, master, wanted, brief=brief)


def _running() -> SparkSession | None:
    """The session of this thread, or of this process: threads do not see each other's."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    made = getattr(SparkSession, "_instantiatedSession", None)
    context = getattr(made, "_sc", None)
    return made if getattr(context, "_jsc", None) is not None else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _adjusted(running: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException

    for name, value in wanted.items():
        try:
            running.conf.set(name, value)
        except PySparkException as error:
            raise ValidationError(
                f"settings[{name!r}]",
                value,
                f"a running session cannot change it: stop that session first ({error})",
            ) from None
    return running


def _remote(url: str, app: str, wanted: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if url.startswith("local"):  # PySpark starts a server here, and stops it at the end
        os.environ["JAVA_HOME"] = str(find_java().home)
        _run_here()
        wanted = _LOCAL | {"spark.connect.grpc.binding.address": "127.0.0.1"} | dict(wanted)
    builder: Any = SparkSession.builder.remote(url).appName(app)
    try:
        made: SparkSession = builder.config(map=dict(wanted)).getOrCreate()
    except ImportError as error:
        raise SparkError(
            f"Spark Connect needs more packages ({error}); run: pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as error:
        raise SparkError(f"no Spark Connect server answers at {url} ({error})") from None
    return made


def _started(app: str, master: str | None, wanted: dict[str, str], *, brief: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM
    defaults = _site_defaults()
    master = master or wanted.get("spark.master")
    if master is None and not submitted:
        master = defaults.get("spark.master", "local[*]")
    ours = dict(_EVERYWHERE)
    local = master is not None and master.startswith("local")
    if not submitted:
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
    if local:
        _run_here()
        ours |= _LOCAL | _logging() | (_BRIEF if brief else {})
    ours = {name: value for name, value in ours.items() if name not in defaults} | wanted
    builder: Any = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    made: SparkSession = builder.config(map=ours).getOrCreate()
    if local and "spark.driver.extraJavaOptions" not in wanted:
        made.sparkContext.setLogLevel("ERROR")
    return made


def _run_here() -> None:
    """Workers are to run this Python, and nothing is to listen to the network."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _logging() -> dict[str, str]:
    """Errors only, from the first line on; without the file, from when the session is there."""
    path = cache_folder() / "log4j2.properties"
    try:
        if not path.exists() or path.read_text("utf-8") != _QUIET:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.{os.getpid()}")
            scratch.write_text(_QUIET, encoding="utf-8")
            scratch.replace(path)
    except OSError:
        return {}
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path.as_uri()}"}


def _site_defaults() -> dict[str, str]:
    """What `spark-defaults.conf` of this machine says; it stands above our defaults."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder is None and os.environ.get("SPARK_HOME"):
        folder = str(Path(os.environ["SPARK_HOME"]) / "conf")
    path = None if folder is None else Path(folder) / "spark-defaults.conf"
    if path is None or not path.is_file():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name and not name.startswith("#"):
            found[name] = value.strip()
    return found
