"""Settings of presets that have no effect while other settings have their values, and why.

A setting is inert where a preset makes equal rules with any value of it (`has_effect` makes them).
`INERT_SETTINGS` declares for each such setting the reason, and the setting that holds it. Some
settings make other rules and still change no replay, because no model writes a summary or no live
session runs: `SettingEffectScope` marks them.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import CtxkitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ctxkit.policies.compaction_and_pruning_rules import Rules


class SettingEffectScope(Enum):
    """Where a setting without effect would have one."""

    OTHER_SETTINGS = "under other settings of the preset"
    MODEL = "where a model writes the summaries"
    LIVE = "in a live session"


class InertSetting(NamedTuple):
    """Settings that can be without effect, and why."""

    settings: tuple[str, ...]
    controller: str
    """The setting of the preset that makes them inert; empty: none does."""
    why: str
    free: Any = None
    """A value of `controller` under which they have an effect."""
    scope: SettingEffectScope = SettingEffectScope.OTHER_SETTINGS

    def describe(self) -> str:
        """Return the reason as the end of a sentence: what holds the setting, and why."""
        return f"held by {self.controller}: {self.why}" if self.controller else self.why


def _inert_unless(settings: str, controller: str, free: Any, why: str) -> InertSetting:
    return InertSetting(tuple(settings.split()), controller, why, free)


def _for_models(settings: str) -> InertSetting:
    why = "only a model reads it, and no model writes the summaries"
    return InertSetting(tuple(settings.split()), "summariser", why, scope=SettingEffectScope.MODEL)


def _for_live_sessions(settings: str, why: str) -> InertSetting:
    return InertSetting(tuple(settings.split()), "", why, scope=SettingEffectScope.LIVE)


_NO_WINDOW = _for_live_sessions(
    "context_window", "these rules go by no window, which only marks calls above it"
)
_PRUNING_SETTINGS = (
    "ttl_seconds keep_last_assistants soft_trim_ratio hard_clear_ratio min_prunable_tool_chars "
    "soft_trim_max_chars soft_trim_head_chars soft_trim_tail_chars hard_clear "
    "hard_clear_placeholder tools_allow tools_deny"
)
_RESERVE = _inert_unless(
    "reserve_tokens", "reserve_tokens_floor", 0, "the larger of the two is held free"
)
_SAFEGUARD = _inert_unless(
    "max_history_share identifier_policy identifier_instructions",
    "mode",
    "safeguard",
    "only mode `safeguard` has it",
)
INERT_SETTINGS: dict[str, tuple[InertSetting, ...]] = {
    "fuseraft": (
        _inert_unless("token_budget", "mode", "window", "only mode `window` has a token budget"),
        _inert_unless(
            "trigger_turn_count keep_recent_turns include_reasoning include_symbol_graph "
            "include_exploration routing_signals summary_template max_chars_per_history_message "
            "anti_thrash_min_savings_ratio anti_thrash_window",
            "mode",
            "llm",
            "mode `window` drops pairs and writes no summary",
        ),
        _inert_unless(
            "in_turn_tool_window",
            "max_tool_result_tokens",
            3_000,
            "at 0 no results are evicted within a turn",
        ),
        _inert_unless(
            "context_cap_fraction", "max_tail_messages", 10, "at 0 there is no cap to come near"
        ),
        _inert_unless(
            "tool_result_char_overrides", "max_tool_result_chars", 500, "at 0 results stay whole"
        ),
        _for_models("summary_template max_chars_per_history_message"),
        _for_live_sessions("max_payload_bytes", "only a live session sends bytes"),
    ),
    "tyrum": (
        _inert_unless(
            "limit_input", "reserved_input_tokens", 0, "a limit below the reserve is none"
        ),
        _for_live_sessions("memory_flush", "only a live session saves to memory"),
    ),
    "ai": (
        _inert_unless("max_messages max_tokens", "context_window", 0, "a window takes its place"),
        _inert_unless("max_messages", "max_tokens", 0, "a limit of tokens takes its place"),
        _inert_unless(
            "reserve_tokens", "context_window", 30_000, "at 0 there is no window to reserve of"
        ),
        _inert_unless(
            "keep_recent", "keep_recent_tokens", 0, "above 0 it counts tokens, not messages"
        ),
        _inert_unless("keep_recent_tokens", "max_tokens", 200_000, "at most half of it is kept"),
        _for_live_sessions(
            "large_output_threshold", "only a live session writes large outputs to files"
        ),
    ),
    "fased": (
        _RESERVE,
        _inert_unless(
            _PRUNING_SETTINGS, "context_pruning", "cache-ttl", "nothing is pruned while it is `off`"
        ),
        _SAFEGUARD,
        _inert_unless("quality_retries", "mode", "safeguard", "only mode `safeguard` has it"),
        _inert_unless(
            "soft_threshold_tokens",
            "memory_flush",
            free=True,
            why="nothing is flushed while it is off",
        ),
        _for_models("timeout_seconds max_history_share quality_retries"),
        _for_models("identifier_policy identifier_instructions"),
    ),
    "openclaw": (
        _inert_unless(
            "reserve_tokens reserve_tokens_floor",
            "context_window",
            None,
            "at most a quarter of the window is held free",
        ),
        _RESERVE,
        _inert_unless(
            "reserve_tokens_floor", "reserve_tokens", 0, "the larger of the two is held free"
        ),
        _inert_unless(
            _PRUNING_SETTINGS, "pruning", "cache-ttl", "nothing is pruned unless it is `cache-ttl`"
        ),
        _SAFEGUARD,
        _inert_unless(
            "recent_turns_preserve quality_guard",
            "mode",
            "safeguard",
            "only mode `safeguard` has it",
        ),
        _inert_unless(
            "quality_guard_max_retries",
            "quality_guard",
            free=True,
            why="a summary is asked for once",
        ),
        _for_models("timeout_seconds max_history_share quality_guard quality_guard_max_retries"),
        _for_models("identifier_policy identifier_instructions"),
    ),
    "codex": (_for_models("compact_prompt"),),
    "claude_code": (
        _inert_unless(
            "idle_compaction idle_min_tokens",
            "version",
            "2.1.299",
            "idle sessions are compacted from 2.1.299 on",
        ),
    ),
    "gemini": (
        _inert_unless(
            "retained_tokens max_tokens coalescing_threshold_tokens masking_threshold_tokens "
            "max_tokens_per_node max_state_tokens",
            "variant",
            "pipeline",
            "only the pipeline has it",
        ),
        _inert_unless(
            "compression_threshold compression_preserve_threshold function_response_token_budget "
            "truncate_tool_output_threshold",
            "variant",
            "classic",
            "the pipeline has none",
        ),
    ),
    "opencode": (
        _inert_unless(
            "reserved", "limit_input", 60_000, "without it the reply's tokens are held free"
        ),
        _inert_unless(
            "limit_output", "reserved", None, "it is held free in place of the reply's tokens"
        ),
        _inert_unless("limit_output", "version", "1.18", "version 2 holds `reserved` free"),
        _inert_unless(
            "prune_protect prune_minimum",
            "prune",
            free=True,
            why="no tool output is cleared while it is off",
        ),
        _inert_unless("tail_turns", "version", "1.18", "version 2 does not count turns"),
    ),
    "langchain_summary": (
        _inert_unless(
            "keep trim_tokens_to_summarize summary_prompt",
            "trigger",
            ("messages", 40),
            "without one nothing is ever compacted",
        ),
        _for_models("summary_prompt"),
    ),
    "swe_agent_mask": (_NO_WINDOW,),
    "langchain_clear_tools": (_NO_WINDOW,),
    "anthropic_clear_tools": (_NO_WINDOW,),
    "inspect_summary": (_for_models("instructions prompt"),),
    "deepagents": (
        _inert_unless(
            "truncate_args_keep truncate_args_max_length",
            "truncate_args_trigger",
            ("messages", 5),
            "without it no argument is cut",
        ),
        _for_models("summary_prompt"),
    ),
    "strands": (
        _inert_unless(
            "summary_ratio preserve_recent_messages focus",
            "method",
            "summary",
            "only a summary has it",
        ),
        _inert_unless(
            "window_size should_truncate_results per_turn",
            "method",
            "window",
            "only the window has it",
        ),
    ),
    "adk": (
        _inert_unless(
            "focus summariser",
            "token_threshold",
            10_000,
            "without a trigger nothing is ever compacted",
        ),
        _for_live_sessions(
            "overlap_size", "what the summariser reads once more changes no prompt of the agent"
        ),
        _for_models("focus"),
        _NO_WINDOW,
    ),
    "semantic_kernel": (
        _inert_unless("focus", "method", "summary", "a truncation writes no summary"),
        _NO_WINDOW,
    ),
    "letta": (
        _inert_unless(
            "sliding_window_percentage",
            "mode",
            "sliding_window",
            "mode `all` summarises everything",
        ),
        _for_models("prompt"),
    ),
    "boise": (
        _inert_unless(
            "ceiling_ratio", "ceiling_cap_tokens", 10**9, "the smaller of the two is the ceiling"
        ),
        _inert_unless(
            "ceiling_cap_tokens", "ceiling_ratio", 1.0, "the smaller of the two is the ceiling"
        ),
        _inert_unless(
            "hard_mult", "hard_ceiling_ratio", 1.0, "the smaller of the two is the hard ceiling"
        ),
        _inert_unless(
            "hard_ceiling_ratio", "hard_mult", 10.0, "the smaller of the two is the hard ceiling"
        ),
    ),
    "cline": (
        _inert_unless(
            "max_input_tokens trigger_ratio preserve_recent_tokens focus summariser",
            "version",
            "sdk",
            "version 3 drops half and has none",
        ),
    ),
    "roo": (
        _inert_unless(
            "auto_condense_context_percent custom_condensing_prompt",
            "auto_condense_context",
            free=True,
            why="without it the older half goes",
        ),
        _for_models("custom_condensing_prompt"),
    ),
    "ai_sdk": (_NO_WINDOW,),
    "anthropic_compact": (
        _inert_unless(
            "keep_messages",
            "pause_after_compaction",
            free=True,
            why="only a pause lets the caller keep any",
        ),
        _for_models("instructions"),
        _NO_WINDOW,
    ),
    "none": (_NO_WINDOW,),
}
"""For each preset the settings that can be without effect. Of two reasons for one setting the first
that can hold as the others stand is given.
"""


def find_inert_setting(
    name: str, parameters: Mapping[str, Any], setting: str, others: Iterable[Any]
) -> InertSetting | None:
    """Return the reason why a setting of a preset changes no replay, None where it may change one.

    Args:
        name: name of the preset.
        parameters: all its settings.
        setting: the setting in question.
        others: the values that it is compared with; it is inert where none makes other rules.
    """
    reasons = [r for r in INERT_SETTINGS.get(name, ()) if setting in r.settings]
    for reason in reasons:
        has_model = parameters.get("summariser") is not None
        if reason.scope is SettingEffectScope.LIVE or (
            reason.scope is SettingEffectScope.MODEL and not has_model
        ):
            return reason
    blocked = [r for r in reasons if r.scope is SettingEffectScope.OTHER_SETTINGS]
    values = [v for v in others if v != parameters[setting]]
    if not blocked or has_effect(name, parameters, setting, values) is not False:
        return None
    if len(blocked) == 1:
        return blocked[0]
    # of several reasons the one that holds the setting now is that which lets it act
    return next(
        (
            r
            for r in blocked
            if has_effect(name, {**parameters, r.controller: r.free}, setting, values)
        ),
        blocked[0],
    )


def has_effect(
    name: str, parameters: Mapping[str, Any], setting: str, values: Iterable[Any]
) -> bool | None:
    """Return whether a preset makes other rules with any of some values of a setting.

    Args:
        name: name of the preset.
        parameters: the preset's other settings.
        setting: name of the setting.
        values: values of it to try.

    Returns:
        None where the preset refuses the settings as they are, or with each of the values.
    """
    preset = _get_factory(name)
    out = None
    try:
        rules = preset(**parameters)
    except CtxkitError:
        return None
    for value in values:
        try:
            other = preset(**{**parameters, setting: value})
        except CtxkitError:  # a value that cannot work says nothing
            continue
        out = False
        if not have_same_effect(rules, other):
            return True
    return out


def have_same_effect(rules: Rules, other: Rules) -> bool:
    """Return whether two sets of rules have the same effect, whatever settings made them.

    Args:
        rules: the first set.
        other: the second set.
    """
    return replace(rules, parameters={}) == replace(other, parameters={})


def describe_inert_settings(rules: Rules) -> list[str]:
    """Return a sentence for each setting that differs from its default and changes nothing.

    Args:
        rules: rules of a preset, or any others, of which nothing is known.

    Example:
        >>> from ctxkit import presets
        >>> describe_inert_settings(presets.fased(reserve_tokens=8_000))[0][:56]
        'reserve_tokens has no effect (held by reserve_tokens_flo'
    """
    name = rules.name
    if name not in INERT_SETTINGS or not rules.parameters:
        return []
    defaults = get_defaults(name)
    changed = [n for n, v in rules.parameters.items() if n in defaults and v != defaults[n]]
    reasons = {n: find_inert_setting(name, rules.parameters, n, [defaults[n]]) for n in changed}
    return [f"{n} has no effect ({r.describe()})." for n, r in reasons.items() if r is not None]


@cache
def get_defaults(name: str) -> Mapping[str, Any]:
    """Return the settings of a preset with their defaults."""
    return {n: p.default for n, p in signature(_get_factory(name)).parameters.items()}


def list_inert_setting_reasons(name: str) -> list[str]:
    """Return a line for each reason why settings of a preset can be without effect."""
    return [f"{', '.join(r.settings)}: {r.describe()}" for r in INERT_SETTINGS.get(name, ())]


def add_inert_settings(doc: str, name: str) -> str:
    """Return a preset's docstring with a note on its settings that can be without effect.

    Args:
        doc: the docstring as in the code, with an example; the note is put before the example.
        name: name of the preset.
    """
    rows = [f"        {row}." for row in list_inert_setting_reasons(name)]
    if not rows:
        return doc
    head = "    Note:\n        No effect, as the other settings stand or in a replay:\n"
    return doc.replace("    Example:\n", "\n".join([head, *rows, "", "    Example:\n"]), 1)


def _get_factory(name: str) -> Callable[..., Rules]:
    factory: Callable[..., Rules] = getattr(import_module(f"ctxkit.presets.systems.{name}"), name)
    return factory
