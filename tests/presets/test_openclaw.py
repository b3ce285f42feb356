"""OpenClaw: the cases of its safeguard and of its pruning."""

import msgspec
import pytest
from builders import assistant, result, step, user
from histories import shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.policies import History, MessageLog
from ctxkit.presets.systems.openclaw import make_recent_turns_section
from ctxkit.session import Attachment, Message, Text, get_plain_text
from ctxkit.tokens import PI, ContextBudget

SMALL = ContextBudget(1000, 0, PI)
ZERO = {
    "pruning": "cache-ttl",
    "ttl_seconds": 0,
    "soft_trim_ratio": 0,
    "hard_clear_ratio": 0,
    "min_prunable_tool_chars": 0,
    "hard_clear_placeholder": "[cleared]",
}


def pruned(*rows, **settings):
    rules = presets.openclaw(**{**ZERO, **settings})
    return texts(rules.pruning(shown(*rows, counter=PI), SMALL))


def test_only_results_before_the_last_assistants_are_cleared():
    """four turns of 20,000 characters, keep 3: the first is cleared, the rest intact"""
    rows = [
        m
        for i in range(4)
        for m in (user("u"), assistant("a"), result(str(i) * 20_000, tool="exec"))
    ]
    assert [len(t) for t in pruned(*rows, keep_last_assistants=3)[2::3]] == [
        9,
        20_000,
        20_000,
        20_000,
    ]


def test_nothing_before_the_first_user_message_is_touched():
    rows = [
        result("x" * 900, tool="read"),
        user("u"),
        assistant("a"),
        result("y" * 900, tool="exec"),
        assistant("b"),
    ]
    assert [len(t) for t in pruned(*rows, keep_last_assistants=1)] == [900, 1, 1, 9, 1]


def test_a_denied_tool_is_never_pruned():
    """allow ex*, deny exec: nothing"""
    rows = [user("u"), result("y" * 900, tool="exec"), assistant("b")]
    assert (
        pruned(*rows, keep_last_assistants=1, tools_allow=("ex*",), tools_deny=("exec",))[1]
        == "y" * 900
    )


def test_a_long_result_is_trimmed_to_head_and_tail():
    """two parts are one text: head 7, tail 3 of it"""
    two = Message(
        role="tool", id="t", call_id="c", tool="exec", parts=(Text("AAAAA"), Text("B" * 494))
    )
    got = pruned(
        user("u"),
        two,
        assistant("b"),
        keep_last_assistants=1,
        hard_clear=False,
        soft_trim_max_chars=5,
        soft_trim_head_chars=7,
        soft_trim_tail_chars=3,
    )
    assert got[1].startswith(
        "AAAAA\nB\n...\nBBB\n\n[Tool result trimmed: kept first 7 chars and last 3 chars of 500 chars.]"
    )


def test_an_older_commit_protects_the_last_three_images():
    rows = [user("u")] + [
        Message(
            role="tool",
            id=f"i{n}",
            call_id=f"c{n}",
            tool="see",
            parts=(Text("z" * 900), Attachment("image/png")),
        )
        for n in range(4)
    ]
    older = pruned(*rows, assistant("b"), version="2026.3", keep_last_assistants=1)
    assert [len(t) for t in older][1:5] == [9, 900, 900, 900]
    assert [len(t) for t in pruned(*rows, assistant("b"), keep_last_assistants=1)][1:5] == [9] * 4


def test_without_pruning_nothing_is():
    assert presets.openclaw().pruning is None


def test_the_newest_turns_of_what_goes_follow_word_for_word():
    """recentTurnsPreserve 3, 600 characters each"""
    gone = [m for i in range(5) for m in (user(f"ask {i}"), assistant("r" * 700))]
    lines = make_recent_turns_section(gone, 3).strip().splitlines()
    assert lines[1] == "- user: ask 2"
    assert len(lines) == 7
    assert max(map(len, lines)) < 620


def test_reserve_and_cut_are_pis_with_a_floor():
    rules = presets.openclaw(context_window=200_000)
    assert (rules.reserve, presets.openclaw(reserve_tokens=40_000).reserve) == (20_000, 40_000)
    rules = presets.openclaw(keep_recent_tokens=500, summariser=lambda p: "S")
    h = shown([user("x" * 400), *step("exec", "y" * 400)] * 6, counter=PI)
    text = texts(rules.policy(h, ContextBudget(200_000, 20_000, PI)))[0]
    assert text.startswith("S")
    assert "## Recent turns preserved verbatim" in text


def test_at_most_a_quarter_of_the_window_is_held_free():
    """agent-compaction-constants: 48,000 holds 12,000 free, not 20,000"""
    given = {"context_window": 48_000, "keep_recent_tokens": 1000}
    assert presets.openclaw(**given).reserve == 12_000
    assert presets.openclaw(version="2026.3", **given).reserve == 20_000


def test_history_is_set_apart_only_where_the_rest_is_over_its_share():
    """158,000 tokens of history in a window of 200,000: nothing is set apart, two parts"""
    said = [user("x" * 4 * 1580) for _ in range(100)]
    sizes = [1580] * 100
    new, old = (presets.openclaw(version=v).policy for v in ("2026.9.6", "2026.3"))
    assert [len(new.portions(said, sizes, others)) for others in (20_000, 120_000)] == [2, 2]
    assert [len(old.portions(said, sizes, others)) for others in (20_000, 120_000)] == [4, 4]
    assert len(new.portions(said, sizes, 120_001)) == 4


def test_turns_that_follow_word_for_word_are_not_summarised():
    """splitPreservedRecentTurns: the last three turns leave what is summarised"""
    asked = []
    for version in ("2026.9.6", "2026.3"):
        rules = presets.openclaw(
            version=version,
            keep_recent_tokens=100,
            summariser=lambda p: asked.append(len(p.messages)) or "S",
        )
        rules.policy(
            shown([user("x" * 400), assistant("y" * 400)] * 8, counter=PI),
            ContextBudget(200_000, 20_000, PI),
        )
    assert asked[2] - asked[0] == 6


def test_pruning_persists():
    """a result that was trimmed after a pause is sent trimmed at the next warm call, too"""
    said = [
        user("u"),
        *step("exec", "y" * 30_000),
        assistant("a"),
        user("v"),
        assistant("b"),
        user("w"),
        assistant("c"),
    ]
    times = [0, 1, 2, 3, 400, 401, 402, 403]
    rows = [msgspec.structs.replace(m, time=float(t)) for m, t in zip(said, times, strict=True)]
    for version, last in (("2026.9.6", 3087), ("2026.3", 30_000)):
        rules = presets.openclaw(
            version=version,
            pruning="cache-ttl",
            context_window=24_000,
            keep_recent_tokens=100,
            keep_last_assistants=1,
        )
        log = MessageLog.of(rows, PI)
        sent = [
            max(
                len(get_plain_text(m))
                for m in rules.pruning(History.start(log, c), ContextBudget(24_000, 0, PI)).messages
            )
            for c in range(1, log.calls)
        ]
        assert sent[-2:] == [3087, last], version  # five digits in the note


def test_what_is_cleared_already_does_not_make_more_be_cleared():
    """the least size of results is asked of those that are not cleared yet"""
    rows = [user("u"), *(m for _ in range(20) for m in step("exec", "y" * 3000))]
    settings = {**ZERO, "keep_last_assistants": 1, "hard_clear_ratio": 0.5}
    rules = presets.openclaw(**{**settings, "min_prunable_tool_chars": 19_000})
    log, budget = MessageLog.of(rows, PI), ContextBudget(10_000, 0, PI)
    sent = [
        texts(rules.pruning(History.start(log, c), budget)).count("[cleared]")
        for c in range(1, log.calls)
    ]
    cleared, wanted = 0, []
    for n in range(1, log.calls):  # results so far; the last reply's own is left alone
        chars = (n - cleared) * 3000 + cleared * 9 + n * 10 + 1
        while (n - 1 - cleared) * 3000 >= 19_000 and chars >= 20_000:
            more = -(-(chars - 19_999) // 2991)
            cleared, chars = cleared + more, chars - 2991 * more
        wanted.append(cleared)
    assert wanted[-1] > 4
    assert sent == wanted


@pytest.mark.parametrize(
    "bad",
    [
        {"pruning": "always"},
        {"max_history_share": 0.95},
        {"recent_turns_preserve": 13},
        {"quality_guard_max_retries": 4},
    ],
)
def test_what_openclaw_refuses_is_refused(bad):
    with pytest.raises(BadArguments):
        presets.openclaw(**bad)
