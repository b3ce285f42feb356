"""Presets by name, rules from names and texts, and the decorator that makes a preset."""

from __future__ import annotations

from copy import copy
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias

from ctxkit._internal.setting_value_validation import coerce_setting
from ctxkit.errors import BadArguments, UnknownName, did_you_mean
from ctxkit.policies import registry as policies
from ctxkit.policies.compaction_and_pruning_rules import as_rules as rules_of_policy
from ctxkit.presets.inert_settings import add_inert_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.protocols import Policy

    RulesLike: TypeAlias = "Rules | Policy | Callable[..., Rules] | str"
    """Rules, a preset, a policy, or the text form of one of them."""


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
    """Return the names of the presets: the five of the design documents first, `none` last.

    Returns:
        Names, each a function of `ck.presets`.

    Example:
        >>> names()[:3], names()[-1]
        (['fuseraft', 'tyrum', 'ai'], 'none')
    """
    return list(PRESETS)


def preset(name: str, **settings: Any) -> Rules:
    """Return the rules of a preset by its name.

    Args:
        name: name of the preset, in any case, with ``-`` or ``_``.
        settings: settings of the preset.

    Returns:
        The rules; `parameters` has the settings in force.

    Raises:
        UnknownName: there is no preset, or no setting, of that name; the sentence names the
            nearest.
        BadArguments: the settings cannot work together.

    Example:
        >>> from ctxkit.presets.registry_and_setting_checks import preset
        >>> preset("pi", reserve_tokens=8_000).parameters["reserve_tokens"]
        8000
    """
    normalised = name.strip().lower().replace("-", "_")
    if normalised not in names():
        raise UnknownName(
            f"There is no preset {name!r}; there are"
            f" {', '.join(names())}.{did_you_mean(normalised, names())}"
        )
    factory = getattr(import_module(f"ctxkit.presets.systems.{normalised}"), normalised)
    setting_names = list(signature(factory).parameters)
    for key in settings:
        if key not in setting_names:
            raise UnknownName(
                f"Preset {normalised!r} has no setting {key!r}; it has"
                f" {', '.join(setting_names)}.{did_you_mean(key, setting_names)}"
            )
    try:
        return factory(**settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise BadArguments(
            f"Preset {normalised!r} cannot be made of these settings: {error}."
        ) from None


def preset_differences(name: str) -> tuple[DocumentationDifference, ...]:
    """Return where the document and the program of a preset differ, and what the preset does.

    Args:
        name: one of `names()`.

    Returns:
        Differences in the order of the page on conformance; none where both agree.

    Example:
        >>> [difference.topic for difference in preset_differences("pi")][:2]
        ['second compaction', 'when']
    """
    return tuple(getattr(import_module(f"ctxkit.presets.systems.{name}"), "DIFFERENCES", ()))


def resolve_rules(rules: RulesLike, *, once: bool = False) -> Rules:
    """Return rules from rules, a preset or its name, or a policy or its text form.

    A name may have settings: ``"pi"``, ``"pi:reserve_tokens=8_000"``, ``"clear:keep_last=3"``. A
    policy without a trigger compacts before every call, which gives a warning.

    Args:
        rules: rules, a preset, a policy, or the text of one of them.
        once: the rules are applied once, not call by call; no warning is given.

    Returns:
        Rules; those that are given come back unchanged.

    Raises:
        BadArguments: it is none of these, or the settings are invalid.
        UnknownName: a name is unknown; the sentence names the nearest one.

    Example:
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
        # a preset that was not called stands for its defaults
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
        raise UnknownName(
            f"There is no preset and no policy {first!r}.{nearest} "
            f"Presets are {', '.join(names())}."
        )
    return rules_of_policy(words).but(name=words.strip())


P = ParamSpec("P")


def check_window(window: int | None, reserve: int, keep: int = 0) -> None:
    """Refuse a window in which a compaction frees nothing.

    Args:
        window: context window in tokens; None: unknown, and not checked.
        reserve: tokens held free for the reply.
        keep: tokens that a compaction keeps.

    Raises:
        BadArguments: the reserve is not smaller than the window, or the kept tokens fill what is
            left.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call"
            " would be over it. Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= keep:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {keep:,} frees nothing: "
            "the trigger must lie above what is kept."
        )


def check_between(low: float, high: float, **settings: float) -> None:
    """Refuse settings outside two limits.

    Args:
        low: smallest allowed value.
        high: largest allowed value.
        settings: values by the name of the setting.

    Raises:
        BadArguments: a setting is outside; the sentence names it.
    """
    for name, value in settings.items():
        if not low <= value <= high:
            raise BadArguments(f"{name} lies between {low:,} and {high:,}, not at {value:,}.")


def make_checked_preset(make: Callable[P, Rules]) -> Callable[P, Rules]:
    """Return a preset that first refuses settings of another type than its signature says, and
    whose rules have its name and, as `parameters`, all its settings.
    """
    parameters = signature(make).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}

    @wraps(make)
    def checked_preset(*args: P.args, **settings: P.kwargs) -> Rules:
        for name in [name for name in parameters if name in settings]:
            need = f"{name} of preset {make.__name__!r} must be {{words}}"
            settings[name] = coerce_setting(settings[name], str(parameters[name].annotation), need)
        # rules are frozen: the copy leaves those that the preset made unchanged
        rules = copy(make(*args, **settings))
        named = dict(zip(parameters, args, strict=False)) | settings
        object.__setattr__(rules, "name", rules.name or make.__name__)
        object.__setattr__(rules, "parameters", defaults | named)
        return rules

    checked_preset.__doc__ = add_inert_settings(make.__doc__ or "", make.__name__)
    return checked_preset


class DocumentationDifference(NamedTuple):
    """A difference between document and program, or one that a preset cannot reproduce."""

    topic: str
    document: str
    program: str
    default: str
    """What the preset does."""
    quirks: str = "as the default"
    """What it does with `quirks=True`."""


LAST_CALL_DIFFERENCE = DocumentationDifference(
    "size that triggers",
    "tokens of the context",
    "prompt and reply of the last call together",
    "the prompt of the coming call",
)
"""Of systems that go by the usage that the last reply brought."""
LARGER_SUMMARY_DIFFERENCE = DocumentationDifference(
    "a summary larger than what it replaces", "not said", "is taken", "is refused"
)
"""Of systems that do not look at the size of what was written."""
MEMORY_TOOL_DIFFERENCE = DocumentationDifference(
    "memory tool",
    "the model is warned to save what matters before",
    "a message at nine tenths of the threshold",
    "none",
)
"""Of Inspect's three ways."""
