"""Unmarked falls of the prompt are rows of the compaction frame, and hollow on the chart."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, summarised, tool_call, usage, user

import ctxkit as ck
from ctxkit.tokens import find_prompt_drops, measure_sizes


def made(*prompts: int, models: tuple[str, ...] = ()):
    log = [user("go " * 100)]
    for i, n in enumerate(prompts):
        asked = tool_call()
        model = models[i] if models else "m"
        log += [
            assistant("word " * 50, asked, usage=usage(n), model=model),
            result("word " * 2_000, asked),
        ]
    return session(
        *log, assistant("end", usage=usage(prompts[-1] + 100), model=models[-1] if models else "m")
    )


def test_a_fall_is_a_row_of_its_own_kind():
    s = made(60_000, 63_000, 50_000, 53_000)
    row = ck.frame(s, per="compaction").iloc[0]
    assert (row["kind"], row["source"], row["call"]) == ("unmarked", "derived", 2)
    assert (row["tokens_before"], row["tokens_after"]) == (63_000, 50_000)
    assert "fell by 13,000 tokens without a mark" in row["reason"]
    assert row[["compaction", "messages_before", "summary_tokens", "cost_usd"]].isna().all()
    assert ck.frame(s, per="session")["unmarked_drops_n"].iloc[0] == 1
    assert ck.frame(s, per="session")["compactions_n"].iloc[0] == 0


@pytest.mark.parametrize(
    "prompts",
    [
        (60_000, 63_000, 62_500),
        (60_000, 63_000, 61_000, 62_000),
        (60_000, 900, 62_000),
        (1_000, 200, 300),
    ],
    ids=["noise", "a twentieth", "another kind of request", "too small"],
)
def test_noise_is_none(prompts):
    assert find_prompt_drops(made(*prompts)) == ()


def test_another_model_counts_otherwise_and_falls_not():
    assert find_prompt_drops(made(60_000, 40_000, 41_000, models=("a", "b", "b"))) == ()


def test_a_marked_compaction_explains_its_fall():
    first = [user("go"), assistant(usage=usage(60_000))]
    s = session(
        *first,
        summarised(first),
        user(),
        assistant(usage=usage(20_000)),
        user(),
        assistant(usage=usage(21_000)),
    )
    assert find_prompt_drops(s) == ()
    assert ck.frame(s, per="compaction")["kind"].tolist() == ["summarised"]


def test_the_remainder_stays_and_the_difference_is_its_own_part():
    s = made(40_000, 63_000, 50_000, 53_000)
    sized = measure_sizes(s)
    assert len(set(sized.fixed_at)) == 1
    assert sized.unsent_at[1] == 0 < sized.unsent_at[2]
    before, after = (ck.report(s, call) for call in (1, 2))
    assert before.groups()["not in the log"] == after.groups()["not in the log"]
    gone = next(p for p in after.parts if p.group == "dropped without a mark")
    assert (gone.tokens, gone.raw_tokens) == (0, sized.unsent_at[2])
    assert sum(p.tokens for p in after.parts) == 50_000


def test_what_came_later_beside_the_messages_is_its_own_part():
    first = [user("go"), assistant("yes", usage=usage(40_000))]
    s = session(*first, summarised(first, "s" * 400), user(), assistant(usage=usage(60_000)))
    groups = ck.report(s, 1).groups()
    assert groups["not in the log"] == measure_sizes(s).fixed
    assert groups["not in the log, since"] > 15_000
    assert sum(groups.values()) == 60_000


def test_it_is_hollow_on_the_chart_and_said():
    chart = ck.plots.growth(made(60_000, 63_000, 50_000, 53_000))
    hollow = [
        t
        for t in chart.to_plotly()["data"]
        if str(t.get("marker", {}).get("symbol", "")).endswith("-open")
    ]
    assert [t["name"] for t in hollow] == ["unmarked drops"]
    assert "Hollow ones are falls" in chart.caption
    assert 'fill="none" stroke=' in chart.to_html()


def test_a_replay_has_none():
    s = made(60_000, 63_000, 50_000, 53_000)
    assert find_prompt_drops(ck.replay(s, ck.presets.none())) == ()


def test_a_real_fall(real):
    """Codex dropped 7,883 tokens between two calls and said nothing."""
    s = ck.read(next((real / "codex").glob("rollout-2025-11-13*.jsonl")))
    rows = ck.frame(s, per="compaction")
    assert rows[["kind", "call", "tokens_before", "tokens_after"]].to_numpy().tolist() == [
        ["unmarked", 38, 34_160, 26_277]
    ]
