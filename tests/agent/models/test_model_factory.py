"""Models by name."""

from __future__ import annotations

import pytest
from builders import assistant, session, user

from ctxkit import tokens
from ctxkit.agent import Agent, make_model
from ctxkit.errors import BadArguments
from ctxkit.presets import preset
from ctxkit.session import Session

COUNT = tokens.get_counter("chars/4")


def get(name, **more):
    return make_model(name, counter=COUNT, clock=lambda: 0.0, **more)


def test_the_default_is_scripted_and_says_so():
    for name in ("scripted", "scripted/tour"):
        made = get(name)
        assert made.name == "scripted/tour"
        assert made.notice == "scripted model: no LLM was called"


def test_a_session_of_the_users_own_is_a_script():
    own = {"mine": session(user("a"), assistant("b"))}
    assert get("scripted/mine", scripts=own).reply(0, 0).text == "b"


def test_a_provider_knows_its_limit_without_being_imported():
    made = get("anthropic/claude-sonnet-4-5")
    assert made.context_window == 200_000
    assert made.notice == ""
    assert get("ollama_chat/qwen3:4b", num_ctx=8192, context_window=8192).context_window == 8192


@pytest.mark.parametrize("name", ["", "scripted/tuor"])
def test_what_does_not_exist_is_said(name):
    with pytest.raises(BadArguments):
        get(name)


def test_options_stand_after_a_providers_name():
    made = make_model(
        "ollama_chat/qwen3:4b?num_ctx=8192&api_base=http://localhost:1", counter=COUNT, clock=float
    )
    assert (made.name, made.context_window) == ("ollama_chat/qwen3:4b", 8192)
    assert made._options == {"num_ctx": 8192, "api_base": "http://localhost:1"}
    with pytest.raises(BadArguments, match="environment variable"):
        make_model("openai/x?api_key=abc", counter=COUNT, clock=float)


@pytest.mark.parametrize(
    ("name", "window"), [("anthropic/claude-sonnet-4-5", 200_000), ("openai/gpt-4o", 128_000)]
)
def test_faseds_rules_go_by_the_window_of_their_model(name, window):
    """D30: Rules that name no window hold their model to its own, from the catalogue."""
    made = Agent(Session(id="s"), model=get(name), rules=preset("fased"), clock=lambda: 0.0)
    assert made.gauge()[1] == window
