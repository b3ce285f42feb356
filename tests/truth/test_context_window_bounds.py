"""A window is at most what an automatic compaction proves and at least what a prompt reached."""

from __future__ import annotations

import msgspec
import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.engine import find_context_window
from ctxkit.tokens import (
    LIKE_WINDOWS_KEY,
    get_context_window,
    share_window_evidence,
)

MILLION = "claude-opus-4-6"


def made(model: str, *prompts: int, cut: int | None = None, trigger: str = "auto", **more):
    log = []
    for n in prompts:
        log += [user("go"), assistant("yes", usage=usage(n), model=model)]
    if cut is not None:
        log += [
            summarised(log[:2], tokens_before=cut, trigger=trigger),
            user(),
            assistant(usage=usage(50_000), model=model),
        ]
    return session(*log, **more)


def test_an_automatic_compaction_refutes_a_larger_window():
    s = made(MILLION, 150_000, 167_000, cut=167_500)
    row = ck.frame(s, per="call").iloc[0]
    assert (row["context_limit"], row["limit_source"]) == (200_000, "derived")
    assert find_context_window(s) == 200_000
    assert "at most 200,000" in get_context_window(s, MILLION).note


def test_its_own_preset_fires_where_the_record_did():
    s = made(MILLION, *range(100_000, 190_000, 4_000), cut=167_500)
    events = ck.replay(s, ck.presets.claude_code()).details["replay"]["events"]
    assert events[0]["tokens"] == 168_000  # with the table's million it is never due


def test_a_default_of_the_program_is_not_the_maximum_of_the_model():
    """Claude Code gives Opus 4.6 200,000 tokens unless the log shows more."""
    short = made(MILLION, 150_000, format="claude-code")
    found = get_context_window(short, MILLION)
    assert (found.tokens, found.source) == (200_000, "derived")
    assert "200,000 tokens in claude-code" in found.note
    assert find_context_window(short) == 200_000
    long = made(MILLION, 150_000, 284_000, format="claude-code")
    assert get_context_window(long, MILLION) == (1_000_000, "derived", None)
    for model, log in (
        (MILLION, "pi"),
        (f"{MILLION}[1m]", "claude-code"),
        ("claude-opus-5", "claude-code"),
    ):
        assert find_context_window(made(model, 150_000, format=log)) == 1_000_000


def test_a_prompt_refutes_a_smaller_window():
    s = made("claude-opus-4-5", 286_513, 534_859)
    assert find_context_window(s) == 1_000_000
    assert "at least 534,859" in get_context_window(s, "claude-opus-4-5").note


@pytest.mark.parametrize("more", [{"trigger": "manual", "cut": 120_000}, {"cut": 700_000}, {}])
def test_what_proves_nothing_changes_nothing(more):
    found = get_context_window(made(MILLION, 150_000, **more), MILLION)
    assert (found.tokens, found.source, found.note) == (1_000_000, "derived", None)


def test_results_that_are_cleared_by_themselves_prove_nothing():
    s = made(MILLION, 50_000, cut=50_000)
    small = msgspec.structs.replace(s.edits[0], kind="replaced")
    s = msgspec.structs.replace(s, log=tuple(small if e is s.edits[0] else e for e in s.log))
    assert find_context_window(s) == 1_000_000


def test_a_window_that_stays_what_the_table_says_needs_no_word():
    s = made("claude-opus-4-5", 50_000, cut=50_000)
    assert get_context_window(s, "claude-opus-4-5") == (200_000, "derived", None)


def test_what_the_log_says_is_taken_as_it_is():
    s = made(MILLION, 150_000, cut=150_000, context_window=258_400)
    assert get_context_window(s, MILLION)[:2] == (258_400, "recorded")


def test_a_model_of_another_maker_has_the_next_window_that_is_sold():
    assert find_context_window(made("gpt-4o", 150_000)) == 200_000


def test_a_real_log_that_compacted_at_120000(real):
    s = ck.read(real / "claude-code/agent-sessions-event-zoo.jsonl")
    frame = ck.frame(s, per="call")
    limits = frame["context_limit"][frame["model"] == "claude-sonnet-5"]
    assert set(limits) == {200_000}  # the table says a million; this one compacted by itself
    assert "by its own compaction (at 120,000)" in " ".join(s.notes)


def test_real_windows_hold_all_their_prompts(real):
    for s in ck.read_all(real, progress=False):
        frame = ck.frame(s, per="call")
        told = frame[frame["limit_source"] == "derived"]
        assert (told["prompt_tokens"].fillna(0) <= told["context_limit"]).all(), s.id


def like(version, *prompts, tool="claude-code", **more):
    return msgspec.structs.replace(made(MILLION, *prompts, **more), version=version, product=tool)


def windows(*sessions):
    return [get_context_window(s, MILLION) for s in share_window_evidence(sessions)]


def test_compactions_of_like_sessions_bound_the_window_and_say_so():
    short = like("2.1.20", 60_000)
    first, second = windows(short, like("2.1.20", 150_000, cut=176_000))
    assert (first.tokens, second.tokens) == (200_000, 200_000)
    assert (
        "1 like sessions of the same tool, version and model (the largest at 176,000)" in first.note
    )
    assert "its own compaction" in second.note
    (informed, _) = share_window_evidence([short, like("2.1.20", 150_000, cut=176_000)])
    assert first.note in informed.notes
    assert find_context_window(informed) == 200_000


@pytest.mark.parametrize(
    "other",
    [
        like("2.1.21", 150_000, cut=176_000),
        like("2.1.20", 150_000, cut=176_000, tool="pi"),
        like("2.1.20", 150_000, cut=176_000, trigger="manual"),
        like("2.1.20", 150_000, cut=700_000),
        like("2.1.20", 150_000, 400_000, cut=176_000),
    ],
)
def test_unlike_or_contradicting_sessions_change_nothing(other):
    assert windows(like("2.1.20", 60_000), other)[0] == (1_000_000, "derived", None)


def test_an_own_prompt_beyond_it_wins():
    first = windows(like("2.1.20", 400_000), like("2.1.20", 150_000, cut=176_000))[0]
    assert first.tokens == 1_000_000


def test_a_default_of_the_tool_is_confirmed_by_like_sessions():
    """3,029 calls of one repository: every automatic compaction came below 177,000."""
    model = "claude-opus-4-6"
    prompts = [((60_000,), {}), ((150_000,), {"cut": 176_500})]
    sessions = [made(model, *p, format="claude-code", **more) for p, more in prompts]
    first = get_context_window(share_window_evidence(sessions)[0], model)
    assert first.tokens == 200_000
    assert "200,000 tokens in claude-code by the automatic compactions of 1 like" in first.note


@pytest.mark.parametrize("stated", [7, {MILLION: "x"}, {MILLION: [1]}, {MILLION: [-5, 1]}])
def test_damaged_evidence_is_left_alone(stated):
    s = msgspec.structs.replace(like("2.1.20", 60_000), details={LIKE_WINDOWS_KEY: stated})
    assert get_context_window(s, MILLION).tokens == 1_000_000
