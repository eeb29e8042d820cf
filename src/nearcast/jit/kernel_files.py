"""Where kernels are written, and where their compiled forms are kept.

Each source's folder is named by a hash of it and of every kernel source it imports: edit one,
and all that stand on it compile afresh.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

__all__ = ["cache_directory", "kernel_sources", "module_cache"]

_PACKAGE = Path(__file__).parents[1]
#: What it makes becomes part of kernels.
_PRIMITIVES = Path(__file__).with_name("primitives.py")
_IMPORT = re.compile(r"^from (nearcast\.[\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


def kernel_sources() -> list[Path]:
    """Every file that holds kernels."""
    return sorted([*_PACKAGE.glob("**/kernels/*.py"), *_PACKAGE.glob("**/kernels.py")])


@cache
def cache_directory() -> Path:
    """Where compiled kernels are kept, a folder for each state of their sources."""
    root = os.environ.get("NEARCAST_CACHE")
    if root is None:
        import platformdirs

        root = platformdirs.user_cache_dir("nearcast")
    return Path(root) / "kernels"


def _imported_kernels(source: Path) -> set[Path]:
    """The source and all kernel sources it stands on."""
    found: set[Path] = set()
    waiting = [source]
    known = set(kernel_sources())
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            stem = _PACKAGE.joinpath(*module.split(".")[1:])
            candidates = [stem / f"{name}.py" for name in re.findall(r"\w+", names)]
            waiting += [c for c in [stem.with_suffix(".py"), *candidates] if c in known]
    return found


@cache
def module_cache(source: Path) -> Path:
    """Where the kernels of this source are kept, in its present state."""
    digest = hashlib.sha256()
    for path in [_PRIMITIVES, *sorted(_imported_kernels(source))]:
        digest.update(path.read_bytes())
    return cache_directory() / digest.hexdigest()[:16]
