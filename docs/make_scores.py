"""Write docs/scores.md from the column definitions: `python docs/make_scores.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.experiments.score_columns import REPLAY_COLUMNS, SCORE_COLUMNS, UNCOMPUTED_COLUMNS
from ctxkit.metrics.elongation import INTERVAL_LEVEL, NOISE_FLOOR
from ctxkit.metrics.item_index import USER_WEIGHT
from ctxkit.metrics.optimal_trigger import EXTRA_LOSS
from ctxkit.metrics.trigger_replays import NEAR_OPTIMAL

if TYPE_CHECKING:
    from collections.abc import Iterable


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _render_uncomputed() -> str:
    rows = (f"- {_list_names(names)}: {why}\n" for why, names in UNCOMPUTED_COLUMNS.items())
    return "".join(rows)


_HEAD = f"""# Scores

`ck.score(session)` is one row, `ck.compare(session, rules)` one row a setting, `ck.sweep(sessions, rules)` one row a run:
the columns are the same. This page is made from the table in the code (`python docs/make_scores.py`); a test holds the
two equal.

- **No single score.** Dollars, needed-later loss and compactions that were not paid back stand side by side;
  `plots.frontier` draws the Pareto front.
- **Open loop.** A replay keeps the recorded messages. It gives the bill and what was out of sight, not what the agent
  would have done.
- **Missing, never zero.** Shares lie between 0 and 1, counts end in `_n`, money is US dollars.

## The bill of a replay

A recorded session is billed by the log's own prices where it has them; `list_price_usd` is the same by the price table.
A replay is billed by the price table, over the calls that the record bills, at the prices of their date:

- a call reads the longest prefix that its prompt shares with a living prompt before it, and writes the rest (fresh input
  where the provider bills no writes, or the prompt is too short to be cached);
- where the record missed the cache for another reason than a compaction, a replay reads at most what the record read;
- so two rules that send the same prompts at the same times cost the same;
- the call that writes a summary sends what it summarises as fresh input, or reads the cached prompt (`reuse=True`);
- texts worked out from the record (intents, evidence, digests) cost nothing.

## How exact the dollars are

`prediction_error` is the error of the input dollars when the cache reads are predicted from sizes, times and events of
this session, with a model learnt from other sessions ([trust.md](trust.md)); `prediction_low` and `prediction_high`
are its {INTERVAL_LEVEL:.0%} interval. Dollars alone are a weak test, so `read_split_error` compares the reads call by call.
The naive models (`lifetime_error`, `all_cached_error`, `nothing_cached_error`) stand beside it. `cost_low_usd` and
`cost_high_usd` apply the interval to a row. `closure_error` gives the model the reads of the misses: it shows that the
sums are consistent and no more.

A cache miss has a cause where the log shows one before the reply: a pause longer than the cache lives, a compaction,
another model or effort, a restart, more tools, reasoning or messages changed, a refused call, a prompt too short to be
cached. Eviction and routing leave no trace and are no causes. `explained_miss_share` is the share of missed tokens with
a cause.

## How long real runs are

Under another policy the same model took 0.6 to 2.2 times the turns over the same tasks. `elongation` is the expected
factor, by the families of both policies and of the model; `real_run_low_usd` and `real_run_high_usd` are the cost with so
many calls. The same policy run twice over 50 tasks gives totals within {NOISE_FLOOR:.0%} of each other in 80 of 100 cases:
this is the noise floor. `vs_recorded` is `cheaper` or `dearer` where the whole interval lies beyond the floor, else
`within noise`. It holds for many runs; over a single task the floor is a factor of 3.7.

## How compactions held

All that was compacted before one call is one compaction. `L` and `S` are the tokens of that call's prompt without and
with it. It is paid back after

    n = (K + (w - r) (S - P - (L - F))) / (r (L - S))

requests, its own call the first. `K` is the dollars of its summaries; `w` and `r` the prices of a written and a read
token; `P` the tokens at the front that it left unchanged; `F` the tokens that the call would have found in the cache
without it. Without a summary, where the whole prompt was cached, this is ``(w - r) (S - P) / (r (L - S))``. It was *not
paid back* where the next compaction came before that. This compares the rules with the same rules less one compaction,
not with never compacting: rules that clear a little at each call can have most of theirs not paid back and still cost
less than `none`.

## What was lost

Items are paths, URLs, ids, names, numbers with units, commands, error messages, and the user's constraints, decisions
and open points. An item is *removed* at the first call that is no longer sent a message that stated it. From then on it
is *retained* in each prompt that states it (word for word; a path also as the ending of a longer one, an id in any case,
a number with or without a space before its unit, a constraint in any words), *recoverable* where a file or archive named
there holds it, else *lost*. Compactions and prunings are treated alike.

*Needed-later loss* is, of the items that the record uses again (a reply names them after they were stated), the share
that was out of sight before such a use. Each item counts once. The denominator is the record's own, so it is the same for all rules. `next_interval_loss` looks only as far as
the next compaction and flatters rules that compact often. `metrics.loss_tables.losses` lists each loss.

*Regret* is the loss above that of the best messages of the same token budget, chosen with the record's future known (a
fractional knapsack): a bound that no policy can beat.

*At stake* are the items named later that compactions removed: only the inserted text could still state them. *Summary
recall* is the share of these that it did state. On eight sessions it was 3 % for a summariser that answers "ok", 16 % for
the extract, and 100 % for a list of every item (`benchmarks/recalls.py`), while needed-later loss was 23.9 and 21.8 %:
that is mostly how much was removed. In `summary_recall` and `weighted_loss` an item of the user weighs {USER_WEIGHT:g},
any other 1: chosen, not measured.

A constraint is given where a sentence has most words of the shorter one in common (by their first five letters), both
forbid or neither does, and the text has all its values. `user_rules_kept` is the share of the removed ones still given.

For exact values loss is a measurement: in a published exam (algal/pi-openai-server-compaction at 8a3de2f, eight
histories, 600 questions, summaries by a model) the answer was right in 288 of 288 cases where nothing was lost, and wrong
in 312 of 312 where something was (`tests/truth/test_loss_foretells_answers.py`). Those values are ids; that paths and
numbers behave alike is an inference. For prose it is a bound: other words may say the same, or the opposite.

## When to compact, and what to take

`metrics.when_to_compact(session)` weighs dollars and the bounds on them. The floor is at least the system prompt, the
tools, the last turn and the items needed later. The trigger puts at most {100 * EXTRA_LOSS:g} points more of what is used
again at stake than compacting at the window does. Triggers from `low` to `high` cost at most {NEAR_OPTIMAL - 1:.0%} more,
also in replays of this session. The rates are those of a session that goes on; where this one is cheaper without a
compaction, a sentence says so.

`ck.advise(sessions)` gives for each setting on the Pareto front what it saves with its 90 % interval, how many sessions
save (`sessions_saving_n`), and the share of the largest (`largest_session_share`). Errors of sessions of one tool share a sign,
so they do not cancel: a mean is known within the mean of their half widths (`cost_uncertainty_usd`), and a smaller difference
is within noise. A setting is `advised` where the interval lies above zero, no session makes more than half of it, no
session falls below its floor, and loss is at most {100 * EXTRA_LOSS:g} points above that of compacting at the window.

## How to compute a record's columns

What is above, the frames ([frames.md](frames.md)) and the prompts (`session.view(call)`) are enough for all columns but
those of the next section; a test does so for sessions of each format.

- **Tokens and dollars** are sums over the call frame's rows that have a prompt; where the log tells reads and no writes,
  the tokens written are 0. In a session without any usage a prompt is the sum of the sizes in `session.sent(n)`, `n`
  being the call's number. `input_usd` and `output_usd` go by `ck.prices.price(model, at=time)`, dollars a token, for the
  size of the prompt. Where a provider bills what it did not read as written and the log counts no writes, fresh tokens have the
  price of writes. `cost_usd`, `summaries_usd`, `list_price_usd` and `cost_source` are those of the session frame.
- **Sizes of compactions** are those of the compaction frame, counted as `"anchored"` where the log has no usage: of
  several before one call, the size before the first and after the last. `token_savings` and `message_savings` are means
  over that frame's compactions; rows of kind `unmarked` are none, here and below. A call without usage among others
  has the size of its `session.sent(n)`. `no_progress_streak`, `refilled_share` (ten calls after the first that was sent the
  outcome), `rebound_calls` and what was paid back need a call that follows, and end at the next compaction; `reread_rate`, `calls_to_first_write`
  and `calls_to_resume` do not end there. The first is the mean over compactions of the share among the next 24 tool calls,
  or as many as there are; the others count model calls from 0, the first after the compaction. A single
  compaction that was not paid back is no thrashing. `summary_tokens` is the sum of the frame's column, counted as
  `"anchored"`; it is missing where a summary is sealed, which the part `SizeOnly` of an inserted message shows
  (`session.edits[i].inserted`).
- **The formula above**: `K` is the frame's `cost_usd`, counted as `"anchored"`, and 0 where that is missing; a compaction
  whose summary is sealed is left out; `P` the sizes of the messages at the
  front that are the same before and after, and what no message of the prompt accounts for; `F` is `L`, but at most what
  the record read where `ck.misses` gives that call a cause other than the compaction. `w` is the price of writes that
  live an hour where most of the log's do, and that of fresh input where no writes are billed.
- **Misses**: `unexplained_miss_share` is of the calls whose log tells cached tokens. `explained_miss_share` leaves first
  calls (`cold_start`) out.
- **Hidden** messages are rows of the message frame whose state is neither `shown` nor `hidden`.
- **Tool calls** are equal where tool (in any case) and arguments (unreadable ones: their text) are, of tools that read a file where the file is. A compaction removed
  one where the message that makes or answers it left the prompt then for the first time. A call does something new where
  it asks for what no call asked for before, with a tool that does more than read.
- **Items**: which words are items, and which sentences give a constraint, is fixed by the patterns of
  `ctxkit.metrics.losable_items` and `ctxkit.metrics.item_index`; which tools read and write by
  `ctxkit.session.tool_calls`. A message states its items, and names the endings of its paths (two parts at least) besides.
  A reply uses what it names in text and arguments, not in its thinking; a constraint also where a sentence of its text
  gives it in other words. An inserted text states what occurs in it as whole words, but its leaving the prompt removes
  nothing. An item goes *out of sight* at a compaction where it stood in the prompt or in what came since, and stands
  in the prompt after it no more. A file holds the items of the message that shows or writes it, once that message is
  gone; an archive those that a compaction removed whose reason, method or text says "offload", "artifact" or "archive".
  Counts at a compaction are of all items removed so far, by earlier ones too, also after the last call. After each
  compaction an item's first use before the next one counts; the item is needed and lost if it was out of sight at any
  such use. `next_interval_loss` is over these pairs of a compaction and an item removed so far. `calls_to_first_use` is
  the median over the items that were lost, each once. At stake at a compaction is an item that the messages still sent do
  not state, also where an earlier one removed it; `summary_recall` asks for it at each. Endings of paths, and constraints
  given in other words, weigh 1.
- **Nothing to share**: shares of the loss are 0 where nothing was compacted, and missing where nothing is used again.

## What cannot be computed from this page

{_render_uncomputed()}
Of a record these are missing, for they are of replays: {_list_names(REPLAY_COLUMNS)}.

## Columns

| column | type | meaning |
| --- | --- | --- |
"""


def render_page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(f"| `{c.name}` | {c.dtype} | {c.meaning} |\n" for c in SCORE_COLUMNS)


if __name__ == "__main__":
    Path(__file__).with_name("scores.md").write_text(render_page(), encoding="utf-8")
