"""Pictures for a terminal: points as dots of braille characters, 2 × 4 to a character."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["braille"]

Floats = npt.NDArray[np.float64]

# The bit of each dot in a braille character, by row and column.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)


def braille(lon: Floats, lat: Floats, columns: int, rows: int) -> list[str]:
    """Draw points as `rows` lines of at most `columns` characters, north up, shapes kept.

    A degree of longitude is drawn as short as it is at the points' latitude.
    """
    squeeze = np.cos(np.radians(lat.mean()))
    x, y = (lon - lon.min()) * squeeze, lat.max() - lat
    scale = min((2 * columns - 1) / max(x.max(), 1e-9), (4 * rows - 1) / max(y.max(), 1e-9))
    across = np.rint(x * scale).astype(np.int64)
    down = np.rint(y * scale).astype(np.int64)
    cells = np.zeros((rows, columns), np.uint32)
    bits = _BITS[down % 4, across % 2]
    np.bitwise_or.at(cells, (down // 4, across // 2), bits)
    return ["".join(map(chr, 0x2800 + row)).rstrip("\u2800") for row in cells]
