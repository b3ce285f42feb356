"""One row for a session or a replay: sizes, money, how its cuts held, and what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.engine import run_behind
from ctxkit.frames.occupancy import prompts as plain_prompts
from ctxkit.frames.recorded_cuts import cuts as placed
from ctxkit.metrics.compaction import held
from ctxkit.metrics.means import mean, middle, whole
from ctxkit.metrics.shared_prefixes import SentByRun
from ctxkit.metrics.shown import shown_by, shown_in
from ctxkit.metrics.size import sent_in, spots_in, spots_of
from ctxkit.metrics.tallies import bill
from ctxkit.metrics.thrash import compactions
from ctxkit.readers.given import of_session
from ctxkit.replays import crowded, hidden
from ctxkit.sweeps.bases import Base
from ctxkit.sweeps.score_columns import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.cache.predictions import Prediction
    from ctxkit.engine import Run
    from ctxkit.metrics.compaction import Compaction
    from ctxkit.metrics.shared_prefixes import Sent
    from ctxkit.session import Session


@of_session
def score(session: Session, *, loss: bool = True, reuse: bool = False) -> pd.Series:
    """Return one row for a recorded session or a replay of one, under the names of
    `sweeps.score_columns.COLUMNS`.

    Shares lie between 0 and 1, counts end in `_n`, money is dollars; what the data cannot say is
    missing, never zero. A recorded session is scored by its own bill. A replay is billed by the
    recorded session's cache behaviour (see `metrics.bills`), over the calls that the record bills.

    Args:
        session: a session, what `replay` returned, the path of a log, or a list of messages.
        loss: work out what was lost too; it reads every text once. Missing for a replay whose rules
            prune each call and that was read from a file: what was hidden is then not known.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it
            summarises afresh.

    Raises:
        BadArguments: it is no session.
    """
    import pandas as pd

    from ctxkit.sweeps.renamed import Score

    row = row_of(session, loss=loss, reuse=reuse)
    values = {n: pd.NA if row.get(n) is None else row[n] for n in NAMES}
    return Score(values, name=row["rules"], dtype=object)


def row_of(
    session: Session, base: Base | None = None, *, loss: bool = True, reuse: bool = False
) -> dict[str, Any]:
    """Return the row of a session or a replay as plain values."""
    base = base or Base(session.origin or session)
    if session.origin is None:
        row = _recorded(base, reuse=reuse)
    else:
        row = _replayed(base, session, reuse=reuse)
    return row | lost(base, session) if loss else row


def lost(base: Base, session: Session | None, done: Run | None = None) -> dict[str, Any]:
    """Return the columns of loss of a session or of a run, and what was done after its
    compactions.
    """
    unknown = False
    if done is None and session is not None:
        done = run_behind(session)
        unknown = done is None and bool(session.details.get("replay", {}).get("pruning"))
    if done is not None:
        shown, calls = shown_by(base.memory, done), [cut.call for cut in done.cuts]
    else:
        assert session is not None  # noqa: S101  one of both is given
        shown = shown_in(base.memory, session)
        calls = shown.moments.tolist()
    found: dict[str, Any] = {}
    if not base.session.has_text:
        found["loss_note"] = "The log holds no text, so what was lost cannot be said."
    elif unknown:
        found["loss_note"] = "What the pruning hid is not in the file, so loss cannot be said."
    else:
        found = base.loss(shown)
    told = [
        base.acts.rereads.after(shown, call)
        for call in dict.fromkeys(calls)
        if 0 < call < base.memory.calls
    ]
    found["reread_rate"] = mean(rate for rate, _ in told)
    found["reorientation_calls"] = middle(first for _, first in told)
    return found


def run_row(
    base: Base, done: Run, label: str, *, loss: bool = False, reuse: bool = False
) -> dict[str, Any]:
    """Return the row of a run, equal to that of the session which `replay` makes of it."""
    rules, prompts = done.rules, SentByRun(done)
    row = _row(
        base,
        prompts,
        spots_of(done, prompts),
        _outcome(label, hidden(done), [h.why for h in done.held], crowded(done)),
        window=rules.parameters.get("context_window"),
        pruned=rules.pruning is not None,
        reuse=reuse,
    )
    return row | lost(base, None, done) if loss else row


def _replayed(base: Base, session: Session, *, reuse: bool) -> dict[str, Any]:
    told = session.details.get("replay", {})
    whys = [str(h.get("why", "")) for h in told.get("held", ())]
    label = str(told.get("rules", "replay"))
    return _row(
        base,
        sent_in(session),
        spots_in(session),
        _outcome(label, told.get("hidden", (None, None)), whys, told.get("note")),
        window=told.get("parameters", {}).get("context_window"),
        pruned=bool(told.get("pruning")),
        reuse=reuse,
    )


def _outcome(
    label: str, hid: Sequence[int | None], whys: Sequence[str], note: str | None
) -> dict[str, Any]:
    """Return what a run says of itself; `whys` are the reasons why compactions were held back."""
    failed = sum(why.startswith("failed: ") for why in whys)
    return {
        "rules": label,
        "hidden_messages_n": hid[0],
        "hidden_results_n": hid[1],
        "suppressed_n": len(whys) - failed,
        "failed_n": failed,
        "note": note,
    }


def _row(
    base: Base,
    prompts: Sent,
    spots: Sequence[Compaction],
    outcome: dict[str, Any],
    *,
    window: Any,
    pruned: bool,
    reuse: bool,
) -> dict[str, Any]:
    sheet = base.sheet
    costs = [sheet.summaries_usd(s.written, reuse=reuse) for s in spots]
    invoice = bill(sheet, prompts, whole(costs))
    usd = invoice.total_usd
    row = base.head(outcome["rules"], base.source) | outcome
    row |= base.over(map(prompts.prompt, range(len(sheet.billed))), invoice.peak, window)
    row |= {
        "prompt_tokens": invoice.prompts,
        "peak_tokens": invoice.peak,
        "cost_usd": usd,
        **within(usd, invoice.input_usd, base.foretold),
        "input_usd": invoice.input_usd,
        "output_usd": invoice.output_usd,
        "summaries_usd": invoice.summaries_usd,
    }
    if sheet.has_usage:
        row["fresh_tokens"] = invoice.fresh
        if sheet.has_cache:
            row |= {"cache_read_tokens": invoice.read, "cache_write_tokens": invoice.write}
    row |= held(spots, prompts, sheet, costs)
    row |= base.forecast.columns(row, pruned=pruned, reuse=reuse)
    return row


def _recorded(base: Base, *, reuse: bool = False) -> dict[str, Any]:
    session, sheet = base.session, base.sheet
    sizes_, source = plain_prompts(session)
    known = [n for n in sizes_ if n]
    ledger = base.forecast.ledger(reuse=reuse)
    cuts, prompts = compactions(session, base.anchored)
    costs = [sheet.summaries_usd(c.written, reuse=reuse) for c in cuts]
    row = base.head("recorded", source) | base.over(sizes_, max(known, default=None))
    row |= {
        "prompt_tokens": sum(known) if known else None,
        "peak_tokens": max(known, default=None),
        "cost_usd": ledger.own_usd,
        "cost_low_usd": ledger.own_usd,
        "cost_high_usd": ledger.own_usd,
        "cost_source": ledger.own_source,
        "table_usd": ledger.total_usd if sheet.has_output else None,
        "input_usd": ledger.input_usd,
        "output_usd": ledger.output_usd if sheet.has_output else None,
        "summaries_usd": ledger.summaries_usd,
        **held(cuts, prompts, sheet, costs),
        "cuts_n": len(placed(session)),
    }
    if sheet.has_usage:
        row["fresh_tokens"] = ledger.sum("fresh")
        if sheet.has_cache:
            row |= {
                "cache_read_tokens": ledger.sum("read"),
                "cache_write_tokens": ledger.sum("write") + ledger.sum("write_1h"),
            }
    return row | _recorded_view(session)


def within(
    total: float | None, prompts: float | None, foretold: Prediction
) -> dict[str, float | None]:
    """Return within which dollars a replay's lie: its prompts by the prediction's interval."""
    if total is None or prompts is None or foretold.spread is None:
        return {}
    low, high = foretold.spread
    return {"cost_low_usd": total + prompts * low, "cost_high_usd": total + prompts * high}


def _recorded_view(session: Session) -> dict[str, Any]:
    shown = {m.id for m in session.view()}
    gone = [m for m in session.messages if m.visible and m.id not in shown]
    return {"hidden_messages_n": len(gone), "hidden_results_n": sum(m.role == "tool" for m in gone)}
