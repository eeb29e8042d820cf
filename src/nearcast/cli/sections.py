"""The demo's sections: each a function of the scene that prints and returns a chapter.

To add one, write a function `(Scene) -> Chapter` and name it in `SECTIONS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nearcast.cli.console import result_console
from nearcast.cli.starting import Starting
from nearcast.errors import MissingExtraError, ValidationError

if TYPE_CHECKING:
    from rich.console import Console

    from nearcast.bench.maps import Ground
    from nearcast.bench.story import Chapter

__all__ = ["ON_SPARK", "SECTIONS", "Scene", "can_draw", "run_sections", "section"]

#: By name, in order: where the function lives. Spark's long one has most of its work in Java: the
#: kernels of those behind it are compiled meanwhile.
SECTIONS: dict[str, str] = {
    "live": "nearcast.cli.showcase:live",
    "walk": "nearcast.cli.walkers:walkers",
    "pipeline": "nearcast.cli.taxis:taxis",
    "fences": "nearcast.cli.crossings:crossings",
    "patterns": "nearcast.cli.patterns:patterns",
    "stream": "nearcast.cli.streaming:streaming",
}
_LIVE = "make serve, or nearcast serve --demo; then open http://127.0.0.1:8642/"
#: Those that need Spark.
ON_SPARK = frozenset({"pipeline", "stream"})


@dataclass(frozen=True)
class Scene:
    """What the demo was asked for."""

    out: Path
    seed: int = 1
    scale: float = 1.0
    data: str | None = None
    subscriptions: int = 100_000
    events: int = 10_000
    index: str = "auto"
    quiet: bool = False

    @property
    def pipeline(self) -> str:
        """The folder of the pipeline's stages."""
        return str(self.out / "pipeline")

    @cached_property
    def console(self) -> Console:
        """Where the results go."""
        return result_console()

    @cached_property
    def ground(self) -> Ground:
        """The city, to be drawn under maps."""
        from nearcast.bench.maps import Ground
        from nearcast.datasets.city import City

        return Ground.of(City(seed=self.seed))

    @cached_property
    def spark(self) -> Starting:
        """Spark, for the sections that need it."""
        return Starting("nearcast demo")


Section: TypeAlias = "Callable[[Scene], Chapter]"


def run_sections(scene: Scene, names: list[str]) -> None:
    """Run some sections, or all, and write the report of what they found."""
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        raise ValidationError("--only", unknown[0], f"give one of {', '.join(SECTIONS)}")
    _check(scene)
    from nearcast import jit
    from nearcast.cli.rehearsing import Rehearsal

    jit.compile_at_once()  # what is shown is how fast it is once compiled, here and on Spark
    order = names or list(SECTIONS)
    chapters = []
    with Rehearsal(order, scene) as rehearsal:
        for at, name in enumerate(order):
            rehearsal.wait(name)
            if at and ON_SPARK & set(order[at:]):  # not sooner: two compilers have two cores
                scene.spark.begin()
            chapters.append(section(name)(scene))
    _show_end(scene, chapters)


def _show_end(scene: Scene, chapters: list[Chapter]) -> None:
    """What it came to, where the report is, and where to go on."""
    say = scene.console.print
    say("\nIn short", style="bold")
    for chapter in chapters:
        say(f"  {chapter.title}: {chapter.in_short}", markup=False)
    if any(chapter.pictures or chapter.grids for chapter in chapters):
        from nearcast.bench.story import write_story

        path = write_story("nearcast: the demo", chapters, scene.out / "report.html")
        say(f"\nreport  {path.absolute()}", soft_wrap=True)
    say(f"live    {_LIVE}", soft_wrap=True)


def _check(scene: Scene) -> None:
    """Refuse folders that would only be refused minutes later."""
    from nearcast.spark.inputs import find_inputs
    from nearcast.spark.stages import Workspace

    if scene.data is not None:
        find_inputs(scene.data)
    above = next(place for place in (scene.out, *scene.out.absolute().parents) if place.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        remedy = f"{above} is no folder that can be written; give another"
        raise ValidationError("--out", str(scene.out), remedy)
    Workspace(scene.pipeline).check()


def section(name: str) -> Section:
    """The function of a section."""
    module, _, function = SECTIONS[name].partition(":")
    found: Section = getattr(import_module(module), function)
    return found


def can_draw() -> bool:
    """Whether pictures can be drawn here."""
    from nearcast.bench.plots import pyplot

    try:
        pyplot()
    except MissingExtraError:
        return False
    return True
