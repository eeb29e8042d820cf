"""What one batch of a streaming query did, from what Spark says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Beat"]


@dataclass(frozen=True)
class Beat:
    """What one batch did."""

    batch: int
    rows_in: int
    rows_out: int | None
    """None where the sink does not say."""
    seconds: float
    behind: int | None
    """How much of the source is not read yet, in its own units; None where it does not say."""
    details: dict[str, Any]
    """All that Spark says of the batch."""

    @classmethod
    def of(cls, progress: dict[str, Any]) -> Beat:
        """From the progress of a query."""
        rows, behind = 0, None
        for source in progress.get("sources", ()):
            end = _dict(source.get("endOffset"))
            if end and end == _dict(source.get("startOffset")):
                end = dict.fromkeys(end.keys() & {"rows", "read"}, 0)  # only time has moved
            # The sources of nearcast give pairs, or beats; how many events there were stands in
            # their offsets.
            counted = end.get("rows", end.get("read"))
            rows += int(source.get("numInputRows") or 0) if counted is None else int(counted)
            latest = _dict(source.get("latestOffset"))
            if "behind" in latest:
                behind = int(latest["behind"])
        out = progress.get("sink", {}).get("numOutputRows")
        if any("rows" in _dict(s.get("endOffset")) for s in progress.get("sources", ())) and (
            out is None or out < 0
        ):
            out = progress.get("numInputRows")
        took = progress.get("durationMs", {}).get("triggerExecution") or 0
        return cls(
            int(progress.get("batchId", -1)), rows, None if out is None or out < 0 else int(out),
            took / 1e3, behind, progress,
        )  # fmt: skip


def _dict(said: Any) -> dict[str, Any]:
    """An offset, which Spark gives as a dict or as its JSON."""
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return {}
    return said if isinstance(said, dict) else {}
