# ruff: noqa: E501  # rows of a table
"""What the papers claim beside what was recorded here: the tables of docs/papers.md.

`python -m nearcast.bench.papers docs/papers.md` writes them anew from the records. A row that
has no record yet says so; nothing is worked out that no record holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from nearcast.bench.results import Record, load
from nearcast.errors import BenchError

__all__ = ["BEGIN", "END", "PAPERS", "Row", "tables", "written"]

BEGIN, END = "<!-- generated from benchmarks/results -->", "<!-- end of the generated part -->"

#: The figure of a record.
Figure: TypeAlias = Callable[[Record], str]


@dataclass(frozen=True, slots=True)
class Row:
    """A claim, the record that tells of it, what it tells, and how the two go together."""

    claim: str
    verdict: str
    record: str = ""
    """A file in benchmarks/results, without its ending; empty: nothing is recorded yet."""
    figure: Figure | None = None


def item_s(record: Record, operation: str, contender: str, **point: Any) -> float:
    """Median seconds for one unit of work; BenchError where there is no such thing, or two."""
    found = [
        m for m in record.measurements
        if m.operation == operation and m.contender == contender
        and all(m.parameters.get(name) == value for name, value in point.items())
    ]  # fmt: skip
    if len(found) != 1:
        raise BenchError(f"{record.experiment}: {len(found)} of {operation!r}, {contender!r}")
    return found[0].item_s


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
            "the sweep is there (`subscription-matching --set sweeps=alpha`)"),
        Row("Fig. 6: at 5 M events 3.9 and 628 times as fast as BEQ-Tree and R\\*-Tree",
            "at a million events. Differs: BEQ-Tree, compiled alike and with leaves of a size that "
            "suits it, is as fast as MO-Tree", "subscription-matching/20261117T061035Z",
            times(_LIVE + "n", "mo-tree", ("beq-tree", "r-star-tree"), n=1_000_000)),
        Row("Fig. 7: with 10 predicates 17.5 and 668.7 times as fast", "at 100 000 events; as above",
            "subscription-matching/20261117T064001Z",
            times(_LIVE + "k", "mo-tree", ("beq-tree", "r-star-tree"), k=10)),
        Row("Figs. 8–11: insertion and deletion", "the only record with rivals is to come; that of "
            "`maintenance` is of `pivot` alone"),
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
        Row("Fig. 7b–d: speed, radius and live events", "the sweeps are there (`moving --set sweeps=…`)"),
        Row("Fig. 7e–f: real taxis by f and r", "one setting, cabs of San Francisco: there the record "
            "`moving/20261116T085555Z` compares all methods; the sweep is to come"),
        Row("Fig. 8: BEQ-Tree 20 times as fast as Quadtree, k-index and OpIndex", "at a million events; the "
            "Boolean and the spatial part are not told apart yet",
            "subscription-matching/20261117T061035Z",
            times(_LIVE + "n", "beq-tree", ("quad-tree", "k-index", "op-index"), n=1_000_000)),
        Row("Fig. 9: iGM and idGM are best at β about 1", "recorded for `disc`: the adaptive β (d + r)/(2 d) "
            "needs as many messages as the best fixed one, or fewer; iGM and idGM are to come",
            "moving/20261116T085847Z",
            said("disc at side_km 200, f 100: adaptive β beside the best fixed one",
                 "disc at side_km 200, f 500: adaptive β beside the best fixed one")),
        Row("Figs. 10–14: changing f and v with -opt, updates, construction, cell sizes, α",
            "not recorded over the real event index"),
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
            "more: what whole cells decide is not marked at all. `fn`, as printed, is not recorded yet",
            "ablation/20261117T055650Z",
            said("time that bitsets save: fDI-Tree-o instead of fDI-Tree, mean over w",
                 "time that bitsets save: bDI-Tree-o instead of bDI-Tree, mean over w", unit="%")),
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
        Row("Fig. 8a–b: insertion and deletion", "not recorded with all contenders"),
        Row("Fig. 8c: two thirds of TAMA's memory, half of fgPEM's", "differs: bitsets are paid by the "
            "predicate, and all are shown with the store they share", "memory/20261117T054410Z",
            lambda r: " · ".join(
                f"{name} {said(f'di: subscriptions in memory, {name} (n = 1,000,000)', unit='bytes')(r)}"
                for name in ("di-tree", "tama", "pem"))),
        Row("Stock data", "the readers have none yet; `di` is made up with the paper's parameters"),
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
        Row("By the length of messages", "short and long only; as an axis it is to come"),
        Row("As printed (`choose=\"paper\"`, `probe=\"binary\"`)", "built and tested, not recorded"),
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
            "rectangles in cells, not by quadrants and dominance", _GRUS,
            said("kept by publishers, taxis", "kept by publishers, shopping", unit="%")),
        Row("Figs. 7–9 as curves, with the memory of clients", "not recorded"),
    ),
}  # fmt: skip


def tables(results: Path) -> str:
    """A table a paper, in Markdown."""
    parts = []
    for paper, rows in PAPERS.items():
        lines = [f"## {paper}", "", "| claim | our figure | agrees or differs |", "|---|---|---|"]
        for row in rows:
            figure = "not recorded yet"
            if row.figure is not None:
                link = f"[record](../benchmarks/results/{row.record}.json)"
                figure = f"{row.figure(load(results / f'{row.record}.json'))} ({link})"
            lines.append(f"| {row.claim} | {figure} | {row.verdict} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


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
