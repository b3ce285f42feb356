"""Whatever takes rules takes a preset's name, with settings or without, and suggests the nearest one."""

import pytest
from builders import assistant, session, step, user

import ctxkit as ck
from ctxkit.errors import UnknownName
from ctxkit.presets import names, resolve_rules


@pytest.mark.parametrize("name", names())
def test_every_preset_by_its_name(name):
    try:
        made = ck.presets.preset(name)
    except ImportError as error:
        pytest.skip(str(error))
    assert resolve_rules(name).label == made.label
    assert resolve_rules(name.upper().replace("_", "-")).label == made.label


def test_a_name_may_have_settings_and_words_may_be_a_policy():
    assert resolve_rules("pi:reserve_tokens=8_000, keep_recent_tokens=500").reserve == 8000
    assert resolve_rules("clear:keep_last=3 | outputs:max_chars=300").label.startswith("clear")
    assert resolve_rules(ck.presets.pi).label == "pi"


def test_settings_of_presets_are_written_as_those_of_policies():
    """lists joined by a plus, tables by colons, commas inside double quotes"""
    rules = resolve_rules("anthropic_clear_tools:exclude_tools=bash+read*, keep=1")
    assert rules.pruning.exclude == ("bash", "read*")
    assert rules.pruning.keep == 1
    assert resolve_rules('pi:custom_instructions="names, paths"').parameters[
        "custom_instructions"
    ] == ("names, paths")
    words = "fuseraft:tool_result_char_overrides=grep:20000+bash:500"
    overrides = resolve_rules(words).parameters["tool_result_char_overrides"]
    assert overrides == {"grep": 20_000, "bash": 500}


@pytest.mark.parametrize("word", ["fuserat", "cler:keep_last=3", "fuserat | clear"])
def test_the_nearest_name_is_suggested(word):
    right = "clear" if word.startswith("cler") else "fuseraft"
    with pytest.raises(UnknownName, match=f"Did you mean '?{right}"):
        resolve_rules(word)


def test_replays_and_fits_take_names():
    talk = session(
        user("hello"), *(step("read_file", "x" * 4000) for _ in range(8)), assistant("ok")
    )
    assert ck.replay(talk, "pi").details["replay"]["rules"] == "pi"
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    assert ck.fit(messages, "pi") == messages
    with pytest.raises(UnknownName, match="fuseraft"):
        ck.compare(talk, "fuserat")
