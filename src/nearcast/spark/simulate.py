"""Subscribers who move, simulated in bulk: groups of them side by side on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.mobility.scene import Scene

__all__ = ["SIMULATED", "group_seed", "outcome_row", "simulate"]

#: What `simulate` gives, in Spark's words; sizes and seconds are sums.
SIMULATED = (
    "group int, method string, subscribers int, steps int, left bigint, asked bigint, "
    "notices bigint, bytes_up bigint, bytes_down bigint, region_bytes bigint, server_s double, "
    "floor bigint, missed bigint, late bigint, surplus bigint"
)


def simulate(
    spark: SparkSession,
    scene: Callable[..., Scene],
    subscribers: int,
    methods: Sequence[str] = ("disc", "vm", "gm", "igm", "idgm"),
    *,
    together: int = 50,
    seed: int = 1,
    scene_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """What each method costs, a row for each group of subscribers and method.

    `scene` makes the world of a group: it is called with `subscribers`, `seed` and
    `scene_options`, in the worker, and must be importable (`plane_scene`, `city_scene`).
    Subscribers have nothing to do with each other, so `together` of them share a world, and each
    group is a task for each method. `options` go to `nearcast.mobility.simulate.simulate`; the
    answer is what
    that gives for each group, by the seeds of `group_seed`.

    >>> from nearcast.mobility.scene import plane_scene
    >>> from nearcast.spark import session, simulate
    >>> found = simulate(session(), plane_scene, 10_000)  # doctest: +SKIP
    >>> found.groupBy("method").sum("left", "asked", "missed").show()  # doctest: +SKIP
    """
    from nearcast.mobility.methods import method

    for name in methods:
        method(name)
    if not methods:
        raise ValidationError("methods", methods, "name one at least")
    for field, value in (("subscribers", subscribers), ("together", together)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValidationError(field, value, "give a positive whole number")
    groups = -(-subscribers // together)
    tasks = [
        (number * groups + group, group, name, min(together, subscribers - group * together))
        for number, name in enumerate(methods)
        for group in range(groups)
    ]
    given = spark.createDataFrame(tasks, "task int, group int, method string, subscribers int")
    world, how = dict(scene_options or {}), dict(options or {})

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        whole = ("group", "subscribers", "steps")
        for batch in batches:
            for task in batch.to_pylist():
                made = scene(
                    subscribers=task["subscribers"], seed=group_seed(seed, task["group"]), **world
                )
                row = outcome_row(made, task["group"], task["method"], how)
                kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
                fields = [
                    (name, pa.int32() if name in whole else kinds[type(value)])
                    for name, value in row.items()
                ]
                yield pa.RecordBatch.from_pylist([row], pa.schema(fields))

    # A task of Spark's for each, so that its status tracker tells how many are done.
    return given.repartitionById(len(tasks), "task").mapInArrow(run, SIMULATED)


def group_seed(seed: int, group: int) -> int:
    """The seed of a group's world."""
    return seed * 1_000_003 + group


def outcome_row(
    scene: Scene, group: int, method: str, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a method costs one group, in this process."""
    from nearcast.mobility.simulate import simulate as run

    out = run(scene, method, **(options or {}))
    return {
        "group": group,
        "method": method,
        "subscribers": scene.size,
        "steps": scene.steps,
        "left": out.left,
        "asked": out.asked,
        "notices": out.notices,
        "bytes_up": out.bytes_up,
        "bytes_down": out.bytes_down,
        "region_bytes": sum(out.region_bytes),
        "server_s": out.server_s,
        "floor": scene.floor,
        "missed": out.missed,
        "late": out.late,
        "surplus": out.surplus,
    }
