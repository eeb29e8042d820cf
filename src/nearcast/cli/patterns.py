"""The demo's patterns: what the city's taxis do in space and time, told by the detector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np

from nearcast.bench.maps import ways_map
from nearcast.bench.story import Chapter, Picture
from nearcast.bench.tables import Grid
from nearcast.cli.console import counting
from nearcast.cli.sections import Scene, can_draw
from nearcast.clock import format_micros
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import CompositeEvent, Shape
from nearcast.cpsl.operators.spatial import Relations, region_shape
from nearcast.cpsl.regions import Regions
from nearcast.cpsl.trace import trace
from nearcast.datasets import globe
from nearcast.datasets.city import City
from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["Shift", "patterns"]

_CABS, _SECONDS, _STEP_S = 150, 3600.0, 15.0
_CORNERS, _BATCH, _SHOWN = 16, 4096, 5
_AWAY_M, _WAIT_S = 2000.0, 300

_AWAY = f"""\
# A taxi was hired in the centre, and the next time that it put its fare down
# it was more than {_AWAY_M:.0f} m away from there.
!(@(centre)(STRING: taxi = &t, STRING: change = "hired");
   DIST(centre; >; {_AWAY_M:.0f})(STRING: taxi = &t, STRING: change = "released"))
  (STRING: taxi = &t, STRING: change = "released")"""
_IDLE = f"""\
# A taxi put its fare down in the centre, and for {_WAIT_S // 60} minutes nobody hired it.
!(@(centre)(STRING: taxi = &t, STRING: change = "released"); PT{_WAIT_S // 60}M)
  (STRING: taxi = &t, STRING: change = "hired")"""
_TEXTS = {"away": _AWAY, "idle": _IDLE}


def patterns(scene: Scene) -> Chapter:
    """Detect two patterns in the taxis' reports; a plain loop must find the same."""
    shift = Shift(City(seed=scene.seed), max(2, round(_CABS * min(scene.scale, 10.0))))
    reports = len(shift.events)
    started = perf_counter()
    with counting("taxis drive", reports, quiet=scene.quiet) as advance:
        for fed in shift.detect():
            advance(fed)
    seconds = perf_counter() - started
    lines = _told(shift, seconds)
    traces = [(f"Why {found.id}", _why(shift, found)) for found in _first_of_each(shift)]
    for line in lines:
        scene.console.print(line, markup=False)
    for title, text in traces:
        scene.console.print(f"\n{title}:\n{text}", markup=False)
    texts = [(f"The pattern “{name}”", text) for name, text in _TEXTS.items()]
    pictures = [_picture(scene, shift)] if can_draw() else []
    short = (
        f"{len(shift.found):,} times one of two patterns in {reports:,} reports, at "
        f"{reports / max(seconds, 1e-9):,.0f} a second"
    )
    return Chapter("Patterns of taxis", lines, short, [_table(shift)], pictures, (*texts, *traces))


@dataclass(eq=False)
class Shift:
    """An hour of the city's taxis, and what is detected in it."""

    city: City
    cabs: int

    def __post_init__(self) -> None:
        self.found: list[CompositeEvent] = []

    @cached_property
    def centre(self) -> tuple[tuple[float, float], ...]:
        """The busiest area, as a polygon."""
        area = self.city.hot_areas
        angle = np.arange(_CORNERS) / _CORNERS * 2 * np.pi
        east, north = area.reach_m[0] * np.cos(angle), area.reach_m[0] * np.sin(angle)
        lon, lat = globe.to_lonlat(east, north, float(area.lon[0]), float(area.lat[0]))
        return tuple(zip(lon.tolist(), lat.tolist(), strict=True))

    @cached_property
    def composites(self) -> dict[str, Composite]:
        """The two patterns, by their names."""
        regions: Regions = {"centre": self.centre}
        return {name: Composite(name, text=text, regions=regions) for name, text in _TEXTS.items()}

    @cached_property
    def events(self) -> list[Event]:
        """Every taxi's reports, in order of time; `change` says that a fare got in or out."""
        events: list[Event] = []
        before: dict[str, bool] = {}
        for batch in self.city.traces(self.cabs, _SECONDS, _STEP_S):
            names = ("id", "lon", "lat", "occupied")
            times = batch.column("ts").cast("int64").to_pylist()
            columns = zip(*(batch.column(name).to_pylist() for name in names), times, strict=True)
            for taxi, lon, lat, occupied, moment in columns:
                change = None
                if before.get(taxi, occupied) != occupied:
                    change = "hired" if occupied else "released"
                before[taxi] = occupied
                what = {"taxi": taxi, "change": change}
                events.append(Event(f"r{len(events)}", what, (), Point(lon, lat), end=moment))
        return events

    @cached_property
    def known(self) -> dict[str, Event]:
        """The reports by their ids."""
        return {event.id: event for event in self.events}

    def detect(self) -> Iterator[int]:
        """Feed all reports; says how many at a time."""
        detector = Detector()
        for composite in self.composites.values():
            detector.add(composite)
        for first in range(0, len(self.events), _BATCH):
            batch = self.events[first : first + _BATCH]
            self.found += detector.feed(batch)
            yield len(batch)
        self.found += detector.advance(self.until)

    @property
    def until(self) -> int:
        """When the last report came."""
        return self.events[-1].end or 0

    @cached_property
    def truth(self) -> set[tuple[str, str, int]]:
        """(pattern, taxi, moment) by a plain loop over what happened to each taxi."""
        relations, centre = Relations("globe", 1.0), region_shape(self.centre)
        changes: dict[str, list[Event]] = {}
        for event in self.events:
            if "change" in event.attributes:
                changes.setdefault(str(event.attributes["taxi"]), []).append(event)
        truth = set()
        for taxi, events in changes.items():
            for event, after in zip(events, [*events[1:], None], strict=True):
                if not relations.inside(centre, _shape(event)):
                    continue
                end = event.end or 0
                if event.attributes["change"] == "hired":
                    place = None if after is None else _shape(after)
                    if after is not None and relations.apart(centre, place, ">", _AWAY_M):
                        truth.add(("away", taxi, after.end or 0))
                    continue
                over = end + _WAIT_S * 1_000_000
                if over <= self.until and (after is None or (after.end or 0) > over):
                    truth.add(("idle", taxi, over))
        return truth

    def found_of(self, name: str) -> list[CompositeEvent]:
        """What a pattern found."""
        return [each for each in self.found if each.composite_id == name]

    def parts(self, found: CompositeEvent) -> list[Event]:
        """The reports that something found is made of."""
        return [self.known[part] for part in found.parts]


def _shape(event: Event) -> Shape:
    assert isinstance(event.location, Point)
    return region_shape(((event.location.x, event.location.y),))


def _told(shift: Shift, seconds: float) -> list[str]:
    away, idle = (len(shift.found_of(name)) for name in _TEXTS)
    found = {(each.composite_id, str(each.attributes["t"]), each.end or 0) for each in shift.found}
    same = found == shift.truth and len(found) == len(shift.found)
    verdict = "A plain loop over each taxi finds the same" if same else "A PLAIN LOOP DISAGREES"
    return [
        f"\n{shift.cabs:,} taxis report every {_STEP_S:.0f} s for {_SECONDS / 60:.0f} minutes: "
        f"{len(shift.events):,} events through two patterns in {seconds:.1f} s, "
        f"{len(shift.events) / max(seconds, 1e-9):,.0f} a second.",
        f"{away:,} fares went from the centre to more than {_AWAY_M / 1000:.0f} km away; {idle:,} "
        f"times a taxi waited there for {_WAIT_S // 60} minutes in vain. {verdict}.",
    ]


def _first_of_each(shift: Shift) -> list[CompositeEvent]:
    return [found[0] for name in _TEXTS if (found := shift.found_of(name))]


def _why(shift: Shift, found: CompositeEvent) -> str:
    pattern = shift.composites[found.composite_id].pattern
    return "\n".join(trace(pattern, shift.parts(found), found))


def _table(shift: Shift) -> Grid:
    rows = []
    for name in _TEXTS:
        for each in shift.found_of(name)[:_SHOWN]:
            start, end = format_micros(each.start or 0), format_micros(each.end or 0)
            rows.append((name, str(each.attributes["t"]), start, end, " ".join(each.parts)))
    columns = ("pattern", "taxi", "from", "until", "reports")
    return Grid(f"the first {_SHOWN} of each pattern", columns, tuple(rows))


def _picture(scene: Scene, shift: Shift) -> Picture:
    """From where to where the fares went."""
    ways = [
        [(e.location.x, e.location.y) for e in shift.parts(found) if isinstance(e.location, Point)]
        for found in shift.found_of("away")
    ]
    caption = (
        f"Every fare that the pattern “away” found: hired in the centre (green), put down more "
        f"than {_AWAY_M / 1000:.0f} km away from it. No line ends close by, and every one begins "
        "in the green."
    )
    return ways_map(np.array(shift.centre), [np.array(w) for w in ways], scene.ground, caption)
