"""Two forms of a kernel: the same answers whichever of them gives each, and whatever goes wrong.

Whole processes are started for what concerns a process: who compiles behind it, and how it ends.
"""

from __future__ import annotations

import copy
import errno
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nearcast import jit
from nearcast.errors import CompilerWarning
from nearcast.jit import tiers, troubles
from nearcast.jit.described import described, sample
from nearcast.kernels.plain import pack_standing
from nearcast.kernels.rows import contains_sorted
from tests.test_broker_states import Brokers, Roamers
from tests.test_matcher_states import STEPS, Matchers, PlanarMatchers

pytestmark = pytest.mark.skipif(not jit.compiled(), reason="the other form is the compiled one")


@contextmanager
def tossing(seed: int) -> Iterator[list[int]]:
    """A coin says for every call from Python which form answers; counts both."""
    coin, counts = Random(seed), [0, 0]

    def toss(kernel: tiers.Kernel):
        def call(*args):
            compiled = coin.random() < 0.5
            counts[compiled] += 1
            return kernel.dispatcher(*args) if compiled else kernel._interpret(*args)

        return call

    everyone = [kernel for same in tiers._all.values() for kernel in same]
    before = {kernel: kernel.func for kernel in everyone}
    for kernel in everyone:
        kernel._answer_with(toss(kernel))
    try:
        yield counts
    finally:
        for kernel, entry in before.items():
            kernel._answer_with(entry)


class Tossed:
    """The same machine, with a coin for every call of a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self._tossing = tossing(7)
        self._counts = self._tossing.__enter__()

    def teardown(self) -> None:
        self._tossing.__exit__(None, None, None)
        super().teardown()  # type: ignore[misc]


class TossedMatchers(Tossed, Matchers):
    pass


class TossedPlanarMatchers(Tossed, PlanarMatchers):
    pass


class TossedBrokers(Tossed, Brokers):
    pass


class TossedRoamers(Tossed, Roamers):
    pass


TestMatchersThatSwitch = TossedMatchers.TestCase
TestPlanarMatchersThatSwitch = TossedPlanarMatchers.TestCase
TestBrokersThatSwitch = TossedBrokers.TestCase
TestRoamersThatSwitch = TossedRoamers.TestCase
for machine in (
    TestMatchersThatSwitch, TestPlanarMatchersThatSwitch, TestBrokersThatSwitch,
    TestRoamersThatSwitch,
):  # fmt: skip
    machine.settings = settings(STEPS, max_examples=8)
del machine


def test_a_coin_lets_both_forms_answer():
    from nearcast import Event, Matcher, Subscription

    with tossing(1) as counts:
        matcher = Matcher()
        matcher.add_subscriptions([Subscription(id=f"s{i}", where=f"x < {i}") for i in range(9)])
        for x in range(9):
            wanted = [f"s{i}" for i in range(9) if x < i]
            assert matcher.match_event(Event(id="e", attributes={"x": x})) == wanted
    assert min(counts) > 5


# --- what is told to another process ---------------------------------------------------------

Pair = namedtuple("Pair", "left right")
_ITEMS = st.sampled_from(["i1", "i4", "i8", "u2", "u8", "f4", "f8", "?"])


@st.composite
def arrays_of_any_kind(draw):
    array = draw(arrays.arrays(draw(_ITEMS), arrays.array_shapes(max_dims=3, max_side=3)))
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array = np.repeat(array, 2, axis=0)[::2]
    array.flags.writeable = draw(st.booleans())
    return array


_VALUES = st.recursive(
    st.one_of(
        arrays_of_any_kind(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.booleans(),
        st.none(),
        _ITEMS.map(lambda kind: np.ones(1, kind)[0]),
    ),
    lambda inner: st.one_of(st.tuples(inner, inner), st.builds(Pair, inner, inner)),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_VALUES, min_size=1, max_size=3).map(tuple))
def test_a_description_has_all_that_the_compiler_distinguishes(args):
    import numba

    said = described(args)
    assert said is not None
    again = sample(eval(repr(said)))  # it travels as text
    assert [numba.typeof(value) for value in again] == [numba.typeof(value) for value in args]


def test_what_cannot_be_described_is_not():
    Hidden = namedtuple("Hidden", "one")  # nobody finds it by its name
    for value in ("text", [1], Hidden(1), np.array(["a"], object), np.zeros(2, [("a", "i4")])):
        assert described((1, value)) is None


# --- one kernel ----------------------------------------------------------------------------------


def test_a_kernel_is_itself_after_a_journey():
    for again in (pickle.loads(pickle.dumps(contains_sorted)), copy.deepcopy(contains_sorted)):
        assert again is contains_sorted
    assert pickle.loads(pickle.dumps(contains_sorted.dispatcher)) is contains_sorted


@jit.kernel
def _numbers(column, at):
    return column[at], column[at] > 0, (np.float32(0.5), np.uint64(column[at]))


def test_both_forms_return_pythons_own_numbers():
    """Else the next kernel is compiled once more, for NumPy's."""
    given = np.array([3, -1], np.int16), 0
    for form in (_numbers._interpret, _numbers.dispatcher):
        first, second, (third, fourth) = form(*given)
        assert (first, second, third, fourth) == (3, True, 0.5, 3)
        assert [type(value) for value in (first, second, third, fourth)] == [int, bool, float, int]


def test_a_pack_shows_plain_python_the_arrays_of_now():
    """Packs of equal words are of equal places; what was there before does not matter."""
    unpack = sys.modules["nearcast.kernels.plain"].unpack_standing.plain
    kinds = ["u4", "u2", "f8", "f8", "i4", "i4", "i4", "u8", "u1", "i8", "i4", "f8", "f8"]
    kinds += ["u2", "u4", "u2", "f8", "u1"]
    for size in (0, 1, 5, 1, 0):
        given = [np.full((size, 2) if k == "u8" else size, size + 1, k) for k in kinds]
        shown = unpack(pack_standing(*given))
        assert all(
            np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(given, shown, strict=True)
        )
        if size:
            shown[2][0] = 77.0
            assert given[2][0] == 77.0


def test_a_compiled_kernel_is_entered_without_any_python_in_between():
    """`publish` has 30 µs, and calls twenty of them."""
    _numbers.take_over()
    assert _numbers.func is _numbers.dispatcher
    assert type(_numbers).__call__ is partial.__call__


# --- whole processes -------------------------------------------------------------------------

MODULE = """
import numpy as np
from nearcast.jit import inlined, kernel

@inlined
def _square(x):
    return x * x

@kernel
def squares(values):
    total = 0
    for value in values:
        total += _square(value)
    return total

@kernel
def double(values):
    return 2 * squares(values)

@kernel
def hopeless(values):
    held = {"text": object()}
    return len(held) + values.size - 1
"""

BEFORE = """
import os, signal, sys, time, warnings
import numpy as np
from nearcast.jit import behind, tiers
behind.GRACE = 0.0
from some_kernels import squares, double, hopeless
few = np.arange(4)
def answers(kernel):
    return "compiled" if kernel.func is kernel.__dict__.get("dispatcher") else "plain"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "some_kernels.py").write_text(MODULE)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    kept = {k: v for k, v in os.environ.items() if k not in ("NEARCAST_JIT", "NUMBA_CACHE_DIR")}
    return {**kept, "NEARCAST_CACHE": str(folder / "cache"), "PYTHONPATH": paths, **more}


def run(folder: Path, script: str, **more: str) -> tuple[str, str]:
    """(what it printed, what it complained of) of a process in tiers."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + textwrap.dedent(script)],
        env=environment(folder, **more), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.nbc"))


def test_small_work_is_answered_at_once_and_compiled_behind(folder):
    said, trouble = run(
        folder,
        """
        print(double(few), answers(double), "numba" in sys.modules)
        assert behind.settled(100)
        print(double(few), answers(double))
        print(len(double.dispatcher.stats.cache_hits), len(double.dispatcher.stats.cache_misses))
        """,
    )
    assert said.splitlines() == ["28 plain False", "28 compiled", "1 0"]
    assert trouble == ""
    assert {path.name.split("-")[0] for path in kept(folder)} == {
        "some_kernels.double", "some_kernels.squares", "some_kernels._square",
    }  # fmt: skip


def test_a_part_is_compiled_once_for_all_integers(folder):
    """Constants, narrow and wide integers: parts need no form of their own for each."""
    (folder / "part_kernels.py").write_text("""
from nearcast.jit import kernel

@kernel
def times(value, by, back):
    return -value * by if back else value * by

@kernel
def total(narrow, wide, short):
    return times(narrow[0], 2, True) + times(wide[0], 3, False) + times(7, short, True)
""")
    said, trouble = run(
        folder,
        """
        from part_kernels import times, total
        given = np.array([2**31 - 1], np.int32), np.array([2**40]), 5
        right = total(*given)
        total.take_over()
        print(total.dispatcher(*given) == right == -2 * (2**31 - 1) + 3 * 2**40 - 35)
        print(len(times.dispatcher._parts), len(times.dispatcher.overloads))
        times.take_over()
        print(times(7, 3, True), len(times.dispatcher.overloads))
        """,
        NEARCAST_JIT="1",
    )
    assert said.splitlines() == ["True", "2 0", "-21 1"]  # back, and not; then Python's own
    assert trouble == ""


def test_types_that_come_later_are_learnt_as_well(folder):
    said, trouble = run(
        folder,
        """
        print(squares(few))
        assert behind.settled(100)
        print(squares(few * 0.5), len(squares.dispatcher.signatures))
        assert behind.settled(100)
        print(squares(few * 0.5), len(squares.dispatcher.signatures))
        """,
    )
    assert said.splitlines() == ["14", "3.5 1", "3.5 2"]
    assert trouble == ""


def test_large_work_is_compiled_for_on_the_spot(folder):
    said, trouble = run(
        folder,
        """
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
        from nearcast.jit import progress
        progress._BRIEF = 0.0
        behind.GRACE = 600.0
        print(squares(np.ones(1_000_000, np.int64)), answers(squares))
        """,
    )
    assert said.splitlines() == ["1000000 compiled"]
    assert "nearcast.jit nearcast: compiling for this machine" in trouble


def test_what_was_slow_as_plain_python_is_large_the_next_time(folder):
    said, _ = run(
        folder,
        """
        behind.GRACE = 600.0
        tiers.PATIENCE = 0.05
        many = np.ones(10_000, np.int64)
        print(squares(many), answers(squares))
        tiers.PATIENCE = 1e-6
        print(squares(many), answers(squares))
        """,
    )
    assert said.splitlines() == ["10000 plain", "10000 compiled"]


def test_whoever_measures_has_everything_compiled(folder):
    said, _ = run(
        folder,
        """
        from nearcast import jit
        print(squares(few), answers(squares))
        jit.compile_at_once()
        print(squares(few), answers(squares), os.environ["NEARCAST_JIT"])
        """,
    )
    assert said.splitlines() == ["14 plain", "14 compiled 1"]


def test_the_mode_mixed_answers_with_both(folder):
    said, trouble = run(
        folder,
        """
        seen = []
        plain = squares._interpret
        squares._interpret = lambda *args: seen.append("plain") or plain(*args)
        print({squares(few) for _ in range(40)}, 5 < seen.count("plain") < 35)
        """,
        NEARCAST_JIT="mixed:3",
    )
    assert (said.splitlines(), trouble) == (["{14} True"], "")


def test_a_cache_that_cannot_be_written(folder):
    """Right answers, one warning; what is used much is compiled all the same."""
    (folder / "cache").write_text("not a folder")
    said, trouble = run(
        folder,
        """
        print(squares(few), double(few))
        time.sleep(0.1)
        while behind._behind._keeps: time.sleep(0.01)
        print(squares(few), answers(squares))
        with behind._behind._changed: behind.WORTH = 0.0; behind._behind._changed.notify_all()
        assert behind.settled(100)
        print(squares(few), answers(squares), double(few), answers(double))
        """,
    )
    assert said.splitlines() == ["14 28", "14 plain", "14 compiled 28 compiled"]
    assert trouble.count("CompilerWarning") == 1
    assert "NEARCAST_CACHE" in trouble


def test_a_compiler_that_dies(folder):
    said, trouble = run(
        folder,
        """
        sys.executable = "/bin/false"
        print(squares(few))
        assert behind.settled(100)
        print(squares(few), squares(few * 2), answers(squares))
        """,
    )
    assert said.splitlines() == ["14", "14 56 plain"]
    assert trouble.count("CompilerWarning") == 1
    assert "ended with 1" in trouble


def test_a_compiler_that_cannot_be_started(folder):
    said, trouble = run(
        folder,
        """
        sys.executable = ""
        print(squares(few))
        assert behind.settled(100)
        print(squares(few), answers(squares))
        """,
    )
    assert said.splitlines() == ["14", "14 plain"]
    assert trouble.count("CompilerWarning") == 1


def test_a_kernel_that_cannot_be_compiled(folder):
    """Behind and, where the work is large, on the spot: plain Python answers."""
    said, trouble = run(
        folder,
        """
        print(hopeless(few))
        assert behind.settled(100)
        print(hopeless(few), hopeless(np.zeros(1_000_000)), answers(hopeless))
        """,
    )
    assert said.splitlines() == ["4", "4 1000000 plain"]
    assert trouble.count("CompilerWarning") == 1
    said, trouble = run(folder, "print(hopeless(np.zeros(1_000_000)), hopeless(few))")
    assert said.splitlines() == ["1000000 4"]
    assert trouble.count("CompilerWarning") == 1


def test_warnings_as_errors_do_not_stop_an_answer(folder):
    said, _ = run(
        folder,
        """
        warnings.simplefilter("error")
        sys.executable = "/bin/false"
        print(squares(few))
        assert behind.settled(100)
        print(squares(few), double(few))
        """,
    )
    assert said.splitlines() == ["14", "14 28"]


@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied"])
def test_a_damaged_file_is_compiled_again(folder, harm):
    script = (
        "print(squares(few)); assert behind.settled(100); print(squares(few), answers(squares))"
    )
    run(folder, script)
    [path] = [p for p in kept(folder) if "squares" in p.name]
    good = path.read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    path.write_bytes({"cut": good[:middle], "flipped": flipped, "emptied": b""}[harm])
    said, trouble = run(folder, script)
    assert said.splitlines() == ["14", "14 compiled"]
    assert trouble.count("CompilerWarning") == 1
    assert "damaged" in trouble
    said, trouble = run(folder, script)
    assert said.splitlines() == ["14", "14 compiled"]
    assert trouble == ""


def test_a_full_disk(folder, monkeypatch):
    """What was compiled is used; nothing half written is left."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder / "full"))
    monkeypatch.setattr(troubles, "_said", set())
    import some_kernels  # type: ignore[import-not-found]

    def write(path: Path, _: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write)
    try:
        with pytest.warns(CompilerWarning, match="No space left.*NEARCAST_CACHE") as said:
            assert some_kernels.double.dispatcher(np.arange(4)) == 28
    finally:
        del sys.modules["some_kernels"]
    assert len(said) == 1
    assert not [path for path in (folder / "full").rglob("*") if path.is_file()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _alive(pid)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the child in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("then", ["time.sleep(0.3)", "behind.settled(100)"], ids=["busy", "idle"])
def test_the_compiler_ends_with_its_parent(folder, how, then):
    """Whatever it does, and however the parent ends; what is in the cache is whole."""
    script = (
        BEFORE
        + "behind.IDLE = 600.0\n"
        + textwrap.dedent("""
        print(double(few), flush=True)
        while behind._behind._child is None: time.sleep(0.01)
        pid = behind._behind._child._process.pid
        THEN
        print(pid, flush=True)
        time.sleep(60)
    """).replace("THEN", then)
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        parent.stdout.readline()
        pid = int(parent.stdout.readline())
        assert _alive(pid)
        os.killpg(parent.pid, how)
        _, said = parent.communicate(timeout=120)
    assert parent.returncode == -how
    assert _gone(pid)
    assert said.count("Traceback") == (how is signal.SIGINT)  # its own, for the interrupt
    assert not list((folder / "cache").rglob("*.tmp"))
    said, trouble = run(
        folder, "print(double(few)); assert behind.settled(100); print(double(few))"
    )
    assert (said.split(), trouble) == (["28", "28"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_a_compiler_of_its_own(folder):
    said, trouble = run(
        folder,
        """
        behind.GRACE = 0.2
        print(squares(few), flush=True)
        pid = os.fork()
        print(double(few), behind.settled(100), answers(double), answers(squares), flush=True)
        if pid == 0: sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
    )
    assert said.splitlines() == ["14"] + ["28 True compiled compiled"] * 2
    assert trouble == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("when", ["numba.core.errors", "numba.core.typed_passes"])
def test_a_fork_waits_for_the_import_of_numba(folder, when):
    """Else the module's lock is held in the forked process by a thread that is not there."""
    said, trouble = run(
        folder,
        f"""
        from importlib.abc import MetaPathFinder
        from threading import Event
        begun = Event()
        class Slow(MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == {when!r}:
                    begun.set()
                    time.sleep(1.0)
        sys.meta_path.insert(0, Slow())
        behind.GRACE = 0.0
        print(squares(few), flush=True)
        begun.wait()
        pid = os.fork()
        if pid == 0:
            print(squares(np.ones(1_000_000, np.int64)) > 0, answers(squares), flush=True)
            os._exit(0)
        for _ in range(500):
            if os.waitpid(pid, os.WNOHANG)[0]: break
            time.sleep(0.1)
        else:
            os.kill(pid, signal.SIGKILL)
            print("it hangs")
        """,
    )
    assert said.splitlines() == ["14", "True compiled"]
    assert trouble == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_lets_go_of_its_parents_compiler(folder):
    """The child sees its input end although a forked process lives on."""
    said, _ = run(
        folder,
        """
        print(double(few), flush=True)
        while behind._behind._child is None: time.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            time.sleep(200)
            os._exit(0)
        child = behind._behind._child._process
        os.close(child.stdin.fileno())
        try: print(child.wait(100))
        except Exception as error: print(type(error).__name__)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
        """,
    )
    assert said.splitlines() == ["28", "0"]


def test_threads_that_call_while_it_switches(folder):
    said, trouble = run(
        folder,
        """
        from threading import Thread
        wrong, over = [], []
        def work(kernel, right):
            while not over:
                if kernel(few) != right: wrong.append(kernel)
        time.sleep(0.001)  # the compiler behind needs the interpreter, too
        threads = [Thread(target=work, args=pair) for pair in [(squares, 14), (double, 28)] * 2]
        for thread in threads: thread.start()
        time.sleep(0.2)
        print(behind.settled(100))
        over.append(True)
        for thread in threads: thread.join()
        print(wrong, answers(squares), answers(double))
        """,
    )
    assert said.splitlines() == ["True", "[] compiled compiled"]
    assert trouble == ""


def test_short_scripts_end_without_a_compiler(folder):
    said, trouble = run(
        folder,
        """
        behind.GRACE = 30.0
        started = time.perf_counter()
        print(double(few), "numba" in sys.modules)
        import atexit
        atexit.register(lambda: print("numba" in sys.modules, behind._behind._child))
        """,
    )
    assert said.splitlines() == ["28 False", "False None"]
    assert trouble == ""
    assert not kept(folder)
