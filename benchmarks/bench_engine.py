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

from benchmarks.cpu_timing import measure_cpu, measure_in_turns
from ctxkit.engine import RulesRun, advance_run
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


def make_conversation(calls: int, seed: int = 0, mean_chars: int = 900) -> list[Message]:
    """Return a system prompt, a user message, and per call a reply with a tool call and its result.

    `mean_chars` is the mean length of a result, and the largest one of a reply.
    """
    rng = random.Random(seed)

    def make_text(n: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(max(1, n // 6)))

    messages = [
        Message(role="system", id="s", parts=(Text(make_text(600)),)),
        Message(role="user", id="u", parts=(Text(make_text(300)),)),
    ]
    for n in range(calls):
        tool_call = ToolCall(id=f"c{n}", name="read", arguments={"path": f"f{n % 40}.py"})
        messages.append(
            Message(
                role="assistant",
                id=f"a{n}",
                parts=(Text(make_text(rng.randint(50, mean_chars))), tool_call),
            )
        )
        output = (Text(make_text(int(rng.expovariate(1 / mean_chars)) + 20)),)
        messages.append(
            Message(role="tool", id=f"r{n}", parts=output, call_id=f"c{n}", tool="read")
        )
    return messages


class PiCompaction:
    """Replace everything before the last `keep_tokens` tokens by one summary, as Pi does."""

    def __init__(self, keep_tokens: int, summary_tokens: int = 1500) -> None:
        self.keep_tokens, self.summary_tokens = keep_tokens, summary_tokens

    def __call__(self, history: Any, _budget: Any) -> Any:
        return history.summarise(
            history.safe(history.back(self.keep_tokens)), self.summary_tokens, "full"
        )


class SlidingWindow:
    """Drop the oldest messages until the budget is met; it compacts at nearly every call."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def __call__(self, history: Any, _budget: Any) -> Any:
        return history.drop(history.safe(history.fitting(self.budget)), "window")


class KeepLastResults:
    """Replace all tool results but the last n by a placeholder, for one call."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, history: Any, _budget: Any) -> Any:
        results = np.flatnonzero(history.role("tool"))
        return history.shorten(results[: max(0, len(results) - self.n)], "[cleared]", "old")


CLEAR_OLD_RESULTS = Clear(keep_last=9, placeholder="[cleared]")
"""The same as ``KeepLastResults(9)``, as the kit ships it."""


def replay_over_lists(
    messages: list[Message], sizes: list[int], limit: int, keep_tokens: int
) -> tuple[int, int]:
    """Do the compaction of `PiCompaction` over plain lists, with sums taken anew at each call.

    Returns the tokens of all prompts and the number of compactions.
    """
    prompt: list[tuple[Message | None, int]] = []
    total = compactions_n = 0
    for message, size in zip(messages, sizes, strict=True):
        if message.role == "assistant":
            if sum(n for _, n in prompt) > limit:
                tokens_left, start = keep_tokens, len(prompt)
                while start and tokens_left > 0:
                    start -= 1
                    tokens_left -= prompt[start][1]
                while (
                    start < len(prompt)
                    and prompt[start][0] is not None
                    and prompt[start][0].role == "tool"
                ):  # type: ignore[union-attr]
                    start += 1
                if 1 < start < len(prompt):
                    prompt, compactions_n = (
                        [prompt[0], (None, 1500), *prompt[start:]],
                        compactions_n + 1,
                    )
            total += sum(n for _, n in prompt)
        prompt.append((message, size))
    return total, compactions_n


def replay_with_bill(log: MessageLog, rules: Rules) -> tuple[int, int, int]:
    """Replay, and return the total, fresh and peak tokens, which a bill needs."""
    result = replay(log, rules)
    return result.total, result.fresh, result.peak


def measure_replays() -> list[dict[str, object]]:
    messages = make_conversation(CALLS)
    log = MessageLog.of(messages, get_counter("chars/4"))
    sizes = log.tokens.sizes
    limit = sum(sizes) // 6
    few_compactions = Rules(PiCompaction(limit // 3), triggers.Above(limit))
    assert (
        replay(log, few_compactions).total,
        len(replay(log, few_compactions).compactions),
    ) == replay_over_lists(messages, sizes, limit, limit // 3)
    assert len(replay(log, few_compactions).compactions) <= 10
    preset = pi(context_window=limit + 16_384, keep_recent_tokens=limit // 3, summariser="fixed")
    assert 0 < len(replay(log, preset).compactions) <= 10
    shipped_window = Rules(
        compaction_without_summary.Window(keep_tokens=limit * 3 // 10), triggers.Above(limit // 3)
    )
    own_window = Rules(SlidingWindow(limit * 3 // 10), triggers.Above(limit // 3))
    assert (
        len(replay(log, shipped_window).compactions)
        > 100
        < len(replay(log, own_window).compactions)
    )
    own_clearing, shipped_clearing = (
        Rules(few_compactions.policy, triggers.Above(limit // 2), pruning=p)
        for p in (KeepLastResults(9), CLEAR_OLD_RESULTS)
    )
    assert (
        replay(log, own_clearing).fresh_tokens.tolist()
        == replay(log, shipped_clearing).fresh_tokens.tolist()
    )
    one_function = Rules(
        lambda h, budget: PiCompaction(limit // 3)(h, budget) if h.tokens > limit else h
    )
    assert (
        replay(log, one_function).prompts.tolist() == replay(log, few_compactions).prompts.tolist()
    )

    def fold_lists() -> object:
        return replay_over_lists(messages, sizes, limit, limit // 3)

    def measure_row(name: str, rules: Rules, repeats: int, goal: str) -> dict[str, object]:
        ours, theirs = measure_in_turns(
            lambda: [replay_with_bill(log, rules) for _ in range(repeats)], fold_lists
        )
        ours, compactions_n = ours / repeats, len(replay(log, rules).compactions)
        figures = f"{compactions_n} edits, {CALLS / ours:,.0f} calls/s"
        name = f"{name} ({figures}), against a fold over lists"
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
        measure_row("replay, the preset pi with summaries of a fixed size", preset, 50, ">= 18"),
        measure_row("replay, a compaction of one's own", few_compactions, 50, ">= 18"),
        measure_row("replay, a window that thrashes", shipped_window, 10, ">= 1.27"),
        measure_row("replay, a window of one's own that thrashes", own_window, 10, ">= 1.27"),
        measure_row("replay, old results cleared at each call", shipped_clearing, 10, ""),
        measure_row("replay, a plain function as the whole rule", one_function, 5, ">= 0.73"),
        measure_row("replay, a plain function clearing at each call", own_clearing, 1, ">= 0.018"),
        *compare_with_langchain(messages, limit, log),
    ]


def convert_to_langchain(messages: list[Message]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    converted: list[Any] = []
    for message in messages:
        if message.role == "assistant":
            calls = [
                {"id": call.id, "name": call.name, "args": call.arguments}
                for call in message.tool_calls
            ]
            converted.append(AIMessage(message.text, tool_calls=calls, id=message.id))
        elif message.role == "tool":
            converted.append(
                ToolMessage(
                    message.text, tool_call_id=message.call_id, name=message.tool, id=message.id
                )
            )
        else:
            converted.append(
                (SystemMessage if message.role == "system" else HumanMessage)(
                    message.text, id=message.id
                )
            )
    return converted


def compare_with_langchain(
    messages: list[Message], limit: int, log: MessageLog
) -> list[dict[str, object]]:
    if not importlib.util.find_spec("langchain"):
        return []
    from langchain.agents.middleware.summarization import SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import RemoveMessage

    lc_messages, settings = (
        convert_to_langchain(messages),
        {"trigger": ("tokens", limit), "keep": ("tokens", limit // 3)},
    )
    rules = langchain_summary(**settings, summariser="fixed")  # type: ignore[arg-type]

    def peer() -> int:
        model = FakeListChatModel(responses=["summary of the conversation so far. " * 40])
        middleware = SummarizationMiddleware(model, **settings)
        prompt, compactions_n = list(lc_messages[:2]), 0
        for call in range(CALLS):
            update = middleware.before_model({"messages": prompt}, None)
            if update:
                compactions_n, prompt = (
                    compactions_n + 1,
                    [m for m in update["messages"] if not isinstance(m, RemoveMessage)],
                )
            prompt += lc_messages[2 + 2 * call : 4 + 2 * call]
        return compactions_n

    gc.freeze()
    assert 0 < peer() <= 20  # it counts by another rule, so it cuts at other calls, about as often
    assert 0 < len(replay(log, rules).compactions) <= 10
    ours, theirs = measure_in_turns(
        lambda: [replay_with_bill(log, rules) for _ in range(500)], peer
    )
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


def measure_live_decision(messages: list[Message], rules: Rules, n_decisions: int = 40) -> float:
    """Return the CPU seconds of one decision at the end of a long session.

    The messages are in the log and counted before the clock starts.
    """
    log = MessageLog.of(messages, get_counter("chars/4"))
    state = advance_run(RulesRun(log, rules), rules, log.calls - n_decisions)
    start = time.process_time()
    for call in range(log.calls - n_decisions + 1, log.calls + 1):
        advance_run(state, rules, call)
    return (time.process_time() - start) / n_decisions


def measure_decisions() -> list[dict[str, object]]:
    """Measure a live decision at 100 and at 10,000 messages."""
    rows = []
    prunings = (
        ("without pruning", None, "<= 3"),
        ("old results cleared", CLEAR_OLD_RESULTS, "ours <= 1000"),
    )
    for name, pruning, goal in prunings:
        short, long = (
            statistics.median(
                measure_live_decision(
                    make_conversation(n),
                    Rules(PiCompaction(20_000), triggers.Above(60_000), pruning=pruning),
                )
                for _ in range(5)
            )
            for n in (50, 5000)
        )
        rows.append(
            {
                "name": f"a live decision at 10,000 messages, {name}, against one at 100",
                "ours": long * 1e6,
                "peer": short * 1e6,
                "ratio": long / short,
                "goal": goal,
                "unit": "us CPU",
            }
        )
    return [*rows, *compare_decisions_with_langchain()]


def compare_decisions_with_langchain() -> list[dict[str, object]]:
    if not importlib.util.find_spec("langchain"):
        return []
    import copy

    from langchain.agents.middleware.context_editing import ClearToolUsesEdit
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    messages = make_conversation(5000)
    lc_messages = convert_to_langchain(messages)

    def peer() -> int:
        prompt = copy.deepcopy(lc_messages)
        ClearToolUsesEdit(trigger=60_000, keep=9).apply(
            prompt, count_tokens=count_tokens_approximately
        )
        trimmed = trim_messages(
            prompt, max_tokens=60_000, token_counter=count_tokens_approximately, include_system=True
        )
        return len(trimmed)

    assert peer() < len(lc_messages)
    theirs = measure_cpu(peer, 3)
    ours = statistics.median(
        measure_live_decision(
            messages,
            Rules(SlidingWindow(60_000), triggers.Above(60_000), pruning=CLEAR_OLD_RESULTS),
        )
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


def measure_totals() -> list[dict[str, object]]:
    """Measure exact totals at each of 2,000 turns.

    The peer counts at every 250th turn only; its seconds for all turns are interpolated.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is downloaded
    import litellm

    messages = [
        msgspec.structs.replace(m, parts=m.parts[:1]) for m in make_conversation(2000)
    ]  # texts alone, on both sides
    message_dicts = [{"role": m.role, "content": m.text} for m in messages]

    def ours() -> list[int]:
        log = MessageLog(TiktokenCounter("o200k_base"))  # with an empty memo
        counts = []
        for message in messages:
            if message.role == "assistant":
                log.open()
                counts.append(log.tokens.C[-1])
            log.append(message)
        return counts

    counter = TiktokenCounter("o200k_base")
    assert ours()[7] == sum(counter.message(m) for m in messages[: 2 + 14])
    our_seconds = measure_cpu(ours, 3)
    sampled_turns = (1, 250, 500, 750, 1000, 1250, 1500, 1750, 2000)
    seconds = [
        measure_cpu(
            lambda n=n: litellm.token_counter(model="gpt-4o", messages=message_dicts[: 2 + 2 * n]),
            1,
        )
        for n in sampled_turns
    ]  # type: ignore[misc]
    intervals = zip(sampled_turns, sampled_turns[1:], seconds, seconds[1:], strict=False)
    peer_seconds = sum((b - a) * (x + y) / 2 for a, b, x, y in intervals)
    name = "exact totals at each of 2,000 turns, against litellm.token_counter"
    row = {
        "name": name,
        "ours": our_seconds,
        "peer": peer_seconds,
        "ratio": peer_seconds / our_seconds,
        "goal": ">= 1000",
        "unit": "s CPU",
    }
    return [row, measure_totals_within(100_000, messages, message_dicts)]


def measure_totals_within(
    limit: int, messages: list[Message], message_dicts: list[dict[str, str]]
) -> dict[str, object]:
    """Measure exact totals of the newest messages within a limit at each turn.

    The peer counts the same messages at every 50th turn.
    """
    import litellm

    def ours() -> list[tuple[int, int, int]]:
        log = MessageLog(TiktokenCounter("o200k_base"))  # with an empty memo
        history, windows = History.start(log), []
        for message in messages:
            if message.role == "assistant":
                history = history.at(log.open())
                first = history.fitting(limit)
                windows.append((first, history.hi, history.tokens - history.before(first)))
            log.append(message)
        return windows

    windows = ours()
    assert limit * 0.9 < windows[-1][2] <= limit
    spans = [windows[n][:2] for n in range(25, len(windows), 50)]

    def peer() -> list[int]:
        return [
            litellm.token_counter(model="gpt-4o", messages=message_dicts[first:end])
            for first, end in spans
        ]

    our_seconds, peer_seconds = measure_in_turns(ours, peer, 5)
    peer_seconds *= len(windows) / len(spans)
    name = (
        f"exact totals of the newest {limit:,} tokens at each of 2,000 turns, against"
        " litellm.token_counter"
    )
    return {
        "name": name,
        "ours": our_seconds,
        "peer": peer_seconds,
        "ratio": peer_seconds / our_seconds,
        "goal": ">= 300",
        "unit": "s CPU",
    }


def measure_columns() -> list[dict[str, object]]:
    """Measure prompt and fresh tokens of each call, derived from a finished run.

    The peer computes them by a fold over lists.
    """
    messages = make_conversation(CALLS)
    log = MessageLog.of(messages, get_counter("chars/4"))
    limit = sum(log.tokens.sizes) // 6
    finished_run = replay(
        log, pi(context_window=limit + 16_384, keep_recent_tokens=limit // 3, summariser="fixed")
    )

    def ours() -> object:
        return [(finished_run.prompts, finished_run.fresh_tokens) for _ in range(50)]

    our_seconds, peer_seconds = measure_in_turns(
        ours, lambda: replay_over_lists(messages, log.tokens.sizes, limit, limit // 3)
    )
    our_seconds /= 50
    name = (
        f"columns of each call of a finished run ({CALLS / our_seconds:,.0f} calls/s),"
        " against a fold over lists"
    )
    goal = ">= 9"  # 5 M calls a second over the 0.55 M of such a fold
    return [
        {
            "name": name,
            "ours": our_seconds * 1e6,
            "peer": peer_seconds * 1e6,
            "ratio": peer_seconds / our_seconds,
            "goal": goal,
            "unit": "us",
        }
    ]


def run() -> list[dict[str, object]]:
    gc.collect()
    gc.freeze()  # what was imported is no part of either side's work
    return [*measure_replays(), *measure_columns(), *measure_decisions(), *measure_totals()]


if __name__ == "__main__":
    for row in run():
        figures = f"{row['ours']:12.2f} {row['peer']:14.2f} {row['unit']:14s} x{row['ratio']:,.2f}"
        print(f"{row['name']:110s} {figures} (goal {row['goal']})")
