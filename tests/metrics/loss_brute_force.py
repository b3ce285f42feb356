"""What was lost, by its definition: every call's messages are looked at one by one, with sets and
nothing clever.
"""

from __future__ import annotations

import re

from ctxkit.metrics import LosableItem, extract_items
from ctxkit.metrics.item_index_and_rule_matching import (
    USER_WEIGHT,
    RuleParaphraseMatcher,
    _find_file_paths,
)
from ctxkit.metrics.losable_items import ERROR_LINE_CHARS, MessageItemCache, expand_path_endings
from ctxkit.session import Text


def stands(words, text):
    """Whether an item is in a text as it is: `fin-import-1` is not in `fin-import-10`."""
    at = text.find(words)
    while at >= 0:
        end = at + len(words)
        if not inside(text, at) and (len(words) >= ERROR_LINE_CHARS or not inside(text, end)):
            return True
        at = text.find(words, at + 1)
    return False


def inside(text, at):
    return re.fullmatch(r"\w\w", text[max(at - 1, 0) : at + 1]) is not None


def views_of(done):
    """For each call the messages that it was shown, and whether a compaction or a pruning changed
    something before.
    """
    out = {}
    for stretch in done.segments():
        for call in range(stretch.start, stretch.stop):
            out[call] = list(stretch.prompt_at(call))
    return [out[call] for call in sorted(out)]


def by_definition(session, views, moments, elsewhere=()):
    """The columns of loss but regret, from the messages that each call was shown.

    `moments` are the calls before which something changed; `elsewhere` those at which all that went
    is kept elsewhere.
    """
    index, calls = MessageItemCache(), session.calls
    rows, upto = [], []
    for m in session.messages:
        if m.role == "assistant":
            upto.append(len(rows))
        if m.visible:
            rows.append(m)
    by_parts = {id(m.parts): m for m in rows}
    files = {
        id(m.parts): path
        for m in session.messages
        if (path := _find_file_paths(session).get(id(m)))
    }
    rules = RuleParaphraseMatcher(
        (f, f) for m in rows for f in index.items(m) if f.family == "constraint"
    )

    def given(m):
        """The rules that a message of the user or the agent gives, in whatever words."""
        spoken = "\n".join(p.text for p in m.parts if isinstance(p, Text))
        return rules.in_text(spoken) if m.role in ("user", "assistant") else set()

    def named_by(m):
        return index.items_and_path_endings(m) | given(m)

    def used_by(m):
        return index.items_used_by_reply(m) | given(m)

    again, before = set(), set()
    for m in rows:
        again |= used_by(m) & before if m.role == "assistant" else set()
        before |= index.items(m)
    users = set().union(*(index.items(m) for m in rows if m.role == "user"))
    uses = [used_by(c.message) for c in calls]
    put_in, stake, ruled = False, set(), []
    gone, kept, held = set(), set(), {}
    out, told, window = set(), [], []
    known = {}

    def within(item, text):
        if (item, text) not in known:
            known[item, text] = stands(item.text, text)
        return known[item, text]

    counts, was = dict.fromkeys(("items", "retained", "recoverable", "lost"), 0), set()
    for call, view in enumerate(views):
        shown = {id(m.parts) for m in view if id(m.parts) in by_parts}
        texts = [m for m in view if id(m.parts) not in by_parts]
        there = set(map(id, (m.parts for m in rows[: upto[call]])))
        fresh = {id(m.parts) for m in rows[upto[call - 1] if call else 0 : upto[call]]}
        out -= {n for m in fresh for n in named_by(by_parts[m])}
        went = (was | fresh) & there - shown
        for m in went:
            found = index.items(by_parts[m])
            gone |= found
            kept |= found if call in elsewhere else set()
            for f in found:
                held.setdefault(f, set()).update([files[m]] if m in files else [])
        by_rows = set().union(*(named_by(by_parts[m]) for m in shown))
        said = by_rows.union(
            *(expand_path_endings(extract_items(m)) | rules.in_text(m.text) for m in texts)
        )
        put_in |= bool(texts)
        stake |= {i for i in gone - by_rows if any(i in later for later in uses[call:])}
        words = [" ".join(m.text.split()) for m in texts]
        was = shown

        def in_sight(item, said=said, words=words):
            return item in said or any(within(item, text) for text in words)

        def at_hand(item, in_sight=in_sight, kept=kept):
            return item in kept or any(
                in_sight(LosableItem("path", p)) for p in held[item] if p != item.text
            )

        away = {i for i in gone if not in_sight(i)}
        told += [(call, i, at_hand(i)) for i in sorted(away - out)]
        out = away
        if call in moments:
            lost = {i for i in away if not at_hand(i)}
            stop = next((c for c in sorted(moments) if c > call), len(calls))
            counts["items"] += len(gone)
            counts["retained"] += len(gone - away)
            counts["recoverable"] += len(away - lost)
            counts["lost"] += len(lost)
            named = set().union(*uses[call:stop]) & gone
            ruled += [i not in away for i in gone if i.family == "constraint"]
            window += [i in away for i in named]
    missed = {}
    for item in {i for _, i, _ in told}:
        mine = [(c, hand) for c, i, hand in told if i == item]
        use = next((c for c in range(mine[0][0], len(calls)) if item in uses[c]), None)
        if use is not None:
            call, hand = [x for x in mine if x[0] <= use][-1]
            missed[item] = (use - call, hand)
    n = counts["items"]

    def weigh(found):
        return sum(USER_WEIGHT if i in users else 1 for i in found)

    return {
        "items_n": n,
        **{k: counts[k] / n if n else None for k in ("retained", "recoverable", "lost")},
        "reused_items_n": len(again),
        "needed_lost_n": len(missed),
        "needed_later_loss": len(missed) / len(again) if again else 0.0,
        "needed_later_unrecoverable": sum(not hand for _, hand in missed.values()) / len(again)
        if again
        else 0.0,
        "weighted_loss": weigh(missed) / weigh(again) if again else 0.0,
        "at_stake_items_n": len(stake),
        "summary_recall": 1 - weigh(missed) / weigh(stake) if stake and put_in else None,
        "user_rules_kept": sum(ruled) / len(ruled) if ruled else None,
        "next_interval_loss": sum(window) / len(window) if window else 0.0,
    }
