"""What became of every message: still shown, shortened, or gone, at which compaction and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ctxkit.frames.recorded_cuts import cuts

if TYPE_CHECKING:
    from ctxkit.messages import Edit, Message
    from ctxkit.session import Session

State = Literal["shown", "hidden", "dropped", "shortened", "replaced", "summarised", "pruned"]


class Fate(NamedTuple):
    """What stands for a message now, and the compaction that made it so."""

    state: State
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


def fates(session: Session, upto: int | None = None) -> dict[str, Fate]:
    """Return the fate of each message that an edit touched, by its id; `upto` takes only the first
    edits.

    A message that is not in the answer is shown as it was written, unless it is never sent at all.
    """
    if not session.edits:
        return {}
    out: dict[str, Fate] = {}
    origin: dict[str, str] = {}
    number = {id(edit): cut.number for cut in cuts(session) for edit in cut.edits}
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
            out[first] = Fate(edit.kind, new, k, edit)
    return out
