"""Claude Code's lines decoded by the fields that its reader uses, against whole lines."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from conftest import sample
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.cli.session_index import index_session
from ctxkit.errors import ReadError
from ctxkit.formats import (
    Source,
    claude_code,
    claude_code_attachments,
    claude_code_conversation,
    read_source,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

WHOLE_LINES = msgspec.json.Decoder(dict[str, Any])


def read_with(decoder: Any, path: Path, data: bytes | None = None) -> Session | str:
    """The session of a transcript whose lines a decoder reads; or why there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claude_code, "LINE_DECODER", decoder)
        try:
            return read_source(Source(path, data), claude_code)[0]
        except ReadError as error:
            return str(error)


def test_real_sessions_are_listed_as_whole_lines_say(real: Path) -> None:
    files = sorted((real / "claude-code").rglob("*.jsonl"))
    assert len(files) > 5
    for file in sample(files, 6):
        whole, ours = (
            read_with(decoder, file) for decoder in (WHOLE_LINES, claude_code.LINE_DECODER)
        )
        assert ours == whole, file.name
        if not isinstance(ours, str) and not isinstance(whole, str):
            assert index_session(ours) == index_session(whole), file.name


def _lines() -> list[dict[str, Any]]:
    usage = {"input_tokens": 9, "cache_read_input_tokens": 500, "output_tokens": 3}
    reply = {"id": "m1", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    call = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "look"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 90}
    return [
        {"type": "user", "uuid": "a", "message": {"role": "user", "content": "fix it"}},
        {"type": "assistant", "uuid": "b", "message": {**reply, "content": [call]}},
        {
            "type": "user",
            "uuid": "c",
            "message": {"role": "user", "content": [result]},
            "toolUseResult": {"agentId": "e1", "stdout": "x" * 90},
        },
        {"type": "progress", "uuid": "d", "data": {"hookName": "SessionStart:resume"}},
        {"type": "system", "uuid": "e", "subtype": "compact_boundary", "compactMetadata": {}},
        {"type": "user", "uuid": "f", "message": {"content": "so far"}, "isCompactSummary": True},
        {"type": "custom-title", "customTitle": "The fix", "sessionId": "s"},
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["agentId", "type", "content", "x"]), inner, max_size=3)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from(sorted(claude_code.LINE_FIELDS | {"slug", "level", "snapshot"}))
BROKEN_LINES = st.sampled_from([b"// note", b'{"type": ', b"[1, 2]", b"", b'{"n": NaN}', b"7"])


@given(
    changes=st.lists(st.tuples(st.integers(0, 6), FIELDS, VALUES), max_size=4),
    broken=st.lists(st.tuples(st.integers(0, 7), BROKEN_LINES), max_size=2),
)
def test_any_lines_are_read_as_whole_lines_say(
    tmp_path_factory: pytest.TempPathFactory, changes: list[Any], broken: list[Any]
) -> None:
    records = _lines()
    for number, field, value in changes:
        records[number][field] = value
    lines = [json.dumps({"parentUuid": None, **r}).encode() for r in records]
    for number, line in broken:
        lines.insert(number, line)
    path = tmp_path_factory.getbasetemp() / "session.jsonl"
    data = b"\n".join(lines)
    whole, ours = (
        read_with(decoder, path, data) for decoder in (WHOLE_LINES, claude_code.LINE_DECODER)
    )
    assert ours == whole


def test_a_subagent_is_found_in_a_result_that_stays_raw(tmp_path: Path) -> None:
    data = b"\n".join(json.dumps(r).encode() for r in _lines())
    session = read_with(claude_code.LINE_DECODER, tmp_path / "session.jsonl", data)
    assert not isinstance(session, str)
    assert session.details["subagents"] == {"e1": "t1"}
    assert [e.kind for e in session.edits] == ["summarised"]
    assert session.title == "The fix"


def test_every_field_that_the_reader_names_is_decoded() -> None:
    """A field that is read and not declared would be missing without a word."""
    modules = (claude_code, claude_code_attachments, claude_code_conversation)
    sources = [inspect.getsource(m) for m in modules]
    names = set(re.findall(r'\b(?:record|boundary)(?:\.get\(|\[)\s*"(\w+)"', "\n".join(sources)))
    assert len(names) > 20
    names |= set(claude_code._METADATA_FIELDS) | set(claude_code._TITLE_FIELDS.values())
    assert names <= claude_code.LINE_FIELDS
