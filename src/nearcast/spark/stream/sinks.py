"""Where pairs go beside folders: back into a server, as events that it tells people of.

A row becomes an event whose id follows from the row, and the server takes an id once: what is
sent again after a failure changes nothing. Moments are RFC 3339 in UTC. Whoever subscribes to
`subscription_id`, `composite_id` or `fence_id` is told of the row, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nearcast.clock import format_micros
from nearcast.errors import ServerError
from nearcast.spark.stream.patience import passing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SENT", "post", "request", "row_event", "server_sink"]

#: The source of events that streams send: to a stream that reads the same server they are none.
SENT = "nearcast/stream"
_TOGETHER = 1000
_TIMEOUT_S = 120.0


def server_sink(url: str, key: str | None = None) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: each row becomes an event of the server's."""

    def send(frame: DataFrame, _batch: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        rows: list[dict[str, Any]] = []
        moments = _moments(frame)
        # As datetimes they would be the local time of whoever drives, without a zone.
        whole = frame.withColumns({name: F.unix_micros(name) for name in moments})
        for row in whole.toLocalIterator():
            given = row.asDict(recursive=True)
            for name in moments:
                if given[name] is not None:
                    given[name] = format_micros(given[name])
            rows.append(row_event(given))
            if len(rows) == _TOGETHER:
                post(url, rows, key)
                rows = []
        if rows:
            post(url, rows, key)

    return send


def _moments(frame: DataFrame) -> list[str]:
    """The columns that are instants."""
    return [field.name for field in frame.schema.fields if field.dataType.typeName() == "timestamp"]


def row_event(row: dict[str, Any]) -> dict[str, Any]:
    """A Feature with the row's values as properties, under an id that is a digest of them."""
    properties = {name: _plain(value) for name, value in row.items() if value is not None}
    text = json.dumps(properties, sort_keys=True, ensure_ascii=False)
    id = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    about = {"id": id, "source": SENT, "geometry": None}
    return {"type": "Feature", **about, "properties": properties}


def _plain(value: Any) -> Any:
    """A value that an attribute can have."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def post(url: str, features: list[dict[str, Any]], key: str | None) -> None:
    """Send events, all or none of them."""
    body = {"type": "FeatureCollection", "features": features}
    request(f"{url.rstrip('/')}/v1/events", key, body)


def request(url: str, key: str | None, body: object = None, timeout: float = _TIMEOUT_S) -> Any:
    """What a server answers, from JSON; ServerError says what it did not like.

    The key is the one given, or `NEARCAST_KEY` of the environment; it stands in no URL.
    """
    headers = {"Content-Type": "application/json"}
    secret = key or os.environ.get("NEARCAST_KEY")
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        said = error.read().decode("utf-8", "replace")
        try:
            said = json.loads(said).get("detail", said)
        except ValueError:
            said = said[:200]
        refused = ServerError(f"{url.partition('?')[0]}: {error.code}, {said}")
        busy = error.code >= 500 or error.code in (408, 429)
        raise (passing(refused) if busy else refused) from None
    except (OSError, ValueError) as error:
        raise passing(ServerError(f"{url.partition('?')[0]}: no answer ({error})")) from None
