"""Sessions by chance, for tests of the engine: inputs, replies with calls, results, pauses; deterministic by seed."""

from __future__ import annotations

import random

from builders import assistant, result, session, system, tool_call, user

from ctxkit.policies import EditedHead, History, MessageLog, Rules, count_chars
from ctxkit.presets import preset
from ctxkit.session import (
    Message,  # noqa: TC001  plain values of the tests
    Session,  # noqa: TC001
)

TOOLS = ("read_file", "write_file", "shell")


def by_chance(seed: int, calls: int = 60, *, agents: tuple[str, ...] = ("main",)) -> Session:
    """Return a sound session of so many calls; a tenth of its results are large, pauses outlive a cache now and then."""
    r = random.Random(seed)
    now, log = 1_000_000.0, [system("s" * r.randint(10, 400), id="sys")]
    for n in range(calls):
        if n == 0 or r.random() < 0.2:
            now += r.choice([5, 50, 700])
            log.append(
                user("u" * r.randint(4, 800), id=f"u{n}", time=now, pinned=r.random() < 0.05)
            )
        now += r.randint(1, 30)
        asked = [
            tool_call(r.choice(TOOLS), id=f"c{n}.{i}", path=f"f{r.randint(0, 5)}")
            for i in range(r.choice([0, 1, 1, 2]))
        ]
        log.append(
            assistant("a" * r.randint(0, 600), *asked, id=f"a{n}", time=now, agent=r.choice(agents))
        )
        for call in asked:
            now += 1
            log.append(
                result(
                    "r" * r.choice([3, 40, 400, 9000]),
                    call,
                    id=f"r{call.id}",
                    time=now,
                    is_error=r.random() < 0.1,
                )
            )
    return session(*log)


def size(message: Message) -> int:
    """Tokens of a message by a rule of this test's own: four characters each, rounded up."""
    return -(-count_chars(message) // 4)


class Fours:
    """The same rule as a counter."""

    name = "fours"
    source = "estimated"

    def __call__(self, text: str) -> int:
        return -(-len(text) // 4)

    def message(self, message: Message) -> int:
        return size(message)

    def total(self, messages: list[Message]) -> int:
        return sum(size(m) for m in messages)


def shown(*log: Message) -> History:
    """All of a log as it is shown before the next call."""
    made = MessageLog.of((*log, assistant("The next reply.")), Fours())
    return History.start(made, made.calls - 1)


def unchecked(log: tuple[Message, ...], *kept: int) -> History:
    """A history that shows these rows only, made by no verb."""
    h = shown(*log)
    return History(h.log, EditedHead.of(tuple(h.item(p) for p in kept)), h.hi, h.hi, h.call)


NARROW = {"context_window": 40_000, "reserve_tokens": 35_000, "keep_recent_tokens": 1_500}
SMALL = {
    "pulse_coder": {"compact_trigger": 4_000, "compact_target": 2_000, "keep_last_turns": 2},
    "langchain_summary": {"trigger": ("tokens", 4_000), "keep": ("messages", 6)},
    "langchain_clear_tools": {"trigger": 3_000},
    "anthropic_clear_tools": {"trigger": 3_000},
    "adk": {"token_threshold": 4_000, "event_retention_size": 5},
    "boise": {"context_window": 9_000, "protected_turns": 1, "deferred_apply": False},
    "pi": NARROW,
    "fased": NARROW,
    "openclaw": {
        "context_window": 6_000,
        "reserve_tokens": 1_500,
        "reserve_tokens_floor": 0,
        "keep_recent_tokens": 1_000,
    },
    "cline": {"context_window": 9_000, "trigger_ratio": 0.4, "preserve_recent_tokens": 1_000},
    "aider": {"max_chat_history_tokens": 1_000},
    "lcm": {
        "context_window": 9_000,
        "context_threshold": 0.3,
        "fresh_tail_count": 4,
        "leaf_chunk_tokens": 500,
        "fanout": 3,
    },
}
"""Settings of presets that would change nothing in talks as short as these."""


def small(name: str) -> Rules:
    """Return a preset set so that it changes something in a talk of 25 calls (`none` alone does not)."""
    made, own = preset(name, **SMALL.get(name, {})), "context_window" in SMALL.get(name, {})
    return made if own else made.but(window=9_000, assumed=True, reserve=1_000)
