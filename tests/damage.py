"""Ways to damage a file, and reading that holds a reader to its word: `KINDS`, `read`, `reads`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.messages import Edit
from ctxkit.readers.reader_names import named, read_source
from ctxkit.readers.source import Source

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ctxkit.session import Session

STRANGE = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5e308,
    "",
    "x" * 2000,
    "\ud7ff\u202e<script>",
    [],
    [[]],
    {},
    {"type": 7},
    [None],
]


def read(data: bytes, format: str) -> list[Session]:
    """Read the bytes as a format; everything that comes out is used once, as frames would."""
    sessions = read_source(Source("damaged", data), named(format))
    for s in sessions:
        ids = [e.id for e in s.log]
        assert len(ids) == len(set(ids))
        shown = s.view()
        for e in s.edits:
            assert isinstance(e, Edit)
        assert all(m.visible for m in shown)
        for c in s.calls:
            assert c.message.usage is None or (c.message.usage.prompt_tokens or 0) >= 0
    return sessions


def reads(data: bytes, format: str) -> bool:
    """Say whether the bytes could be read; an error that the catalogue had to wrap is the reader's fault."""
    try:
        read(data, format)
    except ReadError as e:
        if e.__cause__ is not None:
            raise AssertionError(f"{format} let {e.__cause__!r} out") from e
        return False
    return True


def flip(data: bytes, r: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(r.randint(1, 8)):
        out[r.randrange(len(out))] ^= 1 << r.randrange(8)
    return bytes(out)


def cut(data: bytes, r: random.Random) -> bytes:
    a, b = sorted(r.randrange(len(data)) for _ in range(2))
    return r.choice([data[:a], data[b:], data[:a] + data[b:]])


def shuffle(data: bytes, r: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(r.randint(1, 4)):
        i, j = r.randrange(len(lines)), r.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i] if r.random() < 0.5 else lines[j]
    return b"\n".join(lines)


def repeat(data: bytes, r: random.Random) -> bytes:
    lines = data.split(b"\n")
    i = r.randrange(len(lines))
    return b"\n".join(lines[: i + 1] + lines[max(i - 3, 0) :])


def swap(data: bytes, r: random.Random) -> bytes:
    return _in_json(
        data, r, lambda parent, key: parent.__setitem__(key, deepcopy(r.choice(STRANGE)))
    )


def delete(data: bytes, r: random.Random) -> bytes:
    return _in_json(data, r, lambda parent, key: parent.__delitem__(key))


def deepen(data: bytes, r: random.Random) -> bytes:
    depth = r.choice([20, 400, 100_000])
    deep = (
        b"[" * depth + b"]" * depth if r.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth
    )
    places = [i for i, c in enumerate(data) if c == ord(":")]
    at = r.choice(places) + 1 if places else 0
    return data[:at] + deep + b"," + data[at:]


def _in_json(data: bytes, r: random.Random, change: Callable[[Any, Any], None]) -> bytes:
    """Change some values deep in the JSON of the file, or of one of its lines."""
    try:
        whole, lines = json.loads(data), []
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        i = r.randrange(len(lines))
        try:
            whole = json.loads(lines[i])
        except (ValueError, RecursionError):
            return flip(data, r)
    for _ in range(r.randint(1, 3)):
        parent: Any = {"": whole}
        key: Any = ""
        while type(parent[key]) in (dict, list) and parent[key] and r.random() < 0.85:
            parent = parent[key]
            key = r.choice(list(parent)) if type(parent) is dict else r.randrange(len(parent))
        if key != "":
            change(parent, key)
    try:
        new = json.dumps(whole).encode()
    except RecursionError:
        return flip(data, r)
    return b"\n".join([*lines[:i], new, *lines[i + 1 :]]) if lines else new


KINDS = [flip, cut, shuffle, repeat, swap, swap, delete, delete, deepen]
