"""The application: its commands.

Commands import what they need when they run, so that `nearcast --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nearcast.cli.backup import backup
from nearcast.cli.bench import bench
from nearcast.cli.cpsl import cpsl
from nearcast.cli.demo import demo
from nearcast.cli.doctor import doctor
from nearcast.cli.endings import told
from nearcast.cli.keys import keys
from nearcast.cli.letters import letters
from nearcast.cli.pipeline import pipeline
from nearcast.cli.serve import serve
from nearcast.cli.stream_jobs import stream
from nearcast.cli.transfer import export, import_

__all__ = ["app"]

_EPILOG = (
    "Try [bold]nearcast demo[/bold] first. NEARCAST_DEBUG=1 shows the traceback of an error, "
    "NEARCAST_JIT=1 compiles before the first answer, NEARCAST_CACHE moves the compile cache, "
    "NEARCAST_THREADS limits the cores a batch uses."
)


class _Commands(TyperGroup):
    """The commands, with errors told in one message."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        with told():
            return super().main(*args, **kwargs)


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
app.add_typer(stream, name="stream")
app.command()(serve)
app.add_typer(keys, name="keys")
app.add_typer(letters, name="letters")
app.command()(backup)
app.command("import")(import_)
app.command()(export)
