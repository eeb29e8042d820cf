"""The demo's first section: the city, the subscribers, the offers, why, how fast."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from nearcast import jit
from nearcast.bench.maps import offers_map
from nearcast.bench.story import Chapter, Picture
from nearcast.cli.braille import braille
from nearcast.cli.console import counting, result_console, watching
from nearcast.cli.explained import (
    event_of,
    metres_between,
    near_miss,
    row_of,
    show_explanation,
)
from nearcast.cli.sections import Scene, can_draw
from nearcast.datasets.city import City
from nearcast.matcher import Matcher
from nearcast.model.events import Event

__all__ = ["Showcase", "live"]

_MAP_COLUMNS, _MAP_ROWS = 60, 16
_SUBSCRIPTION_BATCH, _EVENT_BATCH = 20_000, 500
_FEW = 2000  # subscriptions of a rehearsal: enough for every structure of an index
_SAMPLE = 300  # offers that are matched one by one, to compare with a scan


def live(scene: Scene) -> Chapter:
    """The section as the demo runs it."""
    said = Showcase(scene.subscriptions, scene.events, scene.seed, scene.index, scene.quiet).run()
    pictures = [_picture(scene, said)] if can_draw() and said.told.any() else []
    text = [
        f"{scene.subscriptions:,} people subscribed and {scene.events:,} offers were "
        "published, matched in this process."
    ]
    short = (
        f"{scene.events:,} offers met {scene.subscriptions:,} subscriptions at "
        f"{said.rate:,.0f} a second: {said.told.sum():,} matches"
    )
    return Chapter("A live city", text, short, pictures=pictures)


class _Said(NamedTuple):
    """What was offered where, how many were told of each, and how fast."""

    places: npt.NDArray[np.float64]
    told: npt.NDArray[np.int64]
    rate: float


def _picture(scene: Scene, said: _Said) -> Picture:
    heard = int((said.told > 0).sum())
    caption = (
        f"{said.told.size:,} offers, each where it was published. Red ones reached somebody "
        f"({heard:,}), the larger the more people: look how they crowd where people do, and how "
        "offers out of town go unheard (grey)."
    )
    return offers_map(said.places, said.told, scene.ground, caption)


@dataclass(frozen=True)
class Showcase:
    """One run of the demo; each stage prints what it did."""

    subscriptions: int
    events: int
    seed: int
    index: str
    quiet: bool = False

    @cached_property
    def console(self) -> Console:
        """Where the numbers go."""
        return result_console()

    @cached_property
    def city(self) -> City:
        """The city of this seed."""
        return City(seed=self.seed)

    def run(self) -> _Said:
        """All stages, in order; the map is something to look at while kernels are compiled."""
        self._draw()
        self._prepare()
        people = self._table(self.city.subscriptions(self.subscriptions))
        offers = self._table(self.city.offers(self.events))
        matcher = self._subscribe(people)
        matches, rate = self._publish(matcher, offers)
        if not self.quiet:
            self._tell(matches, people, offers)
            self._explain(matcher, matches, people, offers)
        self._compare(matcher, people, offers)
        rows = pc.index_in(matches["event_id"], value_set=offers["id"].combine_chunks())
        told = np.bincount(rows.to_numpy(), minlength=offers.num_rows)
        places = np.column_stack([offers[axis].to_numpy() for axis in ("lon", "lat")])
        return _Said(places, told, rate)

    @staticmethod
    def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(list(batches))

    def _prepare(self) -> None:
        with watching(quiet=self.quiet) as say, jit.shown(say):
            say("getting the kernels ready (the first time they are compiled) …")
            few = replace(self, subscriptions=_FEW, events=_EVENT_BATCH, quiet=True)
            few.__dict__.update(city=self.city, console=Console(file=io.StringIO()))
            people = few._table(self.city.subscriptions(few.subscriptions))
            offers = few._table(self.city.offers(few.events))
            matcher = few._subscribe(people)
            matches, _ = few._publish(matcher, offers)
            few._explain(matcher, matches, people, offers)
            few._compare(matcher, people, offers)

    def _draw(self) -> None:
        with watching(quiet=self.quiet) as say:
            say("drawing the city …")
            roads = self.city.roads
            shops = self.city.shops.size
        if not self.quiet and "utf" in self.console.encoding:
            for line in braille(*_main_roads(self.city), _MAP_COLUMNS, _MAP_ROWS):
                self.console.print(f"  {line}", style="cyan", no_wrap=True)
        self.console.print(
            f"A city with {roads.length_m.sum() / 1000:,.0f} km of roads, {roads.nodes:,} "
            f"crossroads and {shops:,} shops (seed {self.seed})."
        )

    def _subscribe(self, people: pa.Table) -> Matcher:
        matcher = Matcher(index=self.index)
        seconds = 0.0
        with counting("subscribing", people.num_rows, quiet=self.quiet) as advance:
            for batch in _slices(people, _SUBSCRIPTION_BATCH):
                started = perf_counter()
                matcher.add_subscriptions(batch)
                seconds += perf_counter() - started
                advance(batch.num_rows)
        total = matcher.memory()["total"]
        self.console.print(
            f"{len(matcher):,} people subscribed in {seconds:.2f} s: "
            f"{len(matcher) / seconds:,.0f} a second, {total / len(matcher):,.0f} bytes each."
        )
        return matcher

    def _publish(self, matcher: Matcher, offers: pa.Table) -> tuple[pa.Table, float]:
        parts = []
        seconds = 0.0
        with counting("publishing", offers.num_rows, quiet=self.quiet) as advance:
            for batch in _slices(offers, _EVENT_BATCH):
                started = perf_counter()
                parts.append(matcher.match_events(batch))
                seconds += perf_counter() - started
                advance(batch.num_rows)
        matches = pa.concat_tables(parts)
        told = pc.count_distinct(matches["subscription_id"]).as_py()
        self.console.print(
            f"{offers.num_rows:,} offers published in {seconds:.2f} s: "
            f"{offers.num_rows / seconds:,.0f} a second with {matcher.entry.name!r}.\n"
            f"{matches.num_rows:,} matches; {told:,} people are told of something."
        )
        return matches, offers.num_rows / seconds

    def _tell(self, matches: pa.Table, people: pa.Table, offers: pa.Table) -> None:
        """A few notifications, of offers spread over the day."""
        self.console.print("\nSome of them:", style="bold")
        chosen = np.unique(np.linspace(0, matches.num_rows - 1, 3).astype(int))
        for at in chosen if matches.num_rows else ():
            pair = matches.slice(int(at), 1).to_pylist()[0]
            offer = row_of(offers, pair["event_id"])
            person = row_of(people, pair["subscription_id"])
            what = offer["attributes"]
            self.console.print(
                f"  {person['subscriber']} hears of {what['product']} from {what['brand']}, "
                f"{what['price']:.2f} ({what['discount']:.0f} % off), "
                f"{metres_between(person, offer):,.0f} m away",
                markup=False,
            )

    def _explain(
        self, matcher: Matcher, matches: pa.Table, people: pa.Table, offers: pa.Table
    ) -> None:
        if not matches.num_rows:
            self.console.print("Nobody wants anything; try more --subscriptions or --events.")
            return
        pair = matches.slice(matches.num_rows // 2, 1).to_pylist()[0]
        offer = row_of(offers, pair["event_id"])
        event = event_of(offer)
        show_explanation(
            self.console, "Why this one matches:", matcher.explain(pair["subscription_id"], event)
        )
        other = near_miss(people, offer, set(matcher.match_event(event)))
        if other is not None:
            show_explanation(
                self.console, "And why this one, close by, does not:", matcher.explain(other, event)
            )

    def _compare(self, matcher: Matcher, people: pa.Table, offers: pa.Table) -> None:
        """One offer at a time, as a live service would, against the brute force."""
        sample = [event_of(row) for row in offers.slice(0, _SAMPLE).to_pylist()]
        mine = _rate(matcher, sample)
        line = f"One offer at a time: {mine:,.0f} a second with {matcher.entry.name!r}"
        if matcher.entry.name == "scan":
            self.console.print(f"\n{line}, which is the plain scan itself.")
            return
        with watching(quiet=self.quiet) as say:
            say("the same with a plain scan …")
            scan = Matcher(index="scan")
            scan.add_subscriptions(people)
            plain = _rate(scan, sample)
        self.console.print(f"\n{line}, {plain:,.0f} with 'scan': {mine / plain:,.1f} ×.")


def _main_roads(city: City) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Points along the main roads, close enough for a line."""
    roads = city.roads
    one, other = roads.ends[roads.kind < roads.kind.max()].T
    along = np.linspace(0, 1, 8)[:, None]
    lon = roads.lon[one] * (1 - along) + roads.lon[other] * along
    lat = roads.lat[one] * (1 - along) + roads.lat[other] * along
    return lon.ravel(), lat.ravel()


def _slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


def _rate(matcher: Matcher, events: list[Event]) -> float:
    matcher.match_event(events[0])
    started = perf_counter()
    for event in events:
        matcher.match_event(event)
    return len(events) / (perf_counter() - started)
