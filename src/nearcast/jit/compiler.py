"""numba, behind one class: a dispatcher that asks its kernel before it compiles.

Importing this module imports numba, which takes half a second: nothing does before it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typing.templates import make_concrete_template

from nearcast.jit import progress
from nearcast.jit.kept import Kept, KeptParts
from nearcast.jit.parts import PartCompiler

if TYPE_CHECKING:
    from nearcast.jit.tiers import Kernel

__all__ = ["KernelDispatcher", "seconds", "type_of"]

#: numba's own stopwatch.
_clock = event.TimingListener()
event.register("numba:compile", _clock)


class _Counter(event.Listener):
    """Tells how far it is, for those who wait."""

    def on_start(self, event: Any) -> None:
        """A function is being compiled."""

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        """It is."""
        progress.finished()


event.register("numba:compile", _Counter())


def seconds() -> float:
    """Seconds this process has spent compiling so far."""
    return float(_clock.duration) if _clock.done else 0.0


def type_of(value: Any) -> Any:
    """The type that numba gives a value or a function."""
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(value)


def _widened(kind: Any) -> Any:
    """The type of an argument for a part: one width of integers, and constants are like others.

    Else the same part is compiled for a 0, a 1, an `int32` and an `int64`. A constant truth
    value stays one: such a kernel is two by intention.
    """
    plain = kind.literal_type if isinstance(kind, types.IntegerLiteral) else kind
    signed = isinstance(plain, types.Integer) and plain.signed  # type: ignore[attr-defined]
    return types.int64 if signed else kind


class KernelDispatcher(CPUDispatcher):
    """The compiled form of a kernel.

    Signatures it knows it answers without any Python in between; of one that it meets for the
    first time its kernel says what is to be done.
    """

    _compiler: Any

    def __init__(self, kernel: Kernel, how: dict[str, bool]) -> None:
        # A wrapper for C would be made and compiled for every form, and nobody calls it.
        options = {"nopython": True, "boundscheck": False, "no_cfunc_wrapper": True, **how}
        super().__init__(kernel.function, targetoptions=options)
        self._kernel = kernel
        self._cache = Kept(kernel.function, options)
        self._parts: dict[tuple[Any, ...], Any] = {}
        self._part_cache = KeptParts(kernel.function, options)
        self._part_compiler = PartCompiler(
            kernel.function, self.targetdescr, options, {}, self._compiler.pipeline_class
        )

    def _compile_for_args(self, *args: Any) -> Any:
        """A callable for these arguments: compiled code, or their interpreter for now."""
        return self._kernel.unmet(args) or self.compile_for(args)

    def compile_for(self, args: tuple[Any, ...]) -> Any:
        """Load or compile the form for such arguments."""
        return CPUDispatcher._compile_for_args(self, *args)  # type: ignore[attr-defined]

    def signature(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The types of arguments."""
        return tuple(self.typeof_pyval(value) for value in args)

    def at_hand(self, signature: tuple[Any, ...]) -> bool:
        """Whether the form for these types is loaded, or kept on disk."""
        return signature in self.overloads or self._cache.path(signature).exists()

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What numba asks when another kernel calls this one: here it becomes a part of it."""
        signature, args = self._compiler.fold_argument_types(args, kws)
        args = tuple(map(_widened, args))
        name = self.py_func.__name__
        made = self._part(args)
        template = make_concrete_template(f"Part({name})", name, [made.signature])
        return template, signature, args, {}

    def get_overload(self, sig: Any) -> Any:
        """By what the form for these types is known to those that call it."""
        return self._part(tuple(sig)).entry_point

    def _part(self, args: tuple[Any, ...]) -> Any:
        """The form for these types that callers take in."""
        with global_compiler_lock, self._compiling_counter:
            if args not in self._parts:
                made = self._part_cache.load_overload(args, self.targetctx)
                if made is None:
                    what = {"dispatcher": self, "args": args, "return_type": None}
                    with event.trigger_event("numba:compile", data=what):
                        made = self._part_compiler.compile(args, None)
                    self._part_cache.save_overload(args, made)
                self.targetctx.insert_user_function(made.entry_point, made.fndesc, [made.library])
                self._parts[args] = made
            return self._parts[args]

    def __reduce__(self) -> Any:
        return self._kernel.__reduce__()
