"""The contract of an experiment: settings in, trials out, figures to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Scalar, Trial
from nearcast.errors import BenchError

__all__ = ["Experiment", "Plan", "Setting", "settle"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter of an experiment: the values it sweeps, and a small choice for a quick run."""

    name: str
    values: tuple[Scalar, ...]
    quick: tuple[Scalar, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The values of one run: settings by name, and the seed of its workloads."""

    settings: Mapping[str, tuple[Scalar, ...]]
    seed: int = 1

    def numbers(self, name: str) -> tuple[int, ...]:
        """The values of a setting of whole numbers."""
        return tuple(int(value) for value in self.settings[name])

    def number(self, name: str) -> int:
        """The value of a setting that has one."""
        (value,) = self.numbers(name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a setting of names."""
        return tuple(str(value) for value in self.settings[name])


def _no_claims(_: Sequence[Measurement]) -> list[Claim]:
    return []


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named list of trials: points of a sweep × contenders × operations.

    `trials` makes them one after the other, so that the data of one may go before the next
    is made. `claims` draws the numbers that have targets from the measurements.
    """

    name: str
    summary: str
    settings: tuple[Setting, ...]
    trials: Callable[[Plan], Iterable[Trial]]
    claims: Callable[[Sequence[Measurement]], Sequence[Claim]] = _no_claims
    figures: tuple[Figure, ...] = ()


def settle(
    experiment: Experiment, given: Mapping[str, str], *, quick: bool = False, seed: int = 1
) -> Plan:
    """The plan of a run: defaults or quick values, with `given` (comma-separated text) on top."""
    known = {setting.name: setting for setting in experiment.settings}
    for name in given:
        if name not in known:
            raise BenchError(
                f"experiment {experiment.name!r} has no setting {name!r}; "
                f"there are: {', '.join(known) or 'none'}"
            )
    settings = {
        name: _parse(setting, given[name])
        if name in given
        else (setting.quick if quick else setting.values)
        for name, setting in known.items()
    }
    return Plan(settings, seed)


def _parse(setting: Setting, text: str) -> tuple[Scalar, ...]:
    """Values as text, read as the type that the setting's own values have."""
    kind = type(setting.values[0])
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise BenchError(f"setting {setting.name!r} needs a value; e.g. {setting.values[0]}")
    if len(parts) > 1 and len(setting.values) == 1 and len(setting.quick) == 1:
        raise BenchError(f"setting {setting.name!r} takes one value, and got {text!r}")
    try:
        return tuple(kind(part.replace("_", "")) if kind is not str else part for part in parts)
    except ValueError:
        raise BenchError(
            f"setting {setting.name!r}: {text!r} is not {kind.__name__}; e.g. {setting.values[0]}"
        ) from None
