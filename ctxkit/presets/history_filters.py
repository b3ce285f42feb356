"""fuseraft's ContextWindow: which part of its history an agent is handed when its turn begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.policies.message_filters import Tail, TextOnly, TurnAge, WithoutAgents
from ctxkit.policies.shorten import Replies, Results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def history_filters(
    *,
    text_only: bool = False,
    exclude_agents: Sequence[str] = (),
    max_turn_age: int = 0,
    max_tail_messages: int = 0,
    max_tool_result_chars: int = 0,
    tool_result_char_overrides: Mapping[str, int] | None = None,
    max_replay_chars: int = 0,
    from_reply: bool = False,
    besides_prompt: bool = False,
) -> list[Any]:
    """Return the parts of a ContextWindow in fuseraft's order: text, agents, age, tail, lengths.

    Args:
        text_only: tool calls and results go.
        exclude_agents: agents whose replies go; tool results go too.
        max_turn_age: replies that stay; 0: all.
        max_tail_messages: messages that stay; 0: all.
        max_tool_result_chars: characters of a tool result that stay; 0: all.
        tool_result_char_overrides: the same by tool name; 0: all of that tool's.
        max_replay_chars: characters of a reply that stay; 0: all.
        from_reply: `max_turn_age` begins with a reply, without the message that it answers.
        besides_prompt: `max_tail_messages` does not count the input of the turn.
    """
    results, overrides = max_tool_result_chars, dict(tool_result_char_overrides or {})
    parts = [
        TextOnly() if text_only else None,
        WithoutAgents(agents=tuple(exclude_agents)) if exclude_agents else None,
        TurnAge(turns=max_turn_age, from_reply=from_reply) if max_turn_age else None,
        Tail(messages=max_tail_messages, besides_prompt=besides_prompt)
        if max_tail_messages
        else None,
        Results(max_chars=results, overrides=overrides, past_only=True) if results else None,
        Replies(max_chars=max_replay_chars, past_only=True) if max_replay_chars else None,
    ]
    return [part for part in parts if part is not None]
