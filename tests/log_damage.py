"""Ways to damage a file, and reading that holds a reader to its word: `KINDS`, `read`, `reads`.

The first kinds change bytes, lines and JSON values of any type; those of `FIELD_KINDS` find the fields of JSON in
the raw bytes, also in a file that is no valid JSON any more, and change numbers, texts, times and keys by their kind.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.formats import Source, get_reader, read_source
from ctxkit.session import Edit

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

NUMBERS = [
    *(b"0", b"-1", b"1", b"0.5", b"-0.0", b"1e-300", b"1e300", b"NaN", b"Infinity", b"-Infinity"),
    *(
        b"1000000000",
        b"10000000000",
        b"1e10",
        b"1e15",
        b"1e30",
        b"9007199254740991",
        b"9007199254740993",
    ),
    *(b"9223372036854775808", b"1" + b"0" * 400, b"1" + b"0" * 5000),
    *(b'"12"', b'""', b'"twelve"', b"null", b"true", b"[]", b"[7]", b"{}"),
]
"""What is in the place of a number."""
TEXTS = [
    *(
        "",
        " ",
        "\n\n\n",
        "\0",
        "null",
        "-1",
        "\ud800",
        "\udfff\ud800",
        "\ufffe\uffff",
        "\ufeff",
        "\x1b[31mred\x1b[0m",
    ),
    *(
        "\u202egnp.exe",
        "a\u0301" * 400,
        "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50,
        "\u200b" * 100,
        "\u0130\u0131\u1e9e",
    ),
    *(
        "<img src=x onerror=z()>",
        "$\\href{javascript:x}{y}$",
        "%s %d {0} {x!r}",
        "\r\v\f\x85\u2028",
        "x" * 20_000,
    ),
    *(
        "a b\n" * 5000,
        "```\n" * 9,
        "#### " * 50,
        "{" * 3000,
        "claude-opus-4-1",
        "gpt-5",
        "user",
        "assistant",
        "tool",
    ),
]
TIMES = [
    *(
        b'"0001-01-01T00:00:00Z"',
        b'"1900-01-01T00:00:00+23:59"',
        b'"9999-12-31T23:59:59.999999-23:59"',
        b'"2026-02-30T00:00:00Z"',
    ),
    *(
        b'"1969-12-31T23:59:59Z"',
        b'"2300-01-01"',
        b'"yesterday"',
        b"0",
        b"-1",
        b"-62135596800",
        b"1",
        b"1e11",
        b"99999999999999",
        b"1e18",
    ),
    *(b"253402300800", b"NaN", b"null", b'"2026-01-01T00:00:00"', b'"20260101T000000Z"', b"[]"),
]
FIELD = re.compile(rb'"(\w{1,40})"(\s*:\s*)(-?\d[\d.eE+-]*|"(?:[^"\\\\]|\\\\.)*"|true|false|null)')
"""A key of JSON with a plain value."""
NUMBER = re.compile(rb"(?<![\w.])\d[\d,.]*k?")
"""A number of a log that is no JSON."""
CLOCK = re.compile(rb"time|date|created|updated|started|ended|^ts$|_at$|At$", re.IGNORECASE)
"""Keys of times."""


def read(data: bytes, format: str) -> list[Session]:
    """Read the bytes as a format; everything that comes out is used once, as frames would."""
    sessions = read_source(Source("damaged", data), get_reader(format))
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
        assert e.path == "damaged", f"{format} does not name the file: {e}"  # noqa: PT017
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


def renumber(data: bytes, r: random.Random) -> bytes:
    """Change the numbers of one key, or some of all: to the same strange value or each to its own."""
    same = r.choice(NUMBERS) if r.random() < 0.5 else None
    strange = lambda _: same or r.choice(NUMBERS)
    return _in_fields(data, r, lambda m: m[3][:1] in b"-0123456789", strange) or _in_text(
        data, r, strange
    )


def rescale(data: bytes, r: random.Random) -> bytes:
    """Multiply the numbers of one key."""
    by = r.choice([0.001, 0.5, -1.0, 3.0, 1e3, 1e6, 1e12])

    def scaled(value: bytes) -> bytes:
        try:
            return f"{float(value) * by:.17g}".encode()
        except ValueError:
            return b"0"

    return _in_fields(data, r, lambda m: m[3][:1] in b"-0123456789", scaled) or data


def retext(data: bytes, r: random.Random) -> bytes:
    """Change texts of one key: a value instead, before it or behind it."""
    odd = json.dumps(r.choice(TEXTS)).encode()
    how = r.choice([lambda v: odd, lambda v: odd[:-1] + v[1:], lambda v: v[:-1] + odd[1:]])
    return _in_fields(data, r, lambda m: m[3][:1] == b'"', how) or data


def retime(data: bytes, r: random.Random) -> bytes:
    """Move times: before 1970, to the far future, to the same moment, or out of order."""
    is_time = lambda m: CLOCK.search(m[1]) is not None
    if r.random() < 0.3:
        values = [m[3] for m in FIELD.finditer(data) if is_time(m)]
        return _in_fields(data, r, is_time, lambda _: r.choice(values)) or data
    same = r.choice(TIMES) if r.random() < 0.5 else None
    return _in_fields(data, r, is_time, lambda _: same or r.choice(TIMES)) or data


def rename(data: bytes, r: random.Random) -> bytes:
    """Give the fields of one key another key of the file, one that none has, or the same twice."""
    keys = sorted({m[1] for m in FIELD.finditer(data)})
    if not keys:
        return flip(data, r)
    old, new = r.choice(keys), r.choice([*keys, b"none_such", b""])
    field = re.compile(rb'"' + old + rb'"(\s*:)')
    change = r.choice([rb'"' + new + rb'"\1', rb'"' + old + rb'": null, "' + old + rb'"\1'])
    return field.sub(change, data, r.choice([0, 0, 1, 3]))


def nest(data: bytes, r: random.Random) -> bytes:
    """Put the values of one key into lists, objects, or a text."""
    how = r.choice(
        [
            lambda v: b"[" + v + b"]",
            lambda v: b'{"text": ' + v + b"}",
            lambda v: b"[" * 60 + v + b"]" * 60,
            lambda v: json.dumps(v.decode("utf-8", "replace")).encode(),
            lambda v: b"[" + b",".join([v] * 300) + b"]",
        ]
    )
    return _in_fields(data, r, lambda _: True, how) or data


def _in_fields(
    data: bytes,
    r: random.Random,
    is_one: Callable[[re.Match[bytes]], bool],
    change: Callable[[bytes], bytes],
) -> bytes:
    """Change the values of the fields of one key, of some or of all such fields; empty where there is none."""
    fields = [m for m in FIELD.finditer(data) if is_one(m)]
    if not fields:
        return b""
    key, share = r.choice(fields)[1], r.choice([0.05, 0.3, 1.0])
    if r.random() < 0.8:
        fields = [m for m in fields if m[1] == key]
    chosen = [m for m in fields if r.random() < share] or [r.choice(fields)]
    out, end = [], 0
    for m in chosen:
        out += [data[end : m.start(3)], change(m[3])]
        end = m.end(3)
    return b"".join([*out, data[end:]])


def _in_text(data: bytes, r: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    share = r.choice([0.05, 0.3, 1.0])
    return NUMBER.sub(lambda m: change(m[0]) if r.random() < share else m[0], data)


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


FIELD_KINDS = [renumber, renumber, rescale, rescale, retext, retime, rename, nest]
KINDS = [flip, cut, shuffle, repeat, swap, swap, delete, delete, deepen, *FIELD_KINDS]
