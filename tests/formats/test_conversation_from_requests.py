"""Equal messages keep their order when a request lacks some of what was said."""

from __future__ import annotations

from ctxkit.formats.conversations_from_requests import ChatConversation, merge_reply_items
from ctxkit.session import Message, Text, Usage


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def test_the_later_of_equal_replies_is_taken_for_the_one_that_stayed():
    talk, fine = ChatConversation("test"), {"role": "assistant", "content": "fine"}
    talk.read_request([user("a")])
    talk.add_reply(fine)
    talk.read_request([user("a"), fine, user("b")])
    talk.add_reply(fine)
    talk.read_request([user("a"), user("b"), fine, user("c")])
    session = talk.session("s")
    assert [m.text for m in session.view()] == ["a", "b", "fine", "c"]
    assert len(session.edits) == 1


def test_a_new_message_like_an_old_one_does_not_hide_what_stayed():
    talk = ChatConversation("test")
    talk.read_request([user(t) for t in ("go on", "b", "c", "d")])
    talk.read_request([user(t) for t in ("c", "d", "go on")])
    session = talk.session("s")
    assert [m.text for m in session.view()] == ["c", "d", "go on"]
    assert len(session.messages) == 5


def test_a_summary_that_a_later_request_repeats_is_one_message():
    """Its wire form differs, as a cache mark moved away; its role and text are the same."""
    talk = ChatConversation("test")
    part = {"type": "text", "text": "a summary of a to c"}
    marked = {**part, "cache_control": {"type": "ephemeral"}}
    talk.read_request([user(t) for t in ("a", "b", "c", "d")])
    talk.read_request([{"role": "user", "content": [marked]}, user("d"), user("e")])
    talk.read_request([{"role": "user", "content": [part]}, user("e"), user("f")])
    session = talk.session("s")
    assert [m.text for m in session.view()] == ["a summary of a to c", "e", "f"]
    first, second = session.edits
    assert [m.text for m in first.inserted] == ["a summary of a to c"]
    assert (second.kind, second.inserted) == ("dropped", ())
    assert len(second.targets) == 1


def test_items_of_one_reply_are_one_message_with_the_last_usage_and_stop_reason():
    def reply(text: str, **fields) -> Message:
        return Message(role="assistant", id=text, parts=(Text(text),), **fields)

    first, last = Usage(input_tokens=1), Usage(input_tokens=2)
    asked = Message(role="user", id="u", parts=(Text("u"),))
    items = [reply("a", stop="tool", usage=first), reply("b"), asked]
    items += [reply("c", stop="tool", usage=first), reply("d", stop="stop", usage=last)]
    merged = merge_reply_items(items)
    assert [(m.text, m.stop, m.usage) for m in merged] == [
        ("a\nb", "tool", first),
        ("u", None, None),
        ("c\nd", "stop", last),
    ]
