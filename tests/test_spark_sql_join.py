"""The joins in Spark SQL that we compare with give the same pairs as `match`."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast.errors import ValidationError
from nearcast.spark import match
from nearcast.spark.sql_join import sql_join, sql_nested_loop


def _frames(spark, region: str):
    draw = np.random.default_rng(3)
    words = ["shoes", "sale", "coffee"]
    events = [
        {
            "id": f"e{i}", "lon": float(lon), "lat": float(lat),
            "attributes": {"price": float(price), "stars": None if i % 4 else 3},
            "keywords": words[: i % 4],
        }
        for i, (lon, lat, price) in enumerate(draw.random((80, 3)))
    ]  # fmt: skip
    subscriptions = []
    for i, (x, y, low, size) in enumerate(draw.random((60, 4))):
        if region == "circles":
            where = {"lon": float(x), "lat": float(y), "radius_m": 1000 + 40_000 * float(size)}
        else:
            where = {
                "xmin": float(x), "ymin": float(y),
                "xmax": float(x + size), "ymax": float(y + 0.3),
            }  # fmt: skip
        intervals = [{"attribute": "price", "low": float(low), "high": float(low + 0.5)}]
        if i % 5 == 0:
            intervals.append({"attribute": "stars", "low": 1.0, "high": 5.0})
        subscriptions.append(
            {"id": f"s{i}", **where, "intervals": intervals, "keywords": words[: i % 2]}
        )
    interval = "struct<attribute: string, low: double, high: double>"
    place = "lon double, lat double, radius_m double"
    if region == "boxes":
        place = "xmin double, ymin double, xmax double, ymax double"
    return (
        spark.createDataFrame(
            events,
            "id string, lon double, lat double, keywords array<string>, "
            "attributes struct<price: double, stars: int>",
        ),
        spark.createDataFrame(
            subscriptions,
            f"id string, {place}, intervals array<{interval}>, keywords array<string>",
        ),
    )


def _pairs(frame) -> list[tuple[str, str]]:
    return sorted((row["event_id"], row["subscription_id"]) for row in frame.collect())


@pytest.mark.parametrize("region", ["circles", "boxes"])
def test_joins_in_sql_give_the_same_pairs(spark, region: str):
    events, subscriptions = _frames(spark, region)
    wanted = _pairs(match(events, subscriptions))
    assert len(wanted) > 50
    assert _pairs(sql_join(events, subscriptions)) == wanted
    assert _pairs(sql_join(events, subscriptions, 0.5)) == wanted
    assert _pairs(sql_nested_loop(events, subscriptions)) == wanted
    assert _pairs(sql_join(events, subscriptions.limit(0))) == []


def test_events_without_attributes(spark):
    events, subscriptions = _frames(spark, "boxes")
    events = events.drop("attributes")
    assert _pairs(sql_join(events, subscriptions)) == []
    free = subscriptions.drop("intervals")
    assert _pairs(sql_join(events, free)) == _pairs(match(events, free)) != []


def test_regions_that_it_does_not_know(spark):
    events, subscriptions = _frames(spark, "circles")
    with pytest.raises(ValidationError, match="give circles or boxes"):
        sql_join(events, subscriptions.drop("radius_m"))
