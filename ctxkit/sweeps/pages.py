"""The page on scores, written from the table of columns."""

from __future__ import annotations

from ctxkit.sweeps.columns import COLUMNS

_HEAD = """# Scores

`ck.score(session)` is one row, `ck.compare(session, rules)` one row a setting, `ck.sweep(sessions, rules)` one a run:
the columns are the same. This page is written from the table in the code: a test says when it is behind, and
`python -c "from ctxkit.sweeps.pages import page; print(page(), end='')" > docs/scores.md` writes it.

- **No single score.** Dollars, needed-later loss and unpaid cuts stand side by side; `plots.frontier` joins what no
  other setting beats.
- **Open loop.** A replay keeps what was said as it was recorded. It tells the bill and the opportunity for loss, not
  what the agent would have done.
- **Missing, never zero.** Shares lie between 0 and 1, counts end in `_n`, money is US dollars.

## The bill of a replay

A recorded session is billed as recorded: by the log's own prices where it has them (`table_usd` is the same by the
table, which replays are billed by), and a summary that it does not price is estimated as a replay's is.

A replay is billed over the calls that the record bills, by a cache model that
is fitted on the record and told only the sizes of prompts, what each shares with the one before, and the record's
misses:

- a shared prefix is read, the rest is written (fresh where the provider bills no writes, or the prompt is too short);
- where the record missed the cache for another reason than a compaction, a replay keeps at most what the record kept;
- what is shared is the longest prefix of any living prompt before it, whatever made the prompt: two rules that send the
  same prompts at the same times cost the same;
- the call that writes a summary sends what it summarises as fresh input, or reads the cached prompt with `reuse=True`;
  texts worked out from the record (intents, evidence, digests) cost nothing.

`reproduction_error` says how far the model's input side is from the record's own, under the recorded policy.

## How far it can be trusted

A replay keeps the recorded calls. Real runs do not: under another policy the same model took 0.6 to 2.2 times the turns
over the same tasks. `longer` is the factor that is expected, `longer_low` and `longer_high` its 80 % interval for a
model that was not studied, chosen by the family of the replayed policy (results masked or cleared; summaries; both;
anything else), that of the policy that the record was made under, and that of the model (Gemini, Qwen; others: all
models together). `real_low_usd` and `real_high_usd` are the cost with that many calls; missing where the log cannot say
under which policy it was made. The factors are those of whole runs under a policy, also where it came into force late.

The same policy run twice over 50 tasks gives totals within 21 % of each other in 80 of 100 cases (9, 14 and 2 % in
the three pairs that were run): the noise floor. A replay is `cheaper` or `dearer` than the record, by the table of
prices, where the whole interval lies beyond the floor; else it is *not told apart*. That speaks of many runs like this
one: over a single task the floor is a factor of 3.7. Where it all comes from, and what it misses, is in
`docs/trust-studies.md` and notebook 09; `ck.studies.table("ratios")` has the figures.

`metrics.elongation.elongated(runs)` returns the rows of a sweep as long as real runs are expected to be
(`end="longer_high"`: at that end of the interval; `share=0.15`: all with summaries longer by a share of your own):
calls, tokens and dollars grow, `source` becomes `estimated`, all else stays.

## How compactions held

A compaction is one value (`metrics.compaction.Compaction`: call, tokens and messages without and with it, its
summaries), judged by one function, whether it was recorded or replayed; `metrics.thrash.thrash` opens each. In a record
`before` is the last prompt before it, and `after` the first one after it less what was new in it; several before one
call were felt as one.

It has *paid for itself* after ``n = (K + (w - r) (S - (L - F))) / (r (L - S))`` requests, its own call the first: `L`
and `S` tokens without and with it, `K` dollars of its summaries (as the bill has them), `w` and `r` the prices of a
written and a read token, and `F` what the call would have found in the cache without it: all of `L`, or what the
record's own call found where its cache was dead. So on a cold call nothing counts that would have been written anyway.
It is *unpaid* where the next one came before that.

## What was lost

Items are paths, URLs, ids and hashes, numbers with units, commands, error messages, the user's constraints, decisions
and open ends. One definition holds for recorded sessions, for replays and for prunings (`metrics.forgotten`): it looks
at what each call is shown. An item is removed at the first call that is no longer shown a message that held it, as it
was said; from then on it is *retained* at each call that is shown it (word for word; a path also as the ending of a
longer one), *recoverable* where a file, artifact or archive that is named there holds it, else *lost*. A *cut* is a
call before which a compaction or a pruning changed something; it *took* what was in sight before and is not after.

*Needed-later loss* is the share of the items that the record uses again (a reply names them, in text or tool arguments,
after they were said) that a cut took at any time before such a reply: not only until the next cut. Each item counts
once, charged to the last cut that took it before its first such use. What it is divided by is the record's own: the
same for all rules, so that a setting cannot look better by cutting more often or less. What a message said again
between cut and use counts as lost all the same, if a call was sent in between: the agent may have looked for it.
`window_loss` is the older figure: of what was removed and used again before the *next* cut, the share that was out of
sight after this one; it flatters settings that cut often. What a pruning hid is known as long as the replay has its run
beside it, so not for one that was read from a file. `metrics.loss.losses` opens each loss, `metrics.audits`,
`metrics.drift`, `metrics.planted` and, with the extra `ctxkit[semantic]`, `metrics.meaning` look further.

*Regret* is the needed-later loss above that of the best messages that the same room could have held at the cut where
this is hardest, chosen with the record's future in hand (a fractional knapsack by size, counting an item once for each
message that holds it): a bound that no policy can beat. Looked at are the 16 cuts with the most out of sight that is
still needed.

## Columns

| column | type | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(f"| `{c.name}` | {c.type} | {c.meaning} |\n" for c in COLUMNS)
