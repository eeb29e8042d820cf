"""What a test needs beyond Python and make: `@pytest.mark.needs("node")`.

Where it is missing the test is skipped and says why. In CI (`CI=true`, which `.ci/run` sets)
it fails instead: there everything must be tested, and `.ci/run` installs what it takes.
"""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["require"]


def require(program: str) -> None:
    """Skip the running test where a program is not on the PATH; in CI, fail it."""
    if shutil.which(program) is not None:
        return
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(f"{program} is not installed; .ci/run must see to it", pytrace=False)
    pytest.skip(f"{program} is not installed")
