"""Constants and rules of Python as JavaScript, so that a widget's browser code holds none of them.

A rule must answer while a line is dragged, in a page without a kernel too, for any number that can
be typed; a table of its answers would grow with the square of the turns. So it is written once, in
the small part of Python that `translate_function_to_javascript` knows, and is handed to the
browser as text.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit._internal.chart_style import (
    COLOURS,
    DASHES,
    GRID_COLOUR,
    STOP_COLOUR,
    SVG_DASHES,
    TEXT_COLOUR,
    WARN_COLOUR,
)
from ctxkit.plots.chart import FIGURE_CELL, LONG_CELL

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_PER_CHUNK = 100
"""Rows of a list that the browser asks for at once."""
CONSTANTS = {
    "INK": [c for c in COLOURS if c not in (WARN_COLOUR, STOP_COLOUR)],
    "DASH": DASHES,
    "STROKE": SVG_DASHES,
    "WARN": WARN_COLOUR,
    "STOP": STOP_COLOUR,
    "GREY": TEXT_COLOUR,
    "GRID": GRID_COLOUR,
    "FIGURE_CELL": FIGURE_CELL.pattern,
    "LONG_CELL": LONG_CELL,
    "PIECE": ROWS_PER_CHUNK,
}
"""Constants shared by Python and the scripts of widgets, by their names in JavaScript."""
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "===",
    ast.Is: "==",  # of None, which may be undefined in JavaScript
    ast.IsNot: "!=",
    ast.And: "&&",
    ast.Or: "||",
    ast.Not: "!",
}


def declare_javascript_constants() -> str:
    """Return the constants as declarations of JavaScript.

    Returns:
        One statement `const ...;` with the values of Python.
    """
    pairs = (f"{name} = {json.dumps(value)}" for name, value in CONSTANTS.items())
    return f"const {', '.join(pairs)};"


@cache
def translate_function_to_javascript(rule: Callable[..., Any]) -> str:
    """Return a function as JavaScript of the same name and parameters.

    It may assign, append, loop by ``for i, x in enumerate(xs)``, branch, call other rules and
    return numbers, lists and dictionaries; None is null.

    Args:
        rule: a plain function whose source can be read.

    Returns:
        The function's declaration, so that browser and kernel compute the same.

    Raises:
        TypeError: it has something else in it.
    """
    [function] = ast.parse(textwrap.dedent(inspect.getsource(rule))).body
    if not isinstance(function, ast.FunctionDef):
        raise TypeError(f"{rule.__name__} is no plain function.")
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Name))
    names = dict.fromkeys(n.id for n in stored if isinstance(n.ctx, ast.Store))
    parameters = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    body = "".join(map(_to_statement, function.body))
    declared = f"let {', '.join(names)}; " if names else ""
    return f"function {function.name}({', '.join(parameters)}) {{ {declared}{body}}}"


# A translator by cases on the syntax tree. Only forms that mean the same in both languages have a
# case; all others raise `TypeError`, so no rule can be built that the browser would run otherwise.
# Names that are assigned are declared by one `let` at the top, which gives them the function scope
# that they have in Python. Each operation is put into parentheses, so precedence does not matter.
def _to_statement(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return ""
        case ast.Expr(value=value):
            return f"{_to_code(value)}; "
        case ast.Assign(targets=targets, value=value):
            return f"{' = '.join(map(_to_code, targets))} = {_to_code(value)}; "
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return f"{_to_code(target)} = {_to_code(value)}; "
        case ast.Return(value=ast.expr() as value):
            return f"return {_to_code(value)}; "
        case ast.If(test=test, body=body, orelse=orelse):
            other = f"else {{ {''.join(map(_to_statement, orelse))}}} " if orelse else ""
            return f"if ({_to_code(test)}) {{ {''.join(map(_to_statement, body))}}} {other}"
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=i), ast.Name(id=item)]),
            iter=ast.Call(func=ast.Name(id="enumerate"), args=[ast.Name(id=items)]),
            body=body,
        ):
            inner = "".join(map(_to_statement, body))
            return (
                f"for ({i} = 0; {i} < {items}.length; {i}++) {{ {item} = {items}[{i}]; {inner}}} "
            )
    raise TypeError(f"No rule for the browser: {ast.unparse(node)!r}")


def _to_code(node: ast.expr) -> str:  # noqa: PLR0911  one a kind of expression
    match node:
        case ast.Constant(value=value):
            return json.dumps(value)
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=value, slice=index):
            return f"{_to_code(value)}[{_to_code(index)}]"
        case (
            ast.BinOp(left=left, op=op, right=right)
            | ast.Compare(left=left, ops=[op], comparators=[right])
        ) if type(op) in _OPERATORS:
            return f"({_to_code(left)} {_OPERATORS[type(op)]} {_to_code(right)})"
        case ast.BoolOp(op=op, values=values):
            return f"({f' {_OPERATORS[type(op)]} '.join(map(_to_code, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"!{_to_code(operand)}"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({_to_code(test)} ? {_to_code(body)} : {_to_code(orelse)})"
        case ast.List(elts=values):
            return f"[{', '.join(map(_to_code, values))}]"
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return f"({{{', '.join(f'{_to_code(k)}: {_to_code(v)}' for k, v in pairs if k)}}})"
        case ast.Call(func=ast.Attribute(value=items, attr="append"), args=[value]):
            return f"{_to_code(items)}.push({_to_code(value)})"
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return f"{name}({', '.join(map(_to_code, args))})"
    raise TypeError(f"No rule for the browser: {ast.unparse(node)!r}")
