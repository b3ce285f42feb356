"""All live text goes through `LiveEventEmitter.emit`: the source says so, whoever tells and whoever shows."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from stand_in_models import run, said

import ctxkit as ck
from ctxkit.agent import Delta, LiveEvent, LiveSession, TurnState, Workspace
from ctxkit.agent.turn_state_and_events import _ENDS_TEXT, LiveEventEmitter
from ctxkit.policies import Rules
from ctxkit.session import ToolCall

PACKAGE = Path(ck.__file__).parent
KEY = "ghp_" + "aB3dE6gH9j" * 4
KINDS = re.findall(r"[a-z]+_?[a-z_]*", LiveEvent.__doc__.split("Names:")[1].replace("`", " "))
KINDS = [k for k in KINDS if "_" in k or k in ("delta", "cancelled", "moved")]
EMITTERS = ("emit", "_emit")
"""Names under which the callback of events is called."""
EVENT_CALLS = ("self._events.emit",)
RUNNING = ("agent", "magics", "teams", "widgets")
"""The folders whose code runs beside an agent."""

SCREENS = {
    ("magics/agent_magic.py", "run_agent_magic"): "what the kit says of how a session goes on",
    ("magics/turn_handle_and_approvals.py", "_read_answer"): "the question whether a call may run, for the person alone",
    ("magics/turn_handle_and_approvals.py", "show_question_and_yield_prompt"): "the call that is asked about, which its redacted form replaces",
    ("magics/turn_handle_and_approvals.py", "_ipython_display_"): "a turn beside the notebook: what `TurnRenderer` made",
    ("magics/prompt_section_and_document_commands.py", "list_store_items"): "what is damaged in the library",
    ("magics/memory_commands.py", "list_memory_entries"): "what is damaged in the memory",
    ("widgets/progress_notice.py", "_show_html"): "a fixed line of the kit while something takes long",
    ("magics/turn_display.py", "__init__"): "the turn in its cell: what `TurnRenderer` made",
    ("magics/turn_display.py", "end"): "the turn in a terminal: what `TurnRenderer` made",
    ("agent/tools/python_shell_and_summary_tools.py", "_execute_code"): "into the captured output of a tool, which its result holds",
}  # fmt: skip
"""Every place that prints or displays while an agent may run, and what it shows: none of them gets
text of an agent but by events. One that is new here shows it by way of `LiveEventEmitter.emit`, too.
"""
WORKERS = (
    "agent/tools/file_search_worker.py",
    "agent/tools/document_worker.py",
    "agent/process_supervisor.py",
)
"""Scripts that run in a process of their own: what they print is a result, or goes to a pipe."""
LISTENERS = {
    "agent/live_session.py": "spans of a collector; the listeners that a session is made with",
    "magics/kernel_sessions.py": "those who listened to a session that is opened anew",
    "magics/turn_display.py": "the turn on the screen",
    "teams/runner.py": "those who listen to all agents of a team",
    "widgets/base_widget.py": "a chart that grows",
    "widgets/tuner.py": "the dials of a live session",
    "widgets/watcher.py": "the gauge of a session; the end of a log that is followed",
}


def calls(*folders):
    """Return each call in the package: its file, the function around it, and the call."""
    return [found for found in _calls() if not folders or found[0].split("/")[0] in folders]


@lru_cache
def _calls():
    files = {p.relative_to(PACKAGE).as_posix(): p for p in sorted(PACKAGE.rglob("*.py"))}
    found = []
    for name, path in files.items():
        _add_calls(ast.parse(path.read_text()), name, "", found)
    return found


def _add_calls(node, name, function, found):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            found.append((name, function, child))
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        _add_calls(child, name, child.name if is_function else function, found)


def called(call: ast.Call) -> str:
    return dotted(call.func)


def dotted(node: ast.expr) -> str:
    """Write a name or its attribute; `ast.unparse`, for the rest, takes ten times as long."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ast.unparse(node)


def test_one_function_makes_the_events():
    made = [(name, f) for name, f, call in calls() if called(call).split(".")[-1] == "LiveEvent"]
    assert made == [("agent/turn_state_and_events.py", "_deliver")]


def test_events_of_an_agent_and_of_its_session_go_through_the_one_way():
    made = [(name, f) for name, f, call in calls() if called(call) == "LiveEventEmitter"]
    assert made == [("agent/agent.py", "__init__")]
    told = {name for name, _, call in calls() if called(call) in EVENT_CALLS}
    assert told == {"agent/agent.py"}


def test_pieces_of_text_are_told_by_these_alone():
    told = {
        name
        for name, _, call in calls()
        for first in call.args[:1]
        if isinstance(first, ast.Constant) and first.value == "delta"
        if called(call).split(".")[-1] in EMITTERS
    }
    assert told == {"agent/acp_agent.py", "agent/model_calls.py"}


def test_a_model_streams_to_the_hearing_of_a_call_or_to_nobody():
    streams = {
        (name, ast.unparse(call.args[1]))
        for name, _, call in calls("agent", "magics", "teams", "memory", "injected", "boards")
        if len(call.args) == 2 and ast.unparse(call.args[0]) in ("request", "Request")
        if called(call) in ("model", "self.model", "self._model")
    }
    assert {(n, s) for n, s in streams if s != "ignore_delta"} == {
        ("agent/model_calls.py", "stream")
    }
    assert len(streams) >= 3
    hear = [ast.unparse(c) for n, _, c in calls("agent") if called(c) == "ReplyEventEmitter"]
    assert hear == [f"ReplyEventEmitter(self._emit, turn.{TurnState.check_deadline.__name__})"]


def test_every_screen_is_known():
    found = {
        (name, function)
        for name, function, call in calls(*RUNNING)
        if called(call).split(".")[-1]
        in (
            "print",
            "display",
            "input",
            "publish_display_data",
            "append_stdout",
            "append_display_data",
        )
        or called(call) in ("sys.stdout.write", "sys.stderr.write")
    }
    found = {(n, f) for n, f in found if n not in WORKERS}
    assert found == set(SCREENS)


def test_every_listener_is_known():
    found = {name for name, _, call in calls() if called(call).endswith(".listen")}
    assert found == set(LISTENERS)


def test_every_kind_of_event_is_documented():
    told = {
        call.args[0].value
        for _, _, call in calls("agent")
        if called(call).split(".")[-1] in EMITTERS
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert told - set(KINDS) == set()
    assert len(told) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_no_event_tells_a_key(kind):
    heard = []
    events = LiveEventEmitter(heard.append, lambda: 0.0, lambda: 0)
    for piece in get_args(get_type_hints(Delta)["kind"]):
        payload = {"kind": piece, "text": f"is {KEY} there", "args": {KEY: [f"\x1b[31m{KEY}"]}}
        events.emit(kind, payload)
    events.emit("turn_end", {})
    assert KEY not in repr(heard)
    assert "[redacted]" in repr(heard)


@pytest.mark.parametrize("kind", sorted({*KINDS} - _ENDS_TEXT - {"delta"}))
def test_a_key_in_pieces_stays_hidden_whatever_event_comes_between(kind):
    heard = []
    events = LiveEventEmitter(heard.append, lambda: 0.0, lambda: 0)
    for piece in ("the ", KEY[:20]):
        events.emit("delta", {"kind": "text", "text": piece})
    events.emit(kind, {})
    events.emit("delta", {"kind": "text", "text": KEY[20:] + " is"})
    events.emit("turn_end", {})
    assert [e.kind for e in heard] == ["delta", kind, "delta", "delta", "turn_end"]
    assert "".join(e.payload.get("text", "") for e in heard) == "the [redacted] is"


@pytest.mark.parametrize(
    ("between", "second"),
    [
        (None, "[redacted] it is."),
        ("context_budget_warn", "[redacted] it is."),
        ("turn_start", "correct7horse it is."),
        ("turn_end", "correct7horse it is."),
        ("model_call", "correct7horse it is."),
        ("model_response", "correct7horse it is."),
        ("model_error", "correct7horse it is."),
        ("tool_call", "correct7horse it is."),
        ("tool_result", "correct7horse it is."),
        ("cancelled", "correct7horse it is."),
        ("limit_reached", "correct7horse it is."),
    ],
)
def test_a_text_that_has_ended_is_no_context_of_the_next(between, second):
    """What follows `password: ` in one text is a secret; what begins another text is not."""
    heard = []
    events = LiveEventEmitter(heard.append, lambda: 0.0, lambda: 0)
    events.emit("delta", {"kind": "text", "text": "The password: "})
    if between:
        events.emit(between, {})
    events.emit("delta", {"kind": "text", "text": "correct7horse it is."})
    events.emit("turn_end", {})
    texts = [e.payload for e in heard if e.kind == "delta"]
    assert {t["kind"] for t in texts} == {"text"}
    assert "".join(t["text"] for t in texts) == f"The password: {second}"


class LeakyModel:
    """A model that says a key in everything that it streams and replies."""

    name, notice, context_window = f"test/{KEY}", "test model", 50_000

    def __init__(self):
        self.calls = 0

    async def __call__(self, request, emit):
        self.calls += 1
        for kind in get_args(get_type_hints(Delta)["kind"]):
            text = KEY if kind in ("tool_call", "wait") else f"It is \x1b[31m{KEY}\x1b[0m, I say. "
            size = len(text) if kind in ("tool_call", "wait") else 4
            for i in range(0, len(text), size):
                emit(Delta(kind, text[i : i + size]))
        call = ToolCall(KEY, "read_file", {"path": KEY})
        return said(f"It is {KEY}.", call, stop="tool") if self.calls == 1 else said(f"{KEY} it is")


def test_no_piece_and_no_event_of_a_turn_holds_a_key(tmp_path):
    heard = []
    with LiveSession("one", model=LeakyModel(), rules=Rules(), clock=lambda: 1e9, listener=heard.append,
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        outcome = run(live.turn(f"use {KEY}"))
    assert outcome.ended == "answered"
    assert KEY[:12] not in repr(heard) + repr(outcome)
    assert {e.kind for e in heard} >= {
        "delta",
        "model_wait",
        "tool_call",
        "tool_result",
        "turn_end",
    }
    shown = "".join(e.payload["text"] for e in heard if e.kind == "delta")
    assert shown.count("It is \x1b[31m[redacted]\x1b[0m, I say.") == 6
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p for p in files if KEY[:12] in p.read_text()] == []


def test_no_event_of_a_team_holds_a_key(tmp_path):
    heard, names = [], ("A", "B")
    models = {name: LeakyModel() for name in names}
    body = {"Agents": [{"Name": n} for n in names], "Termination": {"MaxIterations": 2}}
    with ck.team(body, models=models, folder=tmp_path, listener=heard.append) as team:
        team.run(f"Say {KEY}.")
    assert [m.calls for m in models.values()] == [2, 2]
    assert KEY[:12] not in repr(heard)
    assert len([e for e in heard if e.kind == "delta"]) > 20
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p for p in files if KEY[:12] in p.read_text()] == []
