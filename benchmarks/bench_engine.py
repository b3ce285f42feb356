"""Replays, live decisions and exact totals against LangChain's middleware, a fold over lists, and
litellm's counter.

LangChain is an optional peer: without it (``pip install langchain``) its rows are left out.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import statistics
import time
from typing import Any

import msgspec
import numpy as np

from benchmarks.cpu_timing import cpu, paired
from ctxkit.engine import Run, advance_run
from ctxkit.engine import run_rules as replay
from ctxkit.policies import compaction_without_summary, triggers
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history import History, MessageLog
from ctxkit.policies.result_clearing_and_cache_ttl import Clear
from ctxkit.presets import langchain_summary, pi
from ctxkit.session.messages import Message, Text, ToolCall
from ctxkit.tokens import get_counter
from ctxkit.tokens.exact_counters import TiktokenCounter

CALLS = 500
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "reads",
    "src/main.py",
    "and",
    "writes",
    "tests",
    "until",
    "all",
    "of",
    "them",
    "pass",
    "again",
]


def talk(calls: int, seed: int = 0, mean: int = 900) -> list[Message]:
    """A system prompt, an input, then a call and its result for each reply."""
    rng = random.Random(seed)

    def text(n: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(max(1, n // 6)))

    out = [
        Message(role="system", id="s", parts=(Text(text(600)),)),
        Message(role="user", id="u", parts=(Text(text(300)),)),
    ]
    for n in range(calls):
        asked = ToolCall(id=f"c{n}", name="read", arguments={"path": f"f{n % 40}.py"})
        out.append(
            Message(role="assistant", id=f"a{n}", parts=(Text(text(rng.randint(50, mean))), asked))
        )
        result = (Text(text(int(rng.expovariate(1 / mean)) + 20)),)
        out.append(Message(role="tool", id=f"r{n}", parts=result, call_id=f"c{n}", tool="read"))
    return out


class PiCut:
    """Pi's cut: what was said before the last `keep` tokens becomes one summary."""

    def __init__(self, keep: int, summary: int = 1500) -> None:
        self.keep, self.summary = keep, summary

    def __call__(self, h: Any, _budget: Any) -> Any:
        return h.summarise(h.safe(h.back(self.keep)), self.summary, "full")


class Window:
    """The oldest messages go until the budget is met: it fires at nearly every call."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def __call__(self, h: Any, _budget: Any) -> Any:
        return h.drop(h.safe(h.fitting(self.budget)), "window")


class Last:
    """All tool results but the last n become a placeholder, for one call."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, h: Any, _budget: Any) -> Any:
        tools = np.flatnonzero(h.role("tool"))
        return h.shorten(tools[: max(0, len(tools) - self.n)], "[cleared]", "old")


CLEARED = Clear(keep_last=9, placeholder="[cleared]")
"""The same as ``Last(9)``, as the kit ships it."""


def listed(messages: list[Message], sizes: list[int], limit: int, keep: int) -> tuple[int, int]:
    """The same compaction as `PiCut`, over plain lists and re-summed at each call."""
    shown: list[tuple[Message | None, int]] = []
    total = cuts = 0
    for message, size in zip(messages, sizes, strict=True):
        if message.role == "assistant":
            if sum(n for _, n in shown) > limit:
                left, at = keep, len(shown)
                while at and left > 0:
                    at -= 1
                    left -= shown[at][1]
                while at < len(shown) and shown[at][0] is not None and shown[at][0].role == "tool":  # type: ignore[union-attr]
                    at += 1
                if 1 < at < len(shown):
                    shown, cuts = [shown[0], (None, 1500), *shown[at:]], cuts + 1
            total += sum(n for _, n in shown)
        shown.append((message, size))
    return total, cuts


def billed(log: MessageLog, rules: Rules) -> tuple[int, int, int]:
    """A whole replay with the columns of its invoice."""
    done = replay(log, rules)
    return done.total, done.fresh, done.peak


def replays() -> list[dict[str, object]]:
    messages = talk(CALLS)
    log = MessageLog.of(messages, get_counter("chars/4"))
    sizes = log.tokens.sizes
    limit = sum(sizes) // 6
    few = Rules(PiCut(limit // 3), triggers.Above(limit))
    assert (replay(log, few).total, len(replay(log, few).compactions)) == listed(
        messages, sizes, limit, limit // 3
    )
    assert len(replay(log, few).compactions) <= 10
    preset = pi(context_window=limit + 16_384, keep_recent_tokens=limit // 3, summariser="fixed")
    assert 0 < len(replay(log, preset).compactions) <= 10
    many = Rules(
        compaction_without_summary.Window(keep_tokens=limit * 3 // 10), triggers.Above(limit // 3)
    )
    own = Rules(Window(limit * 3 // 10), triggers.Above(limit // 3))
    assert len(replay(log, many).compactions) > 100 < len(replay(log, own).compactions)
    plain, shipped = (
        Rules(few.policy, triggers.Above(limit // 2), pruning=p) for p in (Last(9), CLEARED)
    )
    assert replay(log, plain).fresh_tokens.tolist() == replay(log, shipped).fresh_tokens.tolist()
    whole = Rules(lambda h, budget: PiCut(limit // 3)(h, budget) if h.tokens > limit else h)
    assert replay(log, whole).prompts.tolist() == replay(log, few).prompts.tolist()

    def fold() -> object:
        return listed(messages, sizes, limit, limit // 3)

    def row(name: str, rules: Rules, times: int, goal: str) -> dict[str, object]:
        ours, theirs = paired(lambda: [billed(log, rules) for _ in range(times)], fold)
        ours, edits = ours / times, len(replay(log, rules).compactions)
        name = f"{name} ({edits} edits, {CALLS / ours:,.0f} calls/s), against a fold over lists"
        return {
            "name": name,
            "ours": ours * 1e6,
            "peer": theirs * 1e6,
            "ratio": theirs / ours,
            "goal": goal,
            "unit": "us CPU a run",
        }

    return [
        # the project's goals (10 M, 0.7 M, 0.4 M and 10,000 calls a second) over the 0.55 M of such
        # a fold
        row("replay, the preset pi with summaries of a fixed size", preset, 50, ">= 18"),
        row("replay, a compaction of one's own", few, 50, ">= 18"),
        row("replay, a window that thrashes", many, 10, ">= 1.27"),
        row("replay, a window of one's own that thrashes", own, 10, ">= 1.27"),
        row("replay, old results cleared at each call", shipped, 10, ""),
        row("replay, a plain function as the whole rule", whole, 5, ">= 0.73"),
        row("replay, a plain function clearing at each call", plain, 1, ">= 0.018"),
        *against_langchain(messages, limit, log),
    ]


def converted(messages: list[Message]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    out: list[Any] = []
    for m in messages:
        if m.role == "assistant":
            calls = [{"id": c.id, "name": c.name, "args": c.arguments} for c in m.tool_calls]
            out.append(AIMessage(m.text, tool_calls=calls, id=m.id))
        elif m.role == "tool":
            out.append(ToolMessage(m.text, tool_call_id=m.call_id, name=m.tool, id=m.id))
        else:
            out.append((SystemMessage if m.role == "system" else HumanMessage)(m.text, id=m.id))
    return out


def against_langchain(
    messages: list[Message], limit: int, log: MessageLog
) -> list[dict[str, object]]:
    if not importlib.util.find_spec("langchain"):
        return []
    from langchain.agents.middleware.summarization import SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import RemoveMessage

    history, words = (
        converted(messages),
        {"trigger": ("tokens", limit), "keep": ("tokens", limit // 3)},
    )
    rules = langchain_summary(**words, summariser="fixed")  # type: ignore[arg-type]

    def peer() -> int:
        model = FakeListChatModel(responses=["summary of the conversation so far. " * 40])
        middleware = SummarizationMiddleware(model, **words)
        shown, cuts = list(history[:2]), 0
        for call in range(CALLS):
            update = middleware.before_model({"messages": shown}, None)
            if update:
                cuts, shown = (
                    cuts + 1,
                    [m for m in update["messages"] if not isinstance(m, RemoveMessage)],
                )
            shown += history[2 + 2 * call : 4 + 2 * call]
        return cuts

    gc.freeze()
    assert 0 < peer() <= 20  # it counts by another rule, so it cuts at other calls, about as often
    assert 0 < len(replay(log, rules).compactions) <= 10
    ours, theirs = paired(lambda: [billed(log, rules) for _ in range(500)], peer)
    ours /= 500
    name = "replay, the preset langchain_summary against LangChain's SummarizationMiddleware"
    return [
        {
            "name": name,
            "ours": ours * 1e6,
            "peer": theirs * 1e6,
            "ratio": theirs / ours,
            "goal": "",
            "unit": "us CPU a run",
        }
    ]


def live(messages: list[Message], rules: Rules, last: int = 40) -> float:
    """CPU seconds of one decision at the end of a long session; rows are written and counted
    beforehand.
    """
    log = MessageLog.of(messages, get_counter("chars/4"))
    done = advance_run(Run(log, rules), rules, log.calls - last)
    start = time.process_time()
    for call in range(log.calls - last + 1, log.calls + 1):
        advance_run(done, rules, call)
    return (time.process_time() - start) / last


def decisions() -> list[dict[str, object]]:
    """One decision a call, from 100 to 10,000 messages."""
    out = []
    kinds = (("without pruning", None, "<= 3"), ("old results cleared", CLEARED, "ours <= 1000"))
    for name, pruning, goal in kinds:
        short, long = (
            statistics.median(
                live(talk(n), Rules(PiCut(20_000), triggers.Above(60_000), pruning=pruning))
                for _ in range(5)
            )
            for n in (50, 5000)
        )
        out.append(
            {
                "name": f"a live decision at 10,000 messages, {name}, against one at 100",
                "ours": long * 1e6,
                "peer": short * 1e6,
                "ratio": long / short,
                "goal": goal,
                "unit": "us CPU",
            }
        )
    return [*out, *deciding_against_langchain()]


def deciding_against_langchain() -> list[dict[str, object]]:
    if not importlib.util.find_spec("langchain"):
        return []
    import copy

    from langchain.agents.middleware.context_editing import ClearToolUsesEdit
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    messages = talk(5000)
    history = converted(messages)

    def peer() -> int:
        shown = copy.deepcopy(history)
        ClearToolUsesEdit(trigger=60_000, keep=9).apply(
            shown, count_tokens=count_tokens_approximately
        )
        kept = trim_messages(
            shown, max_tokens=60_000, token_counter=count_tokens_approximately, include_system=True
        )
        return len(kept)

    assert peer() < len(history)
    theirs = cpu(peer, 3)
    ours = statistics.median(
        live(messages, Rules(Window(60_000), triggers.Above(60_000), pruning=CLEARED))
        for _ in range(5)
    )
    name = "deciding at 10,000 messages, against ClearToolUsesEdit and trim_messages"
    return [
        {
            "name": name,
            "ours": ours * 1e6,
            "peer": theirs * 1e6,
            "ratio": theirs / ours,
            "goal": ">= 2000",
            "unit": "us CPU",
        }
    ]


def totals() -> list[dict[str, object]]:
    """Exact totals at each of 2,000 turns; the peer's are taken every 250 turns and integrated."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is downloaded
    import litellm

    messages = [
        msgspec.structs.replace(m, parts=m.parts[:1]) for m in talk(2000)
    ]  # texts alone, on both sides
    dicts = [{"role": m.role, "content": m.text} for m in messages]

    def ours() -> list[int]:
        log = MessageLog(TiktokenCounter("o200k_base"))  # with an empty memo
        out = []
        for message in messages:
            if message.role == "assistant":
                log.open()
                out.append(log.tokens.C[-1])
            log.append(message)
        return out

    plain = TiktokenCounter("o200k_base")
    assert ours()[7] == sum(plain.message(m) for m in messages[: 2 + 14])
    mine = cpu(ours, 3)
    points = (1, 250, 500, 750, 1000, 1250, 1500, 1750, 2000)
    taken = [
        cpu(lambda n=n: litellm.token_counter(model="gpt-4o", messages=dicts[: 2 + 2 * n]), 1)
        for n in points
    ]  # type: ignore[misc]
    pieces = zip(points, points[1:], taken, taken[1:], strict=False)
    theirs = sum((b - a) * (x + y) / 2 for a, b, x, y in pieces)
    name = "exact totals at each of 2,000 turns, against litellm.token_counter"
    whole = {
        "name": name,
        "ours": mine,
        "peer": theirs,
        "ratio": theirs / mine,
        "goal": ">= 1000",
        "unit": "s CPU",
    }
    return [whole, held_under(100_000, messages, dicts)]


def held_under(
    limit: int, messages: list[Message], dicts: list[dict[str, str]]
) -> dict[str, object]:
    """The same of the newest messages within a limit; the peer counts these, every 50 turns."""
    import litellm

    def ours() -> list[tuple[int, int, int]]:
        log = MessageLog(TiktokenCounter("o200k_base"))  # with an empty memo
        shown, out = History.start(log), []
        for message in messages:
            if message.role == "assistant":
                shown = shown.at(log.open())
                first = shown.fitting(limit)
                out.append((first, shown.hi, shown.tokens - shown.before(first)))
            log.append(message)
        return out

    turns = ours()
    assert limit * 0.9 < turns[-1][2] <= limit
    spans = [turns[n][:2] for n in range(25, len(turns), 50)]

    def peer() -> list[int]:
        return [
            litellm.token_counter(model="gpt-4o", messages=dicts[first:end]) for first, end in spans
        ]

    mine, theirs = paired(ours, peer, 5)
    theirs *= len(turns) / len(spans)
    name = (
        f"exact totals of the newest {limit:,} tokens at each of 2,000 turns, against"
        " litellm.token_counter"
    )
    return {
        "name": name,
        "ours": mine,
        "peer": theirs,
        "ratio": theirs / mine,
        "goal": ">= 300",
        "unit": "s CPU",
    }


def columns() -> list[dict[str, object]]:
    """Prompt and fresh tokens of each call, derived from a finished run; the peer sums them up in a
    fold over lists.
    """
    messages = talk(CALLS)
    log = MessageLog.of(messages, get_counter("chars/4"))
    limit = sum(log.tokens.sizes) // 6
    done = replay(
        log, pi(context_window=limit + 16_384, keep_recent_tokens=limit // 3, summariser="fixed")
    )

    def ours() -> object:
        return [(done.prompts, done.fresh_tokens) for _ in range(50)]

    mine, theirs = paired(ours, lambda: listed(messages, log.tokens.sizes, limit, limit // 3))
    mine /= 50
    name = (
        f"columns of each call of a finished run ({CALLS / mine:,.0f} calls/s), against a fold over"
        " lists"
    )
    goal = ">= 9"  # 5 M calls a second over the 0.55 M of such a fold
    return [
        {
            "name": name,
            "ours": mine * 1e6,
            "peer": theirs * 1e6,
            "ratio": theirs / mine,
            "goal": goal,
            "unit": "us",
        }
    ]


def run() -> list[dict[str, object]]:
    gc.collect()
    gc.freeze()  # what was imported is no part of either side's work
    return [*replays(), *columns(), *decisions(), *totals()]


if __name__ == "__main__":
    for row in run():
        figures = f"{row['ours']:12.2f} {row['peer']:14.2f} {row['unit']:14s} x{row['ratio']:,.2f}"
        print(f"{row['name']:110s} {figures} (goal {row['goal']})")
