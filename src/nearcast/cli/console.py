"""Where the commands write: results to standard output, progress to standard error.

On a terminal progress is a bar or a spinner; elsewhere (a pipe, a log) it is one plain
line a stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

__all__ = [
    "Advance",
    "counting",
    "result_console",
    "spark_progress",
    "transferring",
    "watching",
]

Advance = Callable[[int], None]


def result_console(*, quiet: bool = False) -> Console:
    """The console for results; `quiet` writes nothing."""
    return Console(file=sys.stdout, quiet=quiet, highlight=False)


def _progress_console(*, quiet: bool) -> Console:
    return Console(file=sys.stderr, quiet=quiet, highlight=False)


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A spinner whose text the caller sets; without a terminal, one line a text."""
    console = _progress_console(quiet=quiet)
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield status.update


@contextmanager
def counting(label: str, total: int, *, quiet: bool = False) -> Iterator[Advance]:
    """A bar towards a total, moved on by the caller; without a terminal, one line at the start."""
    console = _progress_console(quiet=quiet)
    if quiet or not console.is_terminal:
        console.print(f"{label} …", markup=False, soft_wrap=True)
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda amount: progress.advance(task, amount)


@contextmanager
def transferring(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """A bar towards a total that is known later or never; without a terminal, one line."""
    console = _progress_console(quiet=quiet)
    if quiet or not console.is_terminal:
        console.print(f"{label} …", markup=False, soft_wrap=True)
        yield lambda _, __: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None)

        def told(more: int, total: int | None) -> None:
            progress.update(task, advance=more, total=total)

        yield told


@contextmanager
def spark_progress(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for the tasks of Spark's running jobs; without a terminal, one line a stage."""
    console = _progress_console(quiet=quiet)
    if quiet or not console.is_terminal:
        said: list[str] = []

        def line(stage: str, done: int, total: int) -> None:  # noqa: ARG001
            if not said or said[-1] != stage:
                said.append(stage)
                console.print(f"{stage} …", markup=False, soft_wrap=True)

        yield line
        return
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def bar(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for old in tasks.values():
                    progress.update(old, visible=False)
                tasks[stage] = progress.add_task(stage, total=max(total, 1))
            progress.update(tasks[stage], completed=done, total=max(total, 1))

        yield bar
