"""The score of a record or a replay, worked out from frames and prompts by what docs/scores.md says.

Nothing here computes a score of ctxkit: what the page does not state shows as a difference. Inputs
are those that the page names: `ck.frame`, `ck.misses`, `ck.prices`, `session.sent`, `session.view`,
`session.edits`, the details of a replay, the patterns of items and which tools read or write.
"""

from __future__ import annotations

import json
from itertools import groupby
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

from metrics.loss_oracle import LossFigures
from metrics.oracle_inputs import (
    PageInputs,
    PromptHistory,
    average,
    divide,
    sum_complete,
    sum_known,
    to_plain,
)

import ctxkit as ck
from ctxkit.engine import get_cache_lifetime
from ctxkit.session import (
    SizeOnly,
    ToolCall,
    get_call_path,
    is_read_only_tool,
    is_read_tool,
    is_write_tool,
)

if TYPE_CHECKING:
    from ctxkit.session import Session

REREAD_WINDOW, FULL_AGAIN, MIN_PROGRESS, NOISE_FLOOR = 24, 0.75, 0.1, 0.21


def compute_score(session: Session) -> dict[str, Any]:
    """Return all columns that the page calls computable."""
    inputs = PageInputs(session)
    bill, figures = compute_bill(inputs), CompactionFigures(inputs)
    compactions = figures.columns()
    if not inputs.has_sizes and (inputs.is_replay or figures.rows):
        sized = compactions.keys() - ({"compactions_n", "message_savings"} if figures.rows else ())
        compactions |= dict.fromkeys(sized)
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
