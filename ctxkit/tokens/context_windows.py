"""The context window of a session: recorded, or by the price table as far as the log allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import Edit
from ctxkit.tokens.prices import context_limit

if TYPE_CHECKING:
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

COMMON_WINDOWS = (32_000, 64_000, 128_000, 200_000, 256_000, 400_000, 1_000_000, 2_000_000)
"""Windows as they are sold; Claude has two of them."""
_CLAUDE = (200_000, 1_000_000)
_EARLY = 0.5
"""A program that compacts by itself does so later than at this share of its window: Claude Code at
0.78 to 0.87, Codex at 0.9, Pi, OpenCode and Kimi above 0.8."""
_AUTOMATIC = ("auto", "overflow")
_CODEX = 0.95
"""Codex writes this share of a model's window into its log, and compacts at nine tenths of the
whole one (`codex-rs/protocol/src/openai_models.rs`): of 272,000 at 244,800, its log says 258,400.
"""


class ContextWindow(NamedTuple):
    """A window in tokens, where the figure comes from, what is to be said of it; None: unknown."""

    tokens: int | None
    source: str | None
    note: str | None = None


class _WindowEvidence(NamedTuple):
    """What a log proves of one model's window."""

    reached: int = 0
    """The largest prompt."""
    compacted: int = 0
    """The largest size at which it compacted by itself; 0: it never did."""


def get_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> ContextWindow:
    """Return the window of a model in a session, at a call where a message is given.

    What the log says is taken as it is. The limit of the table of prices is taken where the log
    does not refute it: a prompt was larger, or the program compacted by itself at less than half of
    it. Then the window is the smallest one sold that holds what was reached.
    """
    recorded = (message.context_window if message is not None else None) or session.context_window
    if recorded:
        return ContextWindow(recorded, "recorded")
    table = context_limit(model)
    if table is None:
        return ContextWindow(None, None)
    proof = _get_window_evidence(session).get(model, _WindowEvidence())
    if proof.reached > table:
        tokens = _smallest_common_window(model, proof.reached)
        bound = f"at least {proof.reached:,} tokens by its own prompts"
    elif 0 < max(proof.compacted, proof.reached) < _EARLY * table and proof.compacted:
        tokens = _smallest_common_window(model, max(proof.compacted, proof.reached))
        bound = f"at most {tokens:,} tokens by its own compaction (at {proof.compacted:,})"
    else:
        tokens, bound = table, ""
    if tokens == table:
        return ContextWindow(table, "derived")
    note = (
        f"The window of {model} is {bound}, not the {table:,} of the price table; "
        f"{tokens:,} is used."
    )
    return ContextWindow(tokens, "derived", note)


def get_full_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> int | None:
    """Return the window that rules go by: that of the model, where the log tells a share of it."""
    known = get_context_window(session, model, message)
    if known.tokens and known.source == "recorded" and session.format == "codex":
        return round(known.tokens / _CODEX)
    return known.tokens


def context_window_notes(session: Session) -> list[str]:
    """Return what is to be said of the windows of a session's models."""
    models = dict.fromkeys(c.message.model or session.model for c in session.calls)
    found = (get_context_window(session, m) for m in models)
    return [w.note for w in found if w.note is not None]


def _smallest_common_window(model: str | None, least: int) -> int:
    """Return the smallest window sold that holds so many tokens; where none does, the tokens."""
    sold = _CLAUDE if model is not None and "claude" in model.lower() else COMMON_WINDOWS
    return next((n for n in sold if n >= least), least)


def _get_window_evidence(session: Session) -> dict[str | None, _WindowEvidence]:
    """Return what the log proves, by model; worked out once a session."""
    known: dict[str | None, _WindowEvidence] | None = session.__dict__.get("windows")
    if known is None:
        known = session.__dict__["windows"] = _find_window_evidence(session)
    return known


def _find_window_evidence(session: Session) -> dict[str | None, _WindowEvidence]:
    compacted: dict[str | None, int] = {}
    reached: dict[str | None, int] = {}
    last, size = session.model, 0
    if session.format == "replay":
        return {}
    for entry in session.path:
        if isinstance(entry, Edit):
            if entry.kind != "replaced" and (entry.trigger or "").lower().startswith(_AUTOMATIC):
                compacted[last] = max(compacted.get(last, 0), entry.tokens_before or size)
        elif entry.role == "assistant" and entry.kind != "turn" and entry.usage:
            prompt = entry.usage.prompt_tokens
            if prompt:
                last = entry.model or session.model
                size = prompt + (entry.usage.output_tokens or 0)
                reached[last] = max(reached.get(last, 0), prompt)
    models = compacted.keys() | reached.keys()
    return {m: _WindowEvidence(reached.get(m, 0), compacted.get(m, 0)) for m in models}
