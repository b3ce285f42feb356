"""`%compact`: compact a live session by hand, with a focus in plain words, and see what went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.agent.compactor import NEWEST
from ctxkit.agent.model_summaries import ModelSummariser
from ctxkit.agent.threads import run
from ctxkit.display.markup import NO_MATH, escape, line, plain
from ctxkit.errors import BadArguments, ModelError
from ctxkit.magics.texts import Page
from ctxkit.messages import error_of
from ctxkit.policies.policy import name_of
from ctxkit.policies.summarisers import Extractive, may_ask
from ctxkit.policies.summary import Summary, writers_of
from ctxkit.sizes.prompt_sizes import size_now

if TYPE_CHECKING:
    from typing import Any

    from ctxkit.agent.live import LiveSession
    from ctxkit.magics.kit_state import KitState
    from ctxkit.magics.line_options import Compact
    from ctxkit.messages import Edit
    from ctxkit.policies.chain import Part
    from ctxkit.policies.policy import Policy
    from ctxkit.session import Session


EXTRACTIVE, NO_SUMMARY = "extractive summary, no LLM was called", "no summary, no LLM was called"
OTHER = "summary without a model, no LLM was called"
_SKIPPED = Page("Compaction skipped: there is too little history to compact.")


@dataclass(frozen=True, repr=False)
class CompactionReport:
    """What a compaction did, or would do: before, after, saved, and what went.

    The prompt after it was not sent yet, so its size is an estimate.
    """

    edits: tuple[Edit, ...]
    before: int
    after: int
    """Tokens of the prompt that comes next, as estimated."""
    session: Session
    done: bool
    notice: str = ""

    @property
    def saved(self) -> float:
        """Share of the tokens that it saved."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def gone(self) -> list[str]:
        """One line for each message that went."""
        ids = {t for e in self.edits for t in e.targets}
        return [f"{m.role}: {line(m.tool or m.text or ', '.join(c.name for c in m.tool_calls), 90)}"
                for m in self.session.messages if m.id in ids]  # fmt: skip

    @property
    def one_line(self) -> str:
        """`Compacted (14,200 → 4,100 tokens, estimated, 71% saved), 36 messages went`."""
        word = "Compacted" if self.done else "Would compact"
        sizes = f"{self.before:,} → {self.after:,} tokens, estimated, {self.saved:.0%} saved"
        went = [f"{n} {what}" for what, n in self._counted() if n] or ["no message changed"]
        return f"{word} ({sizes}), {', '.join(went)}" + (f" · {self.notice}" if self.notice else "")

    def _counted(self) -> list[tuple[str, int]]:
        cut = len({t for e in self.edits if e.kind in ("shortened", "replaced") for t in e.targets})
        went = len({t for e in self.edits for t in e.targets}) - cut
        if self.done:
            return [("messages went", went), ("messages were shortened", cut)]
        return [("messages would go", went), ("messages would be shortened", cut)]

    @property
    def summary(self) -> str:
        """What stands in their place."""
        return "\n".join(m.text for e in self.edits for m in e.inserted)

    def __repr__(self) -> str:
        more = [f"  - {row}" for row in self.gone[:12]]
        rest_ = [f"  ... and {len(self.gone) - 12} more"] if len(self.gone) > 12 else []
        return plain("\n".join([self.one_line, *more, *rest_]))

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{escape(row)}</li>" for row in self.gone[:200])
        summary = escape(self.summary, 4000) or "nothing"
        return (
            f'<div class="{NO_MATH}">'
            f"<strong>{escape(self.one_line)}</strong>"
            f"<details><summary>what went</summary><ul>{rows}</ul></details><details>"
            "<summary>what stands in its place</summary>"
            f'<pre style="white-space:pre-wrap">{summary}</pre></details></div>'
        )


def compact(kit: KitState, asked: Compact, body: str) -> object:
    """Compact a live session as a line and a cell ask for."""
    focus = "\n".join(t for t in (asked.focus.strip(), body.strip()) if t)
    if asked.keep is not None and asked.keep < 0:
        raise BadArguments(f"`%compact --keep` is a number of turns, 0 or more; not {asked.keep}.")
    live = kit.lives.get(asked.session)
    kit.lives.free(live.name)
    policy = _policy(kit, asked)
    instead = None if policy is not None else NEWEST
    before = size_now(live.session).tokens
    if asked.dry_run:
        return _dry(live, [policy, *([instead] if instead else [])], focus, before)
    try:
        edits = run(live.compact(policy, focus=focus, instead=instead))
    except ModelError as e:
        raise ModelError(f"The compaction failed, and the history is kept as it was: {e}") from None
    if not edits:
        return _SKIPPED
    kit.sessions.put(live.session, live.name)
    notice = _notice(edits, live.agent.compactor.chosen(policy, focus))
    after = edits[-1].tokens_after or 0
    return CompactionReport(edits, before, after, live.session, done=True, notice=notice)


def _dry(
    live: LiveSession, choices: list[Policy | None], focus: str, before: int
) -> CompactionReport | Page:
    """Return what the first policy would do that would do anything; nothing is changed."""
    compactor = live.agent.compactor
    for choice in choices:
        part = compactor.chosen(choice, focus, draft=True)
        cut = compactor.context.tried(part)
        if cut is not None:
            edits, after = cut.edits, compactor.context.estimate_size(cut.new)
            notice = _notice(edits, part)
            return CompactionReport(edits, before, after, live.session, done=False, notice=notice)
    return _SKIPPED


def _notice(edits: tuple[Edit, ...], part: Part) -> str:
    """Return what must be said of who wrote the summary, by which policy."""
    model = next((e.model for e in edits if e.model is not None), None)
    writers = list(writers_of(part))
    others = [w for w in writers if may_ask(w) and not isinstance(w, ModelSummariser)]
    if failed := error_of(edits):
        who = f"{model} was asked" if model else "" if others else "no LLM was called"
        return f"the summary failed ({failed})" + (f", {who}" if who else "")
    if model is not None:
        return f"summary by {model}"
    if not any(e.kind == "summarised" for e in edits):
        return NO_SUMMARY
    if others:
        return f"summary by {', '.join(map(name_of, others))}, which the rules name"
    return EXTRACTIVE if all(isinstance(w, Extractive) for w in writers) else OTHER


def _policy(kit: KitState, asked: Compact) -> Any:
    if asked.keep is not None:
        return Summary(keep_turns=asked.keep) if asked.keep else Summary(keep_messages=1)
    if not asked.rules:
        return None
    rules = kit.lives.named.rules(asked.rules, once=True)
    if rules.policy is None:
        raise BadArguments(
            f"Rules {rules.label} compact nothing: name others, or none at all for the session's"
            " own."
        )
    return rules.policy
