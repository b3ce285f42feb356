"""A model that picks the next agent (fuseraft's `llm`): every second turn it says a name, and
nothing else.

It is an agent like the others: it hears what they said, its session is a child with an account of
its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.teams.managers import chooser, described
from ctxkit.teams.rosters import TeamState, Transition
from ctxkit.teams.routings import Routing

if TYPE_CHECKING:
    from ctxkit.teams.routings import SelectionParts

AGENTS, HISTORY = "{{$agents}}", "{{$history}}"
"""What stands for the agents and for what they said in a prompt of the config."""
_TOLD = f"""You do none of the work: you pick the agent that speaks next. The agents:
{AGENTS}
Look at what was done, and reply with the name of one of them, and nothing else."""


def by_model(given: SelectionParts) -> Routing:
    """Return a team whose next agent a model picks; it goes on until `Termination`."""
    prompt = given.selection.text("Prompt").strip() or _TOLD
    told = prompt.replace(AGENTS, described(given.agents)).replace(HISTORY, "(it follows)")
    picks = chooser("Selector", told, given.selection, given.agents, given.config)
    ways = tuple(Transition(to=n, signal=n) for n in given.names)
    states = {picks.name: TeamState(name=picks.name, agent=picks.name, transitions=ways)}
    back = (Transition(to=picks.name),)
    states |= {n: TeamState(name=n, agent=n, transitions=back) for n in given.names}
    return Routing(states=states, initial=picks.name, extra=(picks,), turns_a_round=2)
