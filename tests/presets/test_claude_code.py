"""Claude Code: what its documentation and its users say of auto-compaction."""

import msgspec
import pytest
from builders import assistant, call, result, step, user
from histories import ROOM, shown, texts

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.policies import FixedSizeSummariser
from ctxkit.presets.systems.claude_code import ClaudeSummary, find_last_files
from ctxkit.session import Session, Usage


def compacted(history, **settings):
    return ClaudeSummary(keep_messages=1, summariser=lambda p: "SUMMARY", **settings)(history, ROOM)


def test_the_whole_conversation_becomes_a_summary():
    new = compacted(shown(user("go " * 40), assistant("x" * 400), user("and on " * 20)))
    assert [m.role for m in new.messages] == ["summary"]
    assert texts(new) == ["SUMMARY"]


def test_up_to_five_files_come_back_newest_first():
    """documentation: up to five files, most recently touched first"""
    rows = [s for i in range(7) for s in step("read", f"text {i} " * 20, path=f"/f{i}")]
    back = texts(compacted(shown(user("go"), *rows)))[1]
    assert [line for line in back.splitlines() if line.startswith("File")] == [
        f"File /f{i}:" for i in (6, 5, 4, 3, 2)
    ]


def test_a_long_file_comes_back_as_its_path():
    """documentation: over 5,000 tokens a path with no content"""
    h = shown(
        user("go"), *step("read", "x" * 20_004, path="/long"), *step("read", "short", path="/short")
    )
    assert texts(compacted(h))[1] == "File /short:\nshort\n\nFile /long"


def test_what_was_written_or_failed_is_no_text_of_a_file():
    edit, bad = call("edit", path="/a"), call("read", path="/b")
    h = shown(
        user("go"), edit, result("done", edit), bad, result("no such file", bad, is_error=True)
    )
    assert find_last_files(h, 5) == {"/b": "", "/a": ""}


@pytest.mark.parametrize(
    ("override", "tokens", "due"),
    [
        (None, 167_000, True),
        (None, 166_999, False),
        (95, 166_999, False),
        (95, 167_000, True),
        (50, 90_000, True),
    ],
)
def test_it_is_due_33_000_below_the_window_and_an_override_can_only_lower_it(override, tokens, due):
    """anthropics/claude-code#31806: 167,000 of 200,000; 95 percent of 180,000 is capped"""
    rules = presets.claude_code(context_window=200_000, autocompact_pct_override=override)
    h = shown(user("abcd" * tokens))
    assert rules.trigger(h, rules.context_budget(h.log)) is due


def test_older_outputs_are_cleared_first_where_asked():
    rules = presets.claude_code(context_window=40_000, clear_tool_outputs=1)
    rows = [s for i in range(9) for s in step("bash", "y" * 4000, command=str(i))]
    h = shown(user("go"), *rows)
    new = rules.policy(h, rules.context_budget(h.log))
    assert [m.role for m in new.messages] == [m.role for m in h.messages]
    assert new.tokens < 2000
    with pytest.raises(BadArguments, match="percentage"):
        presets.claude_code(autocompact_pct_override=120)


def test_a_summariser_and_a_focus_reach_the_second_step():
    rules = presets.claude_code(clear_tool_outputs=3)
    assert rules.bare.summariser is None
    assert rules.bare.using(FixedSizeSummariser(9)).summariser == FixedSizeSummariser(9)
    assert rules.policy.focused("tests").focus == "tests"


def paused(minutes, tokens, **writes):
    """A talk of so many tokens, and a question after a pause."""
    write = writes or {"cache_write_1h_tokens": 1}
    first = [user("go", time=0.0),
             assistant("x" * 4 * tokens, time=10.0, usage=Usage(output_tokens=tokens, **write))]  # fmt: skip
    last = [user("and now?", time=10.0 + 60 * minutes), assistant("so", time=20.0 + 60 * minutes)]
    return Session(
        id="s",
        log=tuple(msgspec.structs.replace(m, id=f"m{i}") for i, m in enumerate([*first, *last])),
    )


@pytest.mark.parametrize(
    ("minutes", "tokens", "settings", "cuts"),
    [
        (55, 210_000, {"version": "2.1.299"}, 1),
        (53, 210_000, {"version": "2.1.299"}, 0),
        (55, 190_000, {"version": "2.1.299"}, 0),
        (55, 120_000, {"version": "2.1.299", "idle_min_tokens": 100_000}, 1),
        (55, 210_000, {"version": "2.1.299", "idle_compaction": False}, 0),
        (55, 210_000, {}, 1),
        (55, 210_000, {"version": "2.1.29"}, 0),
    ],
)
def test_an_idle_session_is_compacted_before_its_hour_is_over(minutes, tokens, settings, cuts):
    """observed from 2.1.286 on; the older version is as it was"""
    rules = presets.claude_code(context_window=1_000_000, **settings).but(counter="chars/4")
    assert len(ck.replay(paused(minutes, tokens), rules).edits) == cuts


def test_a_cache_of_five_minutes_is_not_compacted_for():
    rules = presets.claude_code(context_window=1_000_000).but(counter="chars/4")
    assert not ck.replay(paused(55, 210_000, cache_write_tokens=1), rules).edits
