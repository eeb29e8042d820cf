"""The tables, and how those of older releases become them.

A new release appends a step to `STEPS` and never changes one: a new store is made by all of
them, an old one by those it lacks. They are written once, in SQLite's words, of which PostgreSQL's
follow; only what looks too different in the two is there for each. Every key begins with the
tenant.

- `things`: subscriptions, composites and what else has an id of theirs, by `kind`; `changed` is
  the last entry of the log when it came.
- `log`: what has come, in order: events, and what else patterns were given (`kind`).
- `events`: the live ones (`until` is null), and those that have expired lately; `publisher` is
  the key that brought it, if one did. Things that have told as much as they were to are remembered
  there like events that have expired, of no entry (0) and under keys that no event has.
- `changes`: subscriptions as they stood before they were replaced, and removals (no `body`), by
  the number of the change; those that stand are in `things`. `entry` is the last entry of the log
  when it came, `over` when it was replaced. Triggers write it: they see a thing as it was.
- `told`: pairs that must not be told again, though that does not follow from the rest.
- `saved`: what patterns wait for, and which saved matcher goes with the file; `removed` are
  subscriptions that are gone since, and may be in it.
- `outbox`: notifications that are not acknowledged; they refer to entries of the log, and
  `extra` says what a fence saw.
- `objects`: what fences know of an object, by the digest of what they count (`grp`).
- `sinks`: where a subscriber's notifications are sent, and the number up to which they were
  (`upto`); `disabled` says why nothing is sent any more. `settings` is JSON, secrets among it.
- `deliveries`: which things' notifications go to which sink: those after the number `since`, and
  up to `ended` if the thing has ended or goes elsewhere.
- `dead_letters`: notifications that could not be sent, as they would have been; `replay` is the
  sink that is to be given one once more.
- `standings`: how things stand by their terms: how much was told, whether they are paused, when the
  first of what is held was found, and the entry of the log up to which they are told nothing.
- `held`: notifications that wait, in the order they were found; otherwise as in `outbox`.
- `turns`: what waits for late events before fences hear of it, at what moment and under which
  number among others: an event refers to the log; a report of a place, or that an object is lost,
  is in `body`. (A fence that waits says so itself.)
"""

from __future__ import annotations

from typing import NamedTuple

from nearcast.errors import StoreError

__all__ = ["STEPS", "VERSION", "Step", "missing"]


class Step(NamedTuple):
    """What a release has added."""

    tables: str
    sqlite: str = ""
    postgres: str = ""


STEPS: tuple[Step, ...] = (
    Step("""
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
    """),
    Step("""
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
    """),
    Step("""
    CREATE TABLE objects (
        tenant INTEGER NOT NULL, grp INTEGER NOT NULL, object TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (tenant, grp, object)
    ) STRICT, WITHOUT ROWID;
    """),
    Step("""
    CREATE INDEX things_subscriber ON things (tenant, subscriber, id);
    ALTER TABLE events ADD COLUMN publisher TEXT;
    """),
    Step("""
    ALTER TABLE places ADD COLUMN heading REAL;
    """),
    Step(
        """
    ALTER TABLE things ADD COLUMN entry INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE changes (
        tenant INTEGER NOT NULL, number INTEGER NOT NULL, entry INTEGER NOT NULL,
        over INTEGER NOT NULL, id TEXT NOT NULL, subscriber TEXT, expires INTEGER, body TEXT,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX changes_over ON changes (tenant, over);
    """,
        sqlite="""
    CREATE TRIGGER things_replaced BEFORE UPDATE ON things
    WHEN old.kind IN ('subscription', 'moving') BEGIN
        INSERT OR REPLACE INTO changes VALUES (old.tenant, old.changed, old.entry, new.entry,
            old.id, old.subscriber, old.expires, old.body);
    END;
    CREATE TRIGGER things_turned BEFORE UPDATE ON things
    WHEN old.kind IN ('subscription', 'moving')
        AND new.kind NOT IN ('subscription', 'moving', 'gone') BEGIN
        INSERT OR REPLACE INTO changes VALUES (new.tenant, new.changed, new.entry, new.entry,
            new.id, NULL, NULL, NULL);
    END;
    CREATE TRIGGER things_removed BEFORE DELETE ON things WHEN old.kind = 'gone' BEGIN
        INSERT OR REPLACE INTO changes VALUES (old.tenant, old.changed, old.entry, old.entry,
            old.id, NULL, NULL, NULL);
    END;
    """,
        postgres="""
    CREATE FUNCTION things_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO changes VALUES (old.tenant, old.changed, old.entry, old.entry, old.id,
                NULL, NULL, NULL);
            RETURN old;
        END IF;
        INSERT INTO changes VALUES (old.tenant, old.changed, old.entry, new.entry, old.id,
            old.subscriber, old.expires, old.body);
        IF new.kind NOT IN ('subscription', 'moving', 'gone') THEN
            INSERT INTO changes VALUES (new.tenant, new.changed, new.entry, new.entry, new.id,
                NULL, NULL, NULL);
        END IF;
        RETURN new;
    END $$;
    CREATE TRIGGER things_replaced BEFORE UPDATE ON things FOR EACH ROW
    WHEN (old.kind IN ('subscription', 'moving')) EXECUTE FUNCTION things_changed();
    CREATE TRIGGER things_removed BEFORE DELETE ON things FOR EACH ROW
    WHEN (old.kind = 'gone') EXECUTE FUNCTION things_changed();
    """,
    ),
    Step("""
    CREATE TABLE sinks (
        tenant INTEGER NOT NULL, number INTEGER NOT NULL, subscriber TEXT NOT NULL,
        protocol TEXT NOT NULL, uri TEXT NOT NULL, settings TEXT NOT NULL,
        upto INTEGER NOT NULL, disabled TEXT,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE deliveries (
        tenant INTEGER NOT NULL, thing TEXT NOT NULL, sink INTEGER NOT NULL,
        since INTEGER NOT NULL, ended INTEGER,
        PRIMARY KEY (tenant, thing, sink)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE dead_letters (
        tenant INTEGER NOT NULL, number INTEGER NOT NULL, subscriber TEXT NOT NULL,
        sink INTEGER NOT NULL, protocol TEXT NOT NULL, uri TEXT NOT NULL, thing TEXT NOT NULL,
        seq INTEGER NOT NULL, why TEXT NOT NULL, tries INTEGER NOT NULL, at INTEGER NOT NULL,
        body TEXT NOT NULL, replay INTEGER,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX dead_letters_subscriber ON dead_letters (tenant, subscriber, number);
    CREATE INDEX dead_letters_sink ON dead_letters (tenant, sink, number);
    CREATE INDEX dead_letters_replay ON dead_letters (tenant, replay, number)
        WHERE replay IS NOT NULL;
    """),
    Step("""
    CREATE TABLE standings (
        tenant INTEGER NOT NULL, thing TEXT NOT NULL, told INTEGER NOT NULL,
        paused INTEGER NOT NULL, opened INTEGER, since INTEGER,
        PRIMARY KEY (tenant, thing)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE held (
        tenant INTEGER NOT NULL, thing TEXT NOT NULL, number INTEGER NOT NULL, subscriber TEXT,
        entry INTEGER NOT NULL, at INTEGER NOT NULL, extra TEXT,
        PRIMARY KEY (tenant, thing, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX held_entry ON held (tenant, entry);
    """),
    Step("""
    CREATE TABLE turns (
        tenant INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, entry INTEGER,
        kind TEXT NOT NULL, body TEXT,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX turns_entry ON turns (tenant, entry) WHERE entry IS NOT NULL;
    """),
)
#: The version of the tables that this release reads and writes.
VERSION = len(STEPS)


def missing(version: int, name: str) -> tuple[Step, ...]:
    """The steps that a store of this version lacks; StoreError if it knows more than we do."""
    if version > VERSION:
        raise StoreError(
            f"{name}: written by a newer nearcast (version {version} of the tables, and this "
            f"release knows {VERSION}); open it with that one"
        )
    return STEPS[version:]
