"""Programs that end with everything they started, sessions of their own and orphans included.

One is run by `supervisor.py`, which stands between it and this process and holds the end of a pipe.
The pipe is closed to end the program; the system closes it where this process is killed.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ctxkit.agent import process_supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GRACE = process_supervisor.PATIENCE + 2.0
"""Seconds after `end` in which all of it is gone."""


class ProcessTree:
    """A program and all that it starts; whoever starts it passes `arguments` and `options`.

    Args:
        command: the program and its arguments.
        env: its environment; None: that of this process.
        leaves: `leave` can let what it started go on when it has ended by itself.

    Raises:
        OSError: there is no such program, or it may not be run.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, leaves: bool = False
    ) -> None:
        self._ends: list[int] = []
        self._pid = 0
        self.arguments = list(command)
        """What is to be started."""
        self.options: dict[str, Any] = {"start_new_session": True, "env": env and dict(env)}
        """How, for `subprocess.Popen` and what is like it."""
        if os.name != "posix":
            return
        _check(self.arguments[0], os.environ if env is None else env)
        self._ends = list(os.pipe())
        ours = [sys.executable, "-I", "-S", str(process_supervisor.__file__), str(self._ends[0])]
        self.arguments = [*ours, "leaves" if leaves else "all", *command]
        self.options["pass_fds"] = self._ends[:1]

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start it in this block, and say so by `begun`; where that fails, nothing is left open."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def begun(self, pid: int) -> None:
        """Take the process that was started."""
        self._pid = pid
        if self._ends:
            os.close(self._ends.pop(0))

    def leave(self) -> None:
        """Let what it started go on once it has ended by itself."""
        for end in self._ends:
            with suppress(OSError):
                os.write(end, process_supervisor.LEAVE)

    def end(self) -> None:
        """Begin to end all of it; it may be asked again."""
        while self._ends:
            end = self._ends.pop()
            with suppress(OSError):  # a copy of the pipe in a forked process would hold it open
                os.write(end, b".")
            os.close(end)
        if self._pid and os.name != "posix":
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM)

    def end_and_wait(self, running: subprocess.Popen[bytes]) -> None:
        """End all of it, and wait until it is gone."""
        self.end()
        with suppress(subprocess.TimeoutExpired):
            running.wait(GRACE)
        self.sweep(running.returncode)
        running.wait()

    def sweep(self, code: int | None) -> None:
        """Kill what is left of its own group where it did not end, or the supervisor was killed.

        Args:
            code: how it ended; None: not yet.
        """
        if self._pid and code in (None, -signal.SIGKILL):
            with suppress(OSError, AttributeError):
                os.killpg(self._pid, signal.SIGKILL)


def _check(program: str, env: Mapping[str, str]) -> None:
    """Look for a program as the system will."""
    if shutil.which(program, path=env.get("PATH", os.defpath)) is None:
        there = os.path.dirname(program) and os.path.exists(program)  # noqa: PTH110, PTH120
        why = errno.EACCES if there else errno.ENOENT
        raise OSError(why, os.strerror(why), program)
