"""Scores of a session, replay or run (`ctxkit.score`): one row of figures each.

All rows of one recorded session share a `SessionAnalysisCache`: message sizes, the cost model that
is calibrated on the recorded usage, the index of items, and the prediction of other sessions. A row
is assembled from bills (`metrics.cost`), compactions, window, elongation and, on request, loss. The
same functions score the record, a live `RulesRun` and a replay that was read from a file.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from ctxkit.engine import RulesRun, get_run_of_replay
from ctxkit.engine.cache_model.input_cost_prediction import (
    NAIVE_MODELS,
    compute_compaction_read_error,
    predict_input_cost,
    predict_reads_after_compactions,
)
from ctxkit.engine.cache_model.training_counts import SameDeveloperSessions
from ctxkit.engine.prompt_checks_and_repairs import count_refused_calls
from ctxkit.engine.replay import (
    count_hidden_messages_and_results,
    describe_run_oddities,
    find_prompt_source,
)
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES
from ctxkit.formats.reading import read_all
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_outcomes import get_compactions_and_prompts
from ctxkit.metrics.compaction_savings_and_payback import (
    get_replay_compactions,
    get_replay_prompt_sizes,
    get_rules_run_compactions,
    make_compaction_columns,
)
from ctxkit.metrics.compaction_sizes_and_detection import measure_compactions
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel, bill_replay, closure_error
from ctxkit.metrics.cost.session_bill import bill_session
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
from ctxkit.metrics.losable_items import MessageItemCache
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.loss_tables import make_loss_columns
from ctxkit.metrics.means_and_prediction_intervals import (
    mean_or_none,
    median_or_none,
    sum_if_complete,
)
from ctxkit.metrics.message_visibility import (
    VisibilityRecorder,
    get_rules_run_visibility,
    get_visibility,
)
from ctxkit.metrics.prompt_sizes_and_contents import RunPromptSizes, has_prompt_sizes
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes as plain_prompts
from ctxkit.metrics.run_elongation_from_studies import (
    classify_policy,
    compare_cost_with_record,
    estimate_elongation,
    get_study_model_family,
    widen_interval_to_closed_loop_runs,
)
from ctxkit.metrics.user_rule_loss_and_breaches import (
    BreachAndStaleValueIndex,
    CompactionConsequenceAnalysis,
)
from ctxkit.session.compactions_and_prunings import (
    group_edits,
    has_sealed_summary,
    hides_compactions,
)
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from ctxkit.engine.cache_model.input_cost_prediction import SessionInputCostPredictionErrors
    from ctxkit.metrics.compaction_savings_and_payback import CombinedCompactionBeforeCall
    from ctxkit.metrics.cost.call_and_summary_charges import SessionBill
    from ctxkit.metrics.cost.replay_cost_model import ReplayBill
    from ctxkit.metrics.message_visibility import Visibility
    from ctxkit.metrics.prompt_sizes_and_contents import PromptAndSharedPrefixSizes
    from ctxkit.metrics.run_elongation_from_studies import Elongation, PolicyKind
    from ctxkit.session.session import Session


@accepts_session
def score(
    session: Session,
    *,
    loss: bool = True,
    reuse: bool = False,
    logs: str | PathLike[str] | Iterable[Session] | None = None,
) -> pd.Series:
    """Score a recorded session or a replay.

    A recorded session is scored by its own bill. A replay is billed by the cache behaviour of the
    recorded session (see `metrics.cost.replay_cost_model`), over the calls that the record bills.

    Args:
        session: a session, a result of `replay`, the path of a log, or a list of messages.
        loss: also compute information loss, which reads every text once. Loss is missing for a
            replay read from a file whose rules prune each call, because the file does not hold what
            was hidden.
        reuse: bill the call that writes a summary as reading the cached prompt; otherwise it sends
            what it summarises as fresh input.
        logs: other logs of the same developer (a folder, or sessions): the prediction is told when
            the last one was, and learns from them. None: it rests on other developers' logs alone.

    Returns:
        A series with the columns of `experiments.score_columns.SCORE_COLUMNS`, shown by its chief
        figures (`.detail` has all). Shares are between 0 and 1, counts end in `_n`, money is in US
        dollars; unknown values are missing, never zero.

    Raises:
        BadArguments: the argument is no session.

    Example:
        >>> import ctxkit as ck
        >>> row = ck.score(ck.samples.path(), loss=False)
        >>> int(row["calls_n"]), int(row["compactions_n"])
        (343, 2)
    """
    import pandas as pd

    from ctxkit._internal.data_frame_display import DisplaySeries
    from ctxkit.experiments.score_columns import display_score

    base = SessionAnalysisCache(session.origin or session, read_developer_logs(logs))
    row = score_session(session, base, loss=loss, reuse=reuse)
    values = {n: pd.NA if row.get(n) is None else row[n] for n in SCORE_COLUMN_NAMES}
    displayed = DisplaySeries(values, name=row["rules"], dtype=object)
    displayed.render = display_score
    return displayed


def read_developer_logs(
    logs: str | PathLike[str] | Iterable[Session] | None,
) -> SameDeveloperSessions | None:
    """Return the logs of a developer, read from a folder where they are given by its path."""
    if logs is None:
        return None
    if isinstance(logs, (str, PathLike)):
        return SameDeveloperSessions(read_all(logs, progress=False))
    return SameDeveloperSessions(logs)


def score_session(
    session: Session,
    base: SessionAnalysisCache | None = None,
    *,
    loss: bool = True,
    reuse: bool = False,
) -> dict[str, Any]:
    """Return the score of a session or a replay as a dictionary of plain values.

    Args:
        session: recorded, or a replay.
        base: analyses of the record, shared by several scores of it; None: they are made here.
        loss: compute the columns of loss, rereads and reorientation, too.
        reuse: bill the call that writes a summary as reading the cached prompt.

    Returns:
        A value for each of `SCORE_COLUMNS` that applies.
    """
    base = base or SessionAnalysisCache(session.origin or session)
    if session.origin is None:
        row = _score_record(base, reuse=reuse)
    else:
        row = _score_replay(base, session, reuse=reuse)
    return row | score_loss_and_rereads(base, session) if loss else row


def score_loss_and_rereads(
    base: SessionAnalysisCache, session: Session | None, run: RulesRun | None = None
) -> dict[str, Any]:
    """Return the columns of loss, rereads and reorientation of a session or of a run.

    Args:
        base: analyses of the record.
        session: recorded, or a replay; None: `run` is given.
        run: a finished run; None: that of the replay, if this process made it.

    Returns:
        Values by column; without text, or where a pruning's file does not say what it hid, a
        `loss_note` in place of the loss.
    """
    is_hidden_unknown = False
    if run is not None:
        visibility = get_rules_run_visibility(base.memory, run)
        calls = [compaction.call for compaction in run.compactions]
    else:
        assert session is not None  # noqa: S101  the caller passes a run or a session
        # A replay of this process still has its run; one read from a file has its log only.
        is_pruned = bool(session.details.get("replay", {}).get("pruning"))
        is_hidden_unknown = is_pruned and get_run_of_replay(session) is None
        visibility = get_visibility(base.memory, session)
        reply_positions = [c.position for c in session.calls]
        calls = [bisect_left(reply_positions, g.position) for g in group_edits(session)]
    columns: dict[str, Any] = {}
    if not base.session.has_text:
        columns["loss_note"] = "The log holds no text, so what was lost cannot be said."
    elif is_hidden_unknown:
        columns["loss_note"] = "What the pruning hid is not in the file, so loss cannot be said."
    else:
        columns = base.loss(visibility)
    # the first and last call have no calls before or after them
    rereads = [
        base.acts.rereads.after(visibility, call)
        for call in dict.fromkeys(calls)
        if 0 < call < base.memory.calls
    ]
    columns["reread_rate"] = mean_or_none(rate for rate, _ in rereads)
    columns["calls_to_first_write"] = median_or_none(first for _, first in rereads)
    return columns


def score_run(
    base: SessionAnalysisCache,
    run: RulesRun,
    label: str,
    *,
    loss: bool = False,
    reuse: bool = False,
) -> dict[str, Any]:
    """Return the score of a run; it equals the score of the session that `replay` makes of it.

    Args:
        base: analyses of the record.
        run: a finished run of rules on it.
        label: label of the rules in the row.
        loss: compute the columns of loss, too.
        reuse: bill the call that writes a summary as reading the cached prompt.

    Returns:
        A value for each of `SCORE_COLUMNS` that applies; no session is built for it.
    """
    rules, prompts = run.rules, RunPromptSizes(run)
    outcome = _run_outcome(
        label,
        count_hidden_messages_and_results(run),
        [h.why for h in run.blocked],
        describe_run_oddities(run),
    )
    outcome["refused_calls_n"] = count_refused_calls(base.session, run)
    row = _score_prompts(
        base,
        prompts,
        get_rules_run_compactions(run, prompts),
        outcome,
        window=rules.parameters.get("context_window"),
        pruned=rules.pruning is not None,
        reuse=reuse,
    )
    return row | score_loss_and_rereads(base, None, run) if loss else row


def _score_replay(base: SessionAnalysisCache, session: Session, *, reuse: bool) -> dict[str, Any]:
    details = session.details.get("replay", {})
    whys = [str(h.get("why", "")) for h in details.get("held", ())]
    label = str(details.get("rules", "replay"))
    return _score_prompts(
        base,
        get_replay_prompt_sizes(session),
        get_replay_compactions(session),
        _run_outcome(label, details.get("hidden", (None, None)), whys, details.get("note"))
        | {"refused_calls_n": details.get("refused_calls")},
        window=details.get("parameters", {}).get("context_window"),
        pruned=bool(details.get("pruning")),
        reuse=reuse,
    )


def _run_outcome(
    label: str, hidden: Sequence[int | None], reasons: Sequence[str], note: str | None
) -> dict[str, Any]:
    """Return the columns of label, hidden messages and compactions that did not happen.

    Args:
        label: name of the rules.
        hidden: numbers of messages and tool results hidden from the last prompt.
        reasons: reason of each due compaction that was suppressed or failed.
        note: anything unusual, or None.
    """
    failed = sum(why.startswith("failed: ") for why in reasons)
    return {
        "rules": label,
        "hidden_messages_n": hidden[0],
        "hidden_results_n": hidden[1],
        "suppressed_compactions_n": len(reasons) - failed,
        "failed_compactions_n": failed,
        "note": note,
    }


# A replay's row. The bill is a function of prompt sizes and of the tokens that consecutive prompts
# share (their longest common prefix, by messages): the calibrated cost model turns these into cache
# reads, writes and fresh input, call by call. Replies keep their recorded sizes. Summaries are
# billed as calls of their own. The interval of the cost widens the prompts' part only, by the
# spread of the prediction over other sessions. Elongation is applied last and never changes
# `cost_usd`.
def _score_prompts(
    base: SessionAnalysisCache,
    prompts: PromptAndSharedPrefixSizes,
    compactions: Sequence[CombinedCompactionBeforeCall],
    outcome: dict[str, Any],
    *,
    window: Any,
    pruned: bool,
    reuse: bool,
) -> dict[str, Any]:
    # The bill needs prompt sizes and shared prefixes only, so a run and a replay read from a file
    # are billed alike.
    cost_model = base.sheet
    bill, summary_costs = _bill_prompts(base, prompts, compactions, reuse=reuse)
    usd = bill.cost_usd
    row = base.head(outcome["rules"], base.source)
    row |= outcome
    row |= base.over(map(prompts.prompt, range(len(cost_model.billed))), bill.peak, window)
    row |= {
        "prompt_tokens": None if bill.peak is None else bill.prompts,
        "peak_tokens": bill.peak,
        "cost_usd": usd,
        **get_cost_interval(usd, bill.input_usd, base.prediction),
        "cost_source": None if usd is None else "derived",
        "list_price_usd": usd,
        "input_usd": bill.input_usd,
        "output_usd": bill.output_usd,
        "summaries_usd": bill.summaries_usd,
    }
    if cost_model.has_usage:
        row["fresh_tokens"] = bill.fresh
        if cost_model.has_cache:
            row |= {"cache_read_tokens": bill.read, "cache_write_tokens": bill.write}
    columns = make_compaction_columns(compactions, prompts, cost_model, summary_costs)
    row |= columns
    row |= base.forecast.columns(row, pruned=pruned, reuse=reuse)
    if base.has_prompts:
        return row
    unknown = dict.fromkeys(("prompt_tokens", "peak_tokens", *columns))
    return row | unknown | {"note": "The log has no size of a prompt, so no rules can be tried."}


def _bill_prompts(
    base: SessionAnalysisCache,
    prompts: PromptAndSharedPrefixSizes,
    compactions: Sequence[CombinedCompactionBeforeCall],
    *,
    reuse: bool = False,
) -> tuple[ReplayBill, list[float | None]]:
    """Return the bill of a replay, and the dollars of the summaries of each compaction."""
    costs = [base.sheet.summaries_usd(c.summaries, reuse=reuse) for c in compactions]
    return bill_replay(base.sheet, prompts, sum_if_complete(costs)), costs


def measure_cost_and_loss(base: SessionAnalysisCache, run: RulesRun) -> dict[str, Any]:
    """Return the dollars and the columns of loss of a run, as `score_run` does, and no others.

    The columns of prediction, rereads, aftermath and refusals take as long as these.

    Args:
        base: analyses of the record.
        run: a finished run.

    Returns:
        `cost_usd` and its `source`; the columns of loss where the log has text.
    """
    prompts = RunPromptSizes(run)
    bill, _ = _bill_prompts(base, prompts, get_rules_run_compactions(run, prompts))
    columns: dict[str, Any] = {"cost_usd": bill.cost_usd, "source": base.source}
    if base.session.has_text:
        columns |= make_loss_columns(
            LossAnalysis(base.memory, get_rules_run_visibility(base.memory, run))
        )
    return columns


def _score_record(base: SessionAnalysisCache, *, reuse: bool = False) -> dict[str, Any]:
    session, cost_model = base.session, base.sheet
    sizes, source = plain_prompts(session)
    prompt_tokens = [n for n in sizes if n]
    bill = base.forecast.bill(reuse=reuse)
    compactions, prompts = get_compactions_and_prompts(session, base.message_sizes)
    summary_costs = [cost_model.summaries_usd(c.summaries, reuse=reuse) for c in compactions]
    row = base.head("recorded", source) | base.over(sizes, max(prompt_tokens, default=None))
    row |= {
        "prompt_tokens": sum(prompt_tokens) if prompt_tokens else None,
        "peak_tokens": max(prompt_tokens, default=None),
        "cost_usd": bill.cost_usd,
        "cost_low_usd": bill.cost_usd,
        "cost_high_usd": bill.cost_usd,
        "cost_source": bill.source,
        "list_price_usd": bill.list_price_usd,
        "input_usd": bill.input_usd,
        "output_usd": bill.output_usd,
        "summaries_usd": bill.summaries_usd,
        **_recorded_compaction_columns(session, compactions, prompts, cost_model, summary_costs),
    }
    if cost_model.has_usage:
        row["fresh_tokens"] = bill.sum("fresh")
        if cost_model.has_cache:
            row |= {"cache_read_tokens": bill.sum("read"), "cache_write_tokens": bill.sum("write")}
    return row | _count_hidden_in_record(session)


def _recorded_compaction_columns(
    session: Session,
    compactions: Sequence[CombinedCompactionBeforeCall],
    prompts: PromptAndSharedPrefixSizes,
    cost_model: ReplayCostModel,
    costs: Sequence[float | None],
) -> dict[str, Any]:
    """Return a record's columns of compactions; all None where its format cannot tell of one."""
    columns = make_compaction_columns(compactions, prompts, cost_model, costs)
    if hides_compactions(session):
        return dict.fromkeys(columns)
    if any(map(has_sealed_summary, group_edits(session))):
        columns["summary_tokens"] = None
    if not has_prompt_sizes(session) and session.edits:
        columns = dict.fromkeys(columns)
    measured = measure_compactions(session)  # each counted, as the frame of compactions has them
    return columns | {
        "compactions_n": len(measured),
        "token_savings": mean_or_none(one.savings for one in measured),
        "message_savings": mean_or_none(one.message_savings for one in measured),
    }


def get_cost_interval(
    total: float | None, prompts: float | None, prediction: SessionInputCostPredictionErrors
) -> dict[str, float | None]:
    """Return the interval of a replay's dollars: its prompt cost times the prediction interval.

    Args:
        total: dollars of the replay; None: unknown.
        prompts: dollars of its prompts.
        prediction: predicted input cost of the record, with its interval.
    """
    if total is None or prompts is None or prediction.spread is None:
        return {}
    # the spread is relative and concerns the prompts; replies and summaries are exact
    low, high = prediction.spread
    return {"cost_low_usd": total + prompts * low, "cost_high_usd": total + prompts * high}


def _count_hidden_in_record(session: Session) -> dict[str, Any]:
    source = find_prompt_source(session)
    if isinstance(source, RulesRun):
        counts = count_hidden_messages_and_results(source)
    else:
        # a pruned copy has the message's id and other parts
        parts_by_id = {m.id: m.parts for m in session.view()}
        rows = (m for m in session.messages if m.visible)
        hidden = [m for m in rows if m.id not in parts_by_id or parts_by_id[m.id] != m.parts]
        counts = len(hidden), sum(m.role == "tool" for m in hidden)
    return dict(zip(("hidden_messages_n", "hidden_results_n"), counts, strict=True))


_PREDICTION_ERRORS = (
    "second_half_error",
    "read_split_error",
    *(f"{n}_error" for n in NAIVE_MODELS),
)


class SessionAnalysisCache:
    """Analyses of one recorded session that all its score rows share, each made at first use."""

    def __init__(self, session: Session, logs: SameDeveloperSessions | None = None) -> None:
        self.session = session
        self.logs = logs

    @cached_property
    def message_sizes(self) -> MessageSizes:
        """Sizes of the messages, anchored on recorded usage."""
        return measure_sizes(self.session)

    @cached_property
    def sheet(self) -> ReplayCostModel:
        """Cost model of replays, calibrated on the recorded calls."""
        return ReplayCostModel.of(self.session, self.message_sizes)

    @cached_property
    def prediction(self) -> SessionInputCostPredictionErrors:
        """Input cost as predicted from other sessions; cached in the session without `logs`."""
        if self.logs is not None:
            return predict_input_cost(self.session, logs=self.logs)
        cached = self.session.__dict__.get("input cost prediction")
        if cached is None or cached[0] is not self.sheet:  # made anew with other prices
            cached = self.sheet, predict_input_cost(self.session)
            self.session.__dict__["input cost prediction"] = cached
        prediction: SessionInputCostPredictionErrors = cached[1]
        return prediction

    @cached_property
    def memory(self) -> ItemIndex:
        """Index of the items (paths, numbers, commands, ...) in the messages."""
        return ItemIndex(self.session, MessageItemCache(self.message_sizes))

    @cached_property
    def acts(self) -> BreachAndStaleValueIndex:
        """Tool calls classified by what they do: read, write, repeat."""
        return BreachAndStaleValueIndex(self.memory)

    @cached_property
    def forecast(self) -> RealRunLengthening:
        """Forecast of how many calls real runs would take."""
        return RealRunLengthening(self.session)

    @cached_property
    def window(self) -> int | None:
        """Context window in tokens at the last call; None where log and price table lack it."""
        if not self.session.calls:
            return self.session.context_window
        last = self.session.calls[-1].message
        return get_context_window(self.session, last.model or self.session.model, last).tokens

    def over(
        self, prompts: Iterable[int | None], peak: int | None, rules_window: Any = None
    ) -> dict[str, Any]:
        """Return the columns `window_tokens` and `first_call_over_window`.

        Args:
            prompts: prompt tokens of each call.
            peak: the largest of them.
            rules_window: window that the rules are set to; it counts where it is larger.
        """
        window = (
            max(self.window, rules_window)
            if self.window and type(rules_window) is int
            else self.window
        )
        if not window or peak is None or peak <= window:
            return {"window_tokens": window}
        first = next((i for i, n in enumerate(prompts) if n is not None and n > window), None)
        return {"window_tokens": window, "first_call_over_window": first}

    def head(self, rules: str, source: str | None) -> dict[str, Any]:
        """Return the columns that are the same for all rows of the session.

        Args:
            rules: name of the rules.
            source: source of the prompt sizes; None: unknown.
        """
        return {
            "session": self.session.id,
            "rules": rules,
            **self._session_columns,
            "source": source,
        }

    @cached_property
    def _session_columns(self) -> dict[str, Any]:
        cost_model = self.sheet
        return {
            "calls_n": sum(cost_model.billed),
            "output_tokens": cost_model.output_tokens,
            **{n: getattr(self.prediction, n) for n in _PREDICTION_ERRORS},
            "prediction_error": self.prediction.error,
            "prediction_low": self.prediction.low,
            "prediction_high": self.prediction.high,
            "prediction_note": self.prediction.why,
            "compaction_read_error": compute_compaction_read_error(
                predict_reads_after_compactions(self.session)
            ),
            "closure_error": closure_error(self.session, cost_model.misses),
            "unexplained_miss_share": cost_model.unexplained_share,
            "explained_miss_share": cost_model.explained_share,
            "priced_share": cost_model.priced_share,
            "counter": self.message_sizes.counter,
            "counter_error": self.message_sizes.plain_count_error,
            "session_notes": " ".join(self.session.notes) or None,
        }

    def loss(self, visibility: Visibility) -> dict[str, Any]:
        """Return the columns of loss and aftermath for what was visible at each call."""
        return (
            dict(self._nothing_lost)
            if not len(visibility.change_calls)
            else self._analyse_loss(visibility)
        )

    @cached_property
    def _nothing_lost(self) -> dict[str, Any]:
        return self._analyse_loss(VisibilityRecorder(self.memory).build())

    def _analyse_loss(self, visibility: Visibility) -> dict[str, Any]:
        analysis = LossAnalysis(self.memory, visibility)
        columns = (
            make_loss_columns(analysis)
            | CompactionConsequenceAnalysis(analysis, self.acts).columns()
        )
        return columns | {"loss_note": _explain_missing_loss(columns)}

    @cached_property
    def has_prompts(self) -> bool:
        """True where the log has the size of a prompt, or content to count."""
        return has_prompt_sizes(self.session)

    @property
    def source(self) -> str:
        """Origin of the sizes of a replay: ``"derived"`` or ``"estimated"``."""
        return "derived" if self.sheet.has_usage else "estimated"


def _explain_missing_loss(columns: dict[str, Any]) -> str | None:
    """Return why a share of loss is missing although the log holds text, or None."""
    if columns["needed_later_loss"] is None:
        return "Nothing that was said is named again later, so what was needed cannot be said."
    if columns["summary_recall"] is None and columns["at_stake_items_n"]:
        return "No text was put in, so there is no summary to be judged."
    return None


_PROCESSOR_KINDS: dict[str, PolicyKind] = {"swe_agent_mask": "mask", "none": "raw"}
"""Policy kind of each history processor that a log reader infers."""


class RealRunLengthening:
    """Forecast of the length of real runs, from the policy of the record and published studies."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.kind = classify_recorded_policy(session)
        self.family = get_study_model_family(
            next((m.model for m in session.messages if m.model), session.model)
        )
        self._bills: dict[bool, SessionBill] = {}
        self._recorded_usd: dict[bool, float | None] = {}
        """List price of each of them: a sum that is the same for all rows."""
        self._elongations: dict[PolicyKind, Elongation] = {}
        """By kind of the replayed policy; the studies and the kind of the record stay the same."""

    def bill(self, *, reuse: bool) -> SessionBill:
        """Return the bill of the record."""
        if reuse not in self._bills:
            self._bills[reuse] = bill_session(self.session, reuse=reuse)
        return self._bills[reuse]

    def columns(self, row: dict[str, Any], *, pruned: bool, reuse: bool) -> dict[str, Any]:
        """Return the columns `elongation` to `vs_recorded` of a replay; empty where unstudied.

        Args:
            row: the score of the replay so far.
            pruned: the rules prune single prompts.
            reuse: summaries read the whole prompt from the cache.
        """
        replay_kind = classify_replayed_policy(row, pruned=pruned)
        if replay_kind is None or self.kind is None:
            return {}
        elongation = self._elongations.get(replay_kind)
        if elongation is None:
            studied = estimate_elongation(replay_kind, self.kind, self.family)
            elongation = widen_interval_to_closed_loop_runs(studied, replay_kind)
            self._elongations[replay_kind] = elongation
        out: dict[str, Any] = {
            "elongation": elongation.factor,
            "elongation_low": elongation.low,
            "elongation_high": elongation.high,
        }
        cost, summaries = row["cost_usd"], row["summaries_usd"]
        if reuse not in self._recorded_usd:
            self._recorded_usd[reuse] = self.bill(reuse=reuse).list_price_usd
        recorded_usd = self._recorded_usd[reuse]
        if cost is None or recorded_usd is None:
            return out
        # elongation multiplies the calls; summaries stay as many as in the replay
        calls_usd = cost - summaries
        interval = calls_usd * elongation.low + summaries, calls_usd * elongation.high + summaries
        out["real_run_low_usd"], out["real_run_high_usd"] = interval
        return out | {"vs_recorded": compare_cost_with_record(interval, recorded_usd)}


def classify_replayed_policy(row: Mapping[str, Any], *, pruned: bool) -> PolicyKind | None:
    """Return the kind of policy of a replay's scores; None: unknown.

    Args:
        row: the scores.
        pruned: True where the rules prune each call.
    """
    return classify_policy(
        summaries=bool(row.get("summary_tokens")),
        pruned=pruned,
        compactions=row.get("compactions_n"),
        hidden_message_counts=(row["hidden_messages_n"], row["hidden_results_n"]),
    )


def classify_recorded_policy(session: Session) -> PolicyKind | None:
    """Return the kind of policy that a record was made under; None where the log does not say."""
    if any(edit.inserted for edit in session.edits):
        return "summary"
    if session.edits:
        return "other"
    processor = session.details.get("history_processor")
    if processor is not None:
        return _PROCESSOR_KINDS.get(processor["name"], "other")
    return None if "compactions" in session.details.get("cannot_tell", ()) else "raw"


_FIGURES = {
    **{name: name for name in ("peak_tokens", "prompt_tokens", "output_tokens", "cost_usd")},
    **{name: name for name in ("cost_source", "summaries_usd", "list_price_usd", "token_savings")},
    **{name: name for name in ("not_paid_back_n", "is_thrashing", "input_usd", "output_usd")},
    "compactions_n": "compactions_n",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "written_tokens",
}
"""Names of a score's columns, and of the figures that they show."""


_COUNTED = ("prompt_tokens", "peak_tokens")
"""Figures that a score counts where the log has no usage."""


def map_score_row_to_view_figures(row: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a score's row by the names that other views have for them.

    Args:
        row: a score by column.

    Returns:
        Values by the names of `metrics.figures_registered_by_view`, by which views of one session
        are compared.
    """
    return {figure: row.get(name) for name, figure in _FIGURES.items()}


def map_session_score_to_view_figures(row: dict[str, Any], session: Session) -> dict[str, Any]:
    """Return the figures of the score of a session, without counts that no other view shows.

    Args:
        row: the score by column.
        session: the session that is scored.

    Returns:
        Values by the names of `metrics.figures_registered_by_view`.
    """
    figures = map_score_row_to_view_figures(row)
    if row["source"] == "estimated" and session.origin is None:
        # The log states no prompts: the counts are in the score alone.
        figures = {name: n for name, n in figures.items() if name not in _COUNTED}
    if session.origin is not None:
        figures["summary_tokens"] = row.get("summary_tokens")
    return figures


@register_view_values("score")
def _read_figures(session: Session) -> dict[str, Any]:
    return map_session_score_to_view_figures(score_session(session, loss=False), session)
