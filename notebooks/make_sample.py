"""Make the sample session that ships with the kit: `python notebooks/make_sample.py` writes the same bytes each time.

Everything in it was made here: the repository, the agent, the people. The tools really read and edit the made-up
files, sizes are counted, and the bill follows a cache that keeps a prompt for five minutes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sample import repository, story
from sample.agent import Agent
from sample.tape import MODEL, WINDOW, Tape

import ctxkit as ck
from ctxkit import samples, tokens
from ctxkit.messages import ToolSchema

SEED = 4127
STARTED = 1773307800.0  # Thursday 12 March 2026, 09:30 UTC


def _tool(name: str, description: str, **fields: str) -> ToolSchema:
    properties = {field: {"type": kind} for field, kind in fields.items()}
    return ToolSchema(
        name=name, description=description, parameters={"type": "object", "properties": properties}
    )


TOOLS = (
    _tool(
        "read_file",
        "Read a file, or some of its lines.",
        path="string",
        first="integer",
        last="integer",
    ),
    _tool("search", "Search files with a regular expression.", pattern="string", path="string"),
    _tool(
        "edit",
        "Replace a text in a file, or create the file.",
        path="string",
        old="string",
        new="string",
    ),
    _tool("run", "Run a command in the repository.", command="string"),
)


def make() -> ck.Session:
    """Play the story once and return it as a session."""
    rng, count = random.Random(SEED), tokens.exact()
    fixed = 1_240 + sum(count(f"{t.name}{t.description}{t.parameters}") for t in TOOLS)
    tape = Tape(
        story.SYSTEM, rng=rng, count=count, summary=story.summary, fixed=fixed, start=STARTED
    )
    story.play(Agent(tape, repository.files(rng), rng))
    return ck.Session(
        id="billing", title="BILL-4127: the nightly export fails", agent="main", product="sample", cwd="/srv/billing",
        model=MODEL, context_window=WINDOW, started=STARTED, tools=TOOLS, log=tuple(tape.log),
        details={"facts": [list(f) for f in story.FACTS]},
    )  # fmt: skip


if __name__ == "__main__":
    session = make()
    ck.write(session, samples.path("billing"), format="native")
    print(session)
