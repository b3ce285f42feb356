"""The controls of rules: a setting is turned, and everything that is no setting stays as it was."""

from __future__ import annotations

import json

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.policies import guards
from ctxkit.widgets import make_setting_controls


@pytest.fixture
def talk():
    return session(user(), assistant(usage=usage(10)), context_window=100_000)


def test_a_loaded_files_agent_and_syntax_come_through_a_turned_control(talk, tmp_path):
    file = tmp_path / "team.json"
    agents = [{"Name": "Coder", "ContextWindow": {"MaxTailMessages": 9}}, {"Name": "Judge"}]
    file.write_text(
        json.dumps({"Orchestration": {"Compaction": {"TriggerTurnCount": 30}, "Agents": agents}})
    )
    turned = make_setting_controls(ck.load_rules(file, agent="Coder"), talk, {}).make(
        {"max_tail_messages": 7}
    )
    (agent,) = json.loads(turned.to_config())["Orchestration"]["Agents"]
    assert (agent["Name"], agent["ContextWindow"]["MaxTailMessages"]) == ("Coder", 7)


def test_what_a_file_turns_off_stays_off(talk, tmp_path):
    file = tmp_path / "team.json"
    file.write_text(
        json.dumps(
            {"Orchestration": {"Agents": [{"Name": "A", "ContextWindow": {"TextOnly": True}}]}}
        )
    )
    with pytest.warns(UserWarning, match="Without a Compaction section"):
        rules = ck.load_rules(file)
    assert rules.auto is False
    assert make_setting_controls(rules, talk, {}).make({"trigger_turn_count": 40}).auto is False


def test_what_stands_beside_the_parameters_stays(talk):
    rules = ck.presets.pi().but(cache_life=3600.0, counter="chars/4")
    turned = make_setting_controls(rules, talk, {}).make({"keep_recent_tokens": 5000})
    assert (turned.cache_life, turned.counter) == (3600.0, rules.counter)
    assert turned.parameters["keep_recent_tokens"] == 5000


def test_a_changed_part_is_not_lost_to_the_preset(talk):
    rules = ck.presets.pi().but(guards=(guards.CompactionCountLimit(2),))
    found = make_setting_controls(rules, talk, {})
    assert "n" in [
        k.name for k in found.every
    ]  # the guard's own setting; the preset would know nothing of it
    assert found.make({"n": 5}).guards == (guards.CompactionCountLimit(5),)


def test_no_control_turned_gives_the_same_rules(talk):
    for name in ck.presets.names():
        rules = ck.presets.preset(name)
        try:
            made = make_setting_controls(rules, talk, {}).make({})
        except ck.BadArguments:
            continue  # nothing numeric to turn
        assert made == rules, name
