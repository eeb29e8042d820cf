"""`nearcast keys`: who may use a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nearcast.cli.beside import asked, is_served
from nearcast.cli.console import result_console

__all__ = ["keys"]

keys = typer.Typer(help="Make, list and revoke the keys of a server.", no_args_is_help=True)

_Store = Annotated[
    str, typer.Option("--store", help="The store: a file, sqlite:///file or postgresql://…")
]
_STORE = "sqlite:///nearcast.db"


@keys.command()
def create(
    role: Annotated[str, typer.Option("--role", help="publish, subscribe or admin.")],
    store: _Store = _STORE,
    subscriber: Annotated[
        str | None, typer.Option("--subscriber", help="Whose it is; for the role subscribe.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose part of the store.")] = "",
) -> None:
    """Make a key, and print it alone: nobody can read it again.

    Works beside a running server, too.

    Examples:

      nearcast keys create --role admin

      nearcast keys create --role subscribe --subscriber ann
    """
    said = {"role": role, "subscriber": subscriber, "tenant": tenant}
    if is_served(store):
        print(asked(store, "POST", "/v1/keys", said)["key"])
        return
    from nearcast.clock import system_now

    with _opened(store) as known:
        print(known.create(role, system_now(), tenant=tenant, subscriber=subscriber))


@keys.command("list")
def list_keys(store: _Store = _STORE) -> None:
    """List keys by their names, without what is secret."""
    from rich.table import Table

    from nearcast.clock import format_micros

    if is_served(store):
        rows = asked(store, "GET", "/v1/keys")["keys"]
    else:
        with _opened(store) as known:
            rows = [key._asdict() | {"made": format_micros(key.made)} for _, key in known.all()]
    table = Table("name", "role", "subscriber", "tenant", "made", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(row[name] or "") for name in ("name", "role", "subscriber", "tenant",
                                                          "made")))  # fmt: skip
    result_console().print(table)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The key's name, as `list` shows it, or the key.")],
    store: _Store = _STORE,
) -> None:
    """Make a key worthless, at once."""
    if is_served(store):
        asked(store, "DELETE", f"/v1/keys/{_name(key)}")
        return
    with _opened(store) as known:
        known.revoke(key)


def _name(key: str) -> str:
    from nearcast.storage.keys import name_of

    return name_of(key) if key.startswith("nck_") else key


class _opened:  # noqa: N801
    """The keys of a store that nobody serves."""

    def __init__(self, store: str) -> None:
        from nearcast.errors import ValidationError
        from nearcast.storage.opening import open_tables
        from nearcast.storage.urls import parse_url

        wanted = parse_url(store)
        if wanted.kind == "memory":
            raise ValidationError("store", store, "what is in memory only has no keys")
        self._database = open_tables(wanted, guest=True)

    def __enter__(self) -> Any:
        from nearcast.storage.keys import Keys

        return Keys(self._database)

    def __exit__(self, *_: object) -> None:
        self._database.close()
