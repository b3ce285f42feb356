"""The closed loop: what a replay foretells of a policy, beside an agent that really runs under it.

No key is needed: the agents are scripted (`studies.seekers`), the engine, the tools, the edits and
the bill are those of any live session. One agent runs without management, and its record is
replayed under each policy; then the same agent runs under the policy itself.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit import tokens
from ctxkit.faces import listed
from ctxkit.messages import Edit, Message
from ctxkit.presets.naming import as_rules
from ctxkit.session import Session
from ctxkit.studies.seekers import GIVEN_UP, INSTRUCTIONS, seeker, seen, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.policies.rules import Rules
    from ctxkit.presets.naming import AnyRules
    from ctxkit.studies.seekers import World

__all__ = ["COLUMNS", "PRICED", "lived", "loop"]
__dir__ = listed(__all__)

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


def lived(rules: AnyRules = "none", at: World | None = None, *, blind: bool = False) -> Session:
    """Return the session of an agent that answered all questions of a world under rules.

    Args:
        rules: rules, a preset or its name.
        at: the world; None: `seekers.world()`.
        blind: the agent does not look at its prompt, so that no rules change its steps.
    """
    from ctxkit.agent import Agent
    from ctxkit.agent.threads import Background
    from ctxkit.tools.tool import tool

    at = at or world()
    ticks, counter = count(1_800_000_000), tokens.named("chars/4")
    model = seeker(counter=counter, clock=lambda: float(next(ticks)), blind=blind)
    agent = Agent(
        Session(id="seeker", format="native", agent="main"),
        model=model,
        rules=as_rules(rules).but(counter=counter),
        tools=[tool(at.read_config)],
        clock=lambda: float(next(ticks)),
    )

    agent.instruct(INSTRUCTIONS)

    async def live() -> None:
        for n in range(len(at.asked)):
            await agent.turn(at.question(n))

    Background(live()).result()
    return priced(agent.session)


def priced(session: Session) -> Session:
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
    rules: Sequence[AnyRules], at: World | None = None, *, blind: bool = False
) -> pd.DataFrame:
    """Return for each of the rules what was foretold and what came true (see `COLUMNS`).

    Args:
        rules: rules, presets or their names.
        at: the world; None: `seekers.world()`.
        blind: see `lived`.
    """
    import pandas as pd

    at = at or world()
    record = lived("none", at, blind=blind)
    rows = [_row(record, as_rules(each), at, blind=blind) for each in rules]
    return pd.DataFrame(rows, columns=list(COLUMNS)).set_index("rules")


def _row(record: Session, rules: Rules, at: World, *, blind: bool) -> dict[str, Any]:
    from ctxkit.replays import replay
    from ctxkit.sweeps import score

    again = replay(record, rules.but(counter=tokens.named("chars/4")))
    told = score(again, loss=False)
    real = lived(rules, at, blind=blind)
    paid = score(real, loss=False)
    row: dict[str, Any] = {"rules": rules.label, "out_of_sight": out_of_sight(again, at)}
    columns = {"calls": "calls_n", "tokens": "prompt_tokens", "usd": "cost_usd"}
    for name, column in columns.items():
        row |= {f"{name}_foretold": told[column], f"{name}_real": paid[column]}
    row["again"] = reads(real) - reads(record)
    row["given_up"] = sum(m.text == GIVEN_UP for m in real.messages)
    for name in ("calls", "usd"):
        missed = row[f"{name}_real"] / row[f"{name}_foretold"] - 1
        row[f"missed_{name}"] = round(missed, 9) + 0.0  # the last bits of a sum are no miss
    return row


def reads(session: Session) -> int:
    """Return how often a file was read."""
    return sum(c.name == _RESULT for m in session.messages for c in m.tool_calls)


def out_of_sight(again: Session, at: World) -> int:
    """Return how many numbers a replay did not show when they were asked for, though it had before.

    Each of them is one more step, at least, that a real run would take: what a replay can tell of
    what it misses.
    """
    known, missing = set[str](), 0
    first = {call.turn: call.index for call in reversed(again.calls)}
    for turn in sorted(first):
        wanted = set(at.asked[turn])
        shown = seen(item.message for item in again.sent(first[turn]))
        missing += len((wanted & known) - shown)
        known |= wanted
    return missing
