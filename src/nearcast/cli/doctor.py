"""`nearcast doctor`: what is installed, what is missing, and whether kernels are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nearcast.cli.console import counting, result_console

if TYPE_CHECKING:
    from nearcast.cli.findings import Finding

__all__ = ["doctor"]

_MARKS = {
    "fine": "[green]ok  [/green]",
    "note": "[yellow]note[/yellow]",
    "bad": "[red]BAD [/red]",
}


def doctor(
    warm: Annotated[
        bool, typer.Option("--warm", help="Compile all kernels now, and keep them on disk.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only what is broken.")] = False,
) -> None:
    """Look at the installation: versions, Java, the compile cache.

    The exit code is 1 if something essential is broken. Kernels are compiled behind
    the first runs that meet them; --warm does that ahead, for every index.

    Examples:

      nearcast doctor

      nearcast doctor --warm
    """
    from nearcast.cli.findings import all_findings

    warmed = _warm(quiet) if warm else []
    findings = [*all_findings(), *warmed]
    console = result_console()
    for finding in findings:
        if not quiet or finding.state == "bad":
            mark = _MARKS[finding.state]
            console.print(f"{mark} {finding.what:<12} {escape(finding.detail)}", soft_wrap=True)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _warm(quiet: bool) -> list[Finding]:
    """One finding an index, by name."""
    from nearcast.cli.warming import warm
    from nearcast.index import registry

    names = registry.names()
    findings = []
    with counting("compiling the kernels of every index", len(names), quiet=quiet) as advance:
        for finding in warm(names):
            findings.append(finding)
            advance(1)
    return sorted(findings, key=lambda finding: finding.what)
