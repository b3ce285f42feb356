"""What each pruning makes of one short history, word for word."""

from __future__ import annotations

from hashlib import sha256

import pytest
from builders import assistant, result, tool_call, user
from histories import CHARS, ROOM, shown
from random_sessions import Fours

from ctxkit.policies import (
    CacheTtl,
    CharacterBudget,
    Clear,
    IntermediateReplyShortening,
    KeepNewestToolPairs,
    OldResultsDigest,
    OutputShortening,
    ReplyShortening,
    ResultEvictionOverBudget,
    ResultExcerpts,
    ResultOffload,
    ResultShortening,
    StaleReadShortening,
    count_chars,
)
from ctxkit.policies.message_shortening import ELIDED_PLACEHOLDER, TRUNCATED_HERE
from ctxkit.session import Attachment, Message, SizeOnly, Text, Thinking, ToolCall

FILE = "".join(f"{'abcdefghij'[n % 10] * 9}\n" for n in range(100))
"""A hundred lines of ten characters."""
ERROR = "no such test\n" * 20
WROTE = "wrote a.py" * 20


def step(n: int, name: str, text: str, *, is_error: bool | None = False, **arguments):
    call = assistant(f"Step {n}.", tool_call(name, f"c{n}", **arguments), id=f"a{n}")
    return call, result(text, call, id=f"r{n}", is_error=is_error)


HISTORY = (
    user("Fix a.py.", id="u1"),
    *step(1, "read_file", FILE, path="a.py"),
    *step(2, "bash", ERROR, is_error=True, command="pytest\n -q"),
    *step(3, "write_file", WROTE, is_error=None, path="a.py", content="x" * 600),
    *step(4, "read_file", FILE, path="b.py"),
    assistant("I fixed it. " * 20, id="a5"),
    user("And now?", id="u2"),
)
STALE = "chars elided — file was written or patched later this session; call read_file again if current content is needed]"
CUT = "chars omitted to reduce context size...]"
OFFLOADED = (
    "[result offloaded — 1,000 chars stored to artifact store]\nTool: read_file | path={}.py\n"
    f"Artifact: {sha256(FILE.encode()).hexdigest()[:12]}\n"
    f"Use read_file with path='.ctxkit/artifacts/{sha256(FILE.encode()).hexdigest()[:12]}.txt', "
    "start and end, or search with that path."
)
ARCHIVED = dict.fromkeys(("r1", "r2", "r3"), "[archived: see the digest]")
EVICTED = '[tool result — evicted: {}. Preview: "{}". Re-read with targeted ranges if needed.]'
ONE_LINE = FILE.replace("\n", " ").strip()
CASES = {
    "clear": (Clear(keep_last=2), dict.fromkeys(("r1", "r2"), Clear().placeholder)),
    "clear with lines": (Clear(keep_last=1, placeholder="({lines} lines)"), {"r1": "(100 lines)", "r2": "(20 lines)", "r3": "(1 lines)"}),
    "clear some tools": (Clear(keep_last=0, allow=("read*", "bash"), deny=("bash",)), dict.fromkeys(("r1", "r4"), Clear().placeholder)),
    "pairs": (KeepNewestToolPairs(keep_pairs=1), dict.fromkeys(("r1", "r2", "r3"), "[result omitted — sliding window]")),
    "tombstones": (ResultEvictionOverBudget(max_tokens=99, keep_last=2, manifest=False), {
        "r1": EVICTED.format("read_file(a.py)", f"{ONE_LINE[:299]}…"),  # the second would grow
    }),
    "tombstones with a list": (ResultEvictionOverBudget(max_tokens=99, keep_last=3), {
        "r1": EVICTED.format("read_file(a.py)", f"{ONE_LINE[:299]}…"),
        "+user injected": "[Context Manifest]\nActive tool results (3):\n- bash(pytest -q)\n- write_file(a.py)\n"
        "- read_file(b.py)\nSuperseded (1) — evicted to save context:\n- read_file(a.py)",
    }),
    "budget": (CharacterBudget(max_chars=2_700, step=1), {"r1": ELIDED_PLACEHOLDER}),
    "budget in steps": (CharacterBudget(max_chars=2_700, step=2), dict.fromkeys(("r1", "r2"), ELIDED_PLACEHOLDER)),
    "digest": (OldResultsDigest(keep_last=1, line_chars=30), {
        **ARCHIVED,
        "+user tool_summary": "[Compaction tool digest]\n- read_file (ok): aaaaaaaaa bbbbbbbbb ccccccccc\n"
        f"- bash (error): no such test no such test no s\n- write_file (unknown): {WROTE[:30]}",
    }),
    "excerpts": (ResultExcerpts(keep_last=1), {
        "r1": f"[Tool output summary]\nTool: read_file\nCall ID: c1\nStatus: ok\n{FILE[:533]}\n... (truncated) ...\n{FILE[-267:]}",
    }),
    "offload": (ResultOffload(threshold=999), {"r1": OFFLOADED.format("a"), "r4": OFFLOADED.format("b")}),
    "consumed reads": (StaleReadShortening(max_chars=50), {"r1": f"{FILE[:50]}\n[...950 {STALE}"}),
    "arguments": (IntermediateReplyShortening(), {"a3": "Step 3.", "a3 arguments": {
        "path": "a.py",
        "content": "[ELIDED — 600 chars, NOT the real value. Do not reuse this placeholder as content;"
        " re-read the file or regenerate the value if you need it again.]",
    }}),
    "outputs": (OutputShortening(max_chars=200, max_lines=0, max_bytes=0), dict.fromkeys(("r1", "r4"), f"{FILE[:200]}\n\n[tool output truncated: showing 21/101 lines, 200B/1000B bytes, 200/1000 chars]")),
    "lines": (OutputShortening(max_chars=0, max_lines=3, max_bytes=0), dict.fromkeys(("r1", "r4"), f"{FILE[:29]}\n\n[tool output truncated: showing 3/101 lines, 29B/1000B bytes, 29/1000 chars]") | {"r2": f"{ERROR[:38]}\n\n[tool output truncated: showing 3/21 lines, 38B/260B bytes, 38/260 chars]"}),
    "replies": (ReplyShortening(max_chars=100), {"a5": f"{('I fixed it. ' * 20)[:100]}\n[...truncated — 140 {CUT}"}),
    "results": (ResultShortening(max_chars=300, consumed_chars=100), {
        "r1": f"{FILE[:100]}\n[...900 {STALE}",
        "r4": f"{FILE[:300]}\n[...truncated — 700 {CUT}",
    }),
    "stale results": (ResultShortening(max_chars=2_000, consumed_chars=0), {"r1": f"\n[...1,000 {STALE}"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_pruning_changes_these_messages_into_these_words(name):
    pruning, wanted = CASES[name]
    before, found = {m.id: m for m in HISTORY}, {}
    for message in pruning(shown(*HISTORY), ROOM).messages:
        known = before.get(message.id.split("~")[0])
        if known is None:
            found[f"+{message.role} {message.kind}"] = message.text
        elif known.text != message.text or known.tool_calls != message.tool_calls:
            found[known.id] = message.text
            if known.tool_calls != message.tool_calls:
                found[f"{known.id} arguments"] = message.tool_calls[0].arguments
            assert (message.role, message.call_id) == (known.role, known.call_id)
    assert found == wanted


def test_what_is_archived_is_marked_and_its_digest_is_not_the_users():
    pruned = OldResultsDigest(keep_last=1)(shown(*HISTORY), ROOM).messages
    kinds = [m.kind for m in pruned if m.role == "tool"]
    assert kinds == ["tool_result_archived"] * 3 + [HISTORY[-3].kind]
    assert pruned[-1].details == {"user_visible": False}
    assert {m.kind for m in ResultExcerpts(keep_last=1)(shown(*HISTORY), ROOM).messages} == {
        *(m.kind for m in HISTORY),
        "tool_result_archived",
    }


def test_an_excerpt_of_a_model_is_longer_by_half_and_none_is_made_where_it_is_off():
    long = (*HISTORY[:1], *step(1, "read_file", FILE * 2, path="a.py"), *HISTORY[1:])
    excerpt = ResultExcerpts(keep_last=1, strategy="llm")(shown(*long), ROOM).messages[2].text
    assert excerpt.endswith(f"\n{(FILE * 2)[:800]}\n... (truncated) ...\n{FILE[-400:]}")
    history = shown(*long)
    assert ResultExcerpts(keep_last=1, strategy="off")(history, ROOM) is history


def test_characters_are_those_of_every_part_of_a_message():
    parts = [
        (Text("four"), 4),
        (Thinking("three", hidden=999), 5),
        (Thinking("", hidden=70), 70),  # sealed: what is sent back
        (ToolCall("c", "ls", {"a": 1}), 2 + len('{"a":1}')),
        (ToolCall("c", "ls", {}, raw="{ }"), 2 + 3),
        (Attachment(), 4_800),
        (SizeOnly("document", chars=11, tokens=99), 11),
        (SizeOnly("document", tokens=9), 36),
        (SizeOnly("document", chars=0, tokens=9), 0),
        (SizeOnly("document"), 0),
    ]
    for part, chars in parts:
        assert count_chars(Message(role="assistant", id="a", parts=(part,))) == chars, part
    whole = Message(role="assistant", id="a", parts=tuple(part for part, _ in parts))
    assert count_chars(whole) == sum(chars for _, chars in parts)


class Words(Fours):
    """A counter for which a word is a token, however long."""

    def message(self, message: Message) -> int:
        return len(message.text.split()) + 1


@pytest.mark.parametrize("max_chars", [2_000, 3_000])
def test_a_budget_that_eliding_cannot_meet_cuts_the_other_results_to_equal_shares(max_chars):
    """The newest message is never elided, nor one that would not get smaller, as counted in words."""
    small = len(ELIDED_PLACEHOLDER) + 1
    messages = [user("u"), *step(1, "ls", "a " * 450), *step(2, "ls", "b" * small), *step(3, "ls", "c " * 2_500)]  # fmt: skip
    history = shown(*messages, counter=Words())
    pruned = CharacterBudget(max_chars=max_chars, step=1)(history, ROOM).messages
    others = sum(map(count_chars, messages)) - 900 - small - 5_000 + len(ELIDED_PLACEHOLDER)
    share = (max_chars - others) // 2 - len(TRUNCATED_HERE)
    assert [m.text for m in pruned if m.role == "tool"] == [
        ELIDED_PLACEHOLDER,
        "b" * small,
        ("c " * 2_500)[:share] + TRUNCATED_HERE,
    ]


def test_no_result_is_cut_below_the_least_that_is_left_of_one():
    messages = [user("u"), *step(1, "ls", "c" * 5_000)]
    pruned = CharacterBudget(max_chars=50, min_chars=300)(shown(*messages), ROOM).messages
    assert pruned[-1].text == "c" * 300 + TRUNCATED_HERE
    short = [user("u"), *step(1, "ls", ("c " * 300)[: 300 + len(TRUNCATED_HERE)])]
    for counter in (CHARS, Words()):
        history = shown(*short, counter=counter)
        assert CharacterBudget(max_chars=50, min_chars=300)(history, ROOM) is history


@pytest.mark.parametrize(("chars", "is_trimmed"), [(40, False), (200, True)])
def test_a_result_with_an_image_is_trimmed_where_it_is_long_without_it(chars, is_trimmed):
    asked = assistant("", tool_call("look", "c1"))
    seen = Message(
        role="tool", id="r", call_id="c1", tool="look", parts=(Text("x" * chars), Attachment())
    )
    messages = [user("u"), asked, seen, assistant("ok"), user("v")]
    pruning = CacheTtl(
        ttl_seconds=0, soft_trim_ratio=0, soft_trim_max_chars=100, soft_trim_head_chars=20,
        soft_trim_tail_chars=10, keep_last_assistants=1, hard_clear=False, cut_images=True,
    )  # fmt: skip
    text = pruning(shown(*messages), ROOM).messages[2].text
    assert ("[Tool result trimmed: kept first 20 chars and last 10 chars of" in text) is is_trimmed
    assert text.startswith("x" * (20 if is_trimmed else 40))
    marker = "[image removed during context pruning]"
    assert (marker in text) is not is_trimmed  # the end of ten characters holds a part of it
