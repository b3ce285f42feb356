"""OpenCode (anomalyco/opencode): a summary and the last turns that fit; old tool output can be
pruned before that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.setting_value_validation import FLAG, POSITIVE, WHOLE
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.message_shortening import OutputShortening
from ctxkit.policies.result_clearing_and_cache_ttl import CLEARED_PLACEHOLDER
from ctxkit.policies.summary_compaction import LOCAL_SUMMARISERS, Summary
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    get_section,
    ignore_single_matching_key,
)
from ctxkit.presets.registry_and_setting_checks import (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    check_window,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import is_request_pending
from ctxkit.session.messages import get_plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.policies.offline_summarisers import SummariserInput
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


TRUNCATED_SUFFIX = "\n[truncated]"
MAX_OUTPUT_TOKENS = 32_000
OUTPUT_CHARS = 2000
BUFFER_TOKENS = 20_000
PROTECTED_TOOL = "skill"
"""The tool whose output is never pruned."""
INSTRUCTIONS = (
    "Write what another agent needs to go on with this work: goal, instructions of the user,"
    " discoveries, what is accomplished and what is left, relevant files and folders."
)

DIFFERENCES = (
    DocumentationDifference(
        "pruning", "off by default", "older versions prune unless it is turned off", "off"
    ),
    DocumentationDifference(
        "what the summariser is sent",
        "the conversation",
        "tool output of at most 2,000 characters",
        "as the program, for summarisers that read the messages",
    ),
    DocumentationDifference(
        "kept turns",
        "the last two",
        "without `tail_turns` all that fit the budget, and what is left of it from any turn that"
        " does not fit; an older commit keeps two, and splits only the newest",
        "as the program of that version",
    ),
    DocumentationDifference(
        "2.x: what is kept",
        "recent context",
        "messages within 15,000 tokens, from a request on, written as text into the checkpoint",
        "the same messages, as they are",
    ),
    DocumentationDifference(
        "upper bound of the kept tokens",
        "not said",
        "8,000 in earlier versions, 15,000 in later ones",
        "15,000",
    ),
    LAST_CALL_DIFFERENCE,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenCodeSummary(Summary):
    """Keep the last turns as far as a budget reaches; prune old tool output where no summary is
    due.
    """

    estimated: bool = True
    apart: bool = False
    tail_turns: int | None = None
    """Turns at the end that may be kept; None: all that fit."""
    split_any: bool = True
    """Keep what is left of the budget of any turn that does not fit; else only of the newest."""
    whole_turns: bool = False
    """Keep from a request on, never less than the last message (2.x)."""
    tail_tokens: int | None = None
    """Tokens that they may have; None: a quarter of what is usable, from 2,000 to 15,000."""
    prune: bool = False
    """Clear old tool output at the start of a turn."""
    prune_protect: int = 40_000
    """Tokens of tool output, the newest, that pruning leaves alone."""
    prune_minimum: int = 20_000
    """Tokens that a pruning must free."""

    def __call__(self, history: History, context_budget: ContextBudget) -> History:
        """Return the history summarised where it is full, else pruned."""
        if self.prune and history.tokens < context_budget.prompt_limit:
            return self.prune_outputs(history)
        return super().__call__(history, context_budget)

    def prune_outputs(self, history: History) -> History:
        """Return the history without the output of old tools, up to the last summary."""
        # the last two turns are never pruned, whatever they weigh
        stop = max(history.nth_last("user", 2), 0)
        mask = (
            history.role("tool") & (np.arange(len(history)) < stop) & ~history.tool(PROTECTED_TOOL)
        )
        rows = np.flatnonzero(mask & (history.chars > len(CLEARED_PLACEHOLDER)))[::-1]
        # newest first: outputs behind the protected tokens are old
        sizes = history.estimates[rows]
        old = rows[np.cumsum(sizes) > self.prune_protect]
        if int(history.estimates[old].sum()) <= self.prune_minimum:
            return history
        return history.shorten(
            np.sort(old), CLEARED_PLACEHOLDER, reason="old tool output is pruned"
        )

    # The kept part is found from the end: whole turns are added, the newest first, while their sum
    # fits the budget. The first turn that does not fit ends the search. With `split_any`, or where
    # it is the newest turn, the part of it that still fits is kept, from the next safe cut on.
    # Sizes are differences of prefix sums, so each turn is weighed once. Invariant: the result
    # parts no call from its result; without any request nothing is kept.
    def find_cut(self, history: History, context_budget: ContextBudget) -> int:
        """Return where the kept turns begin: the last that fit, or what fits of a long one."""
        budget = self.tail_tokens
        if budget is None:
            budget = min(15_000, max(2000, context_budget.prompt_limit // 4))
        n = len(history)
        if self.whole_turns:
            return self.from_request(history, budget)
        first, whole = n, history.before(n, estimated=True)
        most = n if self.tail_turns is None else self.tail_turns
        # from the last turn back, as long as whole turns fit the budget
        for turn in range(1, most + 1):
            start = history.nth_last("user", turn)
            if start < 0:
                break
            if whole - history.before(start, estimated=True) > budget:
                if turn == 1 or self.split_any:
                    # `back` finds the last suffix that reaches the budget; the next one fits it
                    fits = history.safe(history.back(budget, estimated=True) + 1)
                    first = min(fits or n, first)
                break
            first = start
        return history.safe_before(first)

    def summarise_passage(self, maker: Any, passage: SummariserInput) -> Message | str | int:
        """Return the summary of a passage; the summariser gets 2,000 characters of each output."""
        if isinstance(maker, LOCAL_SUMMARISERS):
            return super().summarise_passage(maker, passage)
        history, most = passage.history, OUTPUT_CHARS + len(TRUNCATED_SUFFIX)
        changes: dict[int, Message | str] = {}
        for p in passage.positions:
            if history[p].role == "tool" and len(text := get_plain_text(history[p])) > most:
                changes[p] = message_content_and_truncation.replace_text(
                    history[p], text[:OUTPUT_CHARS] + TRUNCATED_SUFFIX
                )
        short = history.shorten(changes, reason="for the summariser")
        return super().summarise_passage(maker, replace(passage, history=short))

    @staticmethod
    def from_request(history: History, budget: int) -> int:
        """Return the request at which messages within a budget begin; the last where all fit."""
        n = len(history)
        # the longest suffix within the budget, but at least the last message
        start = min(history.back(budget + 1, estimated=True) + 1, n - 1)
        if history.before(n, estimated=True) <= budget:
            start = 0
        while start > 0 and history[start].role != "user":
            start -= 1
        last = history.nth_last("user", 1)
        # everything fits, and yet a compaction is due: all before the last request goes
        return history.safe_before(start or (last if last > 0 else n))


@make_checked_preset
def opencode(
    *,
    version: Literal["1.18", "1.0", "2"] = "1.18",
    context_window: int | None = None,
    limit_input: int | None = None,
    limit_output: int = MAX_OUTPUT_TOKENS,
    auto: bool = True,
    prune: bool = False,
    reserved: int | None = None,
    tail_turns: int | None = None,
    preserve_recent_tokens: int | None = None,
    prune_protect: int = 40_000,
    prune_minimum: int = 20_000,
    max_output_tokens: int = 20_000,
    max_lines: int = 2000,
    max_bytes: int = 51_200,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return OpenCode's rules: a summary where what is usable of the window is full.

    Source: https://opencode.ai/config.json (keys of `compaction` in its first schema; `keep` and
    `buffer` of version 2 are only named); `session/overflow.ts` at 08f74b9 (what is usable, `>=`);
    `session/compaction.ts` at 001aa6c (pruning) and at 31e22f65 (kept turns of 1.18: all that fit,
    a quarter of what is usable, from 2,000 tokens up); for version 2
    `packages/core/src/session/compaction.ts` at 031a4a9 (20,000 reserved, 15,000 kept).

    Args:
        version: `1.18`, `1.0` (two turns, only the newest split) or `2` (from a request on, 15,000
            tokens). 1.18 is the default, as 2 is not what `opencode` installs.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        limit_input: tokens of prompt that it takes, where the provider names them apart.
        limit_output: tokens of reply that it gives; at most 32,000 are reserved (2: `reserved`).
        auto: whether to compact automatically.
        prune: clear old tool output at the end of each turn.
        reserved: tokens below `limit_input` (2: or below the window) at which a compaction is due;
            None: 20,000, or the reply's if fewer and `limit_input` is given.
        tail_turns: turns at the end that may be kept as they are; None: all that fit (1.0: two);
            2 does not count them.
        preserve_recent_tokens: tokens that they may have; None: a quarter of what is usable, from
            2,000 to 15,000 (2: 15,000).
        prune_protect: tokens of tool output, the newest, that pruning leaves alone.
        prune_minimum: tokens that a pruning must free.
        max_output_tokens: tokens of a summary.
        max_lines: lines of a tool's output that enter the history (`tool_output.max_lines`); 0:
            all.
        max_bytes: bytes of it; 0: all.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that keep the last turns within a budget and summarise the rest, due at the window
        less the reserve or after an overflow error; tool output is cut as it comes.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.opencode(version="1.0")
        >>> rules.parameters["version"]
        '1.0'
    """
    output = min(limit_output, MAX_OUTPUT_TOKENS) or MAX_OUTPUT_TOKENS
    reserve = output
    window = context_window
    if limit_input is None and version == "2":
        reserve = BUFFER_TOKENS if reserved is None else reserved
    elif limit_input is not None:
        # the reserve is below the input limit, which takes the place of the window
        reserve = min(BUFFER_TOKENS, output) if reserved is None else reserved
        window = limit_input if context_window is None else min(limit_input, context_window)
    check_window(window, reserve)
    turns = 2 if tail_turns is None and version == "1.0" else tail_turns
    if version == "2" and preserve_recent_tokens is None:
        preserve_recent_tokens = 15_000
    trigger: Any = Share(1.0, of="budget", or_equal=True) | Overflow(recorded=True)
    policy = OpenCodeSummary(
        keep_turns=max(turns or 1, 1),
        tail_turns=turns,
        split_any=version != "1.0",
        whole_turns=version == "2",
        tail_tokens=preserve_recent_tokens,
        limit=max_output_tokens,
        instructions=add_focus(INSTRUCTIONS, focus),
        prune=prune,
        prune_protect=prune_protect,
        prune_minimum=prune_minimum,
    )
    return Rules(
        policy=policy,
        trigger=trigger | is_request_pending if prune else trigger,
        pruning=OutputShortening(
            max_lines=max_lines, max_chars=0, max_bytes=max_bytes, mode="head"
        ),
        window=window,
        reserve=reserve,
        estimator="chars/4",
        summariser=summariser,
        auto=auto,
        config=ConfigWriter("opencode"),
    )


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("compaction.auto", "auto", FLAG),
        ConfigKey("compaction.prune", "prune", FLAG),
        ConfigKey("compaction.reserved", "reserved", WHOLE),
        ConfigKey("compaction.tail_turns", "tail_turns", WHOLE),
        ConfigKey("compaction.preserve_recent_tokens", "preserve_recent_tokens", WHOLE),
        ConfigKey("tool_output.max_lines", "max_lines", WHOLE),
        ConfigKey("tool_output.max_bytes", "max_bytes", WHOLE),
    ),
    unrepresented=frozenset({"compaction.keep", "compaction.buffer"}),
)
LIMIT_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("context", "context_window", POSITIVE),
        ConfigKey("input", "limit_input", POSITIVE),
        ConfigKey("output", "limit_output", POSITIVE),
    ),
)
PLACEHOLDER_MODEL = "ctxkit/model"
"""The model whose limits are written where the rules come from no file."""


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify OpenCode."""
    compaction = config.get("compaction")
    keys = {"auto", "prune", "reserved", "tail_turns", "preserve_recent_tokens", "keep", "buffer"}
    mine = len(keys & compaction.keys()) if isinstance(compaction, dict) else 0
    schema = "opencode.ai" in str(config.get("$schema", ""))
    common = sum(k in config for k in ("provider", "small_model", "autoupdate", "share"))
    return (
        10 * schema
        + 3 * mine
        + ignore_single_matching_key(common + ("/" in str(config.get("model", ""))))
    )


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings of the file; limits are those of its `model`, if `provider` lists it."""
    parsed = CONFIG_TABLE.parse(config)
    model = config.get("model")
    provider, _, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    limit = get_section(config, ("provider", provider, "models", name, "limit"))
    if isinstance(limit, dict):
        LIMIT_TABLE.read(limit, parsed, f"provider.{provider}.models.{name}.limit.")
        parsed.subject = str(model)
    return parsed


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    tree = {"$schema": "https://opencode.ai/config.json", **CONFIG_TABLE.to_config_tree(parameters)}
    if any(parameters.get(k.parameter) is not None for k in LIMIT_TABLE.keys):
        model = parameters.get("subject") or PLACEHOLDER_MODEL
        provider, _, name = model.partition("/")
        tree |= {
            "model": model,
            "provider": {
                provider: {"models": {name: {"limit": LIMIT_TABLE.to_config_tree(parameters)}}}
            },
        }
    return tree


KEY_PATHS = {**CONFIG_TABLE.paths, **{k.parameter: f"limit.{k.path}" for k in LIMIT_TABLE.keys}}
CONFIG = SystemConfigFile(
    "opencode", "opencode.json", count_identifying_keys, read_config, to_config_tree, KEY_PATHS
)
