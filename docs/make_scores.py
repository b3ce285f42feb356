"""Write docs/scores.md from the column definitions: `python docs/make_scores.py`."""

from __future__ import annotations

from pathlib import Path

from ctxkit.experiments.score_columns import SCORE_COLUMNS

_HEAD = """# Scores

`ck.score(session)` is one row, `ck.compare(session, rules)` one row a setting, `ck.sweep(sessions, rules)` one a run:
the columns are the same. This page is written from the table in the code: a test says when it is behind, and
`python docs/make_scores.py` writes it.

- **No single score.** Dollars, needed-later loss and unpaid cuts stand side by side; `plots.frontier` joins what no
  other setting beats.
- **Open loop.** A replay keeps what was said as it was recorded. It tells the bill and the opportunity for loss, not
  what the agent would have done.
- **Missing, never zero.** Shares lie between 0 and 1, counts end in `_n`, money is US dollars.

## The bill of a replay

A recorded session is billed as recorded: by the log's own prices where it has them (`list_price_usd` is the same by the
table, which replays are billed by), and a summary that it does not price is estimated as a replay's is.

A replay is billed over the calls that the record bills, by a cache model that
is told the sizes of prompts, what each shares with the one before, and what the record's misses read:

- a shared prefix is read, the rest is written (fresh where the provider bills no writes, or the prompt is too short);
- where the record missed the cache for another reason than a compaction, a replay keeps at most what the record kept;
- what is shared is the longest prefix of any living prompt before it, whatever made the prompt: two rules that send the
  same prompts at the same times cost the same;
- the call that writes a summary sends what it summarises as fresh input, or reads the cached prompt with `reuse=True`;
  texts worked out from the record (intents, evidence, digests) cost nothing.

## Within which error

`prediction_error` says how far the input side is off that `cache.predictions` predicts for the recorded session from
sizes, times and events alone: its reads are not known to it, other sessions taught it (`docs/trust.md`: which, and how
well it did). `prediction_low` and `prediction_high` are its 80 % interval in the same measure. `second_half_error` is that of
the second half of the calls, the first half having taught it first; `compaction_read_error` that of the reads after compactions,
each predicted from the session's others. Dollars alone are a weak test, for reads given to
other calls cost about the same: `read_split_error` compares call by call. Beside them stand models that know next to
nothing. `cost_low_usd` and `cost_high_usd` put the interval to each row: a replay carries over what the record missed,
and may be as far off as a prediction without the record's reads.

A miss has a cause where a rule of `cache.causes` holds that looks at the log before the reply and never at the read: a
pause longer than the cache lives, a compaction, another model or effort, a restart, further tools loaded, old reasoning
taken out, earlier messages changed, a refused call, a prompt before that was too short. After such a pause Claude Code
from 2.1 on still reads what all its sessions begin with (`ttl_expiry_prefix`), unless a first prompt of 32,000 tokens
or more says that a user's own tools stand before that. Eviction and routing are seen in the reads alone,
so they are no causes. `explained_miss_share` is the share of lost tokens with one.

Where settings are held against each other, `ck.advise` and `ck.plots.frontier` go by the same interval: a mean over
sessions is known within the mean of their half widths (`cost_uncertainty_usd`), as the errors of sessions of one tool share
a sign and do not cancel out,
and a smaller difference is *not told apart*.

`closure_error` (`reproduction_error` until this version) is told what each miss read. It says that the books add up,
and stays near zero for any reads at all.

## How far it can be trusted

A replay keeps the recorded calls. Real runs do not: under another policy the same model took 0.6 to 2.2 times the turns
over the same tasks. `elongation` is the factor that is expected, `elongation_low` and `elongation_high` its 80 % interval for a
model that was not studied, chosen by the family of the replayed policy (results masked or cleared; summaries; both;
anything else), that of the policy that the record was made under, and that of the model (Gemini, Qwen; others: all
models together). `real_run_low_usd` and `real_run_high_usd` are the cost with that many calls; missing where the log cannot say
under which policy it was made. The factors are those of whole runs under a policy, also where it came into force late.

The same policy run twice over 50 tasks gives totals within 21 % of each other in 80 of 100 cases (9, 14 and 2 % in
the three pairs that were run): the noise floor. A replay is `cheaper` or `dearer` than the record, by the table of
prices, where the whole interval lies beyond the floor; else it is *not told apart*. That speaks of many runs like this
one: over a single task the floor is a factor of 3.7. Where it all comes from, and what it misses, is in
`docs/trust.md` and notebook 09; `ck.studies.table("ratios")` has the figures.

`metrics.elongation.elongated(runs)` returns the rows of a sweep as long as real runs are expected to be
(`end="elongation_high"`: at that end of the interval; `share=0.15`: all with summaries longer by a share of your own):
calls, tokens and dollars grow, `source` becomes `estimated`, all else stays.

## How compactions held

A compaction is one value (`metrics.compaction.Compaction`: call, tokens and messages without and with it, its
summaries), judged by one function, whether it was recorded or replayed; `metrics.thrash` opens each. In a record
`before` is the last prompt before it, and `after` the first one after it less what was new in it; several before one
call were felt as one.

It has *paid for itself* after ``n = (K + (w - r) (S - P - (L - F))) / (r (L - S))`` requests, its own call the first:
`L` and `S` tokens without and with it, `K` dollars of its summaries (as the bill has them), `w` and `r` the prices of a
written and a read token, `P` the front that it left as it was, so that the cache still has it, and `F` what the call
would have found in the cache without it: what the call before was sent, or what the record's own call found where its
cache was dead. So on a cold call nothing counts that would have been written anyway, and without a summary this is the
break-even ``N > (w - r) S / (r x)`` with `S` what stands behind the change.

It is *unpaid* where the next one came before that: to leave it to the next one would have been cheaper. That is a word
about this compaction beside the same rules with one fewer, not about never compacting: rules that clear a little at
each call can have most of theirs unpaid and still cost less than `none`; fewer, larger clearings cost less again.

## What was lost

Items are paths, URLs, ids and hashes (`fin-import-7`, `INV-2026-118842`), names (`X-Bill-Trace`, `MAX_RETRIES`),
numbers with units, commands, error messages, the user's constraints, decisions and open ends. One definition holds
for recorded sessions, for replays and for prunings (`metrics.forgotten`): it looks at what each call is shown. An
item is removed at the first call that is no longer shown a message that held it, as it was said; from then on it is
*retained* at each call that is shown it (word for word and no part of a longer word; a path also as the ending of a
longer one, an id in whatever case, a number with or without a space before its unit, a constraint in whatever words,
see below), *recoverable* where a file, artifact or archive that is named
there holds it, else *lost*. A *cut* is a call before which a compaction or a pruning changed something; it *took*
what was in sight before and is not after.

*Needed-later loss* is the share of the items that the record uses again (a reply names them, in text or tool
arguments, after they were said) that a cut took at any time before such a reply: not only until the next cut. Each
item counts once, charged to the last cut that took it before its first such use. What it is divided by is the
record's own: the same for all rules, so that a setting cannot look better by cutting more often or less. What a
message said again between cut and use counts as lost all the same, if a call was sent in between: the agent may have
looked for it. `next_interval_loss` is the older figure: of what was removed and used again before the *next* cut, the share
that was out of sight after this one; it flatters settings that cut often. What a pruning hid is known as long as the
replay has its run beside it, so not for one that was read from a file. `metrics.loss.losses` opens each loss,
`metrics.audits`, `metrics.drift`, `metrics.retention_checks` and, with the extra `jupyter-ctxkit[semantic]`, `metrics.meaning` look
further.

*Regret* is the needed-later loss above that of the best messages that the same room could have held at the cut where
this is hardest, chosen with the record's future in hand (a fractional knapsack by size, counting an item once for
each message that holds it): a bound that no policy can beat. Looked at are the 16 cuts with the most out of sight
that is still needed.

### How hard was cut, how well was summarised

Needed-later loss is mostly how much was cut: on eight recorded sessions a summariser that answers "ok" lost 23.9 % of
what was used again under Pi's rules and the default extract 21.8 %. So two figures stand beside it. *At stake*
(`at_stake_items_n`) are the items named later that the cuts took as they were said: from then on only the text that was put
in, by whatever writer, could say them. *Summary recall* (`summary_recall`) is the share of these that it did say
until they were named: 3 % for "ok", 16 % for the extract, 100 % for a list of every item (0, 19 and 100 % under
Codex' rules, 5, 32 and 100 % under Claude Code's; what "ok" still has are the files that the rules add to any
summary: `benchmarks/recalls.py`). It is missing where no text was put in.

In `summary_recall` and `weighted_loss` an item that the user said weighs 4 and any other 1: chosen, not measured, so
that a name the user gave counts more than the names of tests that a tool printed.

A constraint counts by its content: a sentence gives it where most words of the shorter one of both are common (by
their first five letters), both forbid or neither does, and all its values stand in the text. `user_rules_kept` is the
share of the user's constraints, of those removed, that were still given.

### What is a measurement and what is a bound

For exact values (ids, names, paths, URLs, numbers, commands, errors) loss is a measurement. In a published exam
(algal/pi-openai-server-compaction at 8a3de2f, `benchmarks/product-defaults`, MIT; eight histories, 600 questions,
real summaries by a model) a model was asked for such values after Pi's default compaction. Where no item of the right
value was lost, its answer was right, 288 of 288; where one was, it was wrong, 312 of 312: the published 48.0 %. The
`pi` preset cuts all eight histories at the recorded place. An empty summary, another history's and one of shuffled
letters predict no answer that rests on the summary (0 of 48), one that holds every value predicts none of the wrong
ones (`tests/truth/test_loss_foretells_answers.py`). The values of that exam are ids; that paths and numbers behave
alike is an inference.

For prose (constraints, decisions, open ends) it is a bound: other words may say the same, or the opposite.

### After the cut

`metrics.afterwards.afterwards(session)` has a row for each cut: the user's rules that it took, those that the user
then gave again (`user_rules_restated_n`), the first call that writes or runs something which a lost ban names
(`calls_to_rule_breach`: a hint to look at, as a name is no act), the calls until the agent did something new, and not only
looked (`calls_to_resume`), and values in what was put in that others had replaced before (`stale_values_n`).

## When to compact, and what to take

`metrics.when_to_compact(session)` weighs dollars and bounds them; `context_window=` asks about another window than the one
that the session ran in. The floor is at least what must stay: system prompt and tools, the last turn (the median one,
at most 20,000 tokens, as Pi and Codex keep), and the items needed later. The ceiling puts at most 5 points more of
what is used again at stake than compacting at the window does, by replays that compact at that size to that floor with
summaries that keep nothing. `low` and `high` are the sizes that cost at most 5 % more. One session carries it.

`ck.advise(sessions)` tells of each setting on the front what it saves with its 90 % interval, how many sessions carry
that (`sessions_saving_n`) and what share the largest makes (`largest_session_share`). It is `advised` only where the interval lies
above zero, no session makes more than half, no session falls below what must stay, and needed-later loss is at most 5
points above what compacting at the window puts at stake.

## Columns

| column | type | meaning |
| --- | --- | --- |
"""


def render_page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(f"| `{c.name}` | {c.dtype} | {c.meaning} |\n" for c in SCORE_COLUMNS)


if __name__ == "__main__":
    Path(__file__).with_name("scores.md").write_text(render_page(), encoding="utf-8")
