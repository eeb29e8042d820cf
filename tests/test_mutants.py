"""The list of mutants cannot rot, and the tool tells survivors from those that are noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, faults, load, main, survivors

MUTANTS = load()
#: Everything that computes; the others are wiring.
PACKAGES = [
    *("jit", "clock", "model", "kernels", "matcher", "mobility", "cpsl", "cpsl/operators"),
    *("broker", "spark", "datasets", "bench", "cli"),
    *("index/scan", "index/rivals", "index/pivot", "index/mo_tree", "index/di_tree"),
    *("index/beq_tree", "index/mbr_trie", "index/pt_quadtree", "index/lfilter"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_text_is_there_once_and_the_tests_exist(mutant: Mutant):
    assert list(faults(mutant)) == []


def test_there_are_many_and_of_every_package():
    assert len(MUTANTS) >= 60
    assert len({(m.file, m.text, m.replacement) for m in MUTANTS}) == len(MUTANTS)
    for package in PACKAGES:
        inside = re.compile(rf"src/nearcast/{package}(/|\.py)")
        assert any(inside.match(m.file) for m in MUTANTS), package


def test_faults_are_named():
    whole = Mutant("Makefile", "clean:", "clear:", ("tests/test_docs.py::test_nothing",), "")
    told = "\n".join(faults(whole))
    assert "does not say why" in told
    assert "there is no test tests/test_docs.py::test_nothing" in told
    twice = Mutant("pyproject.toml", "nearcast", "", ("tests/nowhere.py::test_it",), "why")
    assert re.search(r"the text occurs \d+ times", next(faults(twice)))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project of the same layout."""
    for folder in ("src/nearcast", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/nearcast/__init__.py").write_text("def half(n):\n    return n // 2\n")
    (tmp_path / "tests/test_half.py").write_text(
        "from nearcast import half\n"
        "def test_even(): assert half(4) == 2\n"
        "def test_odd(): assert half(5) == 2\n"
    )
    return tmp_path


def test_survivors_are_told_from_the_noticed(tree: Path):
    def mutant(replacement: str, *tests: str) -> Mutant:
        named = tuple(f"tests/test_half.py::{test}" for test in tests)
        return Mutant("src/nearcast/__init__.py", "n // 2", replacement, named, replacement)

    tried = [
        mutant("n / 2", "test_odd"),
        mutant("n / 2", "test_even"),
        mutant("n / 2", "test_odd", "test_even"),
        mutant("n //", "test_odd"),
        mutant("__import__('time').sleep(60)", "test_odd"),
    ]
    told = [verdict for _, verdict in survivors(tried, jobs=2, limit_s=40, root=tree)]
    assert told[0] is None
    assert told[1] == told[2] == "SURVIVES tests/test_half.py::test_even"
    assert str(told[3]).startswith("pytest ended with")
    assert told[4] == "took more than 40 s"
    source = (tree / "src/nearcast/__init__.py").read_text()
    assert source.endswith("n // 2\n")


def test_the_command_lists_and_selects(capsys: pytest.CaptureFixture[str]):
    assert main(["--list", "--only", "cpsl/operators"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert 0 < len(shown) < len(MUTANTS)
    assert all("cpsl/operators" in line for line in shown)
    assert main(["--only", "no such mutant"]) == 1


def test_the_copy_leaves_nothing_out_that_is_mutated():
    assert all((ROOT / m.file).is_file() for m in MUTANTS)
