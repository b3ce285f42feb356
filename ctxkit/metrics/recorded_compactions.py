"""Recorded compactions of a log, compactions inferred from sizes, and the fate of each message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.session.compaction_groups import EditGroup, group_edits
from ctxkit.session.messages import SEALED_SUMMARY, Edit
from ctxkit.tokens.message_sizes import group_prompts_by_agent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session


def is_sealed(group: EditGroup) -> bool:
    """Return True if the log lacks the text of the summary that a model wrote."""
    return any(e.details.get(SEALED_SUMMARY) is True for e in group.edits)


MessageState = Literal[
    "shown", "hidden", "dropped", "shortened", "replaced", "summarised", "pruned"
]


class MessageFate(NamedTuple):
    """The state of a message after the edits, and the compaction that caused it."""

    state: MessageState
    replacement: Message | None
    """The message that a model sees in its place; None: it was removed."""
    compaction: int | None = None
    edit: Edit | None = None
    pruned_by: str | None = None
    """The pruning that changes it for one call."""

    @property
    def reason(self) -> str | None:
        """The reason why it is not shown as written; None if it is."""
        if self.pruned_by is not None:
            return f"pruned for the call by {self.pruned_by}"
        if self.edit is None:
            return "never sent to a model" if self.state == "hidden" else None
        return self.edit.reason or self.edit.method or self.edit.trigger or self.state


def get_message_fates(session: Session, upto: int | None = None) -> dict[str, MessageFate]:
    """Return the fate of each message that an edit changed, by its id.

    Any other message is shown as written or never sent.

    Args:
        session: the session.
        upto: number of edits to apply, from the first; None: all.

    Returns:
        By message id the last state, the compaction that caused it, and what replaced the message.
    """
    if not session.edits:
        return {}
    fates: dict[str, MessageFate] = {}
    origin: dict[str, str] = {}  # by id of a replacement: the id of the message as written
    compaction_of_edit = {id(e): g.number for g in group_edits(session) for e in g.edits}
    for edit in session.edits[:upto]:
        compaction = compaction_of_edit[id(edit)]
        replacements = edit.inserted if edit.kind in ("shortened", "replaced") else ()
        for i, target in enumerate(edit.targets):
            first = origin.get(target, target)
            before = fates.get(first)
            if before is not None and before.replacement is None:
                continue  # removed already: a later edit cannot change it
            new = replacements[i] if i < len(replacements) else None
            if new is None and edit.kind in ("shortened", "replaced"):
                continue
            if new is not None:
                origin[new.id] = first
            fates[first] = MessageFate(edit.kind, new, compaction, edit)
    return fates


class SizeDropRule(Protocol):
    """Finds compactions in a series of prompt sizes."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the indices of the first prompt after each compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabRule:
    """TraceLab's rule: a large, persistent drop from near the session's largest prompt."""

    drop: int = 64_000
    """Smallest drop in tokens."""
    share: float = 0.75
    """The previous prompt has at least this share of the session's largest, and the next prompts
    stay below it.
    """
    steps: int = 3
    """Number of prompts that must stay below, including the first after the drop."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        most = max(prompts, default=0)
        out = []
        for i in range(1, len(prompts)):
            before = prompts[i - 1]
            if before - prompts[i] < self.drop or before < self.share * most:
                continue
            if all(p < self.share * before for p in prompts[i : i + self.steps]):
                out.append(i)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class CtxMapRule:
    """CtxMap's rule: a prompt that is smaller than a share of the previous prompt."""

    share: float = 0.5
    """The share of the previous prompt."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        return [i for i in range(1, len(prompts)) if prompts[i] < self.share * prompts[i - 1]]


INFERENCE_RULES: dict[str, SizeDropRule] = {"tracelab": TraceLabRule(), "ctxmap": CtxMapRule()}
"""The rules by name, with their authors' settings."""


def infer_compactions(session: Session, rule: str | SizeDropRule = "tracelab") -> tuple[Edit, ...]:
    """Infer compactions from drops of the recorded prompt sizes, for each agent separately.

    Args:
        session: a session; without usage the result is empty.
        rule: a name in `INFERENCE_RULES`, or a rule.

    Returns:
        Edits with `source="derived"` and the sizes of the prompts before and after. They have no
        targets, because sizes do not show what was removed. `details` has the number of the first
        call after the compaction.

    Raises:
        BadArguments: no rule has that name.
    """
    name, size_rule = _resolve_rule(rule)
    edits = []
    for calls in group_prompts_by_agent(session).values():
        prompts = [p for _, p in calls]
        for i in size_rule(prompts):
            call = calls[i][0]
            edits.append(
                Edit(
                    kind="summarised",
                    id=f"derived-{call.index}",
                    reason=f"the prompt fell from {prompts[i - 1]:,} to {prompts[i]:,} tokens",
                    method=name,
                    agent=call.message.agent,
                    time=call.message.time,
                    tokens_before=prompts[i - 1],
                    tokens_after=prompts[i],
                    source="derived",
                    details={"call": call.index},
                )
            )
    return tuple(sorted(edits, key=lambda e: e.details["call"]))


def compare_with_marks(
    sessions: Session | Iterable[Session],
    rules: Iterable[str | SizeDropRule] = ("tracelab", "ctxmap"),
) -> pd.DataFrame:
    """Compare inferred compactions with the marks of logs that have both marks and usage.

    Args:
        sessions: one session or several; those without marks have no row.
        rules: names of rules, or rules.

    Returns:
        One row per session and rule: `calls` with usage; `marked` compactions that a billed call
        follows; `derived` compactions; `true_positives_n` (marked and derived at the same billed
        call), `false_negatives_n` and `false_positives_n`; `recall` (true positives / marked) and
        `precision` (true positives / derived; missing if nothing was derived).
    """
    import pandas as pd

    from ctxkit.session.session import Session

    chosen = [sessions] if isinstance(sessions, Session) else list(sessions)
    rows = [
        row for s in chosen for rule in rules if (row := _make_agreement_row(s, rule)) is not None
    ]
    frame = pd.DataFrame(rows, columns=list(_AGREEMENT_COLUMNS))
    return frame.astype(_AGREEMENT_COLUMNS)


_AGREEMENT_COLUMNS = {
    "session": "string",
    "format": "string",
    "rule": "string",
    "calls": "Int64",
    "marked": "Int64",
    "derived": "Int64",
    "true_positives_n": "Int64",
    "false_negatives_n": "Int64",
    "false_positives_n": "Int64",
    "recall": "Float64",
    "precision": "Float64",
}


def _make_agreement_row(session: Session, rule: str | SizeDropRule) -> dict[str, Any] | None:
    marked = _find_marked_calls(session)
    if not marked:
        return None
    name, _ = _resolve_rule(rule)
    derived = {e.details["call"] for e in infer_compactions(session, rule)}
    both = len(marked & derived)
    return {
        "session": session.id,
        "format": session.format,
        "rule": name,
        "calls": sum(len(c) for c in group_prompts_by_agent(session).values()),
        "marked": len(marked),
        "derived": len(derived),
        "true_positives_n": both,
        "false_negatives_n": len(marked) - both,
        "false_positives_n": len(derived) - both,
        "recall": both / len(marked),
        "precision": both / len(derived) if derived else None,
    }


def _find_marked_calls(session: Session) -> set[int]:
    """Return the first billed call after each recorded compaction that follows a billed call."""
    call_at = {
        c.position: c.index for calls in group_prompts_by_agent(session).values() for c, _ in calls
    }
    marked: set[int] = set()
    is_pending = has_billed_call = False
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            is_pending = is_pending or (
                has_billed_call
                and entry.source == "recorded"
                and entry.kind in ("summarised", "dropped")
            )
        elif position in call_at:
            if is_pending:
                marked.add(call_at[position])
            is_pending, has_billed_call = False, True
    return marked


def _resolve_rule(rule: str | SizeDropRule) -> tuple[str, SizeDropRule]:
    if callable(rule):
        return str(getattr(rule, "__name__", type(rule).__name__.lower())), rule
    if rule not in INFERENCE_RULES:
        raise BadArguments(
            f"There is no rule {rule!r}.{did_you_mean(str(rule), INFERENCE_RULES)} Rules: "
            f"{', '.join(INFERENCE_RULES)}."
        )
    return rule, INFERENCE_RULES[rule]
