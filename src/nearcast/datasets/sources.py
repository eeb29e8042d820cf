"""The real data that readers know: what each file is, what it must hold, where to get it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GEOJSON", "PARQUET", "Source"]


@dataclass(frozen=True)
class Source:
    """One file of real data."""

    title: str
    origin: str
    columns: tuple[str, ...] = ()


PARQUET = {
    "airbnb_dc_listings": Source(
        "Airbnb listings in Washington DC, March 2025 (Inside Airbnb, CC BY 4.0)",
        "https://insideairbnb.com/get-the-data",
        ("id", "lon", "lat", "amenities", "price", "room_type", "…"),
    ),
    "ch_flights_adsb": Source(
        "flights over Switzerland, 1 August 2018 (OpenSky Network, research use)",
        "https://github.com/xoolive/traffic, the sample collection `switzerland`",
        ("ts", "icao24", "callsign", "lon", "lat", "altitude_ft", "groundspeed_kt", "track_deg"),
    ),
    "nyc_gowalla_checkins": Source(
        "Gowalla check-ins in New York, 2009–2010",
        "https://snap.stanford.edu/data/loc-gowalla.html",
        ("user_id", "ts", "lon", "lat", "venue_id", "venue_name"),
    ),
    "nyc_gowalla_venues": Source(
        "Gowalla venues in New York",
        "https://snap.stanford.edu/data/loc-gowalla.html",
        ("venue_id", "name", "lon", "lat", "checkins_dev"),
    ),
    "nyc_osm_pois": Source(
        "OpenStreetMap points of interest in New York (ODbL 1.0)",
        "https://www.openstreetmap.org, any extract of New York",
        ("osm_id", "name", "fclass", "lon", "lat"),
    ),
    "nyc_uber_pickups": Source(
        "Uber pick-ups in New York, April to July 2014",
        "https://github.com/fivethirtyeight/uber-tlc-foil-response",
        ("ts", "lon", "lat"),
    ),
    "sf_cab_trips": Source(
        "trips of San Francisco cabs, May 2008, derived from their occupancy (CRAWDAD, CC BY 4.0)",
        "https://ieee-dataport.org/open-access/crawdad-epflmobility",
        ("pickup_lon", "pickup_lat", "clean"),
    ),
    "sf_cabs_gps": Source(
        "positions of San Francisco cabs with occupancy, May 2008 (CRAWDAD, CC BY 4.0)",
        "https://ieee-dataport.org/open-access/crawdad-epflmobility",
        ("cab_id", "ts", "lon", "lat", "occupied"),
    ),
    "sf_food_trucks": Source(
        "food trucks in San Francisco (city open data)",
        "https://data.sfgov.org, Mobile Food Facility Permit",
        ("location_id", "name", "facility_type", "status", "food_items", "lon", "lat"),
    ),
    "sp500_daily": Source(
        "daily prices of 505 S&P 500 stocks, 2013–2017 (CC0)",
        "https://github.com/CNuge/kaggle-code, stock_data",
        ("date", "symbol", "open", "high", "low", "close", "volume"),
    ),
    "us_ais": Source(
        "ship positions in US waters, 3 January 2022 (MarineCadastre, public domain)",
        "https://marinecadastre.gov/ais",
        ("ts", "mmsi", "lon", "lat", "sog_kt", "cog_deg", "nav_status", "vessel_type"),
    ),
    "us_geo_hashtags": Source(
        "hashtags of geo-tagged tweets in the USA (MIT)",
        "https://github.com/visgl/deck.gl-data, website/hashtags100k.txt",
        ("hashtag", "lon", "lat"),
    ),
}

_CLICK_THAT_HOOD = "https://github.com/codeforgermany/click_that_hood, public/data"
_NATURAL_EARTH = "https://github.com/martynafford/natural-earth-geojson"
_DECK_GL = "https://github.com/visgl/deck.gl-data"

GEOJSON = {
    "bart": Source("BART lines and stations", _DECK_GL),
    "bay_area_counties": Source("counties around the San Francisco Bay", _CLICK_THAT_HOOD),
    "land10m_bay_area": Source("land around the San Francisco Bay (CC0)", _NATURAL_EARTH),
    "land10m_suez": Source("land around the Suez Canal (CC0)", _NATURAL_EARTH),
    "land10m_us": Source("land of the USA (CC0)", _NATURAL_EARTH),
    "manhattan_roads": Source("roads of Manhattan (ODbL 1.0)", _DECK_GL),
    "nyc_boroughs": Source("boroughs of New York", _CLICK_THAT_HOOD),
    "nyc_neighborhoods": Source("neighbourhoods of Manhattan and Brooklyn", _CLICK_THAT_HOOD),
    "nyc_taxi_zones": Source(
        "taxi zones of New York (NYC TLC)", "https://data.cityofnewyork.us, NYC Taxi Zones"
    ),
    "oakland_neighborhoods": Source("neighbourhoods of Oakland", _CLICK_THAT_HOOD),
    "sf_neighborhoods": Source("neighbourhoods of San Francisco", _CLICK_THAT_HOOD),
    "sf_roads": Source("freeways, arteries and streets of San Francisco", "https://data.sfgov.org"),
    "world_land_50m": Source("the world's land (CC0)", _NATURAL_EARTH),
}
