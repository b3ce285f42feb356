"""Settings of a session: stored under a seal, read back, and compared when it is opened again."""

from __future__ import annotations

import pytest
from builders import assistant, session, user
from msgspec.structs import replace
from stand_in_models import Says

from ctxkit.agent import Limits, make_unsealed_session_settings
from ctxkit.agent.session_settings_seal_and_changes import (
    SETTINGS_KEY,
    describe_settings_changes,
    describe_tool_changes,
    list_answering_models,
    read_session_settings,
    refuse_scripted_model_after_real,
    restore_limits,
    with_session_settings,
)
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, Summary
from ctxkit.session import ToolSchema


def make_settings(manager=None, limits=None, **words):
    return make_unsealed_session_settings(words, manager or Rules(), limits or Limits())


def make_model(name="own/model", notice=""):
    model = Says()
    model.name, model.notice = name, notice
    return model


def test_settings_are_read_back_under_the_seal_alone():
    settings = make_settings(model="m", limits=Limits(calls=7, cost_usd=0.5))
    assert settings.seal == ""
    assert settings.limits == {"calls": 7, "cost_usd": 0.5}  # those that are not the defaults
    stored = with_session_settings(session(id="one", details={"other": 1}), settings)
    assert set(stored.details) == {"other", SETTINGS_KEY}
    restored = read_session_settings(stored)
    assert len(restored.seal) == 64
    assert replace(restored, seal="") == settings
    assert restore_limits(restored) == Limits(calls=7, cost_usd=0.5)
    # of another session, edited, without a seal, of another form, and none
    assert read_session_settings(replace(stored, id="two")) is None
    details = stored.details[SETTINGS_KEY]
    for changed in ({**details, "limits": {"calls": 8}}, {**details, "seal": ""},
                    {**details, "words": 5}, "no settings", None):  # fmt: skip
        assert read_session_settings(replace(stored, details={SETTINGS_KEY: changed})) is None
    assert read_session_settings(session()) is None
    assert read_session_settings(None) is None


def test_limits_that_are_not_valid_any_more_are_the_defaults():
    settings = make_settings()
    assert settings.limits == {}
    assert restore_limits(None) == restore_limits(settings) == Limits()
    assert restore_limits(replace(settings, limits={"calls": 0})) == Limits()
    assert restore_limits(replace(settings, limits={"calls": "x"})) == Limits()
    assert restore_limits(replace(settings, limits={"gone": 1, "calls": 9})) == Limits(calls=9)


def test_the_rules_are_stored_as_their_text_without_addresses_and_secrets(monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-secret-1234")
    settings = make_settings(Rules(Summary(summariser=lambda _: "")), root="/x/planted-secret-1234")
    assert "Summary" in settings.rules
    assert " at 0x" not in settings.rules
    assert settings.words == {"root": "/x/[redacted]"}
    long = make_settings(Rules(Summary(prefix="x" * 9_000)))
    assert len(long.rules) == 4_000


def test_the_models_that_answered():
    log = [user(), assistant(model="a"), assistant(model="b"), assistant(), user(model="u"),
           assistant(model="a"), assistant(model="c", error="down")]  # fmt: skip
    assert list_answering_models(session(*log)) == ("a", "b")
    assert list_answering_models(None) == ()


def test_a_script_does_not_continue_the_session_of_a_model():
    script = make_model("scripted/tour", "scripted: no model is asked")
    real = session(user(), assistant(model="scripted/tour"), assistant(model="own/model"))
    with pytest.raises(
        BadArguments, match=r"^Session 'main' is a conversation with own/model, and scripted/tour"
    ):
        refuse_scripted_model_after_real(real, script, "main")
    refuse_scripted_model_after_real(real, make_model(), "main")
    refuse_scripted_model_after_real(session(assistant(model="scripted/tour")), script, "main")
    refuse_scripted_model_after_real(None, script, "main")


def test_what_has_changed_is_noted():
    at = session(user(), assistant(model="own/model"))

    def describe(before, after, at=at, model=None):
        return describe_settings_changes(at, before, after, model or make_model())

    one = make_settings(model="m", rules="", via="", summary_model="s")
    assert describe(one, one) == []
    assert describe(one, replace(one, words={**one.words, "model": "n", "rules": "pi"})) == [
        "Note: model: m before, n from here on.",
        "Note: rules: none before, pi from here on.",
    ]
    assert describe(one, replace(one, words={**one.words, "summary_model": ""})) == [
        "Note: summary model: s before, none from here on."
    ]
    assert describe(one, replace(one, words={**one.words, "new": "x"})) == []  # it had no value
    # the name of another program's agent is known once it runs
    unnamed = replace(one, words={"model": "", "via": "program"})
    assert describe(unnamed, replace(one, words={"model": "n", "via": "program"})) == []
    assert describe(unnamed, replace(one, words={"model": "n", "via": ""})) == [
        "Note: model: none before, n from here on.",
        "Note: via: program before, none from here on.",
    ]
    assert describe(
        replace(one, words={"rules": "pi"}), replace(one, words={"rules": "pi"}, rules="other")
    ) == ["Note: its rules have the same name as before (pi), but they have changed."]
    (note,) = describe(None, one)
    assert note.startswith("Note: the session holds no settings that you have sealed: what is not")
    assert describe(None, one, at=session()) == []
    scripted = session(assistant(model="own/model"), assistant(model="scripted/tour"))
    assert describe(one, one, at=scripted) == [
        "Note: a script wrote what was answered so far (scripted/tour); from here on own/model answers."
    ]
    assert describe(one, one, at=scripted, model=make_model("scripted/x", "scripted")) == []


def test_tools_that_differ_are_named():
    def make_tool(name, description=""):
        return ToolSchema(name=name, description=description, parameters={})

    before = session(tools=(make_tool("a"), make_tool("b"), make_tool("c"), make_tool("d")))
    after = session(tools=(make_tool("e"), make_tool("d"), make_tool("c", "Otherwise.")))
    assert describe_tool_changes(before, after) == [
        "Note: its tools are not those it had: a, b (gone); e (new); c (described otherwise)."
    ]
    assert describe_tool_changes(before, before) == []
