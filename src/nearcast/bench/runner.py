"""The one runner: contenders take turns, and a wrong answer is never timed.

A trial runs in this order: the truth; every contender's build; one warm-up each, in which
what is left to compile compiles; then the repetitions, in rounds. In each round every
contender runs once, and the next round starts with the next contender, so that a machine
that heats up or slows down does so for all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter, process_time

from nearcast import jit
from nearcast.bench.metrics import Agreement, compare, resident_bytes
from nearcast.bench.results import Measurement
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.errors import BenchError

__all__ = ["measure", "measure_all"]

Listener = Callable[[str], None]


def _unheard(_: str) -> None:
    """The listener of a run that nobody watches."""


def measure_all(
    trials: Iterable[Trial], repetitions: int = 5, listener: Listener = _unheard
) -> Iterator[Measurement]:
    """Measure trial after trial; the measurements of each come when it is done."""
    for trial in trials:
        yield from measure(trial, repetitions, listener)


def measure(trial: Trial, repetitions: int = 5, listener: Listener = _unheard) -> list[Measurement]:
    """Let the contenders of one trial take turns; raise BenchError at the first wrong answer.

    What plain Python would answer for a kernel is never timed: all of them are compiled first.
    """
    jit.compile_at_once()
    rounds = repetitions if trial.at_most is None else min(repetitions, trial.at_most)
    _check(trial, rounds)
    label = _label(trial)
    listener(f"{label}: computing the truth")
    truth = trial.truth()
    stands: list[_Stand] = []
    gc.collect()
    gc.freeze()  # what is there is not searched again before every run: small ones take less
    try:
        for contender in trial.contenders:
            listener(f"{label}: building {contender.name}")
            stands.append(_Stand.build(trial, contender, truth))
        for stand in stands:
            listener(f"{label}: warming up {stand.contender.name}")
            stand.warm_up()
        for turn in range(rounds):
            listener(f"{label}: round {turn + 1} of {rounds}")
            first = turn % len(stands)
            for stand in stands[first:] + stands[:first]:
                stand.repeat()
        return [stand.measurement() for stand in stands]
    finally:
        gc.unfreeze()
        for stand in stands:
            stand.task.close()


def _check(trial: Trial, rounds: int) -> None:
    names = [contender.name for contender in trial.contenders]
    if not names or len(set(names)) != len(names):
        raise BenchError(f"{trial.operation}: contenders need different names, and got {names}")
    if rounds < 1 or trial.work < 1:
        raise BenchError(
            f"{trial.operation}: {rounds} repetitions of {trial.work} units measure nothing; "
            "ask for at least one of each"
        )


def _label(trial: Trial) -> str:
    points = ", ".join(f"{name} {value}" for name, value in trial.parameters.items())
    return f"{trial.operation} ({points})" if points else trial.operation


@dataclass(slots=True)
class _Stand:
    """One contender in one trial, with what was measured so far."""

    trial: Trial
    contender: Contender
    truth: object
    task: Task
    build_s: float
    compile_s: float
    grown_bytes: int | None
    first_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    answer: object = None
    agreement: Agreement | None = None

    @classmethod
    def build(cls, trial: Trial, contender: Contender, truth: object) -> _Stand:
        gc.collect()
        held, compiling, started = resident_bytes(), jit.compile_seconds(), perf_counter()
        task = contender.open()
        elapsed = perf_counter() - started
        compile_s = jit.compile_seconds() - compiling
        now = resident_bytes()
        grown = None if held is None or now is None else now - held
        return cls(trial, contender, truth, task, elapsed - compile_s, compile_s, grown)

    def warm_up(self) -> None:
        elapsed, compile_s, _ = self._run()
        self.compile_s += compile_s
        self.first_s = max(elapsed - compile_s, 0.0)

    def repeat(self) -> None:
        elapsed, _, cpu_s = self._run()
        self.seconds.append(elapsed)
        if cpu_s is not None:
            self.cpu_s.append(cpu_s)

    def _run(self) -> tuple[float, float, float | None]:
        """One run: its seconds, how many of them went into compilation, and those of CPU.

        A task that takes its own time may do so elsewhere: what it takes of CPU is not known.
        """
        self.task.before()
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        compiling = jit.compile_seconds()
        try:
            started, busy = perf_counter(), process_time()
            result = self.task.run()
            elapsed, cpu_s = perf_counter() - started, process_time() - busy
        finally:
            if collecting:
                gc.enable()
        compile_s = jit.compile_seconds() - compiling
        timed = isinstance(result, Timed)
        if isinstance(result, Timed):
            elapsed, compile_s, result = result.seconds, result.compile_s, result.value
        self._judge(self.task.answer(result))
        return elapsed, compile_s, None if timed else cpu_s

    def _judge(self, answer: object) -> None:
        """Compare with the truth; an answer seen before needs no second look."""
        if self.agreement is not None and _same(answer, self.answer):
            return
        agreement = compare(answer, self.truth)
        if not agreement.exact and not self.contender.approximate:
            raise BenchError(
                f"{_label(self.trial)}: {self.contender.name} is wrong, and no time of it is kept: "
                f"{agreement.missing} of {agreement.wanted} pairs missing, {agreement.surplus} "
                "too many; mend it, or mark it approximate"
            )
        self.answer, self.agreement = answer, agreement

    def measurement(self) -> Measurement:
        assert self.agreement is not None, "the warm-up judges"
        return Measurement(
            operation=self.trial.operation,
            contender=self.contender.name,
            parameters=dict(self.trial.parameters),
            work=self.trial.work,
            unit=self.trial.unit,
            seconds=tuple(self.seconds),
            first_s=self.first_s,
            compile_s=self.compile_s,
            build_s=self.build_s,
            resident_bytes=self.grown_bytes,
            memory=dict(self.task.memory()),
            approximate=self.contender.approximate,
            agreement=self.agreement,
            cpu_s=tuple(self.cpu_s),
        )


def _same(answer: object, other: object) -> bool:
    return type(answer) is type(other) and bool(answer == other)
