"""tiancaiamao/ai: the GO cases."""

import pytest
from builders import assistant, call, result, step, tool_call, user
from histories import ROOM, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.policies import ARCHIVED_STUB, OldResultsDigest, ResultExcerpts
from ctxkit.policies.texts import message_content_and_truncation, summary_prompts_and_audits
from ctxkit.presets.systems.ai import AiSummary, get_effective_limit, parse_tool_summary_strategy
from ctxkit.session import Attachment, Message, Text, Thinking
from ctxkit.tokens import AI

LIMITS = {"max_lines": 2000, "max_chars": 204_800, "max_bytes": 51_200, "mode": "head_tail"}


def due(rules, *messages):
    h = shown(*messages, counter=AI)
    return rules.trigger(h, rules.context_budget(h.log))


@pytest.mark.parametrize(
    ("window", "limit", "keep"),
    [
        (128_000, 111_616, 20_000),
        (64_000, 47_616, 20_000),
        (32_000, 15_616, 7808),
        (16_000, 8000, 4000),
        (0, 8000, 4000),
    ],
)
def test_effective_limits(window, limit, keep):
    assert get_effective_limit(window)[0] == limit
    assert presets.ai(context_window=window).policy.keep_tokens == keep


def test_there_is_no_limit_of_tokens_where_nothing_sets_one():
    """A13: Neither a window nor MaxTokens: no number of tokens makes a compaction due."""
    assert get_effective_limit(0, max_tokens=0) == (0, "none")
    assert not due(presets.ai(max_tokens=0, context_window=0), user("x" * 4_000_000))


def test_go1_the_newest_that_fit_are_kept():
    """five messages of one token, budget 2: three old, the last two recent"""
    rows = [user("aaaa"), assistant("bbbb"), user("cccc"), assistant("dddd"), user("eeee")]
    asked = []
    policy = AiSummary(
        keep_tokens=2,
        prefix="",
        must_shrink=False,
        summariser=lambda p: asked.append(len(p.messages)) or "S",
    )
    assert texts(policy(shown(rows, counter=AI), ROOM)) == ["S", "dddd", "eeee"]
    assert asked == [3]


def test_go2_messages_count_where_there_is_no_token_limit():
    """max_messages 10, no window, no max_tokens: 5 are not due, 15 are"""
    rules = presets.ai(max_messages=10, max_tokens=0, context_window=0)
    assert not due(rules, *(user("x") for _ in range(5)))
    assert due(rules, *(user("x") for _ in range(15)))


def test_go3_tokens_count_before_messages():
    """max_tokens 50, one message of 400 characters: 100 >= 50"""
    assert due(presets.ai(max_tokens=50, context_window=0), user("x" * 400))
    assert due(presets.ai(max_tokens=100, context_window=0), user("x" * 400))
    assert not due(presets.ai(max_tokens=101, context_window=0), user("x" * 400))


@pytest.mark.parametrize(
    "settings",
    [{"context_window": 20_000}, {"context_window": 0, "max_tokens": 3_616}],
    ids=["window less the reserve of 16,384", "MaxTokens"],
)
def test_a_prompt_of_just_the_window_less_the_reserve_is_due(settings):
    """A11: A prompt as large as the limit triggers it; one that is a token smaller does not."""
    rules = presets.ai(**settings)
    assert due(rules, user("x" * 4 * 3_616))
    assert not due(rules, user("x" * 4 * 3_615))


def test_go4_auto_compact_off():
    """auto_compact false: never by itself"""
    assert presets.ai(auto_compact=False).auto is False


def test_go5_what_the_agent_does_not_see_weighs_nothing():
    """an invisible message of 8000 characters leaves the estimate unchanged"""
    assert (
        shown(user("hi"), user("x" * 8000, visible=False), counter=AI).tokens
        == shown(user("hi"), counter=AI).tokens
    )


def test_go6_old_results_go_behind_a_digest():
    """cutoff 1 of two results: the first is archived, the last message is a digest for the agent only"""
    h = shown(user("u"), step("read", "old " * 400), step("bash", "new"))
    new = OldResultsDigest(keep_last=1)(h, ROOM).messages
    assert [m.kind for m in new if m.role == "tool"] == ["tool_result_archived", ""]
    assert new[2].text == ARCHIVED_STUB
    assert (new[-1].kind, new[-1].role, new[-1].visible, new[-1].details["user_visible"]) == (
        "tool_summary",
        "user",
        True,
        False,
    )
    assert new[-1].text == f"[Compaction tool digest]\n- read (ok): {('old ' * 50).strip()}"


def test_go7_results_are_cut_for_the_summariser():
    """5000 characters become 1821 with the mark in the middle; an empty result says so"""
    text = summary_prompts_and_audits.format_tool_result_for_ai_preset("a" * 5000)
    assert len(text) == 1821
    assert "... (truncated) ..." in text
    assert summary_prompts_and_audits.format_tool_result_for_ai_preset("") == "(empty output)"


@pytest.mark.parametrize(
    ("number", "text", "limits", "expected"),
    [
        (
            8,
            "line1\nline2\nline3",
            {"max_lines": 2},
            "line1\nline2\n\n[tool output truncated: showing 2/3 lines, 11B/17B bytes, 11/17 chars]",
        ),
        (
            9,
            "l1\nl2\nl3\nl4\nl5\nl6",
            {"max_lines": 4},
            "l1\nl2\n... [truncated 2 lines] ...\nl5\nl6\n\n[tool output truncated: showing 5/6 lines, 39B/17B bytes, 39/17 chars]",
        ),
        (
            10,
            "123456789",
            {"max_bytes": 5},
            "12345\n\n[tool output truncated: showing 1/1 lines, 5B/9B bytes, 5/9 chars]",
        ),
        (
            11,
            "héllo wörld",
            {"max_bytes": 2},
            "h\n\n[tool output truncated: showing 1/1 lines, 1B/13B bytes, 1/11 chars]",
        ),
    ],
)
def test_go8_go9_go10_go11_output_is_cut(number, text, limits, expected):
    """lines with both ends, bytes without splitting a character, and a notice of what is shown"""
    assert message_content_and_truncation.truncate_output(text, **LIMITS | limits) == expected


def test_go12_many_lines_with_the_defaults():
    """2501 lines: a mark for 501, and 2001/2501 lines, 8.7KB/11.1KB, 8922/11397 characters"""
    out = message_content_and_truncation.truncate_output(
        "\n".join(map(str, range(1, 2502))), **LIMITS
    )
    assert "... [truncated 501 lines] ..." in out
    assert out.endswith("showing 2001/2501 lines, 8.7KB/11.1KB bytes, 8922/11397 chars]")


def test_go13_one_long_line_with_the_defaults():
    """60000 characters are cut to 50 KiB"""
    assert message_content_and_truncation.truncate_output("x" * 60_000, **LIMITS).endswith(
        "showing 1/1 lines, 50.0KB/58.6KB bytes, 51200/60000 chars]"
    )


def test_go15_estimates_of_single_messages():
    """text 3, thinking of 8 characters 2, image 1200, a call without arguments 1, nothing 0"""
    parts = [
        (Text("hello world"),),
        (Thinking("12345678"),),
        (Attachment(),),
        (tool_call("x"),),
        (),
    ]
    assert [AI.message(Message(role="assistant", parts=p)) for p in parts] == [3, 2, 1200, 1, 0]


def test_go16_strategies():
    """empty and unknown words mean llm"""
    words = ["", "llm", "LLM", "heuristic", "off", "unknown"]
    assert [parse_tool_summary_strategy(w) for w in words] == [
        "llm",
        "llm",
        "llm",
        "heuristic",
        "off",
        "llm",
    ]


def test_the_programs_session_path_keeps_whole_turns():
    h = shown(
        [
            user("aaaa"),
            assistant("bbbb" * 9),
            user("cccc"),
            assistant("dddd" * 9),
            assistant("eeee"),
        ],
        counter=AI,
    )
    policy = AiSummary(keep_tokens=3, quirks=True, prefix="", summariser=lambda p: "S")
    assert texts(policy(h, ROOM))[:2] == ["S", "cccc"]
    giant = shown(user("u"), *(assistant("x" * 40) for _ in range(9)), counter=AI)
    assert policy(giant, ROOM) is giant


def test_a_call_is_never_parted_from_its_result():
    c = call("bash")
    h = shown(user("x" * 400), c, result("y" * 400, c), user("z" * 40), counter=AI)
    new = AiSummary(keep_tokens=111, prefix="", summariser=lambda p: "S")(h, ROOM)
    assert [m.role for m in new.messages] == ["summary", "user"]


def test_old_results_are_excerpts_in_the_loop():
    h = shown(user("u"), *(step("bash", "row\n" * 500) for _ in range(3)))
    new = ResultExcerpts(keep_last=2)(h, ROOM)
    assert new.messages[2].text.startswith("[Tool output summary]\nTool: bash\nCall ID: ")
    assert ResultExcerpts(strategy="off")(h, ROOM) is h
    assert ResultExcerpts(keep_last=2)(new, ROOM) is new


def test_settings_that_cannot_work():
    with pytest.raises(BadArguments):
        presets.ai(context_window=-1)
    with pytest.raises(BadArguments):
        presets.ai(truncate_mode="tail")
