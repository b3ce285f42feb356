"""Each repair of the provider's guard on a prompt of a few messages, and what it leaves as it is."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, summarised, system, tool_call, user

from ctxkit.engine.prompt_checks_and_repairs import (
    OPENING,
    ChatPromptRepairer,
    PromptRepairer,
    count_common_prefix,
    find_refusals,
    find_thinking_before_last_compaction,
)
from ctxkit.session import Message, Text, Thinking

BINDS, KEEPS, UNKNOWN = "claude-opus-5-5", "claude-opus-4-8", "llama-4"
"""Models whose provider refuses signed thinking of another conversation, takes it, and is not known."""


def signed(name: str) -> Message:
    return Message(role="assistant", id=name, parts=(Thinking("hm", f"SIG {name}"), Text("ok")))


A, B, C = (signed(n) for n in "abc")
ASK, NEXT = user("Do it.", id="u1"), user("Go on.", id="u2")


def thinks(prompt):
    return [m.id for m in prompt if any(isinstance(p, Thinking) for p in m.parts)]


def test_thinking_behind_the_first_change_is_left_out_and_stays_out():
    guard = PromptRepairer(BINDS)
    assert thinks(guard.apply([ASK, A, NEXT, B])) == ["a", "b"]
    changed = user("Do that.", id="u3")
    assert thinks(guard.apply([ASK, A, changed, B, C])) == ["a"]
    assert (guard.stale, guard.dropped_n) == ({"b", "c"}, 2)
    assert thinks(guard.apply([ASK, A, changed, B, C, signed("d")])) == ["a", "d"]
    assert guard.apply([ASK, A])[1] is A
    assert guard.dropped_n == 0


def test_a_prompt_that_only_grows_loses_nothing():
    guard = PromptRepairer(BINDS)
    guard.apply([ASK, A])
    assert thinks(guard.apply([ASK, A, NEXT, B])) == ["a", "b"]
    assert guard.stale == set()


@pytest.mark.parametrize(
    "guard",
    [PromptRepairer(KEEPS), PromptRepairer(BINDS, keeps_thinking=True)],
    ids=["a model that takes it", "summaries of the api"],
)
def test_thinking_that_stays_valid_stays(guard):
    guard.apply([ASK, A])
    assert thinks(guard.apply([NEXT, A])) == ["a"]


def test_what_is_left_of_a_reply_is_its_text():
    guard = PromptRepairer(UNKNOWN)
    guard.apply([ASK, A])
    assert guard.apply([NEXT, A])[1].parts == (Text("ok"),)


def test_a_prompt_begins_with_the_user_where_the_provider_asks_for_it():
    rules = system("Be exact.")
    opened = PromptRepairer(BINDS).apply([rules, assistant("ok"), ASK])
    assert [m.role for m in opened] == ["system", "user", "assistant", "user"]
    assert (opened[1].text, opened[1].kind) == (OPENING, "injected")
    assert [m.role for m in PromptRepairer(BINDS).apply([rules, ASK])] == ["system", "user"]
    assert [m.role for m in PromptRepairer(UNKNOWN).apply([assistant("ok")])] == ["assistant"]
    assert PromptRepairer(BINDS).apply([]) == ()


def test_orphans_are_named_by_their_place():
    asked = tool_call("ls", "c1")
    late = [ASK, result("ok", asked), assistant("", asked)]
    assert [(r.rule, r.position) for r in find_refusals(late, BINDS)] == [("orphan_tool_result", 1)]
    waits = [ASK, assistant("", asked, tool_call("ls", "c2")), result("ok", asked)]
    assert [(r.rule, r.position, r.sentence) for r in find_refusals(waits, BINDS)] == [
        ("orphan_tool_call", 1, "Message 1: a tool call without its result.")
    ]
    assert find_refusals(waits, UNKNOWN) == []
    both = [assistant("", asked), ASK, A]
    assert [(r.rule, r.position) for r in find_refusals(both, BINDS, stale_thinking_ids={"a"})] == [
        ("orphan_tool_call", 0),
        ("first_role", 0),
        ("changed_thinking", 2),
    ]
    assert find_refusals([ASK, A, user(id="b")], BINDS, stale_thinking_ids={"b"}) == []


def test_the_thinking_of_a_log_is_stale_before_its_last_compaction():
    log = [ASK, A, summarised([ASK]), B, summarised([A]), NEXT, C]
    assert find_thinking_before_last_compaction(session(*log)) == {"a", "b"}
    assert find_thinking_before_last_compaction(session(ASK, A)) == set()


def test_prompts_share_the_items_before_the_first_that_differs():
    assert count_common_prefix("abc", "abd") == 2
    assert count_common_prefix("abc", "abcd") == count_common_prefix("abcd", "abc") == 3
    assert count_common_prefix("", "a") == count_common_prefix("b", "a") == 0


# -- Chat Completions dicts


def chat(role: str, content="ok", **more):
    return {"role": role, "content": content, **more}


def thought(name: str, kind: str = "thinking"):
    key = "signature" if kind == "thinking" else "data"
    return {"type": kind, key: name}


def test_blocks_of_thinking_are_left_out_of_both_their_places():
    kept = {"type": "text", "text": "ok"}
    replies = [
        chat("assistant", thinking_blocks=[thought("1")]),
        chat("assistant", [thought("2", "redacted_thinking"), kept]),
        chat("assistant", "plain"),
    ]
    guard = ChatPromptRepairer(BINDS)
    assert guard.is_new
    assert guard.apply([chat("user"), *replies]) == [chat("user"), *replies]
    assert (guard.is_new, guard.notes) == (False, ())
    asked = chat("user", "Other.")
    assert guard.apply([asked, *replies]) == [
        asked,
        chat("assistant"),
        chat("assistant", [kept]),
        chat("assistant", "plain"),
    ]
    assert guard.notes[0].startswith("Signed thinking was left out of 2 replies: ")
    assert guard.apply([asked, replies[0]])[1] == chat("assistant")
    assert guard.notes[0].startswith("Signed thinking was left out of 1 reply: ")


def test_a_users_block_and_a_block_of_another_kind_are_no_thinking():
    guard = ChatPromptRepairer(BINDS)
    quoted = [chat("user", [thought("1")]), chat("assistant", [{"type": "text", "signature": "2"}])]
    guard.apply([chat("user", "a"), *quoted])
    assert guard.apply([chat("user", "b"), *quoted])[1:] == quoted
    assert guard.notes == ()


def test_a_call_without_a_result_is_answered_unless_it_is_the_last_message():
    calls = [{"id": "c1"}, {"id": "c2"}, {"id": "c3"}]
    asked = chat("assistant", None, tool_calls=calls)
    answer = chat("tool", "ok", tool_call_id="c2")
    guard = ChatPromptRepairer(BINDS)
    prompt = guard.apply([chat("user"), asked, answer, chat("user")])
    assert [(m["role"], m.get("tool_call_id")) for m in prompt] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c3"),
        ("tool", "c2"),
        ("user", None),
    ]
    assert {m["content"] for m in prompt[2:4]} == {"(no result of this call was kept)"}
    assert guard.notes == ("A tool call without its result was answered by a note.",)
    assert len(guard.apply([chat("user"), asked])) == 2
    assert len(guard.apply([chat("user"), asked, chat("user")])) == 6


def mark(n: int, *places: int):
    """Return a user's message of n blocks, some of which are cache marks."""
    return chat("user", [{"type": "text", **({"cache_control": 1} if i in places else {})} for i in range(n)])  # fmt: skip


def marks(prompt):
    return [(i, at) for i, m in enumerate(prompt) for at, b in enumerate(m["content"]) if "cache_control" in b]  # fmt: skip


def test_the_first_cache_mark_and_the_last_three_are_kept():
    four = [mark(3, 0, 2), mark(1, 0), mark(1, 0)]
    guard = ChatPromptRepairer(BINDS)
    assert guard.apply(four) == four
    assert guard.notes == ()
    many = [mark(3, 0, 2), mark(1), mark(2, 0, 1), mark(3, 0, 1, 2)]
    prompt = ChatPromptRepairer(UNKNOWN).apply(many)
    # of the seven, the first of the first message's two stands for it: its last place is kept
    assert marks(prompt) == [(0, 2), (3, 0), (3, 1), (3, 2)]
    assert marks(many) == [(0, 0), (0, 2), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_a_chat_that_begins_with_a_reply_is_opened():
    first = [chat("system"), chat("developer"), chat("assistant")]
    guard = ChatPromptRepairer(BINDS)
    assert guard.apply(first) == [*first[:2], chat("user", OPENING), first[2]]
    assert guard.notes == ("A user's message was put before the first reply.",)
    assert ChatPromptRepairer(UNKNOWN).apply(first) == first
    assert ChatPromptRepairer(BINDS).apply([chat("system")]) == [chat("system")]
