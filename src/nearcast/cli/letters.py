"""`nearcast letters`: notifications that could not be sent."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nearcast.cli.beside import asked, is_served
from nearcast.cli.console import result_console

__all__ = ["letters"]

letters = typer.Typer(
    help="Dead letters: notifications that no sink took. List, replay and drop them.",
    no_args_is_help=True,
)

_Store = Annotated[str, typer.Option("--store", help="The store that is served: a file.")]
_Sink = Annotated[int | None, typer.Option("--sink", min=1, help="All of this sink.")]
_Ids = Annotated[list[int] | None, typer.Argument(help="Their ids, as `list` shows them.")]
_STORE = "sqlite:///nearcast.db"
_PAGE = 1000


def _asked(store: str, method: str, path: str) -> Any:
    from nearcast.errors import ValidationError

    if not is_served(store):
        raise ValidationError("store", store, "serve it first: a server sends them")
    return asked(store, method, path)


@letters.command("list")
def list_letters(
    store: _Store = _STORE,
    sink: _Sink = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
) -> None:
    """List dead letters of the default tenant in the order they died, with the reason of each.

    Example:

      nearcast letters list --sink 3
    """
    from rich.table import Table

    rows: list[dict[str, Any]] = []
    after, of = 0, "" if sink is None else f"&sink={sink}"
    while len(rows) < limit:
        size = min(_PAGE, limit - len(rows))
        said = _asked(store, "GET", f"/v1/dead-letters?after={after}&limit={size}{of}")
        rows += said["dead_letters"]
        if after == said["next"]:
            break
        after = said["next"]
    names = ("id", "sink_id", "subscriber", "subscription", "seq", "tries", "at", "why")
    table = Table(*names, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(row[name]) for name in names))
    result_console().print(table)


@letters.command()
def replay(ids: _Ids = None, store: _Store = _STORE, sink: _Sink = None) -> None:
    """Send dead letters once more: those of these ids, or all of a sink.

    They go where their subscription sends now. What arrives is a dead letter no more.

    Examples:

      nearcast letters replay 17 18

      nearcast letters replay --sink 3
    """
    _which(ids, sink)
    for id in ids or ():
        _asked(store, "POST", f"/v1/dead-letters/{id}/replay")
    if sink is not None:
        print(_asked(store, "POST", f"/v1/sinks/{sink}/replay")["replaying"])


@letters.command()
def drop(ids: _Ids = None, store: _Store = _STORE, sink: _Sink = None) -> None:
    """Forget dead letters: those of these ids, or all of a sink."""
    _which(ids, sink)
    for id in ids or ():
        _asked(store, "DELETE", f"/v1/dead-letters/{id}")
    if sink is not None:
        print(_asked(store, "DELETE", f"/v1/dead-letters?sink={sink}")["dropped"])


def _which(ids: list[int] | None, sink: int | None) -> None:
    from nearcast.errors import ValidationError

    if bool(ids) == (sink is not None):
        raise ValidationError("ids", ids, "name some, or a sink with --sink, and not both")
