"""What cleaning and stays mean, said slowly."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.oracle_geometry import haversine


class Fix(NamedTuple):
    id: str
    ts: int
    lon: float
    lat: float
    occupied: bool | None = None


class Followed(NamedTuple):
    fix: Fix
    reason: str | None
    session: int
    pick_up: bool


def _reachable(a: Fix, b: Fix, speed: float) -> bool:
    return haversine(a.lon, a.lat, b.lon, b.lat) <= speed * ((b.ts - a.ts) / 1e6)


def follow(fixes: list[Fix], speed: float, gap_us: int) -> list[Followed]:
    """Of fixes sorted by id, ts, lat, lon: what becomes of each."""
    found = []
    last: Fix | None = None
    refused: list[Fix] = []
    session, state = 0, None
    for fix in fixes:
        fresh = last is None or fix.id != last.id
        jump = False
        if not fresh:
            assert last is not None
            if fix.ts == last.ts:
                found.append(Followed(fix, "second fix at one time", 0, False))
                continue
            if not _reachable(last, fix, speed):
                near = bool(refused) and _reachable(refused[-1], fix, speed)
                refused = [*refused, fix] if near else [fix]
                if len(refused) < 3:
                    found.append(Followed(fix, "impossible speed", 0, False))
                    continue
                jump = True
        if fresh:
            session, state = 0, None
        elif jump or (last is not None and fix.ts - last.ts > gap_us):
            session, state = session + 1, None
        found.append(Followed(fix, None, session, fix.occupied is True and state is False))
        if fix.occupied is not None:
            state = fix.occupied
        last, refused = fix, []
    return found


def stays(fixes: list[Fix], radius_m: float, least_us: int) -> list[tuple[Any, ...]]:
    """(id, first ts, last ts, fixes, lon, lat) of the stays of fixes sorted by id and ts."""
    found = []
    group: list[Fix] = []
    for fix in [*fixes, None]:
        if (
            fix is not None
            and group
            and fix.id == group[0].id
            and haversine(group[0].lon, group[0].lat, fix.lon, fix.lat) <= radius_m
        ):
            group.append(fix)
            continue
        if group and group[-1].ts - group[0].ts >= least_us:
            lon = sum(each.lon for each in group) / len(group)
            lat = sum(each.lat for each in group) / len(group)
            found.append((group[0].id, group[0].ts, group[-1].ts, len(group), lon, lat))
        group = [] if fix is None else [fix]
    return found
