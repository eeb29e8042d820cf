"""The other end of a server: its verbs from Python, waiting or not.

`Client` waits for every answer, `AsyncClient` is awaited; both have the broker's verbs. `calls`
says what each sends and how its answer is read, `retries` what is tried again and when, `phone`
is a subscriber on a socket,
`publisher` one who publishes where it is and keeps silent where that is nobody's business.
"""

from nearcast.client.aio import AsyncClient
from nearcast.client.answers import Checked, Placed, Published, Told
from nearcast.client.blocking import Client
from nearcast.client.phone import AsyncPhone, Phone
from nearcast.client.publisher import AsyncPublisher, Publisher

__all__ = [
    "AsyncClient",
    "AsyncPhone",
    "AsyncPublisher",
    "Checked",
    "Client",
    "Phone",
    "Placed",
    "Published",
    "Publisher",
    "Told",
]
