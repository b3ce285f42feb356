"""A manager of a team (fuseraft's `magentic`): it says, every second turn, who does what next.

It is an agent like the others: its session is a child with an account of its own, and what it says
is heard. A round without progress counts; after so many it is told to plan anew, and after so many
new plans the team stops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.teams.conditions import Condition
from ctxkit.teams.filters import viewed
from ctxkit.teams.roles import model_of, rules_of_all
from ctxkit.teams.rosters import Manager, Member, TeamState, Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.teams.config_fields import Fields

NEXT, COMPLETE, PROGRESS = "next_agent", "task_complete", "progress"
_TOLD = """You lead a team and do none of its work. Say first what is asked, what is known and a \
plan; then, in each of your turns, look at what was done and say who does what next.
End each reply with one JSON object:
{{"{progress}": true where the last round brought the task on, else false,
 "{complete}": true only when the task is done,
 "{next}": one of {names},
 "instruction": what this agent shall do now}}
The agents:
{agents}"""


def manager_of(f: Fields, agents: Sequence[Fields], config: Mapping[str, Any]) -> Member:
    """Return the manager.

    Args:
        f: the section `Magentic`.
        agents: the sections of the others.
        config: the whole config.
    """
    names = [a.text("Name").strip() for a in agents]
    told = _TOLD.format(progress=PROGRESS, complete=COMPLETE, next=NEXT,
                        names=", ".join(names), agents=described(agents))  # fmt: skip
    own = f.text("Instructions").strip()
    return chooser("Manager", f"{own}\n\n{told}" if own else told, f, agents, config)


def chooser(
    name: str, told: str, f: Fields, agents: Sequence[Fields], config: Mapping[str, Any]
) -> Member:
    """Return an agent that a selection brings, to say who is next.

    Args:
        name: its name, where no other agent has it.
        told: its instructions.
        f: the section that names its model.
        agents: the sections of the others.
        config: the whole config.
    """
    taken = {a.text("Name").strip().casefold() for a in agents}
    free = (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3)))
    made = Member(
        name=next(n for n in free if n.casefold() not in taken), instructions=told, tools=(),
        model=model_of(f), rules=rules_of_all(config),
    )  # fmt: skip
    return replace(made, rules=viewed(made))


def described(agents: Sequence[Fields]) -> str:
    """Return a line for each agent: its name, and what it is for."""
    return "\n".join(f"- {a.text('Name')}: {_what(a)}" for a in agents)


def _what(agent: Fields) -> str:
    return plain(agent.text("Description") or agent.text("Instructions") or "no description", 200)


def patience_of(f: Fields, name: str) -> Manager:
    """Return how long a manager of that name may go on without progress (fuseraft's defaults)."""
    stalls, resets = f.get("MaxStallCount"), f.get("MaxResetCount")
    return Manager(
        name=name,
        stalls=3 if stalls is None else max(f.number("MaxStallCount"), 1),
        resets=2 if resets is None else f.number("MaxResetCount"),
    )


def rounds_of(f: Fields) -> int:
    """Return how many turns the rounds of a manager are: its own and that of an agent each."""
    return 2 * (f.number("MaxRoundCount") or 20) + 1


def led(manager: str, names: Sequence[str], end: str) -> dict[str, TeamState]:
    """Return the states of a team that a manager leads: it, an agent, it again."""
    done = Transition(to=end, when=Condition(field=COMPLETE, operator="Is", value="true"))
    ways = [Transition(to=n, when=Condition(field=NEXT, operator="Is", value=n)) for n in names]
    states = {manager: TeamState(name=manager, agent=manager, transitions=(done, *ways))}
    back = (Transition(to=manager),)
    states |= {n: TeamState(name=n, agent=n, transitions=back) for n in names}
    return states
