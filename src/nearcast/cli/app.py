"""The application: its commands, and what happens to errors.

Commands import what they need when they run, so that `nearcast --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nearcast.cli.bench import bench
from nearcast.cli.cpsl import cpsl
from nearcast.cli.demo import demo
from nearcast.cli.doctor import doctor
from nearcast.cli.pipeline import pipeline
from nearcast.errors import NearcastError

__all__ = ["app", "main"]

_EPILOG = (
    "Try [bold]nearcast demo[/bold] first. NEARCAST_DEBUG=1 shows the traceback of an error, "
    "NEARCAST_CACHE moves the compile cache, NEARCAST_THREADS limits the cores a batch uses."
)


class _Commands(TyperGroup):
    """The commands, with nearcast's own errors told in one message: exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NearcastError as error:
            if os.environ.get("NEARCAST_DEBUG") == "1":
                raise
            print(f"nearcast: {error}", file=sys.stderr)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    name="nearcast",
    help="Tell the right people about the right things, near them, in time.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"nearcast {version('nearcast')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    """Options of every command."""


app.command()(demo)
app.command()(bench)
app.add_typer(cpsl, name="cpsl")
app.command()(doctor)
app.command()(pipeline)


def main() -> None:
    """What the `nearcast` command runs."""
    app(prog_name="nearcast")
