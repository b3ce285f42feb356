"""OpenClaw: the cases of its safeguard and of its pruning."""

import pytest
from builders import assistant, result, step, user
from histories import shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.messages import Image, Message, Text
from ctxkit.presets._openclaw import recent
from ctxkit.tokens import PI, Room

SMALL = Room(1000, 0, PI)
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
    rows = [m for i in range(4) for m in (user("u"), assistant("a"), result(str(i) * 20_000, tool="exec"))]
    assert [len(t) for t in pruned(*rows, keep_last_assistants=3)[2::3]] == [9, 20_000, 20_000, 20_000]


def test_nothing_before_the_first_user_message_is_touched():
    rows = [result("x" * 900, tool="read"), user("u"), assistant("a"), result("y" * 900, tool="exec"), assistant("b")]
    assert [len(t) for t in pruned(*rows, keep_last_assistants=1)] == [900, 1, 1, 9, 1]


def test_a_denied_tool_is_never_pruned():
    """allow ex*, deny exec: nothing"""
    rows = [user("u"), result("y" * 900, tool="exec"), assistant("b")]
    assert pruned(*rows, keep_last_assistants=1, tools_allow=("ex*",), tools_deny=("exec",))[1] == "y" * 900


def test_a_long_result_is_trimmed_to_head_and_tail():
    """two parts are one text: head 7, tail 3 of it"""
    two = Message(role="tool", id="t", call_id="c", tool="exec", parts=(Text("AAAAA"), Text("B" * 494)))
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


def test_only_the_last_three_images_are_protected():
    rows = [user("u")] + [
        Message(role="tool", id=f"i{n}", call_id=f"c{n}", tool="see", parts=(Text("z" * 900), Image("image/png")))
        for n in range(4)
    ]
    assert [len(t) for t in pruned(*rows, assistant("b"), keep_last_assistants=1)][1:5] == [9, 900, 900, 900]


def test_without_pruning_nothing_is():
    assert presets.openclaw().pruning is None


def test_the_newest_turns_of_what_goes_follow_word_for_word():
    """recentTurnsPreserve 3, 600 characters each"""
    gone = [m for i in range(5) for m in (user(f"ask {i}"), assistant("r" * 700))]
    lines = recent(gone, 3).strip().splitlines()
    assert lines[1] == "- user: ask 2"
    assert len(lines) == 7
    assert max(map(len, lines)) < 620


def test_reserve_and_cut_are_pis_with_a_floor():
    rules = presets.openclaw(context_window=200_000)
    assert (rules.reserve, presets.openclaw(reserve_tokens=40_000).reserve) == (20_000, 40_000)
    rules = presets.openclaw(keep_recent_tokens=500, summariser=lambda p: "S")
    h = shown([user("x" * 400), *step("exec", "y" * 400)] * 6, counter=PI)
    text = texts(rules.policy(h, Room(200_000, 20_000, PI)))[0]
    assert text.startswith("S")
    assert "## Recent turns preserved verbatim" in text


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
