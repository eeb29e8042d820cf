"""The page as it is shipped: built from web/ byte by byte, loading nothing from elsewhere."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nearcast.errors import ValidationError
from nearcast.server.page import build
from nearcast.server.run import Running
from nearcast.server.settings import Settings
from tests.pages import WEB, web_tools
from tests.served import client, serving

STATIC = Path(__file__).parents[1] / "src" / "nearcast" / "server" / "static"
#: What a browser loads before somebody opens a tool, and all there is, gzipped.
MOST_KB = 700


@pytest.mark.needs("node", "npm")
@pytest.mark.slow
def test_what_is_shipped_is_what_web_builds(tmp_path: Path):
    tools = web_tools()
    copy = tmp_path / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(tools)
    out = tmp_path / "static"
    for command in (["tsc", "--noEmit"], ["vite", "build", "--outDir", str(out)]):
        run = subprocess.run(
            [str(tools / ".bin" / command[0]), *command[1:]], cwd=copy, capture_output=True,
            text=True, timeout=600, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
    built = {file.name: file.read_bytes() for file in out.iterdir()}
    shipped = {file.name: file.read_bytes() for file in STATIC.iterdir()}
    assert built.keys() == shipped.keys(), "run `npm run build` in web/, and commit the result"
    differing = [name for name in built if built[name] != shipped[name]]
    assert not differing, "run `npm run build` in web/, and commit the result"


def test_the_lock_names_no_registry():
    text = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert "registry" not in text


def test_the_page_is_small_and_says_whose_work_is_in_it():
    packed = sum(len(gzip.compress(file.read_bytes())) for file in STATIC.iterdir())
    assert packed <= MOST_KB * 1000
    licences = (STATIC / "licences.txt").read_text()
    for name in ("maplibre-gl", "terra-draw", "@codemirror/view", "uplot", "lit"):
        assert re.search(rf"^{re.escape(name)} \d", licences, re.MULTILINE), name


def test_the_page_is_served_with_a_policy_that_lets_nothing_else_in():
    with serving() as server, client(server) as http:
        page = http.get("/")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert not re.search(r"(src|href)=\"(?!/)", page.text)
        assert f'content="{build()}"' in page.text
        for name in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
            found = http.get(name)
            assert found.status_code == 200, name
            assert found.headers["content-security-policy"] == policy
            again = http.get(name, headers={"If-None-Match": found.headers["etag"]})
            assert again.status_code == 304
        plain = http.get("/", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.text == page.text
        for name in ("../server/app.py", "%2e%2e%2fapp.py", "nothing.js", "app.py", ""):
            assert http.get(f"/static/{name}").status_code == 404, name


def test_tiles_are_a_url_and_only_their_server_is_let_in():
    with serving(tiles="https://tiles.example.org:8080/{z}/{x}/{y}.png?a=b") as server:
        with client(server) as http:
            policy = http.get("/").headers["content-security-policy"]
        assert "connect-src 'self' https://tiles.example.org:8080;" in policy
        assert policy.count("example") == 1
    for bad in ("tiles", "ftp://a/{z}/{x}/{y}", "https://a/{z}/{x}", "https://a;b/{z}/{x}/{y}",
                "https:///{z}/{x}/{y}", "https://a 'unsafe-eval'/{z}/{x}/{y}"):  # fmt: skip
        with pytest.raises(ValidationError) as refused:
            Settings(tiles=bad)
        assert refused.value.field == "tiles"


def test_a_base_is_served_from_a_file_and_checked_before_anything_else(tmp_path: Path):
    good = tmp_path / "park.geojson"
    text = '{"type": "FeatureCollection", "features": []}'
    good.write_text(text)
    with serving(base=str(good)) as server, client(server) as http:
        assert http.get("/v1/base").text == text
    with serving() as server, client(server) as http:
        assert http.get("/v1/base").json()["features"] == []
    bad = tmp_path / "bad.geojson"
    for said in ("", "no JSON", "[]", '{"type": "Point"}', "[" * 100_000):
        bad.write_text(said)
        with pytest.raises(ValidationError) as refused:
            Running(Settings(store="memory:", port=0, base=str(bad)))
        assert refused.value.field == "base"
    with pytest.raises(ValidationError, match="file"):
        Running(Settings(store="memory:", port=0, base=str(tmp_path / "none")))
