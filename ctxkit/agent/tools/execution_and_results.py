"""Execution of tool calls, and their results: text within limits, and images."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import ctypes
import inspect
import io
import shlex
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.agent.tools.tool import convert_arguments
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import ValidatedSettings
from ctxkit.session.messages import APPROVAL_DECISIONS, APPROVAL_KEY, Attachment, Message, Text

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from ctxkit.agent.tools.tool import Tool
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.session.messages import ToolCall


Approve = Callable[["ToolCall"], bool | Awaitable[bool]]
"""Decides whether a call may run."""
OffloadResult = Callable[[str, str], str]
"""Stores a large result (tool, text) elsewhere and returns the stub for the model."""


_MAX_STUB_CHARS = 1000
"""Length that no stub reaches; a longer text is the result itself, which was not stored."""


class ToolStopped(BaseException):
    """Raised in the thread of a tool whose turn was stopped."""


async def run_tool(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    approve: Approve | None = None,
    approval_tools: Container[str] | None = None,
    offload: OffloadResult | None = None,
    output_limits: OutputLimits | None = None,
    is_offloaded: Callable[[str, int], bool] = lambda _tool, _chars: False,
    takes_images: bool = True,
) -> Message:
    """Run a tool call and return its result as a message; a failing tool is a result, not a raise.

    Args:
        call: the call as the model requested it.
        tools: the tools by name.
        approve: decides whether the call may run; None: every call may.
        approval_tools: names of the tools for which `approve` asks a person; None: all. Only their
            results carry the decision in their details.
        offload: stores a result longer than `output_limits.spill` and returns its stub.
        output_limits: limits of the result's text; None: the defaults.
        is_offloaded: returns whether the rules offload a text of a tool with so many characters; it
            is stored whole then, and prompts get its stub.
        takes_images: False replaces each image by a line that describes it.

    Returns:
        A message of role `tool` with the id of the call; `is_error` is True where the tool is
        unknown, was not allowed, got wrong arguments or raised.

    Example:
        >>> import asyncio
        >>> from ctxkit.agent import run_tool, tool
        >>> from ctxkit.session import ToolCall
        >>> def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> call = ToolCall(id="1", name="add", arguments={"a": 1, "b": "2"})
        >>> asyncio.run(run_tool(call, {"add": tool(add)})).text
        '3'
    """
    limits = output_limits or OutputLimits()
    known_call = resolve_alias(call, tools)  # a person allows what runs, under the tool's own name
    result = await _run_checked(known_call, tools, approve, takes_images=takes_images)
    text = result.text
    is_spilled = offload is not None and 0 < limits.spill < len(text)
    if offload is not None and is_spilled:
        # In a thread: redaction takes about a second per megabyte.
        text = await run_in_thread(lambda: offload(call.name, result.text))
    is_whole = not is_spilled and not result.images and is_offloaded(call.name, len(text))
    if not is_whole and (not is_spilled or len(text) > _MAX_STUB_CHARS):
        # A result that could not be stored comes back whole.
        text = limits.shorten(text)
    has_decision = result.decision and (approval_tools is None or known_call.name in approval_tools)
    return Message(
        role="tool",
        parts=(Text(text), *result.images),
        tool=call.name,
        call_id=call.id,
        is_error=result.failed,
        details={APPROVAL_KEY: result.decision} if has_decision else {},
    )


class _CheckedResult(NamedTuple):
    """The result of a tool call before its limits are applied."""

    text: str
    images: Sequence[Attachment] = ()
    failed: bool = True
    decision: str = ""
    """The user's decision on the call; empty if nobody was asked."""


async def _run_checked(
    call: ToolCall, tools: Mapping[str, Tool], approve: Approve | None, *, takes_images: bool
) -> _CheckedResult:
    """Run a call after the checks; whatever goes wrong is a failed result."""
    decision = ""
    tool = tools.get(call.name)
    if tool is None:
        suggestion, tool_names = did_you_mean(call.name, tools), ", ".join(tools)
        return _CheckedResult(f"There is no tool {call.name!r}.{suggestion} Known: {tool_names}.")
    if call.raw is not None:
        return _CheckedResult("The arguments are no JSON object; send them again as one.")
    try:
        arguments = convert_arguments(tool, call.arguments)
        if approve is not None:
            approval = approve(call)
            allowed = await approval if inspect.isawaitable(approval) else approval
            decision = APPROVAL_DECISIONS[not allowed]
            if not allowed:
                return _CheckedResult("The user did not allow this call.", decision=decision)
        value = await _call_tool(tool, arguments)
        text, images = _to_parts(value, pictures=takes_images)
        return _CheckedResult(text, images, failed=False, decision=decision)
    except CtxkitError as e:
        return _CheckedResult(str(e), decision=decision)
    # A tool may raise anything: the model gets it as the result.
    except (Exception, SystemExit) as e:  # noqa: BLE001
        return _CheckedResult(f"{type(e).__name__}: {e}", decision=decision)


def _to_parts(value: Any, *, pictures: bool) -> tuple[str, list[Attachment]]:
    """Return a tool's value as text for the model and images."""
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
    """Return a tool's value as text for the model."""
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


# Stopping a thread
#
# Python cannot kill a thread. `_stop_thread` schedules an exception in it, which is raised at its
# next bytecode; a tool that waits in C code continues until it returns, and its late result is
# ignored. The thread is a daemon, so it cannot keep the process alive. `ToolStopped` derives from
# BaseException, so that a tool's `except Exception` does not catch it.


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread of its own; if the caller is cancelled, the thread is stopped.

    The loop's default executor would not do: closing the loop waits for its threads, however long
    they take.

    Args:
        work: a function without arguments; it sees the caller's context variables.

    Returns:
        What the work returns; what it raises is raised here.
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
        except (
            StopIteration,
            KeyboardInterrupt,
        ) as e:  # neither a future nor a loop can carry these
            error = RuntimeError(f"{type(e).__name__}: {e}")
        except BaseException as e:  # noqa: BLE001  awaiting the future raises it again
            error = e
        # The loop is closed, and nobody waits for the result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_outcome, result, error)

    def run_thread() -> None:
        with contextlib.suppress(ToolStopped):  # the exception may arrive after the work has ended
            run_work()

    thread = threading.Thread(target=run_thread, daemon=True, name="ctxkit-tool")
    thread.start()
    try:
        return await done
    except asyncio.CancelledError:
        _stop_thread(thread)
        raise


def _stop_thread(thread: threading.Thread) -> None:
    """Raise `ToolStopped` in a thread.

    It arrives when the thread next runs Python code, so not while it waits in a system call.
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
"""Settings of rules (ai's `toolOutput`) that are limits of a live session, by their field here."""


@dataclass(frozen=True, kw_only=True)
class OutputLimits(ValidatedSettings):
    """Limits of a tool's output (defaults of ai's `tool_output.go`); 0 means no limit.

    Example:
        >>> output = chr(10).join("abcd")
        >>> OutputLimits(lines=2, mode="head").shorten(output).splitlines()[:2]
        ['a', 'b']
    """

    lines: Natural = 2000
    chars: Natural = 204_800
    bytes: Natural = 51_200
    """Bytes of the text in UTF-8."""
    mode: Literal["head", "head_tail", "middle"] = "head_tail"
    """What is kept: `head`; `head_tail` of the lines; `middle` of characters and bytes, too."""
    spill: Natural = 204_800
    """Characters above which the whole output is stored in a file."""

    @classmethod
    def of(cls, rules: Rules, words: str = "") -> OutputLimits:
        """Return the limits that rules and words set; words take precedence.

        Args:
            rules: ai's rules have such limits among their settings.
            words: limits such as `lines=500,spill=20000,mode=head`.

        Raises:
            BadArguments: a word is no limit, or a value is not valid.
        """
        rule_limits: dict[str, Any] = {
            name: rules.parameters[key]
            for key, name in _RULE_PARAMETERS.items()
            if key in rules.parameters
        }
        return replace(cls(**rule_limits), **_parse_limits(words))

    def shorten(self, text: str) -> str:
        """Return an output within the limits; its last line says how much was left out."""
        return message_content_and_truncation.truncate_output(
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


@dataclass(frozen=True, kw_only=True)
class ToolAlias:
    """One tool as another program names it."""

    tool: str
    """The kit's name of the tool."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The kit's parameters, by the other program's."""
    without: frozenset[str] = frozenset()
    """Parameters of the other program that change nothing here."""
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Converts the arguments that a new name alone does not convert."""


def _end_line(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace a number of lines by the last line; the tool itself refuses other values."""
    lines, others = (
        arguments.get("maxLines"),
        {k: v for k, v in arguments.items() if k != "maxLines"},
    )
    if not lines:
        return others
    try:
        return {**others, "end": int(others.get("start", 1)) + int(lines) - 1}
    except (TypeError, ValueError):
        return arguments


def _case_insensitive(arguments: dict[str, Any]) -> dict[str, Any]:
    """Search without case unless `caseSensitive` is set, as fuseraft's tools do."""
    others = {k: v for k, v in arguments.items() if k != "caseSensitive"}
    if arguments.get("caseSensitive") or not isinstance(others.get("pattern"), str):
        return others
    return {**others, "pattern": f"(?i){others['pattern']}"}


def _in_folder(arguments: dict[str, Any]) -> dict[str, Any]:
    """Put the folder of a command in front of it."""
    folder = arguments.get("workingDirectory")
    others = {k: v for k, v in arguments.items() if k != "workingDirectory"}
    if not folder or folder == ".":
        return others
    return {**others, "command": f"cd {shlex.quote(str(folder))} && {others.get('command', '')}"}


def _whole_document(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"part": "all", **arguments}


def _alias(tool: str, words: str = "", without: str = "", **adapt: Any) -> ToolAlias:
    renamed = dict(word.split("=") for word in words.split())
    return ToolAlias(tool=tool, parameters=renamed, without=frozenset(without.split()), **adapt)


_GREP = _alias("search", without="contextLines maxMatches", adapt=_case_insensitive)
_LIST = _alias("list_files", "directory=path", without="maxResults")
TOOL_ALIASES: Mapping[str, ToolAlias] = MappingProxyType(
    {
        "read_file": _alias("read_file", "startLine=start", adapt=_end_line),
        "patch_file": _alias("patch_file", "oldText=old newText=new"),
        "write_file": _alias("write_file", without="raw baseVersion"),
        "list_files": _LIST,
        "list_directory": _LIST,
        "grep_file": _GREP,
        "grep_in_file": _GREP,
        "search_content": _alias(
            "search",
            "query=pattern directory=path filePattern=files",
            without="maxResults",
            adapt=_case_insensitive,
        ),
        "shell_run": _alias("shell", without="timeoutSeconds quiet", adapt=_in_folder),
        "shell_run_script": _alias(
            "shell", "script=command", without="timeoutSeconds", adapt=_in_folder
        ),
        "document_extract_text": _alias("document", adapt=_whole_document),
        "document_get_info": _alias("document"),
        "document_list_sheets": _alias("document"),
        "document_get_sheet": _alias("document", "sheetName=part", without="maxRows"),
        "session_context_write": _alias("session_context_write", "summary=text"),
        "sub_agent_explore": _alias("sub_agent_explore", without="format"),
        "sub_agent_locate": _alias("sub_agent_locate", "target=query"),
    }
)
"""Tools of fuseraft, by its names, with its parameters (its docs/plugins.md)."""


# Other programs know the kit's tools under names of their own (fuseraft's instructions use its
# names); `resolve_alias` translates such a call.
def resolve_alias(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """Return a call under the kit's own names; one that uses no other name as it is.

    A tool of the user's that takes the arguments as they came gets them so.

    Args:
        call: as the model sent it.
        tools: the tools that there are, by name.
    """
    alias = TOOL_ALIASES.get(call.name)
    tool = tools.get(alias.tool) if alias is not None else None
    if (
        alias is None
        or tool is None
        or call.raw is not None
        or (call.name in tools and call.name != tool.name)
    ):
        return call
    parameters = inspect.signature(tool.run).parameters
    if tool.free or (call.name == tool.name and all(k in parameters for k in call.arguments)):
        return call
    renamed = {
        alias.parameters.get(name, name): value
        for name, value in call.arguments.items()
        if name not in alias.without
    }
    return msgspec.structs.replace(call, name=tool.name, arguments=alias.adapt(renamed))


MAX_IMAGE_BYTES = 3_750_000
"""Bytes of an image; in base64 5 MB, the limit of Anthropic's API for one image."""
IMAGE_KINDS = "PNG, JPEG, GIF or WebP"
_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"),
               (b"GIF87a", "gif"), (b"GIF89a", "gif"))  # fmt: skip


def detect_media_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes, or None.

    Args:
        data: the first twelve bytes of a file, or more.

    Returns:
        `image/png`, `image/jpeg`, `image/gif` or `image/webp`.

    Example:
        >>> from ctxkit.agent.tools.execution_and_results import detect_media_type
        >>> detect_media_type(b"GIF89a")
        'image/gif'
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    kind = next((kind for begin, kind in _SIGNATURES if data.startswith(begin)), None)
    return f"image/{kind}" if kind else None


def image_from_bytes(data: bytes, name: str = "this") -> Attachment:
    """Make an image for a prompt from the bytes of its file.

    Args:
        data: a PNG, JPEG, GIF or WebP file of at most `MAX_IMAGE_BYTES`.
        name: name of the image in an error's sentence.

    Returns:
        The image, base64-encoded.

    Raises:
        BadArguments: they are none of the four kinds, or too many.

    Example:
        >>> from ctxkit.agent import image_from_bytes
        >>> image_from_bytes(bytes.fromhex("89504e470d0a1a0a") + bytes(8)).media_type
        'image/png'
    """
    kind = detect_media_type(data)
    if kind is None:
        raise BadArguments(f"{name} is no picture that a model takes: {IMAGE_KINDS}.")
    if len(data) > MAX_IMAGE_BYTES:
        raise BadArguments(
            f"{name} has {len(data):,} bytes; a picture may have {MAX_IMAGE_BYTES:,}: make it "
            "smaller."
        )
    return Attachment(kind, base64.b64encode(data).decode())


def image_from_value(value: Any) -> Attachment | None:
    """Return the image that a value shows (image bytes, a figure, a Pillow image), or None.

    Args:
        value: the value of a cell's last expression, or any other.

    Returns:
        A PNG of a figure; bytes of an image as they are; None for any other value.

    Raises:
        BadArguments: the image is too large.

    Example:
        >>> from ctxkit.agent.tools.execution_and_results import image_from_value
        >>> image_from_value("a text") is None
        True
    """
    if isinstance(value, Attachment):
        return value
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
        return image_from_bytes(data) if detect_media_type(data) else None
    to_png = getattr(value, "_repr_png_", None)
    if callable(to_png) and not isinstance(value, type):
        data = to_png()
        return image_from_bytes(data, type(value).__name__) if isinstance(data, bytes) else None
    if type(value).__module__.startswith("matplotlib.") and callable(
        getattr(value, "savefig", None)
    ):
        file = io.BytesIO()
        value.savefig(file, format="png")
        return image_from_bytes(file.getvalue(), type(value).__name__)
    return None


def describe_omitted_image(image: Attachment) -> str:
    """Return the text that replaces an image for a model that takes none.

    Args:
        image: base64-encoded.

    Returns:
        A line with its type and size in bytes.
    """
    size = len(image.data) * 3 // 4 - image.data.count("=")
    return f"[a picture, {image.media_type}, {size:,} bytes: this model takes none]"
