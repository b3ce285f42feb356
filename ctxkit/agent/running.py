"""Running what a model asked for: arguments checked, off the event loop, cancelled with the turn, results bounded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ctxkit.errors import CtxkitError, did_you_mean
from ctxkit.messages import Message, Text
from ctxkit.policies import trims
from ctxkit.tools.tool import arguments_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.messages import ToolCall
    from ctxkit.tools.tool import Tool

Approve = Callable[["ToolCall"], bool | Awaitable[bool]]
"""Says whether a call may run."""
Offload = Callable[[str, str], str]
"""Keeps a large result (tool, text) elsewhere and returns the stub that the model gets."""


async def run_tool(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    approve: Approve | None = None,
    offload: Offload | None = None,
    offload_chars: int = 204_800,
) -> Message:
    """Return the result of a tool call as a message; what goes wrong in the tool is its result, not an exception."""
    text, failed = await _outcome(call, tools, approve)
    if offload is not None and len(text) > offload_chars:
        text = offload(call.name, text)
    else:
        text = trims.output(text, max_lines=2000, max_chars=204_800, max_bytes=51_200, mode="head_tail")
    return Message(
        role="tool",
        parts=(Text(text),),
        tool=call.name,
        call_id=call.id,
        is_error=failed,
    )


async def _outcome(call: ToolCall, tools: Mapping[str, Tool], approve: Approve | None) -> tuple[str, bool]:
    tool = tools.get(call.name)
    if tool is None:
        return f"There is no tool {call.name!r}.{did_you_mean(call.name, tools)} Known: {', '.join(tools)}.", True
    if call.raw is not None:
        return "The arguments are no JSON object; send them again as one.", True
    try:
        arguments = arguments_for(tool, call.arguments)
        if approve is not None:
            answer = approve(call)
            if not (await answer if inspect.isawaitable(answer) else answer):
                return "The user did not allow this call.", True
        return str(await _called(tool, arguments)), False
    except CtxkitError as e:
        return str(e), True
    except Exception as e:  # noqa: BLE001  a tool may raise anything; the model is told
        return f"{type(e).__name__}: {e}", True


async def _called(tool: Tool, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.run):
        return await tool.run(**arguments)
    return await asyncio.to_thread(tool.run, **arguments)
