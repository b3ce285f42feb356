"""Small teams whose agents say what they are told to."""

from __future__ import annotations

from itertools import count

import ctxkit as ck
from ctxkit.teams import make_scripted_agent


def clock():
    ticks = count(1_800_000_000)
    return lambda: float(next(ticks))


def config(names=("Writer", "Reader"), states=None, **more):
    """A config of agents of these names; with `states`, a state machine that begins with the first."""
    body = {"Agents": [{"Name": n} if isinstance(n, str) else n for n in names], **more}
    if states is not None:
        machine = {"Initial": next(iter(states), ""), "States": states}
        body["Selection"] = {"Type": "statemachine", "StateMachine": machine}
    return body


def made(folder, parts, config, **more):
    """A team whose agents play parts: of each the turns, and of each turn tool calls and last words."""
    tick = clock()
    models = {name: make_scripted_agent(name, turns, tick) for name, turns in parts.items()}
    return ck.team(config, models=models, folder=folder, clock=tick, seed="7", **more)


def to(state, signal="", **more):
    return {"To": state, **({"Signal": signal} if signal else {}), **more}


def state(agent, *ways, **more):
    return {"Agent": agent, "Transitions": list(ways), **more}


DONE = {"Terminal": True}


def shown(team, agent, call=-1):
    """What an agent was sent at a call, as (kind or role, text)."""
    session = team.sessions[agent].session
    sent = session.sent(len(session.calls) + call if call < 0 else call)
    return [(i.message.kind or i.message.role, i.message.text) for i in sent if i.row >= 0]
