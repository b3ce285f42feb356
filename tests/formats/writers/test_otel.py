"""OpenTelemetry: what is written reads back, with usage, times and compactions; as a collector would take it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from builders import assistant, result, tool_call
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.formats import Source, read_source
from ctxkit.session import Attachment, Message, Text, Usage

GOLDEN = Path(__file__).parents[2] / "formats" / "golden"
WITH_PROMPTS = [
    "pi.jsonl",
    "claude-code.jsonl",
    "codex.jsonl",
    "kimi-cli.jsonl",
    "opencode.json",
    "goose.json",
]


def copied(session: ck.Session, folder: Path) -> tuple[ck.Session, dict[str, int]]:
    """Return a session as it reads back, without its subagents, and what the copy lacks."""
    lost = ck.write(session, folder / "spans.json", format="otel").lost
    sessions = ck.read_all(folder / "spans.json", progress=False)
    return next(s for s in sessions if s.id == session.id), lost


def join_cache_writes(usage: Usage | None) -> Usage | None:
    """Return a usage whose cache writes have one lifetime, as other formats record them."""
    if usage is None or usage.cache_write_1h_tokens is None:
        return usage
    written = (usage.cache_write_tokens or 0) + usage.cache_write_1h_tokens
    return replace(usage, cache_write_tokens=written, cache_write_1h_tokens=None)


def words(session: ck.Session, call: int) -> list[str]:
    return [m.text for m in session.view(call) if m.visible and m.kind != "lost"]


@pytest.mark.parametrize("name", WITH_PROMPTS)
def test_each_call_reads_back_with_its_prompt(name: str, tmp_path: Path):
    wanted = ck.read(GOLDEN / name)
    found, lost = copied(wanted, tmp_path)
    assert found.format == "otel"
    assert [words(found, c.index) for c in found.calls] == [
        words(wanted, c.index) for c in wanted.calls
    ]
    assert [c.message.usage for c in found.calls] == [
        join_cache_writes(c.message.usage) for c in wanted.calls
    ]
    assert [c.message.tool_calls for c in found.calls] == [
        c.message.tool_calls for c in wanted.calls
    ]
    assert [c.message.time for c in found.calls] == [c.message.time for c in wanted.calls]
    assert "compactions" not in lost
    assert [(e.kind, e.source, [m.text for m in e.inserted]) for e in found.edits] == [
        ("summarised", "recorded", [m.text for m in e.inserted])
        for e in wanted.edits
        if e.kind == "summarised"
    ]


def test_what_comes_after_the_last_call_is_named_as_lost(tmp_path: Path):
    wanted = ck.read(GOLDEN / "pi.jsonl")
    late = ck.Message(role="user", id="late", parts=wanted.messages[0].parts)
    assert copied(wanted.append(late), tmp_path)[1]["messages after the last call"] == 1


def cut(own: str, targets: tuple[str, ...], *inserted: ck.Message) -> ck.Edit:
    return ck.Edit(kind="summarised", id=own, targets=targets, inserted=inserted)


def said(role: str, own: str) -> ck.Message:
    return ck.Message(role=role, id=own, parts=(Text(f"words of {own}"),))


def test_cuts_come_back_and_those_that_cannot_are_named(tmp_path: Path):
    """A cut without a summary, cuts of which one follows the other, and a call without a time."""
    log = (
        said("user", "u1"), said("assistant", "a1"), said("user", "u2"), said("assistant", "a2"),
        cut("c1", ("u1", "a1"), said("summary", "s1")), said("user", "u3"), said("assistant", "a3"),
        cut("c2", ("s1", "u2", "a2")), said("user", "u4"), said("assistant", "a4"),
        cut("c3", ("u3",), said("summary", "s3")), cut("c4", ("a3",), said("summary", "s4")),
        said("assistant", "a5"), cut("c5", ("u4",)),
    )  # fmt: skip
    session, lost = copied(ck.Session(id="x", log=log, started=5.0), tmp_path)
    assert [(e.kind, e.source) for e in session.edits] == [("summarised", "recorded")] * 3
    assert len(session.calls) == 5
    assert lost["compactions that no call follows"] == 2


def test_a_cut_before_the_first_call_comes_back(tmp_path: Path):
    log = (said("system", "y"), said("user", "u1"), cut("c1", ("u1",), said("summary", "s1")),
           said("user", "u2"), said("assistant", "a1"))  # fmt: skip
    session, lost = copied(ck.Session(id="x", log=log, started=5.0), tmp_path)
    (edit,) = session.edits
    assert (edit.kind, edit.source, edit.targets) == ("summarised", "recorded", ())
    assert [m.text for m in session.view()] == [f"words of {i}" for i in ("y", "s1", "u2", "a1")]
    assert not lost.get("compactions that no call follows")


def test_what_grandchildren_lose_is_counted(tmp_path: Path):
    late = ck.Session(id="g", log=(said("user", "u"),))
    child = ck.Session(id="c", children=(late,))
    top = ck.Session(id="t", children=(child,))
    lost = ck.write(top, tmp_path / "s.json", format="otel").lost
    assert lost["messages after the last call"] == 1
    assert ck.write(top, tmp_path / "s.json", format="openai").lost["subagent sessions"] == 2


def test_subagents_are_children_again(tmp_path: Path):
    child = ck.read(GOLDEN / "pi.jsonl")
    wanted = replace(child, children=(replace(child, id="sub", agent="scout", parent=child.id),))
    found = {s.id: s for s in ck.read_all(copied_path(wanted, tmp_path), progress=False)}
    assert len(found["sub"].calls) == len(found[child.id].calls) == 4


def copied_path(session: ck.Session, folder: Path) -> Path:
    ck.write(session, folder / "spans.json", format="otel")
    return folder / "spans.json"


def test_the_file_is_otlp(tmp_path: Path):
    ck.write(GOLDEN / "pi.jsonl", tmp_path / "s.json", format="otel")
    (resource,) = json.loads((tmp_path / "s.json").read_bytes())["resourceSpans"]
    root, *calls = resource["scopeSpans"][0]["spans"]
    assert root["name"] == "invoke_agent main"
    assert {c["parentSpanId"] for c in calls} == {root["spanId"]}
    assert all(len(s["spanId"]) == 16 and len(s["traceId"]) == 32 for s in (root, *calls))
    told = [{a["key"]: a["value"] for a in c["attributes"]} for c in calls]
    assert [("gen_ai.conversation.compacted" in t) for t in told] == [False, False, False, True]
    assert told[1]["gen_ai.usage.input_tokens"] == {"intValue": "1260"}
    assert told[0]["gen_ai.response.finish_reasons"] == {
        "arrayValue": {"values": [{"stringValue": "tool_call"}]}
    }


# -- marks in other exporters' spans ----------------------------------------------------------------------------------


def span(n: int, prompt: list | None, said: str = "", **more: object) -> dict:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "c",
        "gen_ai.usage.input_tokens": 9,
        **more,
    }
    if prompt is not None:
        attributes["gen_ai.input.messages"] = json.dumps(prompt)
        answer = {"role": "assistant", "parts": [{"type": "text", "content": said}]}
        attributes["gen_ai.output.messages"] = json.dumps([answer])
    return {
        "trace_id": "t",
        "span_id": f"s{n}",
        "start_time": n + 1,
        "end_time": n + 2,
        "attributes": attributes,
    }


def read(*spans: dict) -> ck.Session:
    return read_source(Source("x.jsonl", b"\n".join(json.dumps(s).encode() for s in spans)))[0]


def user(text: str, kind: str = "text") -> dict:
    return {"role": "user", "parts": [{"type": kind, "content": text}]}


COMPACTED = {"gen_ai.conversation.compacted": True}


def test_a_mark_without_content_is_an_edit_once():
    session = read(*(span(n, None, **(COMPACTED if n > 1 else {})) for n in range(5)))
    (edit,) = session.edits
    assert (edit.source, edit.targets) == ("recorded", ())
    assert [type(e).__name__ for e in session.log].index("Edit") == 2


def test_a_part_that_stands_for_all_before_goes_on():
    first = span(0, [user("go")], "done")
    second = span(1, [user("so far", "compaction"), user("on")], "yes", **COMPACTED)
    session = read(first, second)
    assert [m.text for m in session.view()] == ["so far", "on", "yes"]
    assert [(e.source, len(e.targets)) for e in session.edits] == [("recorded", 2)]
    assert not session.children


def test_a_sealed_compaction_has_a_size_or_nothing():
    sealed = {"role": "assistant", "parts": [{"type": "compaction"}]}
    session = read(span(0, [user("go")], "done"), span(1, [sealed, user("on")], "yes", **COMPACTED))
    (edit,) = session.edits
    assert edit.inserted[0].parts[0].kind == "compaction"


def test_without_a_mark_what_is_gone_is_derived():
    session = read(span(0, [user("a"), user("b")], "done"), span(1, [user("b"), user("on")], "yes"))
    assert [e.source for e in session.edits] == ["derived"]


def test_spans_have_the_times_and_the_error_of_their_calls(tmp_path: Path):
    """A call of two seconds that ends at 112, one of unknown length that failed at 120, in a session begun at 100."""
    user = ck.Message(role="user", id="u", parts=(Text("Go."),), time=101.0)
    first = ck.Message(role="assistant", id="a", parts=(Text("Half."),), time=112.0, latency=2.0)
    failed = ck.Message(
        role="assistant", id="b", parts=(Text("-"),), time=120.0, is_error=True, error="e" * 201
    )
    for started, begun in ((100.0, 100), (None, 110)):
        session = ck.Session(id="s", log=(user, first, failed), started=started)
        ck.write(session, tmp_path / "spans.json", format="otel")
        document = json.loads((tmp_path / "spans.json").read_text())
        spans = [s for r in document["resourceSpans"] for s in r["scopeSpans"][0]["spans"]]
        times = sorted(
            (int(s["startTimeUnixNano"]) // 10**9, int(s["endTimeUnixNano"]) // 10**9)
            for s in spans
        )
        assert times == sorted([(begun, 120), (110, 112), (120, 120)])
        errors = [
            a["value"]["stringValue"]
            for s in spans
            for a in s["attributes"]
            if a["key"] == "error.type"
        ]
        assert errors == ["e" * 200]


def test_an_attachment_has_the_modality_of_the_conventions(tmp_path: Path):
    """They name pictures `image`, sound `audio` and all other files `file`."""
    kinds = ("image", "audio", "document")
    parts = [Attachment("x/y", url=f"https://example.org/{kind}", kind=kind) for kind in kinds]
    session = ck.Session(
        id="s",
        log=(
            Message(role="user", id="u", parts=(*parts, Attachment("x/z", "ZGF0YQ=="))),
            Message(role="assistant", id="a", parts=(Text("Seen."),)),
        ),
    )
    ck.write(session, tmp_path / "spans.json", format="otel")
    written = (tmp_path / "spans.json").read_text(encoding="utf-8").replace("\\", "")
    kind_by_modality = dict(
        re.findall(r'"modality": ?"(\w+)".{1,60}?"uri": ?"https://example.org/(\w+)"', written)
    )
    assert kind_by_modality == {"image": "image", "audio": "audio", "file": "document"}
    assert re.search(r'"modality": ?"image".{1,60}?"content": ?"ZGF0YQ=="', written)


def test_a_summary_and_a_tool_result_keep_their_pictures(tmp_path: Path):
    """The reader makes a message of the user of what is beside a result in the tool's message."""
    picture = Attachment("image/png", "QUJD")
    ask = Message(role="user", id="u", parts=(Text("Go."),))
    asked = assistant("Look.", tool_call("shot", "c1"))
    shown = replace(result("A shot.", asked), parts=(Text("A shot."), picture))
    summary = Message(role="summary", id="s", parts=(Text("So far."), picture))
    session = ck.Session(id="s", log=(summary, ask, asked, shown, assistant("Seen.")))
    ck.write(session, tmp_path / "spans.json", format="otel")
    view = ck.read(tmp_path / "spans.json").view(-1)
    assert [(m.role, [p.data for p in m.parts if isinstance(p, Attachment)]) for m in view] == [
        ("summary", ["QUJD"]),
        ("user", []),
        ("assistant", []),
        ("tool", []),
        ("user", ["QUJD"]),
    ]
