"""Raw bodies and the transcript of the same session become one session with what both know."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import pytest
from agent.models.fake_provider_server import Play, wire
from formats.body_folders import BodyFolder, make_folder, reminder, share_not_held, write_json

import ctxkit as ck
from ctxkit.agent import Agent, ProviderModel, tool
from ctxkit.formats.transcript_and_raw_body_join import join_transcript
from ctxkit.policies import Rules
from ctxkit.session import Session, ToolCall

SESSION = "11111111-aaaa"


class Transcript:
    """Writes the lines of a transcript as Claude Code does, a second apart."""

    def __init__(self, path, **fields):
        self.path, self.lines, self.ids, self.parent = path, [], count(), None
        self.fields = fields

    def line(self, type_, **fields):
        n = next(self.ids)
        uuid = f"u{n}"
        self.lines.append(
            {
                "type": type_, "uuid": uuid, "parentUuid": self.parent, "sessionId": SESSION,
                "cwd": "/w", "version": "2.1.332", "timestamp": f"2027-01-15T08:00:{n:02}.000Z",
                **self.fields, **fields,
            }
        )  # fmt: skip
        self.parent = uuid
        self.path.write_text("\n".join(map(json.dumps, self.lines)), encoding="utf-8")

    def user(self, content, **fields):
        self.line("user", message={"role": "user", "content": content}, **fields)

    def reply(self, n, content, usage=None):
        message = {"id": f"msg_{SESSION}_{n}", "role": "assistant", "model": "claude-opus-5",
                   "content": content, "stop_reason": "tool_use",
                   "usage": usage or {"input_tokens": 7, "output_tokens": 8}}  # fmt: skip
        self.line("assistant", requestId=f"req_{n}", message=message)


def write_transcript(path, calls=4):
    """Write the transcript of `make_folder`, and a call that has no body."""
    out = Transcript(path)
    out.user("Repair the build. " * 60)
    for n in range(calls):
        use = {"type": "tool_use", "id": f"toolu_{SESSION}_{n}", "name": "read", "input": {"n": n}}
        out.reply(n, [{"type": "text", "text": f"Step {n}."}, use])
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"line {n} " * 200}
        out.user([result])
    error = {"message": "overloaded"}
    out.line("system", subtype="api_error", error=error)
    out.reply(calls, [{"type": "text", "text": "A call before bodies were written."}])
    return path


@pytest.mark.parametrize("where", ["in the folder", "elsewhere"])
def test_both_are_one_session(tmp_path, where):
    folder = make_folder(tmp_path / "bodies")
    (tmp_path / "projects").mkdir()
    place = folder if where == "in the folder" else tmp_path / "projects"
    path = write_transcript(place / f"{SESSION}.jsonl")
    if where == "in the folder":
        s = ck.read(folder)
    else:
        (s,) = ck.read_all([folder, path], progress=False)
    alone = ck.read(path)
    assert len(s.calls) == 4
    assert s.messages[0].role == "system"
    assert {t.name for t in s.tools} == {"read", "bash"}
    assert (s.cwd, s.product, s.title) == ("/w", "claude-code", alone.title)
    # sizes and prompts are the bodies', times the transcript's
    assert [c.message.usage.output_tokens for c in s.calls] == [31] * 4
    times = [m.time for m in alone.messages if m.role in ("user", "tool")]
    assert [m.time for m in s.messages if m.role in ("user", "tool")] == times[: len(s.calls)]
    assert [m.kind for m in s.messages if not m.visible] == ["api_error"]
    assert any("1 calls of the transcript have no body" in f.why for f in s.faults)
    for call, request in enumerate(sorted(folder.glob("*.request.json"))):
        body = json.loads(request.read_text("utf-8"))
        assert share_not_held(s, call, body) <= 0.01


def test_a_reply_without_a_response_has_the_usage_of_the_transcript(tmp_path):
    folder = make_folder(tmp_path / "bodies")
    (folder / f"req_{SESSION}_1.response.json").unlink()
    write_transcript(folder / "s.jsonl")
    usages = [c.message.usage for c in ck.read(folder).calls]
    assert [u.input_tokens for u in usages].count(7) == 1
    assert (usages[1].input_tokens, usages[1].output_tokens) == (7, 8)


def test_an_attachment_has_the_kind_that_the_transcript_names(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies")
    memory = reminder("Contents of CLAUDE.md: be brief.")
    text = {"type": "text", "text": "Repair it."}
    bodies.call([{"role": "user", "content": [memory, text]}], [{"type": "text", "text": "So."}])
    out = Transcript(bodies.folder / "s.jsonl")
    out.user("Repair it.")
    attachment = {"type": "nested_memory", "content": {"content": "be brief."}}
    out.line("attachment", attachment=attachment, rendered=[{"content": memory["text"]}])
    out.reply(0, [{"type": "text", "text": "So."}])
    s = ck.read(bodies.folder)
    assert [m.details.get("attachment") for m in s.messages] == [None, "nested_memory", None, None]
    assert all(m.time for m in s.messages[1:])
    assert not s.faults


def test_a_compaction_has_trigger_and_sizes_of_the_transcript(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies")
    first = {"role": "user", "content": "Repair it. " * 200}
    bodies.call([first], [{"type": "text", "text": "So."}])
    summary = "This session is being continued from a previous conversation. It was repaired."
    bodies.call([{"role": "user", "content": summary}], [{"type": "text", "text": "Yes."}])
    out = Transcript(bodies.folder / "s.jsonl")
    out.user(first["content"])
    out.reply(0, [{"type": "text", "text": "So."}])
    metadata = {"trigger": "auto", "preTokens": 1_234}
    out.line("system", subtype="compact_boundary", compactMetadata=metadata)
    out.user(summary, isCompactSummary=True)
    out.reply(1, [{"type": "text", "text": "Yes."}])
    (edit,) = ck.read(bodies.folder).edits
    assert (edit.trigger, edit.tokens_before, edit.source) == ("auto", 1_234, "recorded")
    assert [m.role for m in edit.inserted] == ["summary"]


def write_call_of_subagent(tmp_path):
    """Write the bodies of an agent and of its subagent, and the transcript of the first alone.

    Return the folder of bodies, the transcript, and the tool call of the subagent.
    """
    bodies = BodyFolder(tmp_path / "bodies")
    task = {"type": "tool_use", "id": "toolu_task", "name": "Task", "input": {"prompt": "Look."}}
    bodies.call([{"role": "user", "content": "Repair it."}], [task])
    look = {"type": "tool_use", "id": "toolu_look", "name": "read", "input": {}}
    bodies.call([{"role": "user", "content": "Look."}], [look], source="agent:builtin:explore")
    out = Transcript(bodies.folder / "s.jsonl")
    out.user("Repair it.")
    out.reply(0, [task])
    return bodies, out, look


def test_a_subagent_is_the_transcripts(tmp_path):
    bodies, out, look = write_call_of_subagent(tmp_path)
    result = {"type": "tool_result", "tool_use_id": "toolu_task", "content": "Seen."}
    out.user([result], toolUseResult={"agentId": "a1"})
    (bodies.folder / "s" / "subagents").mkdir(parents=True)
    path = bodies.folder / "s" / "subagents" / "agent-a1.jsonl"
    side = Transcript(path, agentId="a1", isSidechain=True)
    side.user("Look.")
    side.reply(1, [look])
    (child,) = ck.read(bodies.folder).children
    assert (child.id, child.agent, child.details["call_id"]) == ("agent-a1", "a1", "toolu_task")
    assert len(child.calls) == 1
    assert child.messages[0].role == "system"


def test_a_subagent_without_a_tool_call_is_the_one_with_the_same_first_prompt(tmp_path):
    bodies = BodyFolder(tmp_path / "bodies")
    task = {"type": "tool_use", "id": "toolu_task", "name": "Task", "input": {"prompt": "Look."}}
    bodies.call([{"role": "user", "content": "Repair it."}], [task])
    found = [{"type": "text", "text": "It is red."}]
    bodies.call([{"role": "user", "content": "Look. "}], found, source="agent:builtin:explore")
    out = Transcript(bodies.folder / "s.jsonl")
    out.user("Repair it.")
    out.reply(0, [task])
    result = {"type": "tool_result", "tool_use_id": "toolu_task", "content": "It is red."}
    out.user([result], toolUseResult={"agentId": "a1"})
    (bodies.folder / "s" / "subagents").mkdir(parents=True)
    for agent, prompt in (("a0", "Write."), ("a1", "Look."), ("a2", "Test.")):
        path = bodies.folder / "s" / "subagents" / f"agent-{agent}.jsonl"
        side = Transcript(path, agentId=agent, isSidechain=True)
        side.user(prompt)
        side.reply(1, found)
    children = ck.read(bodies.folder).children
    assert [(c.id, c.agent, c.messages[0].role) for c in children] == [
        ("agent-a1", "a1", "system"),
        ("agent-a0", "a0", "user"),
        ("agent-a2", "a2", "user"),
    ]
    assert [c.path_.rpartition("-")[2] for c in children] == ["a1.jsonl", "a0.jsonl", "a2.jsonl"]


def test_a_side_thread_that_no_subagent_shares_stays_apart(tmp_path):
    bodies, out, _ = write_call_of_subagent(tmp_path)
    (bodies.folder / "s" / "subagents").mkdir(parents=True)
    other = Transcript(
        bodies.folder / "s" / "subagents" / "agent-a1.jsonl", agentId="a1", isSidechain=True
    )
    other.user("Something else.")
    other.reply(7, [{"type": "tool_use", "id": "toolu_other", "name": "bash", "input": {}}])
    out.user([{"type": "tool_result", "tool_use_id": "toolu_task", "content": "Seen."}],
             toolUseResult={"agentId": "a1"})  # fmt: skip
    children = {c.agent: c for c in ck.read(bodies.folder).children}
    assert set(children) == {"agent:builtin:explore", "a1"}
    assert [t.id for c in children.values() for m in c.messages for t in m.tool_calls] == [
        "toolu_look",
        "toolu_other",
    ]


def test_what_is_no_transcript_is_named(tmp_path):
    folder = make_folder(tmp_path / "bodies")
    (folder / "notes.jsonl").write_text('{"no": "transcript"}\n', encoding="utf-8")
    (fault,) = ck.read(folder).faults
    assert fault.why == "notes.jsonl: no transcript, and no body of a request or response."


def test_a_transcript_of_another_session_is_left_alone(tmp_path):
    folder = make_folder(tmp_path / "bodies", session="22222222-bbbb")
    path = write_transcript(tmp_path / "s.jsonl")
    bodies, transcript = ck.read(folder), ck.read(path)
    together = {s.id: s for s in ck.read_all([folder, path], progress=False)}
    assert together.keys() == {bodies.id, transcript.id}
    for alone in (bodies, transcript):
        assert together[alone.id].log == alone.log
        assert together[alone.id].faults == alone.faults == ()
    assert join_transcript(bodies, transcript).faults


def look(where: str) -> str:
    """Look somewhere."""
    return f"at {where}: " + "a line of what is there\n" * 100


def assemble_reply(stream):
    """Return the message that the events of a stream add up to."""
    events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line[:6] == "data: "]
    blocks = {}
    for event in events:
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
            else:
                key = delta["type"].removesuffix("_delta")
                block[key] = block.get(key, "") + delta[key]
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    return {**message, "content": list(blocks.values())}


@pytest.mark.filterwarnings("default")
def test_the_bodies_of_a_run_against_a_server_leave_no_remainder(tmp_path):
    """A live agent runs; the server writes each request and response that it saw."""
    requests, ticks = [], count(1_800_000_000)
    folder = tmp_path / "bodies"
    folder.mkdir()

    def save(body, stream):
        n = len(requests)
        requests.append(body)
        response = {**assemble_reply(stream), "id": f"msg_{n}"}
        write_json(folder / f"{n:04}.request.json", body, 1_800_000_000 + 10 * n)
        write_json(folder / f"req_{n:04}.response.json", response, 1_800_000_004 + 10 * n)

    calls = [(("look", {"where": w}),) for w in ("here", "there", "home")]
    plays = [Play("I look.", calls=c, usage="counted") for c in calls]
    with wire("anthropic", *plays, Play("Done.", usage="counted"), on_reply=save) as up:
        model = ProviderModel("anthropic/claude-opus-5", context_window=200_000, attempts=1,
                         options={"api_base": up.url, "api_key": "none"})  # fmt: skip
        agent = Agent(Session(id="s"), model=model, rules=Rules(), tools=[tool(look)],
                      clock=lambda: float(next(ticks)))  # fmt: skip
        asyncio.run(agent.turn("What is there? " * 40))
    s = ck.read(folder)
    assert len(s.calls) == len(requests) == 4
    for call, request in enumerate(requests):
        assert share_not_held(s, call, request) <= 0.01
        report = ck.report(s, call=call)
        assert report.groups().get("not in the log", 0) <= 0.01 * report.prompt_tokens
    names = [p.name for m in s.messages for p in m.parts if type(p) is ToolCall]
    assert names == ["look"] * 3
