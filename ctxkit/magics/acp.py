"""Agents of other programs in live sessions (`--via acp:COMMAND`)."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.mcp import ServerCommand
    from ctxkit.session.session import Session

_SCHEME = "acp:"
_AGENT_OPTIONS = (
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


def parse_via(words: str) -> tuple[str, ...]:
    """Return the command that `--via` names; empty where it names none.

    Raises:
        BadArguments: it is no `acp:COMMAND`.
    """
    if not words.strip():
        return ()
    try:
        found = tuple(shlex.split(words.removeprefix(_SCHEME)))
    except ValueError as e:
        raise BadArguments(f"`--via {sanitize_line(words, 80)}`: {e}.") from None
    if not words.startswith(_SCHEME) or not found:
        raise BadArguments(
            f"`--via {sanitize_line(words, 80)}`: write acp:COMMAND, the command that starts an "
            "agent which "
            "speaks the Agent Client Protocol, such as acp:'gemini --acp'."
        )
    return found


def check_via_options(line: Any) -> None:
    """Refuse options that say how an agent of ours is led.

    Raises:
        BadArguments: one is there.
    """
    named = [f"--{k.replace('_', '-')}" for k in _AGENT_OPTIONS if getattr(line, k) is not None]
    if named:
        raise BadArguments(
            f"`--via` names an agent that leads itself: leave {', '.join(named)} out, and set it "
            "where the agent is configured."
        )


def open_external_session(
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
    from ctxkit.agent.acp_agent import AcpModel, ExternalAgent
    from ctxkit.agent.acp_client import AcpClient
    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.store.workspace import Workspace
    from ctxkit.presets.registry import resolve_rules

    agent = AcpClient(command)
    model: Any = AcpModel(agent)
    folder = root or Workspace().scratch(name)
    server_specs = [
        {"name": server_name or how.command[0], "command": how.command[0],
         "args": list(how.command[1:]), "env": [{"name": k, "value": v} for k, v in how.env]}
        for server_name, how in servers.items()
    ]  # fmt: skip
    return LiveSession(
        name,
        model=model,
        rules=resolve_rules("none"),
        clock=time.time,
        tools=(),
        root=root,
        words={**settings, "model": model.name},
        seed=seed,
        via=partial(ExternalAgent, acp=agent, folder=str(folder.resolve()), servers=server_specs),
    )


def find_external_log(live: LiveSession) -> Session | None:
    """Return the log that an agent of another program wrote of itself, where it is found."""
    from ctxkit.agent.acp_agent import ExternalAgent
    from ctxkit.agent.acp_client import find_agent_log

    if not isinstance(live.agent, ExternalAgent) or not live.agent.acp.session:
        return None
    return find_agent_log(live.agent.acp.session, live.session.started or 0.0)
