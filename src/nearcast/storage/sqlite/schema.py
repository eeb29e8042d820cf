"""The tables, and how those of older releases become them.

A file's version is SQLite's `user_version`. A new release appends a step to `STEPS` and never
changes one: a new file is made by all of them, an old one by those it lacks. Every key begins
with the tenant.

- `things`: subscriptions, composites and what else has an id of theirs, by `kind`; `changed` is
  the last entry of the log when it came.
- `log`: what has come, in order: events, and what else patterns were given (`kind`).
- `events`: the live ones (`until` is null), and those that have expired lately; `publisher` is
  the key that brought it, if one did.
- `told`: pairs that must not be told again, though that does not follow from the rest.
- `saved`: what patterns wait for, and which saved matcher goes with the file; `removed` are
  subscriptions that are gone since, and may be in it.
- `outbox`: notifications that are not acknowledged; they refer to entries of the log, and
  `extra` says what a fence saw.
- `objects`: what fences know of an object, by the digest of what they count (`grp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.errors import StoreError

if TYPE_CHECKING:
    import apsw

__all__ = ["APPLICATION", "STEPS", "VERSION", "migrate"]

#: SQLite's `application_id` of our files: "ncst".
APPLICATION = 0x6E637374

STEPS = (
    """
    CREATE TABLE tenants (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE facts (
        tenant INTEGER NOT NULL, name TEXT NOT NULL, value ANY,
        PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE things (
        tenant INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, subscriber TEXT,
        expires INTEGER, arrived INTEGER NOT NULL, changed INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE log (
        tenant INTEGER NOT NULL, entry INTEGER NOT NULL, kind TEXT NOT NULL, at INTEGER,
        body TEXT NOT NULL,
        PRIMARY KEY (tenant, entry)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        tenant INTEGER NOT NULL, key TEXT NOT NULL, entry INTEGER NOT NULL, content BLOB,
        until INTEGER,
        PRIMARY KEY (tenant, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX events_live ON events (tenant, entry) WHERE until IS NULL;
    CREATE INDEX events_past ON events (tenant, until) WHERE until IS NOT NULL;
    CREATE TABLE told (
        tenant INTEGER NOT NULL, subscription TEXT NOT NULL, entry INTEGER NOT NULL,
        PRIMARY KEY (tenant, subscription, entry)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX told_entry ON told (tenant, entry);
    CREATE TABLE subscribers (
        tenant INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL,
        last INTEGER NOT NULL, acknowledged INTEGER NOT NULL,
        PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE outbox (
        tenant INTEGER NOT NULL, subscriber INTEGER NOT NULL, seq INTEGER NOT NULL,
        thing TEXT NOT NULL, entry INTEGER NOT NULL, at INTEGER NOT NULL, extra TEXT,
        PRIMARY KEY (tenant, subscriber, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX outbox_entry ON outbox (tenant, entry);
    CREATE TABLE places (
        tenant INTEGER NOT NULL, subscriber TEXT NOT NULL, x REAL NOT NULL, y REAL NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (tenant, subscriber)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE saved (
        tenant INTEGER NOT NULL, part TEXT NOT NULL, entry INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (tenant, part)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE INDEX things_changed ON things (tenant, changed);
    CREATE TABLE keys (
        tenant INTEGER NOT NULL, digest BLOB NOT NULL, role TEXT NOT NULL, subscriber TEXT,
        made INTEGER NOT NULL,
        PRIMARY KEY (digest)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX keys_tenant ON keys (tenant);
    CREATE TABLE removed (
        tenant INTEGER NOT NULL, id TEXT NOT NULL, changed INTEGER NOT NULL,
        PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE objects (
        tenant INTEGER NOT NULL, grp INTEGER NOT NULL, object TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (tenant, grp, object)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE INDEX things_subscriber ON things (tenant, subscriber, id);
    ALTER TABLE events ADD COLUMN publisher TEXT;
    """,
    """
    ALTER TABLE places ADD COLUMN heading REAL;
    """,
)
#: The version of the tables that this release reads and writes.
VERSION = len(STEPS)


def migrate(connection: apsw.Connection, name: str) -> None:
    """Bring a file up to this release, all the way or not at all; called in a transaction."""
    version = connection.pragma("user_version")
    application = connection.pragma("application_id")
    empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get
    if application != APPLICATION and not empty:
        raise StoreError(f"{name}: a database, but not one of nearcast's; name another file")
    if version > VERSION:
        raise StoreError(
            f"{name}: written by a newer nearcast (version {version} of the tables, and this "
            f"release knows {VERSION}); open it with that one"
        )
    for step in STEPS[version:]:
        connection.execute(step)
    if version < VERSION:
        connection.pragma("application_id", APPLICATION)
        connection.pragma("user_version", VERSION)
