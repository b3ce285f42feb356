"""fuseraft: a filter of each agent's history, compaction in five modes, token budgets, windows
inside a turn.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  read by grids
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.compaction_without_summary import AdaptiveTrim, Window
from ctxkit.policies.guards import (
    AntiThrash,
    BaseGuard,
    GraceAfterCompaction,
    get_blocking_reason,
    get_guard_label,
)
from ctxkit.policies.message_shortening import CharacterBudget, IntermediateReplyShortening
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.policies.result_clearing_and_cache_ttl import (
    KeepNewestToolPairs,
    ResultEvictionOverBudget,
)
from ctxkit.policies.result_excerpts_and_offload import ResultOffload
from ctxkit.policies.superseded_tool_calls import RepeatedCommands, Superseded
from ctxkit.policies.tool_evidence_summaries import FuseraftSummary
from ctxkit.policies.triggers import (
    Above,
    Count,
    MessageCapWarning,
    Overflow,
    TokensSpent,
    TurnTokensSpent,
)
from ctxkit.presets.config_key_mapping import ConfigWriter, SystemConfigFile
from ctxkit.presets.fuseraft_config import (
    KEY_PATHS,
    VIEW_KEYS,
    count_identifying_keys,
    make_history_filters,
    read_config,
    to_config_tree,
)
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset

if TYPE_CHECKING:
    from ctxkit.policies.protocols import Guard, PastCompactions, PromptForecast
    from ctxkit.policies.triggers import BaseTrigger
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Natural,
        Positive,
        Proportion,
    )


REPLAY_CHARS = 2000
"""Characters of a reply that is sent again, where no number is set (the document's)."""
DIFFERENCES = (
    DocumentationDifference(
        "KeepRecentTurns",
        "turns",
        "messages of any role",
        "replies, with the message that each answers",
        "as the program",
    ),
    DocumentationDifference(
        "what a mode requires",
        "lossless and hybrid a state machine and an EvidenceStore, intent ChangeTracking",
        "takes another mode where they are missing, in the end llm",
        "nothing: each mode goes by the record of the session; `ck.validate` names what is missing",
    ),
    DocumentationDifference("IncludeReasoning", "true", "false", "true", "as the program"),
    DocumentationDifference(
        "anti-thrash",
        "text savings; resets by itself",
        "messages saved; nothing resets it; only the turn count is guarded",
        "tokens saved; TriggerTurnCount calls without a compaction reset it; the turn count alone"
        " is guarded",
        "as the program",
    ),
    DocumentationDifference(
        "intent lines",
        "the error before the parenthesis, commands shown",
        "after it, paths only",
        "as said",
        "as the program",
    ),
    DocumentationDifference(
        "MaxInTurnToolPairs",
        "opt-in",
        "0 means 12; only from 90 % of the budget on, in steps of 8",
        "0 is off",
        "as the program",
    ),
    DocumentationDifference(
        "MaxInTurnContextTokens",
        "opt-in",
        "always on, 200,000 characters",
        "0 is off",
        "as the program",
    ),
    DocumentationDifference(
        "MaxTurnAge",
        "the last N turns",
        "begins with the reply, without the message it answers (mended later)",
        "begins with the message",
        "as the program",
    ),
    DocumentationDifference(
        "pairs of calls and results",
        "orphans are stripped",
        "of two results in two messages the second is dropped",
        "pairs are never parted",
    ),
    DocumentationDifference(
        "MaxPayloadBytes",
        "a prompt is trimmed before it is streamed",
        "bytes of the request",
        "bytes of the messages, in live sessions; a replay goes by tokens",
        "as said",
    ),
    DocumentationDifference(
        "errors of a stream",
        "without a limit of the prompt they surface",
        "as the document says",
        "sent again by the stages of a trim, as long as no text has arrived",
    ),
    DocumentationDifference("system messages", "not said", "TextOnly drops them", "they stay"),
    DocumentationDifference(
        "MaxReplayChars",
        "0 means 2,000",
        "2,000 only where a history is rebuilt from a checkpoint",
        "0 means 2,000, None is off",
        "0 is off: a replay rebuilds nothing from a checkpoint",
    ),
    DocumentationDifference(
        "grace turn",
        "a single-turn limit is suppressed for one turn",
        "never suppressed",
        "as the program",
    ),
    DocumentationDifference(
        "window mode",
        "pinned summaries are never dropped",
        "only leading ones are safe",
        "as the program; there is never more than one",
    ),
)


@dataclass(frozen=True)
class GuardBypassedByTrigger(BaseGuard):
    """A guard that steps aside at calls where another trigger is due: fuseraft guards its turn
    count alone.
    """

    guard: Guard
    trigger: BaseTrigger

    @property
    def word(self) -> str:  # type: ignore[override]
        """Name of the guard."""
        return get_guard_label(self.guard)

    def why(self, past: PastCompactions) -> str:
        """Return why the guard holds it back."""
        return get_blocking_reason(self.guard, past)

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call that the guard lets pass, or at which the trigger is due."""
        # the first call that the guard lets pass, or an earlier one where the trigger is due
        allowed_call = self.guard.first(past, forecast, start, stop)
        return (
            allowed_call
            if allowed_call <= start
            else self.trigger.first(forecast, start, allowed_call)
        )


@make_checked_preset
def fuseraft(
    *,
    context_window: int | None = None,
    mode: Literal["llm", "intent", "lossless", "hybrid", "window"] = "llm",
    trigger_turn_count: Positive = 50,
    keep_recent_turns: Positive = 10,
    token_budget: int = 80_000,
    include_reasoning: bool | None = None,
    include_symbol_graph: bool = True,
    include_exploration: bool = True,
    routing_signals: tuple[str, ...] = (),
    summary_template: str | None = None,
    max_chars_per_history_message: int = 8000,
    anti_thrash_min_savings_ratio: float = 0.10,
    anti_thrash_window: int = 10,
    warn_at: Natural = 0,
    cutover_at: Natural = 0,
    max_single_turn_input_tokens: Natural = 0,
    max_tool_result_tokens: Natural = 0,
    in_turn_tool_window: int = 20,
    text_only: bool = False,
    exclude_agents: tuple[str, ...] = (),
    max_turn_age: int = 0,
    max_tail_messages: int = 0,
    context_cap_fraction: Proportion = 0.0,
    max_tool_result_chars: int = 0,
    tool_result_char_overrides: Mapping[str, int] | None = None,
    max_replay_chars: int | None = 0,
    max_in_turn_tool_pairs: int = 0,
    max_in_turn_context_tokens: int = 0,
    max_payload_bytes: Natural = 0,
    offload_chars: Natural = 40_000,
    adaptive_trim: bool = True,
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return fuseraft's rules for one agent; what needs several agents or its own files on disk is
    not in them.

    `text_only`, `exclude_agents`, `max_turn_age`, `max_tail_messages`, `max_tool_result_chars` and
    `max_replay_chars` filter what was said before a turn, as it is handed to that turn. What an
    agent's own calls return within its turn, it sees whole.

    Source: its docs/configuration.md at 0466927; its code where that is silent.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        mode: `llm`, `intent`, `lossless`, `hybrid` put a message in place of old turns;
            `window` drops pairs.
        trigger_turn_count: replies at which a compaction is due (not with `window`).
        keep_recent_turns: replies that are kept.
        token_budget: tokens, by its own estimate, up to which `window` keeps; above them it is due.
        include_reasoning: put the thinking of old turns before a summary; None: yes (with quirks:
            no).
        include_symbol_graph: put names defined in written files before it.
        include_exploration: put what was read and searched before it.
        routing_signals: handoff keywords, of which the last one is said again after a compaction.
        summary_template: instructions for the summariser, instead of fuseraft's four sections.
        max_chars_per_history_message: characters of one message that the summariser sees; 0: all.
        anti_thrash_min_savings_ratio: share that a compaction must save; 0: no guard.
        anti_thrash_window: compactions in a row that fall short before there are no more; 0: no
            guard.
        warn_at: tokens sent since the last compaction at which a warning is left; 0: none.
        cutover_at: tokens sent since the last compaction at which one is due; 0: never.
        max_single_turn_input_tokens: tokens sent in one turn above which one is due; 0: never.
        max_tool_result_tokens: tokens of all tool results above which old ones are evicted for a
            call; 0: never.
        in_turn_tool_window: results that such an eviction leaves whole.
        text_only: show of earlier turns neither tool calls nor results.
        exclude_agents: agents whose replies are not shown; tool results of earlier turns go too.
        max_turn_age: replies that are shown, from the message before the oldest of them on; 0: all.
        max_tail_messages: messages that are shown when a turn begins, corrections besides; 0: all.
        context_cap_fraction: share of `max_tail_messages` above which a warning is left; 0: none.
        max_tool_result_chars: characters of a tool result that later turns are shown; 0: all.
        tool_result_char_overrides: the same by tool name; 0: all of that tool's.
        max_replay_chars: characters of a reply that later turns are shown; 0: 2,000 (with quirks:
            all); None: all.
        max_in_turn_tool_pairs: pairs of call and result that are shown whole; 0: all (with quirks:
            12).
        max_in_turn_context_tokens: tokens of all messages above which old results are elided; 0:
            never (with quirks: 50,000).
        max_payload_bytes: bytes of the messages of a prompt, above which a live session trims it
            before it is sent; 0: no limit.
        offload_chars: characters above which a tool result becomes a stub that names an artifact;
            0: never.
        adaptive_trim: trim for one call where the prompt is over the window, instead of failing.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: reproduce the program where it differs from its document.

    Returns:
        Rules of one agent: compaction by its mode, guards, filters of earlier turns, and the
        warnings `warn_at` and `cutover_at`.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.fuseraft(token_budget=60_000)
        >>> rules.parameters["token_budget"]
        60000
    """
    parameters = dict(locals())
    _check_settings(parameters)
    turns = Count(trigger_turn_count, ("assistant",))
    # triggers besides the turn count; the guard against thrash holds none of them back
    others: list[Any] = [Overflow(recorded=True)]
    if cutover_at:
        others.insert(0, TokensSpent(cutover_at))
    if max_single_turn_input_tokens:
        others.insert(0, TurnTokensSpent(max_single_turn_input_tokens))
    trigger: Any = Above(token_budget, estimated=True) if mode == "window" else turns
    # the grace turn gives way to the limit of a single turn, or else to an overflow alone
    unguarded = others[0] if max_single_turn_input_tokens else others[-1]
    guards: list[Any] = [GuardBypassedByTrigger(GraceAfterCompaction(calls=1), unguarded)]
    # mode `window` drops pairs without a summary and has no guard against thrash
    if mode != "window" and anti_thrash_window and anti_thrash_min_savings_ratio:
        thrash = AntiThrash(
            anti_thrash_min_savings_ratio,
            anti_thrash_window,
            "messages" if quirks else "tokens",
            reset=0 if quirks else trigger_turn_count,
        )
        guards.append(GuardBypassedByTrigger(thrash, reduce(or_, others)))
    return Rules(
        policy=_make_policy(parameters),
        trigger=reduce(or_, others, trigger),
        pruning=_make_pruning(parameters),
        guards=tuple(guards),
        warnings=_make_warnings(parameters),
        window=context_window,
        estimator="fuseraft",
        summariser=summariser,
        config=ConfigWriter("fuseraft"),
    )


def _make_warnings(p: dict[str, Any]) -> tuple[Any, ...]:
    """Return the warnings: tokens sent, and a prompt near its cap on messages."""
    spent = (TokensSpent(p["warn_at"]),) if p["warn_at"] else ()
    cap = int(p["max_tail_messages"] * p["context_cap_fraction"])
    return (*spent, MessageCapWarning(cap + 1)) if cap else spent


def _check_settings(p: dict[str, Any]) -> None:
    """Refuse settings that fuseraft refuses at its start, or that cannot work here."""
    if p["keep_recent_turns"] >= p["trigger_turn_count"]:
        raise BadArguments(
            f"keep_recent_turns ({p['keep_recent_turns']}) must lie below trigger_turn_count "
            f"({p['trigger_turn_count']}): otherwise a compaction frees nothing."
        )
    if 0 < p["cutover_at"] <= p["warn_at"]:
        raise BadArguments(
            f"warn_at ({p['warn_at']:,}) must lie below cutover_at ({p['cutover_at']:,})."
        )


def _make_policy(p: dict[str, Any]) -> Any:
    if p["mode"] == "window":
        return Window(keep_tokens=p["token_budget"], estimated=True)
    reasoning = p["include_reasoning"]
    template_settings: dict[str, Any] = {}
    if p["summary_template"]:
        template_settings = {"instructions": p["summary_template"], "sections": ()}
    return FuseraftSummary(
        mode=p["mode"],
        keep_replies=p["keep_recent_turns"],
        include_reasoning=not p["quirks"] if reasoning is None else reasoning,
        include_symbols=p["include_symbol_graph"],
        include_exploration=p["include_exploration"],
        max_chars_per_message=p["max_chars_per_history_message"],
        signals=p["routing_signals"],
        without_model=Overflow(
            recorded=True
        ),  # a model that just refused a prompt is not sent a larger one
        must_shrink=not p["quirks"],
        quirks=p["quirks"],
        **template_settings,
    )


def _make_pruning(p: dict[str, Any]) -> Any:
    """Return the pruning of each call, in order: offload, filter, windows, last resort."""
    quirks = p["quirks"]
    # What the program does where the document says opt-in: 12 pairs, and 200,000 characters, four a
    # token. Pairs are counted only from 90 % of these (180,000 characters) on.
    pairs = p["max_in_turn_tool_pairs"] or (12 if quirks else 0)
    tokens = p["max_in_turn_context_tokens"] or (50_000 if quirks else 0)
    replies = p["max_replay_chars"]
    if replies == 0 and not quirks:
        replies = REPLAY_CHARS
    handed = make_history_filters(
        **{**{name: p[name] for name in VIEW_KEYS.values()}, "max_replay_chars": replies or 0},
        from_reply=quirks,
    )
    parts = [
        # the order matters: each part weighs what the parts before it left
        ResultOffload(threshold=p["offload_chars"]) if p["offload_chars"] else None,
        *handed,
        ResultEvictionOverBudget(
            max_tokens=p["max_tool_result_tokens"], keep_last=p["in_turn_tool_window"]
        )
        if p["max_tool_result_tokens"]
        else None,
        *((Superseded(), RepeatedCommands(), IntermediateReplyShortening()) if quirks else ()),
        KeepNewestToolPairs(
            keep_pairs=pairs, step=8 if quirks else 1, from_chars=180_000 if quirks else 0
        )
        if pairs
        else None,
        CharacterBudget(max_chars=4 * tokens) if tokens else None,
        AdaptiveTrim() if p["adaptive_trim"] else None,
    ]
    prunings = [part for part in parts if part is not None]
    return Chain.of(*prunings) if prunings else None


CONFIG = SystemConfigFile(
    "fuseraft",
    "orchestration.yaml",
    count_identifying_keys,
    read_config,
    to_config_tree,
    KEY_PATHS,
    has_one_agent=False,
)
