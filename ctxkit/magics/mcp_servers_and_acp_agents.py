"""Programs beside a session: MCP servers that bring tools, ACP agents that take its turns."""

from __future__ import annotations

import json
import shlex
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.safe_files import expand_home
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.mcp_tools import McpServer
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.session.session import Session


_MOST_BYTES = 1_000_000
_FORMS = "'COMMAND ARGUMENTS', a .json file with mcpServers, or a variable that holds either"


class McpServerCommand(NamedTuple):
    """The command line, environment and folder that start an MCP server."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def parse_mcp_servers(
    option_value: str, user_variables: Mapping[str, Any]
) -> dict[str, McpServerCommand]:
    """Return the servers of `--mcp` by name; a server given as a command has an empty name.

    Args:
        option_value: a command line, the path of a file with `mcpServers` (or `servers`), or a
            variable.
        user_variables: the user's variables.

    Returns:
        Command line and environment by name; nothing is started.

    Raises:
        BadArguments: it is none of these.
    """
    if not option_value.strip():
        return {}
    if option_value.isidentifier() and option_value in user_variables:
        return _parse_servers_value(user_variables[option_value], option_value)
    path = expand_home(option_value)
    if path.suffix == ".json" and " " not in option_value.strip():
        return _parse_servers_value(_read_json_file(path), option_value)
    return {"": _parse_command(option_value, option_value)}


def _parse_servers_value(value: Any, words: str) -> dict[str, McpServerCommand]:
    if isinstance(value, dict) and not {"command", "url"} & value.keys():
        inner = value.get("mcpServers", value.get("servers", value))
        if isinstance(inner, dict) and inner:
            return {str(name): _parse_command(how, words) for name, how in inner.items()}
    return {"": _parse_command(value, words)}


def _parse_command(how: Any, words: str) -> McpServerCommand:
    """Return a command out of a line, a list, or what a file of servers has of one."""
    env: dict[str, Any] = {}
    if isinstance(how, dict):
        if "url" in how:
            raise BadArguments(
                f"`--mcp {sanitize_line(words, 80)}`: servers behind an address are not "
                "reached; only programs of this machine are."
            )
        env = how.get("env") or {}
        args = how.get("args") or []
        how = [how.get("command"), *args] if isinstance(args, list) else None
    if isinstance(how, str):
        try:
            how = shlex.split(how)
        except ValueError as e:
            raise BadArguments(
                f"`--mcp {sanitize_line(words, 80)}`: {e}; write {_FORMS}."
            ) from None
    sound = isinstance(how, (list, tuple)) and how and all(isinstance(w, str) for w in how)
    if not sound or not isinstance(env, dict):
        raise BadArguments(f"`--mcp {sanitize_line(words, 80)}` names no server; write {_FORMS}.")
    return McpServerCommand(tuple(how), tuple((str(k), str(v)) for k, v in env.items()))


def _read_json_file(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return json.loads(file.read(_MOST_BYTES))
    except OSError as e:
        raise BadArguments(
            f"{sanitize_line(str(path), 200)!r} cannot be read ({e.strerror})."
        ) from None
    except (ValueError, RecursionError):
        raise BadArguments(
            f"{sanitize_line(str(path), 200)!r} is no JSON with mcpServers."
        ) from None


class McpServerProcesses:
    """The servers that run, by session."""

    def __init__(self) -> None:
        self._running: dict[str, dict[tuple[str, McpServerCommand], McpServer]] = {}

    def tools(self, session: str, servers: Mapping[str, McpServerCommand]) -> list[Tool]:
        """Return the tools of a session's servers; those that it has no more are ended.

        Args:
            session: name of the session.
            servers: command and environment of each server, by name.

        Raises:
            BadArguments: one cannot be started, or speaks no MCP.
        """
        from ctxkit.agent.mcp_tools import McpServer

        running = self._running.setdefault(session, {})
        # A server whose command or environment has changed is ended and started again.
        for gone in [k for k in running if servers.get(k[0]) != k[1]]:
            running.pop(gone).close()
        out: list[Tool] = []
        for name, how in servers.items():
            if (name, how) not in running:
                running[name, how] = McpServer(how.command, name=name, env=dict(how.env))
            out += running[name, how].tools()
        return out

    def notes(self, session: str) -> list[str]:
        """Return notes on a session's servers, each once."""
        notes: list[str] = []
        for server in self._running.get(session, {}).values():
            notes += server.notes
            server.notes = []
        return notes

    def close(self, session: str) -> None:
        """End the servers of a session."""
        for server in self._running.pop(session, {}).values():
            server.close()


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
"""Options that do not apply to an external agent, which manages its own model and context."""


def parse_acp_command(option_value: str) -> tuple[str, ...]:
    """Return the command that `--via` names; empty where it names none.

    Args:
        option_value: such as `acp:'gemini --acp'`; empty: the agent is ctxkit's.

    Returns:
        The program and its arguments.

    Raises:
        BadArguments: it is no `acp:COMMAND`.

    Example:
        >>> from ctxkit.magics.mcp_servers_and_acp_agents import parse_acp_command
        >>> parse_acp_command("acp:gemini --acp")
        ('gemini', '--acp')
    """
    if not option_value.strip():
        return ()
    try:
        command = tuple(shlex.split(option_value.removeprefix(_SCHEME)))
    except ValueError as e:
        raise BadArguments(f"`--via {sanitize_line(option_value, 80)}`: {e}.") from None
    if not option_value.startswith(_SCHEME) or not command:
        raise BadArguments(
            f"`--via {sanitize_line(option_value, 80)}`: write acp:COMMAND, the command that starts"
            " an agent which "
            "speaks the Agent Client Protocol, such as acp:'gemini --acp'."
        )
    return command


def check_acp_agent_options(arguments: Any) -> None:
    """Refuse options that do not apply to an external agent.

    Args:
        arguments: parsed arguments of `%%agent`.

    Raises:
        BadArguments: one is there.
    """
    named = [
        f"--{k.replace('_', '-')}" for k in _AGENT_OPTIONS if getattr(arguments, k) is not None
    ]
    if named:
        raise BadArguments(
            f"`--via` names an agent that leads itself: leave {', '.join(named)} out, and set it "
            "where the agent is configured."
        )


def open_acp_session(
    name: str,
    command: Sequence[str],
    *,
    root: Path | None,
    servers: Mapping[str, McpServerCommand],
    settings: Mapping[str, Any],
    seed: str,
) -> LiveSession:
    """Return the session of an agent of another program; it is started at the first turn.

    Args:
        name: name of the session.
        command: command that starts the agent.
        root: folder in which it works; None: the session's scratch folder.
        servers: MCP servers that it is told of, by their names.
        settings: how its parts were named.
        seed: seed of the session's id.

    Returns:
        The session, without rules and tools of ctxkit: the agent compacts by itself.

    Raises:
        StoreError: another process writes the session.
    """
    from ctxkit.agent.acp_agent import AcpModelPlaceholder, ExternalAgent
    from ctxkit.agent.acp_client import AcpClient
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.live_session import LiveSession
    from ctxkit.presets.registry_and_setting_checks import resolve_rules

    agent = AcpClient(command)
    model: Any = AcpModelPlaceholder(agent)
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


def find_acp_agent_log(live: LiveSession) -> Session | None:
    """Return the log that an agent of another program wrote of itself, where it is found.

    Args:
        live: a live session.

    Returns:
        None for an agent of ctxkit, before the first turn, and where no tool's folder has the log.
    """
    from ctxkit.agent.acp_agent import ExternalAgent, find_agent_log

    if not isinstance(live.agent, ExternalAgent) or not live.agent.acp.session:
        return None
    return find_agent_log(live.agent.acp.session, live.session.started or 0.0)
