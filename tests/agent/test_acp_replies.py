"""Updates of another program's agent become one reply each, however it orders them."""

from __future__ import annotations

from ctxkit.agent import AcpReplyBuilder

USAGE = {"usage": {"inputTokens": 1200, "outputTokens": 25, "totalTokens": 1225}}
ANNOUNCED = {"toolCallId": "c1", "status": "pending", "title": "Shell", "rawInput": {},
             "_meta": {"toolName": "run"}}  # fmt: skip
ENDED = {"toolCallId": "c1", "status": "completed", "rawInput": {"command": "ls"},
         "content": [{"type": "content", "content": {"type": "text", "text": "a.py"}}]}  # fmt: skip


def piece(text, **more):
    return {"content": {"type": "text", "text": text}, **more}


def build(*updates):
    builder, out = AcpReplyBuilder("own"), []
    for update in updates:
        out += (
            builder.update_call(update)
            if "toolCallId" in update
            else builder.add_text("text", update)
        )
    return [*out, *builder.end()]


def test_usage_that_follows_an_announced_call_belongs_to_its_reply():
    """Qwen Code 0.24: the call is announced, then billed, then asked for and run."""
    updates = piece("I look."), ANNOUNCED, piece("", _meta=USAGE), ENDED, piece("Done.")
    replies = build(*updates)
    assert [m.role for m in replies] == ["assistant", "tool", "assistant"]
    first, result, last = replies
    assert first.text == "I look."
    assert [c.arguments for c in first.tool_calls] == [{"command": "ls"}]
    assert first.usage.prompt_tokens == 1200
    assert (result.text, result.is_error) == ("a.py", False)
    assert (last.text, last.usage) == ("Done.", None)


def test_usage_that_follows_an_ended_call_belongs_to_the_next_reply():
    replies = build(ANNOUNCED, ENDED, piece("", _meta=USAGE), piece("Done."))
    assert [m.role for m in replies] == ["assistant", "tool", "assistant"]
    assert replies[0].usage is None
    assert replies[2].usage.prompt_tokens == 1200


def test_another_message_id_begins_another_reply():
    """A piece without an id, and the first id after such a piece, go on with the same reply."""
    ids = (None, "m1", "m1", None, "m2")
    pieces = [
        piece(t, **({"messageId": i} if i else {})) for t, i in zip("abcde", ids, strict=True)
    ]
    assert [(m.role, m.text) for m in build(*pieces)] == [("assistant", "abcd"), ("assistant", "e")]


def test_text_that_follows_an_announced_call_begins_a_reply():
    replies = build(ANNOUNCED, piece("Done."))
    assert [m.role for m in replies] == ["assistant", "tool", "assistant"]
    assert replies[1].is_error
