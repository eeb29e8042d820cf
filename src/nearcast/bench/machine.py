"""Where a measurement was made: processor, memory, versions, source."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["LIBRARIES", "commit", "describe", "versions"]

LIBRARIES = ("nearcast", "numpy", "numba", "llvmlite", "pyarrow", "shapely", "cql2")


def describe() -> dict[str, object]:
    """The machine and the versions that a time depends on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": _memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(LIBRARIES),
    }


def versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """Which version of each package is installed; None for one that is not."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def commit() -> str:
    """The commit of the source that runs, with `+changes` if the tree differs; else "unknown"."""
    here = Path(__file__).parent
    head = _git(here, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if changed else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
