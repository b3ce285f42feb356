"""What the calls that wrote a session's summaries cost: as the log says, else estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames.costs import cost, weakest
from ctxkit.messages import Message

if TYPE_CHECKING:
    from ctxkit.frames.recorded_cuts import EditGroup
    from ctxkit.session import Session

NO_MODEL = frozenset({"intents", "evidence", "digest", "tombstones", "superseded"})
"""Methods whose text is worked out from the record; every other summary is billed as a model's."""


class CompactionSizes(NamedTuple):
    """Tokens of a compaction; None: unknown."""

    before: int | None
    after: int | None
    summary: int | None
    """What the model wrote; 0 or None where it wrote nothing."""


def summary_usd(
    session: Session,
    cut: EditGroup,
    sizes: CompactionSizes,
    model: str | None,
    *,
    reuse: bool = False,
) -> tuple[float | None, str | None]:
    """Return the dollars of a compaction's summary calls and where the figure comes from.

    A log that does not price them leaves an estimate: what was summarised is sent as fresh input
    (`reuse`: the whole prompt is read from the cache) and the summary is the output, by the prices
    of `model`, the last that answered before. Missing where no model wrote anything, or it has no
    price.
    """
    told = [e for e in cut.edits if e.usage is not None]
    if told:
        replies = [
            (Message(role="assistant", usage=e.usage), e.model or session.model) for e in told
        ]
        spent = [cost(reply, model) for reply, model in replies]
        known = [usd for usd, _ in spent if usd is not None]
        return (
            (sum(known), weakest([s for _, s in spent]))
            if len(known) == len(spent)
            else (None, None)
        )
    usd = _estimate(cut, sizes, model, reuse=reuse)
    return usd, None if usd is None else "estimated"


def is_billed(cut: EditGroup) -> bool:
    """Say whether a compaction had calls of a model: the log bills them, or a summary stands."""
    return any(e.usage is not None for e in cut.edits) or _is_written(cut)


def _is_written(cut: EditGroup) -> bool:
    return any(
        e.source == "recorded"
        and e.method not in NO_MODEL
        and any(m.role == "summary" for m in e.inserted)
        for e in cut.edits
    )


def _estimate(
    cut: EditGroup, sizes: CompactionSizes, model: str | None, *, reuse: bool
) -> float | None:
    from ctxkit.prices import price

    if not _is_written(cut) or not sizes.summary or sizes.before is None or sizes.after is None:
        return None
    p = price(model)
    if p is None:
        return None
    told = sum(e.details.get("source_tokens", 0) for e in cut.edits)
    went = told or max(sizes.before - sizes.after + sizes.summary, 0)
    return p.asked_usd(sizes.before if reuse else went, sizes.summary, cached=reuse)
