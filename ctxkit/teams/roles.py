"""One agent of a team from its part of the config: model, tools, instructions, view, rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.presets.configs.fuseraft import read, settings_of_agents
from ctxkit.presets.preset_names import preset
from ctxkit.teams.config_fields import Fields
from ctxkit.teams.filters import viewed
from ctxkit.teams.handoffs import sources
from ctxkit.teams.rosters import Member, SubPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.teams.rosters import Isolation

ISOLATIONS = ("shared", "fresh", "fork")
PLUGINS = {
    "filesystem": "files",
    "search": "files",
    "shell": "shell",
    "python": "python",
    "code": "python",
    "documents": "document",
}
"""What of fuseraft's plugins the kit has a tool for."""
_OURS = ("handoff", "subagent", "sessioncontext", "compaction")
"""Plugins whose tools an agent has by other ways."""
WINDOW_KEYS = ("TextOnly", "ExcludeAgents", "MaxTurnAge", "MaxTailMessages", "MaxToolResultChars",
               "ToolResultCharOverrides", "MaxReplayChars")  # fmt: skip
"""The keys of a ContextWindow that say what is shown."""
_VIEW = (
    "text_only",
    "exclude_agents",
    "max_turn_age",
    "max_tail_messages",
    "max_tool_result_chars",
    "tool_result_char_overrides",
    "max_replay_chars",
)


def members_of(config: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the agents of a config, whose rules are read as `ck.load_rules` reads them.

    Raises:
        BadArguments: one has no name, or a value is of the wrong kind.
    """
    body = Fields(config).section("Orchestration") or Fields(config)
    rows = body.rows("Agents")
    return tuple(
        _member(f, config, body, settings)
        for f, settings in zip(rows, settings_of_agents(config), strict=True)
    )


def _member(
    f: Fields, config: Mapping[str, Any], body: Fields, settings: Mapping[str, Any]
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
            f"Isolation of {plain(name, 40)} is Shared, Fresh or Fork, not"
            f" {plain(isolation, 40)!r}."
        )
    plugins = [p.casefold() for p in f.texts("Plugins")]
    known = dict.fromkeys(PLUGINS[p] for p in plugins if p in PLUGINS)
    context = sources(f.rows("Context"), f"Context of {plain(name, 40)}", own=True)
    window = f.section("ContextWindow") or Fields({})
    made = Member(
        name=name,
        instructions="\n\n".join(filter(None, (base, instructions))),
        remembers=f.flag("EnableMemory"),
        model=model_of(f),
        tools=() if has_no_tools(f) else tuple(known) or (() if plugins else Member.tools),
        handoff="handoff" in plugins,
        isolation=cast("Isolation", isolation),
        context=context,
        cap=window.number("MaxTailMessages"),
        cap_fraction=window.share("ContextCapFraction"),
        rules=_rules(config, {k: v for k, v in settings.items() if not context or k not in _VIEW}),
        shown=_shown(f),
        sub=_sub(f) if "subagent" in plugins else None,
        max_calls=f.number("MaxToolCallsPerTurn") or None,
    )
    return replace(made, rules=viewed(made))


def has_no_tools(f: Fields) -> bool:
    """Say whether an agent may call no tool at all."""
    return f.text("FunctionChoice").casefold() == "none"


def has_tool(plugin: str) -> bool:
    """Say whether the kit has a tool for one of fuseraft's plugins."""
    return plugin.casefold() in (*PLUGINS, *_OURS)


def _shown(f: Fields) -> dict[str, Any]:
    """Return the keys that say what it is shown of the others, as they are written."""
    window = f.section("ContextWindow")
    known = {k.casefold() for k in WINDOW_KEYS}
    kept = {k: window.get(k) for k in window if k.casefold() in known} if window else {}
    told = {"ContextWindow": kept, "Context": f.get("Context"), "Isolation": f.get("Isolation")}
    return {k: v for k, v in told.items() if v}


def _sub(f: Fields) -> SubPlan:
    """Return the agent that it can ask as a tool."""
    plugins = [p.casefold() for p in f.texts("SubAgentPlugins")]
    tools = tuple(dict.fromkeys(PLUGINS[p] for p in plugins if p in PLUGINS))
    return SubPlan(
        model=f.text("SubAgentModel"),
        tools=tools or SubPlan.tools,
        max_calls=f.number("SubAgentMaxToolCalls") or None,
    )


def model_of(f: Fields) -> str:
    """Return the model's name, or the config's name for one; empty: it names none."""
    section = f.section("Model") if isinstance(f.get("Model"), dict) else None
    return section.text("ModelId") if section else f.text("Model")


def rules_of_all(config: Mapping[str, Any]) -> Any:
    """Return the rules in which all agents of a config agree."""
    return _rules(config, read(config, None).settings)


def _rules(config: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    rules = preset("fuseraft", **settings)
    return rules.but(auto=rules.auto and _compacts(config))


def _compacts(config: Mapping[str, Any]) -> bool:
    """Say whether anything is compacted but by hand: without a Compaction section, nothing is."""
    body = next((v for k, v in config.items() if str(k).casefold() == "orchestration"), config)
    return any(str(k).casefold() == "compaction" and v is not None for k, v in body.items())
