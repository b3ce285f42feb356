"""Each limit of a pruning, at the last size that it lets pass and at the first that it does not."""

from __future__ import annotations

import pytest
from builders import assistant, result, tool_call, user
from histories import CHARS, ROOM, shown
from random_sessions import Fours

from ctxkit.engine import run_rules
from ctxkit.policies import (
    Clear,
    KeepNewestToolPairs,
    MessageLog,
    OldResultsDigest,
    OutputShortening,
    ReplyShortening,
    ResultEvictionOverBudget,
    ResultExcerpts,
    ResultOffload,
    ResultShortening,
    Rules,
    StaleReadShortening,
    TrimStage,
)


def is_changed(pruning, *sizes: int, tool: str = "bash", reply: int = 0, text: str = "x") -> bool:
    """Whether a pruning changes a history of tool results of so many characters, or of one reply."""
    messages = [user()]
    for i, size in enumerate(sizes):
        call = assistant("", tool_call(tool, command=f"{i}", path=f"{i}.py"), id=f"a{i}")
        messages += [call, result(text * size, of=call, id=f"r{i}")]
    if reply:
        messages.append(assistant("y" * reply))
    history = shown(*messages, assistant("done"))
    return pruning(history, ROOM) is not history


PLACEHOLDER = CHARS.message(result(Clear().placeholder))
LIMITS = {
    "clear keeps the newest": (Clear(keep_last=2), (400, 400), (400, 400, 400)),
    "clear keeps few characters": (Clear(keep_last=0, min_chars=100), (99,), (100,)),
    "pairs keep the newest": (KeepNewestToolPairs(keep_pairs=2), (400, 400), (400, 400, 400)),
    "tombstones keep the newest": (
        ResultEvictionOverBudget(keep_last=2, max_tokens=1, manifest=False), (400, 400), (400, 400, 400)),
    "tombstones have a budget": (
        ResultEvictionOverBudget(keep_last=0, max_tokens=100, manifest=False), (400,), (404,)),
    "results": (ResultShortening(max_chars=300, consumed_chars=-1), (300,), (1000,)),
    "outputs by characters": (OutputShortening(max_chars=300, max_lines=0, max_bytes=0), (300,), (1000,)),
    "outputs by bytes": (OutputShortening(max_chars=0, max_lines=0, max_bytes=300), (300,), (1000,)),
    "offload": (ResultOffload(threshold=3000), (3000,), (3001,)),
    "excerpts keep the newest": (ResultExcerpts(keep_last=2), (4000, 4000), (4000, 4000, 4000)),
    "digest keeps the newest": (OldResultsDigest(keep_last=2), (4000, 4000), (4000, 4000, 4000)),
    "a stage": (TrimStage(max_chars=300, consumed_chars=-1), (300,), (1000,)),
}  # fmt: skip


@pytest.mark.parametrize(("pruning", "passes", "too_much"), LIMITS.values(), ids=LIMITS)
def test_a_limit_is_the_last_size_that_passes(pruning, passes, too_much):
    assert not is_changed(pruning, *passes)
    assert is_changed(pruning, *too_much)


def test_a_reply_of_the_limit_stays():
    assert not is_changed(ReplyShortening(max_chars=300), reply=300)
    assert is_changed(ReplyShortening(max_chars=300), reply=1000)


def test_clearing_frees_at_least_what_is_asked():
    saving = 100 - PLACEHOLDER  # of a result of 400 characters, in tokens
    assert is_changed(Clear(keep_last=0, at_least=saving), 400)
    assert not is_changed(Clear(keep_last=0, at_least=saving + 1), 400)


def test_pairs_go_from_the_named_size_of_all_messages_on():
    history_chars = shown(user(), *_list_pairs(), assistant("done"))
    size = sum(_count_chars(m) for m in history_chars.messages)
    for chars, changed in ((size, True), (size + 1, False)):
        new = KeepNewestToolPairs(keep_pairs=1, from_chars=chars)(history_chars, ROOM)
        assert (new is not history_chars) is changed


def _list_pairs():
    out = []
    for i in range(3):
        call = assistant("", tool_call("bash", command="ls"), id=f"a{i}")
        out += [call, result("x" * 400, of=call, id=f"r{i}")]
    return out


def _count_chars(message) -> int:
    from ctxkit.policies import count_chars

    return count_chars(message)


def test_lines_are_counted_whole():
    by_lines = OutputShortening(max_lines=10, max_chars=0, max_bytes=0)
    assert not is_changed(by_lines, 9, text="line\n")
    assert is_changed(by_lines, 200, text="line\n")


def test_a_stale_read_is_cut_beyond_its_characters():
    def read_then_written(size: int) -> bool:
        read = assistant("", tool_call("read_file", path="a.py"), id="a")
        write = assistant("", tool_call("write_file", path="a.py", content="z"), id="b")
        h = shown(
            user(),
            read,
            result("x" * size, of=read),
            write,
            result("ok", of=write),
            assistant("done"),
        )
        return StaleReadShortening(max_chars=300)(h, ROOM) is not h

    assert not read_then_written(300)
    assert read_then_written(1000)


def test_a_result_that_a_late_one_protects_is_none_of_the_newest():
    """The pinned result protects the reply that called it, with the other result of that reply."""
    first, second, late = (tool_call("read", f"c{i}", path=str(i)) for i in range(3))
    log = [
        user("go"),
        assistant("", first, id="a0"), result("r" * 4_000, first, id="r0"),
        assistant("", second, late, id="a1"), result("s" * 4_000, second, id="r1"),
        assistant("wait", id="a2"), result("t" * 4_000, late, id="r2", pinned=True),
        assistant("done", id="a3"),
    ]  # fmt: skip
    run = run_rules(MessageLog.of(log, Fours()), Rules(pruning=ResultExcerpts(keep_last=1)))
    whole = [{i.message.id for i in run.sent(c) if len(i.message.text) == 4_000} for c in range(4)]
    assert whole == [set(), {"r0"}, {"r1"}, {"r0", "r1", "r2"}]
