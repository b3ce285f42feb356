"""`%compact`: compact a live session by hand and report what was removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_percent,
    sanitize_line,
    sanitize_text,
    shorten_litellm_error,
)
from ctxkit.agent.compaction import KEEP_NEWEST_TURN
from ctxkit.agent.event_loop_threads import run_coroutine
from ctxkit.agent.model_summaries_and_backoff import ModelSummariser
from ctxkit.errors import BadArguments, ModelError
from ctxkit.magics.subcommand_dispatch import PreformattedText
from ctxkit.policies.offline_summarisers import ExtractiveSummariser, may_call_model
from ctxkit.policies.protocols import name_of
from ctxkit.policies.summary_compaction import Summary, iter_summary_writers
from ctxkit.session.messages import Message, join_summary_errors
from ctxkit.tokens.live_prompt_sizes import get_current_size

if TYPE_CHECKING:
    from typing import Any

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.cell_magic_arguments import CompactArguments
    from ctxkit.magics.kernel_sessions import KitState
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import Edit
    from ctxkit.session.session import Session


EXTRACTIVE_NOTICE, NO_SUMMARY_NOTICE = (
    "extractive summary, no LLM was called",
    "no summary, no LLM was called",
)
NO_MODEL_SUMMARY_NOTICE = "summary without a model, no LLM was called"
_SKIPPED = PreformattedText("Compaction skipped: there is too little history to compact.")


@dataclass(frozen=True, repr=False)
class CompactionReport:
    """The effect of a compaction, done or simulated: tokens before and after, and messages.

    The prompt after it was not sent yet, so its size is an estimate.
    """

    edits: tuple[Edit, ...]
    before: int
    after: int
    """Tokens of the prompt that comes next, as estimated."""
    session: Session
    is_applied: bool
    notice: str = ""

    @property
    def saved(self) -> float:
        """Share of the tokens that it saved."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def removed_messages(self) -> list[str]:
        """One line for each message that went."""
        ids = {t for e in self.edits for t in e.targets}
        return [
            f"{m.role}: "
            f"{sanitize_line(m.tool or m.text or ', '.join(c.name for c in m.tool_calls), 90)}"
            for m in self.session.messages
            if m.id in ids
        ]

    @property
    def one_line(self) -> str:
        """`Compacted (14,200 → 4,100 tokens, estimated, 71 % saved), 36 messages went`."""
        word = "Compacted" if self.is_applied else "Would compact"
        saved = format_percent(self.saved)
        sizes = f"{self.before:,} → {self.after:,} tokens, estimated, {saved} saved"
        changes = [f"{n} {what}" for what, n in self._count_changes() if n] or [
            "no message changed"
        ]
        return f"{word} ({sizes}), {', '.join(changes)}" + (
            f" · {self.notice}" if self.notice else ""
        )

    def _count_changes(self) -> list[tuple[str, int]]:
        shortened_n = len(
            {t for e in self.edits if e.kind in ("shortened", "replaced") for t in e.targets}
        )
        removed = len({t for e in self.edits for t in e.targets}) - shortened_n
        if self.is_applied:
            return [("messages went", removed), ("messages were shortened", shortened_n)]
        return [("messages would go", removed), ("messages would be shortened", shortened_n)]

    @property
    def summary(self) -> str:
        """The text of the messages that replaced the removed ones."""
        return "\n".join(m.text for e in self.edits for m in e.inserted)

    def __repr__(self) -> str:
        more = [f"  - {row}" for row in self.removed_messages[:12]]
        rest_ = (
            [f"  ... and {len(self.removed_messages) - 12} more"]
            if len(self.removed_messages) > 12
            else []
        )
        return sanitize_text("\n".join([self.one_line, *more, *rest_]))

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{escape_html(row)}</li>" for row in self.removed_messages[:200])
        summary = escape_html(self.summary, 4000) or "nothing"
        return (
            f'<div class="{NO_MATHJAX}">'
            f"<strong>{escape_html(self.one_line)}</strong>"
            f"<details><summary>what went</summary><ul>{rows}</ul></details><details>"
            "<summary>what stands in its place</summary>"
            f'<pre style="white-space:pre-wrap">{summary}</pre></details></div>'
        )


def run_compact_magic(kit: KitState, options: CompactArguments, body: str) -> object:
    """Compact a live session as a line and a cell ask for.

    Args:
        options: the parsed line.
        body: the cell: what a summary should dwell on.

    Returns:
        A `CompactionReport`, also of a dry run, which changes nothing.

    Raises:
        BadArguments: `--keep` is below 0, or the session does not live.
        ModelError: the summary could not be written; the history stays as it was.
    """
    focus = "\n".join(t for t in (options.focus.strip(), body.strip()) if t)
    if options.keep is not None and options.keep < 0:
        raise BadArguments(
            f"`%compact --keep` is a number of turns, 0 or more; not {options.keep}."
        )
    live = kit.lives.get(options.session)
    kit.lives.check_idle(live.name)
    policy = _choose_policy(kit, options)
    # The session's own policy may find nothing to do; then all but the newest turn goes.
    instead = None if policy is not None else KEEP_NEWEST_TURN
    before = get_current_size(live.session).tokens
    if options.dry_run:
        return _preview_compaction(live, [policy, *([instead] if instead else [])], focus, before)
    try:
        edits = run_coroutine(live.compact(policy, focus=focus, fallback=instead))
    except ModelError as e:
        why = shorten_litellm_error(str(e))
        raise ModelError(
            f"The compaction failed, and the history is kept as it was: {why}"
        ) from None
    kit.sessions.update(live.session, live.name)
    if not edits:
        attempt = live.session.path[-1]
        if isinstance(attempt, Message) and attempt.details.get("outcome") == "refused":
            return PreformattedText(
                f"Compaction refused: {attempt.text}; the history is kept as it was."
            )
        return _SKIPPED
    notice = _describe_writer(edits, live.agent.compactor.choose_policy(policy, focus))
    after = edits[-1].tokens_after or 0
    return CompactionReport(edits, before, after, live.session, is_applied=True, notice=notice)


def _preview_compaction(
    live: LiveSession, choices: list[Policy | None], focus: str, before: int
) -> CompactionReport | PreformattedText:
    """Return what the first policy would do that would do anything; nothing is changed."""
    compactor = live.agent.compactor
    for choice in choices:
        part = compactor.choose_policy(choice, focus, draft=True)
        trial = compactor.context.try_policy(part)
        if trial is not None:
            edits, after = trial.edits, compactor.context.estimate_size(trial.new)
            notice = _describe_writer(edits, part)
            return CompactionReport(
                edits, before, after, live.session, is_applied=False, notice=notice
            )
    return _SKIPPED


def _describe_writer(edits: tuple[Edit, ...], part: BasePolicy) -> str:
    """Return who wrote the summary: a model, the extractive summariser, or none."""
    model = next((e.model for e in edits if e.model is not None), None)
    writers = list(iter_summary_writers(part))
    others = [w for w in writers if may_call_model(w) and not isinstance(w, ModelSummariser)]
    if failed := join_summary_errors(edits):
        who = f"{model} was asked" if model else "" if others else "no LLM was called"
        return f"the summary failed ({shorten_litellm_error(failed)})" + (f", {who}" if who else "")
    if model is not None:
        return f"summary by {model}"
    if not any(e.kind == "summarised" for e in edits):
        return NO_SUMMARY_NOTICE
    if others:
        return f"summary by {', '.join(map(name_of, others))}, which the rules name"
    return (
        EXTRACTIVE_NOTICE
        if all(isinstance(w, ExtractiveSummariser) for w in writers)
        else NO_MODEL_SUMMARY_NOTICE
    )


def _choose_policy(kit: KitState, options: CompactArguments) -> Any:
    if options.keep is not None:
        return Summary(keep_turns=options.keep) if options.keep else Summary(keep_messages=1)
    if not options.rules:
        return None
    rules = kit.lives.resolver.resolve_rules(options.rules, once=True)
    if rules.policy is None:
        raise BadArguments(
            f"Rules {rules.label} compact nothing: name others, or none at all for the session's"
            " own."
        )
    return rules.policy
