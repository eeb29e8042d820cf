"""`nearcast bench`: run an experiment, keep its record, draw the report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli.console import result_console, watching
from nearcast.errors import BenchError

if TYPE_CHECKING:
    from nearcast.bench.experiments.base import Experiment
    from nearcast.bench.plots import Figure
    from nearcast.bench.results import Claim, Record

__all__ = ["bench"]

_RESULTS = Path("benchmarks/results")


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked for, and the command that asks for it again."""

    experiment: str
    quick: bool
    given: dict[str, str]
    repetitions: int
    seed: int

    @property
    def command(self) -> str:
        words = ["nearcast", "bench", self.experiment]
        words += ["--quick"] * self.quick
        for name, value in self.given.items():
            words += ["--set", f"{name}={value}"]
        words += ["--repetitions", str(self.repetitions), "--seed", str(self.seed)]
        return shlex.join(words)


def bench(
    experiment: Annotated[str, typer.Argument(help="Which one; --list names them.")] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="Name the experiments and their settings, and stop.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: does it work, not how fast is it.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE[,VALUE…]", help="Other values for a setting."),
    ] = None,
    n: Annotated[
        str | None, typer.Option("--n", metavar="N[,N…]", help="The size; short for --set n=N.")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds after the warm-up.")] = 5,
    seed: Annotated[int, typer.Option(help="The seed of the workloads.")] = 1,
    out: Annotated[Path, typer.Option(help="Where records, plots and the report go.")] = _RESULTS,
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Draw plots and the report too.")
    ] = True,
    report: Annotated[
        bool, typer.Option("--report", help="Draw the report of the records in --out, and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress.")] = False,
) -> None:
    """Measure: contenders take turns, wrong answers are refused, records are kept.

    Examples:

      nearcast bench --list

      nearcast bench ground --quick

      nearcast bench event-matching --n 1000000 --set sweeps=k,w

      nearcast bench ground --set subscriptions=100000,1000000 --repetitions 9

      nearcast bench --report
    """
    from nearcast import jit
    from nearcast.bench import experiments

    if list_:
        _list()
        return
    if report:
        _report(out)
        return
    if not experiment:
        raise BenchError(
            f"which experiment? there are: {', '.join(experiments.names())} (nearcast bench --list)"
        )
    jit.compile_at_once()
    given = _given([*(settings or []), *([] if n is None else [f"n={n}"])])
    request = _Request(experiment, quick, given, repetitions, seed)
    record = _run(experiments.experiment(experiment), request, quiet)
    _show(record)
    _keep(record, out, plots)


def _list() -> None:
    from nearcast.bench import experiments

    console = result_console()
    for name in experiments.names():
        found = experiments.experiment(name)
        console.print(f"[bold]{name}[/bold]  {found.summary}")
        for setting in found.settings:
            values = ",".join(str(value) for value in setting.values)
            console.print(f"    --set {setting.name}={values}  {setting.help}", soft_wrap=True)


def _given(settings: list[str]) -> dict[str, str]:
    given = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise BenchError(f"--set {text!r} is not NAME=VALUE; e.g. --set subscriptions=1000")
        given[name.strip()] = value
    return given


def _run(chosen: Experiment, request: _Request, quiet: bool) -> Record:
    from datetime import UTC, datetime

    from nearcast.bench import machine
    from nearcast.bench.experiments.base import settle
    from nearcast.bench.results import Record
    from nearcast.bench.runner import measure_all

    plan = settle(chosen, request.given, quick=request.quick, seed=request.seed)
    with watching(quiet=quiet) as listener:
        measurements = tuple(measure_all(chosen.trials(plan), request.repetitions, listener))
    if not measurements:
        asked = " ".join(f"--set {name}={value}" for name, value in request.given.items())
        raise BenchError(
            f"{asked or request.experiment} leaves nothing to measure; nearcast bench --list "
            "names the values"
        )
    claims = chosen.claims(measurements)
    return Record(
        experiment=chosen.name,
        command=request.command,
        settings=plan.settings,
        machine=machine.describe(),
        commit=machine.commit(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        measurements=measurements,
        claims=tuple(_without_target(claim) if request.quick else claim for claim in claims),
    )


def _without_target(claim: Claim) -> Claim:
    """A quick run is too small to hold against a target."""
    return replace(claim, target=None)


def _show(record: Record) -> None:
    from nearcast.bench.tables import grids, rich_table

    console = result_console()
    for grid in grids(record):
        console.print(rich_table(grid, console.width))
        console.print()


def _keep(record: Record, out: Path, plots: bool) -> None:
    from nearcast.bench import results

    console = result_console()
    kept = results.write(record, out)
    console.print(f"record  {kept}", soft_wrap=True)
    if plots:
        _report(out)
    console.print(f"again   {record.command}", markup=False, soft_wrap=True)


def _report(out: Path) -> None:
    from nearcast.bench import results
    from nearcast.bench.report import write_report

    records = results.newest(results.load_all(out))
    if not records:
        raise BenchError(f"{out}: no records here; run an experiment first, or give --out")
    path = write_report(records, _figures, out)
    result_console().print(f"report  {path}", soft_wrap=True)


def _figures(name: str) -> tuple[Figure, ...]:
    """The figures of an experiment; none for a stored one that is no more."""
    from nearcast.bench import experiments

    return experiments.experiment(name).figures if name in experiments.names() else ()
