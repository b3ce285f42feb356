"""Whatever takes rules takes a preset's name, with settings or without, and suggests the nearest one."""

import pytest
from builders import assistant, session, step, user

import ctxkit as ck
from ctxkit.errors import UnknownPreset
from ctxkit.presets import names
from ctxkit.presets.naming import as_rules


@pytest.mark.parametrize("name", names())
def test_every_preset_by_its_name(name):
    try:
        made = ck.presets.preset(name)
    except ImportError as error:
        pytest.skip(str(error))
    assert as_rules(name).label == made.label
    assert as_rules(name.upper().replace("_", "-")).label == made.label


def test_a_name_may_have_settings_and_words_may_be_a_policy():
    assert as_rules("pi:reserve_tokens=8_000, keep_recent_tokens=500").reserve == 8000
    assert as_rules("clear:keep_last=3 | outputs:max_chars=300").label.startswith("clear")
    assert as_rules(ck.presets.pi).label == "pi"


@pytest.mark.parametrize("word", ["fuserat", "cler:keep_last=3", "fuserat | clear"])
def test_the_nearest_name_is_suggested(word):
    right = "clear" if word.startswith("cler") else "fuseraft"
    with pytest.raises(UnknownPreset, match=f"Did you mean '?{right}"):
        as_rules(word)


def test_replays_and_fits_take_names():
    talk = session(
        user("hello"), *(step("read_file", "x" * 4000) for _ in range(8)), assistant("ok")
    )
    assert ck.replay(talk, "pi").details["replay"]["rules"] == "pi"
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    assert ck.fit(messages, "pi") == messages
    with pytest.raises(UnknownPreset, match="fuseraft"):
        ck.compare(talk, "fuserat")
