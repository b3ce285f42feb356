"""Members of a team, from their config sections: what they see, what they may write, sub-agents."""

# An agent's view is made of filters in its rules. `Capabilities` and `Security.ChangeEnvelope`
# limit what its tools may write. A sub-agent works for an agent as its tool.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.errors import BadArguments
from ctxkit.metrics.team_agent_logs_and_turns import HANDOFF, TASK
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT, SUMMARY, SYSTEM, USER
from ctxkit.policies.message_hiding import Tail
from ctxkit.policies.policy_base_and_chains import Chain, flatten_chain
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import ScheduledPruning
from ctxkit.presets.fuseraft_config import (
    VIEW_KEYS,
    get_orchestration_or_whole_config,
    parse_agent_settings,
    read_config,
)
from ctxkit.presets.registry_and_setting_checks import preset
from ctxkit.session.messages import (
    OTHER_AGENT_KINDS,
    Message,
    get_plain_text,
)
from ctxkit.teams.handoffs_and_contracts import parse_context_sources
from ctxkit.teams.sub_agents_and_permissions import parse_capabilities
from ctxkit.teams.team_definition import Member, SubAgentPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.presets.config_key_mapping import ConfigSection
    from ctxkit.session.messages import Part
    from ctxkit.teams.team_definition import ContextSource, Isolation
    from ctxkit.tokens import ContextBudget


DEFAULT_OWN_TURNS = 6
"""Own replies of a declared `own_history` without a number (fuseraft's default)."""
FRESH_TURN_KEY = "Anew"
"""Key of a view in which each turn begins without the agent's own earlier turns."""
_TRUNCATED_TURN = "\n[...truncated — own_history turn exceeded {n} char limit]"


# A schedule records changes, each valid from a call on. `current` is what each message says after
# the changes so far, so that only a real change is recorded. A message is left out (None), shown as
# it was recorded (the change is undone), or shown with other parts.
def _set_message(view: ScheduleView, q: int, call: int, now: Message | None) -> None:
    """Set a message from a call on, unless it is equal already."""
    current: dict[int, Message | None] = view.memory.setdefault("said", {})
    before = view.message(q, call)
    previous = current.get(q, before)
    if previous is now or (
        previous is not None and now is not None and previous.parts == now.parts
    ):
        return
    current[q] = now
    if now is None or before is None:
        view.change(q, None, since=call)
    elif now.parts == before.parts:
        view.change(q, UNDO_CHANGE, since=call)
    else:  # its calls go in any case, its words where that makes it smaller
        stripped = (
            before if now.tool_calls else message_content_and_truncation.strip_to_text(before)
        )
        view.change(q, (_ReplaceParts(stripped.parts), _ReplaceParts(now.parts)), since=call)


@dataclass(frozen=True)
class _ReplaceParts:
    """Replaces the parts of a message."""

    parts: tuple[Part, ...]

    def __call__(self, message: Message) -> Message:
        return msgspec.structs.replace(message, parts=self.parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskAndOwnRepliesFilter(ScheduledPruning):
    """A declared context: each turn shows the task, some own replies, and new messages."""

    counts = False
    turns: int = 0
    """Number of the agent's own earlier replies with text."""
    max_chars: int = 0
    """Characters of these replies: the oldest are dropped first, a single longer one is cut."""
    keeps_other_agents: bool = False
    """True if messages of other agents stay, too."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide the messages of earlier turns when a turn begins."""
        for call, edge in view.turns():
            self._begin_turn(view, call, _first_new(view, edge, call))

    def _begin_turn(self, view: ScheduleView, call: int, first: int) -> None:
        """Hide the messages before position `first` when a turn begins."""
        # From the newest to the oldest: own replies with words stay while turns and characters are
        # left. One reply that is too long alone is cut; one that does not fit ends the list.
        turns_left, chars_left = self.turns, self.max_chars
        old: list[int] = view.memory.setdefault("old", [])
        old += range(view.memory.get("first", 0), first)
        view.memory["first"] = first
        kept_positions = list[int]()
        for q in reversed(old):
            message = view.message(q, call)
            if message is None or not self._is_removable(view, q, message):
                continue
            shortened = (
                message_content_and_truncation.strip_to_text(message)
                if view.role(q) == ASSISTANT
                else message
            )
            words = get_plain_text(shortened) if view.role(q) == ASSISTANT else ""
            if not words or not turns_left or (len(words) > chars_left and turns_left < self.turns):
                turns_left = 0 if words else turns_left  # stop at the first that does not fit
                _set_message(view, q, call, None)
                continue
            text = (
                words
                if len(words) <= chars_left
                else words[:chars_left] + _TRUNCATED_TURN.format(n=chars_left)
            )
            turns_left, chars_left = turns_left - 1, chars_left - len(words)
            _set_message(
                view, q, call, message_content_and_truncation.replace_text(shortened, text)
            )
            kept_positions.append(q)
        view.memory["old"] = kept_positions[::-1]

    def _is_removable(self, view: ScheduleView, q: int, message: Message) -> bool:
        if message.kind == TASK or message.sections or view.role(q) in (SYSTEM, SUMMARY):
            return False
        return not (self.keeps_other_agents and message.kind in (*OTHER_AGENT_KINDS, HANDOFF))


def _first_new(view: ScheduleView, edge: int, call: int) -> int:
    """Return the first position of the messages before a turn's input that are new in it."""
    first = edge if edge < view.count_arrived(call) else edge - 1
    turn = view.rows.message(first).turn if first >= 0 else None
    # messages of other agents for this turn are just before its input and have its number
    while edge and view.role(edge - 1) == USER and view.rows.message(edge - 1).turn == turn:
        edge -= 1
    return edge


def with_view_filters(member: Member) -> Rules:
    """Return an agent's rules with the filters of its view.

    Args:
        member: an agent with a declared context, or with a window of the team's messages.

    Returns:
        Its rules with the filters put before its own pruning.
    """
    rules: Any = member.rules
    parts = flatten_chain(rules.pruning) if rules.pruning is not None else ()
    if member.context:
        turns, chars = get_own_history_limits(member.context)
        parts = (TaskAndOwnRepliesFilter(turns=turns, max_chars=chars), *parts)
    else:  # the input of each turn is the team's own, and no message of fuseraft's
        parts = tuple(replace(p, besides_prompt=True) if isinstance(p, Tail) else p for p in parts)
    filtered: Rules = rules.but(pruning=Chain.of(*parts) if parts else None)
    return filtered


def without_own_earlier_turns(member: Member, **changes: Any) -> Member:
    """Return an agent, changed, whose turns begin without its own earlier turns.

    Args:
        member: the agent.
        changes: fields of the agent that are replaced, too.

    Returns:
        The agent with one more filter before its pruning; the ledger stores that as a view key.
    """
    rules: Any = member.rules
    pruning = Chain.of(
        TaskAndOwnRepliesFilter(keeps_other_agents=True), *flatten_chain(rules.pruning)
    )
    view_keys = {**member.view_keys, FRESH_TURN_KEY: True}
    return replace(member, rules=rules.but(pruning=pruning), view_keys=view_keys, **changes)


def get_own_history_limits(context: Sequence[ContextSource]) -> tuple[int, int]:
    """Return the number and the characters of own replies that a declared context shows.

    Args:
        context: sources of a declared context.

    Returns:
        Replies and characters; both 0 where own history is no source.
    """
    source = next((s for s in context if s.kind == "own_history"), None)
    return (int(source.argument or DEFAULT_OWN_TURNS), source.max_chars) if source else (0, 0)


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
    body = get_orchestration_or_whole_config(config)
    rows = body.rows("Agents")
    return tuple(
        _parse_member(f, config, body, settings)
        for f, settings in zip(rows, parse_agent_settings(config), strict=True)
    )


def _parse_member(
    section: ConfigSection,
    config: Mapping[str, Any],
    body: ConfigSection,
    settings: Mapping[str, Any],
) -> Member:
    """Return an agent from its section `section` and the settings of its rules."""
    name = section.text("Name").strip()
    if not name:
        raise BadArguments(
            "An agent has no Name." + (" Its AgentFile is read where the config is a file."
                                       if section.text("AgentFile") else "")
        )  # fmt: skip
    instructions = section.text("Instructions").strip()
    base = body.text("SystemPrompt").strip()
    isolation = (section.text("Isolation") or "shared").casefold()
    if isolation not in ISOLATIONS:
        raise BadArguments(
            f"Isolation of {sanitize_text(name, 40)} is Shared, Fresh or Fork, not"
            f" {sanitize_text(isolation, 40)!r}."
        )
    plugins = [p.casefold() for p in section.texts("Plugins")]
    tool_groups = dict.fromkeys(PLUGIN_TOOLS[p] for p in plugins if p in PLUGIN_TOOLS)
    context = parse_context_sources(
        section.rows("Context"), f"Context of {sanitize_text(name, 40)}", allow_own=True
    )
    window = section.section("ContextWindow")
    if context:  # the sources take the place of what others said
        settings = {k: v for k, v in settings.items() if k not in VIEW_KEYS.values()}
    member = Member(
        name=name,
        instructions="\n\n".join(filter(None, (base, instructions))),
        remembers=section.flag("EnableMemory"),
        model=get_model_name(section),
        tools=()
        if has_no_tools(section)
        else tuple(tool_groups) or (() if plugins else Member.tools),
        handoff="handoff" in plugins,
        isolation=cast("Isolation", isolation),
        context=context,
        message_cap=window.number("MaxTailMessages"),
        warning_share=window.share("ContextCapFraction"),
        rules=_make_rules(config, settings),
        view_keys=_view_keys(section),
        sub_agent=_parse_sub_agent(section) if "subagent" in plugins else None,
        max_calls=section.number("MaxToolCallsPerTurn") or None,
        capabilities=parse_capabilities(section),
        reads_changes=CHANGES_PLUGIN in plugins,
    )
    return replace(member, rules=with_view_filters(member))


def has_no_tools(section: ConfigSection) -> bool:
    """Return whether an agent may call no tool at all."""
    return section.text("FunctionChoice").casefold() == "none"


def is_plugin_supported(plugin: str) -> bool:
    """Return whether the kit has a tool for one of fuseraft's plugins.

    Args:
        plugin: name of a plugin, in any case of letters.

    Returns:
        True also for plugins whose tools every agent has anyway.

    Example:
        >>> from ctxkit.teams.member_config_and_views import is_plugin_supported
        >>> is_plugin_supported("FileSystem"), is_plugin_supported("Teleport")
        (True, False)
    """
    return plugin.casefold() in (*PLUGIN_TOOLS, *_BUILT_IN_PLUGINS)


def _view_keys(section: ConfigSection) -> dict[str, Any]:
    """Return the keys that say what it is shown of the others, as they are written."""
    window = section.section("ContextWindow")
    shown_keys = {k.casefold() for k in VIEW_KEYS}
    window_values = {k: v for k, v in window.values.items() if k.casefold() in shown_keys}
    keys = {
        "ContextWindow": window_values,
        "Context": section.get("Context"),
        "Isolation": section.get("Isolation"),
    }
    return {k: v for k, v in keys.items() if v}


def _parse_sub_agent(section: ConfigSection) -> SubAgentPlan:
    """Return the agent that it can ask as a tool."""
    plugins = [p.casefold() for p in section.texts("SubAgentPlugins")]
    tools = tuple(dict.fromkeys(PLUGIN_TOOLS[p] for p in plugins if p in PLUGIN_TOOLS))
    return SubAgentPlan(
        model=section.text("SubAgentModel"),
        tools=tools or SubAgentPlan.tools,
        max_calls=section.number("SubAgentMaxToolCalls") or None,
    )


def get_model_name(section: ConfigSection) -> str:
    """Return the model's name, or the config's name for one; empty: it names none."""
    model = section.section("Model") if isinstance(section.get("Model"), dict) else None
    return model.text("ModelId") if model is not None else section.text("Model")


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
    """Return whether anything is compacted automatically: only with a section `Compaction`."""
    return get_orchestration_or_whole_config(config).get("Compaction") is not None


SUB_AGENT_RULES = Rules(name="each question anew", pruning=TaskAndOwnRepliesFilter())
"""Each question begins without the ones before."""
