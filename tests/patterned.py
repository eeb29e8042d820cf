"""Composites of every operator and mode, histories that make them fire, and who finds what."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point

SECOND = 1_000_000
EPOCH = 1_772_323_200 * SECOND  # 2026-03-01
A, B, C = ('(STRING: kind = "a")', '(STRING: kind = "b")', '(STRING: kind = "c", ARITH: n = 3)')
WHO = "(ARITH: who = &w)"
_REGION = "(0,0),(10,0),(10,10),(0,10)"
_AT = EPOCH // SECOND + 20
TEXTS = (
    f"!({_AT}; 30)(ARITH: n = 7)", f"!({A}; 9){B}", f"!({A}; {B}){C}",
    f"=|({_AT}; 30){A}", f"=|({A}; 9){B}", f"=|({A}; {B}){C}",
    f"|=({_AT}; 30){A}", f"|=({A}; 9){B}", f"|=({A}; {B}){C}",
    f"|({A}){B}", f"@({_REGION}){A}", f"IN({A}){B}", f"OVLP({_REGION}){B}", f"OVLP({A}){B}",
    f"SPL((5,5)){A}", f"SPL({A}){B}", f"DIST((5,5); <; 4){A}", f"DIST({A}; >; 12){C}",
    f"{A} && {B}", f"{A} || {C}", f"Q(3){A}", f"P(7){B}", f"S(2; 8; 1){A}",
    f"ENTER({_REGION}; 1){WHO}", f"EXIT({_REGION}; 1){WHO}", f"DWELL({_REGION}; 6; 1){WHO}",
    f"APPROACH({_REGION}; 3; 1){WHO}",
    "=|(ARITH: who = &t; 9)(STRING: kind = \"b\", ARITH: who = &t)",
    "!(STRING: kind = \"a\", ARITH: who = &t; 5)(STRING: kind = \"b\", ARITH: who = &t)",
    f"|($x;)$y; && DIST($x;; <; 6)$y;, $x; = {A}, $y; = {B}",
    f"Q(2)(=|({A}; 9){B})", f"P(11){WHO}",
)  # fmt: skip


def composites() -> list[Composite]:
    """Every text in every mode."""
    return [
        Composite(f"{mode} {i}", text=text, consume=mode)
        for mode in MODES
        for i, text in enumerate(TEXTS)
    ]


def history(seed: int, count: int, *, step_s: int = 2, jitter: int = 0) -> list[Event]:
    """Events as they arrive: up to `jitter` seconds out of order, some of them twice."""
    chance = random.Random(seed)
    made: list[tuple[float, Event]] = []
    now = EPOCH
    for number in range(count):
        now += chance.choice([0, 1, 1, step_s]) * SECOND + chance.choice([0, 0, 250])
        x, y = chance.choice([0, 5, 5.5, 11, 13, 30]), chance.choice([0, 5, 9])
        place = chance.choice([Point(x, y), Point(x, y), Box(x, y, x + 2, y + 2), None])
        long = chance.choice([0, 0, 1, 3]) * SECOND
        event = Event(
            f"e{number:04}",
            {"kind": chance.choice("abc"), "n": chance.randint(2, 3), "who": chance.randint(1, 3)},
            location=place,
            start=now - long,
            end=now,
        )
        made.append((now + chance.random() * jitter * SECOND, event))
        if number % 37 == 5:
            made.append((now + chance.random() * jitter * SECOND, event))
    made.sort(key=lambda pair: pair[0])
    return [event for _, event in made]


def detected(events: Iterable[Event], wanted: Sequence[Composite], until: int) -> list[Any]:
    """What one detector finds: of events in order of their ends and ids, and of time."""
    detector = Detector("planar")
    for composite in wanted:
        detector.add(composite)
    found = detector.feed(sorted(events, key=lambda event: (event.end, event.id)))
    found += detector.advance(until)
    return sorted((one.composite_id, one.parts, one.start, one.end) for one in found)
