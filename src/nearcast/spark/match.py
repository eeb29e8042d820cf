"""Matching in bulk: two DataFrames in, the pairs as a DataFrame out.

Arrow and the compiler are loaded when a function here is first called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearcast.errors import SparkError, ValidationError
from nearcast.spark.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nearcast.matcher import Matcher
    from nearcast.matcher.tuning import GivenTuning
    from nearcast.model.geometry import Space
    from nearcast.spark.rows import Side

__all__ = ["MOST_BYTES", "explain", "match", "rejected"]

#: What the side that is shipped may take on one machine, unless said otherwise.
MOST_BYTES = 2_000_000_000


def match(
    events: DataFrame | str | os.PathLike[str],
    subscriptions: DataFrame | Matcher | str | os.PathLike[str] | None = None,
    *,
    changes: str | os.PathLike[str] | None = None,
    space: Space = "globe",
    index: str = "auto",
    plan: str = "auto",
    direction: str = "auto",
    strict: bool = False,
    shared: str | os.PathLike[str] | None = None,
    most_bytes: int = MOST_BYTES,
    cell_rows: int = 250_000,
    tuning: GivenTuning | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """All pairs (event_id, subscription_id) that match: what `Matcher.match_events` answers.

    `events` is a DataFrame, or the path of Parquet files: where events stream, workers then
    read them by themselves, which spares Spark the most expensive part.
    `subscriptions` is a DataFrame, a `Matcher`, or the folder of a saved one. Columns are those
    of docs/wire.md; others are left out. `plan` is "broadcast" (one side is shipped to every
    machine, the other streams), "partitioned" (both are cut into cells of about `cell_rows`)
    or "auto" (by size: broadcast if the smaller side fits into `most_bytes`). `direction` says
    for broadcast which side streams: "event-matching" (events) or "subscription-matching".
    `index` names any index of the registry, `options` go to it; `tuning` (what `tune` gives, or
    the path of its JSON as the driver sees it) decides what "auto" stands for, and its options.

    Bad rows are left out, and `rejected` tells which and why; with `strict` they are errors.
    `shared` is a folder that the driver and all workers see; without one, files go to
    executors through Spark. `match(…).nearcast.explain()` says what was decided.

    The shipped side is collected and indexed at once; the rest happens when the answer is
    used. A streaming DataFrame of events works with event matching.

    With `changes` in place of `subscriptions`, subscriptions change while events stream: it names
    what `match_stream` reads them from, which costs less and can tell newcomers of what was there
    before; this takes any DataFrame. Each batch sees all changes that the driver had read when its
    first task began, fractions of a second behind the log; the answer has the column `version`,
    the greatest `seq` of these. A batch that runs again sees the same version, if `shared` is a
    folder that outlives the query. Bad changes and events are told of in `SHARED/rejected`. The
    key of a server comes from `NEARCAST_KEY`.
    """
    from nearcast.spark.matching import carry_out, carry_out_changing

    if changes is not None:
        return carry_out_changing(
            events, subscriptions, os.fspath(changes), space, index, plan, direction, strict,
            shared, tuning, options,
        )  # fmt: skip
    if subscriptions is None:
        raise ValidationError("subscriptions", None, "give subscriptions, or changes of them")

    return carry_out(
        events, subscriptions, space, index, plan, direction, strict, shared, most_bytes,
        cell_rows, tuning, options,
    )  # fmt: skip


def explain(matches: DataFrame) -> str:
    """How the DataFrame that `match` gave is worked out, in a few lines."""
    found = vars(matches).get("nearcast")
    plan = getattr(found, "plan", None)
    if not isinstance(plan, Plan):
        raise SparkError("only the very DataFrame that match returned can be explained")
    return plan.explain()


def rejected(frame: DataFrame, side: Side, *, space: Space = "globe") -> DataFrame:
    """The rows of a DataFrame that `match` or `fences` leaves out: id and reason.

    `side` is "events", "subscriptions" or "positions". Costs one pass over the rows;
    subscriptions are looked through for ids that occur twice with different contents too.
    """
    from nearcast.spark.matching import rejects

    return rejects(frame, side, space)
