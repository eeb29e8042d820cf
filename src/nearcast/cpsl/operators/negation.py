"""Negations: windows that stay empty."""

from __future__ import annotations

from typing import Any, TypeAlias

from nearcast.clock import Micros
from nearcast.cpsl.instances import Instance, compose, merged
from nearcast.cpsl.operators.node import Node, Run
from nearcast.cpsl.operators.queues import Queue

__all__ = ["NotEnclosed", "NotFixed", "NotFollowing", "blocks"]

#: The opener's token, −1 if it has just come, the opener and the closer.
Pair: TypeAlias = tuple[int, Instance, Instance]


def blocks(opened: tuple[Instance, ...], blocker: Instance) -> bool:
    """Whether a blocker speaks of the same variables' values as what it would close."""
    known = merged((*opened, blocker))
    if known is None:
        return False
    theirs = [waiting for instance in opened for waiting in instance.opens]
    return all(waiting in theirs for waiting in known[1])


class NotFixed(Node):
    """`!(T;t)A`: fires once, at T+t, if no instance ended in (T, T+t]."""

    __slots__ = ("at", "blocked", "length")
    stateful = True
    blocking = 0

    def __init__(
        self, names: tuple[str | None, ...], height: int, tie: int, at: Micros, length: Micros
    ) -> None:
        super().__init__(names, height, tie)
        self.at = at
        self.length = length
        self.blocked = False

    def begin(self, registered: Micros, run: Run) -> None:
        """Ask for the time event, unless the window is over before anything was seen."""
        if self.at + self.length >= registered:
            run.wake(self.at + self.length, self, -1, 0)

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        if self.at < instance.end <= self.at + self.length:
            self.blocked = True

    def timed(self, token: int, run: Run) -> None:
        """A time event that the node asked for."""
        if not self.blocked:
            end = self.at + self.length
            run.emit(self, Instance(run.serial(), self.at, end))

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return self.blocked or None

    def clear(self) -> None:
        """Forget everything that waits here."""
        self.blocked = False

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        self.blocked = bool(state)


class NotFollowing(Node):
    """`!(A;t)B`: each a fires at a.end+t unless a b ended in (a.end, a.end+t]."""

    __slots__ = ("lag", "length", "mode", "queues")
    stateful = True
    blocking = 1

    def __init__(
        self,
        names: tuple[str | None, ...],
        height: int,
        tie: int,
        length: Micros,
        mode: str,
        joining: tuple[str, ...],
        lag: Micros,
    ) -> None:
        super().__init__(names, height, tie)
        self.length = length
        self.mode = mode
        self.lag = lag  # of the openers: how long blockers must be remembered for late ones
        self.queues = (Queue(joining), Queue(joining))

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        openers, blockers = self.queues
        if port == 0:
            self._open(instance, run)
            return
        closed = [
            token for token, a in openers.partners(instance)
            if a.end < instance.end <= a.end + self.length and blocks((a,), instance)
        ]  # fmt: skip
        for token in closed:
            openers.remove(token)
        until = instance.end + self.lag - 1
        if until >= run.now:
            _keep(blockers, instance, until, self, 1, run)

    def _open(self, instance: Instance, run: Run) -> None:
        openers, blockers = self.queues
        if self.mode == "recent":
            for token in list(openers.items):
                openers.remove(token)
        deadline = instance.end + self.length
        for _, b in blockers.partners(instance):
            if instance.end < b.end <= deadline and blocks((instance,), b):
                return
        if deadline < run.now:
            self._fire(instance, run)
            return
        token = _add(openers, instance, run)
        run.wake(deadline, self, run.step, token)

    def timed(self, token: int, run: Run) -> None:
        """A time event that the node asked for."""
        instance = self.queues[0].remove(token)
        if instance is not None:
            self._fire(instance, run)

    def _fire(self, a: Instance, run: Run) -> None:
        end = a.end + self.length
        made = type(a)(run.serial(), a.start, end, None, (a,), a.bindings, a.opens)
        run.emit(self, made)

    def forgotten(self, port: int, token: int, run: Run) -> None:
        """An instance that can match no longer."""
        self.queues[port].remove(token)

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return [(p, i) for p, queue in enumerate(self.queues) for i in queue.items.values()]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return [list(q.items.items()) for q in self.queues] if self.pending() else None

    def clear(self) -> None:
        """Forget everything that waits here."""
        for queue in self.queues:
            queue.clear()

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        _load(self.queues, state)

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        for port, instance in self.pending():
            until = instance.end + (self.length if port == 0 else self.lag - 1)
            assert until >= now, "waits though its window is over"


class NotEnclosed(Node):
    """`!(A;B)C`: fires with b for an a before it if no c ended in (a.end, b.end).

    Closers are not consumed; they wait only where openers may come after them.
    """

    __slots__ = ("lags", "mode", "queues", "speak_of")
    stateful = gated = True
    blocking = 2

    def __init__(
        self,
        names: tuple[str | None, ...],
        height: int,
        tie: int,
        mode: str,
        lags: tuple[Micros, Micros],
        speak_of: tuple[frozenset[str], frozenset[str]],
    ) -> None:
        super().__init__(names, height, tie)
        self.mode = mode
        self.lags = lags  # of openers and closers
        self.speak_of = speak_of  # the variables that openers and closers may stand for
        self.queues = (Queue(()), Queue(()), Queue(()))

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        if port == 2:
            self._block(instance, run)
        else:
            found = self._pairs(port, instance)
            if found:
                self._fire(found, run)
            if self.mode == "recent":
                queue = self.queues[port]
                for token in list(queue.items):
                    queue.remove(token)
            if port == 1:
                self._keep_closer(instance, run)
            elif (not found or self.mode == "recent") and not self._is_closed(instance, run.now):
                _add(self.queues[0], instance, run)
        self._prune(run)

    def _pairs(self, port: int, instance: Instance) -> list[Pair]:
        """What the mode makes of a new opener or closer: the opener's token, and both."""
        openers, closers, _ = self.queues
        if port == 0:
            pairs = [(-1, instance, b) for b in closers.items.values()]
            if self.mode == "chronicle" and openers.items:
                pairs = []  # the new one is not the oldest
        else:
            pairs = [(token, a, instance) for token, a in openers.items.items()]
        if self.mode == "chronicle":
            pairs = pairs[:1]
        found = [pair for pair in pairs if self._empty(pair[1], pair[2])]
        if self.gate is not None:
            found = self._admitted(found)
        return found if self.mode in ("continuous", "cumulative") else found[:1]

    def _admitted(self, found: list[Pair]) -> list[Pair]:
        """What may be a detection."""
        assert self.gate is not None
        if self.mode == "cumulative":
            together = [instance for _, a, b in found for instance in (a, b)]
            return found if self.gate(together) else []
        admitted: list[Pair] = []
        for pair in found:
            if self.mode == "continuous" or not admitted:
                admitted += [pair] * self.gate((pair[1], pair[2]))
        return admitted

    def _empty(self, a: Instance, b: Instance) -> bool:
        if a.end >= b.start or merged((a, b)) is None:
            return False
        return not any(
            a.end < c.end < b.end and blocks((a, b), c) for c in self.queues[2].items.values()
        )

    def _fire(self, found: list[Pair], run: Run) -> None:
        made: list[list[Instance]] = []
        for opener, a, b in found:
            if self.mode == "cumulative" and made:
                together = [*made[0], *(i for i in (a, b) if i not in made[0])]
                if merged(together) is None:
                    continue
                made[0] = together
            else:
                made.append([a, b])
            if self.mode != "recent":
                self.queues[0].remove(opener)
        for instances in made:
            known = merged(instances)
            assert known is not None
            run.emit(self, compose(run.serial(), tuple(instances), *known))

    def _keep_closer(self, b: Instance, run: Run) -> None:
        """Let a closer wait for openers that come late."""
        until = b.start + self.lags[0] - 1
        if until >= run.now and not any(
            self._rules_out(b, c) for c in self.queues[2].items.values()
        ):
            _keep(self.queues[1], b, until, self, 1, run)

    def _block(self, c: Instance, run: Run) -> None:
        closers = self.queues[1]
        for token in [t for t, b in closers.items.items() if self._rules_out(b, c)]:
            closers.remove(token)
        token = _add(self.queues[2], c, run)
        # A closer that ends with c may still come. Then c is of use to late openers only.
        for until in sorted({c.end + self.lags[1], c.end + self.lags[0] - 1}):
            if until >= run.now:
                run.forget(until, self, 2, token)
        self._close(c, run.now)

    def _close(self, c: Instance, now: Micros) -> None:
        """Let go the openers that no closer to come can save from c."""
        openers = self.queues[0]
        if c.end + self.lags[1] < now:
            for token in [t for t, a in openers.items.items() if self._closes(a, c)]:
                openers.remove(token)

    def _closes(self, a: Instance, c: Instance) -> bool:
        return a.end < c.end and _settles(a, c, self.speak_of[1])

    def _is_closed(self, a: Instance, now: Micros) -> bool:
        blockers = self.queues[2].items.values()
        return any(c.end + self.lags[1] < now and self._closes(a, c) for c in blockers)

    def _rules_out(self, b: Instance, c: Instance) -> bool:
        """Whether every opener before b would have c in between."""
        return b.start <= c.end < b.end and _settles(b, c, self.speak_of[0])

    def _prune(self, run: Run) -> None:
        """Forget blockers that no opener, waiting or late, can still meet."""
        openers, _, blockers = self.queues
        if not blockers.items:
            return
        lowest = min((a.end for a in openers.items.values()), default=None)
        for token, c in list(blockers.items.items()):
            waited_for = lowest is not None and lowest < c.end
            if not waited_for and c.end + self.lags[0] - 1 < run.now:
                blockers.remove(token)

    def forgotten(self, port: int, token: int, run: Run) -> None:
        """An instance of which the last known use is over."""
        if port == 1:
            self.queues[1].remove(token)
            return
        c = self.queues[2].items.get(token)
        if c is not None:
            self._close(c, run.now)
            self._prune(run)

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return [(p, i) for p, queue in enumerate(self.queues) for i in queue.items.values()]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return [list(q.items.items()) for q in self.queues] if self.pending() else None

    def clear(self) -> None:
        """Forget everything that waits here."""
        for queue in self.queues:
            queue.clear()

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        _load(self.queues, state)

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        openers, closers, blockers = self.queues
        for b in closers.items.values():
            assert b.start + self.lags[0] - 1 >= now, "a closer waits for nothing"
            assert not any(self._rules_out(b, c) for c in blockers.items.values())
        for a in openers.items.values():
            assert not self._is_closed(a, now), "an opener waits though its window is closed"
        for c in blockers.items.values():
            late = c.end + self.lags[0] - 1 >= now
            assert late or any(a.end < c.end for a in openers.items.values()), "a blocker idles"


def _settles(one: Instance, c: Instance, theirs: frozenset[str]) -> bool:
    """Whether c closes the window of an opener or closer whatever its partner will stand for."""
    return blocks((one,), c) and all(name in one.bindings for name in c.bindings if name in theirs)


def _add(queue: Queue, instance: Instance, run: Run) -> int:
    """Let an instance wait; a full queue lets its oldest go."""
    if len(queue.items) >= run.max_pending:
        queue.remove(queue.oldest()[0])
        run.overflow()
    token = run.serial()
    queue.add(token, instance)
    return token


def _keep(queue: Queue, instance: Instance, until: Micros, node: Node, port: int, run: Run) -> None:
    run.forget(until, node, port, _add(queue, instance, run))


def _load(queues: tuple[Queue, ...], state: Any) -> None:
    for queue, items in zip(queues, state, strict=True):
        for token, instance in items:
            queue.add(token, instance)
