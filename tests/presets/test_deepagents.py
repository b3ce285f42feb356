"""deepagents: long arguments first, then a summary; the defaults of a model whose window is known."""

import pytest
from builders import step, user
from histories import CHARS, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(10_000, 0, CHARS)
PREFIX = (
    "Here is a summary of the conversation to date; all of it is kept in a file under"
    " /conversation_history/, to be read where a detail is needed:\n\n"
)


def writes(n, chars, tool="write_file"):
    return [s for i in range(n) for s in step(tool, "ok", path=f"/{i}", content="x" * chars)]


def test_long_arguments_of_old_calls_are_cut_to_20_characters():
    h = shown(user("go"), writes(3, 8000))
    new = presets.deepagents(trigger=("tokens", 9000)).policy(h, ROOM)
    sizes = [m.tool_calls[0].arguments["content"] for m in new.messages if m.tool_calls]
    assert sizes[0] == "x" * 20 + "...(argument truncated)"
    assert len(sizes[-1]) in (8000, 43)


def test_other_tools_keep_their_arguments():
    """only write_file, edit_file and execute"""
    h = shown(user("go"), writes(3, 8000, "notes"))
    assert presets.deepagents(trigger=("tokens", 9000)).policy(h, ROOM) is h


def test_a_summary_only_where_that_was_not_enough():
    rules = presets.deepagents(summariser=lambda p: "SUMMARY")
    h = shown(user("go"), writes(5, 7000))
    assert rules.trigger(h, ROOM)
    assert "summary" not in [m.role for m in rules.policy(h, ROOM).messages]
    h = shown(user("go"), [s for i in range(9) for s in step("bash", "y" * 4000, command=str(i))])
    assert texts(rules.policy(h, ROOM))[0] == PREFIX + "SUMMARY"


def test_a_tenth_of_the_window_stays():
    rules = presets.deepagents(summariser=lambda p: "S")
    h = shown([user("u" * 400) for _ in range(90)])
    assert 9 <= len(rules.policy(h, ROOM)) <= 11


@pytest.mark.parametrize(("tokens", "due"), [(8500, True), (8499, False)])
def test_it_is_due_at_085_of_the_window(tokens, due):
    rules = presets.deepagents()
    assert rules.trigger(shown(user("abcd" * tokens)), ROOM) is due
    with pytest.raises(BadArguments):
        presets.deepagents(trigger=None)
