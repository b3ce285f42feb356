"""Damaged files of every format: only `ReadError` comes out, what is kept is sound, damage is counted."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ALL, SEED
from hypothesis import example, given
from hypothesis import strategies as st
from log_damage import KINDS, reads
from real_logs import FORMATS, small

from ctxkit.errors import ReadError
from ctxkit.formats import Source, all_readers

if TYPE_CHECKING:
    from pathlib import Path

EACH = 4000 if ALL else 70


@pytest.mark.parametrize("format", FORMATS)
def test_only_read_errors_come_out_of_a_damaged_file(format: str, real: Path) -> None:
    data, r, refused = small(real, format), random.Random(f"{SEED} {format}"), 0
    for _ in range(EACH):
        broken = data
        for _ in range(r.choice([1, 1, 2, 5])):
            broken = r.choice(KINDS)(broken, r) or b"{}"
        refused += not reads(broken, FORMATS[format])
    assert refused < EACH  # some of it must have been read


@given(st.binary(max_size=300))
@example(b"\x1f\x8b\x08")
def test_no_bytes_let_anything_else_out(data: bytes) -> None:
    for m in all_readers():
        with suppress(ReadError):  # what is no whole gzip file is refused before any reader sees it
            m.sniff(Source("any", data))
        reads(data, m.NAME)


WORDS = {
    *(
        "type",
        "message",
        "role",
        "content",
        "id",
        "parentId",
        "uuid",
        "payload",
        "messages",
        "steps",
        "usage",
    ),
    *(
        "tool_calls",
        "text",
        "input",
        "output",
        "summary",
        "user",
        "assistant",
        "session",
        "timestamp",
        "history",
    ),
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(sorted(WORDS)), inner, max_size=6)
    ),
    max_leaves=24,
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(sorted(WORDS)), json_values | st.sampled_from(sorted(WORDS)), max_size=6
        )
    )
)
def test_no_json_lets_anything_else_out(records: list[dict[str, Any]]) -> None:
    for data in (b"\n".join(json.dumps(r).encode() for r in records), json.dumps(records).encode()):
        for m in all_readers():
            m.sniff(Source("any", data))
            reads(data, m.NAME)
