"""Kernels as parts of others: optimised code to link, with no door for Python and no machine code.

numba would compile every kernel that another one calls as if Python called it, too: two wrappers
that take the arguments apart, and machine code of its own, beside the copy that becomes part of
the caller. For most kernels nobody ever needs these, and they take a fifth of the compiler's time.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]

__all__ = ["PartCompiler", "rebuilt", "reduced"]


class PartLibrary(JITCodeLibrary):
    """Code that is optimised and can be linked, and that is not made into machine code."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class PartCompiler(_FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for those that call it compiled."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        context = self.targetdescr.target_context
        library = PartLibrary(context.codegen(), self.py_func.__qualname__)
        made = compiler.compile_extra(
            self.targetdescr.typing_context, context, self.py_func, args, return_type,
            self._customize_flags(flags), self.locals, library, self.pipeline_class,
        )  # fmt: skip
        library._ensure_finalized()
        return made._replace(entry_point=Part())


class Part:
    """What a compiled part is known by to those that call it."""

    def __call__(self) -> None:
        """numba asks for something that can be called; nobody calls it."""
        raise NotImplementedError


def reduced(made: Any) -> tuple[Any, ...]:
    """A part as what can be pickled."""
    made.fndesc.typemap = made.fndesc.calltypes = None
    bitcode = made.library._final_module.as_bitcode()
    envs = tuple(made._find_referenced_environments())
    return (
        made.library.name, bitcode, made.fndesc, made.environment, made.signature,
        made.reload_init, envs,
    )  # fmt: skip


def rebuilt(context: Any, name: str, bitcode: bytes, *rest: Any) -> Any:
    """The part that was reduced."""
    descriptor, environment, signature, reload_init, environments = rest
    for function in reload_init:
        function()
    library = PartLibrary(context.codegen(), name)
    library._final_module = llvm.parse_bitcode(bitcode)
    library._finalize_final_module()
    made: Any = compiler.CompileResult
    return made(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=Part(),
        typing_error=None,
        type_annotation=None,
        signature=signature,
        objectmode=False,
        lifted=(),
        fndesc=descriptor,
        library=library,
        call_helper=None,
        environment=environment,
        metadata=None,
        reload_init=reload_init,
        referenced_envs=environments,
    )
