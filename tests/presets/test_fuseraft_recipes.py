"""fuseraft's recipes: its settings as they are in a file, and what they do to a long session."""

from __future__ import annotations

import pytest
from builders import assistant, step, user
from histories import CHARS, ROOM, shown, texts
from tool_loop_agents import TURNS, lived

import ctxkit as ck
from ctxkit.engine import RulesRun, advance_run
from ctxkit.errors import BadArguments
from ctxkit.policies import MessageLog, Rules, apply_policy
from ctxkit.presets import fuseraft

RECIPES = {
    "record": "Compaction: {TriggerTurnCount: 12, KeepRecentTurns: 3, Mode: intent}",
    "evidence": "Compaction: {TriggerTurnCount: 12, KeepRecentTurns: 3, Mode: lossless}",
    "window": "Compaction: {Mode: window, TokenBudget: 1500}",
    "reviewer": "Agents: [{Name: R, ContextWindow: {TextOnly: true, MaxTurnAge: 2}}]",
    "auditor": "Agents: [{Name: A, ContextWindow: {ExcludeAgents: [Dev], MaxTailMessages: 3}}]",
    "budget": "ContextBudget: {WarnAt: 2000, CutoverAt: 9000}\n"
    "Compaction: {TriggerTurnCount: 90, KeepRecentTurns: 3, Mode: intent}",
    "pairs": "Agents: [{Name: D, MaxInTurnToolPairs: 2}]",
}


def rows(n=40, reply="Done, and more. " * 4):
    """Return a task, so many reads with their results, and a reply to each."""
    out = [user("Go")]
    for k in range(n):
        out += [*step("read_file", f"line {k}\n" * 30, path=f"{k}.py"), assistant(reply)]
    return out


def loaded(tmp_path, name):
    path = tmp_path / "orchestration.yaml"
    path.write_text(f"{RECIPES[name]}\n")
    return ck.load_rules(path, system="fuseraft")


def ran(rules, messages):
    log = MessageLog.of(messages, CHARS, estimator=rules.estimator)
    return advance_run(RulesRun(log, rules), rules, log.calls)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.filterwarnings("ignore:.*Without a Compaction section:UserWarning")
def test_a_recipe_loads_as_it_stands_and_sends_less(tmp_path, name):
    """F120, F121, F122, F123, F124, F125, F127, F131: Each recipe is a file, and makes the last
    prompt a part of what it was.
    """
    rules, talk = loaded(tmp_path, name), rows()
    whole = ran(Rules(), talk).last_prompt().tokens
    done = ran(rules, talk)
    assert done.last_prompt().tokens < 0.55 * whole
    assert bool(done.compactions) == ("Compaction" in RECIPES[name])
    if name in ("record", "budget"):
        assert done.last_prompt().messages[0].text.startswith("[INTENT-DERIVED")
    if name == "budget":
        assert done.compactions[0].trigger == "cumulative_budget"


@pytest.mark.parametrize("name", ["reviewer", "auditor"])
@pytest.mark.filterwarnings("ignore:.*Without a Compaction section:UserWarning")
def test_an_agent_of_a_recipe_sees_what_its_own_tools_returned(tmp_path, name):
    """F29, F31, F123, F124: What is filtered is the history that a turn is handed; within the turn
    an agent works with the results that it asked for.
    """
    taken, session = lived(loaded(tmp_path, name))
    assert taken == [2] * TURNS
    shown = session.sent(-2)  # the last turn's first call
    assert not any(i.message.role == "tool" for i in shown)


def test_replies_that_are_sent_again_have_2000_characters():
    """F36: Where no length is set, a long reply is cut to 2,000 characters; None cuts none, and
    neither does the program.
    """
    long = shown(user("u"), assistant("Q" * 9000), user("v"))

    def kept(**settings):
        view = apply_policy(fuseraft(**settings).pruning, long, ROOM)
        return texts(view)[1].count("Q")

    assert kept() == kept(max_replay_chars=0) == 2000
    assert kept(max_replay_chars=3000) == 3000
    assert kept(max_replay_chars=None) == kept(quirks=True) == 9000


def test_a_warning_comes_before_the_cap_on_messages():
    """F34: Above the share of the cap it is left once; nothing is held back by it."""
    rules = fuseraft(max_tail_messages=20, context_cap_fraction=0.5)
    done = ran(rules, rows(8))
    assert done.warned == [(7, "message_cap")]  # call 7 is shown 12 messages: more than 10
    assert len(ran(rules, rows(3)).warned) == 0
    assert ran(fuseraft(max_tail_messages=20), rows(8)).warned == []
    with pytest.raises(BadArguments, match="between 0 and 1"):
        fuseraft(context_cap_fraction=1.5)


def test_pairs_are_counted_before_characters():
    """F96: With both, what the pairs leave is what the budget measures."""
    both = fuseraft(max_in_turn_tool_pairs=2, max_in_turn_context_tokens=500)
    assert [type(p).__name__ for p in both.pruning.parts][-3:-1] == [
        "KeepNewestToolPairs",
        "CharacterBudget",
    ]
    h = shown(rows(10))
    pairs = apply_policy(fuseraft(max_in_turn_tool_pairs=2).pruning, h, ROOM)
    assert texts(apply_policy(both.pruning, h, ROOM)) == texts(pairs)  # they fit: nothing is elided
    alone = apply_policy(fuseraft(max_in_turn_context_tokens=500).pruning, h, ROOM)
    assert texts(alone) != texts(pairs)


def test_a_long_turn_costs_by_its_calls_and_not_by_their_square():
    """F97: With a window of pairs twice the calls are sent little more than twice the tokens;
    without one, nearly four times.
    """

    def sent(n, **settings):
        calls = [user("Go"), *(m for k in range(n) for m in step("sh", "row\n" * 200, x=k))]
        done = ran(fuseraft(trigger_turn_count=999, **settings), calls)
        return sum(done.sizes(0, n))

    windowed = sent(80, max_in_turn_tool_pairs=4) / sent(40, max_in_turn_tool_pairs=4)
    assert 1.9 < windowed < 2.6
    assert sent(80) / sent(40) > 3.5


STATED = {
    "record": (
        {"Compaction": {"TriggerTurnCount": 40, "KeepRecentTurns": 8, "Mode": "intent"}},
        {"trigger_turn_count": 40, "keep_recent_turns": 8, "mode": "intent"},
    ),
    "evidence": (
        {"Compaction": {"TriggerTurnCount": 50, "KeepRecentTurns": 10, "Mode": "lossless"}},
        {"trigger_turn_count": 50, "keep_recent_turns": 10, "mode": "lossless"},
    ),
    "window": (
        {"Compaction": {"Mode": "window", "TokenBudget": 60_000}},
        {"mode": "window", "token_budget": 60_000},
    ),
    "reviewer": (
        {"Agents": [{"Name": "R", "ContextWindow": {"TextOnly": True, "MaxTurnAge": 3}}]},
        {"text_only": True, "max_turn_age": 3},
    ),
    "auditor": (
        {"Agents": [{"Name": "A", "ContextWindow": {"ExcludeAgents": ["Developer", "Tester"],
                                                    "MaxTailMessages": 20}}]},
        {"exclude_agents": ("Developer", "Tester"), "max_tail_messages": 20},
    ),
    "budget": (
        {"ContextBudget": {"WarnAt": 80_000, "CutoverAt": 120_000},
         "Compaction": {"TriggerTurnCount": 40, "KeepRecentTurns": 8, "Mode": "intent"}},
        {"warn_at": 80_000, "cutover_at": 120_000, "mode": "intent", "trigger_turn_count": 40},
    ),
    "pairs": (
        {"Agents": [{"Name": "D", "MaxInTurnToolPairs": 12}]},
        {"max_in_turn_tool_pairs": 12},
    ),
}  # fmt: skip
"""The recipes with the numbers that the document states, and what the rules hold of them."""


@pytest.mark.parametrize("name", STATED)
@pytest.mark.filterwarnings("ignore:.*Without a Compaction section:UserWarning")
def test_a_recipe_has_the_numbers_of_its_document(tmp_path, name):
    """F120, F121, F122, F123, F124, F125, F127: Each number that the document states is obeyed."""
    import json

    config, settings = STATED[name]
    path = tmp_path / "orchestration.json"
    path.write_text(json.dumps(config))
    rules = ck.load_rules(path, system="fuseraft")
    assert {k: rules.parameters[k] for k in settings} == settings


@pytest.mark.filterwarnings("ignore:.*Without a Compaction section:UserWarning")
def test_intents_have_fuserafts_heading_and_thrash_its_names(tmp_path):
    """F61, F75, F76, F85, F95: The document's own headings and keys, with its defaults."""
    talk = rows(60, reply="Done.")
    heading = ran(fuseraft(mode="intent"), talk).last_prompt().messages[0].text.splitlines()[0]
    assert heading.startswith("[INTENT-DERIVED RECONSTRUCTION — covers turns 1–")
    keys = {
        "AntiThrashWindow": 4,
        "AntiThrashMinSavingsRatio": 0.15,
        "MaxCharsPerHistoryMessage": 9,
    }
    path = tmp_path / "orchestration.yaml"
    lines = "".join(f"  {k}: {v}\n" for k, v in keys.items())
    path.write_text(f"Compaction:\n  TriggerTurnCount: 20\n  KeepRecentTurns: 5\n{lines}")
    held = ck.load_rules(path, system="fuseraft").parameters
    assert (held["anti_thrash_window"], held["anti_thrash_min_savings_ratio"]) == (4, 0.15)
    assert held["max_chars_per_history_message"] == 9
    path.write_text("Agents: [{Name: D, MaxInTurnContextTokens: 700}]\n")
    assert ck.load_rules(path, system="fuseraft").parameters["max_in_turn_context_tokens"] == 700
