"""Live runs of one task with a model under two settings, compared with their replays.

`python -m ctxkit.course.pair.live_runs_and_replays [MODEL [FOLDER]]` asks a model twelve questions
about numbers in files, whose right answers are known: once without context management, once with
only the results of its last three tool calls in the prompt. It writes both sessions to FOLDER, and
a table of what the replay of the first predicts of the second, beside the real figures. MODEL is a
local file (`local/model.gguf`), a server's model (`ollama_chat/qwen3:4b`,
`openai/NAME?api_base=http://127.0.0.1:8080/v1`), or any other that LiteLLM knows, whose key costs
money. Without it the `reader` answers, a small model that `notebooks/pair/train.py` trained for
this task alone, and the pair beside this file is written again. `... worlds` asks it in twenty
other worlds (`worlds.csv`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import ctxkit
from ctxkit import tokens
from ctxkit.agent import Agent
from ctxkit.agent.models.model_factory import make_model
from ctxkit.agent.tools.tool import tool
from ctxkit.course.pair.number_lookup_task import INSTRUCTIONS, make_lookup_task
from ctxkit.course.pair.tiny_language_model import TinyReaderModel
from ctxkit.experiments.studies.closed_loop import apply_model_prices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.agent.models.model import Model
    from ctxkit.course.pair.number_lookup_task import ConfigLookupTask
    from ctxkit.policies import Rules

PAIR_FOLDER = Path(__file__).parent
"""Folder of the recorded pair."""
READER = "reader"
"""Name of the small model."""
WORLD = make_lookup_task()
"""Files and questions of the recorded pair."""
CONTEXT_WINDOW = 8_000
"""Tokens; no prompt of this task is larger, so that the first run is never compacted."""
COUNTER = tokens.get_counter("chars/4")
"""Counts the reader's tokens, and those of its replays."""


def make_run_settings() -> dict[str, Rules]:
    """Return the rules of the two runs by name."""
    mask = ctxkit.presets.swe_agent_mask(n=3).but(name="mask 3")
    return {"none": ctxkit.presets.none(context_window=CONTEXT_WINDOW), "mask 3": mask}


async def run_task(name: str, rules: Rules, task: ConfigLookupTask = WORLD) -> ctxkit.Session:
    """Ask a model all questions of a task under rules.

    The reader's clock counts (a second for each look at it), so that its session is the same each
    time.

    Args:
        name: `reader`, or a model as `%%agent` names it.
        rules: context management of the run.
        task: files and questions.

    Returns:
        The session of the run.
    """
    ticks = count(1_800_000_000)
    clock = (lambda: float(next(ticks))) if name == READER else time.time
    session = ctxkit.Session(id=rules.label.replace(" ", "-"), format="native", agent="main")
    agent = Agent(
        session,
        model=_make_task_model(name, clock),
        rules=rules,
        tools=[tool(task.read_file)],
        clock=clock,
    )
    agent.instruct(INSTRUCTIONS)
    for n in range(len(task.questions)):
        await agent.turn(task.format_question(n))
    return agent.session


def replay_under_setting(session: ctxkit.Session, name: str) -> ctxkit.Session:
    """Return the replay of a run under one of the settings, with the price of the run.

    Args:
        session: the run.
        name: name of the setting, a key of `make_run_settings()`.
    """
    rules = make_run_settings()[name]
    is_reader = is_reader_run(session)
    return ctxkit.replay(price_run(session), rules.but(counter=COUNTER) if is_reader else rules)


def price_run(session: ctxkit.Session) -> ctxkit.Session:
    """Return a run with a price: the reader costs nothing, and gets the price of a known model."""
    return apply_model_prices(session) if is_reader_run(session) else session


def is_reader_run(session: ctxkit.Session) -> bool:
    """Return whether the reader answered."""
    return any(m.model == READER for m in session.messages)


def collect_answers(session: ctxkit.Session) -> dict[int, str]:
    """Return the last reply of each turn."""
    return {call.turn: call.message.text for call in session.calls}


def count_right_answers(session: ctxkit.Session, task: ConfigLookupTask = WORLD) -> int:
    """Return how many questions were answered with the right numbers.

    Args:
        session: the run, one question per turn.
        task: the task that it worked on.
    """
    answers = collect_answers(session)
    return sum(task.is_right(n, answers.get(n, "")) for n in range(len(task.questions)))


def count_repeated_reads(session: ctxkit.Session) -> int:
    """Return how often a file was read again."""
    paths = [str(c.arguments.get("path")) for m in session.messages for c in m.tool_calls]
    return len(paths) - len(set(paths))


def compare_with_replay(
    runs: dict[str, ctxkit.Session], task: ConfigLookupTask = WORLD
) -> pd.DataFrame:
    """Compare the real run of each setting with its prediction by a replay of the first run.

    Args:
        runs: sessions by the name of their setting.
        task: the task with the questions.

    Returns:
        One row a setting: calls, prompt tokens and dollars, each `predicted` and `real`, then
        `read again` and `right`.
    """
    first = next(iter(runs.values()))
    rows = {}
    for name, session in runs.items():
        predicted = ctxkit.score(replay_under_setting(first, name), loss=False)
        real = ctxkit.score(price_run(session), loss=False)
        right = f"{count_right_answers(session, task)} of {len(task.questions)}"
        rows[name] = {
            f"{figure} {source}": row[column]
            for figure, column in (
                ("calls", "calls_n"),
                ("tokens", "prompt_tokens"),
                ("usd", "cost_usd"),
            )
            for source, row in (("predicted", predicted), ("real", real))
        } | {"read again": count_repeated_reads(session), "right": right}
    return pd.DataFrame(rows).T


def record_both_runs(
    name: str = READER, folder: Path = PAIR_FOLDER, task: ConfigLookupTask = WORLD
) -> pd.DataFrame:
    """Run the task under both settings, write sessions and table, and return the table.

    Args:
        name: name of the model.
        folder: folder of the files; it is created if missing.
        task: the questions and their files.

    Returns:
        The table of `compare_with_replay`.
    """
    runs = _run_settings(name, task)
    folder.mkdir(parents=True, exist_ok=True)
    for session in runs.values():
        ctxkit.write(session, folder / f"{session.id}.jsonl")
    table = compare_with_replay(runs, task)
    table.to_csv(folder / "pair.csv")
    return table


def compare_in_other_worlds(seeds: Iterable[int] = range(100, 120)) -> pd.DataFrame:
    """Return the reader's table of each of other worlds, a row a world and setting."""
    tables = []
    for seed in seeds:
        world = make_lookup_task(seed=seed)
        table = compare_with_replay(_run_settings(READER, world), world)
        tables.append(table.rename_axis("rules").assign(seed=seed))
    return pd.concat(tables).set_index("seed", append=True).swaplevel()


def _make_task_model(name: str, clock: Callable[[], float]) -> Model:
    if name == READER:
        return TinyReaderModel(counter=COUNTER, clock=clock)
    if name.startswith("local"):
        return make_model(name, counter=COUNTER, clock=clock, context_window=CONTEXT_WINDOW)
    return make_model(name, counter=COUNTER, clock=clock)


def _run_settings(name: str, task: ConfigLookupTask) -> dict[str, ctxkit.Session]:
    settings = make_run_settings().items()
    return {label: asyncio.run(run_task(name, rules, task)) for label, rules in settings}


def _run_command(arguments: list[str]) -> None:
    if len(arguments) > 2:
        sys.exit(__doc__)
    if arguments == ["worlds"]:
        compare_in_other_worlds().to_csv(PAIR_FOLDER / "worlds.csv")
        return
    # a model without a folder does not write over the pair that is there
    name, folder = (*arguments, "pair")[:2] if arguments else (READER, PAIR_FOLDER)
    sys.stdout.write(f"{record_both_runs(name, Path(folder)).to_string()}\n")


if __name__ == "__main__":
    _run_command(sys.argv[1:])
