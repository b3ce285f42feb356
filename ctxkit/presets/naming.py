"""Rules from whatever names them: a preset's name, with settings, a policy's words, or rules."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxkit.errors import UnknownPreset, did_you_mean
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
    from ctxkit import presets

    name, _, settings = words.partition(":")
    word = name.strip().lower().replace("-", "_")
    if word in names() and "|" not in words:
        parameters = signature(getattr(presets, word)).parameters.items()
        known = {key: (str(p.annotation), p.default) for key, p in parameters}
        return preset(word, **policies.settings_in(settings, f"preset {word!r}", known))
    first = words.split("|", maxsplit=1)[0].partition(":")[0].strip().lower().replace("-", "_")
    if first not in policies.names():
        nearest = did_you_mean(first, [*names(), *policies.names()])
        raise UnknownPreset(
            f"There is no preset and no policy {first!r}.{nearest} "
            f"Presets are {', '.join(names())}."
        )
    return rules_of_policy(words).but(name=words.strip())
