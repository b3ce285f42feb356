"""Rules written as their system's config file read back as the same rules."""

import json
import pickle
import tomllib
import warnings
from pathlib import Path

import pytest
import yaml
from conftest import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit._internal import setting_value_validation as value_kinds
from ctxkit.errors import BadArguments
from ctxkit.presets import SYSTEM_CONFIG_FILES, fuseraft_config
from ctxkit.presets.systems import (
    ai,
    codex,
    fased,
    gemini,
    openclaw,
    opencode,
    pi,
    pulse_coder,
)
from ctxkit.presets.systems.openclaw import RETIRED_SETTINGS

SAMPLES = sorted((Path(__file__).parent / "configs").iterdir())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
KINDS = {
    value_kinds.WHOLE: st.integers(0, 9000),
    value_kinds.POSITIVE: st.integers(200_000, 900_000),
    value_kinds.NUMBER: st.floats(0.1, 0.9),
    value_kinds.FLAG: st.booleans(),
    value_kinds.TEXT: TEXT,
    value_kinds.PROMPT: TEXT,
    value_kinds.NAMES: NAMES,
    value_kinds.COUNTS: st.dictionaries(TEXT, st.integers(0, 9000), max_size=3),
    value_kinds.DURATION: st.floats(0, 1e6) | st.integers(0, 9000),
}
SPECIAL = {
    "quality_retries": st.integers(0, 3),
    "quality_guard_max_retries": st.integers(0, 3),
    "recent_turns_preserve": st.integers(0, 12),
    "keep_recent_turns": st.integers(1, 20),
    "trigger_turn_count": st.integers(21, 99),
    "warn_at": st.integers(0, 4000),
    "cutover_at": st.just(0) | st.integers(4001, 9000),
    "max_tail_messages": st.integers(0, 99),
    "routing_signals": st.lists(TEXT.filter(bool), max_size=3, unique=True).map(tuple),
    "variant": st.sampled_from(["classic", "pipeline"]),
    "pruning": st.sampled_from([None, "cache-ttl"]),
    "max_tokens": st.integers(70_000, 200_000),
    "limit_input": st.integers(300_000, 400_000),
    "limit_output": st.integers(1000, 64_000),
    "tail_turns": st.integers(0, 9),
    "compact_target": st.integers(1, 199_999),
    "soft_trim_head_chars": st.integers(0, 900),
}
KEYS = {
    "fuseraft": (
        *fuseraft_config.CONFIG_KEYS,
        *fuseraft_config.AGENT_CONFIG_KEYS,
        fuseraft_config.WINDOW_KEY,
    ),
    "fased": (*fased.CONFIG_TABLE.keys, fased.GUARD_RETRIES_KEY),
    "openclaw": openclaw.CONFIG_TABLE.keys,
    "ai": ai.CONFIG_TABLE.keys,
    "pi": pi.CONFIG_TABLE.keys,
    "gemini": gemini.CONFIG_TABLE.keys,
    "opencode": (*opencode.CONFIG_TABLE.keys, *opencode.LIMIT_TABLE.keys),
    "codex": codex.CONFIG_TABLE.keys,
    "pulse_coder": pulse_coder.CONFIG_TABLE.keys,
}


def settings_of(system):
    known = ck.presets.preset(system).parameters
    by_kind = {k.parameter: k.kind for k in KEYS[system]}
    drawn = {}
    for name in SYSTEM_CONFIG_FILES[system].keys:
        if name in known:
            kind = by_kind.get(name)
            words = None if kind is None else kind.words.removeprefix("one of ").split(", ")
            drawn[name] = (
                SPECIAL.get(name) if name in SPECIAL else KINDS.get(kind, st.sampled_from(words))
            )
    return st.fixed_dictionaries({}, optional=drawn)


def reread(text, path, **kwargs):
    path.write_bytes(text.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ck.load_rules(path, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("configs")


@pytest.mark.parametrize("system", list(SYSTEM_CONFIG_FILES))
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_what_a_preset_says_reads_back_as_the_same(system, folder, data):
    try:
        given = data.draw(settings_of(system))
        if system == "openclaw" and given.keys() & set(RETIRED_SETTINGS):
            given["version"] = "2026.3"  # today's deletes these keys
        rules = ck.presets.preset(system, **given)
    except BadArguments:
        reject()  # too many of these, and Hypothesis fails the test
    again = reread(rules.to_config(), folder / SYSTEM_CONFIG_FILES[system].file_name)
    assert dict(again.parameters) == dict(rules.parameters)
    assert again == rules


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_a_loaded_file_reads_back_as_the_same(path, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules = ck.load_rules(path)
    again = reread(rules.to_config(), tmp_path / path.name)
    assert (again.parameters, again.name, again.auto) == (rules.parameters, rules.name, rules.auto)


def test_the_text_has_the_systems_own_syntax_and_spelling():
    text = ck.presets.fuseraft(mode="window", token_budget=70_000, text_only=True).to_config()
    written = yaml.safe_load(text)["Orchestration"]
    assert (written["Compaction"]["Mode"], written["Compaction"]["TokenBudget"]) == (
        "window",
        70_000,
    )
    assert written["Agents"][0]["ContextWindow"]["TextOnly"] is True
    assert (
        json.loads(ck.presets.pi(reserve_tokens=5).to_config())["compaction"]["reserveTokens"] == 5
    )
    claw = json.loads(ck.presets.fased(ttl_seconds=90, quality_retries=2).to_config())["agents"][
        "defaults"
    ]
    assert (claw["contextPruning"]["ttl"], claw["compaction"]["qualityGuard"]["maxRetries"]) == (
        "90s",
        2,
    )
    assert tomllib.loads(ck.presets.codex(context_window=9000).to_config()) == {
        "model_context_window": 9000
    }


def test_secrets_and_other_parts_of_a_file_are_not_written():
    rules = ck.load_rules(Path(__file__).parent / "configs/opencode.jsonc")
    assert "not-to-be-written" not in rules.to_config()


def test_an_agents_settings_are_written_under_its_name():
    path = Path(__file__).parent / "configs/dev-team-structured.yaml"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules = ck.load_rules(path, agent="tester")
    agent = yaml.safe_load(rules.to_config())["Orchestration"]["Agents"][0]
    assert (agent["Name"], agent["MaxInTurnToolPairs"]) == ("Tester", 12)


def test_what_the_file_has_no_key_for_is_said():
    with pytest.warns(UserWarning, match="no key for context_window, quirks"):
        ck.presets.pi(context_window=90_000, quirks=True).to_config()


def test_rules_changed_by_hand_are_not_written_as_if_they_were_not():
    rules = ck.presets.fased()
    assert rules.but(name="mine", cache_life=3600.0).to_config() == rules.to_config()
    for other in (rules.but(window=100_000), rules | ck.presets.pi(), rules.but(trigger=None)):
        with pytest.raises(BadArguments, match="as a setting of the preset"):
            other.to_config()


def test_a_summariser_of_ones_own_is_named_and_not_written():
    with pytest.warns(UserWarning, match=r"no key for summariser"):
        text = ck.presets.fased(summariser=len).to_config()
    assert text == ck.presets.fased().to_config()


def test_rules_of_no_system_say_that_they_have_no_file():
    for rules in (
        ck.presets.none(),
        ck.policies.Rules(policy=lambda history, _budget: history),
    ):
        with pytest.raises(BadArguments, match="no system with a config file"):
            rules.to_config()


@pytest.mark.parametrize("system", list(SYSTEM_CONFIG_FILES))
def test_rules_that_can_be_written_stay_equal_and_picklable(system):
    rules = ck.presets.preset(system)
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    assert again.to_config() == rules.to_config()


@pytest.mark.parametrize(
    "name",
    ["a\x85b", "a\u2028b", "a\u2029b", "two\nlines", "# no comment", "- no list", "no", "1e3"],
)
def test_odd_names_come_back_from_yaml(name, tmp_path):
    rules = ck.presets.fuseraft(exclude_agents=(name,))
    file = tmp_path / "team.yaml"
    file.write_bytes(rules.to_config().encode())
    assert ck.load_rules(file).parameters["exclude_agents"] == (name,)
