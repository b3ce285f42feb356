"""Work that is spread and gathered: all have the same task (fuseraft's `scattergather`), or an item
of a list each (`mapreduce`). Agents take turns here, too; none hears another before all had theirs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.teams.brought import MOST_ITEMS
from ctxkit.teams.config_fields import Fields
from ctxkit.teams.filters import anew
from ctxkit.teams.rosters import TeamState, Transition
from ctxkit.teams.routings import END, Routing

if TYPE_CHECKING:
    from ctxkit.teams.routings import SelectionParts

SPLIT, MAP, REDUCE, GATHER = "Split", "Map", "Reduce", "Gather"
RETRIES = 3
"""Replies without a list, one after the other, after which the team stops (fuseraft's)."""


def by_scatter(given: SelectionParts) -> Routing:
    """Return participants that have a turn each, and one that makes an answer of all of them."""
    f = given.selection.section("ScatterGather") or Fields({})
    names = [given.agent(n, "an agent of ScatterGather.Participants")
             for n in f.texts("Participants")]  # fmt: skip
    if not names:
        raise BadArguments("A scattergather selection needs Participants: names of Agents.")
    last = given.agent(f.text("Synthesizer"), "ScatterGather.Synthesizer")
    branches = {f"{n}. {name}": name for n, name in enumerate(names, 1)}
    states = {s: TeamState(name=s, agent=name) for s, name in branches.items()}
    twice = {n for n in names if names.count(n) > 1}
    members = tuple(anew(m) if m.name in twice else m for m in given.members)
    return Routing(
        states=states | _ending(GATHER, last), initial=GATHER, branches=tuple(branches),
        members=tuple(replace(m, isolation="shared") if m.name == last else m for m in members),
        max_turns=len(names) + 2,
    )  # fmt: skip


def by_items(given: SelectionParts) -> Routing:
    """Return three agents: one makes a list, one has a turn for each item, one the answer."""
    f = given.selection.section("MapReduce") or Fields({})
    splits, maps, reduces = (
        given.agent(f.text(key), f"MapReduce.{key}") for key in ("Splitter", "Mapper", "Reducer")
    )
    path = f.text("ItemsJsonPath").strip() or "items"
    retries = RETRIES if f.get("MaxSplitterRetries") is None else f.number("MaxSplitterRetries")
    if retries < 1:
        raise BadArguments("MapReduce.MaxSplitterRetries is a number of 1 or more.")
    way = Transition(to=REDUCE, targets=(MAP,))
    states = {
        SPLIT: TeamState(name=SPLIT, agent=splits, splits=path, transitions=(way,)),
        MAP: TeamState(name=MAP, agent=maps, reads=splits, item=path),
    }
    heard = {maps, reduces}
    members = [replace(m, isolation="shared") if m.name in heard else m for m in given.members]
    return Routing(
        states=states | _ending(REDUCE, reduces), initial=SPLIT, retries=retries,
        members=tuple(anew(m) if m.name == maps else m for m in members),
        max_turns=retries + MOST_ITEMS + 2,
    )  # fmt: skip


def _ending(name: str, agent: str) -> dict[str, TeamState]:
    """Return the state in which the answer is made, and the end behind it."""
    last = TeamState(name=name, agent=agent, transitions=(Transition(to=END),))
    return {name: last, END: TeamState(name=END, terminal=True)}
