"""Write docs/scores.md from the column definitions: `python docs/make_scores.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.experiments.score_columns import SCORE_COLUMNS, UNCOMPUTED_COLUMNS
from ctxkit.metrics.run_elongation_from_studies import NOISE_FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterable

_AS_SESSION_FRAME = "as in the session frame"
_WITHOUT_USAGE = "missing where the record has no usage"
_NO_USE = "0 where nothing changed, else missing where nothing is used again"
_DEFINITIONS = {
    "window_tokens": "missing where the record's is, even if the rules have one",
    "fresh_tokens": _WITHOUT_USAGE,
    "cache_write_tokens": "0 where reads are known and writes are not",
    "output_tokens": "missing where no call has it",
    "cost_usd": _AS_SESSION_FRAME,
    "summaries_usd": _AS_SESSION_FRAME,
    "list_price_usd": _AS_SESSION_FRAME,
    "cost_source": _AS_SESSION_FRAME,
    "input_usd": (
        "prices are `ck.prices.price(model, at=time).at(prompt)`, dollars a token; fresh tokens have "
        "that of writes where it has `writes_unread`, the log tells reads, and the call counts no "
        f"writes and has a prompt of `min_cacheable` or more; {_WITHOUT_USAGE}"
    ),
    "output_usd": "missing where `output_tokens` is",
    "cost_low_usd": (
        "`cost_usd - input_usd + input_usd (1 + prediction_low) / (1 + prediction_error)`"
    ),
    "cost_high_usd": "the same with `prediction_high`",
    "real_run_low_usd": (
        "`(cost_usd - summaries_usd) elongation_low + summaries_usd`; of a replay only"
    ),
    "vs_recorded": (
        f"cheaper: `real_run_high_usd` is below the record's `list_price_usd` / {1 + NOISE_FLOOR:g}; "
        f"dearer: `real_run_low_usd` is above {1 + NOISE_FLOOR:g} times that; of a replay only"
    ),
    "not_paid_back_n": "missing where compactions have successors, but none has a verdict",
    "refilled_share": "of the tenth call after the first that was sent the outcome",
    "is_thrashing": "a single one that was not paid back does not count",
    "reread_rate": (
        "mean over compactions, of as many of the 24 as there are; none before the first model call"
    ),
    "calls_to_first_write": (
        "0 where the first tool call writes; no compaction before the first model call"
    ),
    "calls_to_resume": (
        "over all changes, in model calls from 0; new: what no call asked for before, with a tool that "
        "does more than read"
    ),
    "token_savings": "mean over the compaction frame's rows",
    "message_savings": "mean over the compaction frame's rows",
    "summary_tokens": (
        'sum of the compaction frame\'s column, counted as `"anchored"`; missing where a summary is '
        "sealed"
    ),
    "hidden_messages_n": "rows of the message frame whose state is neither `shown` nor `hidden`",
    "suppressed_compactions_n": 'those in `session.details["replay"]["held"]` that did not fail; of a replay',
    "failed_compactions_n": "those there whose `why` begins with `failed`; of a replay",
    "items_n": "sum over changes of the items removed so far",
    "user_rules_kept": "at each change, of the constraints removed so far, those that are named",
    "needed_later_loss": _NO_USE,
    "needed_later_unrecoverable": (
        f"judged where the item went out of sight for the last time before that use; {_NO_USE}"
    ),
    "weighted_loss": f"the weights were chosen, not measured; {_NO_USE}",
    "summary_recall": (
        "1 - weight of the lost / weight of those at stake; missing where no text was inserted"
    ),
    "next_interval_loss": (
        "at each change, of all items removed so far that are used before the next one: favours rules "
        f"that compact often; {_NO_USE}"
    ),
    "calls_to_first_use": "from the last time that the item went out of sight before that use",
    "regret": "the best set knows the record's future, so no policy can beat it",
    "unexplained_miss_share": "of the record's calls that tell reads",
    "explained_miss_share": "without `cold_start`; eviction and routing leave no trace in a log",
    "priced_share": _WITHOUT_USAGE,
}
"""What the meaning of a column leaves open, by column."""


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _format_uncomputed_columns() -> str:
    rows = (
        f"| {_format_names(names)} | {reason} |\n" for reason, names in UNCOMPUTED_COLUMNS.items()
    )
    return "".join(rows)


_HEAD = f"""# Scores

`ck.score(session)` gives one row, `ck.compare(session, rules)` one row per setting, and `ck.sweep(sessions, rules)` one
row per run, all with the columns below. `python docs/make_scores.py` writes this page from the definitions in the code.

- **No single score.** Dollars, needed-later loss and compactions that were not paid back are separate columns;
  `plots.frontier` draws the Pareto front.
- **Open loop.** A replay keeps the recorded messages. It estimates the bill and which items were out of sight, not what
  the agent would have done.
- **Missing, never zero.** Shares are between 0 and 1 (`refilled_share` may exceed 1), counts end in `_n`, money is in US dollars.

## The bill of a replay

A recorded session is billed with the costs in its log, if there are any. A replay is billed by the price table at the
date of each call, for the calls that the record bills:

- a call reads from the cache the longest prefix that its prompt shares with an earlier prompt that is still cached, and
  writes the rest (as uncached input if the provider bills no writes, or the prompt is too short to be cached);
- where the record missed the cache for a reason other than a compaction, a replay reads at most what the record read;
- the call that writes a summary sends the summarised messages as uncached input, or reads the cached prompt
  (`reuse=True`);
- texts computed from the record (intents, evidence, digests) cost nothing.

Under another policy the same model took 0.6 to 2.2 times the turns for the same tasks: `elongation` is the factor to
expect ([trust.md](trust.md)). The same policy run twice over 50 tasks gives totals within {NOISE_FLOOR:.0%} of each other
in 80 of 100 cases. This is the noise floor of `vs_recorded`; for a single task it is a factor of 3.7.

## Prompts and tool calls

The frames ([frames.md](frames.md)) and the prompts are enough to compute the columns, for records and replays of each
format (`tests/metrics/score_oracle.py` does so).

- `session.sent(call)` has a message *in its own words* where `row` is 0 or more and `changed_by` is missing; all other
  items but the `fixed` one are *inserted*. After a compaction that no call follows, the prompt is `session.view()`. A
  *change* is a compaction, or a prompt that is not the previous prompt plus what came since.
- Tokens and dollars are sums over the call frame's rows that have a prompt (all rows, if none has). The prompt of a call
  without usage is the sum of the sizes in `session.sent(call)`.
- Two tool calls are equal if the tools (ignoring case) and the arguments (or their texts, if unreadable) are. Two that
  read a file are equal if the file is. A compaction removed a tool call if the message that makes or answers the call is
  then, for the first time, not sent in its own words. Figures on tool calls after a compaction do not end at the next
  compaction. `ctxkit.session.tool_call_paths_and_descriptions` says which tools read and write.

## Whether compactions paid back

Rows of the compaction frame of kind `unmarked`, `failed`, `refused` and `skipped` are not compactions here. Sizes are
those of the frame, counted as `"anchored"` where the record has no usage; a replay without sizes lacks the figures that
need them. For refill, rebound, progress and payback, all compactions before the same call count as one, whose figures end
at the next one. A compaction that no call follows does not count. A compaction is paid back after

    n = (K + (w - r) (S - P - (L - F))) / (r (L - S))

requests, the first of which is the call after it. It is *not paid back* if the next compaction came earlier.

| symbol | meaning | exactly |
| --- | --- | --- |
| `L`, `S` | tokens of that call's prompt without and with it | size before the first of these compactions, and after the last |
| `K` | dollars of its summaries | the frame's `cost_usd`, counted as `"anchored"`, else 0; with a sealed summary (part `SizeOnly` in `session.edits[i].inserted`) there is no verdict |
| `F` | tokens that the call would have read from the cache without it | `L`, in a replay at most the prompt of the call before; at most what the record read where `ck.misses` has `unexplained`, a cause other than the compaction, or a pause (`gap`) of `get_cache_lifetime(record)` or more |
| `P` | tokens at the front that it left unchanged, at most `F` | sizes of the items at the front that are as in the prompt before (the `fixed` one always is), and what the items lack of the prompt |
| `r` | price of a read token, of a prompt of `L` | that of fresh input where the log tells no reads |
| `w` | price of a written token, of a prompt of `L` | that of writes that live an hour where most of the log's do, of fresh input where no writes are billed |

The formula compares the rules with the same rules without this one compaction, not with never compacting. So rules that
clear a little at each call can cost less than `none` although most of their compactions are not paid back.

## What was lost

Items are paths, URLs, ids, names, numbers with units, commands, error messages, and the user's constraints, decisions
and open points, by the patterns of `ctxkit.metrics.losable_items` and `ctxkit.metrics.item_index_and_rule_matching`.

- A message *states* its own items. It *names* these, and the endings of its paths (at least two parts; each is an item
  that weighs 1). Text of user and agent, but not thinking, also names a constraint that it gives in other words: one of
  its sentences and the constraint share most words of the shorter one (compared by their first five letters), both
  forbid or neither does, and the text has all values of the constraint.
- An inserted text names what occurs in it as whole words: an id in upper or lower case, a number with or without a space
  before its unit, a constraint in any words. A reply *uses* what it names in text and arguments.
- An item is *removed* at the first call whose prompt lacks, in its own words, a message that stated it; a path ending
  that no message states is never removed. A removed item is *retained* in each prompt that names it, *recoverable* if a
  file or an archive has it, else *lost*.
- A file has the items that the result of a read or write call states, and those of the reply that makes the call (of
  several calls the last), except the file's own path. This holds once that message has left, at each prompt that names
  the file's path as the call gave it.
- If the `reason`, `method` or inserted text (first 200 characters) of a compaction says "offload", "artifact" or
  "archive", an archive has what the removed messages state; likewise for a pruned message whose stub says so. It keeps
  these items.
- An item is *used again* if a reply uses it and a message before that reply's call stated it.
- A removed item goes *out of sight* at a change if the prompt before, or what came since, named it and the new prompt
  does not. It is *needed and lost* if a reply uses it after the first such change, even if it was stated again in
  between. It is *at stake* if the same holds when inserted texts are ignored.

For exact values, loss is a measurement: it [predicts the answers of a published exam](exam.md#validity-of-the-marks). Its
values are ids; that paths and numbers behave alike is an inference. For prose, loss is a bound: other words may say
the same, or the opposite. `metrics.loss_tables.losses` lists each loss. On eight sessions `summary_recall` was 3 % for a
summariser that answers "ok", 16 % for the extract, and 100 % for a list of all items (`benchmarks/summary_recall.py`).

## Columns

| column | type | meaning | exactly |
| --- | --- | --- | --- |
"""
_LIMITS = f"""
## What cannot be computed from this page

| columns | they rest on |
| --- | --- |
{_format_uncomputed_columns()}"""


def format_page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{column.name}` | {column.dtype} | {column.meaning} | {_DEFINITIONS.get(column.name, '')} |\n"
        for column in SCORE_COLUMNS
    )
    return _HEAD + "".join(rows) + _LIMITS


if __name__ == "__main__":
    Path(__file__).with_name("scores.md").write_text(format_page(), encoding="utf-8")
