"""Scripts that need a process of their own, for a process has one Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def said_by(script: str, scratch: Path) -> dict[str, Any]:
    """What a module of the tests prints last, as JSON, when it is run as a script."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.{script}", str(scratch)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
