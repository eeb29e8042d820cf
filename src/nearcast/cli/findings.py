"""What `nearcast doctor` looks at: each finding is fine, a note, or bad."""

from __future__ import annotations

import ast
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from nearcast import jit
from nearcast.errors import SparkError

__all__ = ["Finding", "all_findings"]

#: Decorators of kernels.
_MARKS = {"kernel", "brief_kernel", "inlined"}
State = Literal["fine", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: a note is worth knowing, and something bad must be mended."""

    state: State
    what: str
    detail: str


def all_findings() -> Iterator[Finding]:
    """Everything there is to know about this installation, one finding after the other."""
    yield _python()
    yield _nearcast()
    yield from _packages()
    yield _java()
    yield from _compiler()


def _python() -> Finding:
    return Finding("fine", "python", f"{platform.python_version()} ({sys.executable})")


def _nearcast() -> Finding:
    return Finding("fine", "nearcast", f"{version('nearcast')} ({Path(__file__).parents[1]})")


def _packages() -> Iterator[Finding]:
    """The declared dependencies: core ones must import, those of extras may be missing."""
    for requirement in requires("nearcast") or []:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if name != "nearcast":
            yield _core(name) if extra is None else _optional(name, extra[1])


def _core(name: str) -> Finding:
    try:
        found = version(name)
        import_module(name)
    except PackageNotFoundError:
        return Finding("bad", name, f"not installed; run: pip install '{name}'")
    except Exception as error:  # whatever a broken wheel raises
        return Finding("bad", name, f"{found} does not import ({error}); install it again")
    return Finding("fine", name, found)


def _optional(name: str, extra: str) -> Finding:
    try:
        return Finding("fine", name, version(name))
    except PackageNotFoundError:
        return Finding("note", name, f"not installed; pip install 'nearcast[{extra}]' brings it")


def _java() -> Finding:
    """The Java that Spark would take; a note if there is none, since only Spark needs it."""
    from nearcast.spark.java import find_java

    try:
        found = find_java()
    except SparkError as error:
        return Finding("note", "java", f"{error}; only Spark needs it")
    return Finding("fine", "java", f"Java {found.version} for Spark ({found.program})")


def _compiler() -> Iterator[Finding]:
    if not jit.compiled():
        yield Finding("note", "compiler", "off (NEARCAST_JIT=0): kernels run as plain Python, slow")
        return
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or jit.cache_directory())
    yield _cache(folder)
    yield _kernels()


def _cache(folder: Path) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Finding("bad", "cache", f"{folder}: {error.strerror}; set NEARCAST_CACHE elsewhere")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("bad", "cache", f"{folder} cannot be written; set NEARCAST_CACHE elsewhere")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding("fine", "cache", f"{folder} ({size / 1e6:.1f} MB)")


def _kernels() -> Finding:
    """How many kernels are compiled in the present state of their sources."""
    sources = jit.kernel_sources()
    known = sum(_kernel_count(source) for source in sources)
    folders = {jit.module_cache(source) for source in sources}
    kept = len(
        {path.name.split(".nbc")[0].rsplit(".", 1)[0] for f in folders for path in f.glob("*.nbc")}
    )
    if kept == 0:
        return Finding("note", "kernels", f"none of {known} compiled; nearcast doctor --warm does")
    return Finding("fine", "kernels", f"{kept} of {known} compiled and kept")


def _kernel_count(source: Path) -> int:
    tree = ast.parse(source.read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    marks = (mark for function in functions for mark in function.decorator_list)
    return sum(isinstance(mark, ast.Name) and mark.id in _MARKS for mark in marks)
