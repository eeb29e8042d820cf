"""The command line: `nearcast demo`, `serve`, `keys`, `backup`, `import` and the others."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcast.cli.commands import app as app

__all__ = ["app", "main"]


def main() -> None:
    """What the `nearcast` command runs."""
    from nearcast.cli.endings import whole_process

    with whole_process():
        from nearcast.cli.commands import app

        app(prog_name="nearcast")


def __getattr__(name: str) -> Any:
    """The application, once somebody asks for it: Ctrl-C while it is loading is `main`'s too."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nearcast.cli.commands import app

    return app
