"""Agents of a team: their config sections as members, and sub-agents as tools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from ctxkit._internal.formatting import sanitize_text
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments
from ctxkit.policies.context_rules import Rules
from ctxkit.presets.fuseraft_config import (
    VIEW_KEYS,
    get_orchestration_section,
    parse_agent_settings,
    read_config,
)
from ctxkit.presets.registry import preset
from ctxkit.teams.handoffs import parse_context_sources
from ctxkit.teams.permissions import parse_capabilities
from ctxkit.teams.plan import Member, SubAgentPlan
from ctxkit.teams.shared_history import DeclaredContextView, with_view_filters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.presets.config_schema import ConfigSection
    from ctxkit.teams.plan import Isolation


ISOLATIONS = ("shared", "fresh", "fork")
PLUGIN_TOOLS = {
    "filesystem": "files",
    "search": "files",
    "shell": "shell",
    "python": "python",
    "code": "python",
    "document": "document",
    "documents": "document",
}
"""The kit's tools for fuseraft's plugins."""
CHANGES_PLUGIN = "changes"
_BUILT_IN_PLUGINS = ("handoff", "subagent", "sessioncontext", "compaction", CHANGES_PLUGIN)
"""Plugins whose tools an agent has by other ways."""


def parse_members(config: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the agents of a config, whose rules are read as `ck.load_rules` reads them.

    Args:
        config: fuseraft's config file, as it was parsed.

    Returns:
        The agents in the order of the file.

    Raises:
        BadArguments: one has no name, or a value is of the wrong kind.
    """
    body = get_orchestration_section(config)
    rows = body.rows("Agents")
    return tuple(
        _parse_member(f, config, body, settings)
        for f, settings in zip(rows, parse_agent_settings(config), strict=True)
    )


def _parse_member(
    f: ConfigSection, config: Mapping[str, Any], body: ConfigSection, settings: Mapping[str, Any]
) -> Member:
    """Return an agent from its section `f` and the settings of its rules."""
    name = f.text("Name").strip()
    if not name:
        raise BadArguments(
            "An agent has no Name." + (" Its AgentFile is read where the config is a file."
                                       if f.text("AgentFile") else "")
        )  # fmt: skip
    instructions = f.text("Instructions").strip()
    base = body.text("SystemPrompt").strip()
    isolation = (f.text("Isolation") or "shared").casefold()
    if isolation not in ISOLATIONS:
        raise BadArguments(
            f"Isolation of {sanitize_text(name, 40)} is Shared, Fresh or Fork, not"
            f" {sanitize_text(isolation, 40)!r}."
        )
    plugins = [p.casefold() for p in f.texts("Plugins")]
    tool_groups = dict.fromkeys(PLUGIN_TOOLS[p] for p in plugins if p in PLUGIN_TOOLS)
    context = parse_context_sources(
        f.rows("Context"), f"Context of {sanitize_text(name, 40)}", allow_own=True
    )
    window = f.section("ContextWindow")
    if context:  # the sources take the place of what others said
        settings = {k: v for k, v in settings.items() if k not in VIEW_KEYS.values()}
    member = Member(
        name=name,
        instructions="\n\n".join(filter(None, (base, instructions))),
        remembers=f.flag("EnableMemory"),
        model=get_model_name(f),
        tools=() if has_no_tools(f) else tuple(tool_groups) or (() if plugins else Member.tools),
        handoff="handoff" in plugins,
        isolation=cast("Isolation", isolation),
        context=context,
        cap=window.number("MaxTailMessages"),
        cap_fraction=window.share("ContextCapFraction"),
        rules=_make_rules(config, settings),
        view_keys=_view_keys(f),
        sub=_parse_sub_agent(f) if "subagent" in plugins else None,
        max_calls=f.number("MaxToolCallsPerTurn") or None,
        capabilities=parse_capabilities(f),
        reads_changes=CHANGES_PLUGIN in plugins,
    )
    return replace(member, rules=with_view_filters(member))


def has_no_tools(f: ConfigSection) -> bool:
    """Say whether an agent may call no tool at all."""
    return f.text("FunctionChoice").casefold() == "none"


def has_plugin_tool(plugin: str) -> bool:
    """Say whether the kit has a tool for one of fuseraft's plugins.

    Args:
        plugin: name of a plugin, in any case of letters.

    Returns:
        True also for plugins whose tools every agent has anyway.

    Example:
        >>> from ctxkit.teams.team_members import has_plugin_tool
        >>> has_plugin_tool("FileSystem"), has_plugin_tool("Teleport")
        (True, False)
    """
    return plugin.casefold() in (*PLUGIN_TOOLS, *_BUILT_IN_PLUGINS)


def _view_keys(f: ConfigSection) -> dict[str, Any]:
    """Return the keys that say what it is shown of the others, as they are written."""
    window = f.section("ContextWindow")
    shown_keys = {k.casefold() for k in VIEW_KEYS}
    window_values = {k: v for k, v in window.values.items() if k.casefold() in shown_keys}
    keys = {
        "ContextWindow": window_values,
        "Context": f.get("Context"),
        "Isolation": f.get("Isolation"),
    }
    return {k: v for k, v in keys.items() if v}


def _parse_sub_agent(f: ConfigSection) -> SubAgentPlan:
    """Return the agent that it can ask as a tool."""
    plugins = [p.casefold() for p in f.texts("SubAgentPlugins")]
    tools = tuple(dict.fromkeys(PLUGIN_TOOLS[p] for p in plugins if p in PLUGIN_TOOLS))
    return SubAgentPlan(
        model=f.text("SubAgentModel"),
        tools=tools or SubAgentPlan.tools,
        max_calls=f.number("SubAgentMaxToolCalls") or None,
    )


def get_model_name(f: ConfigSection) -> str:
    """Return the model's name, or the config's name for one; empty: it names none."""
    section = f.section("Model") if isinstance(f.get("Model"), dict) else None
    return section.text("ModelId") if section is not None else f.text("Model")


def parse_common_rules(config: Mapping[str, Any]) -> Any:
    """Return the rules in which all agents of a config agree.

    Args:
        config: fuseraft's config file, as it was parsed.

    Returns:
        The rules that `ck.load_rules` reads of such a file when no agent is named.
    """
    return _make_rules(config, read_config(config, None).settings)


def _make_rules(config: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    rules = preset("fuseraft", **settings)
    return rules.but(auto=rules.auto and _has_compaction(config))


def _has_compaction(config: Mapping[str, Any]) -> bool:
    """Say whether anything is compacted but by hand: without a Compaction section, nothing is."""
    return get_orchestration_section(config).get("Compaction") is not None


SUB_AGENT_SUFFIX = "sub"
"""Behind the name of the agent that it works for."""


def sub_agent_name(agent: str) -> str:
    """Return the name of the agent that works for another as its tool."""
    return f"{agent}.{SUB_AGENT_SUFFIX}"


SUB_AGENT_INSTRUCTIONS = (
    "You are asked by another agent. Look for what it asks, change nothing, and answer in a few "
    "lines with paths and facts: it reads your answer, and nothing else that you do."
)
SUB_AGENT_RULES = Rules(name="each question anew", pruning=DeclaredContextView())
"""Each question begins without the ones before."""


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
