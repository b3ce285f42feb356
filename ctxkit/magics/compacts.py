"""`%compact`: compact a live session by hand, with a focus in plain words, and see what went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.agent.compactor import NEWEST
from ctxkit.agent.threads import run
from ctxkit.display.markup import NO_MATH, escape, line, plain
from ctxkit.errors import BadArguments
from ctxkit.magics.texts import Page
from ctxkit.policies.summary import Summary

if TYPE_CHECKING:
    from typing import Any

    from ctxkit.magics.kit_state import KitState
    from ctxkit.magics.line_options import Compact
    from ctxkit.messages import Edit
    from ctxkit.session import Session


EXTRACTIVE, NO_SUMMARY = "extractive summary, no LLM was called", "no summary, no LLM was called"


@dataclass(frozen=True, repr=False)
class CompactionReport:
    """What a compaction did, or would do: before, after, saved, and what went."""

    edits: tuple[Edit, ...]
    before: int
    after: int
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
        """`Compacted (14,200 → 4,100 tokens, 71% saved), 36 messages went`."""
        word = "Compacted" if self.done else "Would compact"
        sizes = f"{self.before:,} → {self.after:,} tokens, {self.saved:.0%} saved"
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
    compactor = live.agent.compactor
    before = compactor.context.tokens
    if asked.dry_run:
        for choice in (policy, *([instead] if instead else [])):
            cut = compactor.context.tried(compactor.chosen(choice, focus, draft=True))
            if cut is not None:
                notice = _notice(cut.edits)
                return CompactionReport(
                    cut.edits, cut.before, cut.after, live.session, done=False, notice=notice
                )
    elif edits := run(live.compact(policy, focus=focus, instead=instead)):
        kit.sessions.put(live.session, live.name)
        after, notice = compactor.context.tokens, _notice(edits)
        return CompactionReport(edits, before, after, live.session, done=True, notice=notice)
    return Page("Compaction skipped: there is too little history to compact.")


def _notice(edits: tuple[Edit, ...]) -> str:
    """Return what must be said of who wrote the summary; empty where a model did."""
    if any(e.model is not None for e in edits):
        return ""
    return EXTRACTIVE if any(e.kind == "summarised" for e in edits) else NO_SUMMARY


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
