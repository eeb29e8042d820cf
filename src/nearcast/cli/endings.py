"""How a command ends: never with a traceback for what is not a bug.

| exit code | when |
|---|---|
| 1 | what was asked about is not in order, or whoever reads the output has gone |
| 2 | one message: an error of nearcast's, or the system refuses a file, a disk, a stream |
| 130 | Ctrl-C |

Bugs keep their traceback, and `NEARCAST_DEBUG=1` shows that of every error.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from nearcast.errors import NearcastError

__all__ = ["told", "whole_process"]

_FAILED, _INTERRUPTED, _READER_GONE = 2, 130, 1
_AGAIN_S = 0.05


@contextmanager
def told() -> Iterator[None]:
    """Errors that the user can mend become one message and an exit code, Ctrl-C the code only."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SystemExit) and _Interrupt.behind(error):
            raise SystemExit(_INTERRUPTED) from None
        if isinstance(error, BrokenPipeError):
            _give_up(sys.stdout)
            raise SystemExit(_READER_GONE) from None
        debugging = os.environ.get("NEARCAST_DEBUG") == "1"
        if debugging or not isinstance(error, NearcastError | OSError):
            raise
        _say(f"nearcast: {_message(error)}")
        with suppress(OSError):  # if it was the output that failed, that is told by now
            _flush()
        raise SystemExit(_FAILED) from None


@contextmanager
def whole_process() -> Iterator[None]:
    """For the process that is one command: streams that take every character, and all its ends.

    What was written has left when it is over: a full disk is an error, not a remark at exit.
    """
    _prepare_streams()
    _Interrupt.listen()
    try:
        with told():
            try:
                yield
            finally:
                _flush()
    finally:
        _Interrupt.over()


def _message(error: NearcastError | OSError) -> str:
    if isinstance(error, NearcastError) or error.strerror is None:
        return str(error)
    where = "cannot write" if error.filename is None else os.fspath(error.filename)
    return f"{where}: {error.strerror}; check path, rights and room"


def _say(message: str) -> None:
    try:
        print(message, file=sys.stderr)
    except OSError:  # nobody listens; the exit code says it
        _give_up(sys.stderr)


# --- streams ------------------------------------------------------------------------------------


def _prepare_streams() -> None:
    """A closed stream becomes one to nowhere; what an encoding lacks is written as its escape."""
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open(encoding="utf-8")
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up(sys.stdout)
        raise


def _give_up(stream: TextIO) -> None:
    """What is left in a stream goes nowhere, so that Python does not try it again at exit."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # a stream of a test's
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


# --- Ctrl-C -------------------------------------------------------------------------------------


class _Interrupt:
    """Whether Ctrl-C was pressed.

    The exception alone does not say. A KeyboardInterrupt that comes while compiled code is being
    entered or left reaches Python as a SystemError, now and then without a cause, and one that
    comes in a finaliser is dropped with a traceback: that one is raised again a moment later.
    """

    pressed = False

    @classmethod
    def listen(cls) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, cls._press)
        sys.unraisablehook = cls._unraisable

    @classmethod
    def over(cls) -> None:
        """Nothing is left to tidy up: from now on Ctrl-C ends the process at once."""
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    @classmethod
    def behind(cls, error: BaseException | None) -> bool:
        """Whether an error is a Ctrl-C, in whatever clothes."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            if isinstance(error, KeyboardInterrupt):
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return cls.pressed

    @classmethod
    def _press(cls, _number: int, _frame: FrameType | None) -> None:
        cls.pressed = True
        raise KeyboardInterrupt

    @staticmethod
    def _unraisable(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident
            again = threading.Timer(_AGAIN_S, signal.pthread_kill, [main, signal.SIGINT])
            again.daemon = True
            again.start()
        else:
            sys.__unraisablehook__(dropped)
