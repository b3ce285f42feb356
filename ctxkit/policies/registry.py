"""Policies by name, and chains written as `clear:keep_last=3 | window:keep_tokens=60000`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, UnknownName, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.protocols import Policy

ENTRY_POINT_GROUP = "ctxkit.policies"
"""Group of entry points, ``name = module:Class``, by which other packages add policies."""

MEMBERS = {
    "text_only": "message_hiding:TextOnly",
    "roles": "message_hiding:RoleFilter",
    "without_agents": "message_hiding:WithoutAgents",
    "turn_age": "message_hiding:TurnAge",
    "tail": "message_hiding:Tail",
    "shorten": "message_shortening:ResultShortening",
    "consumed_reads": "message_shortening:StaleReadShortening",
    "replies": "message_shortening:ReplyShortening",
    "outputs": "message_shortening:OutputShortening",
    "clear": "result_clearing_and_cache_ttl:Clear",
    "tool_pairs": "result_clearing_and_cache_ttl:KeepNewestToolPairs",
    "budget": "message_shortening:CharacterBudget",
    "cache_ttl": "result_clearing_and_cache_ttl:CacheTtl",
    "prune": "message_hiding:PruneToolCalls",
    "cap": "message_hiding:MessageCountCap",
    "window": "compaction_without_summary:Window",
    "turns": "compaction_without_summary:KeepTurns",
    "window_share": "compaction_without_summary:WindowShare",
    "summary": "summary_compaction:Summary",
    "safeguard": "openclaw_safeguard:PiSummaryInStages",
    "intents": "tool_evidence_summaries:ToolCallRecordSummary",
    "evidence": "tool_evidence_summaries:ToolEvidenceSummary",
    "hybrid": "tool_evidence_summaries:HybridSummary",
    "digest": "result_excerpts_and_offload:OldResultsDigest",
    "excerpts": "result_excerpts_and_offload:ResultExcerpts",
    "superseded": "superseded_tool_calls:Superseded",
    "repeated_commands": "superseded_tool_calls:RepeatedCommands",
    "intermediate": "message_shortening:IntermediateReplyShortening",
    "tombstones": "result_clearing_and_cache_ttl:ResultEvictionOverBudget",
    "offload": "result_excerpts_and_offload:ResultOffload",
    "adaptive_trim": "compaction_without_summary:AdaptiveTrim",
    "native": "compaction_without_summary:ProviderCompaction",
    "recall": "lesson_extraction_and_recall:LessonRecall",
    "keep_rules": "user_rule_extraction:KeepUserRules",
}
"""Short names of the kit's own policies."""


def names() -> list[str]:
    """Return the names of all policies that `parse` accepts, those of other packages last.

    Returns:
        Names as `parse` and a sweep take them.

    Example:
        >>> import ctxkit as ck
        >>> ck.policies.names()[:3]
        ['text_only', 'roles', 'without_agents']
    """
    return [*MEMBERS, *(n for n in sorted(get_policy_entry_points()) if n not in MEMBERS)]


def get_policy_entry_points() -> dict[str, Any]:
    """Return the entry points of policies in other packages, by name; they load when used.

    Returns:
        An entry point a name; `load()` imports the class.

    Example:
        >>> import ctxkit as ck
        >>> [name for name in ck.policies.get_policy_entry_points() if name.startswith("ctxkit_")]
        []
    """
    from importlib.metadata import entry_points  # 10 ms, which most commands do not need

    return {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}


def create_policy(name: str, **settings: Any) -> Policy:
    """Create a policy by its name.

    Args:
        name: one of `names()`; hyphens and capitals do not matter.
        settings: its settings.

    Raises:
        UnknownName: there is no such policy.
        BadArguments: it has no such setting, or the value is invalid.
    """
    policy_class = _load_policy_class(name.strip().lower().replace("-", "_"))
    setting_names = (
        [f.name for f in fields(policy_class) if f.init] if is_dataclass(policy_class) else []
    )
    for key in settings:
        if setting_names and key not in setting_names:
            raise BadArguments(
                f"Policy {name!r} has no setting {key!r}; it has"
                f" {', '.join(setting_names)}.{did_you_mean(key, setting_names)}"
            )
    policy: Policy = policy_class(**settings)
    return policy


def parse(words: str) -> Policy:
    """Parse a policy, or a chain joined by ``|``, from a line: ``name:setting=value,...``.

    Join the items of a list by ``+`` (``deny=bash+read*``), and the pairs of a table by ``:`` and
    ``+`` (``overrides=grep:20000+bash:500``). Put a text with ``,`` or ``|`` in double quotes.

    Args:
        words: the line.

    Returns:
        A policy, or a `Chain` of several.

    Raises:
        UnknownName: there is no policy of that name.
        BadArguments: the line or a setting is invalid; the message names the nearest valid word.

    Example:
        >>> import ctxkit as ck
        >>> ck.policies.parse("clear:keep_last=5,deny=bash")
        Clear(keep_last=5, deny=('bash',))
    """
    parts = [_parse_policy(part) for part in _split_outside_quotes(words, "|")]
    if len(parts) == 1:
        return parts[0]
    from ctxkit.policies.policy_base_and_chains import Chain

    return Chain.of(*parts)


def _parse_policy(words: str) -> Policy:
    name, _, rest = words.strip().partition(":")
    name = name.strip().lower().replace("-", "_")
    if not name:
        raise BadArguments(
            "A policy is missing beside '|': write it as clear:keep_last=3 |"
            " window:keep_tokens=60000."
        )
    policy_class = _load_policy_class(name)
    setting_types = (
        {f.name: (str(f.type), f.default) for f in fields(policy_class)}
        if is_dataclass(policy_class)
        else {}
    )
    return create_policy(name, **parse_settings(rest, f"policy {name!r}", setting_types))


def parse_settings(words: str, whose: str, types: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Parse the settings of a line: ``key=value``, joined by commas.

    Args:
        words: the line.
        whose: the owner of the settings, for error messages.
        types: the type and the default of each setting.

    Raises:
        BadArguments: a setting has no value.
    """
    settings = {}
    for item in filter(str.strip, _split_outside_quotes(words, ",")):
        key, equals, value = item.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise BadArguments(
                f"Setting {item.strip()!r} of {whose} needs a value: write {key}=...."
            )
        settings[key] = _parse_value(value.strip(), *types.get(key, ("", None)))
    return settings


def _load_policy_class(name: str) -> Any:
    if name in MEMBERS:
        module, _, class_name = MEMBERS[name].partition(":")
        return getattr(import_module(f"ctxkit.policies.{module}"), class_name)
    entry_point = get_policy_entry_points().get(name)
    if entry_point is None:
        raise UnknownName(f"There is no policy {name!r}.{did_you_mean(name, names())}")
    return entry_point.load()


def _split_outside_quotes(words: str, sign: str) -> list[str]:
    """Split a line at a sign outside double quotes."""
    parts, is_quoted = [""], False
    for char in words:
        is_quoted ^= char == '"'
        if char == sign and not is_quoted:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _parse_value(text: str, kind: str, default: Any) -> Any:
    """Return the value of a setting by its annotation and its default."""
    # Double quotes protect separators, and make a value a text.
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    text = text[1:-1] if is_quoted else text
    if kind.startswith("tuple"):
        return tuple(t for t in text.split("+") if t)
    if kind.startswith("Mapping"):
        pairs = (t.rpartition(":") for t in text.split("+") if t)
        return {key: _parse_word(value) for key, _, value in pairs}
    return text if is_quoted or isinstance(default, str) else _parse_word(text)


def _parse_word(text: str) -> Any:
    """Return the value of a word: True, False, None, a number, else the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    # Numbers may have underscores, as in Python.
    number = text.replace("_", "")
    for kind in (int, float):
        try:
            return kind(number)
        except ValueError:
            continue
    return text
