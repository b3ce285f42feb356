"""The real command in a process of its own: in a pipe, or in a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = [sys.executable, "-m", "ctxkit"]
PACKAGE = str(Path(__file__).parents[2])


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.endswith("_API_KEY") and k not in ("COLUMNS", "CODEX_HOME")
    }
    paths = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
    own = {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": paths,
        "TZ": "UTC",
    }
    return {**kept, **own, "PYTHONWARNINGS": "default", **more}


def ctxkit(home: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a home of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        check=False,
        cwd=home,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=120,
    )


def run_in_this_process(
    home: Path, *words: object, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as `ctxkit` does, but in this process, without a second of imports."""
    return _run_here(home, words, more, StringIO(), StringIO())


@cache
def list_commands() -> tuple[str, ...]:
    """Return the names of the commands, in the order of `ctxkit --help`."""
    _, _, listed = run_in_this_process(Path.cwd(), "--help").stdout.partition("\nCommands:\n")
    return tuple(re.findall(r"^  (\w+)", listed, re.MULTILINE))


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def run_as_in_terminal(home: Path, *words: object, columns: int = 80) -> tuple[int, str]:
    """Run the command in this process, which takes its output for a terminal's, as `in_terminal` does."""
    shown = _Terminal()
    code = _run_here(home, words, {"COLUMNS": str(columns)}, shown, shown).returncode
    return code, shown.getvalue()


def _run_here(
    home: Path, words: Sequence[object], more: dict[str, str], out: StringIO, err: StringIO
) -> subprocess.CompletedProcess[str]:
    from ctxkit.cli import main

    asked = [*map(str, words)]
    with (
        mock.patch.dict(os.environ, environment(home, **more), clear=True),
        chdir(home),
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        code = main(asked)
    return subprocess.CompletedProcess(asked, code, out.getvalue(), err.getvalue())


def in_terminal(
    home: Path, *words: object, columns: int = 80, until: str = "", key: bytes = b""
) -> tuple[int, str]:
    """Run the command in a pseudo-terminal; once `until` is shown, type `key`. Return code and what is shown."""
    import fcntl
    import pty
    import select
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # a session of its own whose terminal this is: Ctrl-C reaches it as a signal, also where whoever
    # runs the tests ignores it, as what a script starts in the background does
    begin = (
        "import os,fcntl,termios,signal,sys; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", begin, *COMMAND, *map(str, words)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=home,
        env=environment(home),
    )
    os.close(slave)
    shown = b""
    try:
        end = time.monotonic() + 90
        while time.monotonic() < end:
            if not select.select([master], [], [], 2)[0]:
                if key and until.encode() in shown:
                    os.write(master, key)  # a person would press it again
                continue
            try:
                data = os.read(master, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not data:
                break
            known = until.encode() in shown
            shown += data
            if key and not known and until.encode() in shown:
                os.write(master, key)
        code = running.wait(timeout=60)
    finally:
        running.kill()
        running.wait()
        os.close(master)
    return code, shown.decode().replace("\r\n", "\n")
