"""Which store it is, whatever it is called and wherever it lies."""

from __future__ import annotations

from secrets import token_hex

from nearcast.storage.statements import FACT, SET_FACT
from nearcast.storage.tables import Tables

__all__ = ["identity_of"]


def identity_of(database: Tables) -> str:
    """The identity of a store, given to it when it is first asked for; a copy has the same."""
    known = database.value(FACT, (0, "identity"))
    if known is not None:
        return str(known)
    made = token_hex(8)
    database.stage(SET_FACT, (0, "identity", made))
    database.flush()
    return made
