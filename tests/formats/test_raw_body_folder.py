"""A folder of raw request and response bodies is one session with nothing unexplained."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from formats.body_folders import (
    SYSTEM,
    TOOLS,
    BodyFolder,
    make_folder,
    reminder,
    share_not_held,
    write_json,
)

import ctxkit as ck
from ctxkit.formats import raw_api_body_folder

USER = {"role": "user", "content": [{"type": "text", "text": "Repair the build."}]}


def user(text):
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def reply(text):
    return [{"type": "text", "text": text}]


def read_share_not_in_log(session, call):
    """Return the remainder that the report shows, as a share of the prompt."""
    lines = ck.report(session, call=call).to_text().splitlines()
    found = [line for line in lines if "not in the log" in line]
    return float(found[0].split()[1].rstrip("%")) / 100 if found else 0.0


@pytest.mark.parametrize("index", [True, False])
def test_it_is_one_session_whose_prompts_are_whole(tmp_path, index):
    s = ck.read(make_folder(tmp_path / "bodies", index=index))
    assert (s.id, len(s.calls), len(s.edits), s.faults) == ("11111111-aaaa", 4, 0, ())
    assert (s.product, s.version) == ("claude-code", "2.1.332")
    assert {tool.name for tool in s.tools} == {"read", "bash"}
    assert s.messages[0].role == "system"
    assert s.messages[0].text == SYSTEM
    assert all(c.message.usage.output_tokens == 31 for c in s.calls)
    assert [len(s.view(c)) for c in range(4)] == [2, 4, 6, 8]
    assert all(c.message.time is not None for c in s.calls)


@pytest.mark.parametrize("index", [True, False])
def test_at_most_a_hundredth_of_each_prompt_is_not_in_the_log(tmp_path, index):
    s = ck.read(make_folder(tmp_path / "bodies", index=index))
    for call in range(len(s.calls)):
        request = json.loads(
            (tmp_path / "bodies" / f"11111111-aaaa-{call}.request.json").read_text("utf-8")
        )
        assert share_not_held(s, call, request) <= 0.01
        assert read_share_not_in_log(s, call) <= 0.01


def test_what_a_bill_has_beyond_the_bodies_is_not_explained_away(tmp_path):
    """A bill of three times what was sent cannot be another tokenizer."""
    folder = make_folder(tmp_path / "bodies")
    for path in folder.glob("*.response.json"):
        body = json.loads(path.read_text("utf-8"))
        body["usage"]["input_tokens"] += 40_000
        path.write_text(json.dumps(body), encoding="utf-8")
    assert read_share_not_in_log(ck.read(folder), 0) > 0.5


def test_a_call_without_tools_has_no_remainder_either(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies")
    bodies.call([USER], reply("A title"), tools=[], system="Name the talk. " * 30)
    assert read_share_not_in_log(ck.read(bodies.folder), 0) == 0


def test_what_the_program_lays_into_a_prompt_is_a_message_of_its_own(tmp_path):
    context = "<local-command-stdout>Context usage: 10k of 200k</local-command-stdout>"
    content = [reminder("Contents of CLAUDE.md: be brief."), {"type": "text", "text": context}]
    first = {"role": "user", "content": [*content, {"type": "text", "text": "Repair it."}]}
    notice = {"role": "system", "content": "<total_tokens>9 left</total_tokens>"}
    bodies = BodyFolder(tmp_path / "bodies")
    bodies.call([first], reply("So."))
    assistant = {"role": "assistant", "content": reply("So.")}
    bodies.call([first, assistant, user("And?"), notice], reply("Done."))
    s = ck.read(bodies.folder)
    kinds = [(m.role, m.kind, m.details.get("attachment")) for m in s.messages]
    assert kinds == [
        ("system", "", None),
        ("user", "injected", "reminder"),
        ("user", "wrapper", None),
        ("user", "", None),
        ("assistant", "", None),
        ("user", "", None),
        ("system", "injected", "reminder"),
        ("assistant", "", None),
    ]
    assert [c.turn for c in s.calls] == [0, 1]
    assert "injected" in ck.report(s, call=1).to_text()


def test_subagents_side_by_side_are_children_of_their_own(tmp_path):
    """Both have the same tools, the same name in the index, and begin with the same memory file."""
    bodies = BodyFolder(tmp_path / "bodies")
    bodies.call([USER], reply("I ask two."))
    memory = {"role": "user", "content": [reminder("Contents of CLAUDE.md")]}
    source = "agent:builtin:general-purpose"
    tasks = [[{**memory, "content": [*memory["content"], {"type": "text", "text": t}]}]
             for t in ("Task one", "Task two")]  # fmt: skip
    for n, messages in enumerate(tasks):
        bodies.call(messages, reply(f"look {n}"), source=source)
    for n, messages in enumerate(tasks):
        messages += [{"role": "assistant", "content": reply(f"look {n}")}, user("go on")]
        bodies.call(messages, reply("done"), source=source)
    s = ck.read(bodies.folder)
    assert len(s.calls) == 1
    assert [len(c.calls) for c in s.children] == [2, 2]
    assert [[m.text for m in c.messages if m.role == "assistant"] for c in s.children] == [
        ["look 0", "done"],
        ["look 1", "done"],
    ]
    assert not any(c.edits for c in s.children)


def test_a_side_thread_without_a_source_has_a_number(tmp_path):
    """Without an index nothing names what a thread is for: its agent is called by its place."""
    bodies = BodyFolder(tmp_path / "bodies", index=False)
    bodies.call([USER], reply("I ask."))
    bodies.call(
        [USER, {"role": "assistant", "content": reply("I ask.")}, user("So?")], reply("Yes.")
    )
    bodies.call([user("Another task")], reply("look"), tools=[], system="You look.")
    s = ck.read(bodies.folder)
    (child,) = s.children
    assert (child.agent, child.id) == ("side-1", f"{s.id}/side-1")


def test_the_call_that_wrote_a_summary_is_the_bill_of_the_compaction(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies")
    long = [USER, {"role": "assistant", "content": reply("So. " * 400)}, user("More")]
    bodies.call(long[:1], reply("So. " * 400))
    bodies.call(long, reply("Done."))
    ask = [*long, {"role": "assistant", "content": reply("Done.")}, user("Summarise.")]
    billed = bodies.call(ask, reply("<summary>It was repaired.</summary>"), source="compact")
    head = "This session is being continued from a previous conversation that ran out"
    bodies.call([user(f"{head}\n\nSummary:\nIt was repaired."), user("Next")], reply("Yes."))
    s = ck.read(bodies.folder)
    (edit,) = s.edits
    assert (len(s.calls), edit.kind, edit.tokens_before) == (3, "summarised", billed)
    assert edit.usage.prompt_tokens == billed
    assert [m.role for m in edit.inserted] == ["summary"]
    assert not s.children


def test_bodies_of_other_sessions_are_sessions_of_their_own(tmp_path):
    folder = make_folder(tmp_path / "bodies")
    make_folder(folder, session="22222222-bbbb", calls=2, index=False, start=1_800_500_000)
    sessions = ck.read_all(folder, progress=False)
    assert {s.id: len(s.calls) for s in sessions} == {"11111111-aaaa": 4, "22222222-bbbb": 2}


def test_missing_doubled_and_half_written_files_are_named_and_the_rest_is_joined(tmp_path):
    folder = make_folder(tmp_path / "bodies", calls=5)
    (folder / "req_11111111-aaaa_1.response.json").unlink()
    half = folder / "11111111-aaaa-2.request.json"
    half.write_text(half.read_text(encoding="utf-8")[:500], encoding="utf-8")
    write_json(folder / "req_orphan.response.json", {"type": "message"}, 1_900_000_000)
    for name in ("11111111-aaaa-3.request.json", "req_11111111-aaaa_3.response.json"):
        copy = folder / f"copy-{name}"
        write_json(copy, (folder / name).read_text("utf-8"), 1_950_000_000)
    index = folder / "index.jsonl"
    index.write_text(index.read_text(encoding="utf-8") * 2 + '{"half', encoding="utf-8")
    s = ck.read(folder)
    # the second has no response, the third no request: their replies are in later requests
    assert [c.message.usage is not None for c in s.calls] == [True, False, False, True, True]
    assert not s.edits
    why = " ".join(fault.why for fault in s.faults)
    for name in ("aaaa_1.response.json", "aaaa-2.request.json", "req_orphan", "index.jsonl"):
        assert name in why
    assert "copy-11111111-aaaa-3.request.json: a copy" in why


def test_files_beyond_the_bound_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_api_body_folder, "MAX_FILES", 6)
    s = ck.read(make_folder(tmp_path / "bodies", calls=9, index=False))
    assert "12 files beyond the first 6 were not read" in [fault.why for fault in s.faults]


@pytest.mark.parametrize(
    ("name", "bound", "why"),
    [("MAX_THREADS", 1, "beyond the first 1"), ("MAX_NEW_BYTES", 2_500, "exceed 2,500 bytes")],
)
def test_what_would_take_too_much_memory_is_named(tmp_path, monkeypatch, name, bound, why):
    monkeypatch.setattr(f"ctxkit.formats.raw_api_body_folder.{name}", bound)
    folder = make_folder(tmp_path / "bodies", calls=2)
    make_folder(folder, session="22222222-bbbb", calls=2, index=False, start=1_800_500_000)
    sessions = ck.read_all(folder, progress=False)
    assert sum(len(s.calls) for s in sessions) in (1, 2)
    assert any(why in fault.why for fault in sessions[0].faults)


@pytest.mark.long
def test_a_folder_of_ten_thousand_files_takes_the_memory_of_what_it_says_once(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies", session="33333333-cccc")
    messages = [USER]
    for n in range(5_000):
        bodies.call(messages[-40:], reply(f"Step {n}."), tools=TOOLS[:1], system="Be brief.")
        bodies.requests.clear()
        messages += [{"role": "assistant", "content": reply(f"Step {n}.")}, user(f"Go on, {n}.")]
    code = (
        "import resource, sys, ctxkit as ck\n"
        "small = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "calls = len(ck.read(sys.argv[1]).calls)\n"
        "print(calls, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - small)"
    )
    command = [sys.executable, "-c", code, str(bodies.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    calls, grown_kb = map(int, done.stdout.split())
    assert calls == 5_000
    assert grown_kb < 200_000
