"""How the server is run by others: the unit and the container of docs/server.md say what is so."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from nearcast.server.settings import gather
from tests.served import free_port, serving

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/server.md").read_text(encoding="utf-8")
NEARCAST = [sys.executable, "-c", "from nearcast.cli import main; main()"]


def block(language: str, holds: str) -> str:
    """The only example of a language that has some text in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (only,) = [each for each in found if holds in each]
    return str(only)


@pytest.fixture
def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block("ini", "[Service]"))
    return parser


def shown(command: list[str], folder: Path, **environment: str) -> str:
    """The settings that a command would run a server with."""
    done = subprocess.run(
        [*command, "--show-config"], capture_output=True, text=True, check=False, cwd=folder,
        env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("systemd-analyze")
def test_systemd_has_nothing_against_the_unit(unit: ConfigParser, tmp_path: Path):
    text = block("ini", "[Service]")
    program = shlex.split(unit["Service"]["ExecStart"])[0]
    file = tmp_path / "nearcast.service"
    file.write_text(text.replace(program, sys.executable))  # that one is there
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "nearcast" in line]  # others have theirs
    assert (done.returncode, said) == (0, [])


def test_the_unit_begins_a_server_on_its_own_folder(unit: ConfigParser, tmp_path: Path):
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "nearcast"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    name, _, cache = service["Environment"].partition("=")
    assert name == "NEARCAST_CACHE"
    assert cache.startswith(service["WorkingDirectory"])
    at = arguments.index("--config") + 1
    assert Path(arguments[at]).is_absolute()
    (tmp_path / "n.toml").write_text(shown([*NEARCAST, "serve"], tmp_path))  # as the page says
    arguments[at] = "n.toml"
    said = shown([*NEARCAST, *arguments], tmp_path, **{name: str(tmp_path)})
    settings = tomllib.loads(said)
    assert settings["store"] == "sqlite:///nearcast.db"  # in the folder that it works in
    assert float(service["TimeoutStopSec"]) > settings["stop_s"]
    assert gather({}, tmp_path / "n.toml", {})[0] == gather({}, None, {})[0]


def test_the_container_begins_a_server_on_its_volume(tmp_path: Path):
    text = block("dockerfile", "FROM")
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    wanted = re.search(r"/src\[(\w+)\]", lines["RUN"])
    assert wanted
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert wanted[1] in project["optional-dependencies"]
    assert (ROOT / "constraints.txt").is_file()
    program, *arguments = json.loads(lines["CMD"])
    assert program == "nearcast"
    settings = tomllib.loads(shown([*NEARCAST, *arguments], tmp_path))
    assert settings["host"] == "0.0.0.0"
    assert settings["store"].startswith(f"sqlite:///{lines['VOLUME']}/")
    assert str(settings["port"]) == lines["EXPOSE"]


def test_the_containers_health_is_whether_it_answers():
    (check,) = re.findall(r"^HEALTHCHECK CMD (.*)$", block("dockerfile", "FROM"), re.MULTILINE)
    python, *arguments = shlex.split(check)
    assert python == "python"
    with serving(port=free_port()) as server:
        said = [each.replace("http://127.0.0.1:8642", server.url) for each in arguments]
        assert said != arguments
        assert subprocess.run([sys.executable, *said], check=False).returncode == 0
    quiet = subprocess.run([sys.executable, *said], capture_output=True, check=False)
    assert quiet.returncode != 0
