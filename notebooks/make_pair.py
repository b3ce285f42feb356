"""Run one task twice with a model, under two settings, and hold the runs against their replays.

`python notebooks/make_pair.py MODEL [FOLDER]` asks a model twelve questions about numbers in files, whose right answers
are known: once without context management, once shown only the results of its last three tool calls. Both sessions are
written to FOLDER (`pair` unless named), and a table says what the replay of the first foretells of the second, and what
came true. MODEL is a local file (`local/model.gguf`), a server's model (`ollama_chat/qwen3:4b`,
`openai/NAME?api_base=http://127.0.0.1:8080/v1`), or any other that LiteLLM knows, whose key costs money. `scripted/ports` needs no model: it shows how the script works, no more.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd

import ctxkit as ck
from ctxkit import tokens
from ctxkit.agent import Agent
from ctxkit.models.model_names import model
from ctxkit.studies.seekers import INSTRUCTIONS, world
from ctxkit.tools.tool import tool

if TYPE_CHECKING:
    from ctxkit.policies import Rules
    from ctxkit.studies.seekers import World

TASK = world(questions=12, services=6, lines=20)
HOW = (
    "\nThe file of a service NAME is etc/NAME.toml: read each with read_file before you answer. "
    "End each answer with the sum as digits, without separators."
)
WINDOW = 24_000
"""Tokens; nothing of this task is larger, so that the first run is never cut."""


def settings() -> dict[str, Rules]:
    """Return the two settings by name."""
    masked = ck.presets.swe_agent_mask(n=3).but(name="mask 3")
    return {"none": ck.presets.none(context_window=WINDOW), "mask 3": masked}


async def run(name: str, rules: Rules, at: World = TASK) -> ck.Session:
    """Return the session of a model that was asked all questions under rules."""

    def read_file(path: str) -> str:
        """Read a configuration file, for instance etc/archive.toml."""
        return at.files.get(path, f"there is no file {path}")

    room = {"context_window": WINDOW} if name.startswith("local") else {}
    asked = model(name, counter=tokens.estimate(), clock=time.time, **room)
    session = ck.Session(id=rules.label.replace(" ", "-"), format="native", agent="main")
    agent = Agent(session, model=asked, rules=rules, tools=[tool(read_file)], clock=time.time)
    agent.instruct(INSTRUCTIONS + HOW)
    for n in range(len(at.asked)):
        await agent.turn(at.question(n))
    return agent.session


def right(session: ck.Session, at: World = TASK) -> int:
    """Return how many questions were answered with the right sum."""
    last = {call.turn: call.message.text for call in session.calls}
    sums = [sum(at.ports[name] for name in asked) for asked in at.asked]
    found = [re.findall(r"\d+", last.get(n, "").replace(",", ""))[-1:] for n in range(len(sums))]
    return sum(digits == [str(wanted)] for digits, wanted in zip(found, sums, strict=True))


def table(runs: dict[str, ck.Session], at: World = TASK) -> pd.DataFrame:
    """Return what the replay of the first run foretells of each setting, and what came true."""
    first = next(iter(runs.values()))
    rows = {}
    for name, session in runs.items():
        told = ck.score(ck.replay(first, settings()[name]), loss=False)
        true = ck.score(session, loss=False)
        rows[name] = {
            f"{figure} {when}": row[column]
            for figure, column in (
                ("calls", "calls_n"),
                ("tokens", "prompt_tokens"),
                ("usd", "cost_usd"),
            )
            for when, row in (("foretold", told), ("real", true))
        } | {"right": f"{right(session, at)} of {len(at.asked)}"}
    return pd.DataFrame(rows).T


def main(name: str, folder: Path, at: World = TASK) -> pd.DataFrame:
    """Run both, write them, and return the table."""
    runs = {label: asyncio.run(run(name, rules, at)) for label, rules in settings().items()}
    folder.mkdir(parents=True, exist_ok=True)
    for session in runs.values():
        ck.write(session, folder / f"{session.id}.jsonl")
    made = table(runs, at)
    made.to_csv(folder / "pair.csv")
    return made


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print(main(sys.argv[1], Path([*sys.argv, "pair"][2])).to_string())
