"""Supervisor script that runs a program and ends all that it started: `FD MODE PROGRAM ...`.

It runs in a process of its own and imports nothing of ctxkit. FD is the reading end of a pipe from
the process that started it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

# States of the supervisor
#
#   running   wait for the program (SIGCHLD wakes `select`), for the pipe, and poll the parent
#   pipe closed, or the starter is gone      kill everything, exit with 1
#   program ended, MODE "all"                kill what it left behind, exit with its code
#   program ended, MODE "leaves"             wait for the pipe: LEAVE spares what it left behind,
#                                            anything else kills it
#
# On Linux the supervisor is a subreaper: orphans below it become its children, so a process that
# began a session of its own or lost its parent is still found. Elsewhere such orphans escape.
# Descendants are listed and killed until none is left, as new ones may appear meanwhile.

SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of Linux."""
LEAVE = b"l"
KILL_SECONDS = 5.0
"""Seconds within which killed processes should be gone."""
_POLL = 1.0
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that the supervisor ignores: a program may signal its group, which includes it."""
_DEFAULT = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that are reset for the program, as if it had been started directly."""


def main() -> int:
    """Run the program; return its exit code, or end by the signal that ended it."""
    leash, mode, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.set_inheritable(leash, False)  # noqa: FBT003  the name of the function says what
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for each in _IGNORED:
        signal.signal(each, signal.SIG_IGN)
    adopt_orphans()
    try:
        child = os.posix_spawnp(program[0], program, os.environ, setsigdef=_DEFAULT)
    except OSError as e:
        sys.stderr.write(f"{program[0]}: {e.strerror}\n")
        return 126
    release_streams()
    code = wait_for_end(child, leash, woken, may_spare_rest=mode == "leaves")
    if code is None or mode == "all":
        kill_all_descendants()
    if code is not None and code < 0:
        end_by_signal(-code)
    return 1 if code is None else code


def end_by_signal(number: int) -> None:
    """End this process by a signal, without a second core file."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants; Linux only."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def release_streams() -> None:
    """Close this process's copies of the program's streams, so that readers see their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def wait_for_end(
    child: int, starter_pipe: int, wakeup_pipe: int, *, may_spare_rest: bool
) -> int | None:
    """Return the exit code of the program; None if the pipe was closed or the starter is gone.

    Args:
        child: process id of the program.
        starter_pipe: file descriptor from which the starter's end can be read: it closes the pipe,
            or writes `LEAVE`.
        wakeup_pipe: file descriptor to which a byte is written when a child ends.
        may_spare_rest: True: return the code only after the starter wrote `LEAVE`.
    """
    starter, code, may_end = os.getppid(), None, not may_spare_rest
    while True:
        code = reap_children().get(child, code)
        if code is not None and may_end:
            return code
        ready = select.select([starter_pipe, wakeup_pipe], [], [], _POLL)[0]
        if starter_pipe in ready and os.read(starter_pipe, 1) == LEAVE:
            may_end = True
        elif starter_pipe in ready or os.getppid() != starter:
            return None
        with suppress(BlockingIOError):
            os.read(wakeup_pipe, 4096)


def reap_children() -> dict[int, int]:
    """Return the exit codes of the children that have ended, by process id."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            ended[waited[0]] = os.waitstatus_to_exitcode(waited[1])
    return ended


def kill_all_descendants() -> None:
    """Kill all descendants, including those that appear meanwhile."""
    until = time.monotonic() + KILL_SECONDS
    while time.monotonic() < until:
        below = list_descendants(os.getpid())
        for each in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        reap_children()
        if not below:
            return
        time.sleep(0.005)


def list_descendants(root: int) -> list[int]:
    """Return the descendants of a process, also those that ended and are not reaped yet."""
    children: dict[int, list[int]] = {}
    for pid, parent in list_parents():
        children.setdefault(parent, []).append(pid)
    below, left = [], [root]
    while left:
        more = children.get(left.pop(), [])
        below += more
        left += more
    return below


def list_parents() -> list[tuple[int, int]]:
    """Return every process with its parent, from `/proc`, else from `ps`."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112  pathlib takes as long to import as all else
        import subprocess

        listing = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, check=False
        )
        rows = [line.split() for line in listing.stdout.splitlines()]
        return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]
    pairs = []
    for name in os.listdir("/proc"):  # noqa: PTH208  as above
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  as above
                pairs.append((int(name), int(file.read().rpartition(b")")[2].split()[1])))
    return pairs


if __name__ == "__main__":
    sys.exit(main())
