"""Rules from whatever names them: a preset's name, with settings, a policy's words, or rules."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean
from ctxkit.policies import policy_names as policies
from ctxkit.policies.rules import as_rules as rules_of_policy
from ctxkit.presets.preset_names import names, preset

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.policy import Policy
    from ctxkit.policies.rules import Rules

    AnyRules: TypeAlias = "Rules | Policy | Callable[..., Rules] | str"
    """Rules, a preset, a policy, or the words for one of them."""


def as_rules(rules: AnyRules, *, once: bool = False) -> Rules:
    """Return rules from rules, a preset or its name, a policy or its words.

    A name may have settings: ``"pi"``, ``"pi:reserve_tokens=8_000"``, ``"clear:keep_last=3"``. A
    policy without a trigger is due before every call: that is warned of.

    Args:
        rules: what names them.
        once: they are asked once, not call by call: there is nothing to warn of.

    Raises:
        BadArguments: it is none of these, or the settings cannot work.
        UnknownPreset: a name means nothing; the sentence names the nearest.
    """
    made = _made(rules)
    if not once:
        made.warn()
    return made


def _made(rules: Any) -> Rules:
    if isinstance(rules, str):
        return _named(rules)
    if callable(rules) and str(getattr(rules, "__module__", "")).startswith("ctxkit.presets."):
        preset_: Any = rules
        made: Rules = preset_()
        return made
    policy: Any = rules
    return rules_of_policy(policy)


def _named(words: str) -> Rules:
    name, _, settings = words.partition(":")
    word = name.strip().lower().replace("-", "_")
    if word in names() and "|" not in words:
        return preset(word, **_settings(word, settings))
    first = words.split("|", maxsplit=1)[0].partition(":")[0].strip().lower().replace("-", "_")
    if first not in policies.names():
        known = [*names(), *policies.names()]
        raise UnknownPreset(
            f"There is no preset and no policy {first!r}.{did_you_mean(first, known)} "
            f"Presets are {', '.join(names())}."
        )
    return rules_of_policy(words).but(name=words.strip())


def _settings(name: str, words: str) -> dict[str, Any]:
    """Return the settings behind a preset's name as values."""
    from ctxkit import presets

    known = signature(getattr(presets, name)).parameters
    out = {}
    for item in filter(None, (part.strip() for part in words.split(","))):
        key, equals, value = item.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise BadArguments(
                f"Setting {item!r} of preset {name!r} needs a value: write {key}=...."
            )
        default = known[key].default if key in known else None
        out[key] = value.strip() if isinstance(default, str) else policies.plain_value(value)
    return out
