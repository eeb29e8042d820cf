"""What a store asks its tables, by name, in the SQL that SQLite and PostgreSQL share.

The tenant comes first wherever it can.
"""

from __future__ import annotations

SET_FACT = """
    INSERT INTO facts VALUES (?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value
"""
FACT = "SELECT value FROM facts WHERE tenant = ? AND name = ?"
DROP_FACT = "DELETE FROM facts WHERE tenant = ? AND name = ?"

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
    INSERT INTO things VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE SET kind = excluded.kind, subscriber = excluded.subscriber,
        expires = excluded.expires, changed = excluded.changed, body = excluded.body,
        entry = excluded.entry
"""
CHANGED = """
    SELECT id, kind FROM things WHERE tenant = ? AND changed > ? ORDER BY changed
"""
REMOVED = "SELECT id FROM removed WHERE tenant = ? AND changed > ?"
ADD_REMOVED = """
    INSERT INTO removed VALUES (?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE SET changed = excluded.changed
"""
FORGET_REMOVED = "DELETE FROM removed WHERE tenant = ? AND changed <= ?"
DROP_THING = "DELETE FROM things WHERE tenant = ? AND id = ?"

# -- how subscriptions have changed ------------------------------------------------------------
RETIRE = """
    UPDATE things SET changed = ?, entry = ?,
        kind = CASE WHEN kind IN ('subscription', 'moving') THEN 'gone' ELSE kind END
    WHERE tenant = ? AND id = ?
"""
CHANGES = """
    SELECT number, entry, id, subscriber, expires, body FROM changes
    WHERE tenant = ?1 AND number > ?2
    UNION ALL
    SELECT changed, entry, id, subscriber, expires, body FROM things
    WHERE tenant = ?1 AND changed > ?2 AND kind IN ('subscription', 'moving')
    ORDER BY 1 LIMIT ?3
"""
FORGOTTEN = "SELECT max(number) FROM changes WHERE tenant = ? AND over <= ?"
FORGET_CHANGES = "DELETE FROM changes WHERE tenant = ? AND over <= ?"

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
PUT_EVENT = """
    INSERT INTO events VALUES (?, ?, ?, NULL, NULL, ?)
    ON CONFLICT (tenant, key) DO UPDATE SET entry = excluded.entry, content = NULL, until = NULL,
        publisher = excluded.publisher
"""
DROP_EVENT = "DELETE FROM events WHERE tenant = ? AND key = ?"
EXPIRE_EVENT = "UPDATE events SET content = ?, until = ? WHERE tenant = ? AND key = ?"
PUT_SPENT = """
    INSERT INTO events VALUES (?, ?, 0, ?, ?, NULL)
    ON CONFLICT (tenant, key) DO UPDATE SET content = excluded.content, until = excluded.until
"""
LIVE = """
    SELECT key, entry, publisher, log.at, body FROM events JOIN log USING (tenant, entry)
    WHERE tenant = ? AND until IS NULL ORDER BY entry
"""
PAST = """
    SELECT key, content, until FROM events WHERE tenant = ? AND until > ?
    ORDER BY until DESC, entry DESC LIMIT ?
"""

# -- pairs that must not be told again --------------------------------------------------------
PAIRS = "SELECT subscription, entry FROM told WHERE tenant = ?"
ADD_PAIR = "INSERT INTO told VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
DROP_PAIRS_OF_THING = "DELETE FROM told WHERE tenant = ? AND subscription = ?"
DROP_PAIRS_OF_ENTRY = "DELETE FROM told WHERE tenant = ? AND entry = ?"

# -- outboxes ---------------------------------------------------------------------------------
BOXES = "SELECT name, number, last, acknowledged FROM subscribers WHERE tenant = ?"
SET_LAST = """
    INSERT INTO subscribers VALUES (?, ?, ?, ?, 0)
    ON CONFLICT (tenant, name) DO UPDATE SET last = excluded.last
"""
LAST = "SELECT last FROM subscribers WHERE tenant = ? AND name = ?"
SET_CURSOR = """
    INSERT INTO subscribers VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE SET acknowledged = excluded.acknowledged
"""
ADD_TOLD = "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_TOLD = "DELETE FROM outbox WHERE tenant = ? AND subscriber = ? AND seq <= ?"
OUTBOX = """
    SELECT seq, thing, outbox.at, extra, log.body FROM outbox JOIN log USING (tenant, entry)
    WHERE tenant = ? AND subscriber = ? AND seq > ? ORDER BY seq LIMIT ?
"""

# -- what is told on terms ---------------------------------------------------------------------
STANDINGS = "SELECT thing, told, paused, opened, since FROM standings WHERE tenant = ?"
PUT_STANDING = """
    INSERT INTO standings VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, thing) DO UPDATE SET told = excluded.told, paused = excluded.paused,
        opened = excluded.opened, since = excluded.since
"""
DROP_STANDING = "DELETE FROM standings WHERE tenant = ? AND thing = ?"
HELD = """
    SELECT thing, number, subscriber, entry, held.at, extra, log.body
    FROM held JOIN log USING (tenant, entry) WHERE tenant = ? ORDER BY thing, number
"""
ADD_HELD = "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_HELD = "DELETE FROM held WHERE tenant = ? AND thing = ? AND number <= ?"

# -- what fences know of objects ---------------------------------------------------------------
OBJECTS = "SELECT grp, object, body FROM objects WHERE tenant = ?"
PUT_OBJECT = """
    INSERT INTO objects VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, grp, object) DO UPDATE SET body = excluded.body
"""
DROP_OBJECT = "DELETE FROM objects WHERE tenant = ? AND grp = ? AND object = ?"

# -- what waits before fences hear of it -------------------------------------------------------
TURNS = """
    SELECT number, turns.at, turns.kind, entry, turns.body, log.body
    FROM turns LEFT JOIN log USING (tenant, entry) WHERE tenant = ? ORDER BY number
"""
ADD_TURN = "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?)"
DROP_TURN = "DELETE FROM turns WHERE tenant = ? AND number = ?"

# -- movers and patterns ----------------------------------------------------------------------
PLACES = "SELECT subscriber, x, y, at, heading FROM places WHERE tenant = ? ORDER BY at"
PUT_PLACE = """
    INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, subscriber) DO UPDATE SET x = excluded.x, y = excluded.y,
        at = excluded.at, heading = excluded.heading
"""
SAVED = "SELECT entry, body FROM saved WHERE tenant = ? AND part = ?"
PUT_SAVED = """
    INSERT INTO saved VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, part) DO UPDATE SET entry = excluded.entry, body = excluded.body
"""

# -- retention --------------------------------------------------------------------------------
SWEPT = """
    SELECT entry, at FROM log WHERE tenant = ? AND entry > ? ORDER BY entry LIMIT ?
"""
FORGET_TOLD = "DELETE FROM outbox WHERE tenant = ? AND entry > ? AND entry <= ? AND at < ?"
_BEYOND = """
    FROM log WHERE tenant = ? AND entry > ? AND entry <= ?
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE tenant = log.tenant AND entry = log.entry)
    AND NOT EXISTS (SELECT 1 FROM held WHERE tenant = log.tenant AND entry = log.entry)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant = log.tenant AND entry = log.entry)
    AND NOT EXISTS (
        SELECT 1 FROM events
        WHERE tenant = log.tenant AND entry = log.entry AND until IS NULL)
"""
FORGET_LOG = f"DELETE {_BEYOND}"
# Just before it: what is beyond is not known sooner. Facts are text in some databases.
LET_GO = f"""
    INSERT INTO facts SELECT tenant, 'let_go', CAST(max(entry) AS TEXT) {_BEYOND}
    AND kind IN ('event', 'composite') GROUP BY tenant
    ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value
    WHERE CAST(facts.value AS BIGINT) < CAST(excluded.value AS BIGINT)
"""
FORGET_PAST = "DELETE FROM events WHERE tenant = ? AND until IS NOT NULL AND until <= ?"
FORGET_MORE = """
    DELETE FROM events WHERE tenant = ?1 AND until IS NOT NULL AND until <= (
        SELECT until FROM events WHERE tenant = ?1 AND until IS NOT NULL
        ORDER BY until DESC LIMIT 1 OFFSET ?2)
"""

# -- sinks ------------------------------------------------------------------------------------
SINKS = """
    SELECT number, subscriber, protocol, uri, settings, upto, disabled FROM sinks
    WHERE tenant = ? ORDER BY number
"""
ADD_SINK = "INSERT INTO sinks VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SET_UPTO = "UPDATE sinks SET upto = ? WHERE tenant = ? AND number = ?"
DISABLE = "UPDATE sinks SET disabled = ? WHERE tenant = ? AND number = ?"
DROP_SINK = "DELETE FROM sinks WHERE tenant = ? AND number = ?"
DELIVERIES = "SELECT thing, sink, since, ended FROM deliveries WHERE tenant = ?"
PUT_DELIVERY = """
    INSERT INTO deliveries VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, thing, sink) DO UPDATE SET since = excluded.since, ended = excluded.ended
"""
DROP_DELIVERY = "DELETE FROM deliveries WHERE tenant = ? AND thing = ? AND sink = ?"
OWN = "SELECT name, value FROM facts WHERE tenant = ? AND substr(name, 1, 4) = 'own '"

# -- what could not be sent -------------------------------------------------------------------
ADD_LETTER = "INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
LETTERS = """
    SELECT number, subscriber, sink, protocol, uri, thing, seq, why, tries, at, body, replay
    FROM dead_letters WHERE tenant = ? AND number > ? ORDER BY number LIMIT ?
"""
LETTERS_OF = """
    SELECT number, subscriber, sink, protocol, uri, thing, seq, why, tries, at, body, replay
    FROM dead_letters WHERE tenant = ? AND subscriber = ? AND number > ? ORDER BY number LIMIT ?
"""
LETTERS_OF_SINK = """
    SELECT number, subscriber, sink, protocol, uri, thing, seq, why, tries, at, body, replay
    FROM dead_letters WHERE tenant = ? AND sink = ? AND number > ? ORDER BY number LIMIT ?
"""
LETTER = """
    SELECT number, subscriber, sink, protocol, uri, thing, seq, why, tries, at, body, replay
    FROM dead_letters WHERE tenant = ? AND number = ?
"""
REPLAYED = """
    SELECT number, subscriber, sink, protocol, uri, thing, seq, why, tries, at, body, replay
    FROM dead_letters WHERE tenant = ? AND replay = ? AND number > ? ORDER BY number LIMIT ?
"""
REPLAYING = "SELECT DISTINCT replay FROM dead_letters WHERE tenant = ? AND replay IS NOT NULL"
REPLAY = "UPDATE dead_letters SET replay = ? WHERE tenant = ? AND number = ?"
FAIL_LETTER = """
    UPDATE dead_letters SET replay = NULL, why = ?, tries = tries + ?, at = ?
    WHERE tenant = ? AND number = ?
"""
DROP_LETTER = "DELETE FROM dead_letters WHERE tenant = ? AND number = ?"
DROP_LETTERS_OF_SINK = "DELETE FROM dead_letters WHERE tenant = ? AND sink = ?"
LETTER_COUNT = "SELECT count(*) FROM dead_letters WHERE tenant = ?"
LETTER_COUNTS = "SELECT sink, count(*) FROM dead_letters WHERE tenant = ? GROUP BY sink"
OLDEST_LETTERS = "SELECT number FROM dead_letters WHERE tenant = ? ORDER BY number LIMIT ?"

# -- figures ----------------------------------------------------------------------------------
LOG_SPAN = """
    SELECT sum(1 + (SELECT max(entry) FROM log WHERE tenant = number)
                 - (SELECT min(entry) FROM log WHERE tenant = number)) FROM tenants
"""
WAITING = "SELECT sum(last - acknowledged) FROM subscribers"
