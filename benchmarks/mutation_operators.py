"""Single faults that can be planted in a line of Python, as another syntax tree of its file.

Left out, since they change nothing or nothing that a test should hold: annotations, docstrings,
`TYPE_CHECKING`,
`__all__`, whether records are frozen, and swaps where the order says nothing (`max`, `min`,
`isinstance`, sets, what stands behind `in`).
"""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
WITHOUT_ORDER = {"max", "min", "union", "isinstance", "issubclass", "hypot"}
"""Calls whose arguments are not swapped: the order says nothing, or a swap only breaks the call."""
NOT_MUTATED = ("__all__", "__slots__")


@dataclass(frozen=True)
class Fault:
    """One fault and the file that has it."""

    kind: str
    line: int
    before: str
    """The statement, without its block."""
    after: str
    in_function: bool
    """True where the line runs when a function is called, False where an import runs it."""
    names: tuple[str, ...]
    """What the statement binds."""
    source: str
    """The whole file with the fault."""


@dataclass(frozen=True)
class _Place:
    """A node, with what holds it, its statement, and whether it is in the body of a
    function."""

    node: ast.AST
    parent: ast.AST
    statement: ast.stmt
    in_function: bool


def plant_fault(text: str, line: int, rng: random.Random) -> Fault | None:
    """Return a fault of a line, by chance one of its kinds and then one of its places; None where
    it has none."""
    tree = ast.parse(text)
    choices = defaultdict(list)
    for place in _walk(tree):
        if getattr(place.node, "lineno", place.statement.lineno) == line:
            for kind, change in _list_changes(place):
                choices[kind].append((place, change))
    if not choices:
        return None
    kind = rng.choice(sorted(choices))
    place, change = rng.choice(choices[kind])
    before, names = get_header(place.statement), _bound_names(place.statement)
    new = change()
    if new is not None:
        _replace(place.parent, place.node, new)
    after = get_header(new if isinstance(new, ast.stmt) else place.statement)
    source = ast.unparse(ast.fix_missing_locations(tree))
    return Fault(kind, line, before, after, place.in_function, names, source)


def _walk(tree: ast.Module) -> Iterator[_Place]:
    """Yield every node that may be changed."""

    def below(node: ast.AST, statement: ast.stmt | None, *, inside: bool) -> Iterator[_Place]:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns"} or _is_skipped(node):
                continue
            body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body"
            deeper = inside or body or (isinstance(node, ast.Lambda) and name == "body")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    own = child if isinstance(child, ast.stmt) else statement
                    if own is not None:
                        yield _Place(child, node, own, deeper)
                    yield from below(child, own, inside=deeper)

    yield from below(tree, None, inside=False)


def _is_skipped(node: ast.AST) -> bool:
    """Say whether nothing below a node is changed."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Call) and _name_of(node.func) in {"dataclass", "lru_cache"}:
        return True  # whether a class is frozen or has a repr; how much a cache holds
    if isinstance(node, ast.keyword):
        # `strict` of `zip`: the lengths are equal; the others are of classes, as for `dataclass`
        return node.arg in {"strict", "frozen", "gc"}
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id in NOT_MUTATED for t in node.targets)
    return isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")


def _list_changes(place: _Place) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the faults that one node allows: its kind, and what plants it or returns the node to
    put in its place."""
    node = place.node
    match node:
        case ast.Compare(ops=ops):
            return [
                ("comparison", _setter(node, "ops", [*ops[:i], new(), *ops[i + 1 :]]))
                for i, op in enumerate(ops)
                for new in COMPARISONS[type(op)]
            ]
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _is_text(node):
            return [("arithmetic", _setter(node, "op", OPERATORS[type(op)]()))]
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            return [("and/or", _setter(node, "op", other))]
        case ast.UnaryOp(op=ast.Not()):
            return [("not removed", lambda: node.operand)]
        case ast.If() | ast.While() | ast.IfExp() if not _is_skipped(node):
            return [("not added", _setter(node, "test", ast.UnaryOp(ast.Not(), node.test)))]
        case ast.comprehension(ifs=ifs):
            return [
                ("not added", lambda i=i: ifs.__setitem__(i, ast.UnaryOp(ast.Not(), ifs[i])))
                for i in range(len(ifs))
            ]
        case ast.Constant(value=value) if type(value) in {bool, int, float}:
            return [("constant", _setter(node, "value", _other_constant(value)))]
        case ast.Subscript(slice=ast.Constant(value=str())):
            return _swap_column(place)
        case ast.Dict(keys=keys):
            return _swaps("column swapped", keys, _are_texts)
        case ast.List(elts=items) | ast.Tuple(elts=items) if isinstance(node.ctx, ast.Load):
            if _has_no_order(node, place.parent):
                return []
            return _swaps("column swapped", items, _are_texts)
        case ast.Call(args=args) if _name_of(node.func) not in WITHOUT_ORDER:
            return _swaps("arguments swapped", args, _are_swappable)
        case _:
            return _change_statement(place) if isinstance(node, ast.stmt) else []


def _has_no_order(node: ast.AST, parent: ast.AST) -> bool:
    """Say whether the order of a list says nothing: it stands behind `in`, or becomes a set."""
    if isinstance(parent, ast.Call):
        return _name_of(parent.func) in {"set", "frozenset"}
    return (
        isinstance(parent, ast.Compare)
        and isinstance(parent.ops[-1], ast.In | ast.NotIn)
        and node is parent.comparators[-1]
    )


def _change_statement(place: _Place) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the faults of a statement in a function: left out, or None returned."""
    node = place.node
    if not place.in_function:
        return []
    drop = ("dropped", ast.Pass)
    match node:
        case ast.AugAssign(op=op):
            other = OPERATORS.get(type(op))
            return [drop, *([("arithmetic", _setter(node, "op", other()))] if other else [])]
        case ast.Assign() | ast.AnnAssign(value=ast.AST()) | ast.Expr(value=ast.Call()):
            return [drop]
        case ast.Return(value=ast.AST()) if ast.unparse(node) != "return None":
            return [("return None", _setter(node, "value", ast.Constant(None)))]
    return []


def _setter(node: ast.AST, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _swaps(
    kind: str, items: list[Any], fits: Callable[[Any, Any], bool]
) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the swaps of neighbours that fit and differ."""

    def swap(i: int) -> Callable[[], None]:
        return lambda: items.__setitem__(slice(i, i + 2), items[i : i + 2][::-1])

    return [
        (kind, swap(i))
        for i in range(len(items) - 1)
        if fits(*items[i : i + 2]) and ast.dump(items[i]) != ast.dump(items[i + 1])
    ]


def _swap_column(place: _Place) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the swap of a column for another one that the same statement names."""
    node = place.node
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.slice, ast.Constant)
    columns = {
        n.slice.value
        for n in ast.walk(place.statement)
        if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)
    }
    others = sorted(c for c in columns if isinstance(c, str) and c != node.slice.value)
    return [("column swapped", _setter(node, "slice", ast.Constant(other))) for other in others]


def _are_texts(*items: ast.AST | None) -> bool:
    return all(isinstance(i, ast.Constant) and isinstance(i.value, str) for i in items)


def _are_swappable(*items: ast.AST) -> bool:
    return not any(isinstance(i, ast.Starred) for i in items)


def _is_text(node: ast.BinOp) -> bool:
    """Say whether an operator joins texts or lists, which have no difference: the call would only
    break."""
    sides = (node.left, node.right)
    kinds = ast.JoinedStr | ast.List | ast.Tuple
    return any(isinstance(s, kinds) or _are_texts(s) for s in sides)


def _other_constant(value: float) -> float:
    """Return a neighbouring value: the other truth value, one more, or twice as much."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 2 or 1.0


def _name_of(function: ast.AST) -> str:
    return getattr(function, "attr", None) or getattr(function, "id", "")


def _bound_names(statement: ast.AST) -> tuple[str, ...]:
    """Return what a statement binds: its targets, or its own name."""
    own = getattr(statement, "name", None)
    if own:
        return (own,)
    stored = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return tuple(n.id for n in stored if isinstance(n.ctx, ast.Store))


def get_header(statement: ast.AST) -> str:
    """Return a statement without its block, on one line."""
    bare = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers", "decorator_list", "cases"):
        if isinstance(getattr(bare, name, None), list):
            setattr(bare, name, [])
    return " ".join(ast.unparse(bare).split())


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if isinstance(value, list) and any(v is old for v in value):
            value[next(i for i, v in enumerate(value) if v is old)] = new
        elif value is old:
            setattr(parent, name, new)
