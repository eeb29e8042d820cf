"""Matching and the pipeline through Spark Connect; run as a script, for a process has one Spark.

Prints JSON: whether each plan's answer was the matcher's, and what the pipeline made.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast import Matcher
from nearcast.datasets import City, workload
from nearcast.errors import SparkError
from nearcast.spark import explain, match, session
from nearcast.spark.jobs import Pipeline
from nearcast.spark.prepare import Preparation


def main(scratch: str) -> None:
    spark = session("connect", remote="local[2]", settings={"spark.sql.shuffle.partitions": 4})
    source = workload("mo", seed=5, k=3)
    wanted, given = source.subscription_table(300), source.event_table(300)
    matcher = Matcher("scan", source.space)
    matcher.add_subscriptions(wanted)
    truth = Counter(zip(*matcher.match_events(given).to_pydict().values(), strict=True))
    events, subscriptions = spark.createDataFrame(given), spark.createDataFrame(wanted)
    answers: dict[str, Any] = {"wanted": len(truth), "client": type(spark).__module__}

    def run(name: str, **options: Any) -> None:
        found = match(events, subscriptions, space=source.space, index="scan", **options)
        pairs = found.toArrow()
        answers[name] = Counter(zip(*pairs.to_pydict().values(), strict=True)) == truth
        answers[f"{name}, plan"] = explain(found).split()[1]

    run("auto")
    run("shared", shared=scratch)
    try:
        run("shipped", plan="broadcast")
    except SparkError as error:
        answers["shipped"] = str(error)

    traces = Path(scratch) / "traces.parquet"
    city = City(seed=2, radius_m=3000)
    pq.write_table(pa.Table.from_batches(list(city.traces(12, 2400, 20.0))), traces)
    wish = Preparation(areas=4)
    made = Pipeline(spark, str(Path(scratch) / "out"), [str(traces)], wish).run("all")
    answers["stages"] = {report.stage: report.rows for report in made.reports}
    print(json.dumps(answers))
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
