"""Each automatic compaction of a log beside the one that its system's preset would have made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.engine.replay import run_replay
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.recorded_compactions import group_edits
from ctxkit.presets.registry import preset

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.session.session import ModelCall, Session

PRESET_BY_FORMAT = {"pi": "pi", "claude-code": "claude_code", "codex": "codex"}
"""The preset of the program that wrote a log of this format."""
_OLDER_CLAUDE = (2, 1, 20)
"""Versions of Claude Code before this one (seen: 2.0.76, 2.1.19) fired at 155,000 of 200,000: they
kept 32,000 for the answer, where later ones keep 20,000 (seen: 2.1.29 on)."""
_LARGER = 5
"""So many larger prompts of the same model, none of them compacted, tell that a trigger did not
hold."""
_BYTES = 2
"""Codex sizes old reasoning by the bytes of its encrypted text: up to twice the tokens that it was
(seen: 0.8 to 2.0 times, in nine compactions).
"""
NEAR_CALLS = 2
"""So many calls sooner or later is the same place."""
_BY_HAND = (
    "by hand, which this format does not mark: the session sends larger prompts, and they are not "
    "compacted"
)
_TRIMMED, _SMALL = 20, 50_000
"""A log with fewer billed calls, compacted below so many tokens, shows shapes and no talk."""


class PresetComparison(msgspec.Struct, frozen=True):
    """One recorded compaction beside that of a preset which starts from the same history."""

    session: str
    compaction: int
    rules: str
    call: int
    """The first call that was shown the recorded one's outcome."""
    before: int | None
    """Tokens of the last prompt before it."""
    due: int | None
    """The call before which the preset makes its first one; None: it makes none."""
    at: int | None
    """Tokens of the prompt of which it takes that one to be due."""
    cause: str
    """Why both are further apart than `NEAR` calls; empty where they are not."""
    by_hand: bool = False
    """True where the log, which does not mark it, shows that no trigger made it: the session sent
    larger prompts to the same model, and they were not compacted."""

    @property
    def near(self) -> bool:
        """True where both come within two calls."""
        return self.due is not None and abs(self.due - self.call) <= NEAR_CALLS


@accepts_session
def compare_with_preset(session: Session, rules: str | None = None) -> tuple[PresetComparison, ...]:
    """Return each automatic compaction of a log beside its preset's.

    Each is taken alone: the preset begins with what the log's own compactions before it had left,
    and goes by recorded sizes, so that an early difference does not carry over to later ones. What
    a person asked for is left out.

    Args:
        session: a recorded session, or the path of a log.
        rules: the name of a preset; None: that of the program of the log, as its version was.

    Raises:
        BadArguments: there is no such preset.
    """
    name = rules or PRESET_BY_FORMAT.get(session.format)
    if name is None:
        return ()
    made = preset(name, **_settings(session)) if rules is None else preset(name)
    found, start = [], 0
    for cut in group_edits(session):
        call = next((c for c in session.calls if c.position > cut.position), None)
        if call is not None and not any(e.trigger == "manual" for e in cut.edits):
            found.append(_compare_one(session, made, cut.number, call, start))
        start = cut.position + len(cut.edits)
    return tuple(found)


def _settings(session: Session) -> dict[str, int]:
    """Return what the program of a log had set otherwise than the preset has."""
    told = (session.version or "").split(".")
    if session.format != "claude-code" or not all(n.isdecimal() for n in told):
        return {}
    older = tuple(map(int, told)) < _OLDER_CLAUDE
    return {"summary_max_output_tokens": 32_000} if older else {}


def _compare_one(
    session: Session, rules: Rules, number: int, call: ModelCall, start: int
) -> PresetComparison:
    begun, kept = _session_from(session, start)
    done = run_replay(begun, rules)
    moved = sum(c.position < start for c in session.calls) - kept  # calls that only the record has
    first = next((c for c in done.cuts if c.call >= kept), None)
    made = PresetComparison(
        session.id,
        number,
        rules.label,
        call.index,
        _last_prompt(session, call),
        None if first is None else first.call + moved,
        None if first is None else first.before,
        "",
    )
    hand = _by_hand(session, call, made.before)
    cause = "" if made.near else _BY_HAND if hand else _cause(session, made, start)
    return msgspec.structs.replace(made, cause=cause, by_hand=hand)


def _session_from(session: Session, start: int) -> tuple[Session, int]:
    """Return a session that begins with what stands at a place, and how many calls that is."""
    head = msgspec.structs.replace(session, log=session.path[:start], parents=(), leaf=-1)
    shown = [msgspec.structs.replace(m, usage=None) for m in head.view()] if start else []
    log = (*shown, *session.path[start:])
    begun = msgspec.structs.replace(session, log=log, parents=(), leaf=-1)
    return begun, sum(m.role == "assistant" for m in shown)


def _last_prompt(session: Session, call: ModelCall) -> int | None:
    usages = (
        c.message.usage for c in reversed(session.calls[: call.index]) if c.agent == call.agent
    )
    return next((u.prompt_tokens for u in usages if u is not None and u.prompt_tokens), None)


def _by_hand(session: Session, call: ModelCall, size: int | None) -> bool:
    """Say whether a compaction was made at a size that no trigger minded in this session."""
    if size is None:
        return False
    cut = [
        next((c.index for c in session.calls if c.position > g.position), None)
        for g in group_edits(session)
    ]
    near = {c - n for c in cut if c is not None for n in range(NEAR_CALLS + 1)}
    model = session.calls[call.index - 1].message.model
    larger = sum(
        c.message.usage is not None
        and (c.message.usage.prompt_tokens or 0) > size
        and c.agent == call.agent
        and c.message.model == model
        for c in session.calls
        if c.index not in near
    )
    return larger >= _LARGER


def _cause(session: Session, made: PresetComparison, start: int) -> str:
    """Return why both are apart, as far as the log shows it."""
    billed = sum(bool(c.message.usage and c.message.usage.prompt_tokens) for c in session.calls)
    if billed < _TRIMMED and (made.before or 0) < _SMALL:
        return f"a log of {billed} billed calls with small prompts: shapes, not a conversation"
    late = made.before is not None and (made.due is None or made.due > made.call)
    inside = session.format == "codex" and _is_inside_turn(session, made.call)
    old = _reasoning(session, start, made.call)
    if late and inside and made.at and made.at - (made.before or 0) <= _BYTES * old:
        return (
            "made inside a turn, so by the program itself: Codex adds what it takes old reasoning "
            f"to be, which the prompt does not hold ({old:,} tokens by the log)"
        )
    if late and not inside:
        fired = "never" if made.at is None else f"at {made.at:,}"
        return (
            f"made at {made.before or 0:,} tokens, where the preset's trigger holds {fired}: by "
            "hand, which this format does not mark, or under other settings"
        )
    if inside or made.due is None:
        return "the log does not show it"
    if _turn(session, made.due) == _turn(session, made.call - 1):
        return "the program waits for the end of the turn in which the preset fires"
    return "the log does not show it"


def _is_inside_turn(session: Session, call: int) -> bool:
    """Say whether nobody asked for anything between a call and the one before."""
    return call > 0 and _turn(session, call) == _turn(session, call - 1)


def _reasoning(session: Session, start: int, call: int) -> int:
    """Return the reasoning tokens of the replies from a place to a call."""
    usages = (c.message.usage for c in session.calls[:call] if c.position >= start)
    return sum((u.reasoning_tokens or 0) for u in usages if u is not None)


def _turn(session: Session, call: int) -> int:
    return session.calls[min(call, len(session.calls) - 1)].turn
