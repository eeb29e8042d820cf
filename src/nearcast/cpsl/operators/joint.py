"""Joints: operators that combine one instance of each input, by the composite's mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

from nearcast.clock import Micros
from nearcast.cpsl.compile import ENDLESS
from nearcast.cpsl.instances import Instance, Known, compose, merged
from nearcast.cpsl.operators.constraints import Constraints
from nearcast.cpsl.operators.joining import Joining, fitting, reached
from nearcast.cpsl.operators.moments import Moments
from nearcast.cpsl.operators.node import Node, Run
from nearcast.cpsl.operators.queues import KeyedQueue, Queue
from nearcast.cpsl.operators.supports import Supports

__all__ = ["Joint"]

#: Instances with their ports and arrival numbers (−1: the trigger), and what they know together.
Combination: TypeAlias = tuple[list[tuple[int, int, Instance]], Known]
_NOBODY: list[int] = []
_NONE = Supports()  # of two inputs no instance counts on others that wait


class Joint(Node):
    """Waits at every input until a new instance completes a combination.

    A trigger looks at the partners that share its joining values, so a joint on a variable
    costs as much as there are partners with that value. Of three and more inputs each partner is
    looked up by the variables that those chosen before it bind.
    """

    __slots__ = ("constraints", "joining", "mode", "queues", "supports")
    stateful = gated = True

    def __init__(
        self,
        names: tuple[str | None, ...],
        height: int,
        constraints: Constraints,
        mode: str,
        joining: Joining,
    ) -> None:
        super().__init__(names, height, 0)
        self.constraints = constraints
        self.mode = mode
        self.joining = joining
        self.queues: tuple[Queue, ...] | None = None  # made when first needed: most stay idle
        self.supports = _NONE if constraints.ports < 3 else Supports()

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        constraints = self.constraints
        for check in constraints.solo[port]:
            chosen: list[Any] = [None] * constraints.ports
            chosen[port] = instance
            if not check(chosen):
                return
        queues = self.queues
        if queues is None:
            queues = self.queues = self._new_queues()
        if constraints.ports == 2 and self.mode == "first-matching":  # the most frequent by far
            if not queues[1 - port].items or not self._takes(port, instance, run):
                self._keep(port, instance, run)
            return
        found = self._combinations(port, instance)
        if found is None:
            return
        if found:
            self._use(found, run)
            if self.mode != "recent":
                return
        replaced = list(queues[port].items) if self.mode == "recent" else ()
        self._keep(port, instance, run)
        for arrival in replaced:  # after the new one: what counted on these may count on it
            self._drop(port, arrival, run)

    def _new_queues(self) -> tuple[Queue, ...]:
        if self.constraints.ports == 2:
            return Queue(self.joining[0]), Queue(self.joining[1])
        return tuple([KeyedQueue() for _ in range(self.constraints.ports)])

    # -- choosing --------------------------------------------------------------

    def _takes(self, port: int, instance: Instance, run: Run) -> bool:
        """Of two inputs, complete the oldest pair; whether there is one."""
        assert self.queues is not None
        queue = self.queues[1 - port]
        for arrival, other in queue.partners(instance):
            pair = (other, instance) if port else (instance, other)
            known = self._agreed(pair)
            if known is not None and (self.gate is None or known[1] or self.gate(pair)):
                queue.remove(arrival)
                run.emit(self, compose(run.serial(), pair, *known))
                return True
        return False

    def _agreed(self, pair: tuple[Instance, Instance]) -> Known | None:
        """What the instances of two inputs know together; None if they do not fit."""
        first, second = pair
        for holds in self.constraints.pair:
            if not holds(first, second):
                return None
        return merged(pair)

    def _combinations(self, port: int, instance: Instance) -> list[Combination] | None:
        """What the mode makes of a new instance: none, one or several combinations.

        A combination that the gate refuses is none. In chronicle, where all that comes later
        would have to wait behind it, the new instance is to be let go: None.
        """
        queues, mode = self.queues, self.mode
        assert queues is not None
        if mode in ("first-matching", "chronicle", "recent"):
            if mode != "first-matching":
                candidates = self._heads(port, instance)
            else:
                candidates = self._partners(instance)
            for found in self._matching(port, instance, candidates):
                if self._admits(found):
                    return [found]
                if mode == "chronicle":
                    return None
            return []
        candidates = self._partners(instance)
        if mode == "cumulative" or len(queues) == 1:
            every = list(self._matching(port, instance, candidates))
            together = [_gathered(every)] if every and mode == "cumulative" else every
            return [found for found in together if self._admits(found)]
        opener = 1 if port == 0 else 0
        chosen = []
        openers = candidates[opener]
        if openers is None:
            alone: list[Any] = [None] * len(queues)
            alone[port] = instance
            openers = self._waiting(opener, alone)
        for entry in openers:
            one = list(candidates)
            one[opener] = (entry,)
            for found in self._matching(port, instance, one):
                if self._admits(found):
                    chosen.append(found)
                    break
        return chosen

    def _partners(self, instance: Instance) -> list[Any]:
        """Who comes into question at each port; None: that depends on who else is chosen."""
        assert self.queues is not None
        if self.constraints.ports == 2:
            return [queue.partners(instance) for queue in self.queues]
        return [None] * self.constraints.ports

    def _waiting(self, port: int, chosen: Sequence[Instance | None]) -> Any:
        """Those at a port who fit what is chosen, or to whom others that wait lead from it."""
        queues = cast("tuple[KeyedQueue, ...]", self.queues)
        row = fitting(queues[port], self.joining[port], chosen)
        return reached(queues, self.joining, port, chosen) if row is None else row

    def _admits(self, found: Combination) -> bool:
        """Whether a combination may be a detection; one that stays open is none anyway."""
        combination, (_, opens) = found
        if self.gate is None or opens:
            return True
        return self.gate([instance for _, _, instance in combination])

    def _heads(self, port: int, instance: Instance) -> list[Any]:
        """The one candidate of each port in chronicle (the oldest) and recent (the newest)."""
        assert self.queues is not None
        heads: list[Any] = []
        for at, queue in enumerate(self.queues):
            if at == port:
                heads.append(() if self.mode == "chronicle" and queue.items else (None,))
            else:
                heads.append((queue.oldest(),) if queue.items else ())
        return heads if heads[port] else [()] * len(heads)

    def _matching(
        self, port: int, instance: Instance, candidates: Sequence[Any]
    ) -> Iterator[Combination]:
        """Combinations that satisfy everything, oldest first in the order of the inputs."""
        order, levels = self.constraints.steps(port)
        ports = self.constraints.ports
        entries: list[Any] = [None] * ports
        chosen: list[Any] = [None] * ports
        entries[port], chosen[port] = (port, -1, instance), instance
        if not order:
            known = merged(chosen)
            if candidates[port] != () and known is not None:
                yield entries, known
            return
        if len(order) == 1:  # two inputs: no need for recursion
            (other,) = order
            for entry in candidates[other]:
                chosen[other] = entry[1]
                known = self._agreed((chosen[0], chosen[1]))
                if known is not None:
                    entries[other] = (other, *entry)
                    yield list(entries), known
            return
        yield from self._deepen(0, order, levels, candidates, entries, chosen)

    def _deepen(
        self,
        depth: int,
        order: list[int],
        levels: list[Any],
        candidates: Sequence[Any],
        entries: list[Any],
        chosen: list[Any],
    ) -> Iterator[Combination]:
        if depth == len(order):
            known = merged(chosen)
            if known is not None:
                yield list(entries), known
            return
        port = order[depth]
        row = candidates[port]
        if row is None:
            row = self._waiting(port, chosen)
        for entry in row:
            entries[port], chosen[port] = (port, *entry), entry[1]
            if all(check(chosen) for check in levels[depth]):
                yield from self._deepen(depth + 1, order, levels, candidates, entries, chosen)
        entries[port] = chosen[port] = None

    # -- using -----------------------------------------------------------------

    def _use(self, found: list[Combination], run: Run) -> None:
        if self.mode != "recent":
            for combination, _ in found:
                for port, arrival, _ in combination:
                    if arrival >= 0:
                        self._drop(port, arrival, run)
        for combination, known in found:
            members = tuple([instance for _, _, instance in combination])
            run.emit(self, compose(run.serial(), members, *known))

    def _keep(self, port: int, instance: Instance, run: Run) -> None:
        """Let an instance wait if it can still be of use."""
        assert self.queues is not None
        constraints, now = self.constraints, run.now
        until, partners = constraints.until(port, instance), _NOBODY
        if until < now:
            until, partners = self._chance(port, instance, now)
        if until < now or constraints.ports == 1:
            return
        queue, arrival = self.queues[port], run.serial()
        queue.add(arrival, instance)
        if until < ENDLESS or partners:
            self._promise(port, arrival, until, partners, run)
        if len(queue.items) > run.max_pending:
            self._drop(port, queue.oldest()[0], run)
            run.overflow()

    def _chance(self, port: int, instance: Instance, now: Micros) -> tuple[Micros, list[int]]:
        """Until when an instance is of use at least, and thanks to which others that wait.

        It is of use as long as a later arrival can complete a combination with it. Mostly
        all others can still come. Where one cannot, it has to wait here already.
        """
        until = self.constraints.until(port, instance)
        if until >= now or self.constraints.ports < 3:
            return until, []
        for moments in self.constraints.moments or ():
            if moments.fits(port, instance):
                chosen: list[Instance | None] = [None] * self.constraints.ports
                chosen[port] = instance
                partners: list[int] = []
                found = self._supported(moments, chosen, partners, now)
                if found >= now:
                    return found, partners
        return until, []

    def _supported(
        self, moments: Moments, chosen: list[Instance | None], partners: list[int], now: Micros
    ) -> Micros:
        """The last moment at which all that is not chosen can come.

        What cannot come any more is chosen from what waits, in every way until one does.
        """
        assert self.queues is not None
        until, missing = ENDLESS, [port for port, one in enumerate(chosen) if one is None]
        if not missing:
            return -ENDLESS  # nothing is left to come, and only what comes completes
        for port in missing:
            arrival = moments.arrival(port, chosen)
            if arrival < now:
                break
            until = min(until, arrival)
        else:
            return until
        others = [(p, one) for p, one in enumerate(chosen) if one is not None]
        queue = cast("KeyedQueue", self.queues[port])
        row = fitting(queue, self.joining[port], chosen)  # whoever leads to more may be to come
        for number, candidate in queue.items.items() if row is None else row:
            if not moments.fits(port, candidate) or not all(
                moments.agree(port, candidate, p, one) for p, one in others
            ):
                continue
            chosen[port] = candidate
            if self.constraints.allow(port, chosen):
                found = self._supported(moments, chosen, partners, now)
                if found >= now:
                    partners.append(number)
                    return found
            chosen[port] = None
        return -ENDLESS

    def _promise(
        self, port: int, arrival: int, until: Micros, partners: list[int], run: Run
    ) -> None:
        if partners:
            self.supports.add(port, arrival, until, partners)
        if until < ENDLESS:
            run.forget(until, self, port, arrival)

    def _drop(self, port: int, arrival: int, run: Run) -> None:
        """Take an instance out, and with it those that are of no use without it."""
        assert self.queues is not None
        self.queues[port].remove(arrival)
        if self.constraints.ports > 2:
            for at, dependant in self.supports.remove(arrival):
                self._review(at, dependant, run)

    def _review(self, port: int, arrival: int, run: Run) -> None:
        """Find out anew whether an instance is of use, and drop it if not."""
        assert self.queues is not None
        instance = self.queues[port].items.get(arrival)
        if instance is None:
            return
        until, partners = self._chance(port, instance, run.now)
        if until < run.now:
            self._drop(port, arrival, run)
        else:
            self._promise(port, arrival, until, partners, run)

    def forgotten(self, port: int, token: int, run: Run) -> None:
        """An instance of which the last known use is over."""
        if self.queues is None:  # restored without any: it was taken before the save
            return
        if self.constraints.ports < 3:  # nothing but time keeps an instance here
            self.queues[port].remove(token)
        elif self.supports.until(token) < run.now:
            self.supports.clear(token)
            self._review(port, token, run)

    # -- looking inside ----------------------------------------------------------

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        if self.queues is None:
            return []
        return [(p, i) for p, queue in enumerate(self.queues) for i in queue.items.values()]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        if not self.pending():
            return None
        assert self.queues is not None
        return [list(queue.items.items()) for queue in self.queues], self.supports.dump()

    def clear(self) -> None:
        """Forget everything that waits here."""
        self.queues = None
        if self.constraints.ports > 2:
            self.supports = Supports()

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        self.queues = self._new_queues()
        waiting, supports = state
        for queue, items in zip(self.queues, waiting, strict=True):
            for arrival, instance in items:
                queue.add(arrival, instance)
        for entry in supports:
            self.supports.add(*entry)

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        for port, instance in self.pending():
            assert self._chance(port, instance, now)[0] >= now, "waits though nothing can complete"
        if self.queues is not None and self.mode == "recent":
            assert all(len(queue.items) <= 1 for queue in self.queues)


def _gathered(found: list[Combination]) -> Combination:
    """The instances of all combinations, as far as their bindings agree, oldest first."""
    members: dict[tuple[int, int], Instance] = {}
    known = found[0][1]
    for combination, _ in found:
        more = dict(members)
        for port, arrival, instance in combination:
            more[(port, arrival)] = instance
        agreed = merged(list(more.values()))
        if agreed is not None:
            members, known = more, agreed
    return [(*key, instance) for key, instance in members.items()], known
