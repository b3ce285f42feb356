"""How an agent hears what another said: its words, and a tool call with its result, as texts in the
user's place, so that nobody's calls and signed thinking are taken for another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.messages import FRAME, HEARD, Message, Text
from ctxkit.subjects import results
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HANDOFF, ARTIFACTS, TASK = "handoff", "artifacts", "task"
"""Kinds of the messages in the user's place, beside those of `messages`."""
MOVE = "move"
"""Kind of the entries of a team's ledger that say what followed from a turn."""
FORK, BRANCHES = "parallel_start", ("parallel_branch_end", "parallel_merge")
"""Kinds of the moves after which branches begin, and of those that end one (fuseraft's events)."""
TO, FROM, FOR = "to", "from", "for"
"""In the details of a message: the agent that alone hears it; the ledger's message that it is; the
agent that a hand-off was put together for."""


def framed(agent: str, tool: str, arguments: str, result: str) -> str:
    """Return another agent's tool call and its result as others hear it."""
    return f"[{agent} called {tool}({arguments})]\n{result}"


def heard(agent: str, words: str) -> str:
    """Return another agent's words as others hear them."""
    return f"[{agent}]\n{words}"


def spoken(agent: str, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield what an agent said as others hear it: no thinking, a call with its result.

    Args:
        agent: who said it.
        messages: its replies and the results of its tools, in order.
    """
    found = results(messages)
    for m in messages:
        if m.role != "assistant" or not m.visible:
            continue
        words = texts(m).strip()
        if words:
            yield _said(HEARD, heard(agent, words), agent, m)
        for call in m.tool_calls:
            answer = found.get(id(call))
            arguments = call.raw or msgspec.json.encode(call.arguments).decode()
            text = framed(agent, call.name, arguments, texts(answer) if answer else "")
            frame = _said(FRAME, text, agent, m)
            yield msgspec.structs.replace(frame, tool=call.name)


def _said(kind: str, text: str, agent: str, source: Message) -> Message:
    return Message(role="user", kind=kind, parts=(Text(text),), agent=agent, time=source.time,
                   details={"said": source.id})  # fmt: skip
