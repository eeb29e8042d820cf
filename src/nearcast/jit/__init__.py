"""The one door to the compiler, and what answers until it is done.

`kernel` makes of a function two forms with the same answers: plain Python, and machine code
that numba compiles, that is kept on disk and releases the GIL while it runs. A kernel that is
not compiled yet answers small work as plain Python at once; behind, a process compiles what
was met (`behind`), and the compiled form takes over when it is there. Work that would take
plain Python long is compiled for on the spot, which says so (`progress`).

`NEARCAST_JIT` decides otherwise: with `1` every kernel is compiled before it first answers
(benchmarks, tests), with `0` none ever is (coverage, debugging), with `mixed` a coin says for each
call which form answers (tests), `mixed:7` with another seed.
"""

from nearcast.jit.clocks import compile_seconds
from nearcast.jit.kernel_files import cache_directory, kernel_sources, module_cache
from nearcast.jit.modes import compile_at_once, compiled, parallel_threads
from nearcast.jit.primitives import packing, prefetcher, word_reader, word_writer
from nearcast.jit.progress import shown
from nearcast.jit.tiers import Kernel, brief_kernel, inlined, kernel

__all__ = [
    "Kernel",
    "brief_kernel",
    "cache_directory",
    "compile_at_once",
    "compile_seconds",
    "compiled",
    "inlined",
    "kernel",
    "kernel_sources",
    "module_cache",
    "packing",
    "parallel_threads",
    "prefetcher",
    "shown",
    "word_reader",
    "word_writer",
]
