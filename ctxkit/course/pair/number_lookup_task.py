"""The lookup task of the recorded pair: copy numbers out of configuration files."""

# Each file has one number for each key. A question asks for two numbers, and no number is asked for
# twice. An earlier answer is therefore of no use: the file must be visible, or be read again.

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SERVICES = (
    *("archive", "billing", "cache", "deploy", "export", "fleet", "gateway", "health", "import"),
    *("journal", "kiosk", "ledger", "mirror", "notify", "orders", "portal", "queue", "router"),
    *("search", "tariff", "upload", "vault", "worker", "zone"),
)
CONFIG_KEYS = ("port", "retries", "timeout", "batch", "limit")
INSTRUCTIONS = (
    "You look after the settings of services. Those of a service NAME stand in etc/NAME.toml. "
    "Read the file with read_file before you answer, and again when its numbers are not in sight. "
    "Never guess a number. Answer as it "
    "stands in the files: NAME_KEY = NUMBER, NAME_KEY = NUMBER."
)
N_RECENT_SERVICES = 3
"""Services of the last questions from which the next one is drawn, if it is a near one."""
QuestionKeys = tuple[tuple[str, str], ...]
"""Service and key of each number that a question asks for."""


@dataclass(frozen=True, slots=True)
class ConfigLookupTask:
    """Configuration files and questions about them."""

    files: dict[str, str]
    """Text by path."""
    questions: tuple[QuestionKeys, ...]
    numbers: dict[tuple[str, str], int]
    """By service and key."""

    def format_question(self, n: int) -> str:
        """Return question `n` (from 0) as the user asks it."""
        keys = " and ".join(f"{service}_{key}" for service, key in self.questions[n])
        return f"Question {n + 1}: what are {keys}?"

    def read_file(self, path: str) -> str:
        """Read a configuration file, for instance etc/archive.toml."""
        return self.files.get(path, f"there is no file {path}")

    def format_answer(self, n: int) -> str:
        """Return the right answer to question `n` in the requested form."""
        return ", ".join(
            f"{service}_{key} = {self.numbers[service, key]}" for service, key in self.questions[n]
        )

    def is_right(self, n: int, reply: str) -> bool:
        """Return whether a reply ends with the numbers of question `n`, in their order.

        Args:
            n: number of the question, from 0.
            reply: the text of the reply; commas between thousands are ignored.
        """
        digits = re.findall(r"\d+", re.sub(r"(?<=\d),(?=\d{3}\b)", "", reply))
        expected = [str(self.numbers[each]) for each in self.questions[n]]
        return digits[-len(expected) :] == expected


def format_config_path(service: str) -> str:
    """Return the path of a service's configuration file."""
    return f"etc/{service}.toml"


def is_excluded_from_training(number: int) -> bool:
    """Return whether a number is excluded from training: one in ten is."""
    return number * 7_919 % 1_009 < 101


def make_lookup_task(
    *,
    questions: int = 12,
    services: int = 8,
    numbers_per_question: int = 2,
    recent_service_share: float = 0.5,
    seed: int = 7,
    unseen: bool = True,
) -> ConfigLookupTask:
    """Make random files and questions; the same arguments make the same world.

    Args:
        questions: number of questions, one per turn; fewer where no number is left to ask for.
        services: number of files, at most 24.
        numbers_per_question: numbers that a question asks for, each of another service.
        recent_service_share: share of the numbers that are of one of the last
            `N_RECENT_SERVICES` services.
        seed: seed of the random choices.
        unseen: use only numbers that training has not seen (`is_excluded_from_training`); False:
        only the others.

    Returns:
        The files, the keys of each question, and the number of each key.
    """
    random = Random(seed)  # noqa: S311  no secret
    names = random.sample(SERVICES, services)
    pool = [n for n in range(1_000, 10_000) if is_excluded_from_training(n) == unseen]
    sample = iter(random.sample(pool, services * len(CONFIG_KEYS)))
    numbers = {(name, key): next(sample) for name in names for key in CONFIG_KEYS}
    files = {}
    for name in names:
        keys = random.sample(CONFIG_KEYS, len(CONFIG_KEYS))
        lines = [f"{name}_{key} = {numbers[name, key]}" for key in keys]
        files[format_config_path(name)] = "\n".join(lines)
    drawn_keys = _draw_questions(
        names, questions, numbers_per_question, recent_service_share, random
    )
    return ConfigLookupTask(files, tuple(drawn_keys), numbers)


def _draw_questions(
    names: Sequence[str], questions: int, numbers: int, near_share: float, random: Random
) -> Iterable[QuestionKeys]:
    unused = {name: random.sample(CONFIG_KEYS, len(CONFIG_KEYS)) for name in names}
    previous: list[str] = []
    for _ in range(questions):
        chosen: list[str] = []
        while len(chosen) < numbers:
            free = [n for n in names if unused[n] and n not in chosen]
            if not free:
                return
            recent = [n for n in dict.fromkeys(previous[::-1]) if n in free][:N_RECENT_SERVICES]
            is_near = bool(recent) and random.random() < near_share
            chosen.append(random.choice(recent if is_near else free))
        previous += chosen
        yield tuple((name, unused[name].pop()) for name in chosen)
