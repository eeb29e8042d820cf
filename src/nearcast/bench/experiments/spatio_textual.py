"""`spatio-textual`: messages with words and a place against subscriptions with both.

LFilter's figures 7 to 11: the probes of MBRTrie; MBRTrie, PT-Quadtree and LFilter; their
rivals, on made-up and on real words and places; growth. Four groups of messages: short and
long, at a point and with a range. As in the paper the structures themselves are timed, on
encoded messages and one core; every answer is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.scores import Row, checklist, claim, growth_claims, rows
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.textual_truth import event_boxes, sure_messages, true_textual_matches
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.datasets import workload
from nearcast.index import registry
from nearcast.index.base import Pairs, new_counters
from nearcast.matcher import Matcher, bulk
from nearcast.model.geometry import Space

__all__ = ["EXPERIMENT"]

#: The source of words and places that are made up.
MADE = "made"
GROUPS = ("short point", "short range", "long point", "long range")
#: How MBRTrie finds a node's children, by the names of the paper.
PROBES = {"ProbeTokenSet": "token-set", "ProbeTrie": "trie", "CostBasedProbe": "cost"}
_PRINTED = ", as printed"
STRUCTURES = ("mbr-trie", "pt-quadtree", "lfilter")
INSERTS = "inserts: a table of subscriptions"
#: Neither of two structures clearly wins a group of messages if their times, each that of the
#: whole group, are within this factor of each other.
_CLEARLY = 1.5
_SIDE = 0.02
#: Words of the longest short message.
_SHORT = 20
_SURE = 20
#: Of messages that more subscriptions want there are fewer, so that about so many pairs match;
#: they take so much longer that a turn is still long.
_MOST_PAIRS = 2_000_000
_SAMPLE = 50
#: Subscriptions from which on `pivot` is held against a rate and a size.
_MOST = 10_000_000


def probing(group: str) -> str:
    """The operation: one group of messages, by probe."""
    return f"probes: {group} messages"


def choosing(group: str) -> str:
    """The operation: one group of messages, by structure."""
    return f"structures: {group} messages"


def rivalling(group: str, source: str) -> str:
    """The operation: one group of messages from one source, LFilter and others."""
    return f"rivals: {group} messages, {source}"


def lengthening(location: str) -> str:
    """The operation: messages of one number of words each, by that number."""
    return f"length: messages, {location}"


def growing(group: str) -> str:
    """The operation: one group of messages, by the number of subscriptions."""
    return f"growth: {group} messages"


class Structure(Matcher):
    """A matcher whose index is asked directly."""

    def question(self, events: pa.Table) -> tuple[Any, Any]:
        """The events as the index takes them: a batch, and boxes unless all are points."""
        plain = events.select(["id", "keywords"])
        batch = bulk.encode_events(plain, self.schema, self.space, intern=False).batch
        boxes = event_boxes(events)
        points = _with_points(batch, boxes)
        return (batch, boxes) if points is None else (points, None)

    def ask(self, batch: Any, boxes: Any) -> Pairs:
        """What the index answers."""
        found: Pairs = (
            self.index.match_events(batch, new_counters())
            if boxes is None
            else self.index.match_boxes(batch, boxes, new_counters())
        )
        return found

    def pairs(self, events: pa.Table, found: Pairs) -> pa.Table:
        """What the index answered, as ids."""
        numbers, slots = self._owners(found)
        ids = {
            "event_id": events["id"].take(pa.array(numbers)),
            "subscription_id": self._standing.ids.arrow(slots),
        }
        return pa.table(ids)


@dataclass(frozen=True)
class Messages:
    """One group of messages over some subscriptions, and some that are sure to be wanted."""

    subscriptions: pa.Table
    events: pa.Table
    sure: pa.Table

    @cached_property
    def truth(self) -> pa.Table:
        """Who wants any of them."""
        return true_textual_matches(self.subscriptions, pa.concat_tables([self.events, self.sure]))


@dataclass(frozen=True)
class Scene:
    """Subscriptions from one source, and structures over them, each built when asked for."""

    source: str
    size: int
    seed: int
    held: dict[str, Structure] = field(default_factory=dict)

    def _workload(self, **more: Any) -> Any:
        name, _, local = self.source.partition("@")
        real = None if name == MADE else name
        return workload("lf", seed=self.seed, source=real, local=bool(local), **more)

    @property
    def space(self) -> Space:
        """The space of the places."""
        space: Space = self._workload().space
        return space

    @cached_property
    def subscriptions(self) -> pa.Table:
        """Words and a rectangle each."""
        return self._workload().subscription_table(self.size).combine_chunks()

    def messages(
        self, group: str, count: int, side: float = _SIDE, words: int | None = None
    ) -> Messages:
        """One group; ranges have sides from a tenth of `side` up to it, as shares of the extent.

        `words`: exactly so many in each message, instead of as many as the group has.
        """
        message, location = group.split()
        length = None if words is None else (words, words)
        source = self._workload(
            message=message, location=location, range_side=(side / 10, side), length=length
        )
        events = source.event_table(count).combine_chunks()
        sample = true_textual_matches(self.subscriptions, events.slice(0, _SAMPLE))
        each = sample.num_rows / min(_SAMPLE, count)
        events = events.slice(0, max(_SAMPLE, int(_MOST_PAIRS / max(each, 1.0))))
        sure = sure_messages(self.subscriptions, events.slice(0, _SURE), self.seed)
        return Messages(self.subscriptions, events, sure)

    def structure(self, index: str, **options: Any) -> Structure:
        """A matcher with all subscriptions."""
        key = f"{index} {options}"
        if key not in self.held:
            made = Structure(index=index, space=self.space, **options)
            made.add_subscriptions(self.subscriptions)
            self.held[key] = made
        return self.held[key]

    def release(self) -> None:
        """Let all structures go."""
        self.held.clear()


def _matching(scene: Scene, messages: Messages, index: str, **options: Any) -> Task:
    matcher = scene.structure(index, **options)
    timed, sure = matcher.question(messages.events), matcher.question(messages.sure)

    def answer(found: Pairs) -> pa.Table:
        also = matcher.pairs(messages.sure, matcher.ask(*sure))
        return pa.concat_tables([matcher.pairs(messages.events, found), also])

    return Task(partial(matcher.ask, *timed), answer=answer, memory=matcher.memory)


def _with_points(batch: Any, boxes: Any) -> Any:
    """The batch with x and y where all places are points; None for ranges."""
    if not np.array_equal(boxes[:, :2], boxes[:, 2:]):
        return None
    n = len(boxes)
    return batch._replace(
        start=np.arange(0, 2 * n + 1, 2, dtype=np.int64),
        attr=np.tile(np.array([0, 1], np.int32), n),
        value=np.ascontiguousarray(boxes[:, :2]).ravel(),
    )


def _adding(scene: Scene, index: str) -> Task:
    """A fresh matcher in each repetition takes the whole table."""
    probe = scene.messages("short point", 20)
    held = [Structure(index=index, space=scene.space)]

    def before() -> None:
        held[0] = Structure(index=index, space=scene.space)

    def run() -> Structure:
        held[0].add_subscriptions(scene.subscriptions)
        return held[0]

    def answer(filled: Structure) -> pa.Table:
        return filled.match_events(pa.concat_tables([probe.events, probe.sure]))

    def memory() -> dict[str, int]:
        return held[0].memory()

    return Task(run, before=before, answer=answer, memory=memory, close=held.clear)


def _able(index: str, group: str) -> bool:
    """Whether the index can be asked directly about messages of this group."""
    can = registry.entry(index).subscriptions
    return can is not None and can.words and (can.boxes or group.endswith("point"))


def _trials(plan: Plan) -> Iterator[Trial]:
    size, parts = plan.number("n"), plan.texts("parts")
    for source in plan.texts("sources"):
        scene = Scene(source, size, plan.seed)
        if source == MADE:
            if "probes" in parts:
                yield from _probes(plan, scene)
            if "structures" in parts:
                yield from _structures(plan, scene)
        if "rivals" in parts:
            yield from _rivals(plan, scene)
        if "lengths" in parts:
            yield from _lengths(plan, scene)
        scene.release()
        if source == MADE and "inserts" in parts:
            probe = scene.messages("short point", 20)
            adders = [Contender(i, partial(_adding, scene, i)) for i in plan.texts("indexes")]
            yield Trial(
                INSERTS, tuple(adders), partial(getattr, probe, "truth"), {"n": size},
                size, "subscription", at_most=3,
            )  # fmt: skip
    if "growth" in parts:
        for n in sorted({*plan.numbers("sizes"), size}):
            scene = Scene(MADE, n, plan.seed)
            for group in GROUPS:
                able = [index for index in ("lfilter", "pivot") if _able(index, group)]
                yield _trial(plan, scene, growing(group), group, able, {})
            scene.release()


def _count(plan: Plan, group: str) -> int:
    return plan.number("events") if group.startswith("short") else plan.number("long_events")


def _trial(
    plan: Plan,
    scene: Scene,
    operation: str,
    group: str,
    indexes: Sequence[str],
    more: dict[str, Scalar],
) -> Trial:
    messages = scene.messages(group, _count(plan, group), float(more.get("side", _SIDE)))
    contenders = tuple(
        Contender(index, partial(_matching, scene, messages, index)) for index in indexes
    )
    point: dict[str, Scalar] = {"n": scene.size, **more}
    return Trial(
        operation, contenders, lambda: messages.truth, point, messages.events.num_rows, "message"
    )


def _probes(plan: Plan, scene: Scene) -> Iterator[Trial]:
    for group in GROUPS:
        messages = scene.messages(group, _count(plan, group))
        contenders = tuple(
            Contender(name, partial(_matching, scene, messages, "mbr-trie", probe=probe))
            for name, probe in PROBES.items()
        )
        yield Trial(
            probing(group), contenders, partial(getattr, messages, "truth"), {"n": scene.size},
            messages.events.num_rows, "message",
        )  # fmt: skip
    scene.release()


def _structures(plan: Plan, scene: Scene) -> Iterator[Trial]:
    for group in GROUPS:
        sides = plan.settings["sides"] if group.endswith("range") else (0.0,)
        for side in sides:
            more: dict[str, Scalar] = {"side": side} if group.endswith("range") else {}
            yield _trial(plan, scene, choosing(group), group, STRUCTURES, more)


def _rivals(plan: Plan, scene: Scene) -> Iterator[Trial]:
    for group in GROUPS:
        able = [index for index in plan.texts("indexes") if _able(index, group)]
        if able:
            yield _trial(plan, scene, rivalling(group, scene.source), group, able, {})


def _lengths(plan: Plan, scene: Scene) -> Iterator[Trial]:
    """The axis of figures 7 to 10: probes, structures, the paper's own choice, rivals."""
    for location in ("point", "range"):
        for words in plan.numbers("lengths"):
            group = f"{'short' if words <= _SHORT else 'long'} {location}"
            messages = scene.messages(group, _count(plan, group), words=words)
            ways: dict[str, tuple[str, dict[str, Any]]] = {
                name: ("mbr-trie", {"probe": probe}) for name, probe in PROBES.items()
            }
            ways[f"CostBasedProbe{_PRINTED}"] = ("mbr-trie", {"probe": "binary"})
            ways[f"lfilter{_PRINTED}"] = ("lfilter", {"choose": "paper"})
            ways |= {index: (index, {}) for index in plan.texts("indexes") if _able(index, group)}
            yield Trial(
                lengthening(location),
                tuple(
                    Contender(name, partial(_matching, scene, messages, index, **options))
                    for name, (index, options) in ways.items()
                ),
                partial(getattr, messages, "truth"), {"n": scene.size, "words": words},
                messages.events.num_rows, "message",
            )  # fmt: skip
    scene.release()


# --- claims -----------------------------------------------------------------------------------


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for group in GROUPS:
        for row in rows(measurements, probing(group)):
            best = row.ratio(["CostBasedProbe"], ["ProbeTokenSet", "ProbeTrie"])
            what = f"{group}: cost-based probe / the better other"
            claims += claim(row, what, best, "×", 1.1, "at most")
        for row in rows(measurements, choosing(group)):
            claims += _structure_claims(row, group)
        claims += growth_claims(measurements, growing(group))
        claims += _rival_claims(measurements, group)
    for row in rows(measurements, INSERTS):
        for name, measured in row.by_contender.items():
            claims += claim(row, f"inserts: {name}", measured.rate, "/s", 100_000)
    return checklist(claims)


def _structure_claims(row: Row, group: str) -> list[Claim]:
    side = f", sides up to {row.point['side']}" if "side" in row.point else ""
    both = ("mbr-trie", "pt-quadtree")
    claims = claim(
        row, f"{group}{side}: lfilter / the better of mbr-trie and pt-quadtree",
        row.ratio(["lfilter"], both), "×", 1.15, "at most",
    )  # fmt: skip
    apart = row.ratio(both[:1], both[1:])
    if apart is not None and 1 / _CLEARLY <= apart <= _CLEARLY:
        what = f"{group}{side}, neither clearly wins: the better / lfilter"
        claims += claim(row, what, row.ratio(both, ["lfilter"]), "×", 1.3)
    return claims


def _rival_claims(measurements: Sequence[Measurement], group: str) -> list[Claim]:
    claims: list[Claim] = []
    sources = {m.operation.rpartition(", ")[2] for m in measurements if m.operation[:6] == "rivals"}
    for source in sorted(sources):
        for row in rows(measurements, rivalling(group, source)):
            for name in row.by_contender:
                what = f"{group}, {source}"
                if name == "pivot":
                    claims += _pivot_claims(row, what)
                elif name != "lfilter":
                    ratio = row.ratio([name], ["lfilter"])
                    claims += claim(row, f"{what}: {name} / lfilter", ratio, "×")
    return claims


def _pivot_claims(row: Row, what: str) -> list[Claim]:
    aimed = what == f"short point, {MADE}"
    claims = claim(
        row, f"{what}: lfilter / pivot", row.ratio(["lfilter"], ["pivot"]), "×",
        5 if aimed else None,
    )  # fmt: skip
    if aimed and int(row.point["n"]) >= _MOST:
        pivot = row.by_contender["pivot"]
        claims += claim(row, f"{what}: pivot", pivot.rate, "messages/s", 20_000)
        held = pivot.memory["total"] / 1e9
        claims += claim(row, f"{what}: memory of pivot", held, "GB", 4, "at most")
    return claims


def _figures() -> tuple[Figure, ...]:
    found = []
    for group in GROUPS:
        slug = group.replace(" ", "-")
        found += [
            Figure(f"probes-{slug}", f"{probing(group)} (LFilter, figure 7)", probing(group)),
            Figure(
                f"structures-{slug}", f"{choosing(group)} (LFilter, figure 8)", choosing(group),
                x="side" if group.endswith("range") else None,
                x_label="longest side of a message, of the extent",
            ),
            Figure(
                f"rivals-{slug}", f"{rivalling(group, MADE)} (LFilter, figures 9 and 10)",
                rivalling(group, MADE),
            ),
            Figure(
                f"growth-{slug}", f"{growing(group)} (LFilter, figure 11)", growing(group),
                x="n", x_label="subscriptions", log_x=True, log_y=True,
            ),
        ]  # fmt: skip
    found += [
        Figure(
            f"length-{location}", f"{lengthening(location)} (LFilter, figures 7 to 10)",
            lengthening(location), x="words", x_label="words of a message", log_x=True, log_y=True,
        )
        for location in ("point", "range")
    ]  # fmt: skip
    return tuple(found)


_INDEXES = ("lfilter", "pivot", "token-grid", "rt-tree", "ir-tree", "mbr-trie", "pt-quadtree")
_PARTS = ("probes", "structures", "rivals", "growth", "inserts", "lengths")
_LENGTHS = (6, 10, 20, 100, 300, 600, 1000)

EXPERIMENT = Experiment(
    name="spatio-textual",
    summary="words and places: MBRTrie's probes, LFilter and its parts, rivals, growth",
    settings=(
        Setting("n", (100_000,), (400,), "subscriptions"),
        Setting("sizes", (20_000, 50_000), (200,), "further numbers of subscriptions for growth"),
        Setting("events", (10_000,), (20,), "short messages a turn, no two alike"),
        Setting("long_events", (1000,), (10,), "long messages a turn, no two alike"),
        # With a million subscriptions short messages cross over about 0.04, long ones about 0.3.
        Setting("sides", (0.005, 0.02, 0.04, 0.1, 0.2, 0.3), (0.1, 0.3), "longest sides of ranges"),
        Setting("lengths", _LENGTHS, (6, 100), "words of a message, as an axis"),
        Setting(
            "sources",
            (MADE,),
            (MADE,),
            "made, us_geo_hashtags, nyc_gowalla_venues, …; NAME@place: words where they are said",
        ),
        Setting("indexes", _INDEXES, _INDEXES, "which indexes to compare"),
        Setting("parts", _PARTS, _PARTS, "which parts to run"),
    ),
    trials=_trials,
    claims=_claims,
    figures=_figures(),
)
