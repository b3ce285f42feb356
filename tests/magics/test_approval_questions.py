"""The question about a call: whatever is in the call can be seen in it, or it is not asked."""

from __future__ import annotations

import ast
import asyncio
import html
import json
import re
import string
import sys
import unicodedata
from pathlib import Path

import pytest
from _internal.test_formatting import TEXTS, read_back
from hypothesis import example, given
from hypothesis import strategies as st

import ctxkit
from ctxkit.agent import AcpReplyBuilder
from ctxkit.errors import BadArguments
from ctxkit.magics.turn_handle_and_approvals import (
    KEYS_WOULD_BE_SAVED_MESSAGE,
    MAX_CALL_CHARS,
    TurnHandle,
    ask_by_input,
    format_question_html,
    make_approval_question,
)
from ctxkit.session import ToolCall

PACKAGE = Path(ctxkit.__file__).parent
MARKER = "touch${IFS}X"
KEY = "sk-ant-api03-" + "Ab1" * 30
BODY = "lQdGBGX" + "Ab1+" * 14
BEGIN, END = (f"-----{word} PGP PRIVATE KEY BLOCK-----" for word in ("BEGIN", "END"))
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def called(command: str) -> ToolCall:
    return ToolCall("c", "shell", {"command": command})


def arguments_of(whole: str) -> dict:
    """Read the arguments of a call back from what a person sees of it."""
    rows = [read_back(row.removeprefix("  | ")) for row in whole.split("\n")[1:]]
    if rows == ["(no arguments)"]:
        return {}
    found: dict = {}
    for row in rows:
        if row.startswith("  "):
            found[key] += "\n" + row[2:]  # noqa: F821  a first row comes before
            continue
        if row.startswith('"'):
            key, end = json.JSONDecoder().raw_decode(row)
        else:
            end = re.match(r"[\w .-]*?(?=: | = |:$)", row).end()
            key = row[:end]
        mark, value = row[end:].split(" ", 1)
        found[key] = value if mark == ":" else json.loads(row[end:].removeprefix(" = "))
    return found


@given(TEXTS, TEXTS)
@example("PASSWORD=Aa9xQ7zK2mW8;", "")
@example("AccountName=x;AccountKey=" + "Ab1" * 28 + "==;", ";")
@example("-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "\n-----END PGP PRIVATE KEY BLOCK-----")
@example("x" * 4_000, "")
@example("", "x" * 50_000)
@example(" " * 9_000, "\r" + " " * 90)
@example("\n" * 9_000, "\n")
@example("\x1b[8m", "\x1b[0m")
@example("# \u202e", "\u2028")
def test_a_marker_anywhere_in_a_command_is_visible(before, after):
    asked = make_approval_question(called(before + MARKER + after))
    assert MARKER in asked.whole
    assert MARKER in html.unescape(format_question_html(asked.whole))
    assert arguments_of(asked.whole) == {"command": before + MARKER + after}
    rows = asked.whole.replace("⇥\t", "").split("\n")
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for row in rows for c in row)


@given(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4))
@example("t", {"path": "a\nmode: b\n  c\n", "mode": "d", "at = 1: x": [None, {"n": "1\n2"}]})
@example("t⟨U+202E⟩\u202e", {"⟨U+202E⟩": "⟨U+202E⟩"})
def test_a_call_can_be_read_back_from_its_question(name, arguments):
    whole = make_approval_question(ToolCall("c", name, arguments)).whole
    heading = whole.split("\n")[0]
    assert read_back(heading.removeprefix("May the agent call ").removesuffix("?")) == name
    assert arguments_of(whole) == arguments


@given(TEXTS.filter(bool))
def test_a_name_is_shown_whole_and_in_one_line(name):
    heading = make_approval_question(ToolCall("c", name, {})).whole.split("\n")[0]
    assert read_back(heading.removeprefix("May the agent call ")).startswith(f"{name}?")


@pytest.mark.parametrize("secret", [
    f"PASSWORD=Aa9xQ7zK2mW8;{MARKER}", f"AccountKey={'Ab1' * 28}==;{MARKER};",
    f"{BEGIN}\nComment: $({MARKER})\n\n{BODY}\n{END}", f"echo {KEY}; {MARKER}",
])  # fmt: skip
def test_what_a_key_hides_is_seen_and_what_stays_has_no_key(secret):
    asked = make_approval_question(called(secret))
    assert MARKER in asked.whole
    assert "[redacted]" in asked.clean
    for kept in (asked.clean, asked.prompt, asked.name):
        assert not any(k in kept for k in (KEY, "Aa9xQ7zK2mW8", "Ab1" * 28, BODY))


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (MARKER + "x" * (MAX_CALL_CHARS // 2), True),
        ("x" * (MAX_CALL_CHARS // 2) + MARKER, True),
        ("x" * MAX_CALL_CHARS, False),
        ("\x00" * (MAX_CALL_CHARS // 4), False),
        ("\n" * (MAX_CALL_CHARS // 4), False),
    ],
)
def test_a_call_that_cannot_be_shown_whole_is_refused_with_the_reason(command, shown):
    if shown:
        assert command in make_approval_question(called(command)).whole
        return
    with pytest.raises(BadArguments, match=r"cannot be shown whole \(it takes [\d,]+ characters"):
        make_approval_question(called(command))


def test_a_call_of_100000_characters_is_shown_and_one_more_is_refused():
    head = "May the agent call shell?\n  | command: "
    fits = "x" * (100_000 - len(head))
    assert make_approval_question(called(fits)).whole == head + fits
    for command, size in (
        (fits + "x", "100,001"),
        ("x" * 99_991, "100,030"),  # with "command: " it has 100,000 characters before the marks
        ("x" * 99_992, "100,001"),  # too long without them
    ):
        with pytest.raises(BadArguments, match=f"takes {size} characters, and at most 100,000 are"):
            make_approval_question(called(command))
    with pytest.raises(BadArguments, match=f"This call of {'n' * 59}… needs"):
        make_approval_question(ToolCall("c", "n" * 90, {"command": fits}))
    assert make_approval_question(ToolCall("c", "n" * 90, {})).name == "n" * 59 + "…"


def test_arguments_that_are_nested_too_deep_are_refused_with_the_reason():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadArguments, match="nested too deep"):
        make_approval_question(ToolCall("c", "t", {"n": deep}))


def test_where_a_terminal_is_a_file_a_key_is_not_printed(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda asked: sys.stdout.write(asked) and "y")
    assert ask_by_input(make_approval_question(called("ls"))) == "y"
    with pytest.raises(BadArguments, match=KEYS_WOULD_BE_SAVED_MESSAGE):
        ask_by_input(make_approval_question(called(f"echo {KEY}")))
    assert KEY not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ask_by_input(make_approval_question(called(f"echo {KEY}"))) == "y"
    assert KEY in capsys.readouterr().out


def test_a_question_that_was_answered_fast_does_not_enable_the_buttons_of_the_next():
    handle, timers = TurnHandle("s"), []

    async def ask() -> str:
        loop = asyncio.get_running_loop()
        begin = loop.call_later
        loop.call_later = lambda *timer: timers.append(begin(*timer)) or timers[-1]
        task = asyncio.ensure_future(handle.ask(make_approval_question(called("ls"))))
        await asyncio.sleep(0)
        handle.allow()
        return await task

    assert asyncio.run(ask()) == "allow"
    assert [timer.cancelled() for timer in timers] == [True]


# -- what an agent of another program asks -----------------------------------------------------------


def permission(**told) -> str:
    builder = AcpReplyBuilder("acp/x")
    list(builder.update_call({"toolCallId": "c1", "title": "Run", "kind": "execute"}))
    list(builder.update_call({"toolCallId": "c1", **told}))
    return make_approval_question(builder.get_call_for_review("c1")).whole


@given(TEXTS)
@example("y" * 30_000)
def test_all_that_an_agent_tells_of_a_call_is_in_the_question(more):
    text = more + MARKER
    for told in (
        {"title": text, "rawInput": {"path": "a"}},
        {"title": text, "locations": [{"path": "a"}]},
        {"kind": text, "rawInput": {"path": "a"}},
        {"rawInput": {"command": text}},
        {"rawInput": [text]},
        {"locations": [{"path": "a"}, {"path": text}]},
        {"content": [{"type": "content", "content": {"type": "text", "text": text}}]},
        {"content": [{"type": "diff", "path": "a", "oldText": "x\n", "newText": f"x\n{text}"}]},
        {"content": [{"type": "diff", "path": text, "oldText": "", "newText": "x"}]},
        {"content": [{"type": "diff", "path": "a", "oldText": f"x\n{MARKER}", "newText": "x\n"}]},
        {"content": [{"type": "content", "content": {"type": "text", "text": "a"}}, {"b": text}]},
        {"content": text},
    ):
        assert MARKER in permission(**told), told


# -- one way to a person -----------------------------------------------------------------------------


def calls_of(name: str) -> dict[str, list[str]]:
    """Return every call of a function in the package: file, and its arguments as they stand."""
    found: dict[str, list[str]] = {}
    sources = {path.name: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source if f"{name}(" in source else "")):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                found.setdefault(file, []).append(ast.unparse(node))
    return found


def test_every_front_end_asks_by_this_function():
    assert set(calls_of("input")) == {"turn_handle_and_approvals.py"}
    asking = [each for calls in calls_of("ToolApprover").values() for each in calls]
    assert len(asking) >= 3  # a cell, a turn beside the notebook, a team
    assert {re.search(r"(\S+)\)$", each)[1] for each in asking} == {
        "ask_by_input_async",
        "handle.ask",
    }
    assert set(calls_of("make_approval_question")) == {"turn_handle_and_approvals.py"}


def test_names_of_arguments_that_look_like_rows_are_quoted():
    odd = [c for c in string.punctuation if c not in "_-."]
    for c in odd:
        row = make_approval_question(ToolCall("c", "t", {f"a{c} b": "x"})).whole.split("\n")[1]
        assert row == f"  | {json.dumps(f'a{c} b')}: x"
