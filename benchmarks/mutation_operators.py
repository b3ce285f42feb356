"""Single faults that can be planted in a line of Python, as another syntax tree of its file.

Some places get no fault, because it would change nothing that a test should check: annotations,
docstrings, `TYPE_CHECKING`, `__all__`, whether records are frozen, and swaps where the order has no
meaning (`max`, `min`, `isinstance`, sets, the right side of `in`).
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
WITHOUT_ORDER = {"max", "min", "union", "isinstance", "issubclass", "hypot", "suppress"}
"""Calls whose arguments are not swapped: their order has no meaning, or a swap breaks the call."""
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
    """Names that the statement binds."""
    source: str
    """The whole file with the fault."""


@dataclass(frozen=True)
class _Candidate:
    """A node that may be changed, its parent, its statement, and whether it is in a function."""

    node: ast.AST
    parent: ast.AST
    statement: ast.stmt
    in_function: bool


def plant_fault(text: str, line: int, rng: random.Random) -> Fault | None:
    """Return a random fault of a line, or None where it has none.

    First a kind of fault is drawn, then one of the places in the line that allow it.
    """
    tree = ast.parse(text)
    changes_by_kind = defaultdict(list)
    for candidate in _iter_candidates(tree):
        if getattr(candidate.node, "lineno", candidate.statement.lineno) == line:
            for kind, plant in _list_changes(candidate):
                changes_by_kind[kind].append((candidate, plant))
    if not changes_by_kind:
        return None
    kind = rng.choice(sorted(changes_by_kind))
    candidate, plant = rng.choice(changes_by_kind[kind])
    before, names = get_header(candidate.statement), _list_bound_names(candidate.statement)
    new_node = plant()
    if new_node is not None:
        _replace_node(candidate.parent, candidate.node, new_node)
    after = get_header(new_node if isinstance(new_node, ast.stmt) else candidate.statement)
    source = ast.unparse(ast.fix_missing_locations(tree))
    return Fault(kind, line, before, after, candidate.in_function, names, source)


def _iter_candidates(tree: ast.Module) -> Iterator[_Candidate]:
    """Yield every node that may be changed."""

    def iter_below(
        node: ast.AST, statement: ast.stmt | None, *, in_function: bool
    ) -> Iterator[_Candidate]:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns"} or _is_skipped(node):
                continue
            is_body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body"
            child_in_function = (
                in_function or is_body or (isinstance(node, ast.Lambda) and name == "body")
            )
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    child_statement = child if isinstance(child, ast.stmt) else statement
                    if child_statement is not None:
                        yield _Candidate(child, node, child_statement, child_in_function)
                    yield from iter_below(child, child_statement, in_function=child_in_function)

    yield from iter_below(tree, None, in_function=False)


def _is_skipped(node: ast.AST) -> bool:
    """Return whether nothing below a node is changed."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Call) and _get_function_name(node.func) in {"dataclass", "lru_cache"}:
        return True  # whether a class is frozen or has a repr; how much a cache holds
    if isinstance(node, ast.keyword):
        # `strict` of `zip`: the lengths are equal; the others are of classes, as for `dataclass`
        return node.arg in {"strict", "frozen", "gc"}
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id in NOT_MUTATED for t in node.targets)
    return isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")


def _list_changes(candidate: _Candidate) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the faults that one node allows, each as its kind and a function.

    The function changes the node, or returns the node to put in its place.
    """
    node = candidate.node
    match node:
        case ast.Compare(ops=ops):
            return [
                ("comparison", _make_setter(node, "ops", [*ops[:i], new_op(), *ops[i + 1 :]]))
                for i, op in enumerate(ops)
                for new_op in COMPARISONS[type(op)]
            ]
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _joins_texts(node):
            return [("arithmetic", _make_setter(node, "op", OPERATORS[type(op)]()))]
        case ast.BoolOp(op=op):
            other_op = ast.Or() if isinstance(op, ast.And) else ast.And()
            return [("and/or", _make_setter(node, "op", other_op))]
        case ast.UnaryOp(op=ast.Not()):
            return [("not removed", lambda: node.operand)]
        case ast.If() | ast.While() | ast.IfExp() if not _is_skipped(node):
            return [("not added", _make_setter(node, "test", ast.UnaryOp(ast.Not(), node.test)))]
        case ast.comprehension(ifs=ifs):
            return [
                ("not added", lambda i=i: ifs.__setitem__(i, ast.UnaryOp(ast.Not(), ifs[i])))
                for i in range(len(ifs))
            ]
        case ast.Constant(value=value) if type(value) in {bool, int, float}:
            return [("constant", _make_setter(node, "value", _change_constant(value)))]
        case ast.Subscript(slice=ast.Constant(value=str())):
            return _list_column_swaps(candidate)
        case ast.Dict(keys=keys):
            return _list_swaps("column swapped", keys, _are_texts)
        case ast.List(elts=items) | ast.Tuple(elts=items) if isinstance(node.ctx, ast.Load):
            if _has_no_order(node, candidate.parent):
                return []
            return _list_swaps("column swapped", items, _are_texts)
        case ast.Call(args=args) if _get_function_name(node.func) not in WITHOUT_ORDER:
            return _list_swaps("arguments swapped", args, _are_swappable)
        case _:
            return _change_statement(candidate) if isinstance(node, ast.stmt) else []


def _has_no_order(node: ast.AST, parent: ast.AST) -> bool:
    """Return whether the order of a list has no meaning: after `in`, or in a set."""
    if isinstance(parent, ast.Call):
        return _get_function_name(parent.func) in {"set", "frozenset"}
    return (
        isinstance(parent, ast.Compare)
        and isinstance(parent.ops[-1], ast.In | ast.NotIn)
        and node is parent.comparators[-1]
    )


def _change_statement(candidate: _Candidate) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the faults of a statement in a function: it is dropped, or it returns None."""
    node = candidate.node
    if not candidate.in_function:
        return []
    dropped = ("dropped", ast.Pass)
    match node:
        case ast.AugAssign(op=op):
            other_op = OPERATORS.get(type(op))
            return [
                dropped,
                *([("arithmetic", _make_setter(node, "op", other_op()))] if other_op else []),
            ]
        case ast.Assign() | ast.AnnAssign(value=ast.AST()) | ast.Expr(value=ast.Call()):
            return [dropped]
        case ast.Return(value=ast.AST()) if ast.unparse(node) != "return None":
            return [("return None", _make_setter(node, "value", ast.Constant(None)))]
    return []


def _make_setter(node: ast.AST, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _list_swaps(
    kind: str, items: list[Any], is_swappable: Callable[[Any, Any], bool]
) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the swaps of neighbours that fit and differ."""

    def make_swap(i: int) -> Callable[[], None]:
        return lambda: items.__setitem__(slice(i, i + 2), items[i : i + 2][::-1])

    return [
        (kind, make_swap(i))
        for i in range(len(items) - 1)
        if is_swappable(*items[i : i + 2]) and ast.dump(items[i]) != ast.dump(items[i + 1])
    ]


def _list_column_swaps(candidate: _Candidate) -> list[tuple[str, Callable[[], ast.AST | None]]]:
    """Return the swaps of a column for another one that the same statement names."""
    node = candidate.node
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.slice, ast.Constant)
    columns = {
        subscript.slice.value
        for subscript in ast.walk(candidate.statement)
        if isinstance(subscript, ast.Subscript) and isinstance(subscript.slice, ast.Constant)
    }
    other_columns = sorted(
        column for column in columns if isinstance(column, str) and column != node.slice.value
    )
    return [
        ("column swapped", _make_setter(node, "slice", ast.Constant(column)))
        for column in other_columns
    ]


def _are_texts(*items: ast.AST | None) -> bool:
    return all(isinstance(i, ast.Constant) and isinstance(i.value, str) for i in items)


def _are_swappable(*items: ast.AST) -> bool:
    return not any(isinstance(i, ast.Starred) for i in items)


def _joins_texts(node: ast.BinOp) -> bool:
    """Return whether an operator joins texts or lists, where another one would be an error."""
    sides = (node.left, node.right)
    text_types = ast.JoinedStr | ast.List | ast.Tuple
    return any(isinstance(side, text_types) or _are_texts(side) for side in sides)


def _change_constant(value: float) -> float:
    """Return a neighbouring value: the other truth value, one more, or twice as much."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 2 or 1.0


def _get_function_name(function: ast.AST) -> str:
    return getattr(function, "attr", None) or getattr(function, "id", "")


def _list_bound_names(statement: ast.AST) -> tuple[str, ...]:
    """Return the names that a statement binds: its own, or those of its targets."""
    name = getattr(statement, "name", None)
    if name:
        return (name,)
    names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return tuple(n.id for n in names if isinstance(n.ctx, ast.Store))


def get_header(statement: ast.AST) -> str:
    """Return a statement without its block, on one line."""
    header = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers", "decorator_list", "cases"):
        if isinstance(getattr(header, name, None), list):
            setattr(header, name, [])
    return " ".join(ast.unparse(header).split())


def _replace_node(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if isinstance(value, list) and any(v is old for v in value):
            value[next(i for i, v in enumerate(value) if v is old)] = new
        elif value is old:
            setattr(parent, name, new)
