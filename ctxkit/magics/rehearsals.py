"""What a turn would send, without sending it: what fills the prompt, its size, its price."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.composition.groups import share
from ctxkit.display.markup import line
from ctxkit.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.agent.agent import Agent
    from ctxkit.history import History
    from ctxkit.injected import Sections
    from ctxkit.messages import Image
    from ctxkit.models.model import Model
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session
    from ctxkit.tokens import Room


def rehearse(
    kept: Session | None,
    model: Model,
    rules: Rules,
    tools: Sequence[str | Any],
    prompt: str,
    *,
    sections: Sections,
    pictures: Sequence[Image] = (),
) -> str:
    """Return in words what a prompt's first call would send; nothing is sent, kept or
    made on disk.
    """
    from ctxkit.agent import Agent
    from ctxkit.session import Session

    session = kept or Session(id="dry-run")
    stand = Agent(session, model=model, rules=rules, tools=_tools(tools), clock=lambda: 0.0)
    context = stand.compactor.context
    if not session.log and not sections.names and sections.around.own:
        stand.instruct(sections.around.own)
    elif sections.names and (said := sections.due(session, time.time())):
        context.add(replace(said, id="dry-run-sections"))
    context.add(Message(role="user", id="dry-run", parts=(Text(prompt), *pictures)))
    (shown, _), tokens = context.preview(), context.estimate_size()
    parts = _parts(shown, context.log.counter, context.schemas)
    sizes = share(tokens, [n for _, n in parts])
    rows = [f"{n:>9,}  {name}" for n, (name, _) in zip(sizes, parts, strict=True)]
    limit = context.run.room.limit
    head = (
        f"Would send {len(shown)} messages, {tokens:,}/{limit:,} tokens ({tokens / limit:.0%}), to"
        f" {model.name}."
    )
    due = ["A compaction would come first."] if _due(stand, rules) else []
    told = [*due, *misfits(stand), f"Nothing was sent. The prompt: {line(prompt, 200)}"]
    return "\n".join([head, *rows, _price(model, tokens), *told])


def misfits(agent: Agent) -> list[str]:
    """Return what must be said of rules that were made for another window than the model's; usually
    nothing.
    """
    room, model, rules = agent.compactor.context.run.room, agent.model, agent.rules
    window = next((k for k in rules.parameters if k.startswith("context_window")), None)
    less = [k for k in rules.parameters if re.search("reserve|output|^keep_.*tokens", k)]
    better = "Give other rules, or a model with a larger window."
    if window is not None:
        size = f"{model.context_window or room.limit:_}"
        better = (
            f"Give rules that fit (`mine = ck.presets.{rules.label}({window}={size}, ...)`, then"
            " `--rules mine`"
            + (f"; smaller too: {', '.join(less)}" if less else "")
            + "), or a model with a larger window."
        )
    if model.context_window is not None and room.limit > model.context_window:
        takes = f"{model.name} takes {model.context_window:,}"
        counts = f"count on a window of {room.limit:,} tokens"
        return [f"Note: rules {rules.label} {counts}, but {takes}. {better}"]
    if room.reserve >= room.limit:
        held = (
            f"hold {room.reserve:,} tokens free in a window of {room.limit:,}: a compaction is due"
            " at every call"
        )
        return [f"Note: rules {rules.label} {held}. {better}"]
    return []


def _tools(named: Sequence[str | Any]) -> list[Any]:
    """Return the tools as they would be described to the model; their root is a folder that is gone
    again.
    """
    from tempfile import TemporaryDirectory

    from ctxkit.tools.named_tools import tools_of
    from ctxkit.tools.root import Root
    from ctxkit.tools.work import described

    with TemporaryDirectory() as folder:
        return tools_of(named, Root(folder), {}, work=described())


def _parts(shown: Iterable[Message], counter: Any, fixed: int) -> list[tuple[str, int]]:
    """Return the tokens of each role and tool, the largest first, then what no message holds."""
    sums: dict[str, int] = {}
    for m in shown:
        name = f"results of {line(m.tool, 40)}" if m.tool else m.role
        sums[name] = sums.get(name, 0) + counter.message(m)
    known = sorted(sums.items(), key=lambda part: -part[1])
    return [*known, *([("tool descriptions", fixed)] if fixed else [])]


def _price(model: Model, tokens: int) -> str:
    from ctxkit.prices import price

    if model.notice:
        return f"It would cost nothing ({model.notice})."
    known = price(model.name)
    if known is None:
        return "No price of the model is known."
    dearest = tokens * known.at(tokens).write()
    return f"The first prompt would cost at most ${dearest:.4f}, its reply beside."


def _due(stand: Any, rules: Rules) -> bool:
    """Say whether the rules would compact before this call; their own policy is not asked, so no
    summary is written.
    """
    if rules.policy is None:
        return False
    asked: list[int] = []

    def policy(history: History, room: Room) -> History:  # noqa: ARG001  the shape of a policy
        asked.append(history.tokens)
        return history

    context = stand.compactor.context
    context.rules = rules.but(policy=policy, on_compacted=None)
    context.prepare(0.0)
    return bool(asked)
