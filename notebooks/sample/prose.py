"""Words by chance that read like what tools return: pages, logs, letters, source files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_WHO = (
    "The report",
    "One survey",
    "An older study",
    "The authors",
    "A field trial",
    "The agency",
    "Most owners",
)
_DID = ("finds", "puts", "expects", "measured", "doubts", "gives", "corrects")
_OF = (
    "in the first winter",
    "after five years",
    "under part load",
    "in small houses",
    "on paper",
    "in the north",
)
_BUT = (
    "Others disagree, and say why.", "The sample was small.", "No price is named.", "It was repeated twice.",
    "That holds for new parts only.", "A footnote takes it back.", "The figure was checked on site.",
)  # fmt: skip
_THINGS = (
    "pumps", "radiators", "pipes", "filters", "tariffs", "permits", "meters", "valves", "tanks", "windows", "roofs",
    "grants", "fans", "boilers", "sensors", "walls", "cellars", "cables",
)  # fmt: skip
_LEVELS = ("INFO", "INFO", "INFO", "INFO", "WARN", "DEBUG")
_ACTS = (
    "request served",
    "retry scheduled",
    "lease renewed",
    "cache filled",
    "pool grown",
    "batch flushed",
)


def page(rng: Random, title: str, facts: tuple[str, ...], sentences: int = 60) -> str:
    """Return a web page of so many sentences, with the facts somewhere in it."""
    lines = [_sentence(rng) for _ in range(sentences)]
    for fact in facts:
        lines.insert(rng.randrange(len(lines)), fact)
    paragraphs = [" ".join(lines[i : i + 6]) for i in range(0, len(lines), 6)]
    return f"# {title}\n\n" + "\n\n".join(paragraphs)


def _sentence(rng: Random) -> str:
    a, b = rng.sample(_THINGS, 2)
    said = f"{rng.choice(_WHO)} {rng.choice(_DID)} {rng.randrange(3, 97)} of {a} against {b} {rng.choice(_OF)}."
    return f"{said} {rng.choice(_BUT)}" if rng.random() < 0.35 else said


def log(rng: Random, service: str, lines: int, facts: tuple[str, ...] = ()) -> str:
    """Return lines of a service's log, with the facts as lines of it."""
    out = []
    for i in range(lines):
        clock = f"02:{i // 60 % 60:02d}:{i % 60:02d}.{rng.randrange(1000):03d}"
        took = f"took={rng.randrange(2, 900)}ms shard={rng.randrange(16)}"
        out.append(f"{clock} {rng.choice(_LEVELS)} {service} {rng.choice(_ACTS)} {took}")
    for fact in facts:
        out.insert(rng.randrange(len(out)), f"02:17:00.000 ERROR {service} {fact}")
    return "\n".join(out)


def source(rng: Random, name: str, functions: int, call: str) -> str:
    """Return a source file of so many functions, one in three of which makes a call."""
    out = [f'"""The {name} of the shop."""', "from shop import api, models", ""]
    for i in range(functions):
        thing = rng.choice(_THINGS)
        body = (
            f"    rows = {call}({thing!r}, limit={rng.randrange(10, 500)})"
            if i % 3 == 0
            else "    rows = []"
        )
        out += [
            "", f"def {name}_{thing}_{i}(order, *, dry=False):", f'    """Work out the {thing} of an order."""', body,
            f"    total = sum(r.amount for r in rows) * {rng.randrange(2, 90)}",
            "    return models.Line(order, total) if not dry else None", "",
        ]  # fmt: skip
    return "\n".join(out)


def letter(rng: Random, name: str, about: str, fact: str = "") -> str:
    """Return a letter."""
    lines = [_sentence(rng) for _ in range(rng.randrange(6, 16))]
    if fact:
        lines.insert(rng.randrange(len(lines)), fact)
    return (
        f"From: {name}\nSubject: {about}\n\n"
        + " ".join(lines)
        + f"\n\nBest wishes, {name.split('@', 1)[0].title()}"
    )
