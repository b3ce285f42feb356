"""`ctxkit.score`: one row of figures for a session, replay or run."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ctxkit.engine import run_of_replay
from ctxkit.engine.cache_model.prediction import (
    NAIVE_MODELS,
    compute_compaction_read_error,
    predict_input_cost,
    predict_reads_after_compactions,
)
from ctxkit.engine.replay import count_hidden, describe_crowded_window
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.aftermath import AftermathAnalysis, SessionActs
from ctxkit.metrics.compactions import (
    get_replay_compactions,
    get_replay_prompts,
    get_run_compactions,
    make_compaction_columns,
)
from ctxkit.metrics.cost.ledger import build_recorded_ledger
from ctxkit.metrics.cost.replay_bill import ReplayCostModel, bill_replay
from ctxkit.metrics.elongation import (
    classify_policy,
    estimate_elongation,
    get_model_family,
    judge_cost,
)
from ctxkit.metrics.item_index import ItemIndex
from ctxkit.metrics.items import MessageItemCache
from ctxkit.metrics.loss import make_loss_columns
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.prompt_sizes import RunPrompts
from ctxkit.metrics.prompt_sizes import get_prompt_sizes as plain_prompts
from ctxkit.metrics.recorded_compactions import group_edits as placed
from ctxkit.metrics.stats import mean_or_none, median_or_none, sum_if_complete
from ctxkit.metrics.thrashing import get_compactions
from ctxkit.metrics.visibility import VisibilityRecorder, get_run_visibility, get_session_visibility
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.sizes import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.engine import Run
    from ctxkit.engine.cache_model.prediction import Prediction
    from ctxkit.metrics.compactions import Compaction
    from ctxkit.metrics.cost.ledger import SessionLedger
    from ctxkit.metrics.elongation import PolicyKind
    from ctxkit.metrics.prompt_sizes import SentPrompts
    from ctxkit.metrics.visibility import Visibility
    from ctxkit.session.session import Session


@accepts_session
def score(session: Session, *, loss: bool = True, reuse: bool = False) -> pd.Series:
    """Return one row for a recorded session or a replay of one, under the names of
    `experiments.score_columns.SCORE_COLUMNS`.

    Shares lie between 0 and 1, counts end in `_n`, money is dollars; what the data cannot say is
    missing, never zero. A recorded session is scored by its own bill. A replay is billed by the
    recorded session's cache behaviour (see `metrics.cost.replay_bill`), over the calls that the
    record bills.

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

    row = score_session(session, loss=loss, reuse=reuse)
    values = {n: pd.NA if row.get(n) is None else row[n] for n in SCORE_COLUMN_NAMES}
    return pd.Series(values, name=row["rules"], dtype=object)


def score_session(
    session: Session,
    base: SessionScoreCache | None = None,
    *,
    loss: bool = True,
    reuse: bool = False,
) -> dict[str, Any]:
    """Return the row of a session or a replay as plain values."""
    base = base or SessionScoreCache(session.origin or session)
    if session.origin is None:
        row = _score_record(base, reuse=reuse)
    else:
        row = _score_replay(base, session, reuse=reuse)
    return row | score_loss(base, session) if loss else row


def score_loss(
    base: SessionScoreCache, session: Session | None, done: Run | None = None
) -> dict[str, Any]:
    """Return the columns of loss of a session or of a run, and what was done after its
    compactions.
    """
    unknown = False
    if done is None and session is not None:
        done = run_of_replay(session)
        unknown = done is None and bool(session.details.get("replay", {}).get("pruning"))
    if done is not None:
        shown, calls = get_run_visibility(base.memory, done), [cut.call for cut in done.cuts]
    else:
        assert session is not None  # noqa: S101  one of both is given
        shown = get_session_visibility(base.memory, session)
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
    found["reread_rate"] = mean_or_none(rate for rate, _ in told)
    found["reorientation_calls"] = median_or_none(first for _, first in told)
    return found


def score_run(
    base: SessionScoreCache, done: Run, label: str, *, loss: bool = False, reuse: bool = False
) -> dict[str, Any]:
    """Return the row of a run, equal to that of the session which `replay` makes of it."""
    rules, prompts = done.rules, RunPrompts(done)
    row = _score_prompts(
        base,
        prompts,
        get_run_compactions(done, prompts),
        _run_outcome(
            label, count_hidden(done), [h.why for h in done.held], describe_crowded_window(done)
        ),
        window=rules.parameters.get("context_window"),
        pruned=rules.pruning is not None,
        reuse=reuse,
    )
    return row | score_loss(base, None, done) if loss else row


def _score_replay(base: SessionScoreCache, session: Session, *, reuse: bool) -> dict[str, Any]:
    told = session.details.get("replay", {})
    whys = [str(h.get("why", "")) for h in told.get("held", ())]
    label = str(told.get("rules", "replay"))
    return _score_prompts(
        base,
        get_replay_prompts(session),
        get_replay_compactions(session),
        _run_outcome(label, told.get("hidden", (None, None)), whys, told.get("note")),
        window=told.get("parameters", {}).get("context_window"),
        pruned=bool(told.get("pruning")),
        reuse=reuse,
    )


def _run_outcome(
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


def _score_prompts(
    base: SessionScoreCache,
    prompts: SentPrompts,
    spots: Sequence[Compaction],
    outcome: dict[str, Any],
    *,
    window: Any,
    pruned: bool,
    reuse: bool,
) -> dict[str, Any]:
    sheet = base.sheet
    costs = [sheet.summaries_usd(s.written, reuse=reuse) for s in spots]
    invoice = bill_replay(sheet, prompts, sum_if_complete(costs))
    usd = invoice.total_usd
    row = base.head(outcome["rules"], base.source) | outcome
    row |= base.over(map(prompts.prompt, range(len(sheet.billed))), invoice.peak, window)
    row |= {
        "prompt_tokens": invoice.prompts,
        "peak_tokens": invoice.peak,
        "cost_usd": usd,
        **get_cost_interval(usd, invoice.input_usd, base.foretold),
        "input_usd": invoice.input_usd,
        "output_usd": invoice.output_usd,
        "summaries_usd": invoice.summaries_usd,
    }
    if sheet.has_usage:
        row["fresh_tokens"] = invoice.fresh
        if sheet.has_cache:
            row |= {"cache_read_tokens": invoice.read, "cache_write_tokens": invoice.write}
    row |= make_compaction_columns(spots, prompts, sheet, costs)
    row |= base.forecast.columns(row, pruned=pruned, reuse=reuse)
    return row


def _score_record(base: SessionScoreCache, *, reuse: bool = False) -> dict[str, Any]:
    session, sheet = base.session, base.sheet
    sizes_, source = plain_prompts(session)
    known = [n for n in sizes_ if n]
    ledger = base.forecast.ledger(reuse=reuse)
    cuts, prompts = get_compactions(session, base.anchored)
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
        **make_compaction_columns(cuts, prompts, sheet, costs),
        "cuts_n": len(placed(session)),
    }
    if sheet.has_usage:
        row["fresh_tokens"] = ledger.sum("fresh")
        if sheet.has_cache:
            row |= {
                "cache_read_tokens": ledger.sum("read"),
                "cache_write_tokens": ledger.sum("write") + ledger.sum("write_1h"),
            }
    return row | _hidden_in_record(session)


def get_cost_interval(
    total: float | None, prompts: float | None, foretold: Prediction
) -> dict[str, float | None]:
    """Return within which dollars a replay's lie: its prompts by the prediction's interval."""
    if total is None or prompts is None or foretold.spread is None:
        return {}
    low, high = foretold.spread
    return {"cost_low_usd": total + prompts * low, "cost_high_usd": total + prompts * high}


def _hidden_in_record(session: Session) -> dict[str, Any]:
    shown = {m.id for m in session.view()}
    gone = [m for m in session.messages if m.visible and m.id not in shown]
    return {"hidden_messages_n": len(gone), "hidden_results_n": sum(m.role == "tool" for m in gone)}


_FORETOLD = ("half_error", "split_error", *(f"{n}_error" for n in NAIVE_MODELS))


class SessionScoreCache:
    """What all rows of one recorded session share: made once, whatever is replayed on it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def anchored(self) -> MessageSizes:
        """The sizes of its messages."""
        return measure_sizes(self.session)

    @cached_property
    def sheet(self) -> ReplayCostModel:
        """What it tells about the cost of replays."""
        return ReplayCostModel.of(self.session, self.anchored)

    @cached_property
    def foretold(self) -> Prediction:
        """What other sessions foretell of its input side."""
        return predict_input_cost(self.session)

    @cached_property
    def memory(self) -> ItemIndex:
        """What its messages hold, as arrays."""
        return ItemIndex(self.session, MessageItemCache(self.anchored))

    @cached_property
    def acts(self) -> SessionActs:
        """What its calls did."""
        return SessionActs(self.memory)

    @cached_property
    def forecast(self) -> ElongationForecast:
        """What its rows say of real runs."""
        return ElongationForecast(self.session)

    @cached_property
    def window(self) -> int | None:
        """Tokens of its window, at its last call; None: neither log nor table knows it."""
        if not self.session.calls:
            return self.session.context_window
        last = self.session.calls[-1].message
        return get_context_window(self.session, last.model or self.session.model, last).tokens

    def over(
        self, prompts: Iterable[int | None], peak: int | None, own: Any = None
    ) -> dict[str, Any]:
        """Return the columns of the window: its size, and the first call that does not fit into it.

        Args:
            prompts: tokens of each call's prompt.
            peak: the largest of them.
            own: the window that rules are set to.
        """
        window = max(self.window, own) if self.window and type(own) is int else self.window
        if not window or peak is None or peak <= window:
            return {"window_tokens": window}
        first = next((i for i, n in enumerate(prompts) if n is not None and n > window), None)
        return {"window_tokens": window, "over_call": first}

    def head(self, rules: str, source: str | None) -> dict[str, Any]:
        """Return the columns that do not depend on a run."""
        return {"session": self.session.id, "rules": rules, **self._told, "source": source}

    @cached_property
    def _told(self) -> dict[str, Any]:
        sheet = self.sheet
        return {
            "calls_n": sum(sheet.billed),
            "output_tokens": sheet.output_tokens,
            **{n: getattr(self.foretold, n) for n in _FORETOLD},
            "prediction_error": self.foretold.error,
            "prediction_low": self.foretold.low,
            "prediction_high": self.foretold.high,
            "prediction_note": self.foretold.why,
            "cut_error": compute_compaction_read_error(
                predict_reads_after_compactions(self.session)
            ),
            "closure_error": sheet.closure,
            "unexplained_misses": sheet.unexplained,
            "explained_loss": sheet.explained,
            "priced": sheet.priced,
            "counter": self.anchored.counter,
            "counter_error": self.anchored.error,
            "session_notes": " ".join(self.session.notes) or None,
        }

    def loss(self, shown: Visibility) -> dict[str, Any]:
        """Return the columns of loss, and of what was done after what was taken out."""
        return dict(self._nothing_lost) if not len(shown.moments) else self._loss(shown)

    @cached_property
    def _nothing_lost(self) -> dict[str, Any]:
        return self._loss(VisibilityRecorder(self.memory).told())

    def _loss(self, shown: Visibility) -> dict[str, Any]:
        forgotten = LossAnalysis(self.memory, shown)
        found = make_loss_columns(forgotten) | AftermathAnalysis(forgotten, self.acts).columns()
        return found | {"loss_note": _why_missing(found)}

    @property
    def source(self) -> str:
        """Where the sizes of a replay come from."""
        return "derived" if self.sheet.has_usage else "estimated"


def _why_missing(found: dict[str, Any]) -> str | None:
    """Return why the shares of loss are missing where there is text."""
    if found["needed_later_loss"] is None:
        return "Nothing that was said is named again later, so what was needed cannot be said."
    if found["summary_recall"] is None and found["at_stake_n"]:
        return "No text was put in, so there is no summary to be judged."
    return None


_PROCESSORS: dict[str, PolicyKind] = {"swe_agent_mask": "mask", "none": "raw"}
"""Families of the history processors that a reader infers."""


class ElongationForecast:
    """What the rows of one recorded session share: the policy it was made under, and its bill."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.kind = classify_recorded_policy(session)
        self.family = get_model_family(
            next((m.model for m in session.messages if m.model), session.model)
        )
        self._ledgers: dict[bool, SessionLedger] = {}

    def ledger(self, *, reuse: bool) -> SessionLedger:
        """Return the bill of the record by the table of prices, as replays are billed."""
        if reuse not in self._ledgers:
            self._ledgers[reuse] = build_recorded_ledger(self.session, reuse=reuse)
        return self._ledgers[reuse]

    def columns(self, row: dict[str, Any], *, pruned: bool, reuse: bool) -> dict[str, Any]:
        """Return the columns `longer` to `told_apart` of a replay's row; missing: not known."""
        after = classify_policy(
            summaries=bool(row.get("summary_tokens")),
            pruned=pruned,
            cuts=row.get("cuts_n"),
            hidden=(row["hidden_messages_n"], row["hidden_results_n"]),
        )
        if after is None or self.kind is None:
            return {}
        found = estimate_elongation(after, self.kind, self.family)
        out: dict[str, Any] = {
            "longer": found.factor,
            "longer_low": found.low,
            "longer_high": found.high,
        }
        cost, summaries = row["cost_usd"], row["summaries_usd"]
        usd = self.ledger(reuse=reuse).total_usd
        if cost is None or usd is None:
            return out
        calls = cost - summaries
        ends = calls * found.low + summaries, calls * found.high + summaries
        out["real_low_usd"], out["real_high_usd"] = ends
        return out | {"told_apart": judge_cost(ends, usd)}


def classify_recorded_policy(session: Session) -> PolicyKind | None:
    """Return the family of the policy that a record was made under; None: its log cannot say."""
    if any(edit.inserted for edit in session.edits):
        return "summary"
    if session.edits:
        return "other"
    processor = session.details.get("history_processor")
    if processor is not None:
        return _PROCESSORS.get(processor["name"], "other")
    return None if "compactions" in session.details.get("cannot_tell", ()) else "raw"
