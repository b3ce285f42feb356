"""Falls of the prompt that a log does not mark: old results dropped, a resume on another branch."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.messages import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session import Call, Session

SHARE, LEAST = 0.05, 1024
"""A fall of no more than this share of the prompt before, or than so many tokens, is noise."""


class Fall(NamedTuple):
    """One fall of a prompt without a mark."""

    call: Call
    """The first call with the smaller prompt."""
    before: int
    """Prompt of the agent's call before, in tokens."""
    after: int

    @property
    def reason(self) -> str:
        """What was seen, for a person to read."""
        lost = self.before - self.after
        return f"the prompt fell by {lost:,} tokens without a mark in the log"


def falls(session: Session) -> tuple[Fall, ...]:
    """Return the falls of recorded prompts that no edit explains, in order; none of a replay.

    A prompt is held against the one before it by the same agent and model. One that is back at its
    size with the next call says nothing: it was another kind of request.
    """
    if session.format == "replay" or session.origin is not None:
        return ()
    agents = billed(session)
    edits = [i for i, e in enumerate(session.path) if isinstance(e, Edit)] if agents else []
    found = [fall for calls in agents.values() for fall in _falls(calls, edits)]
    return tuple(sorted(found, key=lambda f: f.call.index))


def billed(session: Session) -> dict[str, list[tuple[Call, int]]]:
    """Return the calls with a recorded prompt, by agent; a record of a whole turn is a bill."""
    out: dict[str, list[tuple[Call, int]]] = {}
    for call in session.calls:
        usage = call.message.usage
        prompt = None if usage is None or call.message.kind == "turn" else usage.prompt_tokens
        if prompt:
            out.setdefault(call.agent, []).append((call, prompt))
    return out


def _falls(calls: Sequence[tuple[Call, int]], edits: Sequence[int]) -> Iterator[Fall]:
    last: tuple[Call, int] | None = None
    for i, (call, prompt) in enumerate(calls):
        if last is not None and last[0].message.model == call.message.model:
            before, following = last[1], calls[i + 1][1] if i + 1 < len(calls) else 0
            edited = bisect_left(edits, last[0].position) < bisect_left(edits, call.position)
            if not edited and before - prompt > max(SHARE * before, LEAST):
                if following >= before:
                    continue  # the call before stays the one to be held against
                yield Fall(call, before, prompt)
        last = call, prompt
