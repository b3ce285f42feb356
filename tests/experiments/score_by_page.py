"""A recorded session's score, worked out by what docs/scores.md says from frames and prompts.

It reads `ck.frame`, `ck.misses`, `ck.prices`, the messages of each prompt (`session.view`), the
words that make an item (`losable_items`, `RuleMatcher`) and which tools read or write. It imports
nothing that computes a score, so what the page does not state shows as a difference.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import groupby, takewhile
from math import inf
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pandas as pd

import ctxkit as ck
from ctxkit.experiments.score_columns import REPLAY_COLUMNS
from ctxkit.metrics import LosableItem, extract_items
from ctxkit.metrics.item_index import RuleMatcher
from ctxkit.metrics.losable_items import expand_path_endings, extract_spoken_items, iter_texts
from ctxkit.session import Edit, Text, ToolCall, get_call_path
from ctxkit.session.messages import SEALED_SUMMARY
from ctxkit.session.tool_calls import is_read_only_tool, is_read_tool, is_write_tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session import Message, Session

USER_WEIGHT, REREAD_WINDOW, FULL_AGAIN, PROGRESS = 4, 24, 0.75, 0.1
SPEAKERS = ("user", "assistant")
COMPACTION_COLUMNS = (
    *("compactions_n", "token_savings", "message_savings", "summary_tokens", "no_progress_streak"),
    *("refilled_share", "rebound_calls", "not_paid_back_n", "paid_back_share", "is_thrashing"),
)
LOSS_COLUMNS = (
    *("items_n", "retained", "recoverable", "lost", "reused_items_n", "needed_later_n"),
    *("needed_lost_n", "needed_later_loss", "needed_later_unrecoverable", "weighted_loss"),
    *("at_stake_items_n", "summary_recall", "user_rules_kept", "next_interval_loss"),
    "calls_to_first_use",
)


def plain(value: Any) -> Any:
    """A cell without its dtype; None: missing."""
    return None if value is None or (not isinstance(value, str) and pd.isna(value)) else value


def total(values: Iterable[Any]) -> Any:
    """The sum; None where a part is missing or nothing is there."""
    parts = list(map(plain, values))
    return None if None in parts or not parts else sum(parts)


def mean(values: Iterable[Any], of=fmean) -> float | None:
    """The mean (or another average) of what is known."""
    known = [v for v in map(plain, values) if v is not None]
    return float(of(known)) if known else None


class PageScore:
    """The columns of a recorded session; `columns` has all that follow from the page."""

    def __init__(self, session: Session) -> None:
        self.session, self.n = session, len(session.calls)
        self.calls = ck.frame(session, per="call")
        self.row = ck.frame(session, per="session").iloc[0]
        self.billed = self.calls[self.calls["prompt_tokens"].notna()]
        self.misses = ck.misses(session)
        count = None if session.has_usage else "anchored"
        cuts = ck.frame(session, per="compaction", count=count)
        self.cuts = cuts[cuts["compaction"].notna()]
        anchored = ck.frame(session, per="compaction", count="anchored")
        self.anchored_cuts = anchored[anchored["compaction"].notna()]

    def columns(self) -> dict[str, Any]:
        """Return all columns."""
        of_replays = dict.fromkeys(REPLAY_COLUMNS)
        parts = self.bill(), self.compactions(), self.activity(), PageLoss(self).columns()
        return of_replays | parts[0] | parts[1] | parts[2] | parts[3]

    # -- the bill ------------------------------------------------------------------------------

    def bill(self) -> dict[str, Any]:
        billed, row, sizes = self.billed, self.row, self.sizes
        known = [n for n in sizes if n]
        window = plain(self.calls["context_limit"].iloc[-1]) if self.n else None
        over = [i for i, n in enumerate(sizes) if n and window and n > window]
        outputs = billed["output_tokens"]
        cost = {name: plain(row[name]) for name in ("cost_usd", "list_price_usd", "cost_source")}
        return {
            "session": row["session"],
            "rules": "recorded",
            "calls_n": len(billed) or self.n,
            "prompt_tokens": sum(known) if known else None,
            "peak_tokens": max(known, default=None),
            "window_tokens": window,
            "first_call_over_window": over[0] if over else None,
            "fresh_tokens": total(billed["input_tokens"]),
            **{f"cache_{kind}_tokens": sum(billed[f"cache_{kind}_tokens"].fillna(0))
               if row["has_cache"] else None for kind in ("read", "write")},
            "output_tokens": sum(outputs.fillna(0)) if outputs.notna().any() else None,
            **cost,
            "cost_low_usd": cost["cost_usd"],
            "cost_high_usd": cost["cost_usd"],
            "input_usd": total(self.prompt_usd(c) for c in billed.itertuples()),
            "output_usd": total(self.reply_usd(c) for c in billed.itertuples()),
            "summaries_usd": plain(row["summaries_usd"]),
            "priced_share": mean(self.price(c) is not None for c in billed.itertuples()),
            "unexplained_miss_share": self.unexplained(),
            "explained_miss_share": self.explained(),
            "session_notes": plain(row["notes"]),
            "source": "recorded" if len(billed) else "estimated" if self.session.has_sizes else None,
        }  # fmt: skip

    @cached_property
    def sizes(self) -> list[int | None]:
        """Prompt tokens of each call; without usage counted."""
        if len(self.billed):
            return [plain(n) for n in self.calls["prompt_tokens"]]
        if not self.session.has_sizes:
            return [None] * self.n
        return [sum(i.tokens for i in self.session.sent(c)) for c in range(self.n)]

    def price(self, call: Any) -> Any:
        """The price of a call by its model, its date and the size of its prompt."""
        model = plain(call.model) or self.session.model
        at = None if pd.isna(call.ts) else call.ts.timestamp()
        found = ck.prices.price(model, at=at)
        return None if found is None else found.at(call.prompt_tokens)

    def prompt_usd(self, call: Any) -> float | None:
        p = self.price(call)
        if p is None:
            return None
        read, write, hour = (plain(n) or 0 for n in (call.cache_read_tokens, call.cache_write_tokens, call.cache_write_1h_tokens))  # fmt: skip
        unlogged = p.writes_unread and not write and plain(call.cache_read_tokens) is not None
        is_written = unlogged and call.prompt_tokens >= (p.min_cacheable or 0)
        fresh = call.input_tokens * (p.write() if is_written else p.input)
        return fresh + read * p.read + (write - hour) * p.write() + hour * p.write(hour=True)

    def reply_usd(self, call: Any) -> float | None:
        p, n = self.price(call), plain(call.output_tokens)
        return None if p is None or n is None else n * p.output

    def unexplained(self) -> float | None:
        split = self.billed["cache_read_tokens"].notna().sum()
        n = sum(m is not None and m.kind == "unexplained" for m in self.misses)
        return n / split if split else None

    def explained(self) -> float | None:
        lost = [m for m in self.misses if m is not None and m.kind != "cold_start"]
        tokens = sum(m.missed_tokens for m in lost)
        return sum(m.missed_tokens for m in lost if m.kind != "unexplained") / tokens if tokens else None  # fmt: skip

    # -- how compactions held ------------------------------------------------------------------

    def compactions(self) -> dict[str, Any]:
        cuts = self.cuts
        if plain(self.row["compactions_n"]) is None:
            return dict.fromkeys(COMPACTION_COLUMNS) | self.hidden()
        held = [c for c in self.held() if c["call"] is not None]
        paid = [p for c in held if (p := c["paid back"]) is not None]
        streaks = [len(list(g)) for low, g in groupby(c["savings"] < PROGRESS for c in held) if low]
        summaries = self.anchored_cuts["summary_tokens"]
        is_sealed = any(e.details.get(SEALED_SUMMARY) is True for e in self.session.edits)
        return {
            "compactions_n": len(cuts),
            "token_savings": mean(cuts["token_savings"]),
            "message_savings": mean(cuts["message_savings"]),
            "summary_tokens": None if is_sealed else sum(summaries.fillna(0)),
            "no_progress_streak": max(streaks, default=0),
            "not_paid_back_n": sum(not p for p in paid) if paid or len(held) < 2 else None,
            "paid_back_share": mean(paid),
            "is_thrashing": max(streaks, default=0) >= 3
            or (len(paid) > 1 and 2 * sum(paid) < len(paid)),
            "refilled_share": mean(c["refilled"] for c in held),
            "rebound_calls": mean((c["rebound"] for c in held), median),
            **self.hidden(),
        }

    def held(self) -> list[dict[str, Any]]:
        """All compactions before one call as one."""
        rows = list(self.cuts.itertuples())
        groups = [list(g) for _, g in groupby(rows, key=lambda r: plain(r.call))]
        calls = [plain(g[0].call) for g in groups]
        out = []
        for call, group, following in zip(calls, groups, [*calls, None][1:], strict=True):
            before, after = group[0].tokens_before, group[-1].tokens_after
            stop = self.n if following is None else following
            later = range(self.n if call is None else call, stop)
            back = next((k for k in later if (self.prompt(k) or 0) >= FULL_AGAIN * before), None)
            tenth = self.prompt(call + 10) if call is not None and call + 10 < stop else None
            full = (tenth - after) / (before - after) if tenth and before > after else None
            n = None if following is None or call is None else self.pays_after(call, before, after)
            out.append({"call": call, "savings": 1 - after / before, "refilled": full,
                        "rebound": None if back is None else back - call,
                        "paid back": None if n is None else following - call >= n})  # fmt: skip
        return out

    def pays_after(self, call: int, large: int, small: int) -> float | None:
        """The requests after which a compaction is paid back, by the formula of the page."""
        row = next(c for c in self.calls.itertuples() if c.call == call)
        p = ck.prices.price(plain(row.model) or self.session.model)
        if p is None:
            return None
        p, writes = p.at(large), self.billed[["cache_write_tokens", "cache_write_1h_tokens"]].sum()
        read = p.read if self.row["has_cache"] else p.input
        bills_writes = writes.any() or p.writes_unread
        write = p.write(hour=2 * writes.iloc[1] > writes.iloc[0]) if bills_writes else p.input
        mine = self.anchored_cuts[self.anchored_cuts["call"] == call]
        wrote = mine["summary_tokens"].notna()  # a summary without a price leaves it open
        if mine["cost_usd"][wrote].isna().any():
            return None
        summaries = mine["cost_usd"].sum()
        miss = self.misses[call]
        found = large if miss is None or miss.kind == "compaction" else min(large, miss.read_tokens)
        rewritten = max(small - self.front(call, large, small) - (large - found), 0)
        saved = read * (large - small)
        return (summaries + (write - read) * rewritten) / saved if saved > 0 else inf

    def front(self, call: int, large: int, small: int) -> int:
        """The tokens at the front of a prompt that its compaction left unchanged."""
        size = self.sizes_by_id
        first = self.cuts[self.cuts["call"] == call]["position"].iloc[0]
        came = [
            m for m in self.session.path[:first] if self.arrivals.get(id(m)) == call and m.visible
        ]
        was = [*(self.view(call - 1) if call else ()), *came]
        same = takewhile(lambda pair: pair[0] is pair[1], zip(was, self.view(call), strict=False))
        unlogged = max(large - sum(size.get(m.id, 0) for m in was), 0)
        return min(unlogged + sum(size.get(m.id, 0) for m, _ in same), small)

    @cached_property
    def sizes_by_id(self) -> dict[str, int]:
        """The size of each message; what a compaction put in is in the frame of compactions."""
        rows = ck.frame(self.session, per="message", count="anchored")
        sizes = {i: plain(n) or 0 for i, n in zip(rows["id"], rows["tokens"], strict=True)}
        tokens = self.anchored_cuts["summary_tokens"]
        for edit, n in zip(
            self.session.edits, tokens, strict=True
        ):  # a record's edits are its compactions
            sizes |= {m.id: plain(n) or 0 for m in edit.inserted[:1]}
        return sizes

    def prompt(self, call: int) -> int | None:
        """The size of a prompt; counted where the call was not billed."""
        return self.sizes[call] or sum(i.tokens for i in self.session.sent(call))

    def hidden(self) -> dict[str, int]:
        rows = ck.frame(self.session, per="message")
        gone = rows[~rows["state"].isin(["shown", "hidden"])]
        return {"hidden_messages_n": gone["id"].nunique(),
                "hidden_results_n": gone[gone["role"] == "tool"]["id"].nunique()}  # fmt: skip

    # -- what the agent did after them -----------------------------------------------------------

    @cached_property
    def rows(self) -> list[Message]:
        """The messages that can be in a prompt."""
        return [m for m in self.session.messages if m.visible]

    @cached_property
    def arrivals(self) -> dict[int, int]:
        """The first call whose prompt can hold each row, by the row's identity."""
        out, calls = {}, 0
        for m in self.session.messages:
            calls += m.role == "assistant"
            out[id(m)] = calls
        return out

    @cached_property
    def changes(self) -> list[int]:
        """The calls before which something was compacted; the number of calls: after the last."""
        out, calls = set(), 0
        for entry in self.session.path:
            if isinstance(entry, Edit):
                out.add(calls)
            else:
                calls += entry.role == "assistant"
        return sorted(out)

    def view(self, call: int) -> tuple[Message, ...]:
        return self.session.view(call if call < self.n else None)

    @cached_property
    def left(self) -> dict[int, int]:
        """The change at which each row left the prompt for the first time."""
        out: dict[int, int] = {}
        for change in self.changes:
            shown = {id(m) for m in self.view(change)}
            for m in self.rows:
                if self.arrivals[id(m)] <= change and id(m) not in shown:
                    out.setdefault(id(m), change)
        return out

    def activity(self) -> dict[str, Any]:
        if not self.session.has_text:
            return dict.fromkeys(("reread_rate", "calls_to_first_write", "calls_to_resume"))
        asked = [(m, c) for m in self.session.messages for c in m.tool_calls]
        keys = [request_key(c) for _, c in asked]
        call_of = {id(m): i for i, m in enumerate(c.message for c in self.session.calls)}
        calls = [call_of[id(m)] for m, _ in asked]
        new = {keys.index(k) for k in set(keys)}
        progress = [calls[i] for i in sorted(new) if not is_read_only_tool(asked[i][1].name)]
        rates, writes, resumed = [], [], []
        for change in self.changes:
            start = next((i for i, c in enumerate(calls) if c >= change), len(calls))
            if change < self.n:
                resumed.append(next((c - change for c in progress if c >= change), None))
            if not 0 < change < self.n:
                continue
            gone = self.requests_of({k for k, at in self.left.items() if at == change})
            later = keys[start : start + REREAD_WINDOW]
            rates.append(sum(k in gone for k in later) / len(later) if later else None)
            wrote = (i for i, (_, c) in enumerate(asked[start:]) if is_write_tool(c.name))
            writes.append(next(wrote, None))
        return {"reread_rate": mean(rates), "calls_to_first_write": mean(writes, median),
                "calls_to_resume": mean(resumed, median)}  # fmt: skip

    def requests_of(self, rows: set[int]) -> set[tuple[str, str]]:
        """The requests that some rows make or answer."""
        out, by_id = set(), {}
        for m in self.session.messages:
            mine = {c.id: request_key(c) for c in m.tool_calls}
            by_id |= mine
            answered = [by_id[m.call_id]] if m.call_id in by_id else []
            if id(m) in rows:
                out |= {*mine.values(), *answered}
        return out


def request_key(call: ToolCall) -> tuple[str, str]:
    """Equal for calls of one tool with equal arguments, or that read one file."""
    path = get_call_path(call) if is_read_tool(call.name) else None
    text = path or call.raw or json.dumps(call.arguments, sort_keys=True, default=str)
    return call.name.lower(), text


class PageLoss:
    """The columns of loss, item by item and change by change."""

    def __init__(self, score: PageScore) -> None:
        self.score, self.session = score, score.session
        rows = score.rows
        self.stated = {id(m): extract_items(m) for m in rows}
        named = {k: expand_path_endings(v) for k, v in self.stated.items()}
        self.files = self.find_files()
        self.items = sorted({i for v in named.values() for i in v} | {LosableItem("path", p) for p in self.files.values()})  # fmt: skip
        self.rules = RuleMatcher(
            (n, i) for n, i in enumerate(self.items) if i.family == "constraint"
        )
        self.named = {id(m): named[id(m)] | self.restated(m) for m in rows}
        self.uses: dict[LosableItem, list[int]] = {}
        self.visible_uses: dict[LosableItem, int] = {}
        for call in self.session.calls:
            m = call.message
            for item in expand_path_endings(extract_spoken_items(m)) | self.restated(m):
                self.uses.setdefault(item, []).append(call.index)
                if m.visible:
                    self.visible_uses[item] = call.index
        self.weight = dict.fromkeys(self.items, 1)
        for m in rows:
            if m.role == "user":
                self.weight |= dict.fromkeys(self.stated[id(m)], USER_WEIGHT)

    def restated(self, m: Message) -> set[LosableItem]:
        """The user's rules that a message of user or agent gives in any words."""
        text = "\n".join(p.text for p in m.parts if isinstance(p, Text))
        return {self.items[n] for n in self.rules.in_text(text)} if m.role in SPEAKERS else set()

    def find_files(self) -> dict[int, str]:
        """The file whose content a row holds."""
        paths, out = {}, {}
        for m in self.session.messages:
            for call in m.tool_calls:
                if is_read_tool(call.name) or is_write_tool(call.name):
                    path = get_call_path(call)
                    if path is not None:
                        paths[call.id] = out[id(m)] = path
            if m.call_id in paths:
                out[id(m)] = paths[m.call_id]
        return {k: v for k, v in out.items() if v and k in self.stated}

    def states(self, m: Message) -> set[LosableItem]:
        """The items that an inserted text states."""
        text = " ".join(" ".join(iter_texts(m)).split())
        low, out = text.casefold(), {self.items[n] for n in self.rules.in_text(m.text)}
        for item in self.items:
            forms = [item.text]
            if item.family == "number":
                forms.append(re.sub(r"(?<=\d)(?=[^\d.,])", " ", item.text, count=1))
            if any(stands_in(form, text) for form in forms) or (item.family == "id" and stands_in(item.text, low)):  # fmt: skip
                out.add(item)
        return out

    def columns(self) -> dict[str, Any]:
        """Return the columns of loss; missing where the log has no text."""
        if not self.session.has_text:
            return dict.fromkeys(LOSS_COLUMNS)
        reused, changes = self.reused(), self.score.changes
        if not changes:
            counts = ("items_n", "needed_later_n", "needed_lost_n", "at_stake_items_n")
            missing = ("retained", "recoverable", "lost", "summary_recall", "user_rules_kept")
            return {
                **dict.fromkeys(("needed_later_loss", "needed_later_unrecoverable"), 0.0),
                **dict.fromkeys(("weighted_loss", "next_interval_loss"), 0.0),
                **dict.fromkeys(counts, 0),
                **dict.fromkeys((*missing, "calls_to_first_use")),
                "reused_items_n": len(reused),
            }
        self.look()
        lost, stake = self.find_lost(), self.find_at_stake()
        pairs = [(i, c) for c in changes for i, at in self.removed.items() if at <= c]
        kept = [(i, c) for i, c in pairs if i in self.visible[c]]
        again = [(i, c) for i, c in pairs if i not in self.visible[c] and i in self.elsewhere[c]]
        rules = [i in self.visible[c] for i, c in pairs if i.family == "constraint"]
        soon = {(i, self.last_change(u)) for i, us in self.uses.items() for u in us}
        soon = {(i, c) for i, c in soon if c is not None and self.removed.get(i, c + 1) <= c}

        def weigh(items: Iterable[LosableItem]) -> int:
            return sum(self.weight.get(i, 1) for i in items)

        def share(part: float, of: float) -> float | None:
            return part / of if of else None

        return {
            "items_n": len(pairs),
            "retained": share(len(kept), len(pairs)),
            "recoverable": share(len(again), len(pairs)),
            "lost": share(len(pairs) - len(kept) - len(again), len(pairs)),
            "reused_items_n": len(reused),
            "needed_later_n": sum(
                self.uses.get(i, [-1])[-1] >= at for i, at in self.removed.items()
            ),
            "needed_lost_n": len(lost),
            "needed_later_loss": share(len(lost), len(reused)),
            "needed_later_unrecoverable": share(
                sum(i not in self.elsewhere[c] for i, (c, _) in lost.items()), len(reused)
            ),
            "weighted_loss": share(weigh(lost), weigh(reused)),
            "at_stake_items_n": len(stake),
            "summary_recall": 1 - weigh(lost) / weigh(stake) if stake and self.has_texts else None,
            "user_rules_kept": mean(rules),
            "next_interval_loss": share(sum(i not in self.visible[c] for i, c in soon), len(soon)),
            "calls_to_first_use": mean((u - c for c, u in lost.values()), median),
        }

    def reused(self) -> set[LosableItem]:
        """The items that a reply names after a message before its prompt stated them."""
        first: dict[LosableItem, int] = {}
        for m in self.score.rows:
            for item in self.stated[id(m)]:
                first.setdefault(item, self.score.arrivals[id(m)])
        return {i for i, last in self.visible_uses.items() if first.get(i, last + 1) <= last}

    def last_change(self, call: int) -> int | None:
        return max((c for c in self.score.changes if c <= call), default=None)

    def look(self) -> None:
        """Find what was in sight before and after each change, with inserted texts and without."""
        score, rows = self.score, {id(m): m for m in self.score.rows}
        self.removed: dict[LosableItem, int] = {}
        for key, at in score.left.items():
            for item in self.stated[key]:
                self.removed[item] = min(at, self.removed.get(item, at))
        self.visible, self.elsewhere, self.taken, self.taken_said = {}, {}, {}, {}
        self.has_texts = False
        archived: set[LosableItem] = set()
        texts: dict[str, set[LosableItem]] = {}

        def sights(view: Iterable[Message]) -> tuple[set[LosableItem], set[LosableItem]]:
            said = {i for m in view if id(m) in rows for i in self.named[id(m)]}
            put_in = [m for m in view if id(m) not in rows]
            self.has_texts |= bool(put_in)
            for m in put_in:
                key = " ".join(iter_texts(m))
                texts[key] = texts[key] if key in texts else self.states(m)
            return said, said.union(*(texts[" ".join(iter_texts(m))] for m in put_in))

        for change in score.changes:
            came = [m for m in score.rows if score.arrivals[id(m)] == change]
            was = [*(score.view(change - 1) if change else ()), *came]
            said_before, before = sights(was)
            said, self.visible[change] = sights(score.view(change))
            self.taken[change], self.taken_said[change] = (
                before - self.visible[change], said_before - said)  # fmt: skip
            if self.is_archive(change):
                archived |= {
                    i for k, at in score.left.items() if at == change for i in self.stated[k]
                }
            self.elsewhere[change] = archived | {
                i for k, path in self.files.items()
                if score.left.get(k, change + 1) <= change and LosableItem("path", path) in self.visible[change]
                for i in self.stated[k] if i.text != path
            }  # fmt: skip

    def is_archive(self, change: int) -> bool:
        calls = 0
        for entry in self.session.path:
            if isinstance(entry, Edit):
                words = [entry.reason, entry.method, *(m.text[:200] for m in entry.inserted[:1])]
                text = " ".join(filter(None, words)).lower()
                if calls == change and any(w in text for w in ("offload", "artifact", "archive")):
                    return True
            else:
                calls += entry.role == "assistant"
        return False

    def find_lost(self) -> dict[LosableItem, tuple[int, int]]:
        """The items used after they went out of sight, with that change and the use."""
        out = {}
        for item, first in self.removed.items():
            gone = [c for c in self.score.changes if c >= first and item in self.taken[c]]
            for change, following in zip(gone, [*gone, self.score.n + 1][1:], strict=True):
                use = next((u for u in self.uses.get(item, ()) if change <= u < following), None)
                if use is not None:
                    out[item] = change, use
                    break
        return out

    def find_at_stake(self) -> set[LosableItem]:
        """The items used after the last message that stated them had left."""
        out = set()
        for item, first in self.removed.items():
            if self.uses.get(item, [-1])[-1] < first:
                continue
            gone = [c for c in self.score.changes if c >= first and item in self.taken_said[c]]
            if gone and self.uses[item][-1] >= gone[0]:
                out.add(item)
        return out


def stands_in(words: str, text: str) -> bool:
    """True where words stand in a text and end inside no other word; what may be cut off may."""
    end = (
        "" if len(words) >= 200 else r"(?!\w)" if words[-1:].isalnum() or words[-1:] == "_" else ""
    )
    start = r"(?<!\w)" if words[:1].isalnum() or words[:1] == "_" else ""
    return words in text and re.search(start + re.escape(words) + end, text) is not None
