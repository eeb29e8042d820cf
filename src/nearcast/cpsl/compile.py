"""From a pattern to a plan: which operators there are, and what each of them waits for.

A plan is a tree of small values; the graph (`nearcast.cpsl.dag`) makes one node of equal
plans. Two things are decided here.

**Joints.** An operator that combines instances (`&&`, `|`, windows, binary spatial ones) is a
joint of its operands. If an operand is itself such an operator and uses a variable that is
also used outside of it, both are one joint: its inputs are the distinct operands, each
variable once, and all constraints must hold of one combination. So the same instance stands
behind every use, an instance that is of no more use is dropped for all constraints at once (the
paper's event invalidation), and consumption is decided once.

**Bounds.** `lag` is how long after its end an instance may still arrive (only `P(t)` delays),
`span` how long an instance can be. From both follows until when a partner is worth keeping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeAlias

from nearcast.clock import Micros
from nearcast.cpsl import ast
from nearcast.cpsl.leaves import leaf_of
from nearcast.cpsl.regions import packed
from nearcast.errors import ValidationError

__all__ = [
    "Input",
    "Op",
    "Plan",
    "Tree",
    "compile_pattern",
    "digest",
    "leaves_of",
    "speaks_of",
    "tie_break",
]

#: Longer than every duration.
ENDLESS: Micros = 2**62
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Op:
    """One constraint of a joint: over leaves (numbers) and over other constraints' hulls."""

    kind: str
    operands: tuple[Tree, ...]
    params: tuple[Any, ...] = ()


Tree: TypeAlias = int | Op


@dataclass(frozen=True, slots=True)
class Input:
    """An operand: its plan, and the `$` variable it is known as."""

    plan: Plan
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One node to be: kind, parameters, inputs, and the bounds that follow from them."""

    kind: str
    params: tuple[Any, ...]
    inputs: tuple[Input, ...]
    lag: Micros = 0
    span: Micros = ENDLESS
    names: frozenset[str] = frozenset()
    height: int = 0
    tie: int = 0


def tie_break(expression: ast.Expression) -> int:
    """A number that orders time events of different operators that are due together."""
    return digest(repr(expression))


def digest(text: str) -> int:
    """A number for a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def leaves_of(tree: Tree) -> Iterator[int]:
    """The leaves under a constraint, in the order they are written."""
    if isinstance(tree, int):
        yield tree
    else:
        for operand in tree.operands:
            yield from leaves_of(operand)


def speaks_of(given: Input) -> frozenset[str]:
    """The variables that an instance of this input may stand for; `Plan.names` are the certain."""
    plan = given.plan
    window = {"not-fixed": 0, "not-following": 1, "not-enclosed": 2}
    inputs = plan.inputs[: window.get(plan.kind, len(plan.inputs))]
    found = plan.names.union(*(speaks_of(below) for below in inputs))
    if plan.kind in ("count", "period", "sliding", "positions"):
        found = frozenset(name for name in found if name[0] == "&")
    return found if given.name is None else found | {"$" + given.name}


def compile_pattern(
    pattern: ast.Pattern,
    longest: Micros | None = None,
    apart: bool = False,
    ties: dict[int, str] | None = None,
) -> Plan:
    """The plan of a pattern whose plain events last at most `longest`. O(size).

    `apart` says that instances are told apart by their variables even where these stand in one
    place: in `cumulative` a variable stands for one event. `ties` takes the texts of which the
    tie breaks are digests.
    """
    compiler = _Compiler(pattern, ENDLESS if longest is None else longest)
    if ties is not None:
        compiler.ties = ties
    plan = compiler.plan(pattern.expression, 0)
    return plan if apart else _without(plan, _needless(plan))


def _needless(plan: Plan) -> frozenset[str]:
    """The variables that instances need not carry: nothing is decided by them.

    Those that only one input of one joint has: nothing else can disagree with them. But joints
    that differ in their variables alone stay two, as their instances are two that may be partners.
    """
    uses: Counter[str] = Counter()
    joined: set[str] = set()
    joints: list[Plan] = []
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        if one.kind == "joint":
            joints.append(one)
        for given in one.inputs:
            waiting.append(given.plan)
            if given.name is not None:
                uses[given.name] += 1
                if one.kind == "joint":
                    joined.add(given.name)
    single = frozenset(name for name in joined if uses[name] == 1)
    return single - _telling(joints, single) if single and len(joints) > 1 else single


def _telling(joints: list[Plan], names: frozenset[str]) -> set[str]:
    """Those of some variables by which joints are told apart that are equal without them."""
    alike: dict[object, set[object]] = {}
    for joint in joints:
        alike.setdefault(_form(joint, names), set()).add(_form(joint, frozenset()))
    return {
        name
        for joint in joints
        if len(alike[_form(joint, names)]) > 1
        for name in _named(joint) & names
    }


def _form(plan: Plan, without: frozenset[str]) -> object:
    """What plans have in common that may be equal once constants are bound to them.

    The constraints of a joint are of the form (`nearcast.cpsl.templates`), other constants not.
    """
    if plan.kind == "primitive":
        return plan.params[0].form
    inputs = tuple(
        (None if given.name in without else given.name, _form(given.plan, without))
        for given in plan.inputs
    )
    return plan.kind, plan.params if plan.kind == "joint" else (), inputs


def _named(plan: Plan) -> set[str]:
    """The `$` variables of all inputs below."""
    found = {given.name for given in plan.inputs if given.name is not None}
    return found.union(*(_named(given.plan) for given in plan.inputs))


def _without(plan: Plan, names: frozenset[str]) -> Plan:
    """The plan without variables: instances need not say what they stand for."""
    if not names:
        return plan
    inputs = tuple(
        Input(_without(i.plan, names), None if i.name in names else i.name) for i in plan.inputs
    )
    return replace(plan, inputs=inputs, names=plan.names - {"$" + name for name in names})


class _Compiler:
    """Compiles one pattern."""

    def __init__(self, pattern: ast.Pattern, longest: Micros) -> None:
        self.definitions = {d.name: d.body for d in pattern.definitions}
        self.longest = longest
        self.ties: dict[int, str] = {}
        self.uses: Counter[str] = _uses(pattern.expression)
        for body in self.definitions.values():
            self.uses += _uses(body)

    def plan(self, expression: ast.Expression, depth: int) -> Plan:
        if depth > _DEEPEST:
            raise ValidationError("text", "…", f"operators nest at most {_DEEPEST} deep")
        match expression:
            case ast.Primitive():
                leaf = leaf_of(expression)
                return Plan("primitive", (leaf,), (), 0, self.longest, leaf.form.names)
            case ast.Reference():
                return self.input(expression, depth).plan
            case ast.Or(parts=parts):
                return self._or(parts, depth)
            case ast.Negation():
                return self._negation(expression, depth)
            case ast.Count(n=n, body=body):
                return self._repetition("count", (n,), expression, body, depth)
            case ast.Period(length=length, body=body):
                return self._repetition("period", (length,), expression, body, depth)
            case ast.Sliding(n=n, length=length, step=step, body=body):
                return self._repetition("sliding", (n, length, step), expression, body, depth)
            case ast.Crossing():
                return self._crossing(expression, depth)
        found = unary_test(expression)
        if found is not None:
            kind, params, body = found
            below = self.input(body, depth)
            return _over(kind, params, (below,), below.plan.lag, below.plan.span, _names(below))
        return self._joint(expression, depth)

    def input(self, expression: ast.Expression, depth: int) -> Input:
        """An operand; a reference stands for its definition under a name."""
        if isinstance(expression, ast.Reference):
            body = self.definitions.get(expression.name)
            if body is None:
                raise ValidationError("text", f"${expression.name};", "define the variable")
            below = self.input(body, depth + 1)
            if below.name is None:
                return Input(below.plan, expression.name)
            # A variable that only renames another one is both of them.
            alias = _over("alias", (), (below,), below.plan.lag, below.plan.span, _names(below))
            return Input(alias, expression.name)
        return Input(self.plan(expression, depth + 1))

    def _or(self, parts: tuple[ast.Expression, ...], depth: int) -> Plan:
        inputs = tuple(self.input(part, depth) for part in parts)
        lag = max(i.plan.lag for i in inputs)
        span = max(i.plan.span for i in inputs)
        names = frozenset.intersection(*(_names(i) for i in inputs))
        return _over("or", (), inputs, lag, span, names)

    def _negation(self, expression: ast.Negation, depth: int) -> Plan:
        window, tie = expression.window, self._tie(expression)
        body = self.input(expression.body, depth)
        if isinstance(window, ast.Fixed):
            params = (window.at, window.length)
            return _over("not-fixed", params, (body,), 0, window.length, frozenset(), tie)
        opener = self.input(window.opener, depth)
        if isinstance(window, ast.Following):
            span, lag = _plus(opener.plan.span, window.length), opener.plan.lag
            inputs, names = (opener, body), _names(opener)
            return _over("not-following", (window.length,), inputs, lag, span, names, tie)
        closer = self.input(window.closer, depth)
        lag = max(opener.plan.lag, closer.plan.lag)
        names = _names(opener) | _names(closer)
        return _over("not-enclosed", (), (opener, closer, body), lag, ENDLESS, names, tie)

    def _repetition(
        self,
        kind: str,
        params: tuple[int, ...],
        expression: ast.Expression,
        body: ast.Expression,
        depth: int,
    ) -> Plan:
        below = self.input(body, depth)
        names = frozenset(name for name in _names(below) if name[0] == "&")
        lag = below.plan.lag + (params[0] if kind == "period" else 0)
        span = params[1] if kind == "sliding" else ENDLESS
        return _over(kind, params, (below,), lag, span, names, self._tie(expression))

    def _crossing(self, expression: ast.Crossing, depth: int) -> Plan:
        """A border over the positions of its operand, which borders over equal ones share."""
        below = self.input(expression.body, depth)
        names = frozenset(name for name in _names(below) if name[0] == "&")
        lag = below.plan.lag
        positions = _over("positions", (), (below,), lag, below.plan.span, names)
        params: tuple[Any, ...] = packed(expression.region.points), float(expression.margin)
        if isinstance(expression, ast.Dwell):
            params = (*params, expression.length)
        elif isinstance(expression, ast.Approach):
            params = (*params, float(expression.metres))
        kind, tie = expression.symbol.lower(), self._tie(expression)
        return _over(kind, params, (Input(positions),), lag, ENDLESS, names, tie)

    def _tie(self, expression: ast.Expression) -> int:
        tie = tie_break(expression)
        self.ties[tie] = repr(expression)
        return tie

    # -- joints ----------------------------------------------------------------

    def _joint(self, expression: ast.Expression, depth: int) -> Plan:
        inputs: list[Input] = []
        tree = self._tree(expression, inputs, depth)
        assert isinstance(tree, Op)
        names = frozenset[str]().union(*(_names(i) for i in inputs))
        lag = max(i.plan.lag for i in inputs)
        span = _joint_span(tree, inputs)
        return _over("joint", (tree,), tuple(inputs), lag, span, names)

    def _tree(self, expression: ast.Expression, inputs: list[Input], depth: int) -> Tree:
        if depth > _DEEPEST:
            raise ValidationError("text", "…", f"operators nest at most {_DEEPEST} deep")
        unary = unary_test(expression)
        if unary is not None:
            kind, params, body = unary
            return Op(kind, (self._operand(body, inputs, depth),), params)
        kind, params = binary_test(expression)
        operands = ast.children(expression)
        return Op(kind, tuple(self._operand(o, inputs, depth) for o in operands), params)

    def _operand(self, operand: ast.Expression, inputs: list[Input], depth: int) -> Tree:
        if not isinstance(operand, ast.Reference) and self._joins_in(operand):
            return self._tree(operand, inputs, depth + 1)
        found = self.input(operand, depth)
        if found.name is not None:
            for at, known in enumerate(inputs):
                if known.name == found.name:
                    return at
        inputs.append(found)
        return len(inputs) - 1

    def _joins_in(self, operand: ast.Expression) -> bool:
        """Whether an operand is part of its parent's joint."""
        if unary_test(operand) is None and not is_joint(operand):
            return False
        return any(count < self.uses[name] for name, count in _uses(operand).items())


def is_joint(expression: ast.Expression) -> bool:
    """Whether an operator combines instances of several operands."""
    match expression:
        case ast.And() | ast.Concurrent() | ast.Inside():
            return True
        case ast.HappenBetween(window=window) | ast.HappenAfter(window=window):
            return not isinstance(window, ast.Fixed)
        case ast.Overlap(place=place) | ast.SamePlace(place=place) | ast.Distance(place=place):
            return isinstance(place, ast.Expression)
    return False


def unary_test(
    expression: ast.Expression,
) -> tuple[str, tuple[Any, ...], ast.Expression] | None:
    """An operator that only lets some instances of its one operand pass."""
    match expression:
        case ast.HappenIn(region=region, body=body):
            return "happen-in", (packed(region.points),), body
        case ast.Overlap(place=ast.Region(points=points), body=body):
            return "overlap", (packed(points),), body
        case ast.SamePlace(place=ast.Region(points=points), body=body):
            return "same-place", (packed(points),), body
        case ast.Distance(place=ast.Region(points=points), op=op, metres=metres, body=body):
            return "distance", (packed(points), op, float(metres)), body
        case ast.HappenBetween(window=ast.Fixed(at=at, length=length), body=body):
            return "during", (at, at + length), body
        case ast.HappenAfter(window=ast.Fixed(at=at, length=length), body=body):
            return "later", (at + length,), body
    return None


def binary_test(expression: ast.Expression) -> tuple[str, tuple[Any, ...]]:
    """The constraint of an operator that combines instances."""
    match expression:
        case ast.And():
            return "and", ()
        case ast.Concurrent():
            return "concurrent", ()
        case ast.Inside():
            return "inside", ()
        case ast.Overlap():
            return "meet", ()
        case ast.SamePlace():
            return "same", ()
        case ast.Distance(op=op, metres=metres):
            return "apart", (op, float(metres))
        case ast.HappenBetween(window=ast.Following(length=length)):
            return "within", (length,)
        case ast.HappenAfter(window=ast.Following(length=length)):
            return "after", (length,)
        case ast.HappenBetween():
            return "between", ()
        case ast.HappenAfter():
            return "after-both", ()
    raise ValidationError("text", type(expression).__name__, "give an operator of CPSL")


def _over(
    kind: str,
    params: tuple[Any, ...],
    inputs: tuple[Input, ...],
    lag: Micros,
    span: Micros,
    names: frozenset[str],
    tie: int = 0,
) -> Plan:
    height = 1 + max(i.plan.height for i in inputs)
    return Plan(kind, params, inputs, lag, span, names, height, tie)


def _names(given: Input) -> frozenset[str]:
    """The variables that every instance of this input binds."""
    names = given.plan.names
    return names if given.name is None else names | {"$" + given.name}


def _joint_span(tree: Op, inputs: list[Input]) -> Micros:
    """How long a combination can be, where two plain operands and one constraint tell."""
    if len(tree.operands) != 2 or not all(isinstance(o, int) for o in tree.operands):
        return ENDLESS
    first, second = (inputs[o].plan.span for o in tree.operands if isinstance(o, int))
    if tree.kind == "within":
        return _plus(first, tree.params[0])
    return _plus(first, second) if tree.kind == "concurrent" else ENDLESS


def _plus(first: Micros, second: Micros) -> Micros:
    return min(first + second, ENDLESS)


def _uses(expression: ast.Expression) -> Counter[str]:
    return Counter(node.name for node in ast.walk(expression) if isinstance(node, ast.Reference))
