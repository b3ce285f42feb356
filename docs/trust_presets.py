"""Comparison of the recorded automatic compactions of a log with those of its system's preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.engine.replay import run_replay
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.presets.registry_and_setting_checks import preset
from ctxkit.session.compactions_and_prunings import group_edits

if TYPE_CHECKING:
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.session import ModelCall, Session

PRESET_BY_FORMAT = {"pi": "pi", "claude-code": "claude_code", "codex": "codex"}
"""The preset of the program that wrote a log of this format."""
_SMALLER_RESERVE_VERSION = (2, 1, 20)
"""Versions of Claude Code before this one (seen: 2.0.76, 2.1.19) fired at 155,000 of 200,000: they
kept 32,000 for the answer, where later ones keep 20,000 (seen: 2.1.29 on)."""
_IDLE_COMPACTION_VERSION = (2, 1, 286)
"""Versions of Claude Code before this one compact no idle session."""
_MIN_LARGER_PROMPTS = 5
"""Number of larger, uncompacted prompts of the same model that rules out a size trigger."""
_MAX_REASONING_RATIO = 2
"""Codex sizes old reasoning by the bytes of its encrypted text: up to twice the tokens that it was
(seen: 0.8 to 2.0 times, in nine compactions).
"""
NEAR_CALLS = 2
"""Distance in calls up to which two compactions count as being at the same place."""
_BY_HAND_CAUSE = (
    "by hand, which this format does not mark: the session sends larger prompts, and they are not "
    "compacted"
)
_MIN_BILLED_CALLS, _SMALL_PROMPT_TOKENS = 20, 50_000
"""A log with fewer billed calls and smaller prompts than these is a test file, not a session."""


class PresetComparison(msgspec.Struct, frozen=True):
    """One recorded compaction and that of a preset that starts from the same history."""

    session: str
    compaction: int
    rules: str
    call: int
    """Index of the first call after the recorded compaction."""
    recorded_tokens: int | None
    """Tokens of the last prompt before the recorded compaction."""
    preset_call: int | None
    """Index of the call before which the preset compacts first; None: never."""
    preset_tokens: int | None
    """Tokens of the prompt at which the preset compacts."""
    cause: str
    """Likely reason why both are more than `NEAR_CALLS` apart; empty where they are not."""
    by_hand: bool = False
    """True where the log shows, without a mark, that no trigger caused it: the session sent larger
    prompts to the same model, which were not compacted."""

    @property
    def is_near(self) -> bool:
        """True where both are within `NEAR_CALLS` calls."""
        return self.preset_call is not None and abs(self.preset_call - self.call) <= NEAR_CALLS


@accepts_session
def compare_with_preset(session: Session, rules: str | None = None) -> tuple[PresetComparison, ...]:
    """Compare each automatic compaction of a log with that of its preset.

    Each compaction is compared alone: the preset starts from the history that the previous recorded
    compaction left, with recorded sizes, so that a difference does not carry over to later ones.
    Compactions marked as manual are left out.

    Args:
        session: a recorded session, or the path of a log.
        rules: the name of a preset; None: the preset of the program and version that wrote the log.

    Returns:
        One comparison per automatic compaction; empty where the program has no preset.

    Raises:
        BadArguments: there is no such preset.

    Example:
        >>> import ctxkit as ck
        >>> len(compare_with_preset(ck.read(ck.samples.path()), "pi"))
        2
    """
    name = rules or PRESET_BY_FORMAT.get(session.format)
    if name is None:
        return ()
    preset_rules = preset(name, **_get_version_settings(session)) if rules is None else preset(name)
    comparisons, start = [], 0
    for group in group_edits(session):
        call = next(
            (candidate for candidate in session.calls if candidate.position > group.position), None
        )
        if call is not None and not any(edit.trigger == "manual" for edit in group.edits):
            comparisons.append(
                _compare_compaction(session, preset_rules, group.number, call, start)
            )
        # the next comparison starts behind this compaction
        start = group.position + len(group.edits)
    return tuple(comparisons)


def _get_version_settings(session: Session) -> dict[str, Any]:
    """Return the settings in which the program version of a log differs from the preset."""
    version = (session.version or "").split(".")
    if session.format != "claude-code" or not all(n.isdecimal() for n in version):
        return {}
    number = tuple(map(int, version))
    if number >= _IDLE_COMPACTION_VERSION:
        return {}
    reserve = {} if number >= _SMALLER_RESERVE_VERSION else {"summary_max_output_tokens": 32_000}
    return {"version": "2.1.29", **reserve}


# One comparison: replay the preset on a session that starts with the view right after the previous
# recorded compaction, and find its first compaction. Usage of the messages in that view is removed,
# because it belongs to prompts that this session does not send. Call indices of the replay are
# shifted by `offset` to those of the record. Replies in the view count as calls but are not live,
# so compactions before `view_calls` are skipped.
def _compare_compaction(
    session: Session, rules: Rules, number: int, call: ModelCall, start: int
) -> PresetComparison:
    shortened, view_calls = _start_session_at(session, start)
    run = run_replay(shortened, rules)
    offset = (
        sum(c.position < start for c in session.calls) - view_calls
    )  # calls before `start` that the new session leaves out
    first_compaction = next((c for c in run.compactions if c.call >= view_calls), None)
    comparison = PresetComparison(
        session.id,
        number,
        rules.label,
        call.index,
        _get_last_prompt_tokens(session, call),
        None if first_compaction is None else first_compaction.call + offset,
        None if first_compaction is None else first_compaction.before,
        "",
    )
    by_hand = _is_by_hand(session, call, comparison.recorded_tokens)
    cause = (
        ""
        if comparison.is_near
        else _BY_HAND_CAUSE
        if by_hand
        else _explain_distance(session, comparison, start)
    )
    return msgspec.structs.replace(comparison, cause=cause, by_hand=by_hand)


def _start_session_at(session: Session, start: int) -> tuple[Session, int]:
    """Return a session that starts with the view at a log position, and the view's replies."""
    head = msgspec.structs.replace(session, log=session.path[:start], parents=(), leaf=-1)
    visible = [msgspec.structs.replace(m, usage=None) for m in head.view()] if start else []
    log = (*visible, *session.path[start:])
    shortened = msgspec.structs.replace(session, log=log, parents=(), leaf=-1)
    return shortened, sum(m.role == "assistant" for m in visible)


def _get_last_prompt_tokens(session: Session, call: ModelCall) -> int | None:
    usages = (
        c.message.usage for c in reversed(session.calls[: call.index]) if c.agent == call.agent
    )
    return next((u.prompt_tokens for u in usages if u is not None and u.prompt_tokens), None)


def _is_by_hand(session: Session, call: ModelCall, tokens: int | None) -> bool:
    """Return whether a compaction happened at a size that other prompts passed uncompacted."""
    if tokens is None:
        return False
    compacted_calls = [
        next((c.index for c in session.calls if c.position > g.position), None)
        for g in group_edits(session)
    ]
    # prompts just before a compaction are large by necessity and prove nothing
    near_calls = {c - n for c in compacted_calls if c is not None for n in range(NEAR_CALLS + 1)}
    model = session.calls[call.index - 1].message.model
    larger_n = sum(
        c.message.usage is not None
        and (c.message.usage.prompt_tokens or 0) > tokens
        and c.agent == call.agent
        and c.message.model == model
        for c in session.calls
        if c.index not in near_calls
    )
    return larger_n >= _MIN_LARGER_PROMPTS


def _explain_distance(session: Session, comparison: PresetComparison, start: int) -> str:
    """Return the likely reason why both compactions are apart, as far as the log shows it."""
    billed_n = sum(bool(c.message.usage and c.message.usage.prompt_tokens) for c in session.calls)
    if billed_n < _MIN_BILLED_CALLS and (comparison.recorded_tokens or 0) < _SMALL_PROMPT_TOKENS:
        return f"a log of {billed_n} billed calls with small prompts: shapes, not a conversation"
    # late: the preset would have compacted later than the record, or never
    is_late = comparison.recorded_tokens is not None and (
        comparison.preset_call is None or comparison.preset_call > comparison.call
    )
    is_inside = session.format == "codex" and _is_inside_turn(session, comparison.call)
    old_reasoning = _count_reasoning_tokens(session, start, comparison.call)
    if (
        is_late
        and is_inside
        and comparison.preset_tokens
        and comparison.preset_tokens - (comparison.recorded_tokens or 0)
        <= _MAX_REASONING_RATIO * old_reasoning
    ):
        return (
            "made inside a turn, so by the program itself: Codex adds what it takes old reasoning "
            f"to be, which the prompt does not hold ({old_reasoning:,} tokens by the log)"
        )
    if is_late and not is_inside:
        trigger_text = (
            "never" if comparison.preset_tokens is None else f"at {comparison.preset_tokens:,}"
        )
        return (
            f"made at {comparison.recorded_tokens or 0:,} tokens, where the preset's trigger holds"
            f" {trigger_text}: by hand, which this format does not mark, or under other settings"
        )
    if is_inside or comparison.preset_call is None:
        return "the log does not show it"
    if _get_turn(session, comparison.preset_call) == _get_turn(session, comparison.call - 1):
        return "the program waits for the end of the turn in which the preset fires"
    return "the log does not show it"


def _is_inside_turn(session: Session, call: int) -> bool:
    """Return whether a call belongs to the same turn as the call before it."""
    return call > 0 and _get_turn(session, call) == _get_turn(session, call - 1)


def _count_reasoning_tokens(session: Session, start: int, call: int) -> int:
    """Return the reasoning tokens of the replies from a log position to a call."""
    usages = (c.message.usage for c in session.calls[:call] if c.position >= start)
    return sum((u.reasoning_tokens or 0) for u in usages if u is not None)


def _get_turn(session: Session, call: int) -> int:
    return session.calls[min(call, len(session.calls) - 1)].turn
