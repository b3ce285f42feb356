"""Policies by name, and chains of them written as `clear:keep_last=3 |
window:keep_tokens=60000`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.protocols import Policy

ENTRY_POINT_GROUP = "ctxkit.policies"
"""Entry points of this group, ``name = module:Class``, are policies too."""

MEMBERS = {
    "text_only": "message_filters:TextOnly",
    "roles": "message_filters:Roles",
    "without_agents": "message_filters:WithoutAgents",
    "turn_age": "message_filters:TurnAge",
    "tail": "message_filters:Tail",
    "shorten": "shorten:Results",
    "consumed_reads": "shorten:ConsumedReads",
    "replies": "shorten:Replies",
    "outputs": "shorten:Outputs",
    "clear": "clearing:Clear",
    "tool_pairs": "clearing:ToolPairs",
    "budget": "clearing:Budget",
    "cache_ttl": "cache_ttl:CacheTtl",
    "prune": "message_filters:Prune",
    "cap": "message_filters:Cap",
    "window": "window:Window",
    "turns": "window:KeepTurns",
    "window_share": "window:WindowShare",
    "summary": "summary:Summary",
    "safeguard": "safeguard:Safeguard",
    "intents": "evidence:Intents",
    "evidence": "evidence:Evidence",
    "hybrid": "evidence:Hybrid",
    "digest": "offload:Digest",
    "excerpts": "offload:Excerpts",
    "superseded": "superseded:Superseded",
    "repeated_commands": "superseded:RepeatedCommands",
    "intermediate": "shorten:Intermediate",
    "tombstones": "clearing:Tombstones",
    "offload": "offload:Offload",
    "adaptive_trim": "window:AdaptiveTrim",
    "native": "provider_native:Native",
    "recall": "memory:Recall",
}
"""Short names of the kit's own policies."""


def names() -> list[str]:
    """Return the names that `parse` knows, those of other packages after the kit's own."""
    return [*MEMBERS, *(n for n in sorted(entries()) if n not in MEMBERS)]


def entries() -> dict[str, Any]:
    """Return the policies of other packages by name; they are loaded only when used."""
    return {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}


def create_policy(name: str, **settings: Any) -> Policy:
    """Return a policy by its name.

    Raises:
        UnknownPreset: there is no such policy.
        BadArguments: it has no such setting, or the setting cannot work.
    """
    kind = _load_policy_class(name.strip().lower().replace("-", "_"))
    known = [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else []
    for key in settings:
        if known and key not in known:
            raise BadArguments(
                f"Policy {name!r} has no setting {key!r}; it has"
                f" {', '.join(known)}.{did_you_mean(key, known)}"
            )
    made: Policy = kind(**settings)
    return made


def parse(words: str) -> Policy:
    """Return the policy that a line describes: names with settings, one after the other.

    Lists are joined by ``+`` (``deny=bash+read*``), tables by ``:``
    (``overrides=grep:20000+bash:500``); a text with ``,`` or ``|`` in it stands in double quotes.

    Raises:
        UnknownPreset: a policy of that name does not exist.
        BadArguments: the line or a setting cannot work; the sentence names the nearest right word.
    """
    parts = [_parse_one(part) for part in _split(words, "|")]
    if len(parts) == 1:
        return parts[0]
    from ctxkit.policies.base import Chain

    return Chain.of(*parts)


def _parse_one(words: str) -> Policy:
    name, _, rest = words.strip().partition(":")
    name = name.strip().lower().replace("-", "_")
    if not name:
        raise BadArguments(
            "A policy is missing beside '|': write it as clear:keep_last=3 |"
            " window:keep_tokens=60000."
        )
    kind = _load_policy_class(name)
    known = {f.name: (str(f.type), f.default) for f in fields(kind)} if is_dataclass(kind) else {}
    return create_policy(name, **parse_settings(rest, f"policy {name!r}", known))


def parse_settings(words: str, whose: str, known: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Return the settings in a line, ``key=value`` joined by commas, as `parse` reads them.

    Args:
        words: the line.
        whose: whose settings they are, as a sentence names it.
        known: the type and the default of each setting.

    Raises:
        BadArguments: one has no value.
    """
    settings = {}
    for item in filter(str.strip, _split(words, ",")):
        key, equals, value = item.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise BadArguments(
                f"Setting {item.strip()!r} of {whose} needs a value: write {key}=...."
            )
        settings[key] = _value(value.strip(), *known.get(key, ("", None)))
    return settings


def _load_policy_class(name: str) -> Any:
    if name in MEMBERS:
        module, _, kind = MEMBERS[name].partition(":")
        return getattr(import_module(f"ctxkit.policies.{module}"), kind)
    found = entries().get(name)
    if found is None:
        raise UnknownPreset(f"There is no policy {name!r}.{did_you_mean(name, names())}")
    return found.load()


def _split(words: str, sign: str) -> list[str]:
    """Split at a sign outside double quotes."""
    out, quoted = [""], False
    for char in words:
        quoted ^= char == '"'
        if char == sign and not quoted:
            out.append("")
        else:
            out[-1] += char
    return out


def _value(text: str, kind: str, default: Any) -> Any:
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    text = text[1:-1] if quoted else text
    if kind.startswith("tuple"):
        return tuple(t for t in text.split("+") if t)
    if kind.startswith("Mapping"):
        pairs = (t.rpartition(":") for t in text.split("+") if t)
        return {key: _plain(value) for key, _, value in pairs}
    return text if quoted or isinstance(default, str) else _plain(text)


def _plain(text: str) -> Any:
    """Return what a word means: true, false, none, a number, else itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    number = text.replace("_", "")
    for kind in (int, float):
        try:
            return kind(number)
        except ValueError:
            continue
    return text
