"""`%%agent --via acp:COMMAND`: an agent of another program works in the cell."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ctxkit.agent.live import LiveSession
    from ctxkit.magics.servers import ServerCommand
    from ctxkit.session import Session

_SCHEME = "acp:"
_LEADS = (
    "model",
    "summary_model",
    "rules",
    "tools",
    "system",
    "sections",
    "memory",
    "approve",
    "allow",
)
"""Options that an agent of another program has no use for: it leads itself."""


def via_command(words: str) -> tuple[str, ...]:
    """Return the command that `--via` names; empty where it names none.

    Raises:
        BadArguments: it is no `acp:COMMAND`.
    """
    if not words.strip():
        return ()
    try:
        found = tuple(shlex.split(words.removeprefix(_SCHEME)))
    except ValueError as e:
        raise BadArguments(f"`--via {line(words, 80)}`: {e}.") from None
    if not words.startswith(_SCHEME) or not found:
        raise BadArguments(
            f"`--via {line(words, 80)}`: write acp:COMMAND, the command that starts an agent which "
            "speaks the Agent Client Protocol, such as acp:'gemini --acp'."
        )
    return found


def check_alone(asked: Any) -> None:
    """Refuse options that say how an agent of ours is led.

    Raises:
        BadArguments: one is there.
    """
    named = [f"--{k.replace('_', '-')}" for k in _LEADS if getattr(asked, k) is not None]
    if named:
        raise BadArguments(
            f"`--via` names an agent that leads itself: leave {', '.join(named)} out, and set it "
            "where the agent is configured."
        )


def guest_session(
    name: str,
    command: Sequence[str],
    *,
    root: Path | None,
    servers: Mapping[str, ServerCommand],
    settings: Mapping[str, Any],
    seed: str,
) -> LiveSession:
    """Return the session of an agent of another program; it is started at the first turn.

    Args:
        name: of the session.
        command: what starts the agent.
        root: where it works; None: the session's scratch folder.
        servers: MCP servers that it is told of, by their names.
        settings: how its parts were named.
        seed: what the session's id follows from.

    Raises:
        StoreError: another process writes the session.
    """
    from ctxkit.agent.elsewhere import Elsewhere
    from ctxkit.agent.guests import Guest
    from ctxkit.agent.live import LiveSession
    from ctxkit.outside.acp_agents import AcpAgent
    from ctxkit.presets.naming import as_rules
    from ctxkit.store.workspace import Workspace

    agent = AcpAgent(command)
    model: Any = Elsewhere(agent)
    folder = root or Workspace().scratch(name)
    told = [
        {"name": known or how.command[0], "command": how.command[0], "args": list(how.command[1:]),
         "env": [{"name": k, "value": v} for k, v in how.env]}
        for known, how in servers.items()
    ]  # fmt: skip
    return LiveSession(
        name,
        model=model,
        rules=as_rules("none"),
        clock=time.time,
        tools=(),
        root=root,
        words={**settings, "model": model.name},
        seed=seed,
        via=partial(Guest, acp=agent, folder=str(folder.resolve()), servers=told),
    )


def joined(live: LiveSession) -> Session | None:
    """Return the log that an agent of another program wrote of itself, where it is found."""
    from ctxkit.agent.guests import Guest
    from ctxkit.agent.own_logs import own_log

    if not isinstance(live.agent, Guest) or not live.agent.acp.session:
        return None
    return own_log(live.agent.acp.session, live.session.started or 0.0)
