"""Readers of real data: files in a folder become events, traces, places, words, polygons.

Nothing in nearcast needs these files. The folder is an argument or the environment
variable NEARCAST_DATA; `sources` says what each file is and where it comes from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast.datasets.columns import KEYWORDS, TIME, lists, offsets_of, structure
from nearcast.datasets.sources import GEOJSON, PARQUET, Source
from nearcast.errors import DatasetError
from nearcast.model.geometry import Polygon

__all__ = ["ENVIRONMENT", "DataFolder", "distinct_words"]

#: The environment variable that names the folder.
ENVIRONMENT = "NEARCAST_DATA"

_KNOT_M_S = 1852 / 3600


@dataclass(frozen=True)
class DataFolder:
    """A folder of real data, by default the one NEARCAST_DATA names.

    Every method reads its file anew, returns a whole table in memory, and raises
    `DatasetError` with the place to get the file where it is missing.
    """

    folder: Path

    def __init__(self, folder: str | Path | None = None) -> None:
        named = folder if folder is not None else os.environ.get(ENVIRONMENT)
        if not named:
            raise DatasetError(
                f"no folder of real data is known; set {ENVIRONMENT} or give DataFolder(folder)"
            )
        object.__setattr__(self, "folder", Path(named))

    def table(self, name: str) -> pa.Table:
        """A parquet file as it is."""
        source = _known(name, PARQUET, "table")
        path = self._existing(f"{name}.parquet", source)
        try:
            return pq.read_table(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise DatasetError(f"{path} cannot be read ({error}); {_advice(source)}") from error

    def _existing(self, name: str, source: Source) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise DatasetError(f"{path} is missing ({source.title}); {_advice(source)}")
        return path

    def events(self, name: str) -> pa.Table:
        """A file's rows as events, with the columns that `Matcher.add_events` takes."""
        return _known(name, _EVENTS, "file of events")(self.table(name))

    def traces(self, name: str) -> pa.Table:
        """Positions in the order of time: `id`, `ts`, `lon`, `lat` and what the file adds.

        `occupied` for cabs; `speed_m_s` and `heading` (degrees clockwise from north) for
        ships and aircraft.
        """
        return _known(name, _TRACES, "file of traces")(self.table(name))

    def places(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The longitudes and latitudes of a file's rows; the pick-ups of clean cab trips."""
        table = self.table(name)
        if name == "sf_cab_trips":
            table = table.filter(table["clean"])
            return table["pickup_lon"].to_numpy(), table["pickup_lat"].to_numpy()
        if "lon" not in table.column_names:
            raise DatasetError(f"{name} has no places; these have: {_listed(_with_places())}")
        return table["lon"].to_numpy(), table["lat"].to_numpy()

    def words(self, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
        """A file's words by falling frequency, and in how many rows each one occurs."""
        keywords = self.events(name)["keywords"].combine_chunks()
        counted = pc.value_counts(keywords.flatten())
        order = np.argsort(-np.asarray(counted.field("counts")), kind="stable")
        return counted.field("values").take(order), np.asarray(counted.field("counts"))[order]

    def closing_prices(self, stocks: int) -> NDArray[np.float64]:
        """One row a trading day and one column a stock, each stock scaled to [0, 1].

        The stocks are the first by symbol that were traded on every day.
        """
        table = self.table("sp500_daily")
        day = pc.dictionary_encode(table["date"]).combine_chunks()
        symbol = table["symbol"].combine_chunks()
        prices = np.full((len(day.dictionary), len(symbol.dictionary)), np.nan)
        prices[np.asarray(day.indices), np.asarray(symbol.indices)] = table["close"].to_numpy()
        by_day, by_symbol = pc.sort_indices(day.dictionary), pc.sort_indices(symbol.dictionary)
        prices = prices[np.asarray(by_day)][:, np.asarray(by_symbol)]
        complete = prices[:, ~np.isnan(prices).any(axis=0)]
        if stocks > complete.shape[1]:
            raise DatasetError(f"{stocks} stocks are too many; sp500_daily has {complete.shape[1]}")
        kept: NDArray[np.float64] = complete[:, :stocks]
        kept -= kept.min(axis=0)
        kept /= kept.max(axis=0)
        return kept

    def polygons(self, name: str) -> list[tuple[str, Polygon]]:
        """A GeoJSON file's areas with their names; each part of a multipolygon is one."""
        areas = []
        for label, kind, coordinates in self._features(name):
            if kind in ("Polygon", "MultiPolygon"):
                parts = [coordinates] if kind == "Polygon" else coordinates
                areas += [(label, _polygon(rings)) for rings in parts]
        if not areas:
            raise DatasetError(f"{name} has no areas; read it with lines()")
        return areas

    def lines(self, name: str) -> list[tuple[str, NDArray[np.float64]]]:
        """A GeoJSON file's lines with their names, one (lon, lat) a row."""
        found = []
        for label, kind, coordinates in self._features(name):
            if kind in ("LineString", "MultiLineString"):
                parts = [coordinates] if kind == "LineString" else coordinates
                found += [(label, np.array(part, np.float64)[:, :2]) for part in parts]
        if not found:
            raise DatasetError(f"{name} has no lines; read it with polygons()")
        return found

    def _features(self, name: str) -> Iterator[tuple[str, str, Any]]:
        source = _known(name, GEOJSON, "map")
        path = self._existing(f"geo/{name}.geojson", source)
        try:
            features = json.loads(path.read_bytes())["features"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{path} is not GeoJSON ({error}); {_advice(source)}") from error
        for feature in features:
            properties = feature.get("properties") or {}
            label = properties.get("name") or properties.get("zone") or properties.get("class")
            geometry = feature["geometry"]
            yield str(label or name), geometry["type"], geometry["coordinates"]


def _advice(source: Source) -> str:
    needs = f" and store it with the columns {', '.join(source.columns)}" if source.columns else ""
    return f"get it from {source.origin}{needs}"


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))


def _with_places() -> list[str]:
    return [name for name, source in PARQUET.items() if {"lon", "pickup_lon"} & {*source.columns}]


def _known(name: str, catalogue: dict[str, Any], what: str) -> Any:
    if name not in catalogue:
        raise DatasetError(f"no {what} is called {name!r}; there are: {_listed(catalogue)}")
    return catalogue[name]


def _polygon(rings: list[list[list[float]]]) -> Polygon:
    exterior, *holes = (tuple((x, y) for x, y, *_ in ring) for ring in rings)
    return Polygon(exterior, tuple(holes))


def distinct_words(texts: pa.ChunkedArray) -> pa.Array:
    """The `keywords` column of texts: lower-case runs of letters and digits, each once."""
    text = pc.fill_null(pc.utf8_lower(pc.cast(texts, pa.string())), "").combine_chunks()
    return _sets(pc.split_pattern_regex(text, r"[^\pL\pN]+"))


def _sets(words: pa.Array) -> pa.Array:
    """Lists without repeats and empty strings, each in the order of first occurrence."""
    owner = np.asarray(pc.list_parent_indices(words))
    flat = pc.dictionary_encode(words.flatten())
    code = np.asarray(flat.indices).astype(np.int64)
    keys = owner * (len(flat.dictionary) + 1) + code
    _, first = np.unique(keys, return_index=True)
    kept = np.zeros(keys.size, np.bool_)
    kept[first] = True
    blank = np.asarray(pc.equal(flat.dictionary, ""))
    kept &= ~blank[code]
    sizes = np.bincount(owner[kept], minlength=len(words))
    values = flat.dictionary.take(code[kept]).cast(pa.string())
    return lists(offsets_of(sizes), values).cast(KEYWORDS)


def _ids(prefix: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(numbers, pa.string()), "-")


def _value(column: pa.ChunkedArray) -> pa.Array:
    """An attribute's column: numbers as double, categories as string, bool as it is."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.combine_chunks()
    text = pa.types.is_dictionary(kind) or pa.types.is_large_string(kind)
    return pc.cast(column, pa.string() if text else pa.float64()).combine_chunks()


def _attributes(table: pa.Table, **names: str) -> pa.Array:
    return structure({name: _value(table[column]) for name, column in names.items()})


def _airbnb(table: pa.Table) -> pa.Table:
    skipped = {"id", "lat", "lon", "name", "description", "amenities"}
    dated = {field.name for field in table.schema if pa.types.is_date(field.type)}
    names = [name for name in table.column_names if name not in skipped | dated]
    amenities = table["amenities"].combine_chunks()
    lowered = pa.ListArray.from_arrays(amenities.offsets, pc.utf8_lower(amenities.values))
    return pa.table(
        {
            "id": _ids("airbnb", table["id"]),
            "attributes": _attributes(table, **{name: name for name in names}),
            "keywords": _sets(lowered),
            "lon": table["lon"],
            "lat": table["lat"],
        }
    )


def _venues(table: pa.Table) -> pa.Table:
    return pa.table(
        {
            "id": _ids("venue", table["venue_id"]),
            "attributes": _attributes(table, checkins="checkins_dev"),
            "keywords": distinct_words(table["name"]),
            "lon": table["lon"],
            "lat": table["lat"],
        }
    )


def _checkins(table: pa.Table) -> pa.Table:
    time = table["ts"].cast(TIME)
    return pa.table(
        {
            "id": _ids("checkin", pa.array(np.arange(table.num_rows))),
            "attributes": _attributes(table, venue="venue_id"),
            "keywords": distinct_words(table["venue_name"]),
            "lon": table["lon"],
            "lat": table["lat"],
            "start": time,
            "end": time,
        }
    )


def _pois(table: pa.Table) -> pa.Table:
    return pa.table(
        {
            "id": _ids("poi", table["osm_id"]),
            "attributes": _attributes(table, category="fclass"),
            "keywords": distinct_words(table["name"]),
            "lon": table["lon"],
            "lat": table["lat"],
        }
    )


def _food_trucks(table: pa.Table) -> pa.Table:
    return pa.table(
        {
            "id": _ids("truck", table["location_id"]),
            "attributes": _attributes(table, name="name", type="facility_type", status="status"),
            "keywords": distinct_words(table["food_items"]),
            "lon": table["lon"],
            "lat": table["lat"],
        }
    )


def _stocks(table: pa.Table) -> pa.Table:
    names = ("symbol", "open", "high", "low", "close", "volume")
    time = table["date"].cast(pa.timestamp("us")).cast(TIME)
    return pa.table(
        {
            "id": _ids("bar", pa.array(np.arange(table.num_rows))),
            "attributes": _attributes(table, **{name: name for name in names}),
            "start": time,
            "end": time,
        }
    )


def _hashtags(table: pa.Table) -> pa.Table:
    tags = pc.utf8_lower(table["hashtag"].cast(pa.string())).combine_chunks()
    return pa.table(
        {
            "id": _ids("tweet", pa.array(np.arange(table.num_rows))),
            "keywords": _sets(lists(np.arange(table.num_rows + 1, dtype=np.int32), tags)),
            "lon": table["lon"],
            "lat": table["lat"],
        }
    )


def _cabs(table: pa.Table) -> pa.Table:
    return pa.table(
        {
            "id": _ids("cab", table["cab_id"]),
            "ts": table["ts"].cast(TIME),
            "lon": table["lon"],
            "lat": table["lat"],
            "occupied": table["occupied"],
        }
    )


def _moving(table: pa.Table, id: Any, speed_kt: str, heading: str, **more: str) -> pa.Table:
    speed = pc.multiply(pc.cast(table[speed_kt], pa.float64()), _KNOT_M_S)
    return pa.table(
        {
            "id": id,
            "ts": table["ts"].cast(TIME),
            "lon": table["lon"],
            "lat": table["lat"],
            "speed_m_s": speed,
            "heading": pc.cast(table[heading], pa.float64()),
            **{name: _value(table[column]) for name, column in more.items()},
        }
    )


def _ships(table: pa.Table) -> pa.Table:
    more = {"vessel_type": "vessel_type", "nav_status": "nav_status", "length_m": "length_m"}
    return _moving(table, _ids("ship", table["mmsi"]), "sog_kt", "cog_deg", **more)


def _flights(table: pa.Table) -> pa.Table:
    more = {"callsign": "callsign", "altitude_ft": "altitude_ft"}
    id = pc.cast(table["icao24"], pa.string())
    return _moving(table, id, "groundspeed_kt", "track_deg", **more)


_EVENTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "airbnb_dc_listings": _airbnb,
    "nyc_gowalla_venues": _venues,
    "nyc_gowalla_checkins": _checkins,
    "nyc_osm_pois": _pois,
    "sf_food_trucks": _food_trucks,
    "sp500_daily": _stocks,
    "us_geo_hashtags": _hashtags,
}

_TRACES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "sf_cabs_gps": _cabs,
    "us_ais": _ships,
    "ch_flights_adsb": _flights,
}
