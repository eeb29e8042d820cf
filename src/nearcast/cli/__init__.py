"""The command line: `nearcast demo`, `nearcast bench`, `nearcast doctor`."""

from nearcast.cli.app import app, main

__all__ = ["app", "main"]
