"""The world of a scripted agent that looks up what it cannot see (`models.lookups`).

The world is a folder of made-up configuration files. Each question of the user asks for the sum of
numbers that stand in some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ctxkit.faces import listed
from ctxkit.models.lookups import GIVEN_UP, PATIENCE, Lookup, known, path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.messages import Message
    from ctxkit.tokens import Counter

__all__ = ["GIVEN_UP", "INSTRUCTIONS", "PATIENCE", "SOON", "World", "seeker", "seen", "world"]
__dir__ = listed(__all__)

SOON = 6
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


def _file(name: str, port: int, lines: int, random: Random) -> str:
    out = [f"{name}_{random.choice(_LINES)}_{i} = {random.randrange(10**6)}" for i in range(lines)]
    out[random.randrange(lines)] = f"{name}_port = {port}"
    return "\n".join(out)


def seeker(*, counter: Counter, clock: Callable[[], float], blind: bool = False) -> Lookup:
    """Return the model of the agent.

    Args:
        counter: counts the prompts for its bill.
        clock: seconds.
        blind: it does not look, but believes what it was ever told: it takes the same steps under
            any policy, so that what a replay foretells must come true.
    """
    return Lookup(tool="read_config", blind=blind, name="seeker", counter=counter, clock=clock)


def seen(messages: Iterable[Message]) -> set[str]:
    """Return the services whose port stands in a prompt, in a result or in a summary."""
    return set(known(messages))
