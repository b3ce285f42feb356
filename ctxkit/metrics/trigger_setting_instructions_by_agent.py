"""Default and setting of the compaction trigger in coding agents (Claude Code, Codex, ...)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.policies.triggers import Either
from ctxkit.tokens.token_counters import ContextBudget, default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.policies.triggers import BaseTrigger

CLAUDE_CODE_REPLY_RESERVE = 20_000
"""Tokens of its auto-compact window that Claude Code reserves for a reply."""
CLAUDE_CODE_BUFFER = 13_000
"""Tokens before the end of the rest of that window at which it compacts."""
CLAUDE_CODE_WINDOWS = range(100_000, 1_000_001)
"""Windows that `/autocompact` accepts."""
CODEX_MAX_SHARE = 0.9
"""Share of the window above which Codex compacts regardless of its setting."""


class TriggerSettingFormat(NamedTuple):
    """The setting of a tool's trigger: where it is, and how it is written."""

    place: str
    """The tool and its file, as the beginning of a sentence."""
    write: Callable[[int, int], str]
    """The setting for a trigger in a window, both in tokens."""


def describe_trigger_setting(log_format: str, trigger: int, window: int) -> str:
    """Return where and how to set the trigger of the tool that wrote a log.

    The second line, if there is one, is the setting itself, indented.

    Args:
        log_format: the format of the log, which identifies the tool (`Session.format`).
        trigger: tokens of the prompt at which to compact.
        window: tokens of the model's window.
    """
    setting = TRIGGER_SETTINGS.get(log_format)
    if setting is None:
        return f"No setting of its tool is known: compact by hand at {trigger:,} tokens."
    return f"Set it {setting.place}:\n  {setting.write(trigger, window)}"


def find_default_trigger(log_format: str, window: int) -> int | None:
    """Return the prompt size at which a tool compacts by default, from its preset; None: unknown.

    Args:
        log_format: the format of the log, which identifies the tool (`Session.format`).
        window: tokens of the model's window.

    Example:
        >>> find_default_trigger("claude-code", 200_000)
        167000
    """
    from ctxkit.presets.registry_and_setting_checks import preset

    name = PRESETS_BY_FORMAT.get(log_format)
    if name is None:
        return None
    rules = preset(name, context_window=window)
    budget = ContextBudget(window, rules.reserve, default_counter())
    sizes = [size for t in _list_alternatives(rules.trigger) if (size := t.tokens(budget))]
    return int(min(sizes)) if sizes else None


def _list_alternatives(trigger: BaseTrigger | None) -> Iterator[BaseTrigger]:
    """Yield the triggers that are sufficient alone; those that need another one are left out."""
    if isinstance(trigger, Either):
        for part in trigger.parts:
            yield from _list_alternatives(part)
    elif trigger is not None and not trigger.parts:
        yield trigger


def _write_claude_code(trigger: int, window: int) -> str:
    compact_window = trigger + CLAUDE_CODE_REPLY_RESERVE + CLAUDE_CODE_BUFFER
    if compact_window >= window:
        return "/autocompact auto, which is as late as it can"
    if compact_window in CLAUDE_CODE_WINDOWS:
        return f"/autocompact {round(compact_window / 1_000)}k"
    percent = 100 * trigger / (window - CLAUDE_CODE_REPLY_RESERVE)
    return f'"env": {{"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "{round(percent)}"}} in settings.json'


def _write_codex(trigger: int, window: int) -> str:
    return f"model_auto_compact_token_limit = {min(trigger, int(CODEX_MAX_SHARE * window))}"


def _write_kimi(trigger: int, window: int) -> str:
    # Kimi compacts at whichever of the two comes first
    return (
        f"[loop_control]\n  reserved_context_size = {window - trigger}\n  "
        f"compaction_trigger_ratio = {_share_of_window(trigger, window)}"
    )


def _share_of_window(trigger: int, window: int) -> str:
    return f"{min(trigger / window, 1.0):.2f}"


_CODEX = TriggerSettingFormat("in Codex's ~/.codex/config.toml", _write_codex)
_FUSERAFT = TriggerSettingFormat(
    "in fuseraft's orchestration.yaml",
    lambda n, _: f"Compaction: {{Mode: window, TokenBudget: {n}}}",
)
TRIGGER_SETTINGS: dict[str, TriggerSettingFormat] = {
    "claude-code": TriggerSettingFormat(
        "in Claude Code, which compacts 33,000 tokens before the size it is given",
        _write_claude_code,
    ),
    "codex": _CODEX,
    "codex-exec": _CODEX,
    "pi": TriggerSettingFormat(
        "in Pi's ~/.pi/agent/settings.json",
        lambda n, window: f'{{"compaction": {{"reserveTokens": {window - n}}}}}',
    ),
    "gemini-cli": TriggerSettingFormat(
        "in Gemini CLI's ~/.gemini/settings.json",
        lambda n, window: f'{{"model": {{"compressionThreshold": {_share_of_window(n, window)}}}}}',
    ),
    "qwen-code": TriggerSettingFormat(
        "in Qwen Code's ~/.qwen/settings.json",
        lambda n, window: (
            f'{{"context": {{"autoCompactThreshold": {_share_of_window(n, window)}}}}}'
        ),
    ),
    "opencode": TriggerSettingFormat(
        "in opencode.json, for a model with an input limit",
        lambda n, window: f'{{"compaction": {{"reserved": {window - n}}}}}',
    ),
    "goose": TriggerSettingFormat(
        "in Goose's ~/.config/goose/config.yaml",
        lambda n, window: f"GOOSE_AUTO_COMPACT_THRESHOLD: {_share_of_window(n, window)}",
    ),
    "kimi-cli": TriggerSettingFormat("in Kimi's ~/.kimi/config.toml", _write_kimi),
    "fuseraft-snapshots": _FUSERAFT,
    "fuseraft-events": _FUSERAFT,
    "fuseraft-turns": _FUSERAFT,
    "native": TriggerSettingFormat(
        "in ctxkit", lambda n, _: f"Rules(policy=..., trigger=triggers.Above({n:_}))"
    ),
}
"""The setting of each tool, by the format of its logs."""
PRESETS_BY_FORMAT = {
    "claude-code": "claude_code",
    "codex": "codex",
    "codex-exec": "codex",
    "pi": "pi",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "goose": "goose",
}
"""The preset of a tool that compacts by size, by the format of its logs."""
