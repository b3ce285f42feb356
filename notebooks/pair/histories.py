"""Training conversations of the reader: an agent without mistakes, and results that rules cleared.

Worlds are random, with numbers that the test worlds do not have. In each conversation some results
are cleared. The reader learns only those steps that are right given what is visible before them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.course.pair.number_lookup_task import INSTRUCTIONS, format_config_path, make_lookup_task
from ctxkit.course.pair.tiny_language_model import PLACEHOLDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.course.pair.number_lookup_task import ConfigLookupTask


class HistoryStep(NamedTuple):
    """A message of a conversation."""

    role: str
    text: str
    kind: str = ""
    """Of a step that is right by what is visible before it: `read`, `again` or `answer`."""


class _Result(NamedTuple):
    service: str
    is_visible: bool


def make_conversation(
    world: ConfigLookupTask,
    keep_recent: int | None = None,
    visible_share: float = 1.0,
    random: Random | None = None,
) -> list[HistoryStep]:
    """Make a conversation about all questions of a world, as its last prompt shows it.

    Args:
        world: files and questions.
        keep_recent: results at the end that stay whole, at each call; None: all.
        visible_share: share of the results that are not cleared, whatever their age (only where
            `keep_recent` is None).
        random: draws the cleared results, and the placeholder of the conversation.

    Returns:
        The messages in order; only steps to learn have a `kind`.
    """
    random = random or Random(0)
    placeholder = random.choice(PLACEHOLDERS)
    messages: list[tuple[str, str]] = []  # role and text; of a result the service
    results: list[_Result] = []
    for n, keys in enumerate(world.questions):
        messages.append(("user", world.format_question(n)))
        fresh: set[str] = set()  # read for this question: known, though the view may not show it
        for service in (service for service, _ in keys):
            recent = results if keep_recent is None else results[-keep_recent:]
            if service not in fresh | {r.service for r in recent if r.is_visible}:
                messages += [("assistant", format_read_call(service)), ("tool", service)]
                results.append(_Result(service, random.random() < visible_share))
            fresh.add(service)
        messages.append(("assistant", world.format_answer(n)))
    n_old = 0 if keep_recent is None else len(results) - keep_recent
    visible = [result.is_visible and i >= n_old for i, result in enumerate(results)]
    return _label_steps(world, messages, visible, placeholder)


def draw_conversation(
    random: Random, max_questions: int, *, unseen: bool = False
) -> list[HistoryStep]:
    """Make a random conversation with at most so many questions.

    A third are as a mask of two to six results leaves them; in the others single results are
    cleared, or none.
    """
    services = random.randint(3, 10)
    world = make_lookup_task(
        questions=random.randint(min(2, max_questions), max_questions),
        services=services,
        numbers_per_question=random.choice((1, 2, 2, 2)),
        recent_service_share=random.random(),
        seed=random.getrandbits(48),
        unseen=unseen,
    )
    if random.random() < 1 / 3:
        return make_conversation(world, random.randint(2, 6), random=random)
    return make_conversation(world, visible_share=random.choice((1.0, 0.8, 0.6)), random=random)


def choose_step(
    world: ConfigLookupTask, question: int, visible: set[str], read: set[str]
) -> tuple[str, str]:
    """Return the right step and its kind, given services with visible files and those ever read."""
    missing = [service for service, _ in world.questions[question] if service not in visible]
    if missing:
        return format_read_call(missing[0]), "again" if missing[0] in read else "read"
    return world.format_answer(question), "answer"


def format_read_call(service: str) -> str:
    """Return the step that reads the file of a service, as the reader writes it."""
    return f'read_file("{format_config_path(service)}")'


def _label_steps(
    world: ConfigLookupTask,
    messages: Sequence[tuple[str, str]],
    visible: Sequence[bool],
    placeholder: str,
) -> list[HistoryStep]:
    """Put the placeholder in the place of cleared results, and mark the steps that are right."""
    steps = [HistoryStep("system", INSTRUCTIONS)]
    visible_services, read_services, question, result = set[str](), set[str](), -1, 0
    for role, text in messages:
        if role == "user":
            question += 1
            steps.append(HistoryStep(role, text))
        elif role == "assistant":
            right, kind = choose_step(world, question, visible_services, read_services)
            steps.append(HistoryStep(role, text, kind if text == right else ""))
        else:
            file = world.files[format_config_path(text)]
            stub = placeholder.format(lines=len(file.splitlines()))
            steps.append(HistoryStep(role, file if visible[result] else stub))
            read_services.add(text)
            if visible[result]:
                visible_services.add(text)
            result += 1
    return steps
