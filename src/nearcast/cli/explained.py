"""One match and one near miss, picked out of tables and explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["event_of", "metres_between", "near_miss", "row_of", "show_explanation"]


def show_explanation(console: Console, title: str, explanation: object) -> None:
    """Print an explanation under a title, wrapped with its indents kept."""
    console.print(f"\n{title}", style="bold")
    for line in str(explanation).splitlines():
        text = line.lstrip()
        indent = 2 + len(line) - len(text)
        console.print(Padding(Text(text), (0, 0, 0, indent), expand=False))


def row_of(table: pa.Table, id: str) -> dict[str, Any]:
    """The row with this id."""
    found: dict[str, Any] = table.filter(pc.equal(table["id"], id)).to_pylist()[0]
    return found


def event_of(row: dict[str, Any]) -> Event:
    """The event of a table's row."""
    return Event(
        id=row["id"],
        attributes={name: each for name, each in row["attributes"].items() if each is not None},
        keywords=frozenset(row.get("keywords") or ()),
        location=Point(row["lon"], row["lat"]),
        start=row["start"],
        end=row["end"],
        expires=row["expires"],
    )


def _distances_m(people: pa.Table, offer: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Metres from everybody to the offer; near enough for showing, on a flat map."""
    east = (people["lon"].to_numpy() - offer["lon"]) * np.cos(np.radians(offer["lat"]))
    north = people["lat"].to_numpy() - offer["lat"]
    metres: npt.NDArray[np.float64] = np.hypot(east, north) * 111_195.0
    return metres


def metres_between(person: dict[str, Any], offer: dict[str, Any]) -> float:
    """Metres from a subscriber to an offer."""
    return float(_distances_m(pa.Table.from_pylist([person]), offer)[0])


def near_miss(people: pa.Table, offer: dict[str, Any], wanted: set[str]) -> str | None:
    """The nearest subscription that asks for the offer's category and still does not match."""
    category = offer["attributes"]["category"]
    for at in np.argsort(_distances_m(people, offer))[:2000]:
        row = people.slice(int(at), 1).to_pylist()[0]
        asks = category in (row["keywords"] or ()) or f"'{category}'" in (row["where"] or "")
        if asks and row["id"] not in wanted:
            return str(row["id"])
    return None
