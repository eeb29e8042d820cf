"""`nearcast serve`: the broker as a server."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.errors import MissingExtraError

if TYPE_CHECKING:
    from nearcast.server.run import Lasting

__all__ = ["serve"]


def serve(
    store: Annotated[
        str | None,
        typer.Option("--store", help="sqlite:///file, postgresql://…, or memory:. [sqlite:///nearcast.db]"),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on. [127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The port; 0 is any that is free. [8642]")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", help="globe or planar. [globe]")
    ] = None,
    demo: Annotated[
        bool | None, typer.Option("--demo", help="Let a city live in it.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", help="A GeoJSON file that the map draws underneath."),
    ] = None,
    kafka_servers: Annotated[
        str | None, typer.Option("--kafka-servers", help="The server's Kafka: host:port,…")
    ] = None,
    kafka_in: Annotated[
        str | None, typer.Option("--kafka-in", help="Topics with events: offers,parcels@tenant.")
    ] = None,
    kafka_out: Annotated[
        str | None, typer.Option("--kafka-out", help="Topics that sinks may name: alerts-*.")
    ] = None,
    mqtt: Annotated[
        str | None, typer.Option("--mqtt", help="The server's MQTT broker: mqtt://host:port.")
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option("--tiles", help="A tile server's URL with {z}, {x} and {y}, to draw instead."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings in TOML; --show-config writes one.")
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print all settings, and where they come from.")
    ] = False,
) -> None:  # fmt: skip
    """Run the broker as a server: HTTP, server-sent events and WebSocket.

    Settings come from the flags, from NEARCAST_… variables and from a file, in this order.
    Without keys it listens on loopback only; `nearcast keys create` makes one.

    Examples:

      nearcast serve

      nearcast serve --store sqlite:///city.db --port 8000

      nearcast serve --show-config > nearcast.toml
    """
    try:
        from nearcast.server.logs import set_up
        from nearcast.server.run import Lasting
        from nearcast.server.settings import describe, gather
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "server") from None

    flags: dict[str, Any] = {
        "store": store, "host": host, "port": port, "space": space, "demo": demo, "base": base,
        "kafka_servers": kafka_servers, "kafka_in": kafka_in, "kafka_out": kafka_out,
        "mqtt": mqtt,
        "tiles": tiles,
    }  # fmt: skip
    settings, origins = gather(flags, config)
    if show_config:
        print(describe(settings, origins))
        return
    set_up(settings.log, settings.log_format)
    with ExitStack() as over:
        if settings.demo and origins["store"] == "default":
            folder = over.enter_context(TemporaryDirectory(prefix="nearcast-"))
            settings = replace(settings, store=f"sqlite:///{folder}/city.db")
        _run(Lasting(settings, alone=True))


def _run(lasting: Lasting) -> None:
    from nearcast.storage.urls import shown

    server = lasting.running
    keys = len(server.desk.keyring)
    store = shown(server.settings.store)
    guard = f"{keys} keys" if keys else "WITHOUT KEYS: everybody on this machine may do everything"
    print(f"nearcast serves {store} at {server.url}, {guard}", flush=True)
    print(f"the map: {server.url}/", flush=True)
    lasting.run()
