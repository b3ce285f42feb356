"""Write docs/scores.md from the column definitions: `python docs/make_scores.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.experiments.score_columns import SCORE_COLUMNS, UNCOMPUTED_COLUMNS
from ctxkit.metrics.item_index_and_rule_matching import USER_WEIGHT
from ctxkit.metrics.optimal_trigger_floor_and_wait import EXTRA_LOSS
from ctxkit.metrics.run_elongation_from_studies import INTERVAL_LEVEL, NOISE_FLOOR
from ctxkit.metrics.threshold_replays import NEAR_OPTIMAL

if TYPE_CHECKING:
    from collections.abc import Iterable


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _format_uncomputed_columns() -> str:
    rows = (f"- {_format_names(names)}: {reason}\n" for reason, names in UNCOMPUTED_COLUMNS.items())
    return "".join(rows)


_HEAD = f"""# Scores

`ck.score(session)` gives one row, `ck.compare(session, rules)` one row per setting, `ck.sweep(sessions, rules)` one row
per run, all with the same columns. `python docs/make_scores.py` writes this page from the definitions in the code.

- **No single score.** Dollars, needed-later loss and compactions that were not paid back are separate columns;
  `plots.frontier` draws the Pareto front.
- **Open loop.** A replay keeps the recorded messages. It estimates the bill and which items were out of sight, not what
  the agent would have done.
- **Missing, never zero.** Shares are between 0 and 1, counts end in `_n`, money is in US dollars.

## The bill of a replay

A recorded session is billed with the costs in its log, if there are any; `list_price_usd` is its bill by the price
table. A replay is billed by the price table at the date of each call, for the calls that the record bills:

- a call reads from the cache the longest prefix that its prompt shares with an earlier prompt that is still cached, and
  writes the rest (as uncached input if the provider bills no writes, or the prompt is too short to be cached);
- where the record missed the cache for a reason other than a compaction, a replay reads at most what the record read;
- the call that writes a summary sends the summarised messages as uncached input, or reads the cached prompt
  (`reuse=True`);
- texts computed from the record (intents, evidence, digests) cost nothing.

## How exact the dollars are

`prediction_error` is the error of the input dollars if the cache reads are predicted from sizes, times and events of
this session, with a model trained on other sessions ([trust.md](trust.md)); `prediction_low` and `prediction_high` are
its {INTERVAL_LEVEL:.0%} interval. Dollars alone are a weak test, so `read_split_error` compares the reads call by call.
For `closure_error` the model is given the reads at misses: it shows only that the sums are consistent.

A cache miss has a cause if the log shows one before the reply: a pause longer than the lifetime of the cache, a
compaction, another model or effort, a restart, added tools, changed reasoning or messages, a refused call, a prompt too
short to be cached. Eviction and routing leave no trace in a log, so they are not among the causes.

## How long real runs are

Under another policy the same model took 0.6 to 2.2 times the turns for the same tasks. `elongation` is the expected
factor, by the families of both policies and of the model. The same policy run twice over 50 tasks gives totals within
{NOISE_FLOOR:.0%} of each other in 80 of 100 cases: this is the noise floor. `vs_recorded` is `within noise` unless the
whole interval is outside it. This holds for many runs; for a single task the floor is a factor of 3.7.

## Whether compactions paid back

All compactions before one call count as one. `L` and `S` are the tokens of that call's prompt without and with the
compaction. It is paid back after

    n = (K + (w - r) (S - P - (L - F))) / (r (L - S))

requests, the first of which is its own call. `K` is the dollars of its summaries; `w` and `r` are the prices of a written
and a read token; `F` is the number of tokens that the call would have read from the cache without it; `P` is the number
of tokens at the front that it left unchanged, at most `F`. It was *not paid back* if the next compaction came before
that. The formula compares the rules with the same rules without this one compaction, not with never compacting: of rules
that clear a little at each call, most compactions may be not paid back, and yet they can cost less than `none`.

## What was lost

Items are paths, URLs, ids, names, numbers with units, commands, error messages, and the user's constraints, decisions
and open points. An item is *removed* at the first call whose prompt lacks, in its original words, a message that stated
it. From then on it is *retained* in each prompt that states it (word for word; a path also as the ending of a longer one,
an id in any case, a number with or without a space before its unit, a constraint in any words), *recoverable* if a file
or archive that the prompt names has it, else *lost*.

*Needed-later loss* is the share of reused items (items that a reply names after they were stated) that went out of sight
before such a use. `next_interval_loss` looks only as far as the next compaction and favours
rules that compact often. `metrics.loss_tables.losses` lists each loss. *Regret* is the loss above that of the best
selection of messages within the same token budget, made with knowledge of the record's future: a bound that no policy can
beat.

*Summary recall* is, of the items that only inserted text could still state, the share that it stated. On eight sessions
it was 3 % for a summariser that answers "ok", 16 % for the extract, 100 % for a list of all items
(`benchmarks/summary_recall.py`). In `summary_recall` and `weighted_loss` an item of the user weighs {USER_WEIGHT:g}, any
other 1; these weights were chosen, not measured.

A constraint is still given if a sentence shares most words of the shorter of both (compared by their first five letters),
both forbid or neither does, and the text has all its values. `user_rules_kept` is the share of the removed constraints
that are still given.

For exact values, loss is a measurement: in a published exam (algal/pi-openai-server-compaction at 8a3de2f, eight
histories, 600 questions, summaries by a model) the answer was right in 288 of 288 cases without a loss, and wrong in 312
of 312 cases with one (`tests/truth/test_loss_predicts_exam_answers.py`). Those values are ids; it is an inference that
paths and numbers behave alike. For prose, loss is a bound: other words may say the same, or the opposite.

## When to compact, and which setting to choose

`metrics.when_to_compact(session)` minimises dollars within bounds. The floor is at least the system prompt, the tools,
the last turn and the items needed later. The trigger puts at most {100 * EXTRA_LOSS:g} percentage points more of the items
used again at stake than compacting at the window does. Triggers from `low` to `high` cost at most
{NEAR_OPTIMAL - 1:.0%} more, also in replays of this session.

`ck.advise(sessions)` gives, for each setting on the Pareto front, its savings with a 90 % interval, the number of
sessions that save (`sessions_saving_n`), and the share of the session that saves most (`largest_session_share`). Errors of
sessions of one tool have the same sign, so they do not cancel: a mean is known within the mean of their half widths
(`cost_uncertainty_usd`), and a smaller difference is within noise. A setting is `advised` if the interval is above zero,
no session contributes more than half of the savings, no session falls below its floor, and loss is at most
{100 * EXTRA_LOSS:g} points above that of compacting at the window.

## How to compute the columns

The frames ([frames.md](frames.md)) and the prompts are enough for all columns but those of the next section, for records
and replays of each format (`tests/metrics/score_oracle.py` does it).

- **Prompts**: `session.sent(call)` has a message in its own words where `row` is 0 or more and `changed_by` is missing;
  all other items but the `fixed` one are *inserted*. After a compaction that no call follows the prompt is
  `session.view()`. A *change* is each compaction, and each prompt that is not the one before and what came since.
- **Tokens and dollars** are sums over the call frame's rows that have a prompt. Where reads are known and writes are not,
  writes are 0. `fresh_tokens`, `input_usd` and `priced_share` are missing where the record has no usage, `output_usd` where
  `output_tokens` is. The prompt of a call without usage is the sum of the sizes in `session.sent(call)`, here and below. Prices are `ck.prices.price(model, at=time).at(prompt)`, dollars a token;
  where they have `writes_unread`, the log tells reads, a call counts no writes and its prompt is not below
  `min_cacheable`, fresh tokens have the price of writes. `cost_usd`, `summaries_usd`, `list_price_usd` and `cost_source`
  are those of the session frame. Where the record's window is missing, the rules' is no `window_tokens`.
- **Sizes of compactions** are those of the compaction frame, counted as `"anchored"` where the record has no usage: of
  several before one call, the size before the first and after the last. Savings are means over its rows, but those of kind
  `unmarked`, `failed`, `refused` and `skipped` are no compactions. `refilled_share` (of the tenth call after the first
  that was sent the outcome), `rebound_calls`, `no_progress_streak` and what was paid back end at the next compaction, and
  one that no call follows is none. One compaction that was not paid back is no thrashing; without sizes a replay has none
  of these. `summary_tokens` is the sum of the frame's column, counted as `"anchored"`, and missing where a summary is
  sealed (part `SizeOnly` of a message in `session.edits[i].inserted`).
- **The formula above**: `K` is the frame's `cost_usd`, counted as `"anchored"`, else 0; with a sealed summary nothing is
  said. `P` is the sizes of the items at the front that are as in the prompt before (the `fixed` one always is), and what
  the items lack of the prompt.
  `F` is `L`, and of a replay at most the prompt of the call before; where `ck.misses` has a cause other than the
  compaction, none (`unexplained`), or a pause (`gap`) longer than `get_cache_lifetime(record)`, at most what the record
  read. Prices are those of a prompt of `L`: `r` that of fresh input where the log tells no reads, `w` that of writes that
  live an hour where most of the log's do, and of fresh input where no writes are billed.
- **Misses**: `unexplained_miss_share` is of the record's calls that tell reads. `explained_miss_share` leaves `cold_start`
  out.
- **Hidden** messages are rows of the message frame whose state is neither `shown` nor `hidden`. Compactions that did not
  happen are listed in `session.details["replay"]["held"]`: `failed` where `why` begins so, else suppressed.
- **Tool calls** are equal where tool (in any case) and arguments (unreadable ones: their text) are; of tools that read a
  file, where the file is. A compaction removed one where the message that makes or answers it is then for the first time
  not sent in its own words. `reread_rate` is the mean over compactions of the share among the next 24 tool calls, or as
  many as there are; `calls_to_first_write` is how many tool calls come before the one that writes, 0 where it is the
  first. Both leave out a compaction before the first model call. `calls_to_resume` is over all changes and counts model
  calls from 0: a call does something new where it asks for what no call asked for before, with a tool that does more than
  read. None of them ends at the next compaction.
- **Items**: which words are items and which sentences give a constraint is fixed by the patterns of
  `ctxkit.metrics.losable_items` and `ctxkit.metrics.item_index_and_rule_matching`; which tools read and write by
  `ctxkit.session.tool_call_paths_and_descriptions`. A message *states* its own items. It *names* these, and the endings of its paths (two parts
  at least; each is an item that weighs 1). The text, not the thinking, of user and agent also names a constraint that it
  gives in other words. A reply *uses* what it names in text and arguments. An inserted text names what occurs in it as
  whole words. An item is *removed* once a message that stated it left; an ending that is nowhere stated never is.
- **Used again**: `reused_items_n` counts items that a reply uses after a message that *stated* them came before its
  call. A reply's own statement does not count, nor one that only named the item.
- **Fates**: a removed item goes *out of sight* at a change where the prompt before, or what came since, named it and the
  prompt no longer does. It is *lost* where a reply uses it after the first time that it did, stated again or not;
  `calls_to_first_use` counts from the last time before that use, where `needed_later_unrecoverable` is judged too. It is
  *at stake* where the same holds with inserted texts left aside: a reply uses it after the messages sent in their own
  words no longer name it. `summary_recall` is 1 - the weight of the lost / the weight of those at stake, and missing where
  no text was inserted. Other counts are, at each change, of all items removed so far; `next_interval_loss` is of those of
  them that are used before the next change.
- **Files and archives**: a file holds the items stated by the result of a read or write call and by the reply that makes
  it (of several its last), but not its own path, once that message left and in each prompt that names the file's path as
  the call gave it. An archive holds, from then on, what is stated by the messages that a compaction removed whose
  `reason`, `method` or inserted text says "offload", "artifact" or "archive" in its first 200 characters, and by a pruned
  message whose stub says so.
- **Nothing to share**: shares of the loss are 0 where nothing changed, else missing where nothing is used again.

## What cannot be computed from this page

{_format_uncomputed_columns()} `cost_low_usd` is `cost_usd - input_usd + input_usd (1 + prediction_low) / (1 + prediction_error)`,
`real_run_low_usd` is `(cost_usd - summaries_usd) elongation_low + summaries_usd`, and so for `high`. `vs_recorded` is
`cheaper` where `real_run_high_usd` is below the record's `list_price_usd` / {1 + NOISE_FLOOR:g}, `dearer` where
`real_run_low_usd` is above {1 + NOISE_FLOOR:g} times that. A record has none of these but the first two, which are its
`cost_usd`.

## Columns

| column | type | meaning |
| --- | --- | --- |
"""


def format_page() -> str:
    """Return the page in Markdown."""
    return _HEAD + "".join(
        f"| `{column.name}` | {column.dtype} | {column.meaning} |\n" for column in SCORE_COLUMNS
    )


if __name__ == "__main__":
    Path(__file__).with_name("scores.md").write_text(format_page(), encoding="utf-8")
