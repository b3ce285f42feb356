"""Run one task twice with a model, under two settings, and hold the runs against their replays.

`python -m ctxkit.course.pair.runs [MODEL [FOLDER]]` asks a model twelve questions about numbers in files, whose right answers are
known: once without context management, once shown only the results of its last three tool calls. Both sessions are written
to FOLDER, and a table says what the replay of the first predicts of the second, and what came true. MODEL is a local file
(`local/model.gguf`), a server's model (`ollama_chat/qwen3:4b`, `openai/NAME?api_base=http://127.0.0.1:8080/v1`), or any other that
LiteLLM knows, whose key costs money. Without it the `reader` answers, a small model that `notebooks/pair/train.py` trained for this task
alone, and the pair that stands beside this file is made again. `... worlds` asks it in twenty other worlds (`worlds.csv`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import ctxkit as ck
from ctxkit import tokens
from ctxkit.agent import Agent
from ctxkit.agent.models.names import make_model
from ctxkit.agent.tools.tool import tool
from ctxkit.course.pair.reader import Reader
from ctxkit.course.pair.task import INSTRUCTIONS, world
from ctxkit.experiments.studies.closed_loop import apply_prices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.agent.models.model import Model
    from ctxkit.course.pair.task import World
    from ctxkit.policies import Rules

HERE = Path(__file__).parent
READER = "reader"
TASK = world()
WINDOW = 8_000
"""Tokens; nothing of this task is larger, so that the first run is never cut."""


COUNTER = tokens.get_counter("chars/4")
"""Bills the reader's tokens; so its replays are counted by it, too."""


def settings() -> dict[str, Rules]:
    """Return the two settings by name."""
    masked = ck.presets.swe_agent_mask(n=3).but(name="mask 3")
    return {"none": ck.presets.none(context_window=WINDOW), "mask 3": masked}


def named(name: str, clock: Callable[[], float]) -> Model:
    """Return the reader, or a model by the kit's name for it."""
    if name == READER:
        return Reader(counter=COUNTER, clock=clock)
    if name.startswith("local"):
        return make_model(name, counter=COUNTER, clock=clock, context_window=WINDOW)
    return make_model(name, counter=COUNTER, clock=clock)


async def run(name: str, rules: Rules, at: World = TASK) -> ck.Session:
    """Return the session of a model that was asked all questions under rules.

    The reader's clock counts (a second each time it is looked at), so that its session is the same each time.
    """
    ticks = count(1_800_000_000)
    clock = (lambda: float(next(ticks))) if name == READER else time.time
    session = ck.Session(id=rules.label.replace(" ", "-"), format="native", agent="main")
    agent = Agent(
        session, model=named(name, clock), rules=rules, tools=[tool(at.read_file)], clock=clock
    )
    agent.instruct(INSTRUCTIONS)
    for n in range(len(at.asked)):
        await agent.turn(at.question(n))
    return agent.session


def replayed(session: ck.Session, name: str) -> ck.Session:
    """Return the replay of a run under one of the settings."""
    rules = settings()[name]
    return ck.replay(billed(session), rules.but(counter=COUNTER) if own(session) else rules)


def billed(session: ck.Session) -> ck.Session:
    """Return a session with a price: the reader costs nothing, and is billed as if a known model had said the same."""
    return apply_prices(session) if own(session) else session


def own(session: ck.Session) -> bool:
    """Return whether the reader answered."""
    return any(m.model == READER for m in session.messages)


def answers(session: ck.Session) -> dict[int, str]:
    """Return what was said last in each turn."""
    return {call.turn: call.message.text for call in session.calls}


def right(session: ck.Session, at: World = TASK) -> int:
    """Return how many questions were answered with the right numbers."""
    last = answers(session)
    return sum(at.right(n, last.get(n, "")) for n in range(len(at.asked)))


def reads(session: ck.Session) -> int:
    """Return how often a file was read again."""
    paths = [str(c.arguments.get("path")) for m in session.messages for c in m.tool_calls]
    return len(paths) - len(set(paths))


def table(runs: dict[str, ck.Session], at: World = TASK) -> pd.DataFrame:
    """Return what the replay of the first run predicts of each setting, and what came true."""
    first = next(iter(runs.values()))
    rows = {}
    for name, session in runs.items():
        told = ck.score(replayed(first, name), loss=False)
        true = ck.score(billed(session), loss=False)
        rows[name] = {
            f"{figure} {when}": row[column]
            for figure, column in (
                ("calls", "calls_n"),
                ("tokens", "prompt_tokens"),
                ("usd", "cost_usd"),
            )
            for when, row in (("predicted", told), ("real", true))
        } | {"read again": reads(session), "right": f"{right(session, at)} of {len(at.asked)}"}
    return pd.DataFrame(rows).T


def main(name: str = READER, folder: Path = HERE, at: World = TASK) -> pd.DataFrame:
    """Run both, write them, and return the table."""
    runs = {label: asyncio.run(run(name, rules, at)) for label, rules in settings().items()}
    folder.mkdir(parents=True, exist_ok=True)
    for session in runs.values():
        ck.write(session, folder / f"{session.id}.jsonl")
    made = table(runs, at)
    made.to_csv(folder / "pair.csv")
    return made


def worlds(seeds: Iterable[int] = range(100, 120)) -> pd.DataFrame:
    """Return the reader's table for each of other worlds, a row a world and setting."""
    rows = []
    for seed in seeds:
        at = world(seed=seed)
        runs = {label: asyncio.run(run(READER, rules, at)) for label, rules in settings().items()}
        rows.append(table(runs, at).rename_axis("rules").assign(seed=seed))
    return pd.concat(rows).set_index("seed", append=True).swaplevel()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(__doc__)
    if sys.argv[1:] == ["worlds"]:
        worlds().to_csv(HERE / "worlds.csv")
        sys.exit()
    name = sys.argv[1] if len(sys.argv) > 1 else READER
    # a model without a folder does not write over the pair that is there
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("pair") if len(sys.argv) > 1 else HERE
    print(main(name, folder).to_string())
