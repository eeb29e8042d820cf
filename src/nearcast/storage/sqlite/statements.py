"""What the store asks SQLite, by name. The tenant comes first wherever it can."""

from __future__ import annotations

SET_FACT = "INSERT OR REPLACE INTO facts VALUES (?, ?, ?)"

# -- things: what has an id, in the order it came ---------------------------------------------
THINGS = """
    SELECT id, kind, subscriber, expires, changed, body FROM things
    WHERE tenant = ? ORDER BY arrived
"""
THINGS_AFTER = """
    SELECT id, kind, subscriber, expires, body FROM things
    WHERE tenant = ? AND id > ? AND kind IN (?, ?) ORDER BY id LIMIT ?
"""
THINGS_OF = """
    SELECT id, kind, subscriber, expires, body FROM things
    WHERE tenant = ? AND subscriber = ? AND id > ? AND kind IN (?, ?) ORDER BY id LIMIT ?
"""
COUNT_OF = "SELECT count(*) FROM things WHERE tenant = ? AND subscriber = ?"
PUT_THING = """
    INSERT INTO things VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET kind = excluded.kind, subscriber = excluded.subscriber,
        expires = excluded.expires, changed = excluded.changed, body = excluded.body
"""
CHANGED = """
    SELECT id, kind FROM things WHERE tenant = ? AND changed > ? ORDER BY changed
"""
REMOVED = "SELECT id FROM removed WHERE tenant = ? AND changed > ?"
ADD_REMOVED = "INSERT OR REPLACE INTO removed VALUES (?, ?, ?)"
FORGET_REMOVED = "DELETE FROM removed WHERE tenant = ? AND changed <= ?"
DROP_THING = "DELETE FROM things WHERE tenant = ? AND id = ?"

# -- events -----------------------------------------------------------------------------------
ADD_ENTRY = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
LOG = """
    SELECT entry, body FROM log
    WHERE tenant = ? AND entry > ? AND kind IN ('event', 'composite') ORDER BY entry LIMIT ?
"""
INPUTS = """
    SELECT kind, at, body FROM log
    WHERE tenant = ? AND entry > ? AND kind <> 'position' ORDER BY entry
"""
PUT_EVENT = "INSERT OR REPLACE INTO events VALUES (?, ?, ?, NULL, NULL, ?)"
DROP_EVENT = "DELETE FROM events WHERE tenant = ? AND key = ?"
EXPIRE_EVENT = "UPDATE events SET content = ?, until = ? WHERE tenant = ? AND key = ?"
LIVE = """
    SELECT key, entry, publisher, body FROM events JOIN log USING (tenant, entry)
    WHERE tenant = ? AND until IS NULL ORDER BY entry
"""
PAST = """
    SELECT key, content, until FROM events WHERE tenant = ? AND until > ?
    ORDER BY until DESC, entry DESC LIMIT ?
"""

# -- pairs that must not be told again --------------------------------------------------------
PAIRS = "SELECT subscription, entry FROM told WHERE tenant = ?"
ADD_PAIR = "INSERT OR IGNORE INTO told VALUES (?, ?, ?)"
DROP_PAIRS_OF_THING = "DELETE FROM told WHERE tenant = ? AND subscription = ?"
DROP_PAIRS_OF_ENTRY = "DELETE FROM told WHERE tenant = ? AND entry = ?"

# -- outboxes ---------------------------------------------------------------------------------
BOXES = "SELECT name, number, last, acknowledged FROM subscribers WHERE tenant = ?"
SET_LAST = """
    INSERT INTO subscribers VALUES (?, ?, ?, ?, 0)
    ON CONFLICT DO UPDATE SET last = excluded.last
"""
LAST = "SELECT last FROM subscribers WHERE tenant = ? AND name = ?"
SET_CURSOR = """
    INSERT INTO subscribers VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET acknowledged = excluded.acknowledged
"""
ADD_TOLD = "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_TOLD = "DELETE FROM outbox WHERE tenant = ? AND subscriber = ? AND seq <= ?"
OUTBOX = """
    SELECT seq, thing, outbox.at, extra, log.body FROM outbox JOIN log USING (tenant, entry)
    WHERE tenant = ? AND subscriber = ? AND seq > ? ORDER BY seq LIMIT ?
"""

# -- what fences know of objects ---------------------------------------------------------------
OBJECTS = "SELECT grp, object, body FROM objects WHERE tenant = ?"
PUT_OBJECT = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)"
DROP_OBJECT = "DELETE FROM objects WHERE tenant = ? AND grp = ? AND object = ?"

# -- movers and patterns ----------------------------------------------------------------------
PLACES = "SELECT subscriber, x, y, at, heading FROM places WHERE tenant = ? ORDER BY at"
PUT_PLACE = "INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?)"
SAVED = "SELECT entry, body FROM saved WHERE tenant = ? AND part = ?"
PUT_SAVED = "INSERT OR REPLACE INTO saved VALUES (?, ?, ?, ?)"

# -- retention --------------------------------------------------------------------------------
SWEPT = """
    SELECT entry, at FROM log WHERE tenant = ? AND entry > ? ORDER BY entry LIMIT ?
"""
FORGET_TOLD = "DELETE FROM outbox WHERE tenant = ? AND entry > ? AND entry <= ? AND at < ?"
FORGET_LOG = """
    DELETE FROM log WHERE tenant = ? AND entry > ? AND entry <= ?
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE tenant = log.tenant AND entry = log.entry)
    AND NOT EXISTS (
        SELECT 1 FROM events
        WHERE tenant = log.tenant AND entry = log.entry AND until IS NULL)
"""
FORGET_PAST = "DELETE FROM events WHERE tenant = ? AND until IS NOT NULL AND until <= ?"
FORGET_MORE = """
    DELETE FROM events WHERE tenant = ?1 AND until IS NOT NULL AND until <= (
        SELECT until FROM events WHERE tenant = ?1 AND until IS NOT NULL
        ORDER BY until DESC LIMIT 1 OFFSET ?2)
"""

# -- figures ----------------------------------------------------------------------------------
LOG_SPAN = """
    SELECT sum(1 + (SELECT max(entry) FROM log WHERE tenant = number)
                 - (SELECT min(entry) FROM log WHERE tenant = number)) FROM tenants
"""
WAITING = "SELECT sum(last - acknowledged) FROM subscribers"
