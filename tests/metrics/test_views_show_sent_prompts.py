"""What reports, layers and frames show is what went out: nothing else, and all of it."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from builders import assistant, session, user
from conftest import examples, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from late_result_messages import late_talk
from random_sessions import by_chance, small

import ctxkit as ck
from ctxkit.metrics import count_groups_by_call
from ctxkit.policies import Rules
from ctxkit.presets import names, preset
from ctxkit.session import Session, Usage, group_edits
from ctxkit.tokens import message_token_counting


def sent_ids(session, call):
    return {i.message.id.split("~")[0] for i in session.sent(call) if i.message.kind != "fixed"}


def held(session, calls):
    """Hold report and layers of some calls against what was sent."""
    stacked = count_groups_by_call(session).groups
    for call in calls:
        items, made = session.sent(call), ck.report(session, call)
        messages = [i for i in items if i.message.kind != "fixed"]
        assert made.prompt_tokens == sum(p.tokens for p in made.parts)
        assert made.messages_n == len(messages)
        assert {c.id for c in made.contributors} <= {i.message.id for i in messages}
        assert {p.name for p in made.parts if p.group == "tool results"} <= {
            i.message.tool or "unknown tool" for i in messages if i.message.role == "tool"
        }
        at = call if call is not None else -1
        if call is not None:
            layer = {g: tokens[at] for g, tokens in stacked.items() if tokens[at]}
            assert layer == {g: n for g, n in made.groups().items() if n}
        if session.format == "replay":
            assert made.prompt_tokens == sum(i.tokens for i in items)
        assert all(p.raw_tokens >= 0 for p in made.parts)


def framed(session):
    """Hold the message frame against what the last call was sent, and the next one would be."""
    frame = ck.frame(session, per="message").set_index("id")
    for call, column in ((None, "shown_tokens"), (-1, "sent_tokens")):
        items = [i for i in session.sent(call) if i.row >= 0]
        said = [m for m in session.messages if m.visible]
        sent = {said[i.row].id: i for i in items}
        for name, tokens in frame[column].dropna().items():
            assert tokens == (
                message_token_counting.estimate_message_tokens(sent[name].message)
                if name in sent
                else 0
            )
        if call is None:
            assert set(frame.index[frame["visible"]]) == sent.keys()
            pruned = {name: i.changed_by for name, i in sent.items() if i.pruned}
            out = frame["pruned_by"].dropna().to_dict()
            assert pruned == {k: v for k, v in out.items() if k in sent}
            assert (frame["state"] == "pruned").tolist() == frame["pruned_by"].notna().tolist()
    last = max(i for i, m in enumerate(session.messages) if m.role == "assistant")
    assert frame["sent_tokens"].isna().tolist() == [i >= last for i in range(len(frame))]


@pytest.mark.parametrize("name", names())
def test_in_every_call_of_a_replay_sent_is_report_is_frame_is_score(name):
    """Each call by itself: its prompt in `sent`, report, chart, call frame and turn frame."""
    again = ck.replay(Session(id="t", log=tuple(late_talk(5, 25))), small(name))
    prompts = [sum(i.tokens for i in again.sent(call)) for call in range(len(again.calls))]
    assert [ck.report(again, call).prompt_tokens for call in range(len(prompts))] == prompts
    stacked = count_groups_by_call(again).groups.values()
    assert [sum(tokens[c] for tokens in stacked) for c in range(len(prompts))] == prompts
    assert ck.frame(again, per="call")["prompt_tokens"].tolist() == prompts
    assert ck.frame(again, per="turn")["turn_input_tokens"].sum() == sum(prompts)
    assert ck.score(again, loss=False)["prompt_tokens"] == sum(prompts)
    assert ck.score(again, loss=False)["peak_tokens"] == max(prompts)


@pytest.mark.parametrize("name", names())
def test_a_report_names_what_was_sent_and_adds_up_to_it(name):
    @settings(max_examples=examples(2))
    @given(st.integers(0, 10**6), st.booleans())
    def check(seed, late):
        talk = Session(id="t", log=tuple(late_talk(seed, 25))) if late else by_chance(seed, 25)
        again = ck.replay(talk, small(name))
        held(again, (0, 7, 15, -1, None))
        framed(again)

    check()


IDLE = {"none", "anthropic_compact"}
"""One does nothing; one asks for 50,000 tokens at least, which these talks do not have."""


@pytest.mark.parametrize("name", names())
def test_each_preset_but_none_changes_something_there(name):
    """Else the test above would hold whatever a preset did."""
    late = [Session(id="t", log=tuple(late_talk(seed, 25))) for seed in range(3)]
    runs = [ck.replay(talk, small(name)) for talk in (*late, *(by_chance(n, 25) for n in range(3)))]
    pruned = [any(i.pruned for call in (15, -1) for i in run.sent(call)) for run in runs]
    changed = [bool(run.edits) or p for run, p in zip(runs, pruned, strict=True)]
    assert sum(changed) >= 4 if name not in IDLE else not any(changed)


@pytest.fixture(scope="module")
def talks(real):
    found = sample(list(ck.read_all(real, progress=False)), 2)
    return [s for s in found if s.calls]


@pytest.mark.parametrize("name", names())
def test_so_do_reports_of_real_sessions(talks, name):
    for talk in talks:
        again = ck.replay(talk, name)
        held(again, (0, len(talk.calls) // 2, -1, None))
        framed(again)


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_so_do_reports_of_all_real_sessions(real, name):
    shown = 0
    for talk in ck.read_all(real, progress=False):
        if talk.calls:
            try:
                again = ck.replay(talk, name)
            except ck.BadArguments:  # its fixed part alone is over the window of these rules
                continue
            held(again, (0, len(talk.calls) // 2, -1, None))
            framed(again)
            shown += 1
    assert shown > 200


def test_one_text_in_the_place_of_two_messages_counts_as_what_each_was():
    def quiet(history, _budget):
        return history.shorten(np.flatnonzero(history.role("user"))[:-1], "(said)", "quiet")

    talk = [user("go " * 50), assistant("a"), user("mind " * 50, kind="injected"), assistant("b")]
    again = ck.replay(session(*talk, user("on"), assistant("c")), Rules(pruning=quiet))
    made = [ck.report(again, call).groups() for call in range(3)]
    stacked = count_groups_by_call(again).groups
    assert [{g: n[c] for g, n in stacked.items() if n[c]} for c in range(3)] == made
    assert made[2]["injected"] > 0 < made[2]["user"]


@pytest.mark.parametrize("known", [False, True])
def test_a_replay_says_whose_figures_its_prompts_are(known):
    def told(n):
        return Usage(input_tokens=n, output_tokens=9)

    replies = [assistant("b " * 90, usage=told(900)), assistant("c", usage=told(1_100))]
    talk = session(user("go"), replies[0], user("on"), replies[1])
    again = ck.replay(talk, Rules(), last_usage=known)
    made = ck.report(again, 1)
    assert (made.prompt_tokens, made.prompt_source) == (1_100, "recorded" if known else "derived")
    assert sum(p.tokens for p in made.parts) == 1_100
    sent = sum(i.tokens for i in again.sent(1))
    assert 900 < sent < 1_100 if known else sent == 1_100  # what was known before the bill


def test_a_diff_has_the_sizes_that_were_sent():
    rules = preset("ai", context_window=9000).but(reserve=1000)
    again = ck.replay(Session(id="t", log=tuple(late_talk(5, 60))), rules)
    found = group_edits(again)
    assert found
    for cut in found:
        call = sum(c.position < cut.position for c in again.calls)
        after = again.sent(call if call < len(again.calls) else None)
        fixed = sum(i.tokens for i in after if i.message.kind == "fixed")
        diff = ck.plots.diff(again, cut.number)
        [shown] = re.findall(r"→ ([\d,]+) tokens in messages", diff.caption)
        came = sum(i.tokens for i in after if i.message.kind == "ResultExcerpts" and i.row < 0)
        assert int(shown.replace(",", "")) == sum(i.tokens for i in after) - fixed - came


def test_four_times_the_calls_are_not_shown_in_much_more_than_four_times_the_time():
    def spent(calls):
        again = ck.replay(by_chance(1, calls), "swe_agent_mask")
        start = time.thread_time()
        count_groups_by_call(again)
        ck.frame(again, per="message")
        ck.report(again)
        return time.thread_time() - start

    few, many = (min(spent(calls) for _ in range(2)) for calls in (500, 2000))
    assert many < 10 * few  # 16 times where each call goes through all that was before it
