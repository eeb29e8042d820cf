"""nearcast on Spark: DataFrames in, DataFrames out, on a laptop or a cluster.

Names are loaded when they are first used, so that a worker that only matches imports
nothing else, and `import nearcast.spark` does not need PySpark yet.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcast.spark.match import explain, match, rejected
    from nearcast.spark.session import session

__all__ = ["explain", "match", "rejected", "session"]

_LAZY = {
    "explain": "nearcast.spark.match",
    "match": "nearcast.spark.match",
    "rejected": "nearcast.spark.match",
    "session": "nearcast.spark.session",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
