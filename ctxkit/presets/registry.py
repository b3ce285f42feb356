"""Registry of presets by name, and resolution of names, policies and chains to rules."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean
from ctxkit.policies import registry as policies
from ctxkit.policies.rules import as_rules as rules_of_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.protocols import Policy
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.setting_checks import Difference

    RulesLike: TypeAlias = "Rules | Policy | Callable[..., Rules] | str"
    """Rules, a preset, a policy, or the words for one of them."""


PRESETS = (
    "fuseraft",
    "tyrum",
    "ai",
    "pulse_coder",
    "fased",
    "pi",
    "swe_agent_mask",
    "codex",
    "claude_code",
    "gemini",
    "openclaw",
    "opencode",
    "openhands",
    "langchain_summary",
    "langchain_clear_tools",
    "anthropic_clear_tools",
    "inspect_edit",
    "inspect_trim",
    "inspect_summary",
    "openai_server",
    "deepagents",
    "strands",
    "adk",
    "semantic_kernel",
    "agent_framework",
    "letta",
    "boise",
    "cline",
    "roo",
    "goose",
    "ai_sdk",
    "anthropic_compact",
    "jev",
    "aider",
    "lcm",
    "none",
)
"""The presets: the five of the design documents first, `none` last."""


def names() -> list[str]:
    """Return the names of the presets: the five of the design documents first, `none` last."""
    return list(PRESETS)


def preset(name: str, **settings: Any) -> Rules:
    """Return the rules of a preset by its name.

    Args:
        name: name of the preset, in any case, with ``-`` or ``_``.
        settings: settings of the preset.

    Raises:
        UnknownPreset: there is no preset, or no setting, of that name; the sentence names the
            nearest.
        BadArguments: the settings cannot work together.

    Example:
        >>> from ctxkit.presets.registry import preset
        >>> preset("pi", reserve_tokens=8_000).parameters["reserve_tokens"]
        8000
    """
    normalised = name.strip().lower().replace("-", "_")
    if normalised not in names():
        raise UnknownPreset(
            f"There is no preset {name!r}; there are"
            f" {', '.join(names())}.{did_you_mean(normalised, names())}"
        )
    factory = getattr(import_module(f"ctxkit.presets.systems.{normalised}"), normalised)
    setting_names = list(signature(factory).parameters)
    for key in settings:
        if key not in setting_names:
            raise UnknownPreset(
                f"Preset {normalised!r} has no setting {key!r}; it has"
                f" {', '.join(setting_names)}.{did_you_mean(key, setting_names)}"
            )
    try:
        return factory(**settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise BadArguments(
            f"Preset {normalised!r} cannot be made of these settings: {error}."
        ) from None


def preset_differences(name: str) -> tuple[Difference, ...]:
    """Return where the document and the program of a preset differ, and what the preset does."""
    return tuple(getattr(import_module(f"ctxkit.presets.systems.{name}"), "DIFFERENCES", ()))


def resolve_rules(rules: RulesLike, *, once: bool = False) -> Rules:
    """Return rules from rules, a preset or its name, or a policy or its text form.

    A name may have settings: ``"pi"``, ``"pi:reserve_tokens=8_000"``, ``"clear:keep_last=3"``. A
    policy without a trigger compacts before every call, which gives a warning.

    Args:
        rules: rules, a preset, a policy, or the text of one of them.
        once: the rules are applied once, not call by call; no warning is given.

    Raises:
        BadArguments: it is none of these, or the settings are invalid.
        UnknownPreset: a name is unknown; the sentence names the nearest one.

    Example:
        >>> from ctxkit.presets.registry import resolve_rules
        >>> resolve_rules("pi:reserve_tokens=8_000").parameters["reserve_tokens"]
        8000
    """
    resolved = _to_rules(rules)
    if not once:
        resolved.warn()
    return resolved


def _to_rules(rules: Any) -> Rules:
    if isinstance(rules, str):
        return _rules_by_name(rules)
    if callable(rules) and str(getattr(rules, "__module__", "")).startswith("ctxkit.presets."):
        factory: Any = rules
        preset_rules: Rules = factory()
        return preset_rules
    policy: Any = rules
    return rules_of_policy(policy)


def _rules_by_name(words: str) -> Rules:
    from ctxkit import presets

    name, _, settings = words.partition(":")
    word = name.strip().lower().replace("-", "_")
    # a preset wins over a policy of the same name; a chain is always one of policies
    if word in names() and "|" not in words:
        parameters = signature(getattr(presets, word)).parameters.items()
        settings_by_name = {key: (str(p.annotation), p.default) for key, p in parameters}
        return preset(
            word, **policies.parse_settings(settings, f"preset {word!r}", settings_by_name)
        )
    first = words.split("|", maxsplit=1)[0].partition(":")[0].strip().lower().replace("-", "_")
    if first not in policies.names():
        nearest = did_you_mean(first, [*names(), *policies.names()])
        raise UnknownPreset(
            f"There is no preset and no policy {first!r}.{nearest} "
            f"Presets are {', '.join(names())}."
        )
    return rules_of_policy(words).but(name=words.strip())
