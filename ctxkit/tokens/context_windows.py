"""Context windows of a session's models: recorded, or from the price table unless refuted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import Edit
from ctxkit.tokens.prices import context_limit
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

COMMON_WINDOWS = (32_000, 64_000, 128_000, 200_000, 256_000, 400_000, 1_000_000, 2_000_000)
"""Context windows on the market, in tokens; Claude has two of them."""
_CLAUDE_WINDOWS = (200_000, 1_000_000)
_MIN_COMPACTION_SHARE = 0.5
"""Programs compact by themselves above this share of the window: Claude Code at 0.78 to 0.87, Codex
at 0.9, Pi, OpenCode and Kimi above 0.8.
"""
_AUTOMATIC_TRIGGERS = ("auto", "overflow")
_CODEX_SHARE = 0.95
"""The share of a model's window that Codex logs; it compacts at nine tenths of the whole one
(`codex-rs/protocol/src/openai_models.rs`): for 272,000 it logs 258,400 and compacts at 244,800.
"""


class ContextWindow(NamedTuple):
    """A context window and the source of the figure."""

    tokens: int | None
    """None: unknown."""
    source: str | None
    """`recorded` in the log, or `derived` from the price table."""
    note: str | None = None
    """A sentence to print beside the figure, where it is not the price table's."""


class _WindowEvidence(NamedTuple):
    """The sizes in a log that bound one model's window, in tokens."""

    reached: int = 0
    """The largest prompt."""
    compacted: int = 0
    """The largest size at which the program compacted by itself; 0: it never did."""


def get_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> ContextWindow:
    """Return the context window of a model in a session.

    A recorded window comes first. Then the one that the program gives the model, where a rule is
    known (`tool_window` of `tokens.provider_rules`), else the price table's, unless the log refutes
    it: a prompt was larger, or the program compacted by itself at less than half of it. Then the
    window is the smallest common one that is large enough for the sizes in the log.

    Args:
        session: the session.
        model: the model; None: unknown.
        message: the reply of a call, for the window recorded at that call.
    """
    recorded = (message.context_window if message is not None else None) or session.context_window
    if recorded:
        return ContextWindow(recorded, "recorded")
    maximum = context_limit(model)
    if maximum is None:
        return ContextWindow(None, None)
    table = min(maximum, get_value("tool_window", model, {}).get(session.format, maximum))
    evidence = _get_window_evidence(session).get(model, _WindowEvidence())
    largest = max(evidence.compacted, evidence.reached)
    if evidence.reached > table:
        tokens = _smallest_common_window(model, evidence.reached)
        bound = f"at least {evidence.reached:,} tokens by its own prompts"
    elif evidence.compacted and 0 < largest < _MIN_COMPACTION_SHARE * table:
        tokens = _smallest_common_window(model, largest)
        bound = f"at most {tokens:,} tokens by its own compaction (at {evidence.compacted:,})"
    else:
        tokens, bound = table, ""
    if tokens == maximum:
        return ContextWindow(maximum, "derived")
    if tokens == table:
        bound = f"{table:,} tokens in {session.format} unless its prompts show more"
    note = (
        f"The window of {model} is {bound}, not the {maximum:,} of the price table; "
        f"{tokens:,} is used."
    )
    return ContextWindow(tokens, "derived", note)


def get_full_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> int | None:
    """Return the model's whole context window, which rules use; Codex logs only a share of it."""
    window = get_context_window(session, model, message)
    if window.tokens and window.source == "recorded" and session.format == "codex":
        return round(window.tokens / _CODEX_SHARE)
    return window.tokens


def context_window_notes(session: Session) -> list[str]:
    """Return the notes on the windows of a session's models."""
    models = dict.fromkeys(c.message.model or session.model for c in session.calls)
    windows = (get_context_window(session, m) for m in models)
    return [w.note for w in windows if w.note is not None]


def _smallest_common_window(model: str | None, min_tokens: int) -> int:
    """Return the smallest common window of at least so many tokens; without any, the tokens."""
    is_claude = model is not None and "claude" in model.lower()
    windows = _CLAUDE_WINDOWS if is_claude else COMMON_WINDOWS
    return next((n for n in windows if n >= min_tokens), min_tokens)


def _get_window_evidence(session: Session) -> dict[str | None, _WindowEvidence]:
    """Return the evidence of a log by model; cached with the session."""
    evidence: dict[str | None, _WindowEvidence] | None = session.__dict__.get("windows")
    if evidence is None:
        evidence = session.__dict__["windows"] = _find_window_evidence(session)
    return evidence


def _find_window_evidence(session: Session) -> dict[str | None, _WindowEvidence]:
    # one pass: the size at an automatic compaction counts for the model of the call before it
    compacted: dict[str | None, int] = {}
    reached: dict[str | None, int] = {}
    last, size = session.model, 0
    if session.format == "replay":
        return {}
    for entry in session.path:
        if isinstance(entry, Edit):
            if entry.kind != "replaced" and (entry.trigger or "").lower().startswith(
                _AUTOMATIC_TRIGGERS
            ):
                compacted[last] = max(compacted.get(last, 0), entry.tokens_before or size)
        elif entry.role == "assistant" and entry.prompt_tokens:
            prompt, output = entry.prompt_tokens, 0
            if entry.kind != "turn" and entry.usage is not None:
                output = entry.usage.output_tokens or 0
            last, size = entry.model or session.model, prompt + output
            reached[last] = max(reached.get(last, 0), prompt)
    models = compacted.keys() | reached.keys()
    return {m: _WindowEvidence(reached.get(m, 0), compacted.get(m, 0)) for m in models}
