"""`ck.fit` and `ck.Context` send nothing that the provider is documented to refuse, and say so."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pandas as pd
import pytest
from conftest import sample
from late_result_messages import ids_again, late_talk

import ctxkit as ck
from ctxkit.engine import get_run_of_replay, run_replay
from ctxkit.engine.prompt_checks_and_repairs import (
    count_refused_calls,
    describe_provider_rules,
    find_refusals,
)
from ctxkit.engine.run_segments_and_prompts import FIXED_KIND, build_sent_items, list_sent_messages
from ctxkit.policies import FixedSizeSummariser, Rules, triggers
from ctxkit.presets import names, preset
from ctxkit.session import Message, Session, Text, Thinking, ToolCall

OPUS = "claude-opus-5-5"
CLEAR = Rules(pruning="clear:keep_last=3", name="clearing")


def reply(n, text="ok"):
    call = {"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    block = {"type": "thinking", "thinking": "hm", "signature": f"SIG{n}"}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": [block]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": text * 600},
    ]


def talk(n):
    first = [{"role": "system", "content": "Be exact."}, {"role": "user", "content": "Do it."}]
    return first + [m for i in range(n) for m in reply(i)]


def signatures(prompt):
    return [b["signature"] for m in prompt for b in m.get("thinking_blocks", ())]


def test_the_page_says_what_it_is_held_against():
    assert "changed_thinking" in describe_provider_rules(OPUS)
    assert "No provider's rule is known" in describe_provider_rules("llama-4")


@pytest.fixture(scope="module")
def billing():
    return ck.read(ck.samples.path("billing"))


@pytest.mark.parametrize("name", names())
def test_the_messages_of_a_prompt_are_those_of_its_items(billing, name):
    run = get_run_of_replay(ck.replay(billing, preset(name)))
    for call in {*range(run.begin, run.call, 23), *(c.call for c in run.compactions[:5])}:
        items = [i.message for i in build_sent_items(run, call) if i.message.kind != FIXED_KIND]
        assert list_sent_messages(run, call) == items


@pytest.mark.parametrize("model", [OPUS, None])
@pytest.mark.parametrize("rules", ["clear:keep_last=3", "pi"])
def test_signed_thinking_behind_a_change_is_left_out(rules, model):
    rules = rules if rules != "pi" else preset(
        "pi", context_window=3_000, reserve_tokens=500, keep_recent_tokens=900
    )  # fmt: skip
    with pytest.warns(UserWarning, match="Signed thinking was left out"):
        prompt = ck.fit(talk(12), rules, model=model)
    assert len(prompt) < 26 or any(
        m.get("content") != "ok" * 600 for m in prompt if m["role"] == "tool"
    )
    changed = next(i for i, (a, b) in enumerate(zip(prompt, talk(12), strict=False)) if a != b)
    assert signatures(prompt) == signatures(prompt[: changed + 1])


def test_a_model_that_takes_it_keeps_its_thinking():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prompt = ck.fit(talk(12), "clear:keep_last=3", model="claude-opus-4-8")
    assert len(signatures(prompt)) == 12


def test_a_context_forgets_thinking_once_and_keeps_what_comes_after():
    rules = Rules(
        lambda h, budget: h.summarise(h.safe(h.back(500)), "So far.", "full"),
        triggers.Above(1_500), counter="chars/4",
    )  # fmt: skip
    context, messages, sent = ck.Context(rules, model=OPUS), talk(0), []
    for n in range(12):
        sent.append(context.fit(messages))
        messages += reply(n)
    assert context.edits
    for before, now in pairwise(sent):
        kept = next(
            (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before)
        )
        if kept < len(before):
            assert not signatures(now[kept:]), "thinking of another conversation"
    assert signatures(sent[-1]) or signatures(sent[-2]), "what came after the last change stays"


def test_thinking_stays_where_the_api_wrote_the_summary():
    rules = preset("anthropic_compact", trigger=1_000, keep_turns=1, summariser=lambda p: "S")
    asked = [*talk(6), {"role": "user", "content": "Now that."}, *reply(9)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prompt = ck.fit(asked, rules.but(counter="chars/4"), model=OPUS)
    assert len(prompt) < len(asked)
    assert signatures(prompt) == ["SIG9"]


def test_marks_first_roles_and_missing_results_are_mended():
    marked = [
        {
            "role": "user",
            "content": [{"type": "text", "text": str(i), "cache_control": {"type": "ephemeral"}}],
        }
        for i in range(6)
    ]
    lost = [reply(0)[0], {"role": "user", "content": "Go on."}]
    with pytest.warns(UserWarning, match="Of 6 cache marks 4"):
        prompt = ck.fit([*lost, *marked], "none", model=OPUS)
    assert [m["role"] for m in prompt[:3]] == ["user", "assistant", "tool"]
    assert (
        sum(
            "cache_control" in b
            for m in prompt
            if isinstance(m["content"], list)
            for b in m["content"]
        )
        == 4
    )


def signed_session(n=30, model=OPUS):
    log = [Message(role="user", id="u", parts=(Text("Do it."),))]
    for i in range(n):
        parts = (Thinking("hm", f"SIG{i}"), ToolCall(f"c{i}", "ls", {}))
        log.append(Message(role="assistant", id=f"a{i}", parts=parts, model=model))
        log.append(Message(role="tool", id=f"t{i}", call_id=f"c{i}", parts=(Text("line\n" * 300),)))
    return Session(
        id="s", log=(*log, Message(role="assistant", id="z", parts=(Text("Done."),), model=model))
    )


def test_a_replay_sends_what_the_program_sends_and_marks_the_refusal():
    pi = preset("pi", context_window=6_000, reserve_tokens=500, keep_recent_tokens=900)
    made = ck.compare(signed_session(), [pi, CLEAR, "none"])
    refused = made.set_index("rules")["refused_calls_n"]
    assert refused["none"] == 0
    assert refused["pi"] > 0
    assert refused["clearing"] > 20
    old = ck.score(ck.replay(signed_session(model="claude-opus-4-8"), pi), loss=False)
    assert old["refused_calls_n"] == 0
    unknown = ck.score(ck.replay(signed_session(model="llama-4"), pi), loss=False)
    assert pd.isna(unknown["refused_calls_n"])


def recount_refused_calls(run, model):
    """Return the same count by the whole prompt of each call that follows a compaction."""
    checked = {run.begin, *(c.call for c in run.compactions)}
    n, is_refused = 0, False
    for call in range(run.begin, run.call):
        if call in checked:
            is_refused = bool(find_refusals(list_sent_messages(run, call), model))
        n += is_refused
    return n


@pytest.mark.parametrize("model", ["claude-opus-4-8", "gpt-6-sol"])
@pytest.mark.parametrize("seed", sample([*range(6)], 3))
def test_a_count_by_columns_is_the_count_by_whole_prompts(seed, model):
    counts = set()
    for messages in (late_talk(seed), ids_again(late_talk(seed)), late_talk(seed)[2:]):
        results, replies = ([i for i, m in enumerate(messages) if m.role == role][9:12]
                            for role in ("tool", "assistant"))  # fmt: skip
        for lost in ([], results, replies):
            log = [m for i, m in enumerate(messages) if i not in lost]
            session = Session(id="s", log=tuple(log), model=model)
            above, sized = triggers.Above(2_500), FixedSizeSummariser(300)
            for rules in (
                Rules("window:keep_tokens=1500", above),
                Rules("summary:keep_tokens=900", above),
                Rules("summary:keep_tokens=900", above, summariser=sized),
                "none",
            ):
                run = run_replay(session, rules)
                counts.add(count_refused_calls(session, run))
                assert count_refused_calls(session, run) == recount_refused_calls(run, model)
    assert len(counts) > 1


def test_a_run_that_begins_behind_a_first_reply_is_refused_where_the_user_must_begin():
    roles = ("system", "assistant", "user", "assistant", "user", "assistant")
    log = tuple(Message(role=role, id=f"m{n}", parts=(Text("x"),)) for n, role in enumerate(roles))
    for first, refused_n in ((0, 2), (2, 0)):  # with and without the first reply
        session = Session(id="s", log=log[:1] + log[first or 1 :], model="claude-opus-4-8")
        run = run_replay(session, "none")
        run.begin = len(session.calls) - 2
        assert count_refused_calls(session, run) == refused_n
        assert recount_refused_calls(run, session.model) == refused_n


def test_the_gate_fails_where_more_is_refused(tmp_path):
    from ctxkit.experiments.gates.regression_gate import _SCORE_FIGURES, FIGURES

    assert "refused_calls_n" in {f.name for f in _SCORE_FIGURES} < {f.name for f in FIGURES}
    path, s = tmp_path / "b.json", signed_session()
    assert ck.gate(s, [preset("none").but(name="clearing")], path, update=True).ok
    report = ck.gate(s, [CLEAR], path)
    assert "refused_calls_n" in {c.figure for c in report.worse}


def test_refusals_name_place_and_source():
    orphan = Message(role="tool", id="t", call_id="c9", parts=(Text("x"),))
    found = find_refusals([Message(role="user", id="u", parts=(Text("x"),)), orphan], "gpt-6-sol")
    assert [(r.rule, r.position) for r in found] == [("orphan_tool_result", 1)]
    assert found[0].source.startswith("https://")
    assert find_refusals([orphan], "llama-4") == []


@pytest.mark.parametrize("name", names())
def test_no_preset_makes_a_prompt_of_fit_that_is_refused(name):
    """Signed thinking is sent only behind the very messages that it was made behind."""
    messages, small = talk(14), preset(name).but(window=4_000, assumed=True, reserve=1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prompt = ck.fit(messages, small, model=OPUS)
    first = next(m for m in prompt if m["role"] != "system")
    assert first["role"] == "user"
    made = {b["signature"]: i for i, m in enumerate(messages) for b in m.get("thinking_blocks", ())}
    for i, message in enumerate(prompt):
        for block in message.get("thinking_blocks", ()):
            assert prompt[:i] == messages[: made[block["signature"]]]


def test_prompts_that_part_no_call_from_its_result_are_checked_without_their_messages(monkeypatch):
    """Each run of a sweep is checked: it is enough to look at columns of the log."""
    checked = []
    monkeypatch.setattr(f"{count_refused_calls.__module__}.find_refusals", lambda *a: checked.append(a))  # fmt: skip
    session = signed_session(model="gpt-6-sol")
    summary = Rules("summary:keep_tokens=900", summariser=FixedSizeSummariser(300))
    for rules in (summary, Rules("window:keep_tokens=1500")):
        run = run_replay(session, rules.but(trigger=triggers.Above(2_500)))
        assert len(run.compactions) > 2
        assert (count_refused_calls(session, run), checked) == (0, [])
