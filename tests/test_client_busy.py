"""A client of a server that has too much to do."""

from __future__ import annotations

from typing import Any

from nearcast import Event, Subscription
from nearcast.client import Client
from nearcast.server.problems import busy
from tests.served import serving


def test_a_phone_says_again_what_a_busy_server_refused():
    with serving() as server, Client(server.url) as client:
        client.subscribe(Subscription("s", "ann"))
        client.publish(Event("e"))
        submit, refused = server.desk.core.submit, 0

        def refuse(*of: Any, **more: Any) -> Any:
            nonlocal refused
            if refused < 2:
                refused += 1
                raise busy("much is waiting", 1)
            return submit(*of, **more)

        with client.phone("ann") as phone:
            told = phone.told(120)
            assert told is not None
            server.desk.core.submit = refuse  # type: ignore[method-assign]
            told.ack()
        assert refused == 2
        assert client.page("ann").notifications == ()
