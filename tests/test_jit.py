"""The door to the compiler: what kernels are handed, and the cache that processes share."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nearcast import jit
from nearcast.errors import ValidationError
from nearcast.jit import kernel_files

SOURCE = """
from nearcast.jit import inlined, kernel, prefetcher, word_reader, word_writer

prefetch, read_word, write_word = prefetcher(), word_reader(), word_writer()


@inlined
def _moved(array, source, target):
    write_word(array, target, read_word(array, source))


@kernel
def move(array, source, target):
    prefetch(array, source)
    _moved(array, source, target)
"""


def modules_of(path: Path) -> set[str]:
    """All that a module imports, by Python's own parser."""
    nodes = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ImportFrom)]
    named = {f"{n.module}.{alias.name}" for n in nodes for alias in n.names}
    return named | {str(n.module) for n in nodes}


@pytest.mark.parametrize("path", jit.kernel_sources(), ids=lambda path: "/".join(path.parts[-3:]))
def test_compiled_kernels_are_kept_by_all_that_they_stand_on(path):
    """Compiled code holds what it calls: stale code would go on giving old answers."""
    package = Path(jit.__file__).parents[2]
    name = {".".join(p.relative_to(package).with_suffix("").parts): p for p in jit.kernel_sources()}
    known = kernel_files._imported_kernels(path)
    assert path in known
    for each in known:
        assert {name[m] for m in modules_of(each) if m in name} <= known


def test_an_edit_leaves_the_cache_of_those_that_do_not_stand_on_it(tmp_path, monkeypatch):
    """upper imports lower; other stands alone. An edit moves what stands on it, and that alone."""
    sources = {
        "lower": "from nearcast.jit import kernel\n",
        "upper": "from nearcast.lower.kernels import something\n",
        "other": "from nearcast.jit import kernel\n",
    }
    for name, text in sources.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernels.py").write_text(text)
    monkeypatch.setattr(kernel_files, "_PACKAGE", tmp_path)

    def kept() -> list[Path]:
        return [jit.module_cache.__wrapped__(tmp_path / name / "kernels.py") for name in sources]

    before = kept()
    assert len(set(before)) > 1
    (tmp_path / "lower" / "kernels.py").write_text(sources["lower"] + "# edited\n")
    after = kept()
    assert [a != b for a, b in zip(after, before, strict=True)] == [True, True, False]


def test_every_kernel_is_in_a_source_of_kernels():
    """Those elsewhere would be kept without regard to what they stand on."""
    package = Path(jit.__file__).parents[1]
    given = {
        path
        for path in package.glob("**/*.py")
        if path.parent.name != "jit" and "nearcast.jit.kernel" in modules_of(path)
    }
    assert given <= set(jit.kernel_sources())


def loaded(path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("moving", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "moving.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("on", ["0", "1"])
@pytest.mark.parametrize(("start", "target"), [(0, 8), (3, 16), (8, 3), (16, 16)])
def test_words_are_read_and_written_anywhere(source, monkeypatch, on, start, target):
    monkeypatch.setenv("NEARCAST_JIT", on)
    array = np.arange(24, dtype=np.uint8) * 11
    expected = array.copy()
    expected[target : target + 8] = array[start : start + 8]
    loaded(source).move(array, start, target)
    assert array.tolist() == expected.tolist()


@pytest.mark.skipif(not jit.compiled(), reason="only what is compiled is kept on disk")
def test_what_is_kept_is_not_taken_for_another_signature_or_another_state(source):
    """One file a signature; an edit, an option or a constant makes it another."""
    move = loaded(source).move.dispatcher
    bytes_, words = (move.signature((np.zeros(24, kind), 0, 8)) for kind in (np.uint8, np.uint64))
    paths = {move._cache.path(bytes_), move._cache.path(words)}
    edited = source.with_name("edited.py")
    edited.write_text(SOURCE + "# edited\n")
    paths.add(loaded(edited).move.dispatcher._cache.path(bytes_))
    brief = source.with_name("brief.py")
    brief.write_text(
        SOURCE.replace("import inlined, kernel", "import inlined, brief_kernel as kernel")
    )
    paths.add(loaded(brief).move.dispatcher._cache.path(bytes_))
    assert len({path.name.rsplit(".", 2)[1] + path.parent.name for path in paths}) == 4


def test_a_mode_that_nobody_knows_is_refused(monkeypatch):
    monkeypatch.setenv("NEARCAST_JIT", "yes")
    with pytest.raises(ValidationError, match=r"NEARCAST_JIT.*yes"):
        jit.compiled()
