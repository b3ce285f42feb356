"""Estimated outputs are lower bounds: never above the growth of the next prompt, never against a stop reason."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path  # noqa: TC003  pytest reads it

import pytest
from builders import assistant, result, session, tool_call, usage, user
from conftest import sample, sessions_folder
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.formats.zero_usage_and_lost_start_repairs import ESTIMATE_ERROR, repair_session

FOLDER = sessions_folder()
FILES = sorted(
    p for name in ("claude-code", "pi") for p in (FOLDER / name).rglob("*.jsonl")
) if FOLDER else []  # fmt: skip
PLAN = "Change the parser so that it reads what is there. " * 400


def growths(s):
    """For each call the growth of the next prompt of its agent and model, where nothing was cut between."""
    calls = s.calls
    for call, following in pairwise(calls):
        between = s.path[call.position : following.position]
        same = call.message.model == following.message.model and call.agent == following.agent
        sizes = [
            c.message.usage.prompt_tokens if c.message.usage else None for c in (call, following)
        ]
        if (
            same
            and all(sizes)
            and sizes[1] > sizes[0]
            and not any(type(e) is ck.Edit for e in between)
        ):
            yield call.message, sizes[1] - sizes[0]


def written(plan_tokens_written, growth, *, stop="tool_use", text=PLAN):
    asked = assistant(
        "", tool_call("ExitPlanMode", plan=text), stop=stop, model="claude-opus-4-5",
        usage=usage(10, read=20_000, output=plan_tokens_written),
    )  # fmt: skip
    after = usage(10, read=20_000 + growth, output=400)
    done = assistant("word " * 300, usage=after, model="claude-opus-4-5", stop="end_turn")
    return session(user("Plan."), asked, result("ok", asked), done, format="claude-code")


def test_a_plan_that_the_program_put_in_is_not_output():
    """Of `ExitPlanMode` the log bears the whole plan; stop reason and growth say that 120 tokens were written."""
    s = repair_session(written(120, 300))
    reply = s.calls[0].message
    assert (reply.usage.output_tokens, reply.details.get("output_source")) == (120, None)
    assert not any("estimated" in n for n in s.notes)


def test_the_plan_may_come_back_in_the_result():
    log = written(120, 5_600)
    asked, answer = log.log[1], log.log[2]
    s = repair_session(
        replace(log, log=(log.log[0], asked, result(PLAN, asked, id=answer.id), log.log[3]))
    )
    assert s.calls[0].message.usage.output_tokens == 120


def test_a_piece_of_a_stream_is_estimated_and_says_that_it_is_a_lower_bound():
    s = repair_session(written(3, 5_600, stop=None))
    reply = s.calls[0].message
    assert reply.details["output_source"] == "estimated"
    assert 4_000 < reply.usage.output_tokens <= 5_600
    note = next(n for n in s.notes if "estimated" in n)
    assert "at least" in note
    assert ESTIMATE_ERROR in note


@given(
    growth=st.integers(1, 20_000),
    output=st.integers(1, 200),
    stop=st.sampled_from(["tool_use", None]),
)
def test_no_estimate_is_above_the_growth(growth, output, stop):
    reply = repair_session(written(output, growth, stop=stop)).calls[0].message
    assert reply.usage.output_tokens <= max(growth, output)
    assert reply.usage.output_tokens >= output


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_a_cut_stream_of_pi_is_estimated_from_its_text(stop):
    """Pi leaves a reply that was cut out of the next prompt, so the growth says nothing of it."""
    cut = assistant(
        "word " * 200,
        usage=usage(10, read=20_000, output=5),
        stop=stop,
        model="claude-opus-4-5",
        is_error=True,
    )
    after = assistant(
        "Yes.", usage=usage(20, read=20_000, output=4), model="claude-opus-4-5", stop="stop"
    )
    for format_name in ("pi", "claude-code"):
        s = repair_session(session(user(), cut, user("Go on."), after, format=format_name))
        reply = s.calls[0].message
        assert reply.details["output_source"] == "estimated"
        assert reply.usage.output_tokens >= 200


@pytest.mark.parametrize("file", sample(FILES, 6) or [None], ids=lambda p: p and p.name)
def test_real_estimates_fit_the_growth(file: Path, real: Path):
    for s in ck.read_all(file, progress=False):
        for reply, growth in growths(s):
            if reply.details.get("output_source") == "estimated" and reply.stop != "aborted":
                assert reply.usage.output_tokens <= growth
