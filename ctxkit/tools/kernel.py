"""The two tools beyond files, off until named: python in the user's namespace, a shell."""

from __future__ import annotations

import ast
import asyncio
import codecs
import contextlib
import os
import signal
import traceback
from typing import TYPE_CHECKING, Any

from ctxkit.redaction.environment import without_keys
from ctxkit.tools.captures import Bounded, captured
from ctxkit.tools.pictures import as_picture
from ctxkit.tools.tool import Tool, kit_tool

if TYPE_CHECKING:
    from ctxkit.messages import Image
    from ctxkit.tools.root import Root

_CHUNK = 1 << 16


def python_tool(space: dict[str, Any]) -> Tool:
    """Return a tool that runs Python in the user's namespace, and gives its output and value."""

    def python(code: str) -> Any:
        """Run Python code in the notebook's namespace; gives what it printed and the value of its
        last expression.
        """
        try:
            tree = ast.parse(code, "<agent>")
        except (SyntaxError, ValueError) as e:
            return "".join(traceback.format_exception_only(e))
        drawn = None
        with captured() as out:
            try:
                drawn = _execute(tree, space)
            # whatever the code raises is the tool's result
            except (Exception, SystemExit) as e:  # noqa: BLE001
                out.write("".join(traceback.format_exception_only(e)))
        if drawn is not None:
            return [out.text(), drawn] if out.text() else drawn
        return out.text() or "(no output)"

    return kit_tool(python, needs="kernel")


def _execute(tree: ast.Module, space: dict[str, Any]) -> Image | None:
    """Run code; its last value is printed, or returned where it is a picture."""
    end = tree.body[-1] if tree.body else None
    last = end.value if isinstance(end, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    exec(compile(tree, "<agent>", "exec"), space)  # noqa: S102  the user named this tool
    if last is not None:
        value = eval(compile(ast.Expression(last), "<agent>", "eval"), space)  # noqa: S307  as above
        drawn = as_picture(value)
        if value is not None and drawn is None:
            print(repr(value))  # noqa: T201  into the captured output
        return drawn
    return None


def shell_tool(root: Root, seconds: float = 120.0) -> Tool:
    """Return a tool that runs a shell command in the root folder, without any secrets."""

    async def shell(command: str) -> str:
        """Run a shell command in the working folder; gives its output and, where it is not 0, its
        exit status.
        """
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=root.folder,
            env=without_keys(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output = Bounded()
        reading = asyncio.ensure_future(_read(process, output))
        try:
            await asyncio.wait_for(asyncio.shield(reading), seconds)
            status = f"\n[exit status {process.returncode}]" if process.returncode else ""
        except TimeoutError:
            _kill(process.pid)
            await reading
            status = f"\n[stopped after {seconds:g} seconds]"
        except asyncio.CancelledError:
            _kill(process.pid)
            await reading
            raise
        return (output.text() + status) or "(no output)"

    return kit_tool(shell, needs="shell")


async def _read(process: asyncio.subprocess.Process, output: Bounded) -> None:
    """Take all that a command says, keeping a bounded part of it, and wait for its end."""
    assert process.stdout is not None  # noqa: S101  for the type checker: it was asked for
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await process.stdout.read(_CHUNK):
        output.write(decoder.decode(chunk))
    output.write(decoder.decode(b"", final=True))
    await process.wait()


def _kill(pid: int) -> None:
    """End a command with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
