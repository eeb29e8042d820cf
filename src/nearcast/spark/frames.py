"""DataFrames on their way to the workers: read from files, cut down to what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError
from nearcast.spark.packs import BEAT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["beat_names", "mapped", "pruned", "pruned_names", "read_files", "whole_files"]


def read_files(path: str, spark: SparkSession | None, what: str) -> tuple[DataFrame, list[str]]:
    """Parquet files as a DataFrame, and their names."""
    from pyspark.errors import PySparkException

    from nearcast.spark.session import session

    try:
        frame = (session() if spark is None else spark).read.parquet(path)
        return frame, frame.inputFiles()
    except Exception as error:
        # A damaged footer comes as Java's own error, not as one of PySpark's.
        if not isinstance(error, PySparkException) and not hasattr(error, "java_exception"):
            raise
        said = str(getattr(error, "java_exception", error))
        reason = said.strip().partition("\n")[0]
        raise ValidationError(what, path, f"give Parquet files ({reason})") from None


def whole_files(frame: DataFrame) -> list[str] | None:
    """The Parquet files of which a DataFrame has all rows, and columns as they are.

    None if it is anything else, or nobody can say (Spark Connect).
    """
    made: Any = getattr(frame, "_jdf", None)
    if made is None:
        return None
    plan = made.queryExecution().optimizedPlan()
    while plan.nodeName() == "Project":
        columns = plan.projectList()
        if any(columns.apply(i).nodeName() != "AttributeReference" for i in range(columns.size())):
            return None
        plan = plan.child()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    if str(relation.fileFormat()) != "Parquet" or relation.partitionSchema().size():
        return None
    files = frame.inputFiles()
    if not files:
        return None
    there = {field.name: field for field in frame.sparkSession.read.parquet(*files).schema}
    return files if all(there.get(field.name) == field for field in frame.schema) else None


def pruned_names(
    frame: DataFrame, used: list[str], attributes: frozenset[str], words: bool
) -> list[str]:
    """`pruned` in the words of a Parquet file."""
    names = []
    for name in used:
        if name == "attributes":
            kind: Any = frame.schema[name].dataType
            fields = [field.name for field in getattr(kind, "fields", ())]
            kept = [each for each in fields if each in attributes]
            plain = all("." not in each for each in fields)
            names += [f"{name}.{each}" for each in kept] if plain else [name] * bool(kept)
        elif name != "keywords" or words:
            names.append(name)
    return names


def pruned(
    frame: DataFrame, used: list[str], attributes: frozenset[str], words: bool
) -> list[Column]:
    """The columns of events that can change an answer; attributes only those asked for."""
    from pyspark.sql import functions as F  # noqa: N812  # everybody's name for it

    columns = []
    for name in used:
        if name == "keywords" and not words:
            continue
        column = F.col(f"`{name}`")
        if name == "attributes":
            kind: Any = frame.schema[name].dataType
            names = [field.name for field in getattr(kind, "fields", ())]
            kept = [each for each in names if each in attributes]
            if not kept:
                continue
            if len({each.casefold() for each in names}) == len(names):  # else Spark mixes them up
                fields = [column.getField(each).alias(each) for each in kept]
                column = F.struct(*fields).alias(name)
        columns.append(column)
    return columns


def beat_names(frame: DataFrame) -> list[str]:
    """The column that marks heartbeats, if there is one."""
    types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    return [BEAT] if types.get(BEAT) == "boolean" and "end" in types else []


def mapped(frame: DataFrame, work: Any, schema: str) -> DataFrame:
    """What `work` makes of a frame's Arrow batches, with these columns."""

    def run(batches: Any) -> Any:  # a plain function: Spark looks at its signature
        return work(batches)

    return frame.mapInArrow(run, schema)
