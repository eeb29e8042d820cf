"""Changes to the code that a test must notice: `make mutants`, listed in `mutants.toml`.

Each entry is one `[[mutant]]`:

| key | |
|---|---|
| `file` | what is changed, from the root of the repository |
| `text`, `replacement` | the change; the text occurs exactly once in the file |
| `test` | the test that must fail, or a list of which each must: `tests/test_x.py::test_name` |
| `why` | what would be wrong |
| `jit` | true where kernels must be compiled for it; else they run as plain Python, quicker |

Every change is made to a copy of the tree. One that no test notices survives, and the exit code
is 1; so it is when a change breaks the import, or a test takes longer than the limit, since
neither says that the test looks at what was changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from nearcast.cli.console import counting

__all__ = ["ROOT", "Mutant", "faults", "load", "survivors"]

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("mutants.toml")
#: What no test reads, or must not be shared.
_LEFT_OUT = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "benchmarks")
_FAILED = re.compile(r"^FAILED (.+?\.py::.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One change, and the tests that must fail with it."""

    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    why: str
    jit: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"

    def mutated(self, source: str) -> str:
        """The source with the change; ValueError unless the text is there exactly once."""
        if (times := source.count(self.text)) != 1:
            raise ValueError(f"{self}: the text occurs {times} times")
        return source.replace(self.text, self.replacement)


def load(path: Path = LIST) -> list[Mutant]:
    """All entries, in order."""
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
        named = entry.pop("test")
        found.append(Mutant(tests=(named,) if isinstance(named, str) else tuple(named), **entry))
    return found


def faults(mutant: Mutant, root: Path = ROOT) -> Iterator[str]:
    """What is wrong with an entry: its text is gone, or a test it names is not there."""
    try:
        changed = mutant.mutated((root / mutant.file).read_text(encoding="utf-8"))
        compile(changed, mutant.file, "exec")
    except (OSError, ValueError, SyntaxError) as error:
        yield str(error)
    if mutant.text == mutant.replacement or not mutant.why:
        yield f"{mutant}: it changes nothing, or does not say why"
    for test in mutant.tests:
        path, *names = test.partition("[")[0].split("::")
        source = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
        if not names or not all(re.search(rf"^ *(?:def|class) {n}\b", source, re.M) for n in names):
            yield f"{mutant}: there is no test {test}"


# --- running --------------------------------------------------------------------------------------


def survivors(
    mutants: Sequence[Mutant], *, jobs: int = 1, limit_s: float = 300.0, root: Path = ROOT
) -> Iterator[tuple[Mutant, str | None]]:
    """Each mutant with what is wrong about it, None if its tests failed; in any order."""
    with tempfile.TemporaryDirectory(prefix="nearcast-mutants-") as scratch:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            trees.put(_copy(root, Path(scratch, str(number))))

        def verdict(mutant: Mutant) -> tuple[Mutant, str | None]:
            tree = trees.get()
            try:
                with _changed(tree / mutant.file, mutant):
                    return mutant, _verdict(mutant, tree, limit_s)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(verdict, mutants)


def _verdict(mutant: Mutant, tree: Path, limit_s: float) -> str | None:
    try:
        ran = _pytest(tree, mutant.tests, mutant.jit, limit_s)
    except subprocess.TimeoutExpired:
        return f"took more than {limit_s:g} s"
    if ran.returncode not in (0, 1):
        return f"pytest ended with {ran.returncode}: {_last_line(ran.stdout)}"
    failed = [f"{name}::" for name in _FAILED.findall(ran.stdout)]
    passed = [t for t in mutant.tests if not any(f.startswith((f"{t}::", f"{t}[")) for f in failed)]
    return f"SURVIVES {', '.join(passed)}" if passed else None


def unmutated(mutants: Sequence[Mutant], root: Path = ROOT) -> str | None:
    """What the tests say without any change; None if they pass, as they must."""
    with tempfile.TemporaryDirectory(prefix="nearcast-mutants-") as scratch:
        tree = _copy(root, Path(scratch, "tree"))
        for jit in {mutant.jit for mutant in mutants}:
            tests = sorted({test for m in mutants if m.jit == jit for test in m.tests})
            ran = _pytest(tree, tests, jit, None)
            if ran.returncode != 0:
                return ran.stdout
    return None


def _pytest(
    tree: Path, tests: Sequence[str], jit: bool, limit_s: float | None
) -> subprocess.CompletedProcess[str]:
    quick = ["-q", "-rf", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--hypothesis-seed=1"]
    environment = {
        **os.environ, "NEARCAST_JIT": str(int(jit)), "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # a file may change twice a second, and not its size
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "pytest", *quick, *tests], cwd=tree, env=environment,
        capture_output=True, text=True, timeout=limit_s, check=False,
    )  # fmt: skip


def _copy(root: Path, into: Path) -> Path:
    shutil.copytree(root, into, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    said = subprocess.run(
        [sys.executable, "-c", "import nearcast; print(nearcast.__file__)"], cwd=into,
        env={**os.environ, "PYTHONPATH": str(into / "src")}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert said.stdout.startswith(str(into)), f"tests would run {said.stdout} and not the copy"
    return into


@contextmanager
def _changed(path: Path, mutant: Mutant) -> Iterator[None]:
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.mutated(source), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Try them, tell those that survive, and answer with the exit code."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Do tests notice changes?")
    parser.add_argument("--only", action="append", metavar="WORD", help="in file, why or test")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one mutant")
    parser.add_argument("--list", action="store_true", help="show them and stop")
    parser.add_argument("--trust", action="store_true", help="do not run the unchanged code first")
    asked = parser.parse_args(arguments)
    chosen = [m for m in load() if asked.only is None or any(w in _words(m) for w in asked.only)]
    if asked.list or not chosen:
        print("\n".join(map(str, chosen)) or "no mutant has that word")
        return int(not chosen)
    broken = [fault for mutant in chosen for fault in faults(mutant)]
    if broken:
        print("\n".join(broken))
        return 1
    with counting("the unchanged code", 1):
        wrong = None if asked.trust else unmutated(chosen)
    if wrong is not None:
        print(f"{wrong}\nthe tests fail without any change; mend that first")
        return 1
    bad = 0
    with counting("mutants", len(chosen)) as advance:
        for mutant, told in survivors(chosen, jobs=asked.jobs, limit_s=asked.limit):
            advance(1)
            if told is not None:
                bad += 1
                print(f"{mutant}: {told}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} mutants were noticed")
    return int(bad > 0)


def _words(mutant: Mutant) -> str:
    return " ".join([mutant.file, mutant.why, *mutant.tests])


if __name__ == "__main__":
    sys.exit(main())
