"""Sub-agents that a member of a team starts, and the files that members may write."""

# An agent's view is made of filters in its rules. `Capabilities` and `Security.ChangeEnvelope`
# limit what its tools may write. A sub-agent works for an agent as its tool.

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.setting_value_validation import FLAG
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session.tool_call_paths_and_descriptions import is_write_tool
from ctxkit.teams.team_definition import ToolCapabilities, WritableFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.presets.config_key_mapping import ConfigSection


SUB_AGENT_SUFFIX = "sub"
"""Behind the name of the agent that it works for."""


def sub_agent_name(agent: str) -> str:
    """Return the name of the agent that works for another as its tool."""
    return f"{agent}.{SUB_AGENT_SUFFIX}"


SUB_AGENT_INSTRUCTIONS = (
    "You are asked by another agent. Look for what it asks, change nothing, and answer in a few "
    "lines with paths and facts: it reads your answer, and nothing else that you do."
)


class SubAgentListener(Protocol):
    """Callback for the events of a sub-agent."""

    def __call__(self, kind: str, payload: Mapping[str, object], agent: str, /) -> None:
        """Take an event of the agent that it works for."""


class SubAgent:
    """Works for one agent of a team; its session is opened once that of its agent is.

    Args:
        agent: for whom it works.
        emit: called when it begins and ends.
    """

    def __init__(self, agent: str, emit: SubAgentListener) -> None:
        self.agent, self._emit = agent, emit
        self.live: LiveSession | None = None

    def tools(self) -> list[Tool]:
        """Return the tools by which it is asked, under fuseraft's names."""

        async def sub_agent_explore(query: str) -> str:
            """Let another agent look into a broad question, and get its answer."""
            return await self._ask(query, "explore")

        async def sub_agent_locate(query: str) -> str:
            """Let another agent find where something is, and get its answer."""
            return await self._ask(query, "locate")

        return [tool(sub_agent_explore), tool(sub_agent_locate)]

    async def _ask(self, query: str, mode: str) -> str:
        assert self.live is not None  # noqa: S101  it is opened with the session of its agent
        live, begun = self.live, len(self.live.session.calls)
        self._emit("sub_agent_start", {"query": query, "mode": mode}, self.agent)
        begin_script = getattr(live.agent.model, "begin", None)
        if callable(begin_script):
            question_count = sum(m.role == "user" for m in live.session.messages)
            begin_script(question_count)
        outcome = await live.turn(query)
        used = [c.message.usage for c in live.session.calls[begun:] if c.message.usage]
        payload = {"outcome": outcome.ended, "summary_chars": len(outcome.text), "mode": mode,
                "input_tokens": sum(u.prompt_tokens or 0 for u in used),
                "output_tokens": sum(u.output_tokens or 0 for u in used)}  # fmt: skip
        self._emit("sub_agent_end", payload, self.agent)
        return outcome.text or f"No answer: {outcome.why or outcome.ended}"


ASKING = tuple(SubAgent("", lambda _, __, ___: None).tools())
"""The tools of an agent that may ask another, as a model is told of them."""

CAPABILITY_TAGS = {"filesystem": ("read", "write", "delete"), "shell": ("read", "run")}
"""Tags of fuseraft's plugins that ctxkit has tools for."""
MAX_GLOBS = 200
"""Globs of an envelope; each is matched against every path that an agent writes."""


def parse_capabilities(section: ConfigSection) -> ToolCapabilities:
    """Return the capabilities in an agent's section `section`.

    Args:
        section: section of one agent.

    Returns:
        What its file tools and its shell may do.

    Raises:
        BadArguments: it names a tag that fuseraft does not have.
    """
    granted = {}
    for plugin in section.section("Capabilities"):
        tags = [t.casefold() for t in section.section("Capabilities").texts(plugin)]
        allowed_tags = CAPABILITY_TAGS.get(plugin.casefold())
        for tag in (t for t in tags if allowed_tags is not None and t not in allowed_tags):
            raise BadArguments(
                f"Capabilities.{plugin} of"
                f" {sanitize_text(section.text('Name'), 40)} names {sanitize_text(tag, 40)!r};"
                f" there are {', '.join(allowed_tags or ())}."
            )
        granted[plugin.casefold()] = tags
    return ToolCapabilities(
        may_write="write" in granted.get("filesystem", ("write",)),
        may_run="run" in granted.get("shell", ("run",)),
    )


def parse_envelope(body: ConfigSection) -> WritableFiles:
    """Return the envelope of a config.

    Args:
        body: the config; `Security.ChangeEnvelope` is read.

    Returns:
        The globs with `/` between folders; none allow every file.

    Raises:
        BadArguments: there are too many globs.
    """
    globs = body.section("Security").texts("ChangeEnvelope")
    if len(globs) > MAX_GLOBS:
        raise BadArguments(
            f"Security.ChangeEnvelope has {len(globs):,} globs, and at most {MAX_GLOBS} are taken:"
            " name folders, such as src/**."
        )
    return WritableFiles(tuple(g.replace("\\", "/").removeprefix("./") for g in globs))


_MAX_BRIEF_BYTES = 1_000_000
WORK_FILES = ".fuseraft/**"
"""Globs that a seeded envelope also allows: fuseraft has these files outside the project."""


def extend_envelope_from_brief(
    envelope: WritableFiles, body: ConfigSection, root: RootFolder
) -> WritableFiles:
    """Return an envelope with the files that a brownfield's discovery brief names.

    Args:
        envelope: the config's envelope.
        body: the config.
        root: the folder of the team, which may have the brief of an earlier run.

    Returns:
        The envelope as it is where there is no brief yet, or the config does not use it.
    """
    brownfield = body.section("Brownfield")
    path = brownfield.text("DiscoveryBriefPath")
    if not path or not brownfield.read("SeedEnvelopeFromBrief", FLAG, default=True):
        return envelope
    try:
        brief = json.loads(root.read(path, _MAX_BRIEF_BYTES, whole=True))
    except (StoreError, ValueError, RecursionError):
        return envelope  # the run that writes the brief comes first
    files = brief.get("in_scope_files") if isinstance(brief, dict) else None
    names = [f for f in files if isinstance(f, str)] if isinstance(files, list) else []
    return WritableFiles((*envelope.globs, *names, WORK_FILES)) if names else envelope


def limit_tools(
    tools: Iterable[Tool],
    capabilities: ToolCapabilities,
    envelope: WritableFiles,
    root: RootFolder,
) -> list[Tool]:
    """Return file tools that refuse forbidden writes with a sentence.

    Args:
        tools: file tools.
        capabilities: capabilities of the agent that gets them.
        envelope: envelope of its team.
        root: the folder in which they work.

    Returns:
        The tools in their order: writing ones are left out without the capability, else they check
        each path against the envelope.
    """
    allowed = [t for t in tools if capabilities.may_write or not is_write_tool(t.name)]
    if not envelope.globs:
        return allowed
    return [_within(t, envelope, root) if is_write_tool(t.name) else t for t in allowed]


def _within(tool: Tool, envelope: WritableFiles, root: RootFolder) -> Tool:
    """Return a tool that writes only inside an envelope; its schema stays."""

    def run(**arguments: Any) -> Any:
        # the path is resolved as the tool itself resolves it, so that no `..` and no link leads out
        path = "/".join(root.parts(str(arguments.get("path", ""))))
        if not envelope.covers(path):
            raise BadArguments(
                f"{sanitize_text(path, 200)!r} lies outside of the change envelope, and was not"
                f" written; files of {_describe_globs(envelope.globs)} may be."
            )
        return tool.run(**arguments)

    # the arguments are checked against the signature of the tool itself
    run.__wrapped__ = tool.run  # type: ignore[attr-defined]
    run.__annotations__ = dict(tool.run.__annotations__)
    return msgspec.structs.replace(tool, run=run)


def _describe_globs(globs: Sequence[str]) -> str:
    more = f" and {len(globs) - 5} more" if len(globs) > 5 else ""
    return ", ".join(sanitize_text(g, 60) for g in globs[:5]) + more
