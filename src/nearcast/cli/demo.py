"""`nearcast demo`: a city matched live, its people followed, its taxis watched and matched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="How much bigger the traces are.")] = 1.0,
    data: Annotated[
        str | None, typer.Option(help="Real traces instead: a file or a folder.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the report and all data go.")] = Path(
        "nearcast-demo"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="A section: live, walk, pipeline, fences, patterns, stream. Repeatable."
        ),
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(min=1, help="How many people subscribe in the live section.")
    ] = 100_000,
    events: Annotated[int, typer.Option(min=1, help="How many offers it publishes.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Which city: the same seed, the same city.")] = 1,
    index: Annotated[str, typer.Option(help="Which index does the matching.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the numbers.")] = False,
) -> None:
    """Draw a city, match it live, follow its people, watch its taxis, take them through Spark.

    Everything is made up from the seed: roads, shops, people, what they want, where they
    go, and the traces of taxis. People walk with a safe region each and hear of every offer
    near them; messages saved and notifications missed (none) are counted. The taxis' traces are
    cleaned, clustered, profiled, and matched in bulk; one match and one non-match are
    explained. Fences about shops tell who comes, stays and goes. Two patterns in space and
    time are detected in what taxis report, and once more in the same reports as a stream. A
    report with maps is written. About a minute, and longer the first time, when kernels are
    compiled behind it; finished stages of the same seed are not redone.

    Examples:

      nearcast demo

      nearcast demo --data cabs/ --scale 4

      nearcast demo --only live --subscriptions 1000000 --events 2000 --seed 7
    """
    from nearcast.cli.sections import Scene, run_sections
    from nearcast.index import registry

    registry.require(index, subscriptions=True)
    run_sections(Scene(out, seed, scale, data, subscriptions, events, index, quiet), only or [])
