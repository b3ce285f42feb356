"""Scripted agents that look up what they cannot see, beside what a replay predicted.

No key is needed: the agents are scripted (`experiments.studies.closed_loop`), the engine, the
tools, the edits and the bill are those of any live session. One agent runs without management, and
its record is replayed under each policy; then the same agent runs under the policy itself.

The world is a folder of made-up configuration files. Each question of the user asks for the sum of
numbers that stand in some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit import tokens
from ctxkit._internal.lazy import public_dir
from ctxkit.agent.models.scripted import (
    GIVE_UP_TEXT,
    MAX_LOOKUPS,
    LookupModel,
    find_ports,
    service_path,
)
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.messages import Edit, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from ctxkit.policies.rules import Rules
    from ctxkit.presets.registry import RulesLike
    from ctxkit.tokens import TokenCounter


__all__ = [
    "COLUMNS",
    "GIVE_UP_TEXT",
    "INSTRUCTIONS",
    "MAX_LOOKUPS",
    "PRICED",
    "RECENT_PORTS",
    "World",
    "find_visible_services",
    "loop",
    "make_seeker",
    "make_world",
    "run_scripted_agent",
]
__dir__ = public_dir(__all__)


PRICED = "claude-sonnet-4-5"
"""The model by whose prices the scripted agent is billed."""
COLUMNS = {
    "rules": "what the rules call themselves",
    "calls_foretold": "calls of the record, which a replay keeps",
    "calls_real": "calls of the agent under the rules",
    "tokens_foretold": "tokens of all prompts of the replay",
    "tokens_real": "of the agent under the rules",
    "usd_foretold": "dollars of the replay",
    "usd_real": "of the agent under the rules",
    "again": "files that the agent read again",
    "given_up": "questions that it could not answer",
    "out_of_sight": "numbers that the record had read and the replay did not show when asked for",
    "missed_calls": "calls real / foretold - 1",
    "missed_usd": "dollars real / foretold - 1",
}
_RESULT = "read_config"


def run_scripted_agent(
    rules: RulesLike = "none", at: World | None = None, *, blind: bool = False
) -> Session:
    """Return the session of an agent that answered all questions of a world under rules.

    Args:
        rules: rules, a preset or its name.
        at: the world; None: `seekers.world()`.
        blind: the agent does not look at its prompt, so that no rules change its steps.
    """
    from ctxkit.agent import Agent
    from ctxkit.agent.event_loops import BackgroundTask
    from ctxkit.agent.tools.tool import tool

    at = at or make_world()
    ticks, counter = count(1_800_000_000), tokens.get_counter("chars/4")
    model = make_seeker(counter=counter, clock=lambda: float(next(ticks)), blind=blind)
    agent = Agent(
        Session(id="seeker", format="native", agent="main"),
        model=model,
        rules=resolve_rules(rules).but(counter=counter),
        tools=[tool(at.read_config)],
        clock=lambda: float(next(ticks)),
    )

    agent.instruct(INSTRUCTIONS)

    async def live() -> None:
        for n in range(len(at.asked)):
            await agent.turn(at.question(n))

    BackgroundTask(live()).result()
    return apply_prices(agent.session)


def apply_prices(session: Session) -> Session:
    """Return a scripted session as if a model with a price had answered and summarised.

    The summaries were made without a model; a replay bills them as if one had written them, so the
    agent's bill has to hold the same.
    """
    log = tuple(_priced(entry) for entry in session.log)
    return msgspec.structs.replace(session, log=log, model=PRICED)


def _priced(entry: Message | Edit) -> Message | Edit:
    if isinstance(entry, Edit):
        return msgspec.structs.replace(entry, source="recorded")
    return msgspec.structs.replace(entry, model=PRICED) if entry.role == "assistant" else entry


def loop(
    rules: Sequence[RulesLike], at: World | None = None, *, blind: bool = False
) -> pd.DataFrame:
    """Return for each of the rules what was foretold and what came true (see `COLUMNS`).

    Args:
        rules: rules, presets or their names.
        at: the world; None: `seekers.world()`.
        blind: see `lived`.
    """
    import pandas as pd

    at = at or make_world()
    record = run_scripted_agent("none", at, blind=blind)
    rows = [_row(record, resolve_rules(each), at, blind=blind) for each in rules]
    return pd.DataFrame(rows, columns=list(COLUMNS)).set_index("rules")


def _row(record: Session, rules: Rules, at: World, *, blind: bool) -> dict[str, Any]:
    from ctxkit.engine.replay import replay
    from ctxkit.experiments.scores import score

    again = replay(record, rules.but(counter=tokens.get_counter("chars/4")))
    told = score(again, loss=False)
    real = run_scripted_agent(rules, at, blind=blind)
    paid = score(real, loss=False)
    row: dict[str, Any] = {"rules": rules.label, "out_of_sight": count_out_of_sight(again, at)}
    columns = {"calls": "calls_n", "tokens": "prompt_tokens", "usd": "cost_usd"}
    for name, column in columns.items():
        row |= {f"{name}_foretold": told[column], f"{name}_real": paid[column]}
    row["again"] = count_reads(real) - count_reads(record)
    row["given_up"] = sum(m.text == GIVE_UP_TEXT for m in real.messages)
    for name in ("calls", "usd"):
        missed = row[f"{name}_real"] / row[f"{name}_foretold"] - 1
        row[f"missed_{name}"] = round(missed, 9) + 0.0  # the last bits of a sum are no miss
    return row


def count_reads(session: Session) -> int:
    """Return how often a file was read."""
    return sum(c.name == _RESULT for m in session.messages for c in m.tool_calls)


def count_out_of_sight(again: Session, at: World) -> int:
    """Return how many numbers a replay did not show when they were asked for, though it had before.

    Each of them is one more step, at least, that a real run would take: what a replay can tell of
    what it misses.
    """
    known, missing = set[str](), 0
    first = {call.turn: call.index for call in reversed(again.calls)}
    for turn in sorted(first):
        wanted = set(at.asked[turn])
        shown = find_visible_services(item.message for item in again.sent(first[turn]))
        missing += len((wanted & known) - shown)
        known |= wanted
    return missing


RECENT_PORTS = 6
"""Ports asked for last, from which the next are drawn where a question is near."""
_WORDS = (
    *("archive", "billing", "cache", "deploy", "export", "fleet", "gateway", "health", "import"),
    *("journal", "kiosk", "ledger", "mirror", "notify", "orders", "portal", "queue", "router"),
    *("search", "tariff", "upload", "vault", "worker", "zone"),
)
INSTRUCTIONS = "You look after the configuration of many services.\n" + "\n".join(
    f"{i}. A port is a whole number; say where it was read, never guess it, and read the file of a "
    "service again when its number is not in sight."
    for i in range(1, 41)
)
"""The system prompt: long enough to be cached, as those of real agents are."""
_LINES = ("retries", "timeout", "batch", "level", "region", "owner", "window", "limit")


@dataclass(frozen=True, slots=True)
class World:
    """Files, and questions about them."""

    files: dict[str, str]
    """Text by path."""
    asked: tuple[tuple[str, ...], ...]
    """For each question the services whose ports it asks for."""
    ports: dict[str, int]

    def question(self, n: int) -> str:
        """Return what the user says."""
        return f"Question {n}: what is the sum of the ports of {' and '.join(self.asked[n])}?"

    def read_config(self, path: str) -> str:
        """Read a configuration file."""
        return self.files[path]


def make_world(
    *,
    questions: int = 60,
    services: int = 24,
    each: int = 2,
    lines: int = 120,
    near: float = 0.5,
    seed: int = 7,
) -> World:
    """Return a world made by chance: the same for the same numbers.

    Args:
        questions: that the user asks, one a turn.
        services: files that there are, at most 24.
        each: ports that a question asks for.
        lines: of a file; one of them is the port.
        near: share of the ports that are asked for again soon: they are among the last `SOON`.
        seed: of the chance.
    """
    random = Random(seed)  # noqa: S311  a made-up world, not a secret
    names = _WORDS[:services]
    ports = {name: random.randrange(2_000, 60_000) for name in names}
    files = {service_path(name): _file(name, ports[name], lines, random) for name in names}
    return World(files, _asked(names, questions, each, near, random), ports)


def _asked(
    names: Sequence[str], questions: int, each: int, near: float, random: Random
) -> tuple[tuple[str, ...], ...]:
    out: list[tuple[str, ...]] = []
    last: list[str] = []
    for _ in range(questions):
        chosen: list[str] = []
        while len(chosen) < each:
            pool = last[-RECENT_PORTS:] if last and random.random() < near else names
            chosen += [n for n in [random.choice(pool)] if n not in chosen]
        last += chosen
        out.append(tuple(chosen))
    return tuple(out)


def _file(name: str, port: int, lines: int, random: Random) -> str:
    out = [f"{name}_{random.choice(_LINES)}_{i} = {random.randrange(10**6)}" for i in range(lines)]
    out[random.randrange(lines)] = f"{name}_port = {port}"
    return "\n".join(out)


def make_seeker(
    *, counter: TokenCounter, clock: Callable[[], float], blind: bool = False
) -> LookupModel:
    """Return the model of the agent.

    Args:
        counter: counts the prompts for its bill.
        clock: seconds.
        blind: it does not look, but believes what it was ever told: it takes the same steps under
            any policy, so that what a replay foretells must come true.
    """
    return LookupModel(tool="read_config", blind=blind, name="seeker", counter=counter, clock=clock)


def find_visible_services(messages: Iterable[Message]) -> set[str]:
    """Return the services whose port stands in a prompt, in a result or in a summary."""
    return set(find_ports(messages))
