"""Process trees: programs that end together with everything they started.

A supervisor process (`process_supervisor.py`) runs the program and waits on a pipe from this
process. Closing the pipe ends the whole tree, processes with sessions of their own and orphans
included; the operating system closes it if this process is killed.
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

END_SECONDS = process_supervisor.KILL_SECONDS + 2.0
"""Seconds after `end` within which the whole tree is gone."""


class ProcessTree:
    """A program and all that it starts; the caller starts it with `arguments` and `options`.

    Args:
        command: the program and its arguments.
        env: its environment; None: that of this process.
        leaves: `leave` can spare what the program started once it has ended by itself.

    Raises:
        OSError: there is no such program, or it may not be run.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, leaves: bool = False
    ) -> None:
        self._pipe_ends: list[int] = []
        self._pid = 0
        self.arguments = list(command)
        """The command line to start."""
        self.options: dict[str, Any] = {"start_new_session": True, "env": env and dict(env)}
        """Keyword arguments for `subprocess.Popen` and similar functions."""
        if os.name != "posix":
            return
        _check_program(self.arguments[0], os.environ if env is None else env)
        self._pipe_ends = list(os.pipe())
        ours = [
            sys.executable,
            "-I",
            "-S",
            str(process_supervisor.__file__),
            str(self._pipe_ends[0]),
        ]
        self.arguments = [*ours, "leaves" if leaves else "all", *command]
        self.options["pass_fds"] = self._pipe_ends[:1]

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start the program inside this block and call `begun`; on failure the pipe is closed."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def set_pid(self, pid: int) -> None:
        """Note the process id of the started program."""
        self._pid = pid
        if self._pipe_ends:
            os.close(self._pipe_ends.pop(0))

    def leave(self) -> None:
        """Spare what the program started once it has ended by itself."""
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
