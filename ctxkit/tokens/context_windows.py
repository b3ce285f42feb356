"""Context windows of a session's models: recorded, or from the price table unless refuted.

The table is refuted by sizes in the session's own log, or by automatic compactions of similar
sessions read with it (same tool, version and model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.session.messages import Edit
from ctxkit.tokens.prices import context_limit
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

COMMON_WINDOWS = (32_000, 64_000, 128_000, 200_000, 256_000, 400_000, 1_000_000, 2_000_000)
"""Context windows on the market, in tokens; Claude has two of them."""
_CLAUDE_WINDOWS = (200_000, 1_000_000)
_MIN_COMPACTION_SHARE = 0.5
"""Programs compact automatically above this share of the window: Claude Code at 0.78 to 0.87, Codex
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
    """A sentence to print with the figure if it is not the price table's."""


class _WindowEvidence(NamedTuple):
    """The sizes in a log that bound one model's window, in tokens."""

    reached: int = 0
    """The largest prompt."""
    compacted: int = 0
    """The largest size at an automatic compaction; 0: there was none."""
    like: int = 0
    """Number of similar sessions that have these compactions; 0: the session's own."""

    def name_source(self) -> str:
        """Describe the compactions that bound the window, with the largest size."""
        if not self.like:
            return f"its own compaction (at {self.compacted:,})"
        return (
            f"the automatic compactions of {self.like} like sessions of the same tool, version and"
            f" model (the largest at {self.compacted:,})"
        )


LIKE_WINDOWS_KEY = "like_windows"
"""Key of `Session.details` for the window evidence of similar sessions, by model:
`[compacted, sessions]`, the largest automatic compaction and the number of sessions that have one.
"""


def get_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> ContextWindow:
    """Return the context window of a model in a session.

    A recorded window comes first, then the one that the program gives the model (`tool_window` of
    `tokens.provider_rules`), then the price table's. The log refutes the latter two if a prompt was
    larger, or if the program compacted automatically at less than half of it: the result is then
    the smallest common window that is large enough for the sizes in the log. If the log has no
    automatic compaction, those of similar sessions read with it count.

    Args:
        session: the session.
        model: the model; None: unknown.
        message: the reply of a call, for the window recorded at that call.

    Returns:
        Tokens, the source of the figure, and a note where the log refutes a table; tokens are None
        where nothing is known.
    """
    recorded = (message.context_window if message is not None else None) or session.context_window
    if recorded:
        return ContextWindow(recorded, "recorded")
    maximum = context_limit(model)
    if maximum is None:
        return ContextWindow(None, None)
    table = min(maximum, get_value("tool_window", model, {}).get(session.format, maximum))
    evidence = _add_like_sessions(
        _get_window_evidence(session).get(model, _WindowEvidence()), session, model
    )
    largest = max(evidence.compacted, evidence.reached)
    if evidence.reached > table:
        tokens = _smallest_common_window(model, evidence.reached)
        bound = f"at least {evidence.reached:,} tokens by its own prompts"
    elif evidence.compacted and 0 < largest < _MIN_COMPACTION_SHARE * table:
        tokens = _smallest_common_window(model, largest)
        bound = f"at most {tokens:,} tokens by {evidence.name_source()}"
    else:
        tokens, bound = table, ""
    if tokens == maximum:
        return ContextWindow(maximum, "derived")
    if tokens == table:
        is_confirmed = _MIN_COMPACTION_SHARE * table <= evidence.compacted <= table
        why = f"by {evidence.name_source()}" if is_confirmed else "unless its prompts show more"
        bound = f"{table:,} tokens in {session.format} {why}"
    note = (
        f"The window of {model} is {bound}, not the {maximum:,} of the price table; "
        f"{tokens:,} is used."
    )
    return ContextWindow(tokens, "derived", note)


def get_full_context_window(
    session: Session, model: str | None, message: Message | None = None
) -> int | None:
    """Return the model's whole context window, which rules use; Codex logs only a share of it.

    Args:
        session: the session whose log may refute a table's window.
        model: the model's name; None: unknown.
        message: a reply of the model, whose own window comes first.

    Returns:
        Tokens, or None where nothing is known.
    """
    window = get_context_window(session, model, message)
    if window.tokens and window.source == "recorded" and session.format == "codex":
        return round(window.tokens / _CODEX_SHARE)
    return window.tokens


def describe_windows_that_refute_table(session: Session) -> list[str]:
    """Return the notes on the windows of a session's models."""
    models = dict.fromkeys(c.message.model or session.model for c in session.calls)
    windows = (get_context_window(session, m) for m in models)
    return [w.note for w in windows if w.note is not None]


def share_window_evidence(sessions: Sequence[Session]) -> list[Session]:
    """Add to sessions the window evidence from automatic compactions of similar ones.

    Similar sessions have the same tool, version and model. One that compacted automatically needs
    no other evidence. None is added if similar sessions contradict each other (one had a prompt
    larger than the window that the others' compactions show).

    Args:
        sessions: sessions that were read together, with their children.
    """
    compacted: dict[tuple[str, str | None, str], list[int]] = {}
    reached: dict[tuple[str, str | None, str], int] = {}
    for session in _iter_family(sessions):
        for model, evidence in _find_shareable(session):
            key = (session.product or session.format, session.version, model)
            reached[key] = max(reached.get(key, 0), evidence.reached)
            if evidence.compacted:
                compacted.setdefault(key, []).append(evidence.compacted)
    like = {
        key: [max(sizes), len(sizes)]
        for key, sizes in compacted.items()
        if reached.get(key, 0) <= _smallest_common_window(key[2], max(sizes))
    }
    return [_with_like_windows(s, like) for s in sessions] if like else list(sessions)


def _iter_family(sessions: Iterable[Session]) -> Iterator[Session]:
    pending = list(sessions)
    while pending:
        session = pending.pop()
        yield session
        pending.extend(session.children)


def _find_shareable(session: Session) -> Iterator[tuple[str, _WindowEvidence]]:
    """Yield the evidence by model of a session whose log does not record its window."""
    if session.context_window or any(c.message.context_window for c in session.calls[-1:]):
        return
    for model, evidence in _get_window_evidence(session).items():
        if model is not None:
            yield model, evidence


def _with_like_windows(
    session: Session, like: dict[tuple[str, str | None, str], list[int]]
) -> Session:
    """Return a session, and its children, with the evidence of similar ones if it has none."""
    children = tuple(_with_like_windows(child, like) for child in session.children)
    if any(new is not old for new, old in zip(children, session.children, strict=True)):
        session = msgspec.structs.replace(session, children=children)
    tool = session.product or session.format
    windows = {
        model: like[tool, session.version, model]
        for model, evidence in _find_shareable(session)
        if not evidence.compacted and (tool, session.version, model) in like
    }
    if not windows:
        return session
    before = set(describe_windows_that_refute_table(session))
    informed = msgspec.structs.replace(
        session, details={**session.details, LIKE_WINDOWS_KEY: windows}
    )
    notes = [n for n in session.notes if n not in before] + describe_windows_that_refute_table(
        informed
    )
    return msgspec.structs.replace(informed, notes=tuple(notes))


def _add_like_sessions(
    own: _WindowEvidence, session: Session, model: str | None
) -> _WindowEvidence:
    """Return the evidence of a log, else that of similar sessions if they agree."""
    stated = session.details.get(LIKE_WINDOWS_KEY)
    window = stated.get(model) if isinstance(stated, dict) else None
    if own.compacted or not isinstance(window, (list, tuple)) or len(window) != 2:
        return own
    compacted, n = window
    if not (isinstance(compacted, int) and isinstance(n, int) and compacted > 0 and n > 0):
        return own
    if own.reached > _smallest_common_window(model, compacted):
        return own
    return _WindowEvidence(own.reached, compacted, n)


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
