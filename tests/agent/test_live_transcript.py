"""A growing session: ids, turns, redaction, instructions, and what is stored of calls and replies that failed."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, summarised, system, tool_call, user
from msgspec.structs import replace

from ctxkit.agent import ArtifactOffloader, LiveTranscript
from ctxkit.errors import BadArguments
from ctxkit.session import Attachment, Message, Text, Thinking, ToolCall

KEY = "sk-ant-api03-" + "Ab3xY9" * 15


def make_transcript(*log, **more):
    return LiveTranscript(session(*log, **more), None, lambda: 50.0)


def test_messages_get_ids_that_are_unique_in_the_log():
    transcript = make_transcript(user(id="u1"), assistant(id="u2"))
    first = transcript.add(user(id="mine"), "u")
    transcript.edit((replace(summarised([first], time=1.0), id="e4"),))
    second = transcript.add(user(), "e")
    assert (first.id, second.id) == ("u2'", "e4'")
    assert [e.id for e in transcript.session.log] == ["u1", "u2", "u2'", "e4", "e4'"]
    assert transcript.session.log[3].time == 50.0


def test_messages_have_the_turn_and_a_time():
    transcript = make_transcript()
    assert transcript.turn == -1
    assert transcript.begin() == 0
    assert transcript.add(user(), "u").turn == 0
    assert (transcript.add(user(), "u").time, transcript.add(user(time=7.0), "u").time) == (
        50.0,
        7.0,
    )
    transcript.add(assistant(), "a")
    assert transcript.begin() == 1
    assert transcript.add(user(), "u").turn == 1
    # instructions alone are no turn
    with_instructions = make_transcript(system())
    assert with_instructions.begin() == 0
    again = LiveTranscript(transcript.session, None, lambda: 0.0)
    assert (again.turn, again.begin()) == (1, 2)


def test_every_text_of_a_message_is_redacted():
    message = Message(
        role="assistant", error=f"failed {KEY}", model=f"m-{KEY}", tool=f"t-{KEY}", call_id=f"c-{KEY}",
        parts=(Text(f"It is {KEY}."), Thinking("Hm.", signature="s"), Thinking(KEY, signature="s"),
               ToolCall(f"id-{KEY}", f"n-{KEY}", {KEY: f"a {KEY}", "list": [KEY, 1]}, raw=f"{{{KEY}"),
               Attachment("image/png", "AA==")),
    )  # fmt: skip
    stored = make_transcript().add(message, "a")
    assert (stored.error, stored.model) == ("failed [redacted]", "m-[redacted]")
    # names and ids have no brackets, which providers refuse
    assert (stored.tool, stored.call_id) == ("t-redacted", "c-redacted")
    text, thinking, redacted, call, image = stored.parts
    assert text == Text("It is [redacted].")
    assert (thinking, redacted) == (Thinking("Hm.", signature="s"), Thinking("[redacted]"))
    assert (call.id, call.name) == ("id-redacted", "n-redacted")
    assert KEY not in repr(call)
    assert call.arguments["list"] == ["[redacted]", 1]
    assert call.raw == "{[redacted]"
    assert image == Attachment("image/png", "AA==")
    empty = make_transcript().add(Message(role="user"), "u")
    assert (empty.error, empty.model, empty.tool, empty.call_id) == (None, None, None, None)


def test_half_a_surrogate_pair_is_a_question_mark():
    call = ToolCall(
        "c", "n", {"a\ud800": ["\udc00b", {"c": "\ud83d"}], "n": 1, "ok": ("x", "\ud800")}
    )
    stored = make_transcript().add(assistant("a \ud800 b 😀", call), "a")
    assert stored.text == "a ? b 😀"
    assert stored.tool_calls[0].arguments == {"a?": ["?b", {"c": "?"}], "n": 1, "ok": ["x", "?"]}


def test_ids_of_calls_are_unique_in_the_session():
    transcript = make_transcript(assistant("", tool_call(id="c"), tool_call(id="d_2")))
    calls = [ToolCall(i, "look", {}) for i in ("c", "c", "d", "d", "", "")]
    stored = transcript.add(assistant("", *calls), "a")
    assert [c.id for c in stored.tool_calls] == ["c_2", "c_3", "d", "d_3", "call", "call_2"]


def test_calls_without_a_result():
    one, two, three = (tool_call(id=i) for i in "abc")
    both = assistant("", one, two)
    for log, unanswered in (
        ((), []),
        ((user(),), []),
        ((both,), [one, two]),
        ((both, result("", one)), [two]),
        ((both, result("", two)), [one]),
        ((both, result("", one), result("", two)), []),
        ((both, user()), []),  # what follows it is no result
        ((assistant("", three), both, result("", one)), [two]),
        ((both, result("", one), assistant("failed", visible=False)), [two]),
        ((both, summarised([both])), [one, two]),
    ):
        assert make_transcript(*log).find_unanswered_calls() == unanswered


def test_instructions_stay_as_the_session_began():
    transcript = make_transcript()
    assert transcript.instructions == ""
    stored = transcript.instruct(f"Be short. {KEY}")
    assert (stored.role, stored.text, stored.turn, stored.id) == (
        "system",
        "Be short. [redacted]",
        0,
        "s0",
    )
    assert transcript.instructions == "Be short. [redacted]"
    assert transcript.instruct(f"Be short. {KEY}") is None
    with pytest.raises(
        BadArguments, match=r"^The session began with other instructions, and they stay: begin"
    ):
        transcript.instruct("Be long.")
    begun = make_transcript(user(), system("later"))
    assert begun.instructions == ""
    with pytest.raises(
        BadArguments, match=r"^The session began with no instructions, and they stay"
    ):
        begun.instruct("Be long.")
    assert begun.instruct("") is None


def test_a_reply_that_failed_is_stored_and_never_sent():
    transcript = make_transcript(user())
    reply = transcript.store_failure("m", f"down {KEY}", text="half", window=9, details={"n": 1})
    assert (reply.role, reply.id, reply.is_error, reply.visible) == ("assistant", "a1", True, False)
    assert (reply.model, reply.error, reply.stop, reply.text) == (
        "m",
        "down [redacted]",
        "error",
        "half",
    )
    assert (reply.context_window, reply.details) == (9, {"n": 1})
    bare = transcript.store_failure("m", "stopped", "interrupted")
    assert (bare.parts, bare.stop, bare.details, bare.context_window) == (
        (),
        "interrupted",
        {},
        None,
    )


def test_a_call_that_did_not_end_gets_a_result():
    transcript = make_transcript()
    stored = transcript.store_unrun(tool_call("look", "c1"))
    assert (stored.role, stored.id, stored.tool, stored.call_id) == ("tool", "r0", "look", "c1")
    assert (stored.text, stored.is_error) == ("Interrupted by the user before it ended.", True)
    assert transcript.store_unrun(tool_call(), "why").text == "why"


def test_a_user_message_may_be_of_the_kit():
    transcript = make_transcript()
    own = transcript.add_user_message("Go on.")
    assert (own.role, own.kind, own.text, own.details) == ("user", "", "Go on.", {})
    kit = transcript.add_user_message("Note.", kind="injected", details={"a": 1})
    assert (kit.kind, kit.details) == ("injected", {"a": 1})


def test_entries_may_be_appended_elsewhere():
    written = []
    grown = session(user())

    def append(*entries):
        written.extend(entries)
        return grown

    transcript = LiveTranscript(session(), append, lambda: 1.0)
    stored = transcript.add(user("x"), "u")
    assert written == [stored]
    assert transcript.session is grown


def test_a_result_without_a_store_is_not_offloaded():
    offloader = ArtifactOffloader(None)
    assert offloader._save_result("a" * 12, result("x"), None) is False
    saved = []
    offloader = ArtifactOffloader(lambda *artifact: saved.append(artifact))
    assert offloader._save_result("a" * 12, result("x", tool=""), tool_call("look", path="b"))
    assert offloader._save_result("a" * 12, result("x", tool=""), None)
    assert [s[:3] for s in saved] == [("a" * 12, "x", "look"), ("a" * 12, "x", "unknown")]
