"""`nearcast import` and `nearcast export`: many subscriptions, fences or live events at once."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.beside import is_served
from nearcast.cli.console import result_console, transferring
from nearcast.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from nearcast.transfer import Done

__all__ = ["export", "import_"]

_YOUNG = 100_000  # objects that come and stay before circles among them are looked for
_WHAT = "subscriptions, fences or events."

_Kind = Annotated[str, typer.Argument(help=_WHAT, metavar="KIND")]
_Store = Annotated[
    str, typer.Option("--store", help="A file, sqlite:///file, or http://… of a server.")
]
_Space = Annotated[str, typer.Option("--space", help="globe or planar.")]
_Tenant = Annotated[str, typer.Option("--tenant", help="Whose part of a store file.")]
_Format = Annotated[
    str | None,
    typer.Option("--format", help="geojson, geojsonl, arrow or parquet; else the ending says it."),
]
_SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Set bad rows aside in FILE.rejected.jsonl, and go on.")
]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]
_STORE = "sqlite:///nearcast.db"


def import_(
    kind: _Kind,
    file: Annotated[Path, typer.Argument(help="GeoJSON, a Feature a line, Arrow or Parquet.")],
    store: _Store = _STORE,
    space: _Space = "globe",
    tenant: _Tenant = "",
    format: _Format = None,
    skip_bad: _SkipBad = False,
    quiet: _Quiet = False,
) -> None:
    """Take subscriptions, fences or events of a file into a store, or a server that runs.

    Rows go in by thousands, in their order, each as if it were put alone: a row that is there
    already changes nothing, another one under its id is replaced, a new one is told of what it
    matches. A bad row ends it and is named; all before it are there. The same command goes on
    where it ended, however that was. A server's key comes from NEARCAST_KEY.

    Examples:

      nearcast import subscriptions wishes.parquet --store sqlite:///city.db

      nearcast import events offers.geojson --store http://127.0.0.1:8642 --skip-bad
    """
    from nearcast.transfer import import_file

    _run("import", import_file, file, kind, store, space, tenant, format, skip_bad, quiet)


def export(
    kind: _Kind,
    file: Annotated[Path, typer.Argument(help="The file to be made; its ending says the format.")],
    store: _Store = _STORE,
    space: _Space = "globe",
    tenant: _Tenant = "",
    format: _Format = None,
    skip_bad: _SkipBad = False,
    quiet: _Quiet = False,
) -> None:
    """Write all subscriptions, fences or live events of a store, or a server, into a file.

    Things by their ids, events in the order they came; `nearcast import` takes the file as it is.
    Interrupted, the same command goes on where it was. A server's key comes from NEARCAST_KEY.

    Examples:

      nearcast export subscriptions wishes.parquet --store sqlite:///city.db

      nearcast export events live.geojson --store http://127.0.0.1:8642
    """
    from nearcast.transfer import export_file

    _run("export", export_file, file, kind, store, space, tenant, format, skip_bad, quiet)


def _run(
    verb: str, transfer: Any, file: Path, kind: str, store: str, space: str, tenant: str,
    format: str | None, skip_bad: bool, quiet: bool,
) -> None:  # fmt: skip
    if not store.startswith(("http://", "https://")) and is_served(store):
        raise StoreError(
            f"{store}: a server has it open; give its address: --store http://127.0.0.1:8642"
        )
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    with transferring(f"{verb} {kind}", quiet=quiet) as told:
        try:
            done: Done = transfer(
                file, kind, store, space=space, key=os.environ.get("NEARCAST_KEY"), tenant=tenant,
                format=format, skip_bad=skip_bad, told=told,
            )  # fmt: skip
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "client") from None
    said = f"{verb}ed {done.rows:,} {kind}"
    if done.resumed:
        said += f", {done.resumed:,} rows of them before this time"
    if done.rejected:
        said += f"; {done.rejected:,} bad rows are in {file}.rejected.jsonl"
    result_console().print(said, markup=False, soft_wrap=True)
