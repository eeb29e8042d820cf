"""The public surface: fixed names, loaded when used, and nothing heavy before that."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast

PROMISED = {
    "Around",
    "Box",
    "Circle",
    "Composite",
    "Event",
    "Fence",
    "Matcher",
    "Move",
    "Mover",
    "NearcastError",
    "Point",
    "Polygon",
    "Subscription",
}


def test_all_holds_the_promised_names():
    assert set(nearcast.__all__) >= PROMISED
    assert len(nearcast.__all__) == len(set(nearcast.__all__))
    assert list(nearcast.__all__) == sorted(nearcast.__all__)


@pytest.mark.parametrize("name", nearcast.__all__)
def test_every_name_is_there_and_listed(name: str):
    assert getattr(nearcast, name) is not None
    assert name in dir(nearcast)


def test_star_import_brings_them_all():
    names: dict[str, object] = {}
    exec("from nearcast import *", names)
    assert set(nearcast.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error():
    name = "Macther"
    with pytest.raises(AttributeError, match="no attribute 'Macther'"):
        getattr(nearcast, name)


def test_the_version_is_the_package_version():
    from importlib.metadata import version

    assert nearcast.__version__ == version("nearcast")


def test_every_error_is_in_the_tree():
    from nearcast import errors

    made = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and each.__module__ == errors.__name__
    }
    assert set(errors.__all__) == {name for name in made if not name.startswith("_")}
    for name in errors.__all__:
        root = UserWarning if name.endswith("Warning") else nearcast.NearcastError
        assert issubclass(getattr(errors, name), root)


def test_import_loads_nothing_heavy():
    script = "import json, sys, nearcast; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"numba", "pyarrow", "shapely", "matplotlib", "pyproj", "rich", "typer", "pyspark"}
    heavy |= {"lark"}
    assert heavy & set(json.loads(done.stdout)) == set()


def modules() -> list[str]:
    root = Path(nearcast.__file__).parent
    return sorted(found.name for found in pkgutil.walk_packages([str(root)], prefix="nearcast."))


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_is_and_exports_what_it_lists(name: str):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), f"{name}.__all__ lists {public}"
