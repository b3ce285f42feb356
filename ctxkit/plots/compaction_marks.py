"""Marks of compactions on the axis of calls, and how those that failed differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ctxkit._internal.formatting import pluralize, sanitize_line
from ctxkit.metrics.frames import per_compaction
from ctxkit.plots.chart import format_tokens

if TYPE_CHECKING:
    from ctxkit.session.session import Session

FAILED_SYMBOL = "x"
"""Shape of the mark of a compaction that failed."""
FAILED_DASH: Literal["dash"] = "dash"
"""Its line; that of a compaction is dotted."""


class CompactionMark(NamedTuple):
    """A compaction on the chart: the call after it, and the sizes before and after it."""

    number: int | None
    """Number of the compaction; None: a drop of the prompt without a mark in the log, or an attempt
    that changed nothing.
    """
    call: int
    agent: str
    before: int | None
    after: int | None
    why: str
    kind: str = ""
    """As in the compaction frame."""
    error: str | None = None
    """Why its summary failed, or why it changed nothing."""

    @property
    def is_failed(self) -> bool:
        """True where its summary failed or it changed nothing."""
        return self.error is not None

    @property
    def height(self) -> int:
        """Height of its mark, in tokens."""
        return self.before if self.before is not None else 0

    def describe(self) -> str:
        """Return its effect as lines of text."""
        sizes = f"{format_tokens(self.before)} → {format_tokens(self.after)} tokens"
        what = f"compaction {self.number}"
        if self.number is None:
            what = f"compaction {self.kind}" if self.is_failed else "no mark in the log"
        failed = self.error and f"failed: {sanitize_line(self.error, 200)}"
        return "\n".join(filter(None, [what, sizes, self.why, failed]))


def collect_compaction_marks(session: Session) -> tuple[CompactionMark, ...]:
    """Return the compactions of a session, its unmarked drops, and the attempts that failed."""
    n = len(session.calls)
    data = dict(per_compaction.rows([session], unmarked=True, attempts=True))
    # A compaction without a following call is placed after the last call.
    data["call"] = [n if call is None else call for call in data["call"]]
    columns = (
        *("compaction", "call", "agent", "tokens_before", "tokens_after", "kind", "error"),
        *("method", "trigger"),
    )
    return tuple(
        CompactionMark(k, call, agent, before, after, " · ".join(filter(None, why)), kind, error)
        for k, call, agent, before, after, kind, error, *why in zip(
            *(data[c] for c in columns), strict=True
        )
        if kind != "skipped"  # there was nothing to compact
    )


def describe_failed_marks(n: int) -> str:
    """Return what the marks of failed compactions are, to be put behind a caption."""
    if not n:
        return ""
    return (
        f" {pluralize(n, 'compaction')} failed (crosses, dashed lines): no summary was made, or"
        " nothing was changed."
    )
