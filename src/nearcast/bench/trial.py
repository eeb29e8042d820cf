"""What is measured: one operation at one point of a sweep, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Contender", "Scalar", "Task", "Timed", "Trial"]

Scalar: TypeAlias = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Timed:
    """A result whose time was taken elsewhere, for instance inside a child process.

    `compile_s` of the `seconds` went into compilation.
    """

    seconds: float
    value: object
    compile_s: float = 0.0


def _nothing() -> None:
    """The default for steps that a task does not have."""


def _itself(result: Any) -> object:
    return result


@dataclass(frozen=True, slots=True)
class Task:
    """One contender's way to do the operation.

    `run` is timed and nothing else is. `before` prepares each repetition, `answer` turns
    what `run` returned into what is compared with the truth, `memory` says how many bytes
    each part of the structure takes, `close` gives everything back.
    """

    run: Callable[[], object]
    before: Callable[[], None] = _nothing
    answer: Callable[[Any], object] = _itself
    memory: Callable[[], Mapping[str, int]] = dict
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Contender:
    """A name and a way to open its task; opening is measured apart, as the build.

    An approximate contender may be wrong: it is timed with its error rates beside it.
    """

    name: str
    open: Callable[[], Task]
    approximate: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One operation at one point of a sweep, done by several contenders in turns.

    `truth` gives the answer that all of them must give; it is called once. `work` is how
    many units (`unit`: "event", "subscription") one repetition handles. `at_most` bounds the
    repetitions of what takes long.
    """

    operation: str
    contenders: tuple[Contender, ...]
    truth: Callable[[], object]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    work: int = 1
    unit: str = "run"
    at_most: int | None = None
