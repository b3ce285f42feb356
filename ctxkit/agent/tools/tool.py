"""Tools made from typed functions: schema from the signature, description from the docstring."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.session.messages import ToolSchema

if TYPE_CHECKING:
    from types import CodeType

Function = Callable[..., Any]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that an agent may call.

    `run` is called with keyword arguments, in a thread unless it is a coroutine function. `needs`
    names the permission that the user must have given (`shell`, `kernel`); empty for a harmless
    tool.
    """

    schema: ToolSchema
    run: Function | Callable[..., Awaitable[Any]]
    needs: str = ""
    free: bool = False
    """True if `run` checks its arguments itself and gets them as they came."""

    @property
    def name(self) -> str:
        """Name under which the model calls the tool."""
        return self.schema.name


def tool(function: Function, *, name: str | None = None, permission: str = "") -> Tool:
    """Return a tool made of a function with annotated parameters.

    Args:
        function: called with the arguments by name; its docstring's first paragraph is the
            description for the model.
        name: name of the tool; None: the function's.
        permission: permission that the user must have given; empty: none.

    Returns:
        The tool; its JSON schema is made from the annotations.

    Raises:
        BadArguments: a parameter has no annotation that JSON can express, or is positional-only.

    Example:
        >>> from ctxkit.agent.tools.tool import tool
        >>> def add(a: int, b: int = 1) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> tool(add).schema.description
        'Add two numbers.'
    """
    return Tool(
        schema=_make_schema(function, name or function.__name__), run=function, needs=permission
    )


def tool_with_cached_schema(function: Function, *, permission: str = "") -> Tool:
    """Return a tool made of a function of ctxkit itself, with its schema cached per process.

    Each session defines these functions again, as closures over its own folder, but their code
    objects stay the same, so the cache is keyed by those.

    Args:
        function: called with the arguments by name; its docstring's first paragraph is the
            description for the model.
        permission: permission that the user must have given; empty: none.

    Returns:
        The tool; two closures of one function share a schema.
    """
    schema = _SCHEMAS.get(function.__code__)
    if schema is None:
        schema = _SCHEMAS[function.__code__] = _make_schema(function, function.__name__)
    return Tool(schema=schema, run=function, needs=permission)


_SCHEMAS: dict[CodeType, ToolSchema] = {}


def _make_schema(function: Function, name: str) -> ToolSchema:
    description = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    parameters = _parameters_schema(function, name)
    size = len(
        msgspec.json.encode({"name": name, "description": description, "parameters": parameters})
    )
    return ToolSchema(name=name, description=description, parameters=parameters, chars=size)


def _parameters_schema(function: Function, name: str) -> dict[str, Any]:
    try:
        hints = get_type_hints(function)
    except NameError as e:
        raise BadArguments(
            f"Tool {name!r} has an annotation that cannot be looked up: {e}."
        ) from None
    fields: list[Any] = []
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise BadArguments(
                f"Tool {name!r}: parameter {p.name!r} must be one that can be given by name."
            )
        kind = hints.get(p.name, str)
        fields.append((p.name, kind) if p.default is p.empty else (p.name, kind, p.default))
    model = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
    try:
        (_, components) = msgspec.json.schema_components([model])
    except TypeError as e:
        raise BadArguments(
            f"Tool {name!r} has a parameter that JSON cannot express: {e}."
        ) from None
    schema = dict(components["arguments"])
    schema.pop("title", None)
    if len(components) > 1:
        schema["$defs"] = {k: v for k, v in components.items() if k != "arguments"}
    return schema


def convert_arguments(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a model's arguments, checked and converted (`"3"` becomes 3 for an int).

    Args:
        tool: the tool that is called.
        arguments: as the model gave them; a tool with `free` parameters gets them as they are.

    Returns:
        The arguments by name, in the types of the function's annotations.

    Raises:
        BadArguments: one is missing, unknown, or of another type; the sentence names it.

    Example:
        >>> from ctxkit.agent.tools.tool import convert_arguments, tool
        >>> def double(n: int) -> int:
        ...     '''Double a number.'''
        ...     return 2 * n
        >>> convert_arguments(tool(double), {"n": "3"})
        {'n': 3}
    """
    if tool.free:
        return arguments
    hints = get_type_hints(tool.run)
    parameters = inspect.signature(tool.run).parameters
    unknown = [k for k in arguments if k not in parameters]
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in arguments]
    if unknown or missing:
        problem = (
            f"unknown {', '.join(map(repr, unknown))}"
            if unknown
            else f"missing {', '.join(map(repr, missing))}"
        )
        raise BadArguments(
            f"{tool.name}: {problem}; it takes {', '.join(parameters) or 'nothing'}."
        )
    converted: dict[str, Any] = {}
    for key, value in arguments.items():
        try:
            converted[key] = msgspec.convert(value, hints.get(key, str), strict=False)
        except msgspec.ValidationError as e:
            raise BadArguments(f"{tool.name}: {key!r} is wrong: {e}.") from None
    return converted
