"""The demo's report: the city under every map, what it comes to, and no picture without a scale."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nearcast.bench.maps import (
    Ground,
    Regions,
    area_map,
    circles_map,
    density_map,
    offers_map,
    region_map,
    ways_map,
)
from nearcast.bench.story import Chapter, Picture, bars, write_story
from nearcast.datasets.city import City

LON, LAT = np.linspace(8.49, 8.51, 30), np.linspace(47.39, 47.41, 30)
PLACES = np.column_stack([LON, LAT])
COUNTS = np.arange(30)


@pytest.fixture(scope="module")
def city() -> City:
    return City(seed=3, radius_m=2000)


def drawn(ground: Ground | None) -> dict[str, Picture]:
    kind = np.zeros((30, 30))
    kind[5:20, 5:20] = 1
    regions = Regions(LON, LAT, kind, 200.0)
    return {
        "density": density_map(PLACES, ground, "a"),
        "areas": area_map(PLACES, COUNTS, ground, "b"),
        "offers": offers_map(PLACES, COUNTS, ground, "c"),
        "regions": region_map(regions, PLACES[:2], PLACES[:9], PLACES[:3], ground, "d"),
        "ways": ways_map(PLACES[:4], [PLACES[:2], PLACES[2:5]], ground, "e"),
        "no ways": ways_map(PLACES[:4], [], ground, "f"),
        "circles": circles_map(PLACES, 100.0, COUNTS, ground, "g"),
    }


def test_the_ground_is_the_whole_city(city: City):
    ground = Ground.of(city)
    assert sum(map(len, ground.roads.values())) == len(city.roads.ends)
    one = ground.roads["street"][0]
    number = np.flatnonzero(city.roads.kind == 2)[0]
    ends = city.roads.ends[number]
    assert one.tolist() == [[city.roads.lon[e], city.roads.lat[e]] for e in ends]


def test_every_map_has_the_city_under_it_and_a_scale(city: City):
    plain, grounded = drawn(None), drawn(Ground.of(city))
    for name, picture in grounded.items():
        assert len(picture.svg) > len(plain[name].svg), name
        assert picture.svg.count("<image") > 0, name  # roads are many: they come as one image
        assert re.search(r"<!-- [125]0* k?m -->", picture.svg), name
        assert "<!-- longitude -->" not in picture.svg


def test_the_report_says_in_short_what_each_chapter_comes_to(tmp_path: Path):
    chapter = Chapter(
        "Speed & cost", ["As measured."], "2 < 3", pictures=[bars({"a": 1}, "b", "c")]
    )
    text = write_story("all", [chapter, Chapter("Silent")], tmp_path / "r.html").read_text()
    assert "<li><b>Speed &amp; cost</b>: 2 &lt; 3</li>" in text
    assert text.count("<li>") == 1
    assert text.index("<svg") < text.index("<h2>Silent</h2>")
