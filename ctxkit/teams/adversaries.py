"""Makers and critics (fuseraft's `adversarial`): what one agent makes another one judges, until it
passes or the rounds are over.

A critic sees its own instructions and what it is to judge: not the task, nothing that others said,
and none of its own earlier turns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.presets.configs.fuseraft import MAX_STATES, check_count
from ctxkit.teams.config_fields import Fields
from ctxkit.teams.filters import anew
from ctxkit.teams.rosters import TeamState, Transition
from ctxkit.teams.routings import END, Routing, once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.teams.routings import SelectionParts

ROUNDS, MOST_ROUNDS = 3, 50
"""Times that a critic judges in each stage: fuseraft's usual number, and the most."""
PASSED = "APPROVED"
"""What a critic says of what passes, where the config names nothing else."""


class _Stage(NamedTuple):
    """One stage of a config."""

    maker: str
    critic: str
    label: str
    hears: bool
    """Whether its maker hears what the critic says; else its prompt brings it."""


def by_stages(given: SelectionParts) -> Routing:
    """Return stages in which one agent makes and another one judges.

    What passes, or was judged last, is what the next stage goes on from.
    """
    f = given.selection.section("Adversarial") or Fields({})
    rounds = ROUNDS if f.get("Rounds") is None else f.number("Rounds")
    if not 1 <= rounds <= MOST_ROUNDS:
        raise BadArguments(f"Adversarial.Rounds is a number from 1 to {MOST_ROUNDS}.")
    stages = [_stage(given, s, n) for n, s in enumerate(f.rows("Stages"), 1)]
    if not stages:
        raise BadArguments("An adversarial selection needs Stages: a Generator and a Critic each.")
    check_count("states made of Adversarial.Stages", 2 * rounds * len(stages), MAX_STATES)
    once("stages", [s.label for s in stages])
    both = {s.maker for s in stages} & {s.critic for s in stages}
    if both:
        raise BadArguments(
            f"{plain(min(both), 60)} is a Generator and a Critic: a critic that hears what it makes"
            " elsewhere cannot judge by itself. Give the stages agents of their own."
        )
    word, firsts = f.text("PassKeyword").strip() or PASSED, [f"{s.label} 1" for s in stages]
    states = {END: TeamState(name=END, terminal=True)}
    for stage, after in zip(stages, [*firsts[1:], END], strict=True):
        states |= {s.name: s for s in _states(stage, rounds, word, after)}
    makers, critics = {s.maker for s in stages}, {s.critic for s in stages}
    members = [replace(m, isolation="shared") if m.name in makers else m for m in given.members]
    sealed = tuple(anew(m, isolation="sealed", context=()) if m.name in critics else m
                   for m in members)  # fmt: skip
    return Routing(states=states, initial=firsts[0], members=sealed,
                   max_turns=2 * rounds * len(stages) + 1)  # fmt: skip


def _stage(given: SelectionParts, f: Fields, n: int) -> _Stage:
    maker = given.agent(f.text("Generator"), f"the Generator of stage {n}")
    critic = given.agent(f.text("Critic"), f"the Critic of stage {n}")
    if maker == critic:
        raise BadArguments(f"Stage {n}: its Generator and its Critic are both {plain(maker, 60)}.")
    hears = next(not m.context for m in given.members if m.name == maker)
    return _Stage(maker, critic, f.text("Label").strip() or f"{maker} → {critic}", hears)


def _states(stage: _Stage, rounds: int, word: str, after: str) -> Iterator[TeamState]:
    """Yield two states for each round: it is made, it is judged."""
    for n in range(1, rounds + 1):
        made, judged = f"{stage.label} {n}", f"{stage.label} {n}, judged"
        reads = "" if stage.hears or n == 1 else stage.critic
        yield TeamState(name=made, agent=stage.maker, reads=reads,
                        transitions=(Transition(to=judged),))  # fmt: skip
        again = f"{stage.label} {n + 1}" if n < rounds else after
        ways = (Transition(to=after, signal=word), Transition(to=again))
        yield TeamState(name=judged, agent=stage.critic, reads=stage.maker, transitions=ways)
