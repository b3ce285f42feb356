"""Training data of the reader: conversations of an agent that makes no mistake, as rules may have left them.

Worlds are made by chance, with numbers that the held-out worlds do not have. Of each conversation some results are
cleared. The reader learns those steps that are right by what is in sight before them, and no others.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.course.pair.task import INSTRUCTIONS, path, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.course.pair.task import World

CLEARED = ("Old environment output: ({lines} lines omitted)", "[Old tool result content cleared]")
"""What stands in the place of a result: SWE-agent's words, and Claude Code's."""


class HistoryStep(NamedTuple):
    """A message of a conversation."""

    role: str
    text: str
    kind: str = ""
    """Of a step that is right by what is in sight before it: `read`, `again` or `answer`; else empty."""


class _Result(NamedTuple):
    name: str
    shown: bool


def call(name: str) -> str:
    """Return the step that reads the file of a service, as the reader writes it."""
    return f'read_file("{path(name)}")'


def conversation(
    at: World, keep: int | None = None, visible_share: float = 1.0, random: Random | None = None
) -> list[HistoryStep]:
    """Return a conversation about all questions of a world, as the last prompt shows it.

    Args:
        at: the world.
        keep: results at the end that stay whole, at each call; None: all.
        visible_share: share of the results that are not cleared, by chance, whatever their age (only where
            `keep` is None).
        random: of that chance, and which words stand for a cleared result.
    """
    random = random or Random(0)
    cleared = random.choice(CLEARED)
    steps: list[tuple[str, str]] = []  # what was said, and of a result the service
    results: list[_Result] = []
    for n, asked in enumerate(at.asked):
        steps.append(("user", at.question(n)))
        fresh: set[str] = set()  # read for this question: known, though the view may not show it
        for name in (name for name, _ in asked):
            recent = results if keep is None else results[-keep:]
            if name not in fresh | {r.name for r in recent if r.shown}:
                steps += [("assistant", call(name)), ("tool", name)]
                results.append(_Result(name, random.random() < visible_share))
            fresh.add(name)
        steps.append(("assistant", at.answer(n)))
    whole = [r.shown and (keep is None or i >= len(results) - keep) for i, r in enumerate(results)]
    return _seen(at, steps, whole, cleared)


def _seen(
    at: World, steps: Sequence[tuple[str, str]], whole: Sequence[bool], cleared: str
) -> list[HistoryStep]:
    """Return what was said, with results cleared that are not whole, and which steps are right by it."""
    out = [HistoryStep("system", INSTRUCTIONS)]
    sight, read, question, result = set[str](), set[str](), -1, 0
    for role, text in steps:
        if role == "user":
            question += 1
            out.append(HistoryStep(role, text))
        elif role == "assistant":
            right, kind = step(at, question, sight, read)
            out.append(HistoryStep(role, text, kind if text == right else ""))
        else:
            file = at.files[path(text)]
            stub = cleared.format(lines=len(file.splitlines()))
            out.append(HistoryStep(role, file if whole[result] else stub))
            read.add(text)
            if whole[result]:
                sight.add(text)
            result += 1
    return out


def step(at: World, question: int, sight: set[str], read: set[str]) -> tuple[str, str]:
    """Return the right step and its kind, given the services whose files are in sight, and were ever read."""
    missing = [name for name, _ in at.asked[question] if name not in sight]
    if missing:
        return call(missing[0]), "again" if missing[0] in read else "read"
    return at.answer(question), "answer"


def drawn(random: Random, questions: int, *, unseen: bool = False) -> list[HistoryStep]:
    """Return a conversation made by chance, with up to so many questions.

    A third are as a mask of two to six results leaves them; in the others single results are cleared, or none.
    """
    services = random.randint(3, 10)
    at = world(
        questions=random.randint(min(2, questions), questions),
        services=services,
        each=random.choice((1, 2, 2, 2)),
        near=random.random(),
        seed=random.getrandbits(48),
        unseen=unseen,
    )
    if random.random() < 1 / 3:
        return conversation(at, random.randint(2, 6), random=random)
    return conversation(at, visible_share=random.choice((1.0, 0.8, 0.6)), random=random)
