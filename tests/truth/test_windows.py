"""A window is at most what an automatic compaction proves and at least what a prompt reached."""

from __future__ import annotations

import msgspec
import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.engine.replay import find_context_window
from ctxkit.tokens.context_windows import get_context_window

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
