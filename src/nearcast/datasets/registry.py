"""Workloads by name."""

from __future__ import annotations

from typing import Any

from nearcast.datasets.base import Workload
from nearcast.datasets.city import CityWorkload
from nearcast.datasets.di import DiWorkload
from nearcast.datasets.elaps import ElapsWorkload
from nearcast.datasets.lf import LfWorkload
from nearcast.datasets.mo import MoWorkload
from nearcast.errors import DatasetError

__all__ = ["WORKLOADS", "workload"]

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind for kind in (MoWorkload, DiWorkload, LfWorkload, ElapsWorkload, CityWorkload)
}


def workload(name: str, **parameters: Any) -> Workload:
    """The workload of that name; an unknown name or parameter is refused with the valid ones.

    >>> workload("mo", k=6).subscription_table(3)["id"].to_pylist()
    ['s00000000', 's00000001', 's00000002']
    """
    kind = WORKLOADS.get(name)
    if kind is None:
        raise DatasetError(f"no workload is called {name!r}; there are: {', '.join(WORKLOADS)}")
    valid = kind.parameter_names()
    unknown = sorted(set(parameters) - set(valid))
    if unknown:
        raise DatasetError(
            f"workload {name!r} has no parameter {', '.join(unknown)}; it has: {', '.join(valid)}"
        )
    return kind(**parameters)
