"""The composite: a pattern that somebody wants to hear of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from nearcast.clock import Micros, Time, to_micros
from nearcast.cpsl.analyze import analyze
from nearcast.cpsl.ast import Expression, Pattern, forget_spans
from nearcast.cpsl.compile import Plan, compile_pattern
from nearcast.cpsl.parser import parse
from nearcast.cpsl.regions import Regions
from nearcast.cpsl.templates import learn, recognise
from nearcast.errors import ValidationError
from nearcast.model.events import check_id
from nearcast.model.terms import Terms, stated

__all__ = ["MODES", "Composite", "Mode"]

#: How an operator picks partners and what it removes.
Mode = Literal["first-matching", "chronicle", "recent", "continuous", "cumulative"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Composite:
    """A CPSL pattern over plain events, with the way it consumes them.

    `text` is CPSL, or an expression or pattern built in Python (nearcast.cpsl.builder); it is
    kept as text, and parsed as `pattern`. `regions` are the regions that the text names; a
    text that names some is kept with their points instead. From `expires` on nothing more is
    detected. Raises a PatternError with line, column and caret.

    >>> Composite(id="c1", subscriber="ops", text='Q(3)(STRING: type = "alarm")').consume
    'first-matching'
    """

    id: str
    subscriber: str | None
    text: str
    consume: Mode
    expires: Micros | None
    terms: Terms | None
    _pattern: Pattern | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        id: str,
        subscriber: str | None = None,
        text: str | Expression | Pattern = "",
        consume: Mode = "first-matching",
        regions: Regions | None = None,
        expires: Time | None = None,
        terms: Terms | None = None,
    ) -> None:
        check_id(id, "id")
        if subscriber is not None:
            check_id(subscriber, "subscriber")
        if consume not in MODES:
            raise ValidationError("consume", consume, f"choose one of {', '.join(MODES)}")
        until = None if expires is None else to_micros(expires, "expires")
        said = stated(terms)
        if said is not None and not said.initial_event:
            raise ValidationError("initial_event", False, "leave it: a pattern sees what comes")
        pattern = None
        if not isinstance(text, str) or regions or recognise(text) is None:
            pattern = _parsed(text, regions)
        put = object.__setattr__
        put(self, "id", id)
        put(self, "subscriber", subscriber)
        put(self, "_pattern", pattern)
        put(self, "text", text if isinstance(text, str) and not regions else str(pattern))
        put(self, "consume", consume)
        put(self, "expires", until)
        put(self, "terms", said)

    @property
    def pattern(self) -> Pattern:
        """The parsed text. Of a text whose form is known it is parsed at every call."""
        return _parsed(self.text, None) if self._pattern is None else self._pattern

    def plan(self, longest: Micros | None = None) -> Plan:
        """The plan of the pattern, where plain events last at most `longest`."""
        apart = self.consume == "cumulative"
        known = recognise(self.text) if self._pattern is None else None
        if known is None:
            return compile_pattern(self.pattern, longest, apart)
        template, constants = known
        return template.plan(constants, longest, apart)

    def __reduce__(self) -> tuple[object, ...]:
        said = self.id, self.subscriber, self.text, self.consume, self.expires, self.terms
        return (_known, said)


def _known(
    id: str, subscriber: str | None, text: str, consume: Mode, expires: Micros | None = None,
    terms: Terms | None = None,
) -> Composite:  # fmt: skip
    """One that was a composite elsewhere: it is parsed when somebody asks for its pattern."""
    made = object.__new__(Composite)
    put = object.__setattr__
    put(made, "id", id)
    put(made, "subscriber", subscriber)
    put(made, "_pattern", None)
    put(made, "text", text)
    put(made, "consume", consume)
    put(made, "expires", expires)
    put(made, "terms", terms)
    return made


def _parsed(given: object, regions: Regions | None) -> Pattern:
    if isinstance(given, str):
        parsed = analyze(parse(given, regions), given)
        forget_spans(parsed)
        if not regions:
            learn(given, parsed)
        return parsed
    if isinstance(given, Expression):
        given = Pattern(given)
    if isinstance(given, Pattern):
        return analyze(given)
    raise ValidationError("text", given, "give CPSL text, or an expression of the builder")
