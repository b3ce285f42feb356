"""Child processes that end together with everything they started.

A supervisor process (`process_supervisor.py`) runs the program and waits on a pipe from this
process. Closing the pipe ends the whole tree, processes with sessions of their own and orphans
included; the operating system closes it if this process is killed. A program may exchange lines of
JSON over stdin and stdout; its output is data: bounded, and never executed.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent import process_supervisor
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

END_SECONDS = process_supervisor.KILL_SECONDS + 2.0
"""Seconds after `end` within which the whole tree is gone."""


class ProcessTree:
    """A program and all that it starts.

    Args:
        command: the program and its arguments.
        env: its environment; None: that of this process.
        may_spare_rest: `spare_rest` can spare what the program started once it has ended by itself.

    Raises:
        OSError: there is no such program, or it may not be run.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        may_spare_rest: bool = False,
    ) -> None:
        self._pipe_ends: list[int] = []
        self._pid = 0
        self._arguments = list(command)
        self._options: dict[str, Any] = {"start_new_session": True, "env": env and dict(env)}
        if os.name != "posix":
            return
        _check_program(self._arguments[0], os.environ if env is None else env)
        self._pipe_ends = list(os.pipe())
        ours = [
            sys.executable,
            "-I",
            "-S",
            str(process_supervisor.__file__),
            str(self._pipe_ends[0]),
        ]
        self._arguments = [*ours, "leaves" if may_spare_rest else "all", *command]
        self._options["pass_fds"] = self._pipe_ends[:1]

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start the program.

        Args:
            options: further keyword arguments of `subprocess.Popen`, such as its streams.

        Raises:
            OSError: it cannot be started.
        """
        with self._ending_on_failure():
            process = subprocess.Popen(self._arguments, **self._options, **options)  # noqa: S603  no shell
            self._note_started(process.pid)
        return process

    async def start_in_loop(self, **options: Any) -> asyncio.subprocess.Process:
        """Start the program as a subprocess of the running event loop.

        Args:
            options: further keyword arguments of `asyncio.create_subprocess_exec`.

        Raises:
            OSError: it cannot be started.
        """
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(*self._arguments, **(self._options | options))
        )
        with self._ending_on_failure():
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # Without the shield asyncio kills only the supervisor; what it supervises goes on.
                await self._end_started(starting)
                raise
            self._note_started(process.pid)
        return process

    async def _end_started(self, starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
        """End a program that is being started, and wait until it is gone."""
        with suppress(OSError):
            process = await starting
            self._note_started(process.pid)
            self.end()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.communicate(), END_SECONDS)
            self.sweep(process.returncode)

    @contextmanager
    def _ending_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.end()
            raise

    def _note_started(self, pid: int) -> None:
        """Note the process id of the supervisor, and close its end of the pipe in this process."""
        self._pid = pid
        if self._pipe_ends:
            os.close(self._pipe_ends.pop(0))

    def spare_rest(self) -> None:
        """Let the program's own children live on once it has ended by itself."""
        for end in self._pipe_ends:
            with suppress(OSError):
                os.write(end, process_supervisor.LEAVE)

    def end(self) -> None:
        """Start ending the whole tree; a second call does nothing."""
        while self._pipe_ends:
            end = self._pipe_ends.pop()
            # Written too, as a forked process may hold a copy of the pipe open.
            with suppress(OSError):
                os.write(end, b".")
            os.close(end)
        if self._pid and os.name != "posix":
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM)

    def end_and_wait(self, running: subprocess.Popen[bytes]) -> None:
        """End the whole tree and wait until it is gone."""
        self.end()
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_SECONDS)
        self.sweep(running.returncode)
        running.wait()

    def sweep(self, code: int | None) -> None:
        """Kill the rest of its process group if it did not end or the supervisor was killed.

        Args:
            code: exit code of the supervisor; None: it still runs.
        """
        if self._pid and code in (None, -signal.SIGKILL):
            with suppress(OSError, AttributeError):
                os.killpg(self._pid, signal.SIGKILL)


def _check_program(program: str, env: Mapping[str, str]) -> None:
    """Raise `OSError` if the operating system would not find the program."""
    if shutil.which(program, path=env.get("PATH", os.defpath)) is None:
        there = os.path.dirname(program) and os.path.exists(program)  # noqa: PTH110, PTH120
        why = errno.EACCES if there else errno.ENOENT
        raise OSError(why, os.strerror(why), program)


MAX_LINE_BYTES = 16 << 20
"""Bytes of one line."""
_MAX_OTHER_LINES = 1000
"""Lines without a JSON object that are skipped, as some programs print a greeting."""
_EXIT_SECONDS = 2.0
"""Seconds for a program to end by itself after its input is closed."""
_STDERR_CHUNK = 4096


class ChildProcess:
    """A running program.

    Args:
        name: its name in error messages, such as `The MCP server 'time'`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.over = ""
        """Reason why the program ended, a sentence for the user; empty while it runs."""
        self._other_lines = 0
        self._stderr: deque[bytes] = deque(maxlen=32)

    async def begin(self, command: Sequence[str], *, env: Mapping[str, str]) -> None:
        """Start the program.

        Args:
            command: program and arguments.
            env: environment variables of the program.

        Raises:
            BadArguments: there is no such program, or it cannot be started.
        """
        try:
            self._tree = ProcessTree(command, env=env)
            self._process = await self._tree.start_in_loop(
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
            )
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or type(e).__name__
            raise BadArguments(
                f"{self.name} cannot be started: {sanitize_line(command[0], 80)}: {why}."
            ) from None
        self._stderr_task = asyncio.ensure_future(self._read_stderr())

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message; after the program has ended it is dropped, and `over` says why."""
        pipe = self._process.stdin
        with suppress(OSError, RuntimeError):
            if pipe is not None and not pipe.is_closing():
                pipe.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
                await pipe.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None after the last one; then `over` says why."""
        out = self._process.stdout
        while out is not None and not self.over:
            try:
                data = await out.readline()
            except ValueError:
                self.over = (
                    f"{self.name} sent more than {MAX_LINE_BYTES >> 20} MB in one "
                    "message; it was ended."
                )
                break
            if not data:
                await self._note_end()
                break
            message = _decode_object(data)
            if message is not None:
                return message
            self._other_lines += 1
            if self._other_lines > _MAX_OTHER_LINES:
                self.over = f"{self.name} prints what is no message{self.quote_stderr(data)}"
        return None

    def quote_stderr(self, data: bytes | None = None) -> str:
        """Return the last line of stderr (or of `data`) as the end of a sentence."""
        quoted = find_failure_line(data if data is not None else b"".join(self._stderr))
        return f". It said: {quoted}" if quoted else "."

    async def end(self) -> None:
        """End the program and everything that it started."""
        self.over = self.over or f"{self.name} was ended."
        pipe = self._process.stdin
        if pipe is not None:
            pipe.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        self._tree.end()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        self._tree.sweep(self._process.returncode)
        self._stderr_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._stderr_task
        # A process that outlived the program may hold the other end of a pipe: only the private
        # transport can close ours.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    async def _note_end(self) -> None:
        """Note how the program ended, after a moment for its last lines on stderr."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_task), _EXIT_SECONDS)
        code = self._process.returncode
        how = "closed its output" if code is None else _describe_exit(code)
        self.over = self.over or f"{self.name} {how}{self.quote_stderr()}"

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        while stderr is not None and (piece := await stderr.read(_STDERR_CHUNK)):
            self._stderr.append(piece)
        await self._process.wait()


def find_failure_line(data: bytes) -> str:
    """Return the redacted line of an output that best explains a failure; empty without output.

    It is the last line with "error" in it, as some programs print their version behind it, else the
    last line.

    Args:
        data: what a program wrote to stderr.

    Returns:
        At most 200 characters without control characters.

    Example:
        >>> from ctxkit.agent.child_processes import find_failure_line
        >>> find_failure_line(b"ValueError: no such model")
        'ValueError: no such model'
    """
    # Redacted as a whole: a key may span several lines.
    text = redact(data.decode("utf-8", "replace"))
    lines = [s for s in text.splitlines() if s.strip()]
    errors = [s for s in lines if "error" in s.casefold()]
    return sanitize_line((errors or lines)[-1], 200) if lines else ""


def _describe_exit(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _decode_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
