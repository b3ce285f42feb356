"""How a file of lines ends: whole, torn, or without its last newline."""

from __future__ import annotations

import json
import os


def last_line(handle: int, size: int) -> bytes:
    """Return what stands behind the last newline of a file of `size` bytes."""
    at, pieces = size, [b""]
    while at and b"\n" not in pieces[0]:
        at, end = max(at - (1 << 16), 0), at
        os.lseek(handle, at, os.SEEK_SET)
        pieces.insert(0, os.read(handle, end - at))
    return b"".join(pieces).rpartition(b"\n")[2]


def whole(line: bytes) -> bool:
    """Return True for an object that lacks its newline only: no beginning of one is one."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
