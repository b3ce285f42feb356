"""Fased and OpenClaw: the FA cases, numbered in the order in which the facts about them appear (OC: tests of plans)."""

from math import nan

import pytest
from builders import assistant, call, result, step, user
from histories import shown, texts

from ctxkit import presets
from ctxkit.agent import MemoryFlusher, RootFolder
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import (
    PiSummaryInStages,
    format_failure_line,
    format_failures_section,
    result_clearing_and_cache_ttl,
)
from ctxkit.policies import openclaw_safeguard as safeguard
from ctxkit.policies.texts import summary_prompts_and_audits
from ctxkit.presets.openclaw_and_fased_settings import get_effective_reserve
from ctxkit.presets.systems.fased import get_memory_flush_threshold
from ctxkit.session import Attachment, Message, Text
from ctxkit.tokens import PI, ContextBudget

ROOM = ContextBudget(200_000, 20_000, PI)
SMALL = ContextBudget(1000, 0, PI)
LONG = "word " * 800  # 1000 tokens


def say(text="SUMMARY"):
    return lambda passage: text


def test_fa1_the_floor_lies_under_the_reserve():
    """reserve = max(configured or 16384, floor 20000): a window of 200000 compacts above 180000"""
    assert (
        get_effective_reserve(),
        get_effective_reserve(40_000),
        get_effective_reserve(None, 0),
        get_effective_reserve(1000),
    ) == (
        20_000,
        40_000,
        16_384,
        20_000,
    )
    rules = presets.fased(context_window=200_000)
    assert rules.reserve == 20_000

    def due(tokens):
        h = shown(user("abcd" * tokens), counter=PI)
        return rules.trigger(h, rules.context_budget(h.log))

    assert [due(180_000), due(180_001)] == [False, True]


def test_fa2_a_window_no_larger_than_the_floor_is_refused():
    """a window of 20000 or less is over the threshold at every turn; the preset refuses it when it is built"""
    with pytest.raises(BadArguments, match="every call would be over it"):
        presets.fased(context_window=20_000)
    with pytest.raises(BadArguments, match="frees nothing"):
        presets.fased(context_window=40_000)


def test_fa3_one_giant_turn_is_cancelled_by_the_program():
    """no message outside the split turn: cancelled; the preset summarises the turn's head instead"""
    h = shown(user("go"), *(assistant(LONG) for _ in range(5)), counter=PI)
    with pytest.raises(ModelError, match="cancelled"):
        PiSummaryInStages(keep_tokens=1500, quirks=True, summariser=say())(h, ROOM)
    assert texts(PiSummaryInStages(keep_tokens=1500, summariser=say())(h, ROOM))[0].startswith(
        "SUMMARY"
    )


def test_fa4_what_is_beyond_the_share_is_summarised_first():
    """history above the share of the window is dropped by halves, and its summary goes before"""
    asked = []
    h = shown([user(LONG) for _ in range(9)], counter=PI)
    PiSummaryInStages(
        keep_turns=1,
        max_history_share=0.1,
        summariser=lambda p: asked.append(p.messages[0].id) or "x",
    )(h, ContextBudget(40_000, 0, PI))
    assert len(asked) > 1
    assert asked[0] == h.messages[0].id


def test_fa5_chunks_follow_the_size_of_messages():
    """chunk = window x ratio - 4096, ratio 0.4 down to 0.15 where the mean message is above a tenth of the window"""
    assert safeguard.compute_chunk_tokens(10, 1000, 100_000) == 40_000 - 4096
    assert safeguard.compute_chunk_tokens(2, 60_000, 100_000) == 15_000 - 4096


def test_fa6_a_long_history_is_summarised_in_parts_and_merged():
    """two parts, each folded chunk by chunk with the summary so far, then a merge"""
    told = []
    h = shown([user(LONG) for _ in range(9)], counter=PI)
    PiSummaryInStages(keep_turns=1, summariser=lambda p: told.append(p.instructions) or "part")(
        h, ContextBudget(14_000, 0, PI)
    )
    assert "Merge these partial summaries" in told[-1]
    assert any("The summary so far:\npart" in t for t in told)


def test_fa7_messages_too_large_are_left_out_with_a_note():
    """a message of more than half the window (times 1.2) is not summarised but noted"""
    h = shown(user("go"), assistant(LONG * 5), user("now"), user("end"), counter=PI)
    text = texts(PiSummaryInStages(keep_turns=1, summariser=say())(h, ContextBudget(8000, 0, PI)))[
        0
    ]
    assert text == "SUMMARY\n\n[Large assistant (~5K tokens) omitted from summary]"


def test_fa8_failed_tools_are_listed():
    """at most eight, 240 characters each, with status, and how many more"""
    bad = [result(f"boom {i}\nexit code: {i}", tool="bash", is_error=True) for i in range(1, 11)]
    lines = (
        format_failures_section(
            [said for m in [*bad, result("fine")] if (said := format_failure_line(m))]
        )
        .strip()
        .splitlines()
    )
    assert lines[:2] == ["## Tool Failures", "- bash (exitCode=1): boom 1 exit code: 1"]
    assert lines[-1] == "- ...and 2 more"
    assert format_failure_line(result("fine")) is None
    nameless = result("x" * 300 + " exit code: 2", tool=None, is_error=True)
    assert format_failure_line(nameless) == f"- tool (exitCode=2): {'x' * 239}…"
    assert format_failures_section([]) == ""


def test_fa8_a_summary_lists_the_failed_tools_of_what_it_replaces():
    """not those of the turn that stays, and no tool that did its work"""
    turns = [
        (user(LONG), call("bash", call_id), result(text, call_id, "bash", is_error=text != "fine"))
        for call_id, text in (("a", "boom 1"), ("b", "fine"), ("c", "boom 2"), ("d", "boom 3"))
    ]
    new = PiSummaryInStages(keep_turns=1, summariser=say())(shown(*turns, counter=PI), ROOM)
    assert texts(new) == [
        "SUMMARY\n\n## Tool Failures\n- bash: boom 1\n- bash: boom 2",
        LONG,
        "bash",
        "boom 3",
    ]


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ("## Decisions\nfix the parser", "missing_section:## Open TODOs"),
        ("", "missing_identifiers:"),
        ("", "latest_user_ask_not_reflected"),
    ],
)
def test_fa9_an_audit_names_its_reasons(summary, why):
    """OpenClaw's reasons: missing sections, missing identifiers, the last request"""
    reasons = summary_prompts_and_audits.audit_summary(
        summary,
        sections=("## Decisions", "## Open TODOs"),
        identifiers=("/a/b/c",),
        request="fix the parser module",
    )
    assert any(r.startswith(why) for r in reasons)


def test_fa10_identifiers_are_strict_off_or_custom():
    """strict asks to keep them exactly; off says nothing; custom says its own; a blank custom is strict"""
    assert "UUIDs" in summary_prompts_and_audits.format_identifier_instructions("strict")
    assert summary_prompts_and_audits.format_identifier_instructions("off") == ""
    assert (
        summary_prompts_and_audits.format_identifier_instructions("custom", "Keep ticket keys.")
        == "Keep ticket keys."
    )
    assert (
        summary_prompts_and_audits.format_identifier_instructions("custom", " ")
        == summary_prompts_and_audits.STRICT_INSTRUCTIONS
    )


def test_fa11_a_focus_follows_the_identifiers():
    """identifier text, blank line, Additional focus; with off exactly the focus"""
    assert (
        summary_prompts_and_audits.format_identifier_instructions("strict", focus="x")
        == summary_prompts_and_audits.STRICT_INSTRUCTIONS + "\n\nAdditional focus:\nx"
    )
    assert (
        summary_prompts_and_audits.format_identifier_instructions("off", focus="x")
        == "Additional focus:\nx"
    )


def test_fa12_mode_default_ignores_the_identifier_policy():
    """only safeguard tells the summariser about identifiers"""
    assert "UUIDs" in presets.fased().policy.summary_instructions()
    assert "UUIDs" not in presets.fased(mode="default").policy.summary_instructions()


def test_fa13_the_time_limit_is_passed_on_unless_quirks():
    """timeout_seconds limits the summariser; the program read uses 300 s always"""
    assert presets.fased(timeout_seconds=9).policy.seconds == 9
    assert presets.fased(timeout_seconds=9, quirks=True).policy.seconds == 300


@pytest.mark.parametrize(
    ("number", "tokens", "window", "floor", "soft", "state", "due"),
    [
        ("fa14", 85, 100, 10, 5, (0, None), True),
        ("fa15", 10_000, 100_000, 20_000, 10_000, (0, None), False),
        ("fa16", 96_000, 100_000, 5000, 2000, (2, 2), False),
        ("fa17", 96_000, 100_000, 5000, 2000, (2, 1), True),
    ],
)
def test_fa14_fa15_fa16_fa17_memory_is_flushed_once_a_cycle(
    tmp_path, number, tokens, window, floor, soft, state, due
):
    """at window - floor - soft and above; not twice in a cycle between compactions"""
    rules = presets.fased(
        context_window=window,
        reserve_tokens=floor,
        reserve_tokens_floor=floor,
        soft_threshold_tokens=soft,
        keep_recent_tokens=1,
    )
    memory = MemoryFlusher(rules.flush, RootFolder(tmp_path), None, lambda: 0.0, lambda *_: None)
    compactions, flushed_at = state
    assert flushed_at is None or memory.is_due(window, window, flushed_at)
    assert memory.is_due(tokens, window, compactions) is due


def test_fa19_numbers_that_make_no_sense_are_defaults():
    """soft -100 is 4000, a floor of NaN is 20000"""
    assert get_memory_flush_threshold(100_000, 20_000, -100) == 76_000
    assert get_memory_flush_threshold(100_000, nan, 4000) == 76_000


TTL = {
    "soft_trim_ratio": 0,
    "hard_clear_ratio": 0,
    "min_prunable_tool_chars": 0,
    "placeholder": "[cleared]",
    "ttl_seconds": 0,
}


def talk(n, text="x" * 20_000):
    out = []
    for i in range(n):
        c = call(f"t{i + 1}", id=f"k{i}")
        out += [user("u"), c, result(text, c)]
    return out


def results(history):
    return [
        "[cleared]" if m.text == "[cleared]" else m.tool
        for m in history.messages
        if m.role == "tool"
    ]


def test_fa20_results_before_the_last_replies_are_cleared():
    """four turns, keep 3: the first result is cleared, the others intact"""
    assert results(result_clearing_and_cache_ttl.CacheTtl(**TTL)(shown(talk(4)), SMALL)) == [
        "[cleared]",
        "t2",
        "t3",
        "t4",
    ]


def test_fa21_results_before_the_first_user_message_are_left():
    """a result before the first user message is intact"""
    c = call("t0")
    assert results(
        result_clearing_and_cache_ttl.CacheTtl(**TTL)(
            shown(c, result("x" * 20_000, c), talk(4)), SMALL
        )
    )[:2] == [
        "t0",
        "[cleared]",
    ]


def test_fa22_several_results_of_a_reply():
    """[user, asst, t1, t2, user, asst, t3], keep 1: t1 and t2 are cleared"""
    a, b, c = call("t1", id="a"), call("t2", id="b"), call("t3", id="c")
    both = Message(role="assistant", id="ab", parts=(*a.tool_calls, *b.tool_calls))
    h = shown(
        user(), both, result("x" * 9000, a), result("x" * 9000, b), user(), c, result("x" * 9000, c)
    )
    assert results(
        result_clearing_and_cache_ttl.CacheTtl(**TTL, keep_last_assistants=1)(h, SMALL)
    ) == [
        "[cleared]",
        "[cleared]",
        "t3",
    ]


def test_fa23_deny_wins_over_allow():
    """allow ex*, deny exec: nothing is pruned"""
    h = shown(user(), step("exec", "x" * 9000), user(), assistant(), assistant(), assistant())
    assert (
        result_clearing_and_cache_ttl.CacheTtl(**TTL, allow=("ex*",), deny=("exec",))(h, SMALL) is h
    )
    assert result_clearing_and_cache_ttl.CacheTtl(**TTL, allow=("EX*",))(h, SMALL) is not h


def test_fa24_a_trimmed_result_says_what_it_was():
    """AAAAA and BBBBB, max 5, head 7, tail 3"""
    expected = "AAAAA\nB\n...\nBBB\n\n[Tool result trimmed: kept first 7 chars and last 3 chars of 11 chars.]"
    assert result_clearing_and_cache_ttl.soft_trim_text("AAAAA\nBBBBB", 7, 3) == expected


@pytest.mark.parametrize(("pause", "pruned"), [(299, False), (300, True), (None, False)])
def test_fa25_nothing_within_the_life_of_the_cache(pause, pruned):
    """a second call within the ttl changes nothing; an unknown time neither"""
    rows = [*talk(4), assistant("end", time=1000.0)]
    h = shown(rows, time=None if pause is None else 1000.0 + pause)
    assert (
        result_clearing_and_cache_ttl.CacheTtl(**{**TTL, "ttl_seconds": 300})(h, SMALL) is not h
    ) is pruned


def test_fa26_pruning_is_off_unless_set():
    """mode off, or nothing said: no pruning"""
    assert presets.fased().pruning is None
    assert isinstance(
        presets.fased(context_pruning="cache-ttl").pruning, result_clearing_and_cache_ttl.CacheTtl
    )


def test_fa27_below_the_ratios_nothing_happens_and_between_them_only_trimming():
    """below 0.3 unchanged; above it long results are trimmed; above 0.5 cleared from the oldest, until below"""

    def said(n):
        return shown(
            *[m for i in range(n) for m in (user("u"), *step("bash", f"{i}" * 10_000))],
            *(assistant() for _ in range(3)),
        )

    budget = ContextBudget(20_000, 0, PI)  # 80,000 characters
    policy = result_clearing_and_cache_ttl.CacheTtl(ttl_seconds=0, min_prunable_tool_chars=0)
    few = said(2)
    assert policy(few, budget) is few
    some = policy(said(3), budget)
    assert ["trimmed" in m.text for m in some.messages if m.role == "tool"] == [True] * 3
    many = policy(said(30), budget)
    cleared = [
        m.text == result_clearing_and_cache_ttl.CLEARED_PLACEHOLDER
        for m in many.messages
        if m.role == "tool"
    ]
    assert cleared[0]
    assert not cleared[-1]
    assert int(many.chars.sum()) < 0.5 * 80_000


def test_fa28_results_with_images_are_skipped():
    """Fased skips results with images; OpenClaw protects only the last ones"""
    c = call("shot")
    seen = Message(
        role="tool",
        id="i",
        call_id=c.tool_calls[0].id,
        tool="shot",
        parts=(Text("x" * 9000), Attachment()),
    )
    h = shown(user(), c, seen, assistant(), assistant(), assistant())
    assert result_clearing_and_cache_ttl.CacheTtl(**TTL)(h, SMALL) is h


def test_modes_and_shares_are_checked():
    for bad in (
        {"mode": "safe"},
        {"context_pruning": "on"},
        {"max_history_share": 0.95},
        {"identifier_policy": "none"},
    ):
        with pytest.raises(BadArguments):
            presets.fased(**bad)
