"""Cutting single messages: results, reads that were acted on, replies, raw output."""

import pytest
from builders import assistant, call, result, session, step, tool_call, user
from histories import ROOM, shown, texts

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.policies import (
    IntermediateReplyShortening,
    OutputShortening,
    RepeatedCommands,
    ReplyShortening,
    ResultShortening,
    StaleReadShortening,
    TrimStage,
)
from ctxkit.presets import preset
from ctxkit.session import (
    INJECTED_KIND,
    OTHER_AGENT_CALL_KIND,
    OTHER_AGENT_KIND,
    Attachment,
    Message,
    Text,
)

LONG = "x" * 10_000


def last(history, p=-1):
    return history.messages[p].text


def test_fu8_results_are_cut_with_a_suffix_outside_the_cap():
    """MaxToolResultChars cuts string results; the suffix names the characters removed, with separators"""
    new = ResultShortening(max_chars=1000)(shown(user(), step("bash", LONG)), ROOM)
    assert (
        last(new) == "x" * 1000 + "\n[...truncated — 9,000 chars omitted to reduce context size...]"
    )


def test_results_stay_whole_where_no_length_is_set():
    """F38: MaxToolResultChars is 0 unless set, which cuts nothing."""
    log = session(user("go"), step("bash", LONG), assistant("done"), user("more"), assistant("ok"))
    for settings, n in (({}, 10_000), ({"max_tool_result_chars": 900}, 900)):
        sent = ck.replay(log, preset("fuseraft", **settings)).sent(-1)
        assert max(len(text.split("\n")[0]) for text in (item.message.text for item in sent)) == n


def test_fu9_overrides_by_tool_whatever_its_case():
    """an override raises the cap of one tool; 0 turns it off for that tool"""
    h = shown(user(), step("Grep_File", LONG), step("bash", LONG))
    new = ResultShortening(max_chars=1000, overrides={"grep_file": 0})(h, ROOM)
    assert [len(m.text) > 9000 for m in new.messages if m.role == "tool"] == [True, False]
    assert (
        len(last(ResultShortening(max_chars=1000, overrides={"GREP_FILE": 5000})(h, ROOM), 2))
        > 5000
    )


def test_fu10_a_read_whose_file_was_written_later_keeps_500():
    """a consumed read is cut to 500 characters with a note, an unconsumed one at the cap"""
    read, write = (
        step("read_file", LONG, path="src/A.py"),
        step("write_file", "ok", path="SRC/a.py"),
    )
    new = ResultShortening(max_chars=8000)(shown(user(), read, write), ROOM)
    assert last(new, 2).startswith(
        "x" * 500 + "\n[...9,500 chars elided — file was written or patched"
    )
    unconsumed = last(ResultShortening(max_chars=8000)(shown(user(), write, read), ROOM))
    assert unconsumed.startswith("x" * 8000 + "\n[...truncated — 2,000 chars omitted")


def test_fu11_a_write_of_the_same_batch_does_not_consume():
    """a write in the same parallel batch is not later"""
    read, write = tool_call("read_file", path="a"), tool_call("write_file", path="a")
    h = shown(user(), assistant("", read, write), result(LONG, read), result("ok", write))
    assert StaleReadShortening()(h, ROOM) is h


def test_fu12_consumed_reads_need_the_cap_but_can_stand_alone():
    """with MaxToolResultChars 0 nothing is cut; the adaptive trim cuts consumed reads by itself"""
    h = shown(user(), step("read_file", LONG, path="a"), step("patch_file", path="a"))
    assert ResultShortening(max_chars=0)(h, ROOM) is h
    assert len(last(StaleReadShortening()(h, ROOM), 2)) < 700


def test_fu13_replies_are_cut_summaries_and_calls_not():
    """MaxReplayChars cuts the text of replies; calls stay; a conversation summary is exempt"""
    c = call("bash")
    said = Message(role="assistant", id="x", parts=(Text(LONG), *c.tool_calls))
    h = shown(user(), said, result("ok", c), assistant("[CONVERSATION SUMMARY — covers]" + LONG))
    new = ReplyShortening(max_chars=100)(h, ROOM)
    assert new.messages[1].text.startswith("x" * 100 + "\n[...truncated — 9,900")
    assert new.messages[1].tool_calls == c.tool_calls
    assert len(last(new)) > 10_000


def test_what_would_not_shrink_is_left():
    h = shown(user(), step("bash", "x" * 1010))
    assert ResultShortening(max_chars=1000)(h, ROOM) is h


def test_a_cut_result_is_not_cut_again():
    once = ResultShortening(max_chars=1000)(shown(user(), step("bash", LONG)), ROOM)
    assert ResultShortening(max_chars=1000)(once, ROOM) is once
    assert ResultShortening(max_chars=10)(once, ROOM) is once


def test_results_with_images_are_left_whole():
    c = call("screenshot")
    seen = Message(
        role="tool", id="i", call_id=c.tool_calls[0].id, parts=(Text(LONG), Attachment())
    )
    h = shown(user(), c, seen)
    assert ResultShortening(max_chars=10)(h, ROOM) is h


def test_output_is_cut_by_lines_and_says_so():
    new = OutputShortening(max_lines=4)(
        shown(user(), step("bash", "\n".join("l" * 40 for _ in range(99)))), ROOM
    )
    assert "... [truncated 95 lines] ..." in last(new)
    assert "showing 5/99 lines" in last(new)
    assert OutputShortening(max_lines=4)(new, ROOM) is new


def test_the_last_replies_can_be_spared():
    h = shown(user(), assistant(LONG), assistant(LONG))
    new = ReplyShortening(max_chars=10, keep_last=1)(h, ROOM)
    assert [len(m.text) > 200 for m in new.messages[1:]] == [False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResultShortening(max_chars=-1),
        lambda: ResultShortening(overrides={"a": -1}),
        lambda: OutputShortening(mode="tail"),
        lambda: ReplyShortening(keep_last=-1),
    ],
)
def test_settings_that_cannot_work_are_refused(make):
    with pytest.raises(BadArguments):
        make()


@pytest.mark.parametrize(
    ("limits", "text"), [({"max_lines": 1}, "\n"), ({"max_lines": 1}, "\n" * 900)]
)
def test_a_text_of_line_breaks_alone_has_one_line_more(limits, text):
    outputs = OutputShortening(max_chars=0, max_bytes=0, **limits)
    assert outputs._cut(result(text)).text.startswith("\n\n[tool output truncated: showing 1/")
    assert len(text) > outputs._low


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_smallest_limit_of_bytes_is_a_limit(limit):
    outputs = OutputShortening(max_lines=0, max_chars=0, max_bytes=limit)
    assert texts(outputs(shown(user(), step(text=LONG)), ROOM))[-1].startswith(
        f"{LONG[:limit]}\n\n[tool output"
    )


def test_the_blocks_of_an_output_are_joined_without_a_break():
    c = call()
    two = Message(
        role="tool", id="t", call_id=c.tool_calls[0].id, parts=(Text("ab" * 300), Text("cd" * 300))
    )
    new = OutputShortening(max_lines=0, max_chars=602, max_bytes=0)(shown(user(), c, two), ROOM)
    assert texts(new)[-1].startswith("ab" * 300 + "cd\n\n")


def test_names_of_arguments_count_without_case():
    h = shown(user(), step("read_file", LONG, Path="a"), step("write_file", "ok", Path="A"))
    assert len(last(StaleReadShortening()(h, ROOM), 2)) < 700


def test_a_stage_leaves_results_with_images():
    c = call()
    seen = Message(
        role="tool", id="i", call_id=c.tool_calls[0].id, parts=(Text(LONG * 9), Attachment())
    )
    h = shown(user(), c, seen)
    assert TrimStage(max_chars=10, consumed_chars=10)(h, ROOM) is h


def test_a_command_is_the_same_whatever_its_time_limit():
    again = [step("bash", LONG, command="make", timeout=t) for t in (10, 20)]
    new = RepeatedCommands()(
        shown(user(), *again, step("bash", LONG, command="make", cwd="b")), ROOM
    )
    assert texts(new)[2::2] == ["succeeded", LONG, LONG]


def test_a_step_is_cut_from_its_first_character_too_many():
    said = [assistant("x" * n, tool_call(), id=f"a{n}") for n in (120, 160)]
    h = shown(user(), said[0], result(of=said[0]), said[1], result(of=said[1]), assistant("done"))
    new = IntermediateReplyShortening()(h, ROOM)
    assert [m.text for m in new.messages if m.tool_calls] == [
        "x" * 120,
        "x" * 120 + " [text omitted]",
    ]
    assert IntermediateReplyShortening()(new, ROOM) is new


def test_what_is_cut_of_the_past_alone_stands_whole_in_its_turn():
    """fuseraft cuts results and replies as a turn is handed them; what is written in it consumes nothing yet"""
    read, write = step("read_file", LONG, path="a"), step("write_file", "ok", path="a")
    results = ResultShortening(max_chars=1000, past_only=True)
    replies = ReplyShortening(max_chars=100, past_only=True)
    said = [user(), assistant(LONG, *read[0].tool_calls), read[1]]
    within = shown(*said, write)
    assert results(within, ROOM) is within
    assert replies(within, ROOM) is within
    handed = shown(*said, assistant("seen"), user(), write)
    assert len(last(results(handed, ROOM), 2)) > 1000
    assert len(last(replies(handed, ROOM), 1)) < 200
    later = results(shown(*said, assistant("seen"), user(), write, user()), ROOM)
    assert last(later, 2).startswith("x" * 500 + "\n[...9,500 chars elided")


def test_what_others_said_is_cut_at_once():
    frame = user(LONG, kind=OTHER_AGENT_CALL_KIND, agent="B", tool="bash")
    h = shown(
        user(),
        step(),
        frame,
        user(LONG, kind=OTHER_AGENT_KIND, agent="B"),
        user(LONG, kind=INJECTED_KIND),
    )
    cut = ReplyShortening(max_chars=100, past_only=True)(
        ResultShortening(max_chars=1000, past_only=True)(h, ROOM), ROOM
    )
    assert [len(m.text) // 1000 for m in cut.messages[3:]] == [1, 0, 10]
