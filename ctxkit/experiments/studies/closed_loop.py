"""Closed-loop study: scripted agents that look up what they cannot see, against their replays.

One agent runs without context management, and its record is replayed under each policy (open
loop); then the same agent runs under the policy itself (closed loop). The difference is what a
replay cannot predict. The agents need no API key: only the model is scripted; engine, tools, edits
and bills are those of any live session.

The world is a folder of generated configuration files. Each question asks for the sum of the ports
in some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit import tokens
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit.agent.models.scripted_and_lookup_models import (
    GIVE_UP_TEXT,
    MAX_LOOKUPS,
    PromptLookupModel,
    find_ports,
    get_service_path,
)
from ctxkit.presets.registry_and_setting_checks import resolve_rules
from ctxkit.session.messages import Edit, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.tokens.token_counters import TokenCounter


__all__ = [
    "CLOSED_LOOP_COLUMNS",
    "GIVE_UP_TEXT",
    "INSTRUCTIONS",
    "MAX_LOOKUPS",
    "PRICED_MODEL",
    "RECENT_PORTS",
    "PortLookupTask",
    "find_visible_services",
    "loop",
    "make_lookup_model",
    "make_port_lookup_task",
    "run_scripted_agent",
]
__dir__ = make_dunder_dir(__all__)


PRICED_MODEL = "claude-sonnet-4-5"
"""The model by whose prices the scripted agent is billed."""
CLOSED_LOOP_COLUMNS = {
    "rules": "what the rules call themselves",
    "calls_predicted": "calls of the record, which a replay keeps",
    "calls_real": "calls of the agent under the rules",
    "tokens_predicted": "tokens of all prompts of the replay",
    "tokens_real": "of the agent under the rules",
    "usd_predicted": "dollars of the replay",
    "usd_real": "of the agent under the rules",
    "rereads_n": "files that the agent read again",
    "unanswered_n": "questions that it could not answer",
    "out_of_sight": "numbers that the record had read and the replay did not show when asked for",
    "calls_error": "calls real / predicted - 1",
    "usd_error": "dollars real / predicted - 1",
}
_READ_TOOL = "read_config"


def run_scripted_agent(
    rules: RulesLike = "none", task: PortLookupTask | None = None, *, blind: bool = False
) -> Session:
    """Run an agent through all questions of a world under rules and return its session.

    Args:
        rules: rules, a preset or its name.
        task: the world; None: `make_port_lookup_task()`.
        blind: the agent ignores its prompt, so that rules do not change its steps.

    Returns:
        The session, billed as a scripted model: tokens by class, no dollars.

    Example:
        >>> from ctxkit.experiments.studies import closed_loop
        >>> world = closed_loop.make_port_lookup_task(questions=1, services=2)
        >>> len(closed_loop.run_scripted_agent("none", world).calls)
        3
    """
    from ctxkit.agent import Agent
    from ctxkit.agent.event_loop_threads import BackgroundTask
    from ctxkit.agent.tools.tool import tool

    task = task or make_port_lookup_task()
    ticks, counter = count(1_800_000_000), tokens.get_counter("chars/4")
    model = make_lookup_model(counter=counter, clock=lambda: float(next(ticks)), blind=blind)
    agent = Agent(
        Session(id="seeker", format="native", agent="main"),
        model=model,
        rules=resolve_rules(rules).but(counter=counter),
        tools=[tool(task.read_config)],
        clock=lambda: float(next(ticks)),
    )

    agent.instruct(INSTRUCTIONS)

    async def live() -> None:
        for n in range(len(task.services_by_question)):
            await agent.turn(task.question(n))

    BackgroundTask(live()).result()
    return apply_model_prices(agent.session)


def apply_model_prices(session: Session) -> Session:
    """Return a scripted session as if the model `PRICED_MODEL` had answered and summarised.

    Replays bill summaries as written by a model, so the live session must be billed alike.
    """
    log = tuple(_price_entry(entry) for entry in session.log)
    return msgspec.structs.replace(session, log=log, model=PRICED_MODEL)


def _price_entry(entry: Message | Edit) -> Message | Edit:
    if isinstance(entry, Edit):
        return msgspec.structs.replace(entry, source="recorded")
    return (
        msgspec.structs.replace(entry, model=PRICED_MODEL) if entry.role == "assistant" else entry
    )


def loop(
    rules: Sequence[RulesLike],
    task: PortLookupTask | None = None,
    *,
    blind: bool = False,
    progress: bool = True,
) -> pd.DataFrame:
    """Compare replay and live run of a scripted agent under each of the rules.

    Args:
        rules: rules, presets or their names.
        task: the world; None: `make_port_lookup_task()`.
        blind: see `run_scripted_agent`.
        progress: show a progress bar where the work takes longer than a second.

    Returns:
        One row per rules, indexed by their label; columns: `CLOSED_LOOP_COLUMNS`.

    Example:
        >>> from ctxkit.experiments.studies.closed_loop import loop, make_port_lookup_task
        >>> frame = loop(["none"], make_port_lookup_task(questions=3))
        >>> float(frame["usd_error"].iloc[0])
        0.0
    """
    import pandas as pd

    task = task or make_port_lookup_task()
    record = run_scripted_agent("none", task, blind=blind)
    bar = make_progress_bar(rules, desc="closed loop", unit="rules", disable=not progress)
    rows = [_compare_rules(record, resolve_rules(each), task, blind=blind) for each in bar]
    return pd.DataFrame(rows, columns=list(CLOSED_LOOP_COLUMNS)).set_index("rules")


def _compare_rules(
    record: Session, rules: Rules, at: PortLookupTask, *, blind: bool
) -> dict[str, Any]:
    from ctxkit.engine.replay import replay
    from ctxkit.experiments.cost_and_loss_scores import score

    replayed = replay(record, rules.but(counter=tokens.get_counter("chars/4")))
    predicted = score(replayed, loss=False)
    live = run_scripted_agent(rules, at, blind=blind)
    paid = score(live, loss=False)
    row: dict[str, Any] = {
        "rules": rules.label,
        "out_of_sight": count_numbers_gone_when_needed(replayed, at),
    }
    columns = {"calls": "calls_n", "tokens": "prompt_tokens", "usd": "cost_usd"}
    for name, column in columns.items():
        row |= {f"{name}_predicted": predicted[column], f"{name}_real": paid[column]}
    row["rereads_n"] = count_file_reads(live) - count_file_reads(record)
    row["unanswered_n"] = sum(m.text == GIVE_UP_TEXT for m in live.messages)
    for name in ("calls", "usd"):
        error = row[f"{name}_real"] / row[f"{name}_predicted"] - 1
        row[f"{name}_error"] = round(error, 9) + 0.0  # drop rounding errors of the sums
    return row


def count_file_reads(session: Session) -> int:
    """Return the number of calls that read a file."""
    return sum(c.name == _READ_TOOL for m in session.messages for c in m.tool_calls)


def count_numbers_gone_when_needed(replayed: Session, task: PortLookupTask) -> int:
    """Count the numbers that the agent had read but that a replay did not show when needed.

    Each costs a live run at least one more step, so the count is the replay's own estimate of its
    error.

    Args:
        replayed: the replay of a recorded run.
        task: the task of the run.
    """
    read_before, missing = set[str](), 0
    first = {call.turn: call.index for call in reversed(replayed.calls)}
    # a number counts as missing where it was read in an earlier turn and is not in this prompt
    for turn in sorted(first):
        needed = set(task.services_by_question[turn])
        visible = find_visible_services(item.message for item in replayed.sent(first[turn]))
        missing += len((needed & read_before) - visible)
        read_before |= needed
    return missing


RECENT_PORTS = 6
"""Number of recent ports from which a near question draws."""
_SERVICE_NAMES = (
    *("archive", "billing", "cache", "deploy", "export", "fleet", "gateway", "health", "import"),
    *("journal", "kiosk", "ledger", "mirror", "notify", "orders", "portal", "queue", "router"),
    *("search", "tariff", "upload", "vault", "worker", "zone"),
)
INSTRUCTIONS = "You look after the configuration of many services.\n" + "\n".join(
    f"{i}. A port is a whole number; say where it was read, never guess it, and read the file of a "
    "service again when its number is not in sight."
    for i in range(1, 41)
)
"""System prompt, long enough for the prompt cache, as those of real agents are."""
_SETTING_NAMES = ("retries", "timeout", "batch", "level", "region", "owner", "window", "limit")


@dataclass(frozen=True, slots=True)
class PortLookupTask:
    """Generated files, and questions about them."""

    files: dict[str, str]
    """Text of each file by path."""
    services_by_question: tuple[tuple[str, ...], ...]
    """Services whose ports each question asks for."""
    ports: dict[str, int]

    def question(self, n: int) -> str:
        """Return the text of a question."""
        services = " and ".join(self.services_by_question[n])
        return f"Question {n}: what is the sum of the ports of {services}?"

    def read_config(self, path: str) -> str:
        """Read a configuration file."""
        return self.files[path]


def make_port_lookup_task(
    *,
    questions: int = 60,
    services: int = 24,
    each: int = 2,
    lines: int = 120,
    near: float = 0.5,
    seed: int = 7,
) -> PortLookupTask:
    """Generate a world from a seed.

    Args:
        questions: number of questions, one per turn.
        services: number of files, at most 24.
        each: ports that a question asks for.
        lines: lines of a file; one of them is the port.
        near: probability that a port is drawn from the `RECENT_PORTS` last ones.
        seed: seed of the random numbers.

    Returns:
        The files and questions; equal arguments give the same ones.
    """
    random = Random(seed)  # noqa: S311  a made-up world, not a secret
    names = _SERVICE_NAMES[:services]
    ports = {name: random.randrange(2_000, 60_000) for name in names}
    files = {get_service_path(name): _make_file(name, ports[name], lines, random) for name in names}
    return PortLookupTask(files, _draw_questions(names, questions, each, near, random), ports)


def _draw_questions(
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


def _make_file(name: str, port: int, lines: int, random: Random) -> str:
    out = [
        f"{name}_{random.choice(_SETTING_NAMES)}_{i} = {random.randrange(10**6)}"
        for i in range(lines)
    ]
    out[random.randrange(lines)] = f"{name}_port = {port}"
    return "\n".join(out)


def make_lookup_model(
    *, counter: TokenCounter, clock: Callable[[], float], blind: bool = False
) -> PromptLookupModel:
    """Return the scripted model of the agent.

    Args:
        counter: token counter for the bill.
        clock: returns the time in seconds.
        blind: the model remembers all it has read and ignores its prompt, so that it takes the same
            steps under any policy and replays must be exact.
    """
    return PromptLookupModel(
        tool="read_config", blind=blind, name="seeker", counter=counter, clock=clock
    )


def find_visible_services(messages: Iterable[Message]) -> set[str]:
    """Return the services whose port is visible in a prompt, in a result or a summary."""
    return set(find_ports(messages))
