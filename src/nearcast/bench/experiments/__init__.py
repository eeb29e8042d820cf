"""Every experiment by name, imported when asked for.

A new one is a module here that defines `EXPERIMENT`, and its name in `_MODULES`.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from nearcast.bench.experiments.base import Experiment
from nearcast.errors import BenchError

__all__ = ["experiment", "names"]

_MODULES = {
    name: f"nearcast.bench.experiments.{name.replace('-', '_')}"
    for name in (
        "ablation",
        "broker",
        "composite",
        "event-matching",
        "fences",
        "first",
        "ground",
        "join",
        "maintenance",
        "map",
        "memory",
        "moving",
        "serve",
        "spark",
        "spatio-textual",
        "stream",
        "subscription-matching",
        "transfer",
    )
}


def names() -> list[str]:
    """The experiments there are."""
    return sorted(_MODULES)


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in _MODULES:
        close = get_close_matches(name, _MODULES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise BenchError(f"there is no experiment {name!r}; {hint}there are: {', '.join(names())}")
    found: Experiment = import_module(_MODULES[name]).EXPERIMENT
    return found
