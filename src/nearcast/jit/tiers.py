"""A kernel and its two forms: which of them answers, and when the compiled one takes over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial, update_wrapper
from time import perf_counter
from types import FunctionType
from typing import Any

from nearcast.jit import behind, progress
from nearcast.jit.described import Description, described, items
from nearcast.jit.forks import loading
from nearcast.jit.modes import Mode, coin, mode
from nearcast.jit.plain import TwoForms, interpret, twin
from nearcast.jit.troubles import warn_once

__all__ = ["Kernel", "brief_kernel", "find", "inlined", "kernel"]

#: Seconds that a call may take as plain Python before it is worth a wait for the compiler.
PATIENCE = 1.0
#: Seconds that plain Python takes for an item of the arrays it is given, before one has seen.
AN_ITEM = 4e-6

_all: dict[tuple[str, str], list[Kernel]] = {}


class Kernel(partial, TwoForms):  # type: ignore[type-arg]
    """A function in two forms with the same answers.

    What a call does is the function that this partial holds: at first one that decides, and
    the dispatcher of the compiled form from then on, which costs 10 ns more than calling that
    by itself.
    """

    def __new__(cls, function: FunctionType, how: dict[str, bool]) -> Kernel:  # noqa: ARG004
        """A partial of the function; what it holds is exchanged."""
        return super().__new__(cls, function)

    def __init__(self, function: FunctionType, how: dict[str, bool]) -> None:
        update_wrapper(self, function)
        self.function: Any = function
        self.how = how
        #: Seconds that plain Python has taken so far.
        self.spent = 0.0
        self._item_s = AN_ITEM
        self._met: set[Description] = set()
        self._refused = False
        self._mode = mode()
        self._first: Callable[..., Any] = {
            Mode.TIERS: self._small_at_once,
            Mode.AT_ONCE: self._compile,
            Mode.NEVER: self._interpret,
            Mode.MIXED: self._toss,
        }[self._mode]
        self._answer_with(self._first)
        same = _all.setdefault((function.__module__, function.__qualname__), [])
        self._place = len(same)
        same.append(self)

    def _answer_with(self, entry: Callable[..., Any]) -> None:
        # All at once, as far as other threads can see.
        partial.__setstate__(self, (entry, (), {}, self.__dict__))  # type: ignore[attr-defined]

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The form that interpreted kernels call."""
        return twin(self.function)

    @cached_property
    def dispatcher(self) -> Any:
        """The compiled form; nothing is compiled yet."""
        with loading:  # two of them would compile twice
            if "dispatcher" in self.__dict__:
                return self.__dict__["dispatcher"]
            from nearcast.jit.compiler import KernelDispatcher

            self.__dict__["dispatcher"] = KernelDispatcher(self, self.how)
            return self.__dict__["dispatcher"]

    @property
    def _numba_type_(self) -> Any:  # where numba looks when another kernel calls this one
        return self.dispatcher._numba_type_

    @property
    def name(self) -> tuple[str, str, int]:
        """Module, qualified name, and which of those that have the same."""
        return self.function.__module__, self.function.__qualname__, self._place

    def _interpret(self, *args: Any) -> Any:
        return interpret(self.plain, args)

    def _compile(self, *args: Any) -> Any:
        self.take_over()
        return self.dispatcher(*args)

    def _toss(self, *args: Any) -> Any:
        return self._interpret(*args) if coin().random() < 0.5 else self.dispatcher(*args)

    def _small_at_once(self, *args: Any) -> Any:
        size = items(args)
        if self._small(size):
            return self._observed(size, args)
        return self._compile(*args)

    def _small(self, size: int) -> bool:
        """Whether plain Python is done with so many items before anybody minds."""
        patient = size * self._item_s <= PATIENCE and mode() is not Mode.AT_ONCE
        return patient or self._refused

    def _observed(self, size: int, args: tuple[Any, ...]) -> Any:
        """Answer as plain Python, and have compiled behind what this call was made with."""
        started = perf_counter()
        result = self._interpret(*args)
        elapsed = perf_counter() - started
        self.spent += elapsed
        if elapsed > size * self._item_s:
            self._item_s = elapsed / max(size, 1)
        description = described(args)
        if description is not None and description not in self._met:
            self._met.add(description)
            behind.ask(self, description)
        return result

    def unmet(self, args: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Who answers a call whose types the compiled form does not know; None: it shall learn."""
        if self._mode is not Mode.TIERS or mode() is Mode.AT_ONCE:
            return None
        size = items(args)
        dispatcher = self.dispatcher
        if self._small(size) and not dispatcher.at_hand(dispatcher.signature(args)):
            return lambda *args: self._observed(size, args)
        try:
            with progress.shown():
                return dispatcher.compile_for(args)  # type: ignore[no-any-return]
        except Exception as error:
            self.refuse(error)
            return self._interpret

    def refuse(self, why: object) -> None:
        """The compiler cannot do it: plain Python answers for good."""
        self._refused = True
        warn_once(
            "compile",
            f"{self.function.__qualname__} is not compiled and stays slow; please report it: {why}",
        )

    def quietly_refuse(self, why: object) -> None:
        """The same where a warning would end what calls this."""
        with suppress(Warning):
            self.refuse(why)

    def take_over(self) -> None:
        """Let the compiled form answer from now on."""
        self._answer_with(self.dispatcher)

    def __reduce__(self) -> Any:
        return find, self.name


def find(module: str, name: str, place: int) -> Kernel:
    """The kernel of that name, imported if need be."""
    if (module, name) not in _all:
        __import__(module)
    return _all[module, name][place]


def kernel(function: Callable[..., Any]) -> Kernel:
    """Two forms of `function`: plain, and compiled without Python objects and without the GIL.

    Floating point stays exact: no fast-math, so every index rounds like the oracle.
    """
    return Kernel(function, {"nogil": True})  # type: ignore[arg-type]


def brief_kernel(function: Callable[..., Any]) -> Kernel:
    """A kernel that keeps the GIL: what takes less time than getting it back.

    So nothing else in Python happens meanwhile, either.
    """
    return Kernel(function, {"nogil": False})  # type: ignore[arg-type]


def inlined(function: Callable[..., Any]) -> Kernel:
    """A kernel that becomes part of those that call it.

    A call counts the references to each array it hands over, up and down again, and these
    counts are atomic: some 10 ns an array, which a short loop notices.
    """
    return Kernel(function, {"nogil": True, "forceinline": True})  # type: ignore[arg-type]
