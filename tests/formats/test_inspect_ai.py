"""Inspect: samples are sessions, pools and attachments are followed within bounds, archives are never bombs."""

from __future__ import annotations

import io
import json
import zipfile

import pyarrow as pa
import pytest

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, get_reader, read_source
from ctxkit.formats.inspect_ai import parse_inspect_usage
from ctxkit.session import Message, Text


def zipped(**members: object) -> Source:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, value in members.items():
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            z.writestr(name.replace("__", "/") + ".json", data)
    return Source("x.eval", out.getvalue())


def model(given: list, said: str, **more) -> dict:
    output = {
        "choices": [{"message": {"role": "assistant", "content": said}}],
        "usage": {"input_tokens": 5},
    }
    return {
        "event": "model",
        "input": [{"role": "user", "content": g} for g in given],
        "output": output,
        **more,
    }


def test_calls_have_their_usage_and_attachments_are_put_back(real):
    s = ck.read(real / "inspect-ai/2025-05-12T20-27-36-04-00_browser.json")
    u = s.call(-1).message.usage
    assert (u.input_tokens, u.cache_read_tokens, u.output_tokens) == (5_915 - 3_840, 3_840, 207)
    assert not any(m.text.startswith("attachment://") for m in s.messages)
    assert len(s.view(-1)) == 9
    assert s.tools[0].name == "web_browser_go"


def test_pooled_messages_are_one_conversation(real):
    s = ck.read(real / "inspect-ai/log_message_deduplication.eval")
    assert [len(v) for _, v in s.views()] == [1, 3, 5, 7, 9, 11]


def test_every_sample_and_epoch_is_a_session(real):
    sessions = ck.read_all(real / "inspect-ai/log_streaming.eval", progress=False)
    assert sorted(s.id for s in sessions) == ["1/1", "1/2", "2/1", "2/2"]


def test_input_holds_the_cache_only_where_the_total_says_so():
    inside = {
        "input_tokens": 100,
        "output_tokens": 5,
        "total_tokens": 105,
        "input_tokens_cache_read": 80,
    }
    apart = {**inside, "total_tokens": 185}
    assert parse_inspect_usage(inside).prompt_tokens == 100
    assert parse_inspect_usage(apart).prompt_tokens == 180


def test_a_compaction_is_the_agents_own_also_after_another_agents_call():
    spans = [
        {"event": "span_begin", "id": name, "type": "agent", "name": name}
        for name in ("main", "helper")
    ]
    events = [
        *spans,
        model(["a", "b"], "1", span_id="main"),
        model(["task"], "2", span_id="helper"),
        {"event": "compaction", "type": "summary", "tokens_before": 900, "tokens_after": 90},
        model(["a summary"], "3", span_id="main"),
    ]
    messages = [{"role": "user", "content": "a summary"}, {"role": "assistant", "content": "3"}]
    sample = {"id": 1, "epoch": 1, "events": events, "messages": messages}
    (session,) = read_source(zipped(header={"eval": {}, "status": "success"}, samples__1=sample))
    (edit,) = session.edits
    assert (edit.tokens_before, edit.source, len(edit.targets)) == (900, "recorded", 3)
    (child,) = session.children
    assert [m.text for m in child.messages] == ["task", "2"]


def test_another_agents_calls_are_a_child():
    events = [model(["a"], "1"), model(["sub", "task"], "2"), model(["a"], "1b")]
    (s,) = read_source(
        zipped(
            samples__1_epoch_1={
                "id": 1,
                "events": events[:2],
                "messages": [{"role": "user", "content": "a"}],
            }
        )
    )
    assert s.messages[0].text == "a"
    assert [len(c.calls) for c in s.children] == [1]


def test_a_compaction_event_marks_the_edit():
    mark = {"event": "compaction", "type": "summary", "tokens_before": 900, "tokens_after": 90}
    events = [model(["a", "b"], "1"), mark, model(["so far: a, b"], "2")]
    (s,) = read_source(zipped(samples__1_epoch_1={"id": 1, "events": events}))
    (edit,) = s.edits
    assert (edit.source, edit.tokens_before, edit.tokens_after) == ("recorded", 900, 90)
    assert [m.text for m in s.view(-1)] == ["so far: a, b"]


def test_an_unfinished_archive_is_read_by_its_samples():
    (s,) = read_source(
        zipped(_journal__start={"eval": {"model": "m"}}, samples__1_epoch_1={"messages": []})
    )
    assert s.model == "m"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (zipped(header={"eval": {}, "status": "success"}), ""),
        (Source("x.eval", b'{"eval": {}, "status": "error", "samples": []}'), ""),
        (
            zipped(samples__1_epoch_1=b'{"messages": '),
            " member 'samples/1_epoch_1.json': Input data was truncated.",
        ),
    ],
)
def test_a_log_without_samples_is_refused_with_the_reason(source, reason):
    with pytest.raises(ReadError) as raised:
        get_reader("inspect-ai").read(source)
    assert raised.value.why == f"the log has no samples.{reason}"
    assert str(raised.value.path) == "x.eval"


def test_a_bomb_is_refused_before_it_is_unpacked():
    bomb = b'{"messages": "' + b"x" * (8 << 20) + b'"}'
    with pytest.raises(ReadError) as raised:
        read_source(zipped(**{"samples__" + "n" * 99: bomb}))
    name = "samples/" + "n" * 72  # 80 characters
    assert raised.value.why == f"member '{name}' grows to 8,388,624 bytes: refused as a bomb."
    assert raised.value.path == "x.eval"


def test_a_written_sample_has_the_first_question_as_its_input(tmp_path):
    parts = {role: (Text(f"from {role}"),) for role in ("system", "user", "assistant")}
    log = tuple(Message(role=role, id=role, parts=p) for role, p in parts.items())
    for entries, asked in ((log, "from user"), (log[::2], "")):
        ck.write(ck.Session(id="s", log=entries), tmp_path / "s.json", format="inspect")
        (sample,) = json.loads((tmp_path / "s.json").read_bytes())["samples"]
        assert (sample["id"], sample["input"], sample["target"]) == ("s", asked, "")
        (choice,) = sample["output"]["choices"]
        assert choice["message"]["content"] == "from assistant"
    ck.write(ck.Session(id="s", log=log[:2]), tmp_path / "s.json", format="inspect")
    (sample,) = json.loads((tmp_path / "s.json").read_bytes())["samples"]
    assert sample["output"] == {"model": "unknown", "choices": []}


def test_a_member_of_an_unknown_compression_is_named():
    data = bytearray(
        zipped(samples__1_epoch_1={"messages": []}, samples__2_epoch_1={"messages": []}).data
    )
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + at] = 93  # zstd, in the first member's two headers
    (s,) = read_source(Source("x.eval", bytes(data)))
    assert "ZSTD" in s.faults[0].why  # it says that it is zstd, and is not
    data = bytearray(
        zipped(samples__1_epoch_1={"messages": []}, samples__2_epoch_1={"messages": []}).data
    )
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + at] = 77
    (s,) = read_source(Source("x.eval", bytes(data)))
    assert "unknown compression" in s.faults[0].why


def test_a_member_packed_with_zstd_is_read():
    sample = b'{"id": 7, "epoch": 1, "messages": [{"role": "user", "content": "q"}]}'
    packed = pa.compress(sample, codec="zstd", asbytes=True)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("header.json", b'{"eval": {"task": "t"}}')
        archive.writestr("samples/7_epoch_1.json", packed)
    data = bytearray(out.getvalue())
    for mark, method, size in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        at = data.rindex(mark)
        data[at + method] = 93
        data[at + size : at + size + 4] = len(sample).to_bytes(4, "little")
    (s,) = read_source(Source("x.eval", bytes(data)))
    assert not s.faults
    assert s.messages[0].text == "q"


def test_references_are_bounded():
    pool = [{"role": "user", "content": "a"}] * 1_000
    events = [{"event": "model", "input_refs": [[0, 1_000]] * 1_000, "output": {}}] * 5
    (s,) = read_source(
        zipped(samples__1_epoch_1={"message_pool": pool, "events": events, "messages": pool[:1]})
    )
    assert any("references" in f.why for f in s.faults)


def test_the_error_of_a_tool_is_its_text_where_it_has_none_and_is_bounded():
    failed = [
        {"role": "tool", "content": given, "function": "bash", "error": {"message": "e" * 2_001}}
        for given in ("", "no such file")
    ]
    messages = [{"role": "user", "content": "Go."}, *failed]
    (s,) = read_source(zipped(samples__1_epoch_1={"messages": messages}))
    results = [m for m in s.messages if m.role == "tool"]
    assert [(m.text, m.error, m.is_error, m.tool) for m in results] == [
        ("e" * 2_001, "e" * 2_000, True, "bash"),
        ("no such file", "e" * 2_000, True, "bash"),
    ]
