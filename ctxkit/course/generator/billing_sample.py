"""Sessions like the sample `billing`: two days at one ticket, other names and sizes for each seed."""

from __future__ import annotations

import random
from typing import Any

from ctxkit import tokens
from ctxkit.course.generator import repository, story
from ctxkit.course.generator.agent import Agent
from ctxkit.course.generator.names import StoryNames
from ctxkit.course.generator.tape import SONNET, Tape
from ctxkit.errors import BadArguments
from ctxkit.session.messages import ToolSchema
from ctxkit.session.session import Session

__all__ = ["SEED", "make_billing", "make_session"]

SEED = 4127
"""The seed of the sample `billing`."""
_STARTED = 1773307800.0  # Thursday 12 March 2026, 09:30 UTC
_LONGEST_SEED = 200
"""Characters of a seed."""


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


def make_session(seed: int | str) -> Session:
    """Make a session like the sample `billing` from a seed: the same story, other names and sizes.

    Ticket, queue, invoice, currency, person, dates and numbers are others, as are the sizes of
    files, the detours of the agent and the pauses. The session lists its own fifteen facts
    (`facts_kept`). The same seed makes the same session on any machine.

    Args:
        seed: a whole number or a text, at most 200 characters.

    Returns:
        The session, with the bill of each call and a window of 48,000 tokens.

    Raises:
        BadArguments: the seed is no number and no text.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.course.make_session("an example")
        >>> session.context_window, sum(ck.course.facts_kept(ck.replay(session, "none")).values())
        (48000, 15)
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, str)):
        raise BadArguments("A seed is a whole number or a text: ck.course.make_session(7).")
    if not 0 < len(text := str(seed)) <= _LONGEST_SEED:
        raise BadArguments(f"A seed has 1 to {_LONGEST_SEED} characters.")
    return _play(f"session {text}", StoryNames.draw(text))


def make_billing() -> Session:
    """Return the sample `billing`, as it ships with the kit."""
    return _play(SEED, StoryNames())


def _play(seed: int | str, names: StoryNames) -> Session:
    rng, count = random.Random(seed), tokens.exact_counter()
    fixed = 1_240 + sum(count(f"{t.name}{t.description}{t.parameters}") for t in TOOLS)
    tape = Tape(
        story.SYSTEM, rng=rng, count=count, summary=story.summary, fixed=fixed, start=_STARTED, names=names
    )  # fmt: skip
    story.play(Agent(tape, repository.files(rng), rng))
    facts: list[Any] = [[names.retell(f), names.retell_pattern(p)] for f, p in story.FACTS]
    # the sample is called by its name, others by their seed's
    is_sample = not names.replaced
    return Session(
        id="billing" if is_sample else "made", agent="main", product="sample", cwd="/srv/billing",
        title=names.retell("BILL-4127: the nightly export fails"), model=SONNET.model,
        context_window=SONNET.window, started=_STARTED, tools=TOOLS, log=tuple(tape.log),
        details={"facts": facts},
    )  # fmt: skip
