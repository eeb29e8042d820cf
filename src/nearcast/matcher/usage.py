"""Which strings and words of a schema are in use, and when it is time to look."""

from __future__ import annotations

import numpy as np

from nearcast.index.clauses import ClauseStore
from nearcast.index.events import EventStore
from nearcast.model.schema import Flags, Schema

__all__ = ["allowed", "check", "of"]

_FEW = 1024  # texts that are not worth a look
_SHARE = 8  # items of the stores for which a text may wait


def allowed(schema: Schema, clauses: ClauseStore, events: EventStore) -> int:
    """How many texts there may be before it is worth looking for those that nobody uses.

    As many again as are in use now, or a share of what would have to be looked at: so what is
    not needed takes no more than what is, and looking costs little for each text that came.
    """
    return schema.texts + max(_FEW, schema.texts, (clauses.items + events.items) // _SHARE)


def of(schema: Schema, clauses: ClauseStore, events: EventStore) -> tuple[Flags, Flags]:
    """A flag for each code of a string and of a word: whether a clause or an event has it. O(n)."""
    strings, words = schema.unused()
    textual = np.array([kind == "string" for _, kind in schema.columns])
    for attr, value, word in (clauses.codes(), events.codes()):
        strings[value[textual[attr]].astype(np.int64)] = True
        words[word] = True
    return strings, words


def check(schema: Schema, clauses: ClauseStore, events: EventStore) -> None:
    """Raise AssertionError where something is in use that the schema has freed."""
    strings, words = of(schema, clauses, events)
    assert set(np.flatnonzero(strings).tolist()) <= set(schema.strings.values())
    assert set(np.flatnonzero(words).tolist()) <= set(schema.words.values())
