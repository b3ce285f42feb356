"""Agents that call a tool until its answer is in their prompt; and every preset and every view, with each of its settings."""

from __future__ import annotations

import asyncio
import json
from ast import literal_eval
from dataclasses import fields
from importlib import import_module
from inspect import signature
from itertools import combinations, count
from typing import TYPE_CHECKING, Any

from ctxkit.agent import Agent, Limits, tool
from ctxkit.errors import CtxkitError
from ctxkit.policies import PruneToolCalls, flatten_chain, name_of, registry
from ctxkit.presets import names, preset
from ctxkit.session import Message, Session, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies import Rules

TURNS, MOST = 3, 6
"""Turns that are taken, and calls after which one is given up."""
VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int": (0, 1, 3),
    "Natural": (0, 1, 3),
    "Positive": (1, 3),
    "float": (0.0, 0.5, 1.0, 300.0),
    "Proportion": (0.0, 0.5, 1.0),
    "PositiveShare": (0.5, 1.0),
    "AboveZero": (0.5, 1.0),
    "str": ("", "all", "none", "before-last-message"),
    "tuple[str, ...]": ((), ("*",), ("main",), ("user",), ("assistant", "tool"), ("look",)),
    "Mapping[str, int]": ({"look": 1}, {"other": 1}),
}
"""Values to be tried for a setting, by the type that it names."""


def candidates(annotation: str) -> Iterator[Any]:
    """Values that a setting of this type may have; of an unknown type, none."""
    for kind in annotation.split(" | "):
        if kind.startswith("Literal["):
            yield from literal_eval(kind.removeprefix("Literal"))
        else:
            yield from VALUES.get(kind, ())


def settings_of(known: dict[str, str], several: int = 1) -> Iterator[dict[str, Any]]:
    """No setting, then each value of each one alone, and of so many together."""
    yield {}
    for n in range(1, several + 1):
        for keys in combinations(known, n):
            chosen: list[dict[str, Any]] = [{}]
            for key in keys:
                chosen = [{**c, key: v} for c in chosen for v in candidates(known[key])]
            yield from chosen


def views() -> Iterator[tuple[str, Any]]:
    """Every view among the kit's policies, under each pair of its settings, with its words.

    Of a policy that is a view by one of its settings, that one and each other.
    """
    for name in registry.MEMBERS:
        kind = type(registry.create_policy(name))
        known = {f.name: str(f.type) for f in fields(kind)}
        bases = [{}] if is_view(kind()) else [*settings_of(known)][1:]
        for base in bases:
            if not is_view(_made(kind, base)):
                continue
            others = {key: of for key, of in known.items() if key not in base}
            for more in settings_of(others, 1 if base else 2):
                chosen = {**base, **more}
                made = _made(kind, chosen)
                if is_view(made):
                    yield f"{name}: {chosen}", made


def _made(kind: Any, chosen: dict[str, Any]) -> Any:
    try:
        return kind(**chosen)
    except CtxkitError:
        return None


def is_view(part: Any) -> bool:
    """Say whether a part filters the history with which a turn begins."""
    if isinstance(part, PruneToolCalls):
        return {"all"} <= {part.tool_calls, part.reasoning} <= {"all", "none"}
    return getattr(part, "filters_history", False)


def preset_settings(name: str) -> Iterator[tuple[dict[str, Any], Rules]]:
    """The rules of a preset as it is, and with each of its settings at each value."""
    make = getattr(import_module(f"ctxkit.presets.systems.{name}"), name)
    known = {key: str(p.annotation) for key, p in signature(make).parameters.items()}
    for chosen in settings_of(known):
        try:
            yield chosen, preset(name, **chosen)
        except CtxkitError:
            continue


PRESETS = names()


def word(turn: int) -> str:
    """What the tool answers in a turn, behind much else."""
    return f"word-{turn}-"


def answer(turn: int) -> str:
    """What the tool answers: its last line has the word."""
    return f"{'x' * 29}\n" * 100 + word(turn)


def by_list(fit: Any) -> list[int]:
    """Calls that each turn of an own loop took; `fit` is given the list of dicts before each."""
    said: list[dict[str, Any]] = []
    taken = []
    for turn in range(TURNS):
        said.append({"role": "user", "content": f"Look, for the {turn}. time."})
        for call in range(1, MOST + 1):
            if word(turn) in json.dumps(fit(said)):
                break
            asked = {"name": "look", "arguments": "{}"}
            calls = [{"id": f"c{turn}.{call}", "type": "function", "function": asked}]
            said.append({"role": "assistant", "content": "", "tool_calls": calls})
            said.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": answer(turn)})
        said.append({"role": "assistant", "content": f"It is the {turn}. " + "y" * 3000})
        taken.append(call)
    return taken


def by_items(fit: Any) -> list[int]:
    """Calls that each turn took in a loop of Responses items; each turn needs two answers, one after the other."""
    said: list[dict[str, Any]] = []
    taken = []
    for turn in range(TURNS):
        said.append({"role": "user", "content": f"Look twice, for the {turn}. time."})
        for call in range(1, MOST + 1):
            shown = json.dumps(fit(said))
            missing = [n for n in (1, 2) if word(turn) + str(n) not in shown]
            text = {"type": "output_text", "text": "Let me look."}
            said.append({"type": "reasoning", "id": f"rs{turn}.{call}", "summary": []})
            said.append({"type": "message", "role": "assistant", "content": [text]})
            if not missing:
                break
            asked = {"name": "look", "arguments": "{}", "call_id": f"c{turn}.{call}"}
            said.append({"type": "function_call", **asked})
            output = {"call_id": asked["call_id"], "output": answer(turn) + str(missing[0])}
            said.append({"type": "function_call_output", **output})
        taken.append(call)
    return taken


class Looks:
    """A model that calls a tool until its answer is in the prompt."""

    notice, context_window = "test model", 200_000

    def __init__(self, name: str = "test/looks") -> None:
        self.name, self.ids = name, count()

    def call(self, turn: int) -> ToolCall:
        """The call by which it looks."""
        return ToolCall(f"c{next(self.ids)}", "look", {})

    def wanted(self, turn: int) -> str:
        """What it looks for."""
        return word(turn)

    async def __call__(self, request: Any, _emit: Any) -> Message:
        found = any(self.wanted(request.turn) in m.text for m in request.messages)
        part = Text("It is found. " + "y" * 3000) if found else self.call(request.turn)
        return Message(role="assistant", parts=(part,), stop="stop" if found else "tool")


class Reads(Looks):
    """One that finds its answer in a file of its own, another one each turn."""

    def call(self, turn: int) -> ToolCall:
        return ToolCall(f"c{next(self.ids)}", "read_file", {"path": f"{self.name}{turn}.txt"})

    def wanted(self, turn: int) -> str:
        """Its own answer, which is none of another agent."""
        return word(turn) + self.name


def ticking() -> Any:
    """A clock that advances a second each time it is read."""
    ticks = count(1_800_000_000)
    return lambda: float(next(ticks))


def lived(rules: Rules) -> tuple[list[int], Session]:
    """Calls that each turn of a live agent took, and its session."""
    now = [0]

    def look() -> str:
        """Look."""
        return answer(now[0])

    agent = Agent(
        Session(id="looks", format="live"),
        model=Looks(),
        rules=rules,
        tools=[tool(look)],
        limits=Limits(calls=MOST),
        clock=ticking(),
    )
    for now[0] in range(TURNS):
        asyncio.run(agent.turn(f"Look, for the {now[0]}. time."))
    of = [call.turn for call in agent.session.calls]
    return [of.count(n) for n in range(TURNS)], agent.session


def taken_by(shown: Any, own: Sequence[int], call: int) -> set[str]:
    """Which parts took, or changed, rows of the turn under way in what went out at a call."""
    items = {item.row: item for item in shown.sent(call)}
    gone = shown.left_out(call)
    by = {items[row].changed_by if row in items else gone.get(row, "?") for row in own}
    return {name for name in by if name is not None}


def view_names(rules: Rules) -> set[str]:
    parts = () if rules.pruning is None else flatten_chain(rules.pruning)
    return {name_of(p) for p in parts if is_view(p)}
