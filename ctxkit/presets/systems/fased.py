"""Fased (a fork of OpenClaw, built on Pi): a floored reserve, a guarded summary, pruning
when cold.
"""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.setting_value_validation import FLAG, WHOLE, make_choice_kind
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.lesson_extraction_and_recall import MemoryFlushSettings
from ctxkit.policies.openclaw_safeguard import PiSummaryInStages
from ctxkit.policies.result_clearing_and_cache_ttl import CLEARED_PLACEHOLDER
from ctxkit.policies.summary_compaction import PiSummary
from ctxkit.policies.texts.summary_prompts_and_audits import OPENCLAW_SECTIONS, PI_SECTIONS
from ctxkit.policies.triggers import Above, Overflow, Share
from ctxkit.presets import openclaw_and_fased_settings
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    get_section,
    parse_keys,
)
from ctxkit.presets.openclaw_and_fased_settings import RESERVE_FLOOR
from ctxkit.presets.registry_and_setting_checks import (
    DocumentationDifference,
    check_between,
    check_window,
    make_checked_preset,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


SOFT_THRESHOLD_TOKENS = 4000

DIFFERENCES = (
    DocumentationDifference(
        "default mode",
        "safeguard unless set otherwise",
        "safeguard only where the config has an `agents.defaults` object, else default",
        "safeguard",
        "safeguard: pass mode='default' for a config without that object",
    ),
    DocumentationDifference(
        "too little history",
        "a skipped result",
        "fails: Compaction cancelled",
        "nothing is done",
        "as the program",
    ),
    DocumentationDifference(
        "a session that is one giant turn",
        "is compacted",
        "cannot be compacted (accepted in later OpenClaw)",
        "its head is summarised",
        "fails, and the history is kept",
    ),
    DocumentationDifference(
        "timeoutSeconds",
        "limits a compaction",
        "is not passed on: 300 s always",
        "limits it",
        "300 s",
    ),
    DocumentationDifference(
        "maxHistoryShare",
        "a limit for how much of the window history can occupy",
        "parts the history that a model summarises; what is kept does not depend on it",
        "as the program; without a model the extract reads all of the history at once, so that the"
        " share changes nothing",
    ),
    DocumentationDifference(
        "identifierPolicy",
        "strict by default",
        "only in mode safeguard; mode default ignores it",
        "as the program",
    ),
    DocumentationDifference(
        "required sections and audit",
        "not in Fased",
        "OpenClaw's, off by default",
        "off; on with quality_retries",
    ),
    DocumentationDifference(
        "providers of cache-ttl",
        "Anthropic",
        "Anthropic, Moonshot, Z.ai and those models at OpenRouter",
        "every provider: whoever replays says so by context_pruning",
    ),
    DocumentationDifference(
        "short results",
        "old results are cleared",
        "the placeholder takes the place of results that are shorter than it, too",
        "these are left as they are: it would make the prompt larger",
    ),
    DocumentationDifference(
        "memory flush",
        "before a compaction",
        "goes by the floor, compaction by the reserve: with a larger reserve it never comes first",
        "a warning is left at the document's place",
        "a warning is left at the program's place",
    ),
)


def get_memory_flush_threshold(
    window: float, floor: float = RESERVE_FLOOR, soft: float = SOFT_THRESHOLD_TOKENS
) -> float:
    """Return the prompt size, in tokens, from which on memory is flushed.

    Args:
        window: context window in tokens.
        floor: reserve in tokens; NaN or below 0: the default.
        soft: tokens before the reserve at which the flush is due; NaN or below 0: the default.
    """
    floor = RESERVE_FLOOR if isnan(floor) or floor < 0 else floor
    return window - floor - (SOFT_THRESHOLD_TOKENS if isnan(soft) or soft < 0 else soft)


@make_checked_preset
def fased(
    *,
    context_window: int | None = None,
    mode: Literal["default", "safeguard"] = "safeguard",
    reserve_tokens: int | None = None,
    keep_recent_tokens: int = 20_000,
    reserve_tokens_floor: int = RESERVE_FLOOR,
    max_history_share: float = 0.5,
    timeout_seconds: float = 300.0,
    identifier_policy: Literal["strict", "off", "custom"] = "strict",
    identifier_instructions: str = "",
    memory_flush: bool = True,
    soft_threshold_tokens: int = SOFT_THRESHOLD_TOKENS,
    quality_retries: int = 0,
    context_pruning: Literal["off", "cache-ttl"] = "off",
    ttl_seconds: float = 300.0,
    keep_last_assistants: int = 3,
    soft_trim_ratio: float = 0.3,
    hard_clear_ratio: float = 0.5,
    min_prunable_tool_chars: int = 50_000,
    soft_trim_max_chars: int = 4000,
    soft_trim_head_chars: int = 1500,
    soft_trim_tail_chars: int = 1500,
    hard_clear: bool = True,
    hard_clear_placeholder: str = CLEARED_PLACEHOLDER,
    tools_allow: tuple[str, ...] = ("*",),
    tools_deny: tuple[str, ...] = (),
    focus: str = "",
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return Fased's rules: Pi's, with at least the floor reserved.

    Source: fased-ai/fased at b0d6a8f7, its docs at 580efa5f.

    Not confirmed: the code of its compaction and pruning, which was not seen; the preset follows
    its documents and OpenClaw's code.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        mode: `safeguard` summarises long histories in stages and lists failed tools; `default` is
            Pi's summary.
        reserve_tokens: reserved tokens; None: Pi's 16,384.
        keep_recent_tokens: tokens, by Pi's estimate, that are kept as they are.
        reserve_tokens_floor: minimum number of reserved tokens; 0: none.
        max_history_share: share of the window (0.1 to 0.9) that the history given to one summary
            may have; what is older is summarised first, apart. It acts where a summariser of yours
            or a model writes the text: an extract reads all of it at once.
        timeout_seconds: time limit of the summariser, in seconds.
        identifier_policy: `strict` tells the summariser to keep identifiers exactly; only with mode
            `safeguard`.
        identifier_instructions: its instructions with `custom`; blank: the strict text.
        memory_flush: whether a live session saves to memory as Fased does; a replay leaves a
            warning there.
        soft_threshold_tokens: tokens before the compaction at which it would.
        quality_retries: how often a summary without OpenClaw's sections or identifiers is asked for
            again (0 to 3).
        context_pruning: `cache-ttl` trims and clears tool results for one call, after a pause.
        ttl_seconds: seconds after which the cache counts as cold (3,600 where Fased finds
            Anthropic's login).
        keep_last_assistants: replies at the end that pruning leaves alone, with what follows them.
        soft_trim_ratio: share of the window from which long results are trimmed.
        hard_clear_ratio: share of the window from which results are cleared, oldest first.
        min_prunable_tool_chars: characters of results below which nothing is cleared.
        soft_trim_max_chars: characters above which a result is trimmed.
        soft_trim_head_chars: characters kept of its head.
        soft_trim_tail_chars: characters kept of its tail.
        hard_clear: whether results are cleared at all.
        hard_clear_placeholder: text of a cleared result.
        tools_allow: names or globs of the tools whose results are pruned.
        tools_deny: names or globs of the tools whose results never are.
        focus: a topic that the summary should also cover, as after `/compact`.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: reproduce the program where it fails or differs from its document.

    Returns:
        Rules with Pi's summary in stages, due above the window less the reserve or after an
        overflow error, and with the pruning and the memory flush of the document.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.fased(reserve_tokens=40_000)
        >>> rules.parameters["reserve_tokens"]
        40000
    """
    parameters = dict(locals())
    check_between(0.1, 0.9, max_history_share=max_history_share)
    reserve = openclaw_and_fased_settings.get_effective_reserve(
        reserve_tokens, reserve_tokens_floor
    )
    check_window(context_window, reserve, keep_recent_tokens)
    # the program does not pass the timeout on and always waits 300 seconds
    common = openclaw_and_fased_settings.make_summary_settings(
        parameters, reserve, focus=focus, seconds=300.0 if quirks else timeout_seconds
    )
    common |= {"must_shrink": not quirks, "quirks": quirks}
    policy: PiSummary = PiSummary(**common)
    if mode == "safeguard":
        policy = PiSummaryInStages(
            **common,
            max_history_share=max_history_share,
            identifiers=identifier_policy,
            identifier_instructions=identifier_instructions,
            sections=OPENCLAW_SECTIONS if quality_retries else PI_SECTIONS,
            retries=quality_retries,
        )
    window = context_window or 200_000
    # the program reckons from the floor, the document from the reserve
    flush = get_memory_flush_threshold(
        window, reserve_tokens_floor if quirks else reserve, soft_threshold_tokens
    )
    return Rules(
        policy=policy,
        trigger=Share(1.0, of="budget") | Overflow(recorded=True),
        pruning=openclaw_and_fased_settings.make_cache_ttl_pruning(parameters)
        if context_pruning == "cache-ttl"
        else None,
        warnings=(Above(flush, or_equal=True),) if memory_flush and flush > 0 else (),
        flush=MemoryFlushSettings(below=window - int(flush))
        if memory_flush and flush > 0
        else None,
        window=context_window,
        reserve=reserve,
        estimator="fased",
        summariser=summariser,
        config=ConfigWriter("fased"),
    )


GUARD_ENABLED_KEY = ConfigKey(
    f"{openclaw_and_fased_settings.QUALITY_GUARD_SECTION}.enabled", "guarded", FLAG
)
GUARD_RETRIES_KEY = ConfigKey(
    f"{openclaw_and_fased_settings.QUALITY_GUARD_SECTION}.maxRetries", "quality_retries", WHOLE
)
DEFAULT_RETRIES = 1
CONFIG_TABLE = ConfigKeyTable(
    keys=(
        *openclaw_and_fased_settings.COMPACTION_KEYS,
        ConfigKey(
            f"{openclaw_and_fased_settings.MEMORY_FLUSH_SECTION}.enabled", "memory_flush", FLAG
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.MEMORY_FLUSH_SECTION}.softThresholdTokens",
            "soft_threshold_tokens",
            WHOLE,
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.PRUNING_SECTION}.mode",
            "context_pruning",
            make_choice_kind("off", "cache-ttl"),
        ),
        *openclaw_and_fased_settings.PRUNING_KEYS,
    ),
    unrepresented=parse_keys(
        "recentTurnsPreserve customInstructions", openclaw_and_fased_settings.COMPACTION_SECTION
    )
    | openclaw_and_fased_settings.OTHER_KEYS,
    ignored=frozenset({"agents.list", GUARD_ENABLED_KEY.path, GUARD_RETRIES_KEY.path}),
    open_sections=openclaw_and_fased_settings.OPEN_SECTIONS,
)


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings of the file; without `agents.defaults` the program runs the plain mode."""
    parsed = CONFIG_TABLE.parse(config)
    if get_section(config, openclaw_and_fased_settings.DEFAULTS_SECTION) is None:
        parsed.settings["mode"] = "default"
        parsed.notes.append(
            "Without agents.defaults Fased runs mode 'default', and so do these rules."
        )
    guarded, retries = (
        get_section(config, GUARD_ENABLED_KEY.path),
        get_section(config, GUARD_RETRIES_KEY.path),
    )
    # retries count only where the guard is on; on without a number means one
    if guarded is not None and GUARD_ENABLED_KEY.read(guarded):
        retries = DEFAULT_RETRIES if retries is None else retries
        parsed.settings[GUARD_RETRIES_KEY.parameter] = GUARD_RETRIES_KEY.read(retries)
    return parsed


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    retries = parameters.get(GUARD_RETRIES_KEY.parameter) or 0
    guard = {GUARD_ENABLED_KEY.parameter: retries > 0, GUARD_RETRIES_KEY.parameter: retries or None}
    return ConfigKeyTable(
        (*CONFIG_TABLE.keys, GUARD_ENABLED_KEY, GUARD_RETRIES_KEY)
    ).to_config_tree({**parameters, **guard})


COUNT_FASED_KEYS = partial(openclaw_and_fased_settings.count_identifying_keys, openclaw=False)
KEY_PATHS = {**CONFIG_TABLE.paths, "quality_retries": GUARD_RETRIES_KEY.path}
CONFIG = SystemConfigFile(
    "fased", "fased.json", COUNT_FASED_KEYS, read_config, to_config_tree, KEY_PATHS
)
