"""What a tuner shows: growth, figures beside those of the record, what each compaction saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.amounts import counted, known
from ctxkit.display.markup import escape, line
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import table
from ctxkit.plots.palette import STOP
from ctxkit.plots.palette import TEXT as GREY
from ctxkit.plots.traces import Limit, Mark, Trace
from ctxkit.widgets.explorer_panels import SOFT, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.widgets.trials import Trial, TrialStep

LEAST = 0.10
"""A compaction that saves less counts as fruitless (fuseraft's threshold)."""
_MARKS, _ROWS = 40, 8
_FIGURES = {
    "prompt_tokens": "prompt tokens",
    "peak_tokens": "peak",
    "cost_usd": "dollars",
    "needed_later_loss": "needed, lost",
    "cuts_n": "cuts",
    "suppressed_n": "held back",
    "token_savings": "saved: tokens",
    "anti_thrash": "anti-thrash",
    "refill": "refill",
    "hidden_messages_n": "hidden messages",
    "lost": "items lost",
}
_SHARES = ("token_savings", "anti_thrash", "refill", "lost", "needed_later_loss")


def growth(
    recorded: Sequence[int | None], trial: Trial, error: str = "", pinned: Trial | None = None
) -> str:
    """Return how the context grew and how it would have grown, with the compactions as lines."""
    calls = range(len(trial.prompts))
    traces = [Trace(name="recorded", x=range(len(recorded)), y=recorded, colour=GREY, dash="dot")]
    if pinned:
        traces.append(Trace(name="pinned", x=range(len(pinned.prompts)), y=pinned.prompts, look=1))
    traces.append(Trace(name="with these settings", x=calls, y=trial.prompts, look=0))
    cuts = [s for s in trial.steps if s.after is not None]
    marks = tuple(Mark(x=s.call - 0.5) for s in cuts) if len(cuts) <= _MARKS else ()
    peak = max((n for n in (*recorded, *trial.prompts) if n), default=0)
    limit = Limit(y=trial.limit, label=f"limit {trial.limit:,}", shown=4 * peak >= trial.limit)
    axes = Axes(
        x="call", y="tokens in the prompt", traces=tuple(traces), limits=(limit,), marks=marks
    )
    wrong = error and (
        f'<div role="alert" style="color:{STOP};line-height:1.5">These settings'
        f" cannot work: {escape(error, 400)} The picture is the last one that could.</div>"
    )
    return f'{wrong}<div role="img" aria-label="{escape(told(trial), 300)}">{axes.svg()}</div>'


def told(trial: Trial) -> str:
    """Return the compactions in a sentence."""
    done = [s for s in trial.steps if s.saved is not None]
    low = sum((s.saved or 0) < LEAST for s in done)
    held = len(trial.steps) - len(done)
    verdict = "they hold" if done else "nothing was compacted"
    if trial.row.get("thrash"):
        verdict = "they thrash"
    return (
        f"{counted(len(done), 'compaction')}, {low:,} saved less than {LEAST:.0%} of the tokens,"
        f" {held:,} held back: {verdict}."
    )


def figures(rows: Mapping[str, Mapping[str, Any]], note: str = "") -> str:
    """Return the figures of the record, of the beginning and of now as a table; what nobody knows
    is left out.
    """
    head, found = _table(rows)
    told_ = f'<div style="color:{SOFT};font-size:12px">{escape(note, 200)}</div>' if note else ""
    return dense(table(head, found) + told_)


def twin(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the same as lines of text."""
    head, found = _table(rows)
    widths = [max(len(row[i]) for row in (head, *found)) for i in range(len(head))]
    return [
        "  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True))
        for row in (head, *found)
    ]


def steps(trial: Trial) -> str:
    """Return what the compactions saved, by tokens and by messages, against the threshold of an
    anti-thrash guard.
    """
    words = f'<div style="color:{TEXT};line-height:1.6">{escape(told(trial), 300)}</div>'
    if not trial.steps:
        return words
    more = len(trial.steps) - _ROWS
    caption = f"The last {_ROWS} of {len(trial.steps):,}" if more > 0 else "Each compaction"
    head = ("before call", "tokens", "after", "saved", "of messages", "verdict")
    return dense(words + table(head, [_step(s) for s in trial.steps[-_ROWS:]], caption=caption))


def when_to_compact(html: str, error: str = "") -> str:
    """Return what the log itself says about when to compact, folded away; or why it cannot say."""
    told = html or f"<p>{escape(error, 400)}</p>"
    return dense(
        f'<details><summary style="color:{TEXT};cursor:pointer">When to'
        f" compact</summary>{told}</details>"
    )


def dense(html: str) -> str:
    """Return HTML whose lines stand closer than a widget's do."""
    return f'<div style="line-height:1.5;overflow-x:auto">{html}</div>'


def _step(step: TrialStep) -> tuple[str, ...]:
    if step.saved is None or step.after is None:
        return (str(step.call), "", "", "", "", line(step.why, 60))
    messages = "" if step.messages is None else f"{step.messages:.0%}"
    verdict = "too little" if step.saved < LEAST else "pays"
    sizes = (f"{step.before:,}", f"{step.after:,}")
    return (str(step.call), *sizes, f"{step.saved:.1%}", messages, verdict)


def _table(rows: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    shown = [c for c in _FIGURES if any(known(row.get(c)) for row in rows.values())]
    head = ("", *(_FIGURES[c] for c in shown))
    return head, [(name, *(_cell(c, row.get(c)) for c in shown)) for name, row in rows.items()]


def _cell(column: str, value: Any) -> str:
    if not known(value):
        return ""
    if column in _SHARES:
        return f"{value:.0%}"
    return f"${value:,.2f}" if column == "cost_usd" else f"{int(value):,}"
