"""The task of the pair: settings that stand in files, and questions whose answers are copied from them.

Each file has a number for each of the keys. A question asks for two numbers, and no number is asked for twice: so
what an answer said before is of no use, and a file must be in sight, or be read again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMES = (
    *("archive", "billing", "cache", "deploy", "export", "fleet", "gateway", "health", "import"),
    *("journal", "kiosk", "ledger", "mirror", "notify", "orders", "portal", "queue", "router"),
    *("search", "tariff", "upload", "vault", "worker", "zone"),
)
KEYS = ("port", "retries", "timeout", "batch", "limit")
INSTRUCTIONS = (
    "You look after the settings of services. Those of a service NAME stand in etc/NAME.toml. Read the file with "
    "read_file before you answer, and again when its numbers are not in sight. Never guess a number. Answer as it "
    "stands in the files: NAME_KEY = NUMBER, NAME_KEY = NUMBER."
)
SOON = 3
"""Services asked about last, from which the next is drawn where a question is near."""
Asked = tuple[tuple[str, str], ...]
"""Service and key of each number that a question asks for."""


@dataclass(frozen=True, slots=True)
class World:
    """Files, and questions about them."""

    files: dict[str, str]
    """Text by path."""
    asked: tuple[Asked, ...]
    numbers: dict[tuple[str, str], int]
    """By service and key."""

    def question(self, n: int) -> str:
        """Return what the user says."""
        return f"Question {n + 1}: what are {' and '.join(f'{a}_{k}' for a, k in self.asked[n])}?"

    def read_file(self, path: str) -> str:
        """Read a configuration file, for instance etc/archive.toml."""
        return self.files.get(path, f"there is no file {path}")

    def answer(self, n: int) -> str:
        """Return the right answer as it was asked for."""
        return ", ".join(f"{a}_{k} = {self.numbers[a, k]}" for a, k in self.asked[n])

    def right(self, n: int, reply: str) -> bool:
        """Return whether a reply ends with the numbers that were asked for, in their order."""
        digits = re.findall(r"\d+", re.sub(r"(?<=\d),(?=\d{3}\b)", "", reply))
        wanted = [str(self.numbers[each]) for each in self.asked[n]]
        return digits[-len(wanted) :] == wanted


def path(name: str) -> str:
    """Return the file of a service."""
    return f"etc/{name}.toml"


def is_unseen(number: int) -> bool:
    """Return whether a number is kept from training: one in ten."""
    return number * 7_919 % 1_009 < 101


def world(
    *,
    questions: int = 12,
    services: int = 8,
    each: int = 2,
    near: float = 0.5,
    seed: int = 7,
    unseen: bool = True,
) -> World:
    """Return a world made by chance: the same for the same numbers.

    Args:
        questions: that the user asks, one a turn; fewer where no numbers are left to be asked for.
        services: files that there are, at most 24.
        each: numbers that a question asks for, of as many services.
        near: share of the numbers that are of one of the last `SOON` services.
        seed: of the chance.
        unseen: its numbers are those that no training has seen (`is_unseen`); False: the others.
    """
    random = Random(seed)
    names = random.sample(NAMES, services)
    pool = [n for n in range(1_000, 10_000) if is_unseen(n) == unseen]
    drawn = iter(random.sample(pool, services * len(KEYS)))
    numbers = {(name, key): next(drawn) for name in names for key in KEYS}
    files = {}
    for name in names:
        keys = random.sample(KEYS, len(KEYS))
        files[path(name)] = "\n".join(f"{name}_{key} = {numbers[name, key]}" for key in keys)
    return World(files, tuple(_asked(names, questions, each, near, random)), numbers)


def _asked(
    names: Sequence[str], questions: int, each: int, near: float, random: Random
) -> Iterable[Asked]:
    left = {name: random.sample(KEYS, len(KEYS)) for name in names}
    last: list[str] = []
    for _ in range(questions):
        chosen: list[str] = []
        while len(chosen) < each:
            free = [n for n in names if left[n] and n not in chosen]
            if not free:
                return
            soon = [n for n in dict.fromkeys(last[::-1]) if n in free][:SOON]
            chosen.append(random.choice(soon if soon and random.random() < near else free))
        last += chosen
        yield tuple((name, left[name].pop()) for name in chosen)
