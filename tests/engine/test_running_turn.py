"""A view filters what was said before a turn: in it, an agent sees what its own calls returned, wherever the turn is taken."""

from __future__ import annotations

import warnings

import pytest
from conftest import ALL, SEED, examples, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from late_result_messages import among_others, late_talk
from policy_contract import kinds
from random_sessions import Fours
from tool_loop_agents import (
    PRESETS,
    TURNS,
    Reads,
    answer,
    by_items,
    by_list,
    lived,
    preset_settings,
    taken_by,
    ticking,
    view_names,
    views,
)

import ctxkit as ck
from ctxkit._internal.setting_value_validation import COUNTS, FLAG, NAMES, NUMBER, WHOLE
from ctxkit.engine import run_rules
from ctxkit.errors import BadArguments
from ctxkit.policies import EarlierTurnsFilter, MessageLog, Rules
from ctxkit.presets import AGENT_CONFIG_KEYS
from ctxkit.session import OTHER_AGENT_KINDS, Message

VIEWS = dict(views())
TWO, THREE = [2] * TURNS, [3] * TURNS


def own_rows(messages):
    """The turn under way: from its last input on, or from where the reply before ended another."""
    first, speaker, began = len(messages), None, 0
    for row in range(len(messages) - 1, -1, -1):
        m = messages[row]
        if m.role == "assistant" and not m.tool_calls:
            break
        if m.role == "assistant" and m.agent:
            if m.agent != (speaker or m.agent):  # another agent's turn
                first = began
                break
            speaker, began = m.agent, row
        first = row
        if m.role == "user" and not m.kind:
            break
    return [r for r in range(first, len(messages)) if messages[r].kind not in OTHER_AGENT_KINDS]


def test_every_filter_of_history_is_held_to_the_contract():
    found = {type(view) for view in VIEWS.values()}
    assert kinds(EarlierTurnsFilter, "policies", "presets") <= found
    assert {kind.__name__ for kind in found} >= {
        "ResultShortening",
        "ReplyShortening",
        "PruneToolCalls",
    }


@pytest.mark.parametrize("name", VIEWS)
def test_under_any_view_a_turn_ends_when_its_answer_is_there(name):
    """in an own loop, in a context, in a live session, as a pruning and as a policy that keeps what it did"""
    view, place = VIEWS[name], [*VIEWS].index(name)
    forms = (Rules(pruning=view), Rules(view, lambda _history, _budget: True))
    for form, rules in enumerate(forms):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rules that compact at each call
            assert by_list(lambda said, rules=rules: ck.fit(said, rules)) == TWO
            assert by_list(ck.Context(rules).fit) == TWO
            assert by_items(lambda said, rules=rules: ck.fit(said, rules)) == THREE
            assert by_items(ck.Context(rules).fit) == THREE
        if ALL or (place + form + SEED) % 2:  # in the suite, one of the two forms lives
            assert lived(rules)[0] == TWO


@pytest.mark.parametrize("name", PRESETS)
def test_under_any_preset_a_turn_ends_when_its_answer_is_there(name):
    """and under any of its settings, unless a compaction or a pruning that is no view took the answer

    The preset as it is and one of its settings in the suite; all where everything is taken.
    """
    as_it_is, *others = preset_settings(name)
    assert not as_it_is[0]
    for chosen, rules in [as_it_is, *sample(others, 1)]:
        context = ck.Context(rules)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            listed = by_list(context.fit)
            try:
                live, session = lived(rules)
            except BadArguments:  # a window that cannot hold the tools
                continue
        assert chosen or listed == live == TWO
        kept = context.run.log.messages
        prompts = [kept[:n] for n in context.run.log.upto], [*before_calls(session)]
        for taken, shown, said in zip((listed, live), (context.run, session), prompts, strict=True):
            took = set().union(*(taken_by(shown, own_rows(m), c) for c, m in enumerate(said)))
            assert not took & view_names(rules), chosen
            if answer(0) in {m.text for m in said[-1]}:  # else it was cut before it was kept
                assert took or taken == TWO, chosen


def before_calls(session):
    """The messages that could be sent at each call of a session."""
    for call in session.calls:
        yield [e for e in session.path[: call.position] if isinstance(e, Message) and e.visible]


def team_settings():
    """Each key of a config that says what an agent is shown, with a value of its kind."""
    values = {FLAG: True, NAMES: ["A", "B"], WHOLE: 1, COUNTS: {"read_file": 1}, NUMBER: 0.5}
    for key in AGENT_CONFIG_KEYS:
        section, _, name = key.path.rpartition(".")
        if section == "ContextWindow":
            yield {"ContextWindow": {name: values[key.kind]}}
    window = {"MaxToolResultChars": 1, "MaxReplayChars": 1, "TextOnly": True, "MaxTailMessages": 1}
    yield {"ContextWindow": window}
    yield from ({"Isolation": name} for name in ("shared", "fresh", "fork"))
    yield from ({"Context": [{"Source": s}]} for s in ("own_history:1", "session_context"))


@pytest.mark.parametrize("keys", [*team_settings()], ids=str)
def test_in_a_team_a_turn_ends_when_its_answer_is_there(tmp_path, keys):
    for name in "AB":
        for turn in range(TURNS):
            (tmp_path / f"{name}{turn}.txt").write_text(answer(turn) + name)
    agents = [{"Name": name, **keys} for name in "AB"]
    body = {"Agents": agents, "Termination": {"MaxIterations": 2 * TURNS}}
    opened = {"root": tmp_path, "folder": tmp_path / "team", "clock": ticking(), "seed": "7"}
    with ck.team(body, models={name: Reads(name) for name in "AB"}, **opened) as team:
        team.run("Read your files.")
        for name in "AB":
            calls = team.sessions[name].session.calls
            assert [c.turn for c in calls] == sorted([*range(TURNS)] * 2)


def companies():
    """Each view alone and among other agents, with numbers or without; in the suite one of the three, by the seed."""
    for at, name in enumerate(VIEWS):
        every = [(name, others) for others in (None, False, True)]
        yield from every if ALL else [every[(at + SEED) % 3]]


@pytest.mark.parametrize(("name", "others"), [*companies()])
def test_in_a_replay_each_prompt_holds_all_that_its_turn_said(name, others):
    @settings(max_examples=examples(3))
    @given(st.integers(0, 10**6))
    def check(seed):
        said = late_talk(seed, 30, late=0.0)
        if others is not None:
            said = among_others(said, seed, numbered=others)
        done = run_rules(MessageLog.of(said, Fours()), Rules(pruning=VIEWS[name], counter=Fours()))
        for call in range(done.log.calls):
            own = own_rows(done.log.messages[: done.log.upto[call]])
            assert not taken_by(done, own, call)

    check()
