"""A child process that exchanges JSON lines over stdin and stdout.

Each is a child process that speaks lines of JSON. What comes from it is data: bounded, never run.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.process_tree import GRACE, ProcessTree
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MAX_LINE_BYTES = 16 << 20
"""Bytes of a line, at most."""
_MAX_NOISE = 1000
"""Lines that are no JSON object, at most: some programs greet on their output."""
_GRACE = 2.0
"""Seconds for a program to end by itself when its input is closed."""
_STDERR_CHUNK = 4096


class ChildProcess:
    """A program that runs; made by `begin`.

    Args:
        name: what it is called in sentences, such as `The MCP server 'time'`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.over = ""
        """Why nothing more comes from it, for the user to read; empty: it runs."""
        self._noise = 0
        self._told: deque[bytes] = deque(maxlen=32)

    async def begin(self, command: Sequence[str], *, env: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            BadArguments: there is no such program, or it cannot be started.
        """
        try:
            self._tree = ProcessTree(command, env=env)
            with self._tree.starting():
                self._process = await asyncio.create_subprocess_exec(
                    *self._tree.arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=MAX_LINE_BYTES,
                    **self._tree.options,
                )
                self._tree.begun(self._process.pid)
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or type(e).__name__
            raise BadArguments(
                f"{self.name} cannot be started: {sanitize_line(command[0], 80)}: {why}."
            ) from None
        self._listening = asyncio.ensure_future(self._listen())

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message; one that is over takes it in silence, and `over` says why."""
        pipe = self._process.stdin
        with suppress(OSError, RuntimeError):
            if pipe is not None and not pipe.is_closing():
                pipe.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
                await pipe.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None where there is none any more: `over` says why."""
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
                await self._ended()
                break
            message = _decode_object(data)
            if message is not None:
                return message
            self._noise += 1
            if self._noise > _MAX_NOISE:
                self.over = f"{self.name} prints what is no message{self.words(data)}"
        return None

    def words(self, data: bytes | None = None) -> str:
        """Return the last that it said beside its messages, as the end of a sentence."""
        quoted = quote_output(data if data is not None else b"".join(self._told))
        return f". It said: {quoted}" if quoted else "."

    async def end(self) -> None:
        """End it, with everything that it started."""
        self.over = self.over or f"{self.name} was ended."
        pipe = self._process.stdin
        if pipe is not None:
            pipe.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _GRACE)
        self._tree.end()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GRACE)
        self._tree.sweep(self._process.returncode)
        self._listening.cancel()
        with suppress(asyncio.CancelledError):
            await self._listening
        # nothing public closes pipes of which something else holds the other end
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    async def _ended(self) -> None:
        """Say how it ended; what it says of that on its way is waited for a moment."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), _GRACE)
        code = self._process.returncode
        how = "closed its output" if code is None else _describe_exit(code)
        self.over = self.over or f"{self.name} {how}{self.words()}"

    async def _listen(self) -> None:
        told = self._process.stderr
        while told is not None and (piece := await told.read(_STDERR_CHUNK)):
            self._told.append(piece)
        await self._process.wait()


def quote_output(data: bytes) -> str:
    """Return the line of a program's output that tells why it failed, without keys: the last error,
    for some programs say their version after it, else the last line; empty where it said nothing.
    """
    said = redact(data.decode("utf-8", "replace"))  # as a whole: a key may have several lines
    lines = [s for s in said.splitlines() if s.strip()]
    errors = [s for s in lines if "error" in s.casefold()]
    return sanitize_line((errors or lines)[-1], 200) if lines else ""


def _describe_exit(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _decode_object(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
