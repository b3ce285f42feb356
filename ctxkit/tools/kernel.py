"""The two tools that reach beyond files, off until the user names them: python in the user's namespace, and a shell."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import traceback
from typing import TYPE_CHECKING, Any

from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from ctxkit.tools.root import Root

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH")


def python_tool(space: dict[str, Any]) -> Tool:
    """Return a tool that runs Python in the user's own namespace and gives what was printed and the last value."""

    def python(code: str) -> str:
        """Run Python code in the notebook's namespace; gives what it printed and the value of its last expression."""
        import ast

        out = io.StringIO()
        try:
            tree = ast.parse(code, "<agent>")
        except SyntaxError as e:
            return "".join(traceback.format_exception_only(e))
        end = tree.body[-1] if tree.body else None
        last = end.value if isinstance(end, ast.Expr) else None
        if last is not None:
            tree.body.pop()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                exec(compile(tree, "<agent>", "exec"), space)  # noqa: S102  the user named this tool
                if last is not None:
                    value = eval(compile(ast.Expression(last), "<agent>", "eval"), space)  # noqa: S307  as above
                    if value is not None:
                        print(repr(value))  # noqa: T201  into the captured output
            except Exception as e:  # noqa: BLE001  whatever the code raises is the tool's result
                out.write("".join(traceback.format_exception_only(e)))
        return out.getvalue() or "(no output)"

    return tool(python, needs="kernel")


def shell_tool(root: Root, seconds: float = 120.0) -> Tool:
    """Return a tool that runs a shell command in the root folder, without the keys of the environment."""

    async def shell(command: str) -> str:
        """Run a shell command in the working folder; gives its output and, where it is not 0, its exit status."""
        env = {k: v for k, v in os.environ.items() if not any(s in k.upper() for s in _SECRET)}
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=root.folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        reading = asyncio.ensure_future(process.communicate())
        try:
            output, _ = await asyncio.wait_for(asyncio.shield(reading), seconds)
            status = f"\n[exit status {process.returncode}]" if process.returncode else ""
        except TimeoutError:
            _kill(process.pid)
            output, _ = await reading
            status = f"\n[stopped after {seconds:g} seconds]"
        except asyncio.CancelledError:
            _kill(process.pid)
            await reading
            raise
        return (output.decode("utf-8", "replace") + status) or "(no output)"

    return tool(shell, needs="shell")


def _kill(pid: int) -> None:
    """End a command with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
