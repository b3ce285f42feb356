"""Run a tool call: check arguments, ask for approval, run in a thread, bound the output."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit._internal.formatting import sanitize_line
from ctxkit.agent.tools.images import describe_omitted_image, image_from_value
from ctxkit.agent.tools.tool import convert_arguments
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean
from ctxkit.policies.base import Validated
from ctxkit.policies.texts import content
from ctxkit.session.messages import APPROVAL_DECISIONS, APPROVAL_KEY, Image, Message, Text

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ctxkit.agent.tools.tool import Tool
    from ctxkit.policies.base import Natural
    from ctxkit.policies.rules import Rules
    from ctxkit.session.messages import ToolCall


Approve = Callable[["ToolCall"], bool | Awaitable[bool]]
"""Says whether a call may run."""
OffloadResult = Callable[[str, str], str]
"""Keeps a large result (tool, text) elsewhere and returns the stub that the model gets."""


_MAX_STUB_CHARS = 1000
"""Characters that no stub has."""


class ToolStopped(BaseException):
    """Raised in the thread of a tool whose turn was stopped."""


async def run_tool(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    approve: Approve | None = None,
    asked_tools: Container[str] | None = None,
    offload: OffloadResult | None = None,
    output_limits: OutputLimits | None = None,
    takes_images: bool = True,
) -> Message:
    """Run a tool call and return its result as a message; a failing tool is a result, not a raise.

    Args:
        call: the call as the model requested it.
        tools: the tools by name.
        approve: decides whether the call may run; None: every call may.
        asked_tools: names of the tools for which `approve` asks a person; None: all. Only their
            results carry the decision in their details.
        offload: stores a result longer than `output_limits.spill` and returns its stub.
        output_limits: limits of the result's text; None: the defaults.
        takes_images: False replaces each image by a line that describes it.
    """
    limits = output_limits or OutputLimits()
    text, images, failed, answer = await _run_checked(call, tools, approve, pictures=takes_images)
    is_spilled = offload is not None and 0 < limits.spill < len(text)
    if offload is not None and is_spilled:  # it is redacted first, a second for a megabyte
        text = await run_in_thread(lambda: offload(call.name, text))
    if not is_spilled or len(text) > _MAX_STUB_CHARS:  # what could not be kept comes back whole
        text = limits.cut(text)
    return Message(
        role="tool",
        parts=(Text(text), *images),
        tool=call.name,
        call_id=call.id,
        is_error=failed,
        details={APPROVAL_KEY: answer}
        if answer and (asked_tools is None or call.name in asked_tools)
        else {},
    )


async def _run_checked(
    call: ToolCall, tools: Mapping[str, Tool], approve: Approve | None, *, pictures: bool
) -> tuple[str, list[Image], bool, str]:
    """Return the text and the pictures of a result, whether it is a failure, and what a person said
    to the call.
    """
    answer = ""
    tool = tools.get(call.name)
    if tool is None:
        suggestion, tool_names = did_you_mean(call.name, tools), ", ".join(tools)
        return f"There is no tool {call.name!r}.{suggestion} Known: {tool_names}.", [], True, answer
    if call.raw is not None:
        return "The arguments are no JSON object; send them again as one.", [], True, answer
    try:
        arguments = convert_arguments(tool, call.arguments)
        if approve is not None:
            decision = approve(call)
            allowed = await decision if inspect.isawaitable(decision) else decision
            answer = APPROVAL_DECISIONS[not allowed]
            if not allowed:
                return "The user did not allow this call.", [], True, answer
        return *_to_parts(await _call_tool(tool, arguments), pictures=pictures), False, answer
    except CtxkitError as e:
        return str(e), [], True, answer
    # a tool may raise anything; the model is told
    except (Exception, SystemExit) as e:  # noqa: BLE001
        return f"{type(e).__name__}: {e}", [], True, answer


def _to_parts(value: Any, *, pictures: bool) -> tuple[str, list[Image]]:
    """Return what a tool gave as the text that the model reads, and the pictures for it."""
    candidates = [image_from_value(value)]
    if isinstance(value, (list, tuple)) and any(parts := [image_from_value(v) for v in value]):
        candidates = parts
    texts: list[str] = []
    images = [i for i in candidates if i is not None] if pictures else []
    for each, image in zip(value if len(candidates) > 1 else [value], candidates, strict=True):
        if image is None:
            texts.append(_to_text(each))
        elif not pictures:
            texts.append(describe_omitted_image(image))
    return "\n".join(texts) or "(a picture)", images


def _to_text(value: Any) -> str:
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


async def _call_tool(tool: Tool, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.run):
        return await tool.run(**arguments)
    result = await run_in_thread(lambda: tool.run(**arguments))
    return await result if inspect.isawaitable(result) else result


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Do blocking work in a thread of its own; when its task is cancelled, the thread is told to
    end too.

    The default executor would not do: its threads are waited for when the loop ends, however long
    they take.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def set_outcome(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run_work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except ToolStopped:
            return
        except (StopIteration, KeyboardInterrupt) as e:  # no future, and no loop, may carry these
            error = RuntimeError(f"{type(e).__name__}: {e}")
        except BaseException as e:  # noqa: BLE001  it is raised again where the result is awaited
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(set_outcome, result, error)

    def run_thread() -> None:
        with contextlib.suppress(ToolStopped):  # it may arrive after the work
            run_work()

    thread = threading.Thread(target=run_thread, daemon=True, name="ctxkit-tool")
    thread.start()
    try:
        return await done
    except asyncio.CancelledError:
        _stop_thread(thread)
        raise


def _stop_thread(thread: threading.Thread) -> None:
    """Raise `Stopped` in a thread; it arrives when the thread next runs Python, not while it waits
    outside of it.
    """
    if thread.ident is not None and thread.is_alive():
        ident, what = ctypes.c_ulong(thread.ident), ctypes.py_object(ToolStopped)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, what)


_RULE_PARAMETERS = {
    "max_lines": "lines",
    "max_chars": "chars",
    "max_bytes": "bytes",
    "truncate_mode": "mode",
    "large_output_threshold": "spill",
}
"""Settings of rules (ai's `toolOutput`) that are limits of a live session."""


@dataclass(frozen=True, kw_only=True)
class OutputLimits(Validated):
    """Limits of one output (the defaults of ai's `tool_output.go`); 0: none."""

    lines: Natural = 2000
    chars: Natural = 204_800
    bytes: Natural = 51_200
    """Of UTF-8."""
    mode: Literal["head", "head_tail", "middle"] = "head_tail"
    """`head`; `head_tail` keeps both ends of the lines; `middle` of characters and bytes, too."""
    spill: Natural = 204_800
    """Characters above which all of it goes to a file."""

    @classmethod
    def of(cls, rules: Rules, words: str = "") -> OutputLimits:
        """Return the limits that rules and words set, the words first.

        Args:
            rules: ai's have them among their settings.
            words: such as `lines=500,spill=20000,mode=head`.

        Raises:
            BadArguments: a word is none, or a limit cannot be.
        """
        rule_limits: dict[str, Any] = {
            name: rules.parameters[key]
            for key, name in _RULE_PARAMETERS.items()
            if key in rules.parameters
        }
        return replace(cls(**rule_limits), **_parse_limits(words))

    def cut(self, text: str) -> str:
        """Return as much of an output as may be kept, with a last line that says what went."""
        return content.truncate_output(
            text, max_lines=self.lines, max_chars=self.chars, max_bytes=self.bytes, mode=self.mode
        )


def _parse_limits(words: str) -> dict[str, Any]:
    names = [f.name for f in fields(OutputLimits)]
    limits: dict[str, Any] = {}
    for word in filter(None, (w.strip() for w in words.split(","))):
        name, _, value = word.partition("=")
        if name not in names or not value:
            raise BadArguments(
                f"{sanitize_line(word, 60)!r} is no limit of outputs: write NAME=NUMBER, with a "
                "name of"
                f" {', '.join(names)}.{did_you_mean(name, names)}"
            )
        limits[name] = int(value) if value.isdecimal() and len(value) < 16 else value
    return limits
