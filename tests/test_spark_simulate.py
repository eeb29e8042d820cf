"""Movers simulated on Spark: what one process gives, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nearcast.errors import ValidationError
from nearcast.mobility.scene import plane_scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: dict[str, Any] = {"side_m": 20_000.0, "steps": 30, "live": 2_000, "arrivals": 5.0}


def test_groups_on_spark_cost_what_they_cost_in_one_process(spark: SparkSession) -> None:
    from nearcast.spark import simulate
    from nearcast.spark.simulate import group_seed, outcome_row

    methods = ("disc", "igm")
    found = simulate(
        spark, plane_scene, 7, methods, together=3, seed=4, scene_options=SMALL,
        options={"cells": 60},
    ).collect()  # fmt: skip
    expected = [
        outcome_row(plane_scene(subscribers=size, seed=group_seed(4, group), **SMALL), group,
                    method, {"cells": 60})
        for group, size in enumerate((3, 3, 1))
        for method in methods
    ]  # fmt: skip

    def told(rows: Any) -> list[tuple[Any, ...]]:
        return sorted(
            tuple((name, row[name]) for name in sorted(expected[0]) if name != "server_s")
            for row in rows
        )

    assert told(row.asDict() for row in found) == told(expected)
    assert sum(row["left"] for row in found) > 0
    assert all(row["missed"] == row["surplus"] == 0 for row in found)


def test_what_cannot_be_simulated_is_named(spark: SparkSession) -> None:
    from nearcast.spark import simulate

    with pytest.raises(ValidationError, match="safe_region"):
        simulate(spark, plane_scene, 10, ("sphere",))
    with pytest.raises(ValidationError, match="methods"):
        simulate(spark, plane_scene, 10, ())
    with pytest.raises(ValidationError, match="together"):
        simulate(spark, plane_scene, 10, together=0)
