"""A scripted agent whose next step depends on what it is shown, and the world it works in.

The world is a folder of made-up configuration files. Each question of the user asks for the sum of
numbers that stand in some of them. The agent looks for them in the messages of its prompt; a number
that it is not shown it reads from its file, for the first time or again. So a context policy that
takes a number away which is still needed makes the agent take another step: what a replay, which
keeps the recorded steps, cannot know. After `PATIENCE` steps of one question it gives up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ctxkit.faces import listed
from ctxkit.messages import Message, Text, ToolCall
from ctxkit.models.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.models.model import Emit, Request
    from ctxkit.tokens import Counter

__all__ = ["GIVEN_UP", "INSTRUCTIONS", "PATIENCE", "SOON", "World", "seeker", "seen", "world"]
__dir__ = listed(__all__)

SOON = 6
"""Ports asked for last, from which the next are drawn where a question is near."""
PATIENCE = 6
"""Files that the agent reads for one question, at most."""
GIVEN_UP = "I cannot find all of it."
_FACT = re.compile(r"\b([a-z]+_port) = (\d+)")
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


def world(
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
    files = {path(name): _file(name, ports[name], lines, random) for name in names}
    return World(files, _asked(names, questions, each, near, random), ports)


def _asked(
    names: Sequence[str], questions: int, each: int, near: float, random: Random
) -> tuple[tuple[str, ...], ...]:
    out: list[tuple[str, ...]] = []
    last: list[str] = []
    for _ in range(questions):
        chosen: list[str] = []
        while len(chosen) < each:
            pool = last[-SOON:] if last and random.random() < near else names
            chosen += [n for n in [random.choice(pool)] if n not in chosen]
        last += chosen
        out.append(tuple(chosen))
    return tuple(out)


def path(name: str) -> str:
    """Return the file of a service."""
    return f"etc/{name}.toml"


def _file(name: str, port: int, lines: int, random: Random) -> str:
    out = [f"{name}_{random.choice(_LINES)}_{i} = {random.randrange(10**6)}" for i in range(lines)]
    out[random.randrange(lines)] = f"{name}_port = {port}"
    return "\n".join(out)


def seeker(
    at: World, *, counter: Counter, clock: Callable[[], float], blind: bool = False
) -> Scripted:
    """Return the model of the agent.

    Args:
        at: the world.
        counter: counts the prompts for its bill.
        clock: seconds.
        blind: it does not look, but believes what it was ever told: it takes the same steps under
            any policy, so that what a replay foretells must come true.
    """
    return _Seeker(at, counter, clock, blind=blind)


class _Seeker(Scripted):
    """Answers from what it is shown; billed as any scripted model."""

    def __init__(
        self, at: World, counter: Counter, clock: Callable[[], float], *, blind: bool
    ) -> None:
        super().__init__((), name="seeker", counter=counter, clock=clock)
        self._world, self._blind, self._read = at, blind, set[str]()
        self._asked: Request | None = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Look at the prompt, then answer as a scripted model does."""
        self._asked = request
        return await super().__call__(request, emit)

    def reply(self, turn: int, step: int) -> Message:
        """Return the next step: read the first file whose number is not in sight, else answer."""
        assert self._asked is not None  # noqa: S101  it is called with a request
        wanted = self._world.asked[turn]
        known = self._read if self._blind else seen(self._asked.messages)
        missing = next((name for name in wanted if name not in known), None)
        if missing is not None and step >= PATIENCE:
            return Message(role="assistant", parts=(Text(GIVEN_UP),), stop="stop")
        if missing is None:
            total = sum(self._world.ports[name] for name in wanted)
            return Message(role="assistant", parts=(Text(f"The sum is {total}."),), stop="stop")
        self._read.add(missing)
        call = ToolCall(f"read_{turn}_{step}", "read_config", {"path": path(missing)})
        return Message(role="assistant", parts=(call,), stop="tool")


def seen(messages: Iterable[Message]) -> set[str]:
    """Return the services whose port stands in a prompt, in a result or in a summary."""
    found = (match for m in messages for match in _FACT.finditer(m.text))
    return {match[1].removesuffix("_port") for match in found}
