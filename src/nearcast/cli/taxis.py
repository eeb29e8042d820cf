"""The demo's main section: taxi traces through the whole pipeline on Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.bench.maps import area_map, density_map
from nearcast.bench.story import Chapter, Picture, bars, profile_plot
from nearcast.bench.tables import Grid
from nearcast.cli.console import watching
from nearcast.cli.explained import event_of, near_miss, row_of, show_explanation
from nearcast.cli.pipeline import Watch, show_summary, watched
from nearcast.cli.sections import Scene, can_draw
from nearcast.datasets.city import City
from nearcast.datasets.streams import generator
from nearcast.matcher import Matcher

if TYPE_CHECKING:
    from nearcast.spark.jobs import Summary

__all__ = ["draw", "taxis"]

_CABS, _HOURS, _STEP_S = 300, 2, 20.0
_SUBSCRIPTIONS, _EVENTS, _AREAS = 20_000, 10_000, 200
#: Shares of the drawn fixes that are spoilt, as real ones are: far off, twice, impossible.
_SPIKES, _REPEATS, _NONSENSE = 0.002, 0.001, 0.0002
_COMPARED = 1_000
_DOTS = 200_000


def taxis(scene: Scene) -> Chapter:
    """Draw (or take) traces, prepare, tune, match, explain, compare with Spark SQL."""
    return _Run(scene).chapter()


@dataclass(frozen=True)
class _Run:
    scene: Scene

    @cached_property
    def spark(self) -> Any:
        with watching(quiet=self.scene.quiet) as say:
            say("starting Spark …")
            return self.scene.spark.session()

    def chapter(self) -> Chapter:
        scene = self.scene
        source = scene.data or draw(scene)
        self._count(source)
        summary, out = self._pipeline(source)
        if not scene.quiet:
            show_summary(summary)
        told = [self._told(summary)]
        matches = pq.read_table(f"{out}/matches")
        people = pq.read_table(f"{out}/subscriptions")
        offers = pq.read_table(f"{out}/events")
        explained = self._explain(matches, people, offers, out)
        compared = self._compare(out)
        told.append(compared["text"])
        pictures = self._pictures(out, compared) if can_draw() else []
        if not pictures:
            scene.console.print("no pictures: pip install 'nearcast[bench]' brings matplotlib")
        grid = Grid("stages", ("stage", "rows", "time", "remarks"), tuple(summary.lines()))
        short = (
            f"{summary['fixes'].facts['read']:,} fixes became {summary['matches'].rows:,} matches "
            f"in {summary.seconds:.0f} s; {compared['times']:.1f} × as fast as Spark SQL's join"
        )
        title = "Taxi traces through the pipeline"
        return Chapter(title, told, short, [grid], pictures, explained)

    def _say(self, text: str) -> str:
        self.scene.console.print(text, markup=False)
        return text

    def _count(self, source: str) -> None:
        if self.scene.data is None:
            rows = pq.ParquetFile(source).metadata.num_rows
            cabs = _cabs(self.scene)
            self._say(
                f"\n{cabs:,} taxis, {rows:,} fixes; some spoilt on purpose, as real ones are."
            )

    def _pipeline(self, source: str) -> tuple[Summary, str]:
        spark = self.spark
        from nearcast.spark.jobs import Pipeline
        from nearcast.spark.prepare import Preparation

        scene = self.scene
        wanted = Preparation(
            attributes="market",
            seed=scene.seed,
            areas=max(1, round(_AREAS * scene.scale)),
            subscriptions=max(1, round(_SUBSCRIPTIONS * scene.scale)),
            events=max(1, round(_EVENTS * scene.scale)),
        )
        watch = Watch(quiet=scene.quiet)
        out = scene.pipeline
        run = Pipeline(spark, out, [source], wanted, index=scene.index, listener=watch)
        with watched(spark, watch):
            return run.run("all"), out

    def _told(self, summary: Summary) -> str:
        fixes, points = summary["fixes"], summary["points"]
        return self._say(
            f"{fixes.facts['read']:,} fixes read, {fixes.facts['rejected']:,} rejected with "
            f"reasons; {points.rows:,} {points.facts['kind']} in {summary['areas'].rows:,} hot "
            f"areas; {summary['subscriptions'].rows:,} subscriptions, {summary['events'].rows:,} "
            f"offers, {summary['matches'].rows:,} matches, all in {summary.seconds:.0f} s."
        )

    def _explain(
        self, matches: pa.Table, people: pa.Table, offers: pa.Table, out: str
    ) -> list[tuple[str, str]]:
        """One match and one near miss, by a matcher with the tuning; and its answer the same."""
        with watching(quiet=self.scene.quiet) as say:
            say("the same without Spark …")
            matcher = Matcher(self.scene.index, tuning=f"{out}/tuning/tuning.json")
            matcher.add_subscriptions(people)
            alone = matcher.match_events(offers)
        same = _pairs(alone).equals(_pairs(matches))
        self._say(
            f"Matcher alone finds {alone.num_rows:,} matches: "
            f"{'the very same' if same else 'NOT THE SAME'}."
        )
        if not matches.num_rows:
            return []
        pair = matches.slice(matches.num_rows // 2, 1).to_pylist()[0]
        offer = row_of(offers, pair["event_id"])
        event = event_of(offer)
        shown = [("Why this one matches:", str(matcher.explain(pair["subscription_id"], event)))]
        other = near_miss(people, offer, set(matcher.match_event(event)))
        if other is not None:
            why = str(matcher.explain(other, event))
            shown.append(("And why this one, close by, does not:", why))
        if not self.scene.quiet:
            for title, text in shown:
                show_explanation(self.scene.console, title, text)
        return shown

    def _compare(self, out: str) -> dict[str, Any]:
        """The speed of `match` against Spark SQL's join, on what both can do."""
        from nearcast.spark import match
        from nearcast.spark.sql_join import sql_join

        read = self.spark.read.parquet
        people = read(f"{out}/subscriptions").where("where is null").drop("where")
        offers = read(f"{out}/events").orderBy("id").limit(_COMPARED)
        people, offers = people.persist(), offers.persist()
        rows = people.count() and offers.count()
        found: dict[str, tuple[float, pa.Table]] = {}
        with watching(quiet=self.scene.quiet) as say:
            for name, work in (("nearcast", match), ("Spark SQL", sql_join)):
                say(f"{rows:,} offers with {name} …")
                started = perf_counter()
                table = work(offers, people).toArrow()
                found[name] = perf_counter() - started, table
        (mine, ours), (theirs, sql) = found["nearcast"], found["Spark SQL"]
        agreed = "equal answers" if _pairs(ours).equals(_pairs(sql)) else "DIFFERENT ANSWERS"
        text = self._say(
            f"\n{rows:,} offers against {people.count():,} subscriptions on Spark: nearcast "
            f"{mine:.1f} s, indexing included; Spark SQL's join {theirs:.1f} s ({agreed}): "
            f"{theirs / mine:.1f} ×."
        )
        people.unpersist()
        offers.unpersist()
        rates = {"nearcast": rows / mine, "Spark SQL's grid join": rows / theirs}
        return {"text": text, "rates": rates, "times": theirs / mine}

    def _pictures(self, out: str, compared: dict[str, Any]) -> list[Picture]:
        import json
        from pathlib import Path

        fixes = pq.read_table(f"{out}/fixes", columns=["lon", "lat"])
        step = max(1, fixes.num_rows // _DOTS)
        places = np.column_stack([fixes[name].to_numpy()[::step] for name in ("lon", "lat")])
        areas = pq.read_table(f"{out}/areas")
        tuning = json.loads(Path(out, "tuning", "tuning.json").read_text("utf-8"))
        x, y, size = (areas[name].to_numpy() for name in ("lon", "lat", "points"))
        ground = self.scene.ground if self.scene.data is None else None
        return [
            density_map(
                places, ground,
                f"{fixes.num_rows:,} fixes of taxis, after cleaning; the darker, the more lie in a "
                "cell. They follow the roads, and bridges are the only ways over the river."
                if ground else f"{fixes.num_rows:,} fixes, after cleaning; the darker, the more.",
            ),
            area_map(
                np.column_stack([x, y]), size, ground,
                f"The {areas.num_rows:,} hot areas that were found in them: a disc each, the "
                "larger, the more fares began there. Subscriptions and offers come from these.",
            ),
            profile_plot(
                tuning["attributes"],
                "What subscriptions ask for: an attribute with a high score (green) splits them "
                "best, so the index is built on those.",
            ),
            bars(
                compared["rates"], "offers a second",
                "The same matches on the same Spark: the taller, the faster. Both answers were "
                "compared.",
            ),
        ]  # fmt: skip


def _cabs(scene: Scene) -> int:
    return max(2, round(_CABS * scene.scale))


def draw(scene: Scene) -> str:
    """The city's cabs, spoilt a little; written once a seed and scale."""
    cabs = _cabs(scene)
    path = scene.out / f"traces-{scene.seed}-{cabs}-{_HOURS}.parquet"
    if not path.exists():
        with watching(quiet=scene.quiet) as say:
            say("drawing the city and its taxis …")
            city = City(seed=scene.seed)
            drawn = pa.Table.from_batches(list(city.traces(cabs, _HOURS * 3600, _STEP_S)))
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(f".{os.getpid()}.part")
            pq.write_table(_spoilt(drawn, scene.seed), scratch)
            scratch.replace(path)
    return str(path)


def _pairs(matches: pa.Table) -> pa.Table:
    order = [("event_id", "ascending"), ("subscription_id", "ascending")]
    chosen = matches.select(["event_id", "subscription_id"]).combine_chunks()
    return chosen.take(pc.sort_indices(chosen, order)).combine_chunks()


def _spoilt(traces: pa.Table, seed: int) -> pa.Table:
    """The traces with some fixes thrown far off, some twice, and some impossible."""
    rng = generator(seed, "spoilt traces")
    rows = traces.num_rows
    lon, lat = (traces[name].to_numpy().copy() for name in ("lon", "lat"))
    far = rng.random(rows) < _SPIKES
    lon[far] += rng.choice([-0.12, 0.12], int(far.sum()))
    lat[rng.random(rows) < _NONSENSE] = 95.0
    spoilt = traces.set_column(traces.column_names.index("lon"), "lon", pa.array(lon))
    spoilt = spoilt.set_column(traces.column_names.index("lat"), "lat", pa.array(lat))
    again = spoilt.take(pa.array(np.flatnonzero(rng.random(rows) < _REPEATS)))
    return pa.concat_tables([spoilt, again])
