"""`IntermediateReplyShortening` cuts replies that lead to a tool call; an answer to the user stays whole."""

from builders import assistant, result, tool_call, user
from histories import ROOM, shown

from ctxkit.policies import IntermediateReplyShortening

LONG = "x" * 10_000


def test_a_long_answer_without_a_call_stays_whole_though_another_reply_follows():
    step = assistant(LONG, tool_call(), id="step")
    answer = assistant(LONG, id="answer")
    h = shown(user(), step, result(of=step), answer, user(), assistant("done"))
    new = IntermediateReplyShortening()(h, ROOM)
    by_id = {m.id.split("~")[0]: m.text for m in new.messages}
    assert by_id["answer"] == LONG
    assert by_id["step"] == "x" * 120 + " [text omitted]"


def test_a_long_argument_becomes_a_note_from_its_first_character_too_many():
    calls = [assistant("", tool_call(path="a", text="y" * n), id=f"a{n}") for n in (500, 501)]
    h = shown(
        user(), calls[0], result(of=calls[0]), calls[1], result(of=calls[1]), assistant("done")
    )
    texts = [
        m.tool_calls[0].arguments["text"]
        for m in IntermediateReplyShortening()(h, ROOM).messages
        if m.tool_calls
    ]
    assert texts[0] == "y" * 500
    assert texts[1] != "y" * 501
    assert texts[1].startswith("[ELIDED — 501 chars, NOT the real value.")
