"""Matchers on disk, opened by mapping them into memory.

A folder holds `matcher.json` (what it is, and where its parts stand) and one data file:
every array at an offset that is a multiple of 64, and behind them the object graph as a
pickle without the arrays. Opening reads the pickle and maps the arrays, private and
copy-on-write: processes of one machine share the pages until somebody changes them, and
compiled code sees ordinary writable arrays. A million subscriptions open in milliseconds.

Writing is atomic and durable: the data file has a name of its own, and `matcher.json` is put in
its place last, each synced before what refers to it, and the folder after. Reading admits classes
of nearcast's own packages and plain containers only, so a foreign pickle is refused and not
run; still, open only what you trust, since arrays are taken as they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import pickle
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import NearcastError, SavedError

if TYPE_CHECKING:
    from nearcast.matcher.facade import Matcher
    from nearcast.model.geometry import Space

__all__ = ["HEADER", "Header", "load", "read_header", "save"]

HEADER = "matcher.json"
_FORMAT = 12
_ALIGN = 64
_DATA = re.compile(r"matcher-[0-9a-f]{16}\.bin")
_OURS = ("nearcast.index.", "nearcast.kernels.", "nearcast.matcher.", "nearcast.model.")
#: Beside our own classes, all that an object graph of a matcher is made of.
_PLAIN = {
    ("builtins", kind.__name__)
    for kind in (set, frozenset, bytearray, complex, range, slice, int, float, bool)
} | {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("copyreg", "__newobj__"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}


@dataclass(frozen=True, slots=True)
class Header:
    """What a saved matcher is, without opening it."""

    index: str
    space: Space
    subscriptions: int
    events: int
    data: str
    """The name of the data file."""
    bytes: int
    """Its size."""
    digest: str
    """Of the whole data file."""
    graph: tuple[int, int]
    """Start and end of the object graph in it."""
    graph_digest: str
    buffers: tuple[tuple[int, int], ...]
    """Start and end of each array."""
    rebuilt: bool
    """Whether the index cannot be saved and is built again when the matcher is opened."""
    nearcast: str
    byteorder: str = sys.byteorder
    nearcast_matcher: int = _FORMAT


# --- writing --------------------------------------------------------------------------------------


def save(matcher: Matcher, folder: str | os.PathLike[str]) -> Header:
    """Write a matcher into a folder, whole or not at all; what was saved there is replaced.

    Costs a copy of the matcher's bytes to disk. Who has the old one open keeps it.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SavedError(f"{target}: cannot be made ({error.strerror}); name a folder") from None
    graph, buffers, rebuilt = _pickled(matcher)
    scratch = target / f".matcher.{os.getpid()}.{id(matcher):x}"
    try:
        with _unfinished(scratch):
            digest, places, graph_place = _write_data(scratch, graph, buffers)
            header = Header(
                index=matcher.entry.name,
                space=matcher.space,
                subscriptions=len(matcher),
                events=matcher.event_count,
                data=f"matcher-{digest[:16]}.bin",
                bytes=scratch.stat().st_size,
                digest=digest,
                graph=graph_place,
                graph_digest=_digest(graph),
                buffers=tuple(places),
                rebuilt=rebuilt,
                nearcast=version("nearcast"),
            )
            scratch.replace(target / header.data)
            _synced(target)
        _put_header(target, header)
    except OSError as error:
        raise SavedError(f"{target}: cannot be written ({error.strerror or error})") from None
    return header


def _pickled(matcher: Matcher) -> tuple[bytes, list[pickle.PickleBuffer], bool]:
    """The object graph, its arrays, and whether the index had to be left out."""
    parts = matcher.parts()
    try:
        return *_dump(parts), False
    except _ForeignError:
        return *_dump({**parts, "index": None}), True


class _ForeignError(Exception):
    """Something that `load` would not admit."""


class _Pickler(pickle.Pickler):
    """Refuses when saving what would be refused when loading."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.integer | np.floating | np.bool_):  # of interpreted kernels
            plain = value.item()
            return type(plain), (plain,)
        named = isinstance(value, type | FunctionType | BuiltinFunctionType)
        kind = value if named else type(value)
        if not _admitted(kind.__module__, kind.__qualname__):
            raise _ForeignError(f"{kind.__module__}.{kind.__qualname__}")
        return NotImplemented


def _dump(parts: dict[str, Any]) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    pickler = _Pickler(stream, protocol=5, buffer_callback=buffers.append)
    try:
        pickler.dump(parts)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise _ForeignError(str(error)) from error
    return stream.getvalue(), buffers


@contextmanager
def _unfinished(path: Path) -> Iterator[None]:
    """Leave nothing behind of a file that is not finished."""
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_data(
    path: Path, graph: bytes, buffers: list[pickle.PickleBuffer]
) -> tuple[str, list[tuple[int, int]], tuple[int, int]]:
    digest = hashlib.blake2b(digest_size=16)
    places = []
    with path.open("xb") as file:
        at = 0
        for buffer in [*(b.raw() for b in buffers), memoryview(graph)]:
            padding = bytes(-at % _ALIGN)
            for part in (padding, buffer):
                file.write(part)
                digest.update(part)
            at += len(padding)
            places.append((at, at + buffer.nbytes))
            at += buffer.nbytes
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), places[:-1], places[-1]


def _put_header(target: Path, header: Header) -> None:
    path = target / HEADER
    try:
        old = read_header(target).data
    except SavedError:
        old = None
    scratch = target / f".{HEADER}.{os.getpid()}"
    with _unfinished(scratch):
        with scratch.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(header)))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _synced(target)
    if old is not None and old != header.data:
        (target / old).unlink(missing_ok=True)


def _synced(folder: Path) -> None:
    """Let a folder's names reach the disk: a file that was moved there is not lost."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened, and a move is durable by itself
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# --- reading --------------------------------------------------------------------------------------


def read_header(folder: str | os.PathLike[str]) -> Header:
    """What a folder says it holds; SavedError if it is no saved matcher of this version."""
    path = Path(folder) / HEADER
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedError(f"{folder}: no saved matcher here; Matcher.save makes one") from None
    except (OSError, ValueError) as error:
        raise SavedError(f"{path}: cannot be read ({error}); save the matcher anew") from None
    if not isinstance(given, dict) or given.get("nearcast_matcher") != _FORMAT:
        raise SavedError(
            f"{path}: not a saved matcher of format {_FORMAT}; save it anew with this version"
        )
    try:
        places = tuple((int(a), int(b)) for a, b in given["buffers"])
        graph = (int(given["graph"][0]), int(given["graph"][1]))
        header = Header(**{**given, "buffers": places, "graph": graph})
        # A name and no path: `save` removes the data file that it replaces.
        if not _DATA.fullmatch(header.data):
            raise ValueError(f"data: {header.data!r}")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SavedError(f"{path}: damaged ({error!r}); save the matcher anew") from None
    ours = version("nearcast")
    if header.nearcast != ours:
        raise SavedError(
            f"{path}: saved by nearcast {header.nearcast}, and this is {ours}; the same "
            "version has to read it: save it anew"
        )
    if header.byteorder != sys.byteorder:
        raise SavedError(f"{path}: saved on a {header.byteorder}-endian machine; save it here")
    return header


def load(
    kind: type[Matcher],
    folder: str | os.PathLike[str],
    *,
    threads: int | None = None,
    verify: bool = False,
    data: str | os.PathLike[str] | None = None,
    header: Header | None = None,
) -> Matcher:
    """Open a saved matcher; SavedError says what is wrong with it.

    `verify` reads the whole data file and compares its digest. `data` and `header` name
    them where they do not lie in the folder.
    """
    known = read_header(folder) if header is None else header
    path = Path(folder) / known.data if data is None else Path(data)
    whole = _mapped(path, known)
    if verify and _digest(whole) != known.digest:
        raise SavedError(f"{path}: damaged (its digest is another one); save the matcher anew")
    graph = whole[known.graph[0] : known.graph[1]]
    if _digest(graph) != known.graph_digest:
        raise SavedError(f"{path}: damaged, or not the data of this header; save it anew")
    places = known.buffers
    if any(not 0 <= a <= b <= len(whole) or a % _ALIGN for a, b in places):
        raise SavedError(f"{path}: damaged (an array stands outside); save the matcher anew")
    try:
        parts = _Unpickler(io.BytesIO(graph), buffers=[whole[a:b] for a, b in places]).load()
        return kind.of_parts(known.index, known.space, parts, threads)
    except NearcastError:
        raise
    except Exception as error:  # whatever a graph of another version raises
        raise SavedError(
            f"{path}: cannot be opened by this version ({error!r}); save the matcher anew"
        ) from error


def _mapped(path: Path, header: Header) -> memoryview:
    """The data file, private and copy-on-write; it stays mapped while an array needs it."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != header.bytes or size == 0:
                raise SavedError(
                    f"{path}: {size:,} bytes, and the header says {header.bytes:,}; save it anew"
                )
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except OSError as error:
        raise SavedError(f"{path}: cannot be read ({error.strerror})") from None


class _Unpickler(pickle.Unpickler):
    """Makes nothing but our own values, arrays and plain containers."""

    def find_class(self, module: str, name: str) -> Any:
        if _admitted(module, name):
            found = super().find_class(module, name)
            # A name may lead through our modules to what they import: only classes are ours.
            if not module.startswith(_OURS) or (
                isinstance(found, type) and found.__module__.startswith(_OURS)
            ):
                return found
        raise SavedError(f"a saved matcher holds no {module}.{name}; this one is not ours")


def _admitted(module: str, name: str) -> bool:
    """Whether something of this name may be part of a matcher."""
    if module.startswith(_OURS) or (module, name) in _PLAIN:
        return True
    return module == "numpy.dtypes" and "." not in name
