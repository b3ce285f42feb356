"""The score of a record or a replay, worked out from frames and prompts by what docs/scores.md says.

Nothing here computes a score of ctxkit: what the page does not state shows as a difference. Inputs
are those that the page names: `ck.frame`, `ck.misses`, `ck.prices`, `session.sent`, `session.view`,
`session.edits`, the details of a replay, the patterns of items and which tools read or write.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import groupby
from math import inf
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

import ctxkit as ck
from ctxkit.engine.cache_model.call_features import get_cache_lifetime
from ctxkit.metrics.item_index import RuleMatcher
from ctxkit.metrics.losable_items import (
    Item,
    expand_path_endings,
    extract_items,
    extract_spoken_items,
    iter_texts,
)
from ctxkit.session import SizeOnly, Text, ToolCall
from ctxkit.session.tool_calls import get_call_path, is_read_only_tool, is_read_tool, is_write_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Message, Session

USER_WEIGHT, REREAD_WINDOW, FULL_AGAIN, MIN_PROGRESS, NOISE_FLOOR = 4, 24, 0.75, 0.1, 0.21
HOUR_SECONDS = 3600
NO_COMPACTIONS = ("unmarked", "failed", "refused", "skipped")
"""Kinds of rows of the compaction frame that are no compactions."""
ARCHIVE_WORDS, ARCHIVE_CHARS = ("offload", "artifact", "archive"), 200
CUT_CHARS = 200
"""Items of this length may be cut off, and so end inside a word."""


def compute_score(session: Session) -> dict[str, Any]:
    """Return all columns that the page calls computable."""
    inputs = PageInputs(session)
    bill, compactions = compute_bill(inputs), CompactionFigures(inputs).columns()
    if not inputs.has_sizes:
        compactions = dict.fromkeys(compactions)
    prompts = PromptHistory(inputs)
    columns = compute_activity(inputs, prompts) | LossFigures(inputs, prompts).columns()
    return bill | compute_misses(inputs) | compactions | compute_hidden(inputs) | columns


def compute_derived_columns(session: Session, row: dict[str, Any]) -> dict[str, Any]:
    """Return the dollars that follow from predictions and elongations, which `row` has."""
    cost, inputs_usd, summaries = row["cost_usd"], row["input_usd"], row["summaries_usd"]
    record = to_plain(ck.frame(session.origin or session, per="session")["list_price_usd"].iloc[0])
    out = dict.fromkeys(("cost_low_usd", "cost_high_usd", "real_run_low_usd", "real_run_high_usd"))
    for end in ("low", "high") if session.origin else ():
        spread, factor = row[f"prediction_{end}"], row[f"elongation_{end}"]
        if None not in (cost, inputs_usd, spread):
            scale = (1 + spread) / (1 + row["prediction_error"])
            out[f"cost_{end}_usd"] = cost - inputs_usd + inputs_usd * scale
        if None not in (cost, factor, record):
            out[f"real_run_{end}_usd"] = (cost - summaries) * factor + summaries
    if not session.origin:
        out |= {"cost_low_usd": cost, "cost_high_usd": cost}
    low, high, verdict = out["real_run_low_usd"], out["real_run_high_usd"], None
    if low is not None:
        is_cheaper, is_dearer = (
            high < record / (1 + NOISE_FLOOR),
            low > record * (1 + NOISE_FLOOR),
        )
        verdict = "cheaper" if is_cheaper else "dearer" if is_dearer else "within noise"
    return out | {"vs_recorded": verdict}


# -- inputs ------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """Return a cell without its dtype; None: missing."""
    return None if value is None or (not isinstance(value, str) and pd.isna(value)) else value


def sum_complete(values: Iterable[Any]) -> Any:
    """Return the sum; None where a part is missing or there is none."""
    parts = list(map(to_plain, values))
    return None if None in parts or not parts else sum(parts)


def sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of what is known; None where nothing is."""
    return sum_complete(v for v in map(to_plain, values) if v is not None)


def average(values: Iterable[Any], by: Any = fmean) -> float | None:
    """Return the mean, or another average, of what is known."""
    known = [v for v in map(to_plain, values) if v is not None]
    return float(by(known)) if known else None


def divide(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class PageInputs:
    """The frames and prompts of a session, and of the record that it replays."""

    def __init__(self, session: Session) -> None:
        self.session, self.record = session, session.origin or session
        self.is_replay = session.origin is not None
        self.replay = session.details.get("replay", {}) if self.is_replay else {}
        self.calls_n = len(session.calls)
        self.calls = list(ck.frame(session, per="call").itertuples())
        self.recorded_calls = list(ck.frame(self.record, per="call").itertuples())
        self.row = ck.frame(session, per="session").iloc[0]
        self.has_usage = any(to_plain(c.prompt_tokens) for c in self.recorded_calls)
        self.has_reads = any(to_plain(c.cache_read_tokens) is not None for c in self.recorded_calls)
        self.has_sizes = self.has_usage or self.record.has_sizes
        self.misses = ck.misses(self.record)
        self.rows = [m for m in session.messages if m.visible]

    @cached_property
    def sent(self) -> list[tuple[Any, ...]]:
        """The prompt of each call, message by message."""
        return [self.session.sent(n) for n in range(self.calls_n)]

    def size(self, call: int) -> int:
        """Return the tokens of a prompt: as billed, else counted."""
        billed = to_plain(self.calls[call].prompt_tokens)
        return billed or sum(item.tokens for item in self.sent[call])

    def price(self, call: Any, prompt: int) -> Any:
        """Return the price of a call by its model, its date and the size of its prompt."""
        at = None if pd.isna(call.ts) else call.ts.timestamp()
        price = ck.prices.price(to_plain(call.model), at=at)
        return None if price is None else price.at(prompt)

    def compactions(self, count: str | None) -> list[Any]:
        """Return the rows of the compaction frame that are compactions."""
        frame = ck.frame(self.session, per="compaction", count=count)
        return [r for r in frame.itertuples() if r.kind not in NO_COMPACTIONS]


# -- tokens and dollars ------------------------------------------------------------------------


def compute_bill(inputs: PageInputs) -> dict[str, Any]:
    calls = (
        [c for c in inputs.calls if to_plain(c.prompt_tokens)] if inputs.has_usage else inputs.calls
    )
    sizes = {c.call: inputs.size(c.call) for c in calls} if inputs.has_sizes else {}
    window = find_window(inputs)
    over = [call for call, n in sizes.items() if window and n > window]
    reads = sum_known(c.cache_read_tokens for c in calls)
    writes = sum_known(c.cache_write_tokens for c in calls) or 0
    of_session = ("cost_usd", "summaries_usd", "list_price_usd", "cost_source")
    source = "derived" if inputs.is_replay else "recorded"
    return {
        "session": inputs.record.id,
        "rules": inputs.replay.get("rules", "recorded"),
        "calls_n": len(calls),
        "prompt_tokens": sum(sizes.values()) if sizes else None,
        "peak_tokens": max(sizes.values(), default=None),
        "window_tokens": window,
        "first_call_over_window": over[0] if over else None,
        "fresh_tokens": sum_known(c.input_tokens for c in calls) if inputs.has_usage else None,
        "cache_read_tokens": reads,
        "cache_write_tokens": None if reads is None else writes,
        "output_tokens": sum_known(c.output_tokens for c in calls),
        "input_usd": sum_complete(price_prompt(inputs, c) for c in calls)
        if inputs.has_usage else None,
        "output_usd": sum_complete(price_reply(inputs, c) for c in calls),
        **{name: to_plain(inputs.row[name]) for name in of_session},
        "priced_share": average(inputs.price(c, 0) is not None for c in calls)
        if inputs.has_usage else None,
        "source": source if inputs.has_usage
        else "estimated" if inputs.has_sizes or inputs.is_replay else None,
        "session_notes": to_plain(ck.frame(inputs.record, per="session")["notes"].iloc[0]),
    }  # fmt: skip


def find_window(inputs: PageInputs) -> int | None:
    """Return the window at the record's last call, or a larger one that the rules are set to."""
    calls = inputs.recorded_calls
    window = to_plain(calls[-1].context_limit) if calls else inputs.record.context_window
    of_rules = inputs.replay.get("parameters", {}).get("context_window")
    return max(window, of_rules) if window and isinstance(of_rules, int) else window


def price_prompt(inputs: PageInputs, call: Any) -> float | None:
    price = inputs.price(call, call.prompt_tokens)
    if price is None:
        return None
    names = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
    reads, writes, hour_writes = (to_plain(getattr(call, name)) or 0 for name in names)
    is_cached = call.prompt_tokens >= (price.min_cacheable or 0)
    is_written = price.writes_unread and inputs.has_reads and is_cached and not writes
    fresh_usd = call.input_tokens * (price.write() if is_written else price.input)
    write_usd = (writes - hour_writes) * price.write() + hour_writes * price.write(hour=True)
    return fresh_usd + reads * price.read + write_usd


def price_reply(inputs: PageInputs, call: Any) -> float | None:
    tokens = to_plain(call.output_tokens)
    price = inputs.price(call, to_plain(call.prompt_tokens) or 0)
    return None if price is None or tokens is None else tokens * price.output


# -- misses, hidden messages -------------------------------------------------------------------


def compute_misses(inputs: PageInputs) -> dict[str, Any]:
    split_n = sum(to_plain(c.cache_read_tokens) is not None for c in inputs.recorded_calls)
    misses = [m for m in inputs.misses if m is not None]
    unexplained = [m for m in misses if m.kind == "unexplained"]
    missed = sum(m.missed_tokens for m in misses if m.kind != "cold_start")
    return {
        "unexplained_miss_share": divide(len(unexplained), split_n),
        "explained_miss_share": divide(missed - sum(m.missed_tokens for m in unexplained), missed),
    }


def compute_hidden(inputs: PageInputs) -> dict[str, Any]:
    messages = ck.frame(inputs.session, per="message")
    hidden = messages[~messages["state"].isin(["shown", "hidden"])]
    held = [h["why"].startswith("failed: ") for h in inputs.replay.get("held", ())]
    return {
        "hidden_messages_n": len(hidden),
        "hidden_results_n": int((hidden["role"] == "tool").sum()),
        "failed_compactions_n": sum(held) if inputs.is_replay else None,
        "suppressed_compactions_n": len(held) - sum(held) if inputs.is_replay else None,
    }


# -- how compactions held ----------------------------------------------------------------------


class CompactionFigures:
    """The columns on sizes of compactions and on what was paid back."""

    def __init__(self, inputs: PageInputs) -> None:
        self.inputs = inputs
        self.anchored = inputs.compactions("anchored")
        self.rows = inputs.compactions(None) if inputs.has_usage else self.anchored

    def columns(self) -> dict[str, Any]:
        compactions_n = to_plain(self.inputs.row["compactions_n"])
        figures = self.judge() if self.inputs.has_sizes else {}
        streaks = [len(list(g)) for is_low, g in groupby(figures.get("low", ())) if is_low]
        paid = [p for p in figures.get("paid", ()) if p is not None]
        streak, unpaid_n = max(streaks, default=0), sum(not p for p in paid)
        columns = {
            "compactions_n": len(self.rows),
            "token_savings": average(r.token_savings for r in self.rows),
            "message_savings": average(r.message_savings for r in self.rows),
            "summary_tokens": None
            if any(self.is_sealed(r) for r in self.anchored)
            else sum_known(r.summary_tokens for r in self.anchored) or 0,
            "no_progress_streak": streak,
            "refilled_share": average(figures.get("refilled", ())),
            "rebound_calls": average(figures.get("rebound", ()), median),
            "not_paid_back_n": unpaid_n if paid or len(figures.get("low", ())) < 2 else None,
            "paid_back_share": average(paid),
            "is_thrashing": streak >= 3 or (len(paid) > 1 and 2 * unpaid_n > len(paid)),
        }
        return dict.fromkeys(columns) if compactions_n is None else columns

    def is_sealed(self, row: Any) -> bool:
        """Return True where the log holds the summary's size alone."""
        if self.inputs.is_replay:
            return False
        inserted = self.inputs.session.edits[int(row.compaction)].inserted
        return any(isinstance(p, SizeOnly) for m in inserted for p in m.parts)

    def judge(self) -> dict[str, list[Any]]:
        """Return the figures of each call that a compaction came before."""
        calls_n, size = self.inputs.calls_n, self.inputs.size
        groups = {}
        for row in self.rows:
            call = to_plain(row.call)
            groups.setdefault(calls_n if call is None else int(call), []).append(row)
        out: dict[str, list[Any]] = {"low": [], "refilled": [], "rebound": [], "paid": []}
        for (call, rows), following in zip(groups.items(), [*groups, None][1:], strict=False):
            if call == calls_n:
                continue
            large, small = int(rows[0].tokens_before), int(rows[-1].tokens_after)
            stop = calls_n if following is None else following
            is_smaller, tenth = large > small, call + 10
            full = (c for c in range(call, stop) if size(c) >= FULL_AGAIN * large)
            full_again = next(full, None)
            pays_after = None if following is None else self.count_requests(call, large, small)
            out["low"].append(large - small < MIN_PROGRESS * large)
            out["refilled"].append(
                (size(tenth) - small) / (large - small) if is_smaller and tenth < stop else None
            )
            out["rebound"].append(None if full_again is None else full_again - call)
            out["paid"].append(None if pays_after is None else following - call >= pays_after)
        return out

    def count_requests(self, call: int, large: int, small: int) -> float | None:
        """Return the requests after which a compaction is paid back, by the formula of the page."""
        inputs = self.inputs
        price = inputs.price(inputs.calls[call], large)
        mine = [r for r in self.anchored if to_plain(r.call) == call]
        if price is None or any(map(self.is_sealed, mine)):
            return None
        summaries_usd = sum_known(r.cost_usd for r in mine) or 0.0
        read = price.read if inputs.has_reads else price.input
        write = self.find_write_price(price)
        found = self.count_found(call, large)
        saved = read * (large - small)
        rewritten = small - min(self.count_front(call, small), found) - (large - found)
        return (summaries_usd + (write - read) * rewritten) / saved if saved > 0 else inf

    def find_write_price(self, price: Any) -> float:
        calls = self.inputs.recorded_calls
        writes, hour_writes = (
            sum_known(getattr(c, name) for c in calls) or 0
            for name in ("cache_write_tokens", "cache_write_1h_tokens")
        )
        is_billed = writes or price.writes_unread
        return price.write(hour=2 * hour_writes > writes) if is_billed else price.input

    def count_found(self, call: int, large: int) -> int:
        """Return the tokens that a call would have found in the cache without the compaction."""
        inputs = self.inputs
        found = min(large, inputs.size(call - 1)) if inputs.is_replay and call else large
        miss = inputs.misses[call]
        if miss is None:
            return found
        is_cold = miss.gap is not None and miss.gap >= get_cache_lifetime(inputs.record)
        is_limited = miss.kind != "compaction" or is_cold
        return min(found, miss.read_tokens) if is_limited else found

    def count_front(self, call: int, small: int) -> int:
        """Return the tokens at the front of a prompt that are as in the prompt before."""
        if not call:
            return 0
        items, before = self.inputs.sent[call], self.inputs.sent[call - 1]
        front = 0
        for one, other in zip(items, before, strict=False):
            is_same = one.row == other.row and one.message.id == other.message.id
            if not is_same or (one.tokens != other.tokens and one.message.kind != "fixed"):
                break
            front += one.tokens
        return min(front + small - sum(item.tokens for item in items), small)


# -- prompts -----------------------------------------------------------------------------------


class Prompt(NamedTuple):
    """A prompt: the numbers of the messages that are sent in their own words, and other texts."""

    rows: frozenset[int]
    texts: tuple[Message, ...]
    """Messages that a compaction or a pruning put in."""


class PromptHistory:
    """The prompts of all calls, what changed them, and when each message left."""

    def __init__(self, inputs: PageInputs) -> None:
        self.inputs, session = inputs, inputs.session
        number, calls = {id(m): n for n, m in enumerate(inputs.rows)}, 0
        self.arrivals: dict[int, int] = {}
        """The first call whose prompt can hold each message."""
        for message in session.messages:
            calls += message.role == "assistant"
            if message.visible:
                self.arrivals[number[id(message)]] = calls
        rows = inputs.compactions(None)
        self.compacted = sorted(
            {inputs.calls_n if to_plain(r.call) is None else int(r.call) for r in rows}
        )
        self.prompts = [self.read_sent(items) for items in inputs.sent]
        if inputs.calls_n in self.compacted:
            self.prompts.append(self.read_view(session.view(), number))
        self.changes = [n for n in range(len(self.prompts)) if self.is_change(n)]
        self.left: dict[int, int] = {}
        """The change at which each message left the prompt for the first time."""
        for n in self.changes:
            for row, arrival in self.arrivals.items():
                if arrival <= n and row not in self.prompts[n].rows:
                    self.left.setdefault(row, n)

    def read_sent(self, items: Sequence[Any]) -> Prompt:
        own = [i for i in items if i.row >= 0 and i.changed_by is None]
        changed = [i for i in items if i not in own and i.message.kind != "fixed"]
        return Prompt(frozenset(i.row for i in own), tuple(i.message for i in changed))

    def read_view(self, view: Sequence[Message], number: dict[int, int]) -> Prompt:
        """Return the prompt after a compaction that no call follows."""
        own = frozenset(number[id(m)] for m in view if id(m) in number)
        return Prompt(own, tuple(m for m in view if id(m) not in number))

    def came(self, call: int) -> set[int]:
        """Return the messages that came since the prompt before."""
        return {row for row, arrival in self.arrivals.items() if arrival == call}

    def is_change(self, call: int) -> bool:
        """Return True where a prompt is not the one before it and what came since."""
        before = self.prompts[call - 1] if call else Prompt(frozenset(), ())
        now = self.prompts[call]
        is_more = now.rows == before.rows | self.came(call)
        texts, texts_before = ([m.text for m in p.texts] for p in (now, before))
        return call in self.compacted or not is_more or texts != texts_before


# -- what the agent did after compactions ------------------------------------------------------


def compute_activity(inputs: PageInputs, prompts: PromptHistory) -> dict[str, Any]:
    session = inputs.session
    tool_calls = [(call.index, t) for call in session.calls for t in call.message.tool_calls]
    keys = [make_request_key(t) for _, t in tool_calls]
    new = [keys.index(key) for key in dict.fromkeys(keys)]
    progress = [tool_calls[i][0] for i in new if not is_read_only_tool(tool_calls[i][1].name)]
    rates, writes, resumed = [], [], []
    for call in (c for c in prompts.changes if c < inputs.calls_n):
        resumed.append(next((c - call for c in progress if c >= call), None))
        if not call or call not in prompts.compacted:
            continue
        start = next((i for i, (c, _) in enumerate(tool_calls) if c >= call), len(keys))
        removed = find_requests(inputs, {r for r, at in prompts.left.items() if at == call})
        later = keys[start : start + REREAD_WINDOW]
        rates.append(divide(sum(key in removed for key in later), len(later)))
        is_write = [is_write_tool(t.name) for _, t in tool_calls[start:]]
        writes.append(is_write.index(True) if True in is_write else None)
    return {
        "reread_rate": average(rates),
        "calls_to_first_write": average(writes, median),
        "calls_to_resume": average(resumed, median) if session.has_text else None,
    }


def make_request_key(call: ToolCall) -> tuple[str, str]:
    """Return a key that is equal for calls of one tool with equal arguments, or that read one file."""
    path = get_call_path(call) if is_read_tool(call.name) else None
    text = path or call.raw or json.dumps(call.arguments, sort_keys=True, default=str)
    return call.name.lower(), text


def find_requests(inputs: PageInputs, rows: set[int]) -> set[tuple[str, str]]:
    """Return the requests that some messages make or answer."""
    out, asked, row = set(), dict[str, tuple[str, str]](), 0
    for message in inputs.session.messages:
        mine = {call.id: make_request_key(call) for call in message.tool_calls}
        asked |= mine
        answered = {asked[message.call_id]} if message.call_id in asked else set()
        if message.visible:
            out |= {*mine.values(), *answered} if row in rows else set()
            row += 1
    return out


# -- what was lost -----------------------------------------------------------------------------


class LossFigures:
    """The columns of loss, item by item and change by change."""

    def __init__(self, inputs: PageInputs, prompts: PromptHistory) -> None:
        self.inputs, self.session, self.prompts = inputs, inputs.session, prompts
        self.stated = [extract_items(m) for m in inputs.rows]
        self.files = self.find_files()
        named = [expand_path_endings(items) for items in self.stated]
        paths = {Item("path", path) for path in self.files.values()}
        self.items = sorted(paths.union(*named))
        self.rules = RuleMatcher(
            (n, i) for n, i in enumerate(self.items) if i.family == "constraint"
        )
        self.named = [n | self.find_rules(m) for n, m in zip(named, inputs.rows, strict=True)]
        self.uses: dict[Item, list[int]] = {}
        for call in self.session.calls:
            spoken = expand_path_endings(extract_spoken_items(call.message))
            for item in spoken | self.find_rules(call.message):
                self.uses.setdefault(item, []).append(call.index)
        self.of_user = {
            i
            for items, m in zip(self.stated, inputs.rows, strict=True)
            if m.role == "user"
            for i in items
        }
        self.items_of_text: dict[str, frozenset[Item]] = {}

    def find_rules(self, message: Message) -> frozenset[Item]:
        """Return the user's constraints that a message of user or agent gives in any words."""
        text = "\n".join(p.text for p in message.parts if isinstance(p, Text))
        is_speaker = message.role in ("user", "assistant")
        return (
            frozenset(self.items[n] for n in self.rules.in_text(text))
            if is_speaker
            else frozenset()
        )

    def find_files(self) -> dict[int, str]:
        """Return the file whose content a message holds; of several the last one."""
        path_of_call, out, row = dict[str, str](), dict[int, str](), 0
        for message in self.session.messages:
            path = path_of_call.get(message.call_id or "")
            for call in message.tool_calls:
                if is_read_tool(call.name) or is_write_tool(call.name):
                    path = path_of_call[call.id] = get_call_path(call) or path_of_call.get(
                        call.id, ""
                    )
            if message.visible:
                out |= {row: path} if path else {}
                row += 1
        return out

    def find_items(self, message: Message) -> frozenset[Item]:
        """Return the items that an inserted text states."""
        text = " ".join(" ".join(iter_texts(message)).split())
        if text not in self.items_of_text:
            low = text.casefold()
            found = {self.items[n] for n in self.rules.in_text(message.text)}
            for item in self.items:
                is_id = item.family == "id" and stands_in(item.text, low)
                if is_id or any(stands_in(form, text) for form in get_forms(item)):
                    found.add(item)
            self.items_of_text[text] = frozenset(found)
        return self.items_of_text[text]

    # -- what each prompt states

    def find_sights(self) -> None:
        """Find what each prompt states, and which items went out of sight at each change."""
        self.visible, self.by_messages = [], []
        for prompt in self.prompts.prompts:
            self.by_messages.append(frozenset().union(*(self.named[row] for row in prompt.rows)))
            texts = (self.find_items(m) for m in prompt.texts)
            self.visible.append(self.by_messages[-1].union(*texts))
        self.removed: dict[Item, int] = {}
        for row, at in self.prompts.left.items():
            for item in self.stated[row]:
                self.removed[item] = min(at, self.removed.get(item, at))
        self.gone = {c: self.find_gone(self.visible, c) for c in self.prompts.changes}
        self.gone_from_messages = {
            c: self.find_gone(self.by_messages, c) for c in self.prompts.changes
        }

    def find_gone(self, sights: list[frozenset[Item]], change: int) -> frozenset[Item]:
        came = (self.named[row] for row in self.prompts.came(change))
        before = sights[change - 1] if change else frozenset()
        return before.union(*came) - sights[change]

    @cached_property
    def elsewhere(self) -> dict[int, set[Item]]:
        """What files and archives hold after each change."""
        out, archived = {}, set[Item]()
        for change in self.prompts.changes:
            archived |= {i for row in self.find_archived(change) for i in self.stated[row]}
            out[change] = archived | {
                item
                for row, path in self.files.items()
                if self.prompts.left.get(row, change + 1) <= change
                and Item("path", path) in self.visible[change]
                for item in self.stated[row]
                if item.text != path
            }
        return out

    def find_archived(self, change: int) -> set[int]:
        """Return the messages that a change moves into an archive."""
        left = {row for row, at in self.prompts.left.items() if at == change}
        position = [c.position for c in self.session.calls]
        for at, edit in enumerate(self.session.path):
            if hasattr(edit, "inserted") and sum(p < at for p in position) == change:
                texts = [m.text[:ARCHIVE_CHARS] for m in edit.inserted[:1]]
                if names_archive(edit.reason, edit.method, *texts):
                    return left
        items = self.inputs.sent[change] if change < self.inputs.calls_n else ()
        return {
            i.row
            for i in items
            if i.row >= 0 and i.pruned and names_archive(i.message.text[:ARCHIVE_CHARS])
        }

    # -- figures

    def columns(self) -> dict[str, Any]:
        self.find_sights()
        changes, reused = self.prompts.changes, self.find_reused()
        lost, at_stake = self.find_lost(), self.find_at_stake()
        pairs = [(i, c) for c in changes for i, at in self.removed.items() if at <= c]
        kept = [(i, c) for i, c in pairs if i in self.visible[c]]
        again = [(i, c) for i, c in pairs if i not in self.visible[c] and i in self.elsewhere[c]]
        rules = [i in self.visible[c] for i, c in pairs if i.family == "constraint"]
        soon = {(i, self.find_last_change(u)) for i in self.removed for u in self.uses.get(i, ())}
        soon = [(i, c) for i, c in soon if c is not None and self.removed[i] <= c]
        unrecoverable = [i for i, (change, _) in lost.items() if i not in self.elsewhere[change]]
        has_texts = any(prompt.texts for prompt in self.prompts.prompts)
        nothing = None if changes else 0.0
        columns = {
            "items_n": len(pairs),
            "retained": divide(len(kept), len(pairs)),
            "recoverable": divide(len(again), len(pairs)),
            "lost": divide(len(pairs) - len(kept) - len(again), len(pairs)),
            "reused_items_n": len(reused),
            "needed_later_n": sum(self.uses.get(i, [-1])[-1] >= at for i, at in self.removed.items()),
            "needed_lost_n": len(lost),
            "needed_later_loss": divide(len(lost), len(reused)) if reused else nothing,
            "needed_later_unrecoverable": divide(len(unrecoverable), len(reused)) if reused else nothing,
            "weighted_loss": divide(self.weigh(lost), self.weigh(reused)) if reused else nothing,
            "at_stake_items_n": len(at_stake),
            "summary_recall": 1 - self.weigh(lost) / self.weigh(at_stake)
            if at_stake and has_texts else None,
            "user_rules_kept": average(rules),
            "next_interval_loss": divide(sum(i not in self.visible[c] for i, c in soon), len(soon))
            if soon else nothing,
            "calls_to_first_use": average((use - change for change, use in lost.values()), median),
        }  # fmt: skip
        return columns if self.session.has_text else dict.fromkeys(columns)

    def weigh(self, items: Iterable[Item]) -> int:
        return sum(USER_WEIGHT if item in self.of_user else 1 for item in items)

    def find_reused(self) -> set[Item]:
        """Return the items that a reply names after a message before its prompt stated them."""
        first: dict[Item, int] = {}
        for row, items in enumerate(self.stated):
            for item in items:
                first.setdefault(item, self.prompts.arrivals[row])
        calls = self.session.calls
        return {
            item
            for item, uses in self.uses.items()
            for use in uses
            if calls[use].message.visible and first.get(item, use + 1) <= use
        }

    def find_last_change(self, call: int) -> int | None:
        return max((c for c in self.prompts.changes if c <= call), default=None)

    def find_lost(self) -> dict[Item, tuple[int, int]]:
        """Return the items used after they went out of sight, with that change and the use."""
        out = {}
        for item, gone in self.list_changes(self.gone).items():
            use = next((u for u in self.uses.get(item, ()) if u >= gone[0]), None)
            if use is not None:
                out[item] = max(c for c in gone if c <= use), use
        return out

    def find_at_stake(self) -> set[Item]:
        """Return the items used after the messages that are still sent stated them no more."""
        gone = self.list_changes(self.gone_from_messages)
        return {
            item for item, changes in gone.items() if self.uses.get(item, [-1])[-1] >= changes[0]
        }

    def list_changes(self, gone: dict[int, frozenset[Item]]) -> dict[Item, list[int]]:
        """Return the changes at which each removed item went out of sight."""
        out: dict[Item, list[int]] = {}
        for change, items in gone.items():
            for item in items:
                if self.removed.get(item, change + 1) <= change:
                    out.setdefault(item, []).append(change)
        return out


def names_archive(*texts: str | None) -> bool:
    text = " ".join(filter(None, texts)).lower()
    return any(word in text for word in ARCHIVE_WORDS)


def get_forms(item: Item) -> list[str]:
    """Return the ways to write an item: a number also with a space before its unit."""
    spaced = re.sub(r"(?<=\d)(?=[^\d.,])", " ", item.text, count=1)
    return [item.text, spaced] if item.family == "number" else [item.text]


def stands_in(words: str, text: str) -> bool:
    """Return True where words stand in a text as whole words."""
    if words not in text:
        return False
    start = r"(?<!\w)" if re.match(r"\w", words) else ""
    end = r"(?!\w)" if re.search(r"\w\Z", words) and len(words) < CUT_CHARS else ""
    return re.search(start + re.escape(words) + end, text) is not None
