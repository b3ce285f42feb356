"""Compactions in a log: its edits grouped, those inferred from prompt sizes, the fate of each
message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.session.messages import Edit
from ctxkit.tokens.sizes import group_prompts_by_agent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session


class EditGroup(NamedTuple):
    """The edits of one compaction, and where they stand.

    What it did to the prompts, and how it held, is `metrics.compactions.Compaction`.
    """

    number: int
    position: int
    """Place of its first edit in `session.path`."""
    edits: tuple[Edit, ...]


def group_edits(session: Session) -> tuple[EditGroup, ...]:
    """Return the compactions that stand, in order.

    A replay names the edits of its n-th compaction ``rules-n.0``, ``rules-n.1``, ...: those are
    one. Every other edit is a compaction by itself.
    """
    if not session.edits:
        return ()
    out: list[EditGroup] = []
    before: str | None = None
    for position, entry in enumerate(session.path):
        stem = _stem(entry) if isinstance(entry, Edit) else None
        if isinstance(entry, Edit):
            if stem is not None and stem == before:
                out[-1] = out[-1]._replace(edits=(*out[-1].edits, entry))
            else:
                out.append(EditGroup(len(out), position, (entry,)))
        before = stem
    return tuple(out)


def _stem(edit: Edit) -> str | None:
    stem, dot, last = edit.id.rpartition(".")
    return stem if dot and stem and last.isdecimal() and edit.source == "derived" else None


MessageState = Literal[
    "shown", "hidden", "dropped", "shortened", "replaced", "summarised", "pruned"
]


class MessageFate(NamedTuple):
    """What stands for a message now, and the compaction that made it so."""

    state: MessageState
    shown: Message | None
    """What a model is shown of it; None where it is gone."""
    compaction: int | None = None
    edit: Edit | None = None
    pruned_by: str | None = None
    """The pruning that changes it for a call alone."""

    @property
    def reason(self) -> str | None:
        """Why it is not shown as it was written; None where it is."""
        if self.pruned_by is not None:
            return f"pruned for the call by {self.pruned_by}"
        if self.edit is None:
            return "never sent to a model" if self.state == "hidden" else None
        return self.edit.reason or self.edit.method or self.edit.trigger or self.state


def get_message_fates(session: Session, upto: int | None = None) -> dict[str, MessageFate]:
    """Return the fate of each message that an edit touched, by its id; `upto` takes only the first
    edits.

    A message that is not in the answer is shown as it was written, unless it is never sent at all.
    """
    if not session.edits:
        return {}
    out: dict[str, MessageFate] = {}
    origin: dict[str, str] = {}
    number = {id(edit): cut.number for cut in group_edits(session) for edit in cut.edits}
    for edit in session.edits[:upto]:
        k = number[id(edit)]
        instead = edit.inserted if edit.kind in ("shortened", "replaced") else ()
        for i, target in enumerate(edit.targets):
            first = origin.get(target, target)
            before = out.get(first)
            if before is not None and before.shown is None:
                continue  # gone already: a later edit cannot touch it
            new = instead[i] if i < len(instead) else None
            if new is None and edit.kind in ("shortened", "replaced"):
                continue
            if new is not None:
                origin[new.id] = first
            out[first] = MessageFate(edit.kind, new, k, edit)
    return out


class SizeRule(Protocol):
    """Finds compactions in a series of prompt sizes."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabRule:
    """TraceLab's rule: a large fall, from near the session's largest prompt, that does not come
    back at once.
    """

    drop: int = 64_000
    """A fall of at least so many tokens."""
    share: float = 0.75
    """The prompt before was at least this share of the session's largest, and is not reached to
    this share again ...
    """
    steps: int = 3
    """... within so many prompts, the first one counted."""

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
    """CtxMap's rule: a prompt that is less than a share of the one before."""

    share: float = 0.5
    """A fall below this share of the prompt before."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        return [i for i in range(1, len(prompts)) if prompts[i] < self.share * prompts[i - 1]]


INFERENCE_RULES: dict[str, SizeRule] = {"tracelab": TraceLabRule(), "ctxmap": CtxMapRule()}
"""The rules by name, with the settings of their authors."""


def infer_compactions(session: Session, rule: str | SizeRule = "tracelab") -> tuple[Edit, ...]:
    """Return the compactions that a rule finds in the recorded prompt sizes; none where the log has
    no usage.

    Each is an edit of `source="derived"` without targets (the sizes do not say what went), with the
    sizes of the prompts before and after, and in `details` the number of the first call after it.
    Agents are looked at apart.

    Raises:
        BadArguments: no rule has that name.
    """
    name, found = _resolve_rule(rule)
    out = []
    for calls in group_prompts_by_agent(session).values():
        prompts = [p for _, p in calls]
        for i in found(prompts):
            call = calls[i][0]
            out.append(
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
    return tuple(sorted(out, key=lambda e: e.details["call"]))


def compare_with_marks(
    sessions: Session | Iterable[Session], rules: Iterable[str | SizeRule] = ("tracelab", "ctxmap")
) -> pd.DataFrame:
    """Return how far derived compactions agree with the marks of logs that have both marks and
    usage.

    One row a session and rule: `calls` with usage, compactions `marked` (those before a later
    billed call, that a rule could find), `derived`, `agreed` (at the same billed call), `missed`,
    `invented`, and the shares `found` (agreed / marked) and `true` (agreed / derived), missing
    where nothing was derived.
    """
    import pandas as pd

    from ctxkit.session.session import Session

    given = [sessions] if isinstance(sessions, Session) else list(sessions)
    rows = [row for s in given for rule in rules if (row := _agreement_row(s, rule)) is not None]
    frame = pd.DataFrame(rows, columns=list(_AGREEMENT_COLUMNS))
    return frame.astype(_AGREEMENT_COLUMNS)


_AGREEMENT_COLUMNS = {
    "session": "string",
    "format": "string",
    "rule": "string",
    "calls": "Int64",
    "marked": "Int64",
    "derived": "Int64",
    "agreed": "Int64",
    "missed": "Int64",
    "invented": "Int64",
    "found": "Float64",
    "true": "Float64",
}


def _agreement_row(session: Session, rule: str | SizeRule) -> dict[str, Any] | None:
    marked = _marked_calls(session)
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
        "agreed": both,
        "missed": len(marked) - both,
        "invented": len(derived) - both,
        "found": both / len(marked),
        "true": both / len(derived) if derived else None,
    }


def _marked_calls(session: Session) -> set[int]:
    """Numbers of the first billed calls after each recorded compaction that had billed calls before
    it.
    """
    places = {
        c.position: c.index for calls in group_prompts_by_agent(session).values() for c, _ in calls
    }
    out: set[int] = set()
    due = seen = False
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            due = due or (
                seen and entry.source == "recorded" and entry.kind in ("summarised", "dropped")
            )
        elif position in places:
            if due:
                out.add(places[position])
            due, seen = False, True
    return out


def _resolve_rule(rule: str | SizeRule) -> tuple[str, SizeRule]:
    if callable(rule):
        return str(getattr(rule, "__name__", type(rule).__name__.lower())), rule
    if rule not in INFERENCE_RULES:
        raise BadArguments(
            f"There is no rule {rule!r}.{did_you_mean(str(rule), INFERENCE_RULES)} Rules: "
            f"{', '.join(INFERENCE_RULES)}."
        )
    return rule, INFERENCE_RULES[rule]
