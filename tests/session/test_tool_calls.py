"""Calls and messages named by what they are."""

from __future__ import annotations

import pytest
from builders import assistant, call, result, session, tool_call, user

import ctxkit as ck
from ctxkit.policies import collect_actions, group_calls_with_results
from ctxkit.session import (
    ToolCall,
    describe_call,
    describe_message,
    get_call_path,
    get_path_and_command,
    map_results_by_call,
    pair_with_calls,
)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (tool_call("Read", file_path="/w/src/a.py", offset=1, limit=900), "Read src/a.py 1-900"),
        (tool_call("Read", file_path="/w/src/a.py", offset=20), "Read src/a.py 20-"),
        (tool_call("view", path="/elsewhere/a.py", view_range=[5, -1]), "view /elsewhere/a.py 5-"),
        (
            tool_call("str_replace_editor", command="view", path="/w/a.c"),
            "str_replace_editor view a.c",
        ),
        (tool_call("Bash", command="cd /w && go test ./..."), "Bash go test ./..."),
        (tool_call("shell", command=["bash", "-lc", "ls -la"]), "shell ls -la"),
        (tool_call("shell", command=["ls", "a b"]), "shell ls 'a b'"),
        (tool_call("open", command="open a.py"), "open a.py"),
        (
            tool_call("WebFetch", url="https://x.example", prompt="What?"),
            "WebFetch https://x.example",
        ),
        (tool_call("wait", seconds=3), "wait"),
        (
            ToolCall("c", "apply_patch", raw="*** Begin Patch\n*** Update File: a.md\n+x"),
            "apply_patch a.md",
        ),
        (
            ToolCall("c", "apply_patch", raw="*** Update File: a.md\n*** Add File: b.md\n"),
            "apply_patch a.md and 1 more",
        ),
    ],
)
def test_a_call_is_named_by_what_it_does(asked, named):
    assert describe_call(asked, "/w/") == named


def test_a_verb_beside_a_path_is_no_command():
    asked = tool_call("edit", command="view", path="a.py")
    assert get_path_and_command(asked) == ("a.py", None)
    assert get_path_and_command(tool_call("bash", command="view")) == (None, "view")


def test_of_several_paths_the_plainest_name_counts():
    asked = tool_call("edit", file="c", path="", filename=3, file_path="b", target_file="a")
    assert get_call_path(asked) == "b"


def test_strange_arguments_are_no_name():
    for value in (None, 3, [], [1], {}, "", "x" * 10_000):
        asked = tool_call("t", path=value, command=value, offset="1", limit=-4, view_range=[1])
        assert len(describe_call(asked)) <= 80
        assert get_call_path(asked) is None


def test_an_id_that_is_used_again_means_the_last_call_before_the_result():
    first, second = call("Read", id="same", path="a"), call("Read", id="same", path="b")
    log = [first, result("1", first), second, result("2", second)]
    assert [c and c.arguments["path"] for _, c in pair_with_calls(log)] == [None, "a", None, "b"]


def test_a_reply_that_is_mostly_a_call_is_named_by_the_call():
    reply = assistant("Kept.", tool_call("write_file", path="south.csv", content="x" * 4000))
    assert describe_message(reply, None) == "asks for write_file south.csv"
    assert describe_message(user("Hello there"), None) == "user: Hello there"


def test_the_message_frame_has_path_and_command():
    read, run = call("Read", path="a.py"), call("Bash", command="make")
    both = assistant("", tool_call("Read", path="b"), tool_call("Read", path="c"))
    s = session(user(), read, result("1", read), run, result("2", run), both)
    frame = ck.frame(s, per="message")
    assert frame["path"].tolist()[1:3] == ["a.py", "a.py"]
    assert frame["command"].tolist()[3:5] == ["make", "make"]
    assert frame[["path", "command"]].iloc[[0, 5]].isna().all().all()


def test_the_largest_messages_are_named(real):
    s = next(s for s in ck.read_all(real / "claude-code", progress=False) if len(s.calls) > 150)
    names = [c.name for c in ck.report(s).contributors]
    assert any(n.startswith(("Read ", "Bash ", "asks for ")) for n in names)
    assert not any(n.startswith("Read: ") for n in names)


def test_a_result_is_its_own_calls_where_ids_are_used_again():
    asked = [call("Bash", "c", command=said) for said in ("ls", "pwd")]
    told = [result(text, of) for text, of in zip(("a.py", "/w"), asked, strict=True)]
    messages = [asked[0], told[0], asked[1], told[1]]
    found = map_results_by_call(messages)
    assert [found[id(m.tool_calls[0])].text for m in asked] == ["a.py", "/w"]
    assert group_calls_with_results(messages) == [(0, 1), (2, 3)]
    assert [a.output for a in collect_actions(messages)] == ["a.py", "/w"]
