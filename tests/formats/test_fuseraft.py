"""fuseraft: occupancy per call, sub-agents apart, whole turns, compactions, what is beside a session."""

from __future__ import annotations

import json

from synthetic_logs import (
    CHECKPOINT,
    REPL,
    REPL_EVENTS,
    RUN_EVENTS,
    TURNS,
    answer,
    context,
    event,
    lines,
)

import ctxkit as ck
from ctxkit.formats import Source, read_source
from ctxkit.session import SizeOnly


def read(data: bytes):
    (session,) = read_source(Source("x.jsonl", data))
    return session


def test_a_sub_agents_calls_are_not_its_parents():
    s = read(REPL_EVENTS)
    assert [c.message.usage.prompt_tokens for c in s.calls] == [6_381, 8_106, 4_500]
    (child,) = s.children
    assert (child.agent, child.parent, child.calls[0].message.usage.prompt_tokens) == (
        "explore",
        s.id,
        3_000,
    )
    assert child.calls[0].message.tool_calls[0].name == "grep"
    assert child.messages[0].text == "Where is it used?"
    assert child.id == "77d6be00/0"
    assert child.details == {"outcome": "done"}
    assert child.messages[-1].parts[1:] == (SizeOnly("text", chars=120),)


def test_a_sub_agents_end_without_a_size_or_without_a_start_adds_nothing():
    start = [event("sub_agent_start", query="Where?", mode="explore"), answer(1, 3_000, 40, 1)]
    (child,) = read(lines(*start, event("sub_agent_end", second=2))).children
    assert child.messages[-1].parts == (SizeOnly("reply", tokens=40),)
    assert child.details == {}
    session = read(lines(answer(1, 3_000, 40, 1), event("sub_agent_end", summary_chars=120)))
    assert session.children == ()
    assert session.messages[-1].parts == (SizeOnly("reply", tokens=40),)


def test_a_sub_agent_whose_end_is_missing_ends_when_the_next_begins():
    start = [event("sub_agent_start", query=q, mode="explore") for q in ("First?", "Second?")]
    session = read(lines(event("user_input", 0, None, content="Go."), *start))
    assert [(c.id, c.messages[0].text) for c in session.children] == [
        ("77d6be00/0", "First?"),
        ("77d6be00/1", "Second?"),
    ]


def test_sub_agents_that_work_at_the_same_time_have_ids_of_their_own():
    start = [event("sub_agent_start", agent=a, query=a, mode="plan") for a in ("One", "Two")]
    end = [event("sub_agent_end", agent=a, outcome="done") for a in ("Two", "One")]
    session = read(lines(event("user_input", 0, None, content="Go."), *start, *end))
    assert [(c.id, c.messages[0].text) for c in session.children] == [
        ("77d6be00/1", "Two"),
        ("77d6be00/0", "One"),
    ]


def test_a_call_has_what_was_announced_for_it():
    first = read(REPL_EVENTS).call(0).message
    assert first.details["context"]["est_tokens"] == 4_685
    assert first.details["context"]["content_total_chars"] == 8_123
    assert (first.latency, first.turn) == (3.0, 0)


def test_results_are_sizes_and_answer_their_call():
    s = read(REPL_EVENTS)
    result = s.messages[2]
    assert result.parts == (SizeOnly("tool_result", chars=6_700),)
    assert result.call_id == s.call(0).message.tool_calls[0].id
    assert s.messages[-1].parts == (SizeOnly("reply", tokens=60),)


def test_a_compaction_has_its_sizes():
    (edit,) = read(REPL_EVENTS).edits
    assert (edit.tokens_before, edit.tokens_after, edit.trigger, edit.reason) == (
        12_004,
        3_100,
        "manual",
        "the bug",
    )
    assert (edit.method, edit.agent) == ("compaction", "Developer")


def test_a_compaction_has_the_mode_as_method_and_the_reason_where_no_source_is():
    mode = event("compaction", mode="window", reason="over the limit", turns_retained=1)
    (edit,) = read(RUN_EVENTS[: RUN_EVENTS.rindex(b"\n", 0, -1) + 1] + lines(mode)).edits
    assert (edit.method, edit.trigger) == ("window", "over the limit")


def test_a_compaction_by_size_has_what_its_event_has():
    sizes = {"before": 9, "after": 2, "tokens_before": 5_000, "tokens_after": 800}
    done = event("compaction_end", trigger="auto", outcome="compacted", **sizes)
    refused = [event("compaction_end", outcome=o) for o in ("nothing to do", None)]
    session = read(lines(event("user_input", content="Go."), *refused, done))
    (edit,) = session.edits
    assert (edit.kind, edit.method, edit.trigger) == ("summarised", "compaction", "auto")
    assert (edit.tokens_before, edit.tokens_after) == (5_000, 800)
    assert list(edit.details.items()) == [("messages_before", 9), ("messages_after", 2)]
    assert edit.inserted[0].parts == (SizeOnly("summary", tokens=800),)
    assert [m.id for m in session.view()] == [edit.inserted[0].id]
    assert session.skipped == {
        "compaction: nothing to do": 1,
        "compaction: without an outcome": 1,
    }


def test_a_log_without_calls_has_whole_turns():
    s = read(RUN_EVENTS)
    assert [m.kind for m in s.messages] == ["turn"] * 4
    calls = [[(c.name, c.raw) for c in m.tool_calls] for m in s.messages]
    assert calls == [[("shell_run", "make")]] * 4
    assert [m.usage.prompt_tokens for m in s.messages] == [1_000, 2_000, 3_000, 4_000]
    assert [m.turn for m in s.view()] == [2, 3]
    assert s.edits[0].kind == "dropped"


def test_sessions_of_one_file_are_told_apart():
    two = REPL_EVENTS + REPL_EVENTS.replace(b"77d6be00", b"784bd54b")
    assert [s.id for s in read_source(Source("repl_events.jsonl", two))] == ["77d6be00", "784bd54b"]


def test_a_checkpoint_is_summaries_and_whole_turns():
    s = read(CHECKPOINT)
    assert [m.role for m in s.view()] == ["summary", "assistant", "tool", "tool"]
    turn = s.messages[0]
    assert (turn.kind, turn.usage.prompt_tokens, turn.agent) == ("turn", 41_250, "Developer")
    assert [m.is_error for m in s.messages[1:]] == [False, True]


def test_a_repl_checkpoint_has_every_message():
    s = read(REPL)
    assert [m.role for m in s.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert s.messages[3].tool == "read_file"
    assert s.model == "m-1"


def test_a_folder_is_a_session_with_what_lies_beside(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(REPL_EVENTS)
    entry = {"Agent": "Developer", "TurnIndex": 0, "SessionId": "77d6be00", "Status": "Applied"}
    entry["Operation"] = {"FunctionName": "write_file", "TargetPath": "a.py"}
    other = {**entry, "SessionId": "00000000"}
    (tmp_path / "intents.json").write_text(json.dumps({"Entries": [entry, other]}))
    (tmp_path / "evidence.json").write_text("{broken")
    s = ck.read(tmp_path)
    assert [(i["FunctionName"], i["TargetPath"]) for i in s.details["intents"]] == [
        ("write_file", "a.py")
    ]


def test_a_post_mortem_reads_with_its_manifest(tmp_path):
    (tmp_path / "turns.jsonl").write_bytes(TURNS)
    told = {
        "session": "77d6be00",
        "succeeded": False,
        "error_message": "out of turns",
        "task": "T",
        "elapsed_seconds": 9,
    }
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    s = ck.read(tmp_path)
    assert (s.title, s.details["error"], s.details["succeeded"]) == ("T", "out of turns", False)
    assert s.agents == ("Planner", "Developer") or "Planner" in s.agents
    assert [c.message.usage.prompt_tokens for c in s.calls] == [1_000, 2_000]


def test_a_torn_manifest_costs_what_it_says_and_nothing_else(tmp_path):
    (tmp_path / "turns.jsonl").write_bytes(TURNS)
    (tmp_path / "manifest.json").write_text('{"session": "77d6')
    assert ck.read(tmp_path).title is None


SERIES = {  # the first turn of fuseraft's own published log: content characters of each call to (input, output) tokens
    8_123: (6_381, 116),
    14_870: (8_106, 180),
    15_480: (8_370, 256),
    20_911: (10_476, 115),
    24_388: (11_450, 331),
    29_622: (13_501, 760),
    30_250: (13_702, 117),
    37_283: (16_599, 122),
    37_657: (16_715, 611),
    38_328: (16_882, 268),
    39_069: (17_070, 300),
}


def test_the_sum_of_a_turns_calls_is_its_bill_and_the_largest_its_context():
    calls = [
        e
        for n, (c, (i, o)) in enumerate(SERIES.items())
        for e in (context(n, c, n), answer(n, i, o, n))
    ]
    s = read(
        lines(
            event("user_input", 0, None, content="go"),
            *calls,
            event("turn_end", input_tokens=139_252),
        )
    )
    (turn,) = ck.frame(s, per="turn").to_dict("records")
    assert (turn["turn_input_tokens"], turn["turn_output_tokens"], turn["context_tokens"]) == (
        139_252,
        3_176,
        17_070,
    )
    assert [c.message.details["context"]["est_tokens"] for c in s.calls][:3] == [
        4_685,
        6_371,
        6_524,
    ]


def test_the_error_of_a_tool_and_the_focus_of_a_compaction_are_kept_and_bounded():
    s = read(
        lines(
            event("user_input", 0, None, content="Go."),
            context(1, 4_000, 1),
            event("tool_call", second=2, tool_name="grep", args={"pattern": "x"}),
            event("tool_result", second=3, tool_name="grep", result_chars=9, error="e" * 2_001),
            answer(1, 4_500, 60, 4),
            event("compaction", second=5, before_tokens=9, after_tokens=4, focus="f" * 201),
        )
    )
    (failed,) = [m for m in s.messages if m.role == "tool"]
    assert (failed.is_error, failed.error) == (True, "e" * 2_000)
    assert s.edits[0].reason == "f" * 200


def test_nothing_of_a_call_is_carried_over_to_the_next():
    s = read(
        lines(
            event("model_call", second=1),
            context(1, 4_000, 1),
            answer(1, 4_500, 60, 4),
            event("tool_call", second=5, tool_name="look", args={"path": "x"}),
            event("tool_result", second=6, tool_name="look", result_chars=9),
            event("tool_call", second=7, tool_name="grep", args={"pattern": "x"}),
            answer(2, 4_900, 70, 9),  # neither its request nor its size was written
            event("tool_result", second=10, tool_name="grep", result_chars=9),
        )
    )
    first, second = (c.message for c in s.calls)
    assert (first.latency, first.details["context"]["est_tokens"]) == (3.0, 3_654)
    assert (second.latency, second.details) == (None, {})
    (answered, unanswered), late = first.tool_calls, s.messages[-1]
    assert [m.call_id for m in s.messages if m.role == "tool"] == [answered.id, None]
    assert (answered.name, unanswered.name, late.tool) == ("look", "grep", "grep")


def test_events_that_the_reader_does_not_know_are_counted_by_type():
    unknown = [event("time_travel"), event("time_travel"), event("")]
    before = read(RUN_EVENTS).skipped
    after = read(RUN_EVENTS + lines(*unknown)).skipped
    assert after == before | {"event: time_travel": 2, "event: no type": 1}


def test_a_compaction_names_the_agent_whose_turns_it_took():
    done = {"mode": "window", "turns_dropped": 1, "turns_retained": 1}
    of_one = lines(*(json.loads(line) for line in RUN_EVENTS.splitlines()[:-1]))
    for agent in ("Developer", None):
        (edit,) = read(of_one + lines(event("compaction", 3, agent, 9, **done))).edits
        assert edit.agent == agent


def test_a_picture_in_a_checkpoint_is_an_attachment():
    stored = json.loads(REPL)
    picture = {"Type": "image", "MediaType": "image/jpeg", "Data": "aW1hZ2U="}
    untyped, video = {"Type": "image", "Data": "eA=="}, {"Type": "video", "Data": "dg=="}
    stored["History"][1]["Contents"] += [picture, untyped, video]
    s = read(json.dumps(stored).encode())
    (_, *attachments) = s.messages[1].parts
    assert [(a.media_type, a.data) for a in attachments] == [
        ("image/jpeg", "aW1hZ2U="),
        ("image/png", "eA=="),
    ]
    assert s.skipped["content: video"] == 1
