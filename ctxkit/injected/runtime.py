"""Where an agent runs: system, architecture, shell, folder, and the time (as fuseraft has it)."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from pathlib import Path

from ctxkit.injected.blocks import Block, Surroundings, block

_SYSTEMS = {"Darwin": "macOS"}
_MACHINES = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "i386": "x86",
    "i686": "x86",
}
_SHELLS = {"Windows": "cmd.exe", "Darwin": "zsh"}


def runtime(around: Surroundings, _: float) -> Block | None:
    """Return the block without the time, which stands at the end."""
    system = platform.system()
    machine = platform.machine()
    shell = os.environ.get("COMSPEC" if system == "Windows" else "SHELL")
    return block(
        "runtime",
        "## Runtime Environment\n"
        f"OS: {_SYSTEMS.get(system, system)}\n"
        f"Architecture: {_MACHINES.get(machine.lower(), machine)}\n"
        f"Shell: {(shell or _SHELLS.get(system, 'bash'))[:200]}\n"
        f"Working directory: {str(around.folder)[:1000]}",
    )


def time(_: Surroundings, now: float) -> Block | None:
    """Return the line that says the date, the time and the zone of this machine."""
    local = datetime.fromtimestamp(now).astimezone()
    offset = local.strftime("%z")
    zone = _zone() or local.tzname() or "local"
    return block(
        "time", f"Date/time: {local:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]} ({zone})"
    )


def _zone() -> str:
    """Return the zone's name in the database of zones; empty where the system does not say it."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if "/" in named and not named.startswith("/"):
        return named[:60]
    try:
        target = Path("/etc/localtime").readlink().as_posix()
    except OSError:
        return ""
    return target.rpartition("zoneinfo/")[2][:60] if "zoneinfo/" in target and not named else ""
