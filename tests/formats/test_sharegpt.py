"""ShareGPT: calls between marks and as messages, what is around them, tools as text."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ctxkit.formats import Source, read_source
from ctxkit.session import ToolCall

if TYPE_CHECKING:
    from ctxkit.session import Session

ASK = ("human", "How long is notes.txt?")
CALL = '{"name": "read_file", "arguments": {"path": "notes.txt"}}'


def read(*said: tuple[str, str], **more: object) -> Session:
    talk = {"conversations": [{"from": f, "value": v} for f, v in said], **more}
    return read_source(Source("x.jsonl", json.dumps(talk).encode() + b"\n"))[0]


def test_a_call_may_be_a_message_of_its_own():
    tools = json.dumps([{"name": "read_file", "description": "Reads.", "parameters": {}}])
    session = read(ASK, ("function_call", CALL), ("observation", "one two"), tools=tools)
    _, reply, answer = session.messages
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [
        ("read_file", {"path": "notes.txt"})
    ]
    assert (answer.call_id, answer.tool) == (reply.tool_calls[0].id, "read_file")
    assert [t.name for t in session.tools] == ["read_file"]
    assert len(read(ASK, ("function_call", f"[{CALL}, {CALL}]")).messages[1].tool_calls) == 2


def test_what_stands_around_calls_is_kept():
    told = f"First. <tool_call>{CALL}</tool_call> Then. <tool_call>\n{CALL}\n</tool_call> Last."
    parts = read(ASK, ("gpt", told)).messages[1].parts
    said = [p.name if isinstance(p, ToolCall) else p.text for p in parts]
    assert said == ["First.", "read_file", "Then.", "read_file", "Last."]
    assert len({p.id for p in parts if isinstance(p, ToolCall)}) == 2


def test_what_is_no_call_stays_text():
    broken = "a <tool_call>{broken</tool_call>"
    for told in (broken, f"a <tool_call>{CALL}", "<tool_call></tool_call>b"):
        (reply,) = read(ASK, ("gpt", told)).messages[1:]
        assert not reply.tool_calls
        assert reply.text == told


def test_marks_that_nothing_closes_are_read_in_linear_time():
    begun = time.thread_time()
    read(ASK, ("gpt", "<tool_call>{" * 80_000))
    assert time.thread_time() - begun < 2


def test_several_results_of_one_message_are_one_each():
    said = f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>"
    several = "<tool_response>\none\n</tool_response>\n<tool_response>two</tool_response>"
    reply, *results = read(ASK, ("gpt", said), ("tool", several)).messages[1:]
    assert [m.text for m in results] == ["one", "two"]
    assert [m.call_id for m in results] == [c.id for c in reply.tool_calls]
    torn = "<tool_response>one</tool_response><tool_response>two"
    assert [m.text for m in read(ASK, ("gpt", said), ("tool", torn)).messages[2:]] == ["onetwo"]
