"""Seeded workloads, the city, and readers of real data: the same bytes for the same seed."""

from nearcast.datasets.base import Workload
from nearcast.datasets.city import City
from nearcast.datasets.readers import DataFolder
from nearcast.datasets.registry import WORKLOADS, workload

__all__ = ["WORKLOADS", "City", "DataFolder", "Workload", "workload"]
