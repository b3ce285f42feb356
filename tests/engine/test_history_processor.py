"""The history processor for pydantic-ai, on messages that have its names and fields."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from random_sessions import Fours

import ctxkit as ck
from ctxkit.policies import Clear, Rules, triggers


@dataclass
class SystemPromptPart:
    content: str
    part_kind: str = "system-prompt"


@dataclass
class UserPromptPart:
    content: Any
    part_kind: str = "user-prompt"


@dataclass
class ToolReturnPart:
    tool_name: str
    content: str
    tool_call_id: str
    part_kind: str = "tool-return"

    def model_response_str(self) -> str:
        return self.content


@dataclass
class RetryPromptPart:
    content: str
    tool_name: str | None = None
    tool_call_id: str = ""
    part_kind: str = "retry-prompt"

    def model_response(self) -> str:
        return f"Fix: {self.content}"


@dataclass
class TextPart:
    content: str
    part_kind: str = "text"


@dataclass
class ToolCallPart:
    tool_name: str
    args: dict[str, Any]
    tool_call_id: str
    part_kind: str = "tool-call"

    def args_as_json_str(self) -> str:
        return json.dumps(self.args)


@dataclass
class ModelRequest:
    parts: list[Any]
    instructions: str | None = None
    kind: str = "request"


@dataclass
class ModelResponse:
    parts: list[Any]
    model_name: str = ""
    kind: str = field(default="response")


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    module = ModuleType("pydantic_ai.messages")
    for each in (SystemPromptPart, UserPromptPart, ToolReturnPart, TextPart, ToolCallPart, ModelRequest, ModelResponse):  # fmt: skip
        setattr(module, each.__name__, each)
    package = ModuleType("pydantic_ai")
    package.messages = module
    monkeypatch.setitem(sys.modules, "pydantic_ai", package)
    monkeypatch.setitem(sys.modules, "pydantic_ai.messages", module)


def talk():
    return [
        ModelRequest([SystemPromptPart("Be exact."), UserPromptPart("Read both.")], "kept"),
        ModelResponse([TextPart("Now. "), TextPart("Both."), ToolCallPart("read", {"path": "a"}, "c1"), ToolCallPart("read", {"path": "b"}, "c2")], "m"),
        ModelRequest([ToolReturnPart("read", "A" * 400, "c1"), ToolReturnPart("read", "B" * 400, "c2")]),
        ModelResponse([ToolCallPart("write", {"path": "c"}, "c3")], "m"),
        ModelRequest([RetryPromptPart("no path", "write", "c3")]),
        ModelResponse([TextPart("Sorry.")], "m"),
        ModelRequest([RetryPromptPart("say more"), UserPromptPart(["And", object()])]),
    ]  # fmt: skip


def test_what_is_unchanged_comes_back_as_the_same_objects():
    process, messages = ck.history_processor(Rules(counter=Fours())), talk()
    for n in (1, 3, 5, 7):
        out = process(messages[:n])
        assert [a is b for a, b in zip(out, messages[:n], strict=True)] == [True] * n


def test_a_cleared_result_is_a_return_of_its_tool_in_front_of_the_other_one():
    process = ck.history_processor(Rules(counter=Fours(), pruning=Clear(keep_last=2)))
    messages = talk()
    out = process(messages)
    assert [out[n] is messages[n] for n in (0, 1)] == [True, True]
    assert out[2] == ModelRequest([ToolReturnPart("read", Clear().placeholder, "c1")])
    assert out[3] == ModelRequest([messages[2].parts[1]])
    assert [a is b for a, b in zip(out[4:], messages[3:], strict=True)] == [True] * 4


def test_a_summary_is_a_new_request_behind_the_system_prompt():
    def compact(history, _budget):
        return history.summarise(history.safe(5), "So far: A and B.", "full")

    process = ck.history_processor(Rules(compact, triggers.AtCalls((2,)), counter=Fours()))
    messages = talk()
    process(messages[:1])
    process(messages[:3])
    out = process(messages[:5])
    assert out[0].parts == [messages[0].parts[0]]
    assert out[0].instructions == "kept"
    summary = out[1].parts[0]
    assert isinstance(summary, UserPromptPart)
    assert "So far: A and B." in summary.content
    assert [m is messages[n] for m, n in zip(out[2:], (3, 4), strict=True)] == [True, True]


def test_a_reply_whose_arguments_are_cut_keeps_all_else():
    process = ck.history_processor(
        Rules(counter=Fours(), pruning="intermediate:max_argument_chars=20")
    )
    long = ModelResponse([TextPart("Writing."), ToolCallPart("write_file", {"path": "c", "content": "x" * 900}, "c9")], "m")  # fmt: skip
    messages = [*talk()[:1], long, ModelRequest([ToolReturnPart("write_file", "ok", "c9")]), ModelResponse([TextPart("Done.")]), ModelRequest([UserPromptPart("Thanks.")])]  # fmt: skip
    out = process(messages)
    changed = out[1]
    assert changed is not long
    assert (changed.model_name, changed.parts[0]) == ("m", TextPart("Writing."))
    call = changed.parts[1]
    assert (call.tool_name, call.tool_call_id, call.args["path"]) == ("write_file", "c9", "c")
    assert "900 chars" in call.args["content"]


def test_requests_become_dicts_of_their_roles(monkeypatch):
    sent = []
    monkeypatch.setattr(ck.Context, "fit", lambda _self, dicts: sent.append(dicts) or dicts)
    ck.history_processor(Rules(counter=Fours()))(talk())
    (dicts,) = sent
    assert [m["role"] for m in dicts] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"),
        *("user", "user"),
    ]
    assert dicts[2]["content"] == "Now. Both."
    assert dicts[2]["tool_calls"][1] == {
        "id": "c2",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": "b"}'},
    }
    assert dicts[4] == {"role": "tool", "tool_call_id": "c2", "content": "B" * 400}
    assert dicts[5]["content"] is None
    assert dicts[6] == {"role": "tool", "tool_call_id": "c3", "content": "Fix: no path"}
    assert "tool_calls" not in dicts[7]
    assert [m["content"] for m in dicts[8:]] == ["Fix: say more", "And\n[object]"]
