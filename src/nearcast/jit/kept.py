"""Compiled kernels on disk."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any
from uuid import uuid4

import numba
from numba.core import sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from nearcast.jit import parts
from nearcast.jit.kernel_files import module_cache
from nearcast.jit.troubles import warn_once

__all__ = ["Kept", "KeptParts", "saving"]

#: Held while a file of the cache is written.
saving = Lock()


class Kept(_Cache):
    """Compiled forms of one function on disk, each in a file of its own.

    A file is written beside its place and moved there, so that it is whole or not there, and
    begins with a digest of the rest: what was damaged is compiled again.
    """

    def __init__(self, function: FunctionType, options: dict[str, bool]) -> None:
        source = Path(function.__code__.co_filename)
        root = os.environ.get("NUMBA_CACHE_DIR")
        folder = module_cache(source)
        self._folder = folder if root is None else Path(root) / folder.name
        name = f"{source.stem}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        self._name = name.replace("<", "").replace(">", "")
        self._function = function
        self._options = options

    @property
    def cache_path(self) -> str:
        """Its folder."""
        return str(self._folder)

    def path(self, signature: Any) -> Path:
        """The file for a signature, on this machine with these versions."""
        types, result = sigutils.normalize_signature(signature)
        cells = [_stable(cell.cell_contents) for cell in self._function.__closure__ or ()]
        said = (
            [str(kind) for kind in types],
            str(result),
            self._function.__code__.co_code,
            cells,
            sorted(self._options.items()),
            cpu_target.target_context.codegen().magic_tuple(),
            numba.__version__,
            sys.version_info[:2],
        )
        digest = hashlib.sha256(repr(said).encode()).hexdigest()[:24]
        return self._folder / f"{self._name}.{digest}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form for a signature; None if there is none, or none that can be read."""
        target_context.refresh()
        path = self.path(sig)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            warn_once("read", f"{path} cannot be read ({error.strerror}); it is compiled again")
            return None
        try:
            digest, data = content[:32], content[32:]
            if hashlib.sha256(data).digest() != digest:
                raise ValueError("its digest is another")
            return self._rebuilt(target_context, pickle.loads(data))
        except Exception as error:  # whatever reading rubbish raises
            warn_once("damaged", f"{path} is damaged ({error}); it is compiled again")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled form; if that cannot be, it is there in this process only."""
        if data.library.has_dynamic_globals or data.lifted:
            return
        path = self.path(sig)
        content = dumps(self._reduced(data))
        beside = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with saving:
                try:
                    beside.write_bytes(hashlib.sha256(content).digest() + content)
                    os.replace(beside, path)
                except BaseException:
                    beside.unlink(missing_ok=True)
                    raise
        except OSError as error:
            warn_once(
                "write",
                f"compiled kernels cannot be kept in {path.parent} ({error.strerror}), and every "
                "process will compile anew; set NEARCAST_CACHE to a folder with room",
            )

    def _reduced(self, made: Any) -> tuple[Any, ...]:
        return made._reduce()  # type: ignore[no-any-return]

    def _rebuilt(self, context: Any, content: tuple[Any, ...]) -> Any:
        return CompileResult._rebuild(context, *content)

    def enable(self) -> None:
        """It is always on."""

    def disable(self) -> None:
        """It is always on."""

    def flush(self) -> None:
        """Files are named by what they were made from: none is ever stale."""


def _stable(value: Any) -> str:
    """A constant as text that is the same in every process."""
    return str(getattr(value, "__qualname__", None) or repr(value))


class KeptParts(Kept):
    """The same for what other kernels take in: no machine code, but what it is made from."""

    def __init__(self, function: FunctionType, options: dict[str, bool]) -> None:
        super().__init__(function, {**options, "part": True})

    def _reduced(self, made: Any) -> tuple[Any, ...]:
        return parts.reduced(made)

    def _rebuilt(self, context: Any, content: tuple[Any, ...]) -> Any:
        return parts.rebuilt(context, *content)
