"""A saved matcher beside the store: a cache, which is thrown away when anything is doubtful.

The store says which saved matcher goes with it (the digest of its data) and which version of the
subscriptions is in it; what has changed since is brought after. A million subscriptions are
there in seconds, where building them from rows takes a minute.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from nearcast.broker.subscriptions import Subscriptions
from nearcast.errors import NearcastError, SavedError
from nearcast.matcher import Matcher
from nearcast.matcher.saved import read_header
from nearcast.storage import statements as sql
from nearcast.storage.tables import Tables

__all__ = ["Snapshot"]

_PART = "matcher"
_FEW = 1000  # subscriptions that are built from rows in no time


class Snapshot:
    """The saved matcher of one tenant."""

    def __init__(self, database: Tables, tenant: int) -> None:
        self._database = database
        self._tenant = tenant
        self._version: int | None = None
        self.used = False
        """Whether it was loaded, and not thrown away."""

    @property
    def there(self) -> bool:
        """Whether there is one, which must be told what is removed."""
        return self._version is not None

    @property
    def _folder(self) -> Path:
        return self._database.beside(f"matcher-{self._tenant}")

    def load(self, kept: Subscriptions) -> Matcher | None:
        """A matcher that holds just these subscriptions; None if there is none to be trusted."""
        saved = list(self._database.rows(sql.SAVED, (self._tenant, _PART)))
        if not saved:
            return None
        ((self._version, digest),) = saved
        try:
            matcher = self._loaded(digest)
            self._bring_up(matcher, kept)
        except (NearcastError, OSError):
            return None
        self.used = len(matcher) == sum(not follows for _, _, follows in kept.outlines())
        return matcher if self.used else None

    def _loaded(self, digest: bytes) -> Matcher:
        if read_header(self._folder).digest != digest.decode():
            raise SavedError("of another time")
        return Matcher.load(self._folder, verify=True)

    def _bring_up(self, matcher: Matcher, kept: Subscriptions) -> None:
        """What has changed since: first what is gone, for it may have come again."""
        for (id,) in self._database.rows(sql.REMOVED, (self._tenant, self._version)):
            if id in matcher:
                matcher.remove_subscription(id)
        new = []
        for id, kind in self._database.rows(sql.CHANGED, (self._tenant, self._version)):
            if kind != "subscription":
                if id in matcher:  # it has become something that no matcher holds
                    matcher.remove_subscription(id)
            elif id in matcher:
                matcher.update_subscription(kept[id])
            else:
                new.append(kept[id])
        matcher.add_subscriptions(new)

    def save(self, matcher: Matcher, version: int) -> None:
        """Save it for a later life, unless it is small or the same; never raises."""
        if len(matcher) < _FEW or version == self._version:
            return
        with suppress(NearcastError, OSError):
            matcher.save(self._folder)
            digest = read_header(self._folder).digest.encode()
            self._database.stage(sql.PUT_SAVED, (self._tenant, _PART, version, digest))
            self._database.stage(sql.FORGET_REMOVED, (self._tenant, version))
            self._database.flush()
            self._version = version

    def discard(self) -> None:
        """Throw it away."""
        shutil.rmtree(self._folder, ignore_errors=True)
