"""`nearcast backup`: a store's contents in another file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.beside import asked, is_served
from nearcast.cli.console import result_console

__all__ = ["backup"]


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; it must not exist yet.")],
    store: Annotated[
        str, typer.Option("--store", help="The store: a file or sqlite:///file.")
    ] = "sqlite:///nearcast.db",
) -> None:
    """Copy a store into a file, which is a store itself.

    The copy is on disk, whole, when this is done. Works beside a running server, which makes it
    then; a store that another broker has open is refused.

    Examples:

      nearcast backup --store sqlite:///city.db city-monday.db
    """
    from nearcast.errors import StoreError, ValidationError
    from nearcast.storage.sqlite import Database
    from nearcast.storage.urls import parse_url

    wanted = parse_url(store)
    if wanted.kind == "postgresql":
        raise ValidationError(
            "store", wanted.name,
            f"a database has its own tools: pg_dump --schema={wanted.schema} --format=custom, and "
            "pg_restore",
        )  # fmt: skip
    path = wanted.path
    if path is None:
        raise ValidationError("store", store, "what is in memory only has no backup")
    if not path.exists():
        raise StoreError(f"{path}: there is no such store; name one with --store")
    if is_served(store):
        asked(store, "POST", "/v1/backup", {"file": str(file.absolute())})
    else:
        database = Database(path)
        try:
            database.backup(file)
        finally:
            database.close()
    result_console().print(f"{path} → {file}, {file.stat().st_size:,} bytes", soft_wrap=True)
