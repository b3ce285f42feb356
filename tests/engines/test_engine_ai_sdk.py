"""The AI SDK's `pruneMessages` on real sessions, at many calls and settings."""

from __future__ import annotations

import pytest
from engines.external_programs import Tally, ask, sessions, version

from ctxkit import presets
from ctxkit.engine import make_log_from_session
from ctxkit.policies import History
from ctxkit.session import Text, Thinking, ToolCall
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.engines
SETTINGS = (
    {"tool_calls": "before-last-message"},
    {"tool_calls": "before-last-2-messages"},
    {"tool_calls": "before-last-6-messages", "reasoning": "before-last-message"},
    {"tool_calls": "all", "reasoning": "all"},
    {"tool_calls": "none", "reasoning": "all"},
)
KEYS = {"tool_calls": "toolCalls", "reasoning": "reasoning"}


def handed(log, call, given):
    """The messages that the program is given: of `all` those before the turn, as in its example."""
    messages = History.start(log, call).messages
    return messages[: log.turn_first(call)] if "all" in given.values() else messages


def theirs(messages):
    """Messages as the SDK holds them: the results of one reply are one message."""
    out = []
    for m in messages:
        if m.role == "tool":
            part = {
                "type": "tool-result",
                "toolCallId": m.call_id,
                "toolName": m.tool or "",
                "output": m.id,
            }
            if out and out[-1]["role"] == "tool":
                out[-1]["content"].append(part)
            else:
                out.append({"role": "tool", "content": [part]})
            continue
        content = [p for p in map(part_of, m.parts) if p]
        out.append({"role": "user" if m.role == "summary" else m.role, "content": content})
    return out


def part_of(p):
    if isinstance(p, ToolCall):
        return {"type": "tool-call", "toolCallId": p.id, "toolName": p.name, "input": {}}
    if isinstance(p, Thinking):
        return {"type": "reasoning", "text": p.text}
    return {"type": "text", "text": p.text} if isinstance(p, Text) else None


def left(messages):
    """What the program would print of these messages."""
    return [
        [m["role"], [p.get("toolCallId", p.get("text")) for p in m["content"]]]
        for m in theirs(messages)
    ]


def without_reasoning(messages, said):
    """The same without reasoning, and without what holds nothing then."""
    thoughts = {p.text for m in said for p in m.parts if isinstance(p, Thinking)}
    kept = [[role, [x for x in parts if x not in thoughts]] for role, parts in messages]
    return [m for m in kept if m[1]]


def test_what_is_left_of_each_call(engines, real):
    tally = Tally("ai_sdk", version("ai"), "what `pruneMessages` leaves of a call")
    for path, session in sessions(real, 3, 300, size=600_000):
        if not all(
            isinstance(p, (Text, Thinking, ToolCall)) for m in session.messages for p in m.parts
        ):
            continue
        rules = presets.ai_sdk()
        log = make_log_from_session(session, rules)
        if not log.messages or any(
            m.role == "tool" and log.groups[r] == r for r, m in enumerate(log.messages)
        ):
            continue
        picked = range(1, log.calls, max(1, log.calls // 12))
        looked = [(call, given) for call in picked for given in SETTINGS]
        said = [handed(log, call, given) for call, given in looked]
        jobs = [
            {"messages": theirs(m), "settings": {KEYS[k]: v for k, v in given.items()}}
            for m, (_, given) in zip(said, looked, strict=True)
        ]
        answers = ask("ai.mjs", str(engines / "ai"), jobs=jobs)
        for real_, messages, (call, given) in zip(answers, said, looked, strict=True):
            pruning = presets.ai_sdk(**given).pruning
            kept = pruning(
                History.start(log, call), ContextBudget(10**9, 0, get_counter("chars/4"))
            ).messages
            own = log.messages[len(messages) : log.upto[call]]
            assert list(kept[len(kept) - len(own) :]) == own
            mine = left(kept[: len(kept) - len(own)])
            shown = [m for m in real_ if m[1]]
            mine = [m for m in mine if m[1]]
            alike = without_reasoning(shown, messages) == without_reasoning(mine, messages)
            why = "reasoning of a reply that loses its calls" if alike else ""
            tally.add(shown == mine, why, (path.name, call, given, first(shown, mine)))
    tally.done(200)


def first(a, b):
    return next(((x, y) for x, y in zip(a, b, strict=False) if x != y), (len(a), len(b)))
