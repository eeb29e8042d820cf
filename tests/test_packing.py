"""Arrays that kernels take as one."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast.jit import kernel, packing

pack, unpack = packing("f8", "u2:2", "i4")


@kernel
def _mixed(given):
    first, second, third = unpack(given)
    first[1] = second[1, 2] + third[0]
    return second.shape[0] * 10 + second.shape[1] + third.size


def test_a_kernel_works_on_the_arrays_themselves() -> None:
    first, third = np.zeros(3), np.array([40, 1], np.int32)
    second = np.arange(6, dtype=np.uint16).reshape(2, 3)
    assert _mixed(pack(first, second, third)) == 25
    assert first.tolist() == [0.0, 45.0, 0.0]


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((2, 3), np.uint32),
        np.zeros(6, np.uint16),
        np.zeros((2, 6), np.uint16)[:, ::2],
        np.broadcast_to(np.uint16(1), (2, 3)),
    ],
)
def test_what_a_kernel_would_take_for_something_else_is_refused(wrong) -> None:
    with pytest.raises(TypeError, match="to pack"):
        pack(np.zeros(3), wrong, np.zeros(2, np.int32))
