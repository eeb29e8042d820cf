# ruff: noqa: E501  # rows of a table
"""What the papers claim beside what was recorded here: the tables of docs/papers.md.

`python -m nearcast.bench.papers docs/papers.md` writes them anew from the records. A row names its
record, or looks for the newest one of an experiment that holds its figure; one without any says so.
Nothing is worked out that no record holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from nearcast.bench.results import Measurement, Record, load
from nearcast.bench.trial import Scalar
from nearcast.errors import BenchError

__all__ = ["BEGIN", "END", "PAPERS", "Row", "tables", "written"]

BEGIN, END = "<!-- generated from benchmarks/results -->", "<!-- end of the generated part -->"

#: The figure of a record.
Figure: TypeAlias = Callable[[Record], str]


#: What is compared of two measurements.
Quantity: TypeAlias = Callable[[Measurement], float]


@dataclass(frozen=True, slots=True)
class Row:
    """A claim, the record that tells of it, what it tells, and how the two go together."""

    claim: str
    verdict: str
    record: str = ""
    """A file in benchmarks/results, without its ending; empty: the newest that fits."""
    figure: Figure | None = None
    experiment: str = ""
    """Whose records are looked through; empty: only the one named."""
    where: Mapping[str, Scalar] = field(default_factory=dict)
    """Settings that such a record must have, each alone."""
    agrees: Callable[[Record], bool] | None = None
    """Whether the record says what the paper says, where that can be worked out."""

    def fits(self, record: Record) -> bool:
        """Whether a record is one of those to look through: no quick one, and so set."""
        return "--quick" not in record.command.split() and all(
            record.settings.get(name) == (value,) for name, value in self.where.items()
        )


def measured(record: Record, operation: str, contender: str, **point: Any) -> Measurement:
    """The measurement at a point; BenchError where there is no such thing, or two."""
    found = [
        m for m in record.measurements
        if m.operation == operation and m.contender == contender
        and all(m.parameters.get(name) == value for name, value in point.items())
    ]  # fmt: skip
    if len(found) != 1:
        raise BenchError(f"{record.experiment}: {len(found)} of {operation!r}, {contender!r}")
    return found[0]


def item_s(record: Record, operation: str, contender: str, **point: Any) -> float:
    """Median seconds for one unit of work; BenchError where there is no such thing, or two."""
    return measured(record, operation, contender, **point).item_s


def seconds(m: Measurement) -> float:
    """Median seconds for one unit of work."""
    return m.item_s


def kept(name: str) -> Quantity:
    """What a record keeps beside the times: messages, bytes."""

    def quantity(m: Measurement) -> float:
        if name not in m.memory:
            raise BenchError(f"{m.operation}: nothing is kept of {name!r}")
        return float(m.memory[name])

    return quantity


def swept(record: Record, operation: str, name: str) -> list[Any]:
    """The values of a sweep, ascending; BenchError where there are none."""
    values = {m.parameters[name] for m in record.measurements
              if m.operation == operation and name in m.parameters}  # fmt: skip
    if not values:
        raise BenchError(f"{record.experiment}: no {operation!r} by {name}")
    return sorted(values)


def _ratio(
    record: Record, of: Quantity, operation: str, over: str, under: str, **point: Any
) -> float:
    mine = of(measured(record, operation, under, **point))
    if mine <= 0:
        raise BenchError(f"{operation}, {under}: nothing to compare with")
    return of(measured(record, operation, over, **point)) / mine


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(operation: str, base: str, others: Sequence[str], **point: Any) -> Figure:
    """How many times as long others take as a base."""

    def figure(record: Record) -> str:
        mine = item_s(record, operation, base, **point)
        return " · ".join(
            f"{other} {_short(item_s(record, operation, other, **point) / mine)} ×"
            for other in others
        )

    return figure


def saved(
    operation: str, base: str, others: Sequence[str], name: str, values: Sequence[Any]
) -> Figure:
    """By how much less time a base takes than others, on average over a sweep."""

    def figure(record: Record) -> str:
        found = []
        for other in others:
            shares = [
                1 - item_s(record, operation, base, **{name: value})
                / item_s(record, operation, other, **{name: value})
                for value in values
            ]  # fmt: skip
            found.append(f"{other} {100 * fmean(shares):.0f} %")
        return " · ".join(found)

    return figure


def said(*names: str, unit: str = "×") -> Figure:
    """What a record's own claims say, one after another."""

    def figure(record: Record) -> str:
        known = {claim.name: claim.value for claim in record.claims}
        if any(name not in known for name in names):
            raise BenchError(f"{record.experiment}: no such claims: {names}")
        values = [known[name] for name in names]
        return " · ".join(f"{_short(value)} {unit}".strip() for value in values)

    return figure


def ends(
    operation: str, pairs: Sequence[tuple[str, str]], name: str, of: Quantity = seconds
) -> Figure:
    """How many times as much the first of each pair takes as the second, where a sweep begins and
    where it ends."""

    def figure(record: Record) -> str:
        values = swept(record, operation, name)
        return "; ".join(
            f"{name} = {_value(value)}: " + " · ".join(
                f"{over} / {under} {_short(_ratio(record, of, operation, over, under, **{name: value}))}"
                for over, under in pairs
            )
            for value in dict.fromkeys((values[0], values[-1]))
        )  # fmt: skip

    return figure


def always(
    operation: str, pairs: Sequence[tuple[str, str]], name: str, of: Quantity = seconds
) -> Callable[[Record], bool]:
    """Whether the first of each pair takes more than the second all through a sweep."""

    def agrees(record: Record) -> bool:
        return all(
            _ratio(record, of, operation, over, under, **{name: value}) > 1
            for value in swept(record, operation, name)
            for over, under in pairs
        )

    return agrees


def against(base: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of each of the others with a base."""
    return [(other, base) for other in others]


def together(*figures: tuple[str, Figure]) -> Figure:
    """Several figures of one record, each under its name."""
    return lambda record: "; ".join(f"{name}: {figure(record)}" for name, figure in figures)


def largest(operation: str, base: str, others: Sequence[str], name: str = "n") -> Figure:
    """`times` at the greatest value of a sweep, which is told."""

    def figure(record: Record) -> str:
        value = swept(record, operation, name)[-1]
        return (
            times(operation, base, others, **{name: value})(record) + f" ({name} = {_value(value)})"
        )

    return figure


def sized(figure: Figure) -> Figure:
    """A figure with the n of its record."""
    return lambda record: f"{figure(record)} (n = {', '.join(map(_value, record.settings['n']))})"


def _value(value: Scalar) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _best_beta(record: Record) -> Iterator[tuple[str, str, float, float]]:
    """(method, place, the β that needs fewest messages, how many times as many β = 1 needs)."""
    for m in (
        m for m in record.measurements if m.operation == _BETA and m.contender.endswith(", β = 1.0")
    ):
        method = m.contender.partition(",")[0]
        tried = {
            float(other.contender.rpartition("= ")[2]): kept("messages")(other)
            for other in record.measurements
            if other.operation == _BETA and other.parameters == m.parameters
            and other.contender.startswith(f"{method}, β")
        }  # fmt: skip
        best = min(tried, key=tried.__getitem__)
        yield method, f"f = {m.parameters['f']}", best, tried[1.0] / max(tried[best], 1.0)


def _betas(record: Record) -> str:
    found = [row for row in _best_beta(record) if row[0] != "disc"]
    if not {"igm", "idgm"} <= {method for method, *_ in found}:
        raise BenchError(f"{record.experiment}: no β of igm and idgm")
    return " · ".join(
        f"{method} {best:g}, β = 1 takes {_short(more)} × ({place})"
        for method, place, best, more in found
    )


def _least_at(operation: str, name: str, methods: Sequence[str]) -> Figure:
    """Where a sweep needs the fewest messages, and how many times as many its two ends need."""

    def figure(record: Record) -> str:
        values = swept(record, operation, name)
        found = []
        for method in methods:
            by = {
                v: kept("messages")(measured(record, operation, method, **{name: v}))
                for v in values
            }
            best = min(by, key=by.__getitem__)
            rest = ", ".join(
                f"{_short(by[v] / max(by[best], 1.0))} × at {v}" for v in (values[0], values[-1])
            )
            found.append(f"{method}: {best} is best, {rest}")
        return " · ".join(found)

    return figure


def _as_printed(record: Record) -> str:
    """The paper's methods as printed beside the repaired ones, at every point of figure 7a."""
    found = []
    for side in swept(record, _BY_F, "side_km"):
        for f in swept(record, _BY_F, "f"):
            told = " · ".join(
                f"{name}:printed {_short(_ratio(record, kept('messages'), _BY_F, f'{name}:printed', name, side_km=side, f=f))} × as many as {name}"
                for name in ("igm", "idgm")
            )
            found.append(f"{told} ({side} km, f = {f})")
    return "; ".join(found)


def _server(record: Record) -> str:
    f = swept(record, _SERVER, "f")[-1]
    pairs = [("gm, k-index", "igm, k-index"), ("vm, k-index", "igm, k-index"),
             ("igm, k-index", "igm, beq-tree"), ("idgm, k-index", "idgm, beq-tree")]  # fmt: skip
    return " · ".join(
        f"{over} / {under} {_short(_ratio(record, seconds, _SERVER, over, under, f=f))}" for over, under in pairs
    ) + f" (f = {f})"  # fmt: skip


def _ramps(record: Record) -> str:
    return " · ".join(
        f"{m} {_short(_ratio(record, kept('messages'), _RAMP, m, f'{m}-opt', changing=what))} × ({what})"
        for what in ("f", "v") for m in ("igm", "idgm")
    )  # fmt: skip


def _beq_changes(record: Record) -> str:
    found = []
    for n in swept(record, _ADD_EVENT, "n"):
        coming, going = (
            1e6 * item_s(record, what, "beq-tree", n=n) for what in (_ADD_EVENT, _REMOVE_EVENT)
        )
        found.append(f"{_short(coming)} and {_short(going)} µs an event at {n:,}")
    return " · ".join(found)


def _marked(record: Record) -> float:
    """By how much less time B_null at every match takes than no bitsets, on average over w."""
    widths = swept(record, _VARIANTS, "w")
    return fmean(
        1 - _ratio(record, seconds, _VARIANTS, "fDI-Tree-o, as printed", "fDI-Tree", w=w)
        for w in widths
    )


def _stocks(record: Record) -> dict[str, float]:
    n = swept(record, _DI + "n", "n")[-1]
    return {
        other: 1 - 1 / _ratio(record, seconds, _DI + "n", other, "di-tree", n=n)
        for other in _RIVALS
    }


def _stock_figure(record: Record) -> str:
    return " · ".join(f"{name} {100 * share:.0f} %" for name, share in _stocks(record).items()) + (
        f" (n = {swept(record, _DI + 'n', 'n')[-1]:,})"
    )


def _logistics(record: Record) -> str:
    """Figure 7 at its end: time, messages, the broker's memory and a client's."""
    events = swept(record, _CURVE, "events")[-1]
    grus, siena = (measured(record, _CURVE, who, events=events) for who in ("Grus", _SIENA))
    sent, held, client = (kept(name) for name in ("messages", "total", "client"))
    return (
        f"{_short(siena.item_s / grus.item_s)} × the throughput · {_short(sent(grus))} messages instead of "
        f"{_short(sent(siena))} · {_short(held(grus) / held(siena))} × the broker's memory · a client keeps "
        f"{_short(client(grus))} bytes instead of {_short(client(siena))} ({events:,} events)"
    )


def _located(scenario: str) -> Figure:
    """Figures 8 and 9 at their corners: time, and how memory grows with the events."""
    operation = f"{scenario}: find location subscriptions, by their number"

    def figure(record: Record) -> str:
        sizes, counts = (swept(record, operation, name) for name in ("subscriptions", "positions"))
        found = [
            f"{_short(_ratio(record, seconds, operation, 'plain loop', 'index', subscriptions=size, positions=count))} × "
            f"({size:,} subscriptions, {count:,} events)"
            for size, count in dict.fromkeys(((sizes[0], counts[0]), (sizes[-1], counts[-1])))
        ]
        held = [kept("total")(measured(record, operation, "detector", subscriptions=sizes[-1], positions=count))
                for count in (counts[0], counts[-1])]  # fmt: skip
        return (
            " · ".join(found)
            + f" · memory at the most events {_short(held[1] / held[0])} × that at the fewest"
        )

    return figure


def _beside(record: Record, name: str, side_km: int, f: int) -> str:
    """How many times as many messages a method needs as idGM."""
    known = {claim.name: claim.value for claim in record.claims}
    ratio = known[_F7A.format(side_km, f, name)] / known[_F7A.format(side_km, f, "idgm")]
    return f"{name} {_short(ratio)} × as many as idgm ({side_km} km, f = {f})"


_MO_N = "mo: one event at a time, by n"
_MO_K = "mo: one event at a time, by k"
_DI = "di: one event at a time, by "
_LIVE = "one subscription against the live events, by "
_RIVALS = ("rein", "tama", "op-index", "ada-rein", "pem")
_MEMORY = "mo: subscriptions and as many live events, {} (n = 1,000,000)"
_F7A = "fig. 7a at side_km {}, f {}: {} beside disc"

_BY_F = "fig. 7a: messages, by arrivals a step"
_BETA = "fig. 9: messages, by β"
_RAMP = "fig. 10: messages, with f or v going up and down"
_SERVER = "fig. 13: server time over an event index, by arrivals a step"
_ADD_EVENT, _REMOVE_EVENT = "mo: add an event", "mo: remove an event"
_SPLIT = "one subscription against the live events, by what it asks"
_VARIANTS = "di: DI-Tree's variants, by w"
_CURVE, _SIENA = "logistics: detect, by events", "clients detect (SIENA)"
_OLD = [(old, new) for old in ("gm", "vm") for new in ("igm", "idgm")]
_MESSAGES = kept("messages")
_EVENT_RIVALS = ("beq-tree", "r-star-tree")
_FILTERS = ("tama", "r-star-tree", "op-index")
_TEXTUAL = ("rt-tree", "ir-tree")
_PROBED = [(other, "CostBasedProbe") for other in ("ProbeTokenSet", "ProbeTrie")]
_PRINTED = [("lfilter, as printed", "lfilter"), ("CostBasedProbe, as printed", "CostBasedProbe")]

_LARGE = "event-matching/20261117T034053Z"
_SMALL = "event-matching/20261117T063819Z"
_WORDS = "spatio-textual/20261117T003307Z"
_MOVING = "moving/20261116T085751Z"
_GRUS = "composite/20261118T132815Z"

PAPERS: dict[str, tuple[Row, ...]] = {
    "MO-Tree": (
        Row("Fig. 4: at 5 M subscriptions 17.2, 18.5 and 60.4 times as fast as TAMA, R\\*-Tree and "
            "OpIndex", "in the same order, and less: all contenders are compiled alike, and TAMA is its exact variant", _LARGE,
            times(_MO_N, "mo-tree", ("tama", "r-star-tree", "op-index"), n=5_000_000)),
        Row("Fig. 5: with 10 predicates 15.6, 47.2 and 57.3 times as fast", "at 100 000 subscriptions: "
            "the leads grow with the number", _SMALL,
            times(_MO_K, "mo-tree", ("tama", "r-star-tree", "op-index"), n=100_000, k=10)),
        Row("Table 5, events: with α = 0 still 8.1, 6.5 and 26.3 times as fast",
            "differs at 100 000 subscriptions: without popular attributes R\\*-Tree is ahead", _SMALL,
            times("mo: one event at a time, by alpha", "mo-tree",
                  ("tama", "r-star-tree", "op-index"), alpha=0.0)),
        Row("Table 5, subscriptions: with α = 0 2.1 and 96.5 times as fast as BEQ-Tree and R\\*-Tree",
            "popular attributes are what MO-Tree's layers go by", experiment="subscription-matching",
            figure=sized(times(_LIVE + "alpha", "mo-tree", _EVENT_RIVALS, alpha=0.0)),
            agrees=lambda r: all(_ratio(r, seconds, _LIVE + "alpha", other, "mo-tree", alpha=0.0) > 1
                                 for other in _EVENT_RIVALS)),
        Row("Fig. 6: at 5 M events 3.9 and 628 times as fast as BEQ-Tree and R\\*-Tree",
            "at a million events. Differs: BEQ-Tree, compiled alike and with leaves of a size that "
            "suits it, is as fast as MO-Tree", "subscription-matching/20261117T061035Z",
            times(_LIVE + "n", "mo-tree", ("beq-tree", "r-star-tree"), n=1_000_000)),
        Row("Fig. 7: with 10 predicates 17.5 and 668.7 times as fast", "at 100 000 events; as above",
            "subscription-matching/20261117T064001Z",
            times(_LIVE + "k", "mo-tree", ("beq-tree", "r-star-tree"), k=10)),
        Row("Figs. 8–9: an event comes 1 235 and 4 345 times and goes 497 and 25 817 times as fast as with "
            "BEQ-Tree and R\\*-Tree", "one at a time, ids and store included", experiment="maintenance",
            figure=together(("comes", largest(_ADD_EVENT, "mo-tree", _EVENT_RIVALS)),
                            ("goes", largest(_REMOVE_EVENT, "mo-tree", _EVENT_RIVALS))),
            agrees=lambda r: all(always(what, against("mo-tree", _EVENT_RIVALS), "n")(r)
                                 for what in (_ADD_EVENT, _REMOVE_EVENT))),
        Row("Figs. 10–11: a subscription comes 22.9, 2 476 and 0.98 times and goes 2 238, 16 019 and 2 701 "
            "times as fast as with TAMA, R\\*-Tree and OpIndex", "one at a time, ids and store included",
            experiment="maintenance",
            figure=together(("comes", largest("mo: add a subscription", "mo-tree", _FILTERS)),
                            ("goes", largest("mo: remove a subscription", "mo-tree", _FILTERS))),
            agrees=lambda r: always("mo: remove a subscription", against("mo-tree", _FILTERS), "n")(r)
            and always("mo: add a subscription", against("mo-tree", _FILTERS[:2]), "n")(r)),
        Row("Fig. 12: R\\*-Tree, TAMA+BEQ-Tree and OpIndex+BEQ-Tree take 1.96, 2.12 and 1.52 times the "
            "memory", "agrees but for R\\*-Tree, which takes less; the stores that all of them share are counted in", "memory/20261117T054410Z",
            lambda r: said(*(_MEMORY.format(name) for name in
                             ("r-star-tree", "tama+beq-tree", "op-index+beq-tree")), unit="bytes")(r)
            + " (mo-tree: " + said(_MEMORY.format("mo-tree"), unit="bytes")(r) + ")"),
    ),
    "Elaps": (
        Row("Fig. 7a: iGM and idGM take 10 times fewer messages than VM and GM", "agrees with GM at "
            "a high turnover only (the large square); an exact VM takes *fewer* than iGM and idGM. The own cell is "
            "often unsafe in all grid methods; `disc`, ours, is exact there", _MOVING,
            lambda r: " · ".join(_beside(r, name, *at) for at in ((200, 500), (50, 500)) for name in ("gm", "vm"))),
        *(
            Row(f"Fig. {number}: iGM and idGM take fewer messages than VM and GM {what}", f"{data}, sweep `{sweep}`",
                experiment="moving", figure=ends(operation, _OLD, name, _MESSAGES),
                agrees=always(operation, _OLD, name, _MESSAGES))
            for number, what, data, sweep, operation, name in (
                ("7b", "at every speed", "made-up paths", "v", "fig. 7b: messages, by metres a step", "v"),
                ("7c", "at every radius", "made-up paths", "r", "fig. 7c: messages, by radius", "r"),
                ("7d", "at every number of live events", "made-up paths", "live", "fig. 7d: messages, by live events", "live"),
                ("7e", "among real taxis, by f", "cabs of San Francisco", "cabs_f",
                 "fig. 7e: messages of cabs, by arrivals a step", "f"),
                ("7f", "among real taxis, by r", "cabs of San Francisco", "cabs_r",
                 "fig. 7f: messages of cabs, by radius", "r"),
            )
        ),
        Row("The cost model as printed (Eqs 3 to 10)", "what its repairs bring, with both squares of figure 7a or one",
            experiment="moving", figure=_as_printed),
        Row("Fig. 8: BEQ-Tree 20 times as fast as Quadtree, k-index and OpIndex", "at a million events",
            "subscription-matching/20261117T061035Z",
            times(_LIVE + "n", "beq-tree", ("quad-tree", "k-index", "op-index"), n=1_000_000)),
        Row("Fig. 8, Boolean and spatial part apart: Quadtree is quick at the spatial one, and takes long for the rest",
            "the whole question, its predicates alone, its region alone", experiment="subscription-matching",
            figure=sized(together(*((asked, times(_SPLIT, "beq-tree", ("quad-tree", "k-index", "op-index"), asked=asked))
                                    for asked in ("whole", "Boolean", "spatial")))),
            agrees=lambda r: _ratio(r, seconds, _SPLIT, "quad-tree", "beq-tree", asked="spatial")
            < _ratio(r, seconds, _SPLIT, "quad-tree", "beq-tree", asked="Boolean")),
        Row("Fig. 9: iGM and idGM are best at β about 1", "for `disc`: the adaptive β (d + r)/(2 d) "
            "needs as many messages as the best fixed one, or fewer",
            "moving/20261116T085847Z",
            said("disc at side_km 200, f 100: adaptive β beside the best fixed one",
                 "disc at side_km 200, f 500: adaptive β beside the best fixed one")),
        Row("Fig. 9, of iGM and idGM themselves", "the best fixed β of those tried; agrees where β = 1 takes less than 1.1 times "
            "as many messages as that", experiment="moving", figure=_betas,
            agrees=lambda r: all(more < 1.1 for method, _, _, more in _best_beta(r) if method in ("igm", "idgm"))),
        Row("Fig. 10: where f or v changes iGM and idGM need about as many messages as with the future known (-opt)",
            "how many times as many, while f or v goes up and down; agrees below 1.25", experiment="moving", figure=_ramps,
            agrees=lambda r: all(_ratio(r, _MESSAGES, _RAMP, m, f"{m}-opt", changing=what) < 1.25
                                 for what in ("f", "v") for m in ("igm", "idgm"))),
        Row("Fig. 11: a million events come to BEQ-Tree, or go, in less than 300 s", "one at a time: at 300 s that is 300 µs each",
            experiment="maintenance", figure=_beq_changes,
            agrees=lambda r: all(item_s(r, what, "beq-tree", n=swept(r, what, "n")[-1]) < 300e-6
                                 for what in (_ADD_EVENT, _REMOVE_EVENT))),
        Row("Fig. 12: on Foursquare as on Twitter", "among the shops of a made-up city", experiment="moving",
            figure=ends("city: messages", _OLD, "subscribers", _MESSAGES),
            agrees=always("city: messages", _OLD, "subscribers", _MESSAGES)),
        Row("Fig. 13: iGM and idGM take the server 10 times less than VM and GM, and less over BEQ-Tree than over k-index",
            "server time, the search included; agrees where each is less", experiment="moving", figure=_server,
            agrees=lambda r: all(
                _ratio(r, seconds, _SERVER, over, under, f=swept(r, _SERVER, "f")[-1]) > 1
                for over, under in (("gm, k-index", "igm, k-index"), ("vm, k-index", "igm, k-index"),
                                    ("igm, k-index", "igm, beq-tree"), ("idgm, k-index", "idgm, beq-tree")))),
        Row("Fig. 14a: the more cells, the fewer messages", "by N, up to what the radius needs", experiment="moving",
            figure=_least_at("fig. 14: messages, by N", "cells", ("igm", "idgm"))),
        Row("Fig. 14b: α = 0.5 is best", "Eq. 8 with (1 − cos θ)/2", experiment="moving",
            figure=_least_at("fig. 14: messages, by α", "alpha", ("idgm",))),
        Row("Fig. 15: E_max = 60 000 is best", "differs: 4 096 is, of those tried, at a million events",
            "subscription-matching/20261117T060815Z",
            times(_LIVE + "BEQ-Tree's leaf size", "beq-tree, E_max = 4,096",
                  ("beq-tree, E_max = 256", "beq-tree, E_max = 60,000"))),
        Row("App. C: a compressed region takes 5–10 % of the bitmap of 600 × 600 cells", "less, of `disc`", _MOVING,
            said("disc at side_km 200, f 100: region against a 600 × 600 bitmap",
                 "disc at side_km 50, f 100: region against a 600 × 600 bitmap", unit="%")),
    ),
    "DI-Tree": (
        Row("Fig. 2: bitsets save 60.8 % (forward) and 40.57 % (backward) on average over w", "agrees, and "
            "more: what whole cells decide is not marked at all",
            "ablation/20261117T055650Z",
            said("time that bitsets save: fDI-Tree-o instead of fDI-Tree, mean over w",
                 "time that bitsets save: bDI-Tree-o instead of bDI-Tree, mean over w", unit="%")),
        Row("Fig. 2 with B_null marked at every match, as printed: 60.8 % (forward)", "`di-tree:fn` beside `di-tree:f`",
            experiment="ablation", figure=sized(lambda r: f"{100 * _marked(r):.0f} %"), agrees=lambda r: _marked(r) > 0),
        Row("Fig. 3, by n: 78.4, 83.7, 93.7, 77.8 and 52.0 % less time than REIN, TAMA, OpIndex, Ada-REIN "
            "and fgPEM", "agrees, `pem` standing for fgPEM; 10 000 to 5 M subscriptions",
            "event-matching/20261117T033352Z",
            saved(_DI + "n", "di-tree", _RIVALS, "n", (1_000_000, 5_000_000))),
        Row("Fig. 4, by k: 79.6 % less than TAMA", "differs at 100 000 subscriptions", _SMALL,
            saved(_DI + "k", "di-tree", _RIVALS, "k", (2, 4, 6, 8, 10))),
        Row("Fig. 5, by w: 69.7, 79.8, 92.9, 69.0 and 48.7 %", "at 100 000 subscriptions", _SMALL,
            saved(_DI + "w", "di-tree", _RIVALS, "w", (0.1, 0.2, 0.4, 0.6, 0.8))),
        Row("Fig. 6, by m: 66.2, 47.7, 69.6, 68.0 and 23.8 %", "at 100 000 subscriptions", _SMALL,
            saved(_DI + "m", "di-tree", _RIVALS, "m", (20, 40, 60, 80))),
        Row("Fig. 7, by α: 89.2, 58.2, 38.7, 88.8 and 38.6 %", "at 100 000 subscriptions", _SMALL,
            saved(_DI + "alpha", "di-tree", _RIVALS, "alpha", (0.0, 0.25, 0.5, 0.75, 1.0))),
        Row("Fig. 8a: a subscription comes to OpIndex fastest, then to REIN, to TAMA slowest", "with the most predicates; all are "
            "shown with the ids and the store they share", experiment="maintenance",
            figure=largest("di: add a subscription, by k", "di-tree", ("rein", "tama", "op-index", "pem"), "k")),
        Row("Fig. 8b: it goes about as fast as from TAMA", "as above", experiment="maintenance",
            figure=largest("di: remove a subscription, by k", "di-tree", ("rein", "tama", "op-index", "pem"), "k")),
        Row("Fig. 8c: two thirds of TAMA's memory, half of fgPEM's", "differs: bitsets are paid by the "
            "predicate, and all are shown with the store they share", "memory/20261117T054410Z",
            lambda r: " · ".join(
                f"{name} {said(f'di: subscriptions in memory, {name} (n = 1,000,000)', unit='bytes')(r)}"
                for name in ("di-tree", "tama", "pem"))),
        Row("Stock data: on average 74.4, 69.4, 76.8, 73.6 and 39.8 % less time than REIN, TAMA, OpIndex, Ada-REIN and fgPEM",
            "values are real prices (`di_values=sp500`), attributes and widths the paper's", experiment="event-matching",
            where={"di_values": "sp500"}, figure=_stock_figure,
            agrees=lambda r: all(share > 0 for share in _stocks(r).values())),
    ),
    "LFilter": (
        Row("Fig. 7: the cost-based probe is the best of three", "agrees", _WORDS,
            said(*(f"{kind}: cost-based probe / the better other (n = 1,000,000)"
                   for kind in ("short point", "short range", "long point", "long range")))),
        Row("Fig. 8: LFilter beats both of its parts; at 1000 words and a range 16 ms against 50",
            "agrees but for long points, where it asks whether to ask", _WORDS,
            said("short point: lfilter / the better of mbr-trie and pt-quadtree (n = 1,000,000)",
                 "short range, sides up to 0.04: lfilter / the better of mbr-trie and pt-quadtree "
                 "(n = 1,000,000)",
                 "long point: lfilter / the better of mbr-trie and pt-quadtree (n = 1,000,000)",
                 "long range, sides up to 0.04: lfilter / the better of mbr-trie and pt-quadtree "
                 "(n = 1,000,000)")),
        Row("Figs. 9–10: LFilter before R^t++-Tree before IR-Tree, up to 5 times", "agrees, less for long "
            "messages; short and long, point and range", _WORDS,
            lambda r: " · ".join(
                times(f"rivals: {kind} messages, made", "lfilter", ("rt-tree", "ir-tree"))(r)
                for kind in ("short point", "short range", "long point", "long range"))),
        Row("Fig. 11: nearly linear up to 10 M subscriptions", "recorded to 1 M for `lfilter`, to 10 M for "
            "`pivot` only (`spatio-textual/20261117T004221Z`)", "spatio-textual/20261116T194010Z",
            lambda r: " · ".join(
                f"{kind} {item_s(r, f'growth: {kind} messages', 'lfilter', n=1_000_000) / item_s(r, f'growth: {kind} messages', 'lfilter', n=100_000):.3g} ×"
                for kind in ("short point", "long range"))),
        *(
            Row(f"{number}, by the words of a message, at a {place}: {what}", "part `lengths`; agrees where it does at each length",
                experiment="spatio-textual", where={"sources": "made"}, figure=sized(ends(f"length: messages, {place}", pairs, "words")),
                agrees=always(f"length: messages, {place}", pairs, "words"))
            for place in ("point", "range")
            for number, what, pairs in (
                ("Fig. 7", "the cost-based probe is the best of three", _PROBED),
                ("Fig. 8", "LFilter beats both of its parts", against("lfilter", ("mbr-trie", "pt-quadtree"))),
                ("Figs. 9–10", "LFilter before R^t++-Tree before IR-Tree",
                 [*against("lfilter", _TEXTUAL), ("ir-tree", "rt-tree")]),
            )
        ),
        Row("As printed (`choose=\"paper\"`, `probe=\"binary\"`)", "how many times as long as our way, part `lengths`",
            experiment="spatio-textual", where={"sources": "made"},
            figure=sized(together(*((place, ends(f"length: messages, {place}", _PRINTED, "words")) for place in ("point", "range"))))),
    ),
    "Grus": (
        Row("Fig. 7: 144 events a second on average, 4.5 times those of clients that detect (SIENA)",
            "the lead is gone: both are ours here, and the composite part costs little. Events a "
            "second in batches, one by one, with clients", _GRUS,
            said("detect, batch", "detect, one by one", "detect, clients detect (SIENA)", unit="/s")),
        Row("Fig. 7: 25 000 messages instead of 60 000", "agrees exactly: it follows from the workload",
            _GRUS, said("messages, batch", "messages, clients detect (SIENA)", unit="")),
        Row("Fig. 8: the optimised version needs 1.02 % of the time for `DIST(R; <; l)`", "more so: many positions "
            "are looked up at once. How many times as long the plain loop takes", _GRUS,
            said("index against the plain loop, taxis")),
        Row("Fig. 9: the same for `@(R)`", "as above", _GRUS,
            said("index against the plain loop, shopping")),
        Row("§4.6.1: publishers stay silent in their safe rectangles", "most positions are kept; greedy "
            "rectangles in cells", _GRUS,
            said("kept by publishers, taxis", "kept by publishers, shopping", unit="%")),
        Row("§4.6.1, the rectangles by quadrants and dominance as printed", "`safe_rectangle=\"quadrants\"`, in cells, too",
            experiment="composite",
            figure=said("kept by publishers, quadrants, taxis", "kept by publishers, quadrants, shopping", unit="%")),
        Row("Fig. 7a–d: 4.5 times the throughput, 25 000 messages instead of 60 000, at most 1.3 times the broker's memory, "
            "far less of a client's", "where the curves end; one event at a time", experiment="composite", figure=_logistics),
        Row("Fig. 8a–b: taxis, by subscriptions and events; memory stays as it is", "how many times as long the plain loop takes, "
            "where the curves begin and end", experiment="composite", figure=_located("taxis")),
        Row("Fig. 9a–b: shopping, likewise", "as above", experiment="composite", figure=_located("shopping")),
    ),
}  # fmt: skip


def tables(results: Path) -> str:
    """A table a paper, in Markdown."""
    parts = []
    records: dict[str, list[tuple[str, Record]]] = {}
    for paper, rows in PAPERS.items():
        lines = [f"## {paper}", "", "| claim | our figure | agrees or differs |", "|---|---|---|"]
        for row in rows:
            if row.experiment and row.experiment not in records:
                records[row.experiment] = _newest_first(results, row.experiment)
            figure, verdict = _filled(row, results, records.get(row.experiment, []))
            lines.append(f"| {row.claim} | {figure} | {verdict} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _newest_first(results: Path, experiment: str) -> list[tuple[str, Record]]:
    """All records of an experiment with their names."""
    paths = sorted((results / experiment).glob("*.json"), reverse=True)
    return [(f"{experiment}/{path.stem}", load(path)) for path in paths]


def _filled(row: Row, results: Path, records: Sequence[tuple[str, Record]]) -> tuple[str, str]:
    """Figure and verdict: of the row's own record, or of the first that holds the figure."""
    assert row.figure is not None
    if row.record:
        return _linked(row.figure(load(results / f"{row.record}.json")), row.record), row.verdict
    for name, record in records:
        if not row.fits(record):
            continue
        try:
            figure = row.figure(record)
            word = "" if row.agrees is None else "agrees; " if row.agrees(record) else "differs; "
        except BenchError:
            continue  # it is of something else
        return _linked(figure, name), word + row.verdict
    return "built, not recorded", row.verdict


def _linked(figure: str, name: str) -> str:
    return f"{figure} ([record](../benchmarks/results/{name}.json))"


def written(text: str, results: Path) -> str:
    """A page with its tables made anew."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise BenchError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{tables(results)}\n{END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    root = page.resolve().parents[1]
    page.write_text(written(page.read_text("utf-8"), root / "benchmarks/results"), "utf-8")
