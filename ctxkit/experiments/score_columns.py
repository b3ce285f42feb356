"""Columns of a score (names, dtypes, meanings), the frame that has them, and the display of one
score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.data_frame_display import AnnotatedTable
from ctxkit._internal.formatting_and_sanitizing import (
    format_percent,
    format_usd,
    has_value,
    pluralize,
)
from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, FrameColumn
from ctxkit.metrics.frames.typed_frame_builder import build_frame

if TYPE_CHECKING:
    import pandas as pd

_COLUMN_ROWS = (
    ("session", TEXT, "id of the session"),
    ("rules", TEXT, "name of the rules; `recorded` is the session as it was recorded"),
    ("calls_n", INT, "calls that the record bills; all calls where it bills none"),
    ("prompt_tokens", INT, "tokens of their prompts"),
    ("peak_tokens", INT, "the largest of these prompts"),
    ("window_tokens", INT,
     "the window at the record's last call, or a larger one of the rules; missing: not known"),
    ("first_call_over_window", INT,
     "the first call whose prompt is larger than the window; missing where all fit"),
    ("refused_calls_n", INT,
     "calls whose prompt the provider is documented to refuse; missing: no rule for the model"),
    ("fresh_tokens", INT, "prompt tokens billed as fresh input"),
    ("cache_read_tokens", INT, "prompt tokens read from the cache"),
    ("cache_write_tokens", INT, "prompt tokens written to the cache"),
    ("output_tokens", INT, "tokens of the replies, as recorded"),
    ("cost_usd", FLOAT, "dollars of prompts, replies and summaries, without those of subagents"),
    ("input_usd", FLOAT, "dollars of the prompts, by the table of prices"),
    ("output_usd", FLOAT, "dollars of the replies, by the table of prices"),
    ("summaries_usd", FLOAT,
     "dollars of the calls that write summaries: known, else by size; missing: the log hides them"),
    ("cost_low_usd", FLOAT, "lower end of `cost_usd` by the prediction's 80 % interval"),
    ("cost_high_usd", FLOAT, "upper end of it; of the record both are what it cost"),
    ("cost_source", TEXT,
     "of `cost_usd`, the weakest: recorded (the log's own prices), derived or estimated"),
    ("list_price_usd", FLOAT, "the same by the table of prices, which replays are billed by"),
    ("elongation", FLOAT,
     "calls of real runs under such rules / calls of the record, as far as it was studied"),
    ("elongation_low", FLOAT, "lower end of its 80 % interval"),
    ("elongation_high", FLOAT, "upper end of it"),
    ("real_run_low_usd", FLOAT,
     "`cost_usd` with `elongation_low` times the calls; the summaries stay as they are"),
    ("real_run_high_usd", FLOAT, "the same with `elongation_high`"),
    ("vs_recorded", TEXT,
     "against the record: cheaper, dearer, or within noise (interval and noise floor)"),
    ("compactions_n", INT, "compactions; missing where the log cannot tell of one"),
    ("not_paid_back_n", INT,
     "those that the next compaction followed before they had saved what they cost"),
    ("paid_back_share", FLOAT,
     "share of the compactions with a successor that saved what they cost before it came"),
    ("refilled_share", FLOAT,
     "mean share of the freed tokens that was full again ten calls later; above 1: fuller"),
    ("rebound_calls", FLOAT,
     "median calls until the prompt was back at 75 % of its size before"),
    ("no_progress_streak", INT,
     "longest run of compactions that each saved less than 10 % of the tokens"),
    ("is_thrashing", BOOL,
     "True after three compactions in a row without progress, or where most were not paid back"),
    ("reread_rate", FLOAT,
     "of the 24 tool calls after a compaction, the share that repeats one that it removed"),
    ("calls_to_first_write", FLOAT,
     "median number of tool calls between a compaction and the first that writes"),
    ("calls_to_resume", FLOAT,
     "median calls from a compaction until the agent did something new and not only looked"),
    ("user_rules_restated_n", INT,
     "rules of the user's that a compaction removed and that the user then gave again"),
    ("calls_to_rule_breach", FLOAT,
     "median calls from a compaction to the first that acts on what a lost ban names"),
    ("stale_values_n", INT,
     "values in inserted texts that later values had replaced before"),
    ("token_savings", FLOAT,
     "mean share of the tokens that a compaction saved; negative where prompts grew"),
    ("message_savings", FLOAT,
     "mean share of the messages that a compaction took out of sight"),
    ("summary_tokens", INT, "tokens of all summaries"),
    ("hidden_messages_n", INT, "messages that the next call would not see in their own words"),
    ("hidden_results_n", INT, "tool results among them"),
    ("suppressed_compactions_n", INT,
     "compactions that were due and that a guard suppressed or refused"),
    ("failed_compactions_n", INT, "compactions that were due and failed"),
    ("items_n", INT,
     "items (paths, URLs, numbers, commands, ...) removed so far, each once per compaction"),
    ("retained", FLOAT, "share of them that stood in what was shown after the compaction"),
    ("recoverable", FLOAT, "share of them that a file or archive holds, which was named there"),
    ("lost", FLOAT, "share of them that was neither"),
    ("reused_items_n", INT,
     "items that a reply names after a message before it stated them: the same under any rules"),
    ("needed_later_n", INT, "items removed that the record named at any time after, each once"),
    ("needed_lost_n", INT,
     "those of them that were out of sight after a compaction before that, each once"),
    ("needed_later_loss", FLOAT,
     "share of what was used again that was out of sight by then: needed_lost_n / reused_items_n"),
    ("needed_later_unrecoverable", FLOAT,
     "the part of it that could not have been fetched again either"),
    ("weighted_loss", FLOAT,
     "needed_later_loss; an item that the user named weighs 4, any other 1"),
    ("at_stake_items_n", INT,
     "items named later that compactions removed: only the inserted text could hold them"),
    ("summary_recall", FLOAT,
     "share of them, by weight, that the inserted text held until they were named"),
    ("user_rules_kept", FLOAT,
     "share of the user's rules, of those removed, that are still given in some words"),
    ("next_interval_loss", FLOAT,
     "of what was removed and named before the next compaction, the share out of sight"),
    ("calls_to_first_use", FLOAT,
     "median, over items lost and used again, of the calls from the compaction to that use"),
    ("regret", FLOAT,
     "needed-later loss above that of the best set of messages under the same budget (a bound)"),
    ("loss_note", TEXT, "why a figure of loss is missing"),
    ("prediction_error", FLOAT,
     "predicted / recorded input dollars - 1, where the prediction does not see the reads"),
    ("prediction_low", FLOAT, "its 80 % interval: it holds the record if low <= 0 <= high"),
    ("prediction_high", FLOAT, "upper end of it"),
    ("second_half_error", FLOAT,
     "the same of the second half of the calls, learnt from the first half"),
    ("compaction_read_error", FLOAT,
     "share by which cache reads after compactions are off, predicted from other compactions"),
    ("read_split_error", FLOAT,
     "share of prompt tokens by which predicted cache reads are off, call by call"),
    ("lifetime_error", FLOAT, "of a model that knows the cache's lifetime alone"),
    ("all_cached_error", FLOAT, "of a model that reads all that two prompts share"),
    ("nothing_cached_error", FLOAT, "of a model without a cache"),
    ("prediction_note", TEXT, "why there is no prediction, or that it rests on little"),
    ("closure_error", FLOAT,
     "of a model that is given the reads of misses: it shows that the sums are consistent"),
    ("unexplained_miss_share", FLOAT,
     "share of its calls that missed the cache without an explanation"),
    ("explained_miss_share", FLOAT,
     "share of the tokens lost at misses whose cause the log shows"),
    ("priced_share", FLOAT, "share of its billed calls whose model has a price"),
    ("counter", TEXT, "the counter of the tokens that no usage anchors"),
    ("counter_error", FLOAT, "its plain count / recorded growth - 1"),
    ("source", TEXT,
     "where the sizes come from: recorded, derived (a replay on anchored sizes) or estimated"),
    ("session_notes", TEXT, "what the session's log leaves out or gets wrong"),
    ("note", TEXT, "what was odd, where there are figures all the same"),
    ("error", TEXT, "why there is no figure; missing where all went well"),
)  # fmt: skip
_UNITS_BY_ENDING = {
    "_tokens": "tokens",
    "_usd": "US dollars",
    **dict.fromkeys(("_share", "_rate", "_loss", "_savings", "_unrecoverable"), "share"),
    **dict.fromkeys(("retained", "recoverable", "lost", "_recall", "_kept"), "share"),
    "_calls": "calls",
}


def _get_unit(name: str) -> str:
    if name.startswith("calls_to_"):
        return "calls"
    return next((unit for end, unit in _UNITS_BY_ENDING.items() if name.endswith(end)), "")


SCORE_COLUMNS = tuple(
    FrameColumn(name, dtype, _get_unit(name), meaning) for name, dtype, meaning in _COLUMN_ROWS
)
"""Shares are between 0 and 1, except `refilled_share`, which a prompt that outgrew what it was
before can exceed. Counts end in `_n`. A missing value is one that the data cannot say.
"""
SCORE_COLUMN_NAMES = tuple(c.name for c in SCORE_COLUMNS)
UNCOMPUTED_COLUMNS = {
    "a cache model trained on logs of other developers; [trust.md](trust.md) tests it": (
        *("prediction_error", "prediction_low", "prediction_high", "second_half_error"),
        *("compaction_read_error", "read_split_error", "prediction_note"),
    ),
    "models of the cache with block sizes, lifetimes and a fitted lag of the provider": (
        *("lifetime_error", "all_cached_error", "nothing_cached_error", "closure_error"),
    ),
    "the tokenizer's counts": ("counter", "counter_error"),
    "a search over all sets of messages": ("regret",),
    "a table of published studies (`ctxkit.metrics.run_elongation_from_studies`)": (
        *("elongation", "elongation_low", "elongation_high"),
    ),
    "the providers' rules for prompts": ("refused_calls_n",),
    "other columns, by the formulas above": (
        *("cost_low_usd", "cost_high_usd", "real_run_low_usd", "real_run_high_usd", "vs_recorded"),
    ),
    "patterns for values, bans and rules in prose (`ctxkit.metrics.user_rules_after_compaction`)": (
        *("user_rules_restated_n", "calls_to_rule_breach", "stale_values_n"),
    ),
    "sentences that say why others are missing or odd": ("loss_note", "note", "error"),
}
"""Columns that do not follow from frames and prompts by their definition, by what they rest on."""


def build_score_frame(rows: list[dict[str, Any]], extra: tuple[str, ...] = ()) -> Any:
    """Return rows as a frame with these columns and types, others (`extra`) after `rules`.

    Args:
        rows: values by column; a column that a row lacks is missing in it.
        extra: names of further columns, such as the settings that a sweep varies.

    Returns:
        A DataFrame with a row each; types are those of `SCORE_COLUMNS`, extra ones are inferred.
    """
    import pandas as pd

    names = [*SCORE_COLUMN_NAMES, *extra]
    with pause_gc():
        blank, n = dict.fromkeys(names), len(names)  # a row at a time, in the order of the names
        of_rows = [list((blank | row).values())[:n] for row in rows]
        columns = zip(*of_rows, strict=True) if rows else ([] for _ in names)
        data = dict(zip(names, map(list, columns), strict=True))
        frame = build_frame(SCORE_COLUMNS, data)
    for place, name in enumerate(extra, 2):
        frame.insert(place, name, pd.Series(data[name]).convert_dtypes())
    return frame


_SCORE_ROWS = (
    ("cost_usd", "usd"), ("calls_n", "count"), ("prompt_tokens", "count"), ("peak_tokens", "count"),
    ("compactions_n", "count"), ("not_paid_back_n", "count"), ("needed_later_loss", "share"),
    ("is_thrashing", "yes"),
)  # fmt: skip
"""The figures of a score that are shown, each with its kind."""


def display_score(score: pd.Series) -> AnnotatedTable:
    """Return the display of a score: its chief figures with their meanings."""
    rows = tuple(
        (Cell(name), Cell(_format(score[name], kind)), Cell(_describe_figure(name, kind)))
        for name, kind in _SCORE_ROWS
        if has_value(score[name])
    )
    heads = (
        Column("figure", number=False, firm=True),
        Column("value"),
        Column("meaning", number=False),
    )
    more = f".detail has all {len(score)} figures (docs/scores.md)."
    return AnnotatedTable(_describe_score(score), Table(heads, rows), (more,))


def _describe_figure(name: str, kind: str) -> str:
    """Return the meaning of a figure as a display has it: `yes` for True, without other names."""
    meaning = next(c.meaning for c in SCORE_COLUMNS if c.name == name)
    words = meaning.partition(": ")[0] if name == "needed_later_loss" else meaning
    return words.replace("True", "yes", 1) if kind == "yes" else words


def _describe_score(score: pd.Series) -> str:
    figure: dict[str, Any] = {str(n): v if has_value(v) else None for n, v in score.items()}
    cost = "cost unknown" if figure["cost_usd"] is None else format_usd(figure["cost_usd"])
    calls = "" if figure["calls_n"] is None else f" for {pluralize(int(figure['calls_n']), 'call')}"
    compactions_n, loss = figure["compactions_n"], figure.get("needed_later_loss")
    compactions = (
        "" if compactions_n is None else f", {pluralize(int(compactions_n), 'compaction')}"
    )
    lost = (
        "; what was lost is unknown"
        if loss is None
        else f"; {format_percent(loss)} of what was used again was out of sight by then"
    )
    return f"{score.name}: {cost}{calls}{compactions}{lost}."


def _format(value: Any, kind: str) -> str:
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "usd":
        return format_usd(value)
    return format_percent(value) if kind == "share" else f"{value:,.0f}"
