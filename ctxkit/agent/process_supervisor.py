"""Runs a program and ends all that it started, in a process of its own: `supervisor.py FD MODE
PROGRAM ...`.

It is started as a script without the kit. FD is the end of a pipe that its starter holds: when that
is closed, on purpose or because the starter is gone, everything is killed. With MODE `all` that
also happens to what the program leaves behind when it ends by itself; with `leaves` the starter is
waited for then, and where it says `LEAVE` by the pipe, that goes on.

On Linux it takes over orphans (`PR_SET_CHILD_SUBREAPER`), so that what began a session of its own,
or whose parent is gone, is still found below it. Elsewhere such orphans are out of its reach.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of Linux."""
LEAVE = b"l"
PATIENCE = 5.0
"""Seconds for killed processes to be gone."""
_POLL = 1.0
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A program may signal its own group, of which the supervisor is a part."""
_DEFAULT = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that a program begins with as if it had been started directly."""


def main() -> int:
    """Run the program; return its exit code, or end by the signal that it ended by."""
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
    let_go_of_streams()
    code = watch(child, leash, woken, leaves=mode == "leaves")
    if code is None or mode == "all":
        end_all()
    if code is not None and code < 0:
        die_of(-code)
    return 1 if code is None else code


def die_of(number: int) -> None:
    """End by a signal, without leaving a second core file."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Let orphans among the descendants become children of this process; Linux only."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def let_go_of_streams() -> None:
    """Hold no end of the program's own streams: who reads them sees when it closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def watch(child: int, leash: int, woken: int, *, leaves: bool) -> int | None:
    """Return the exit code of the program; None: the leash was let go, or the starter is gone.

    With `leaves` the code is not returned before the starter says so.
    """
    starter, code, may_end = os.getppid(), None, not leaves
    while True:
        code = reap().get(child, code)
        if code is not None and may_end:
            return code
        ready = select.select([leash, woken], [], [], _POLL)[0]
        if leash in ready and os.read(leash, 1) == LEAVE:
            may_end = True
        elif leash in ready or os.getppid() != starter:
            return None
        with suppress(BlockingIOError):
            os.read(woken, 4096)


def reap() -> dict[int, int]:
    """Return the exit codes of the children that have ended."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def end_all() -> None:
    """Kill all descendants, those that come while this is done too."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        below = descendants(os.getpid())
        for each in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        reap()
        if not below:
            return
        time.sleep(0.005)


def descendants(root: int) -> list[int]:
    """Return the processes below one that run or are not reaped yet."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents():
        children.setdefault(parent, []).append(pid)
    found, left = [], [root]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def parents() -> list[tuple[int, int]]:
    """Return every process with its parent: of `/proc`, else of `ps`."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112  pathlib takes as long to import as all else
        import subprocess

        told = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, check=False
        )
        rows = [line.split() for line in told.stdout.splitlines()]
        return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208  as above
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  as above
                found.append((int(name), int(file.read().rpartition(b")")[2].split()[1])))
    return found


if __name__ == "__main__":
    sys.exit(main())
