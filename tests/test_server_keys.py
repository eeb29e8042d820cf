"""Keys that come and go while a server runs, and who is connected meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import NearcastError
from nearcast.server.auth import ANYBODY, OWNER, Keyring
from nearcast.server.run import Running
from nearcast.storage.keys import Key, digest_of, name_of
from tests.served import client, make_keys, serving


def names(http: httpx2.Client) -> dict[str, str]:
    """Keys by role, and tenant where there is one."""
    keys = http.get("/v1/keys").json()["keys"]
    return {each["role"] + each["tenant"]: each["name"] for each in keys}


def on_loopback(server: Running, key: str | None = None) -> httpx2.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = f"http://127.0.0.1:{server.port}"
    return httpx2.Client(base_url=url, headers=headers, timeout=240, verify=False)


# --- a server that has no key any more --------------------------------------------------------


def test_without_its_last_key_a_server_on_the_network_answers_nobody(tmp_path: Path):
    store = tmp_path / "k.db"
    (key,) = make_keys(store, {"role": "admin"})
    with serving(store, host="0.0.0.0") as server, on_loopback(server, key) as admin:
        assert admin.delete(f"/v1/keys/{names(admin)['admin']}").status_code == 204
        with on_loopback(server) as nobody:
            assert nobody.get("/v1/log").status_code == 401
            assert nobody.post("/v1/keys", json={"role": "admin"}).status_code == 401
        assert admin.get("/v1/log").status_code == 401
        # whoever owns the store may still make one
        said = CliRunner().invoke(app, ["keys", "create", "--role", "admin", "--store", str(store)])
        assert said.exit_code == 0, said.output
        with on_loopback(server, said.stdout.strip()) as made:
            assert made.get("/v1/log").status_code == 200


def test_a_server_that_was_open_is_closed_for_good_by_its_first_key(tmp_path: Path):
    with serving(tmp_path / "k.db") as server, client(server) as nobody:
        key = nobody.post("/v1/keys", json={"role": "admin"}).json()["key"]
        assert nobody.get("/v1/log").status_code == 401
        with client(server, key) as admin:
            assert admin.delete(f"/v1/keys/{name_of(key)}").status_code == 204
        assert nobody.get("/v1/log").status_code == 401


def key(text: str) -> tuple[bytes, Key]:
    return digest_of(text), Key("", "admin", None, 0, name_of(text))


def asks(ring: Keyring, text: str | None = None) -> Any:
    headers = {"host": "localhost"}
    return ring.asks(headers if text is None else headers | {"authorization": f"Bearer {text}"})


def test_keys_that_are_all_gone_open_nothing():
    """As a server hears of them that shares its store."""
    ring = Keyring(open=True)
    ring.renew([])
    assert asks(ring) is ANYBODY
    ring.renew([key("a")])
    ring.renew([])
    assert asks(ring) is None
    assert not ring.holds(ANYBODY)
    assert ring.holds(OWNER)
    with pytest.raises(NearcastError, match="not known"):
        asks(ring, "a")
    assert asks(Keyring([key("a")])) is None
    assert asks(Keyring()) is None
