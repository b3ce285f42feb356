"""Running a tool call: checked, approved, in a thread, cancelled with the turn, bounded."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.agent.output_limits import OutputLimits
from ctxkit.errors import CtxkitError, did_you_mean
from ctxkit.messages import APPROVAL, APPROVALS, Image, Message, Text
from ctxkit.tools.pictures import as_picture, untaken
from ctxkit.tools.tool import arguments_for

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ctxkit.messages import ToolCall
    from ctxkit.tools.tool import Tool

Approve = Callable[["ToolCall"], bool | Awaitable[bool]]
"""Says whether a call may run."""
Offload = Callable[[str, str], str]
"""Keeps a large result (tool, text) elsewhere and returns the stub that the model gets."""


_STUB = 1000
"""Characters that no stub has."""


class Stopped(BaseException):
    """Raised in the thread of a tool whose turn was stopped."""


async def run_tool(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    approve: Approve | None = None,
    asks: Container[str] | None = None,
    offload: Offload | None = None,
    outputs: OutputLimits | None = None,
    pictures: bool = True,
) -> Message:
    """Return the result of a tool call as a message; what goes wrong in the tool is its result, not
    an exception.

    What a person said to the call stands in its details; `asks` are the tools that `approve` asks a
    person about (None: all). `pictures`: whether the model takes them; where it does not, words
    say what there was.
    """
    limits = outputs or OutputLimits()
    text, images, failed, answer = await _outcome(call, tools, approve, pictures=pictures)
    spilt = offload is not None and 0 < limits.spill < len(text)
    if offload is not None and spilt:  # it is redacted first, a second for a megabyte
        text = await in_thread(lambda: offload(call.name, text))
    if not spilt or len(text) > _STUB:  # what could not be kept comes back whole
        text = limits.cut(text)
    return Message(
        role="tool",
        parts=(Text(text), *images),
        tool=call.name,
        call_id=call.id,
        is_error=failed,
        details={APPROVAL: answer} if answer and (asks is None or call.name in asks) else {},
    )


async def _outcome(
    call: ToolCall, tools: Mapping[str, Tool], approve: Approve | None, *, pictures: bool
) -> tuple[str, list[Image], bool, str]:
    """Return the text and the pictures of a result, whether it is a failure, and what a person said
    to the call.
    """
    answer = ""
    tool = tools.get(call.name)
    if tool is None:
        near, known = did_you_mean(call.name, tools), ", ".join(tools)
        return f"There is no tool {call.name!r}.{near} Known: {known}.", [], True, answer
    if call.raw is not None:
        return "The arguments are no JSON object; send them again as one.", [], True, answer
    try:
        arguments = arguments_for(tool, call.arguments)
        if approve is not None:
            said = approve(call)
            allowed = await said if inspect.isawaitable(said) else said
            answer = APPROVALS[not allowed]
            if not allowed:
                return "The user did not allow this call.", [], True, answer
        return *_shown(await _called(tool, arguments), pictures=pictures), False, answer
    except CtxkitError as e:
        return str(e), [], True, answer
    # a tool may raise anything; the model is told
    except (Exception, SystemExit) as e:  # noqa: BLE001
        return f"{type(e).__name__}: {e}", [], True, answer


def _shown(value: Any, *, pictures: bool) -> tuple[str, list[Image]]:
    """Return what a tool gave as the text that the model reads, and the pictures for it."""
    found = [as_picture(value)]
    if isinstance(value, (list, tuple)) and any(parts := [as_picture(v) for v in value]):
        found = parts
    said: list[str] = []
    images = [i for i in found if i is not None] if pictures else []
    for each, image in zip(value if len(found) > 1 else [value], found, strict=True):
        if image is None:
            said.append(_text(each))
        elif not pictures:
            said.append(untaken(image))
    return "\n".join(said) or "(a picture)", images


def _text(value: Any) -> str:
    """Return what a tool gave as the text that the model reads."""
    if isinstance(value, str):
        return value or "(no output)"
    if value is None:
        return "(no output)"
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, (dict, list, tuple)):
        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError):
            return str(value)
    return str(value)


async def _called(tool: Tool, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.run):
        return await tool.run(**arguments)
    result = await in_thread(lambda: tool.run(**arguments))
    return await result if inspect.isawaitable(result) else result


async def in_thread(work: Callable[[], Any]) -> Any:
    """Do blocking work in a thread of its own; when its task is cancelled, the thread is told to
    end too.

    The default executor would not do: its threads are waited for when the loop ends, however long
    they take.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def body() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except Stopped:
            return
        except (StopIteration, KeyboardInterrupt) as e:  # no future, and no loop, may carry these
            error = RuntimeError(f"{type(e).__name__}: {e}")
        except BaseException as e:  # noqa: BLE001  it is raised again where the result is awaited
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    def whole() -> None:
        with contextlib.suppress(Stopped):  # it may arrive after the work
            body()

    thread = threading.Thread(target=whole, daemon=True, name="ctxkit-tool")
    thread.start()
    try:
        return await done
    except asyncio.CancelledError:
        _stop(thread)
        raise


def _stop(thread: threading.Thread) -> None:
    """Raise `Stopped` in a thread; it arrives when the thread next runs Python, not while it waits
    outside of it.
    """
    if thread.ident is not None and thread.is_alive():
        ident, what = ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, what)
