"""The kit's own tools: `python`, `shell`, brief and summary; and all of them by the names of
`--tools`.
"""

from __future__ import annotations

import ast
import asyncio
import codecs
import json
import sys
import threading
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ctxkit._internal.environment_secrets import get_environment_without_secrets
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.child_processes import END_SECONDS, ProcessTree
from ctxkit.agent.tools.execution_and_results import image_from_value
from ctxkit.agent.tools.file_tools_and_pdf_office_text import make_document_tool, make_file_tools
from ctxkit.agent.tools.tool import Tool, tool_with_cached_schema
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.tools.file_tools_and_pdf_office_text import ExtraFiles
    from ctxkit.session.messages import Attachment


FILE_TOOLS = "files"
"""Name of the five file tools together; `shell` and `python` are never included by default."""
TOOL_NAMES = (FILE_TOOLS, "document", "work", "shell", "python")


def make_tools(
    names: Sequence[str | Tool],
    root: RootFolder,
    namespace: dict[str, Any],
    store: ExtraFiles | None = None,
    work_tools: Sequence[Tool] = (),
) -> list[Tool]:
    """Return the tools of the given names.

    Args:
        names: names out of `TOOL_NAMES`, or tools of the user.
        root: folder in which the tools work.
        namespace: the user's variables, for the tool `python`.
        store: files beside the root that the file tools can read, such as a context store.
        work_tools: the tools that `work_tools` stands for.

    Returns:
        The tools in the order of the names; `files` and `work_tools` stand for several.

    Raises:
        BadArguments: there is no such tool.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import RootFolder
        >>> from ctxkit.agent.tools.python_shell_and_summary_tools import make_tools
        >>> [tool.name for tool in make_tools(["python"], RootFolder(tempfile.mkdtemp()), {})]
        ['python']
    """
    out: list[Tool] = []
    for each in names:
        if isinstance(each, Tool):
            out.append(each)
        elif each == FILE_TOOLS:
            out.extend(make_file_tools(root, store))
        elif each == "document":
            out.append(make_document_tool(root, store))
        elif each == "work":
            out.extend(work_tools)
        elif each == "shell":
            out.append(make_shell_tool(root))
        elif each == "python":
            out.append(make_python_tool(namespace))
        else:
            raise BadArguments(
                f"There is no tool {each!r}; name some of {', '.join(TOOL_NAMES)}, or give "
                "tools of your"
                " own."
            )
    return out


BRIEF_FILE, SUMMARY_FILE = "brief.json", "context_summary.md"
MAX_READ_CHARS = 8_000
"""Characters of the summary that are returned (fuseraft's `SessionContextPlugin.cs`)."""
MAX_WRITTEN_CHARS = 200_000


def make_inert_brief_and_summary_tools() -> tuple[Tool, ...]:
    """Make the tools for brief and summary where only their schemas are needed; they store nothing.

    Returns:
        The tools of `make_brief_and_summary_tools`, which write nothing and read empty texts.
    """
    return make_brief_and_summary_tools(lambda _, __: None, lambda _: "")


def make_brief_and_summary_tools(
    write: Callable[[str, str], None], read: Callable[[str], str]
) -> tuple[Tool, ...]:
    """Return the tools for the brief and the summary of a session.

    Args:
        write: writes a work file, by name and text.
        read: returns the text of a work file; empty if there is none.

    Returns:
        Tools that write and read the brief (a JSON object) and the summary for the next agent; a
        text that is too long, or a brief that is no object, is refused as the tool's result.
    """

    def session_context_write(text: str) -> str:
        """Write what whoever continues must know; it takes the place of what was written before."""
        if len(text) > MAX_WRITTEN_CHARS:
            raise BadArguments(f"Write at most {MAX_WRITTEN_CHARS:,} characters.")
        write(SUMMARY_FILE, redact(text))
        return f"Kept {len(text):,} characters."

    def session_context_read() -> str:
        """Read what was written by session_context_write."""
        text = read(SUMMARY_FILE)
        more = len(text) - MAX_READ_CHARS
        return (
            text if more <= 0 else f"{text[:MAX_READ_CHARS]}\n[{more:,} characters more]"
        ) or "(nothing)"

    def brief_write(brief: str) -> str:
        """Write the brief of the task as a JSON object: goal, files_to_change, verify_command,
        execution_checklist, acceptance_criteria, constraints, and what else is needed.
        """
        if len(brief) > MAX_WRITTEN_CHARS:
            raise BadArguments(f"Write at most {MAX_WRITTEN_CHARS:,} characters.")
        try:
            fields = redact_json(json.loads(brief))
            text = json.dumps(fields, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError) as e:
            raise BadArguments(f"The brief is no JSON that can be kept: {str(e)[:120]}.") from None
        if not isinstance(fields, dict):
            raise BadArguments("The brief is a JSON object: name its fields.")
        write(BRIEF_FILE, text)
        return f"Kept {', '.join(map(str, fields))[:300]}."

    def brief_read(field: str = "") -> str:
        """Read the brief, or one field of it."""
        text = read(BRIEF_FILE)
        if not text:
            return "(nothing)"
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise StoreError("The brief on disk is no JSON: write it anew.") from None
        return require_brief_field_as_text(fields, field) if field else text[:MAX_WRITTEN_CHARS]

    functions = (session_context_write, session_context_read, brief_write, brief_read)
    return tuple(tool_with_cached_schema(each) for each in functions)


def require_brief_field_as_text(brief: object, field: str) -> str:
    """Return a field of a brief by its name, else by the name in lower case; other values as JSON.

    Args:
        brief: the brief as read from JSON; what is no object has no fields.
        field: name of the field.

    Raises:
        BadArguments: there is no such field.
    """
    fields = brief if isinstance(brief, dict) else {}
    for name in (field, field.lower()):
        if name in fields:
            value = fields[name]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    raise BadArguments(
        f"The brief has no field {field[:80]!r}; it has {', '.join(map(str, fields))[:300]}."
    )


_CHUNK_BYTES = 1 << 16


def make_python_tool(namespace: dict[str, Any]) -> Tool:
    """Make the tool `python`, which runs code in the user's namespace.

    Args:
        namespace: variables that the code sees and may change, such as the notebook's.

    Returns:
        The tool, which needs the permission `kernel`; its result is what was printed, then the
        value of the last expression, or a traceback. A figure or image is returned as an image.

    Example:
        >>> import asyncio
        >>> from ctxkit.agent import make_python_tool, run_tool
        >>> from ctxkit.session import ToolCall
        >>> call = ToolCall(id="1", name="python", arguments={"code": "x + 1"})
        >>> result = asyncio.run(run_tool(call, {"python": make_python_tool({"x": 2})}))
        >>> result.text.strip()
        '3'
    """

    def python(code: str) -> Any:
        """Run Python code in the notebook's namespace; gives what it printed and the value of its
        last expression.
        """
        try:
            tree = ast.parse(code, "<agent>")
        except (SyntaxError, ValueError) as e:
            return "".join(traceback.format_exception_only(e))
        image = None
        with capture_output() as out:
            try:
                image = _execute_code(tree, namespace)
            # An exception in the user's code is the tool's result.
            except (Exception, SystemExit) as e:  # noqa: BLE001
                out.write("".join(traceback.format_exception_only(e)))
        if image is not None:
            return [out.text(), image] if out.text() else image
        return out.text() or "(no output)"

    return tool_with_cached_schema(python, permission="kernel")


def _execute_code(tree: ast.Module, namespace: dict[str, Any]) -> Attachment | None:
    """Run code; print its last value, or return it if it is an image."""
    end = tree.body[-1] if tree.body else None
    last = end.value if isinstance(end, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    exec(compile(tree, "<agent>", "exec"), namespace)  # noqa: S102  the user named this tool
    if last is not None:
        value = eval(compile(ast.Expression(last), "<agent>", "eval"), namespace)  # noqa: S307  as above
        image = image_from_value(value)
        if value is not None and image is None:
            print(repr(value))  # noqa: T201  into the captured output
        return image
    return None


def make_shell_tool(root: RootFolder, seconds: float = 120.0) -> Tool:
    """Make the tool `shell`, which runs a command with `/bin/sh` in a folder.

    Args:
        root: working folder of the command; the command can leave it.
        seconds: time limit, after which the command and all that it started are ended.

    Returns:
        The tool, which needs the permission `shell`. Variables of the environment that may hold
        secrets are removed; the output is bounded.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import RootFolder, make_shell_tool
        >>> make_shell_tool(RootFolder(tempfile.mkdtemp()), seconds=5).name
        'shell'
    """

    async def shell(command: str) -> str:
        """Run a shell command in the working folder; gives its output and, where it is not 0, its
        exit status.
        """
        tree = ProcessTree(
            ["/bin/sh", "-c", command], env=get_environment_without_secrets(), may_spare_rest=True
        )
        process = await tree.start_in_loop(
            cwd=root.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = BoundedOutput()
        reading = asyncio.ensure_future(_read_output(process, tree, output))
        try:
            await asyncio.wait_for(asyncio.shield(reading), seconds)
            status = f"\n[exit status {process.returncode}]" if process.returncode else ""
        except TimeoutError:
            status = f"\n[stopped after {seconds:g} seconds]"
        finally:
            tree.end()
            with suppress(TimeoutError):
                await asyncio.wait_for(reading, END_SECONDS)
            tree.sweep(process.returncode)
        return (output.text() + status) or "(no output)"

    return tool_with_cached_schema(shell, permission="shell")


async def _read_output(
    process: asyncio.subprocess.Process, tree: ProcessTree, output: BoundedOutput
) -> None:
    """Read a command's output into a bounded buffer and wait for its end."""
    assert process.stdout is not None  # noqa: S101  for the type checker: it was asked for
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        output.write(decoder.decode(chunk))
    output.write(decoder.decode(b"", final=True))
    tree.spare_rest()  # a server that the command started in the background continues
    await process.wait()


HEAD_CHARS = TAIL_CHARS = 500_000
"""Characters of the head and of the tail of an output that are kept."""
_routing_lock = threading.Lock()
_capture_count = 0


# Captured output
#
# Cells and tools print in many threads at once, and `sys.stdout` is one object. While at least one
# capture is active it is a routing stream, which looks up the capture of the current context
# (`ContextVar`), so each thread's and task's output goes to its own buffer. A count of active
# captures says when to restore the original stream. Memory is bounded: the head is kept in full up
# to HEAD_CHARS, then a deque of pieces, from which the oldest are dropped.


class BoundedOutput:
    """A text buffer of bounded size: the head and the tail of what is written."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_left, self._tail_chars, self._dropped_chars = HEAD_CHARS, 0, 0

    def write(self, text: str) -> int:
        """Add a piece of text; return its length."""
        head, rest = text[: self._head_left], text[self._head_left :]
        if head:
            self._head.append(head)
            self._head_left -= len(head)
        if rest:
            self._tail.append(rest)
            self._tail_chars += len(rest)
            while self._tail_chars > 2 * TAIL_CHARS and len(self._tail) > 1:
                dropped = self._tail.popleft()
                self._tail_chars -= len(dropped)
                self._dropped_chars += len(dropped)
        return len(text)

    def text(self) -> str:
        """Return the text, with a line that says how much was left out."""
        tail = "".join(self._tail)
        lost = self._dropped_chars + max(len(tail) - TAIL_CHARS, 0)
        gap = f"\n[... {lost:,} characters left out ...]\n" if lost else ""
        return "".join(self._head) + gap + (tail[-TAIL_CHARS:] if lost else tail)


_capture: ContextVar[BoundedOutput | None] = ContextVar("ctxkit_captured", default=None)


class _RoutedStream:
    """A stream that writes to the capture of the current context, else to the original stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write to the current capture, else to the original stream."""
        capture = _capture.get()
        return capture.write(text) if capture is not None else int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def capture_output() -> Iterator[BoundedOutput]:
    """Capture what this context prints inside the block; other threads print as before."""
    out = BoundedOutput()
    token = _capture.set(out)
    _route_streams(1)
    try:
        yield out
    finally:
        _route_streams(-1)
        _capture.reset(token)


def _route_streams(change: int) -> None:
    """Install the routing streams for the first capture, and remove them after the last."""
    global _capture_count  # noqa: PLW0603  counts the users of the process's own streams
    with _routing_lock:
        _capture_count += change
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if change > 0 and not isinstance(stream, _RoutedStream):
                setattr(sys, name, _RoutedStream(stream))
            elif not _capture_count and isinstance(stream, _RoutedStream):
                setattr(sys, name, stream._stream)  # noqa: SLF001  its own class
