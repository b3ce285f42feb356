"""Modifiers of rules: summaries that stay or stack, drafted ones, task boundaries, user's rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.policies.history.history import is_new_request
from ctxkit.policies.offline_summarisers import SummariserInput, get_summary_text
from ctxkit.policies.policy_base_and_chains import BasePolicy, PolicyWithParts
from ctxkit.policies.protocols import name_of
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import BaseTrigger, Share
from ctxkit.policies.user_rule_extraction import KeepUserRules
from ctxkit.policies.validated_settings_and_scheduled_prunings import ValidatedSettings
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import PromptForecast
    from ctxkit.policies.validated_settings_and_scheduled_prunings import PositiveShare
    from ctxkit.tokens.token_counters import ContextBudget


__all__ = [
    "add_task_boundary_trigger",
    "append_only",
    "draft_then_finish_summaries",
    "keep_first_request",
    "keep_rules",
    "leveled",
]
__dir__ = make_dunder_dir(__all__)

LEVEL_KEY = "level"
"""Key in the details of a summary message for its level; a plain summary has level 0."""
MAX_LEVEL = 3
"""Highest level: summaries of this level are merged into one of the same level."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HierarchicalSummary(BasePolicy):
    """Summaries of summaries: `fan` summaries of one level in a row become one of the next level.

    A log-structured merge tree works the same way. Old text is rewritten once per level, not at
    every compaction, and the prompt holds at most `fan - 1` summaries of each level. (pulse-coder's
    document proposes it.)
    """

    inner: Summary
    """The policy that writes the summaries, which stay."""
    fan: int = 4
    """Number of summaries of a level that become one of the next level."""

    def __post_init__(self) -> None:
        if self.fan < 2:
            raise BadArguments("Levels need a fan of 2 or more.")

    @property
    def name(self) -> str:
        """The name of the inner policy."""
        return name_of(self.inner)

    @property
    def keeps(self) -> int | None:
        """Tokens that the inner policy always leaves."""
        return self.inner.keeps

    def using(self, summariser: Any) -> HierarchicalSummary:
        """Return the policy with a summariser, where the inner policy has none."""
        return replace(self, inner=self.inner.using(summariser))

    def focused(self, focus: str) -> HierarchicalSummary:
        """Return the policy with a focus for the inner policy."""
        return replace(self, inner=self.inner.focused(focus))

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with a summary of the new part, and full levels merged."""
        new = self.inner(history, budget)
        if new is history:
            return history
        # Merging a level can fill the next one, so repeat until no level is full.
        while full_row := self._find_full_level(new):
            first, before, level = full_row
            inner = self.inner
            passage = SummariserInput(new, before, first, inner.limit, inner.summary_instructions())
            summary = inner.summarise_passage(inner.maker, passage)
            leveled_summary = _at_level(summary, min(level + 1, MAX_LEVEL))
            why = f"{before - first} summaries of level {level}"
            method = inner.name_method()
            merged = new.summarise(before, leveled_summary, why, start=first, method=method)
            # A merge must shrink the prompt; else stop, and keep the summaries apart.
            if merged.tokens >= new.tokens:
                break
            new = merged
        return new

    def _find_full_level(self, history: History) -> tuple[int, int, int] | None:
        """Return (start, stop, level) of `fan` trailing summaries of one level, or None."""
        stop = self.inner.front(history)
        levels = [_level(history[p]) for p in range(stop)]
        for start in range(stop):
            row = levels[start:]
            if len(row) >= self.fan and row[0] is not None and set(row) == {row[0]}:
                return start, stop, row[0]
        return None


def _level(message: Message) -> int | None:
    """Return the level of a summary; None for any other message."""
    if message.role != "summary":
        return None
    level = message.details.get(LEVEL_KEY, 0)
    return level if isinstance(level, int) else 0


def _at_level(summary: Message | str | int, level: int) -> Message | int:
    if isinstance(summary, int):
        return summary
    message = (
        summary if isinstance(summary, Message) else Message(role="summary", parts=(Text(summary),))
    )
    return structs.replace(message, details={**message.details, LEVEL_KEY: level})


def leveled(rules: Rules, fan: int = 4) -> Rules:
    """Return rules whose summaries stay until `fan` of one level are merged into the next level.

    Args:
        rules: rules with a policy that writes summaries.
        fan: number of summaries per level, at least 2.

    Raises:
        BadArguments: the rules write no summary.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("summary:keep_tokens=2000", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), leveled(rules))
        >>> sum(item.message.role == "summary" for item in replay.sent(-1))
        5
    """

    def level(part: Summary | HierarchicalSummary) -> HierarchicalSummary:
        if isinstance(part, HierarchicalSummary):
            return replace(part, fan=fan)
        return HierarchicalSummary(inner=replace(part, summaries_stay=True), fan=fan)

    return _replace_summaries(rules, level)


def append_only(rules: Rules) -> Rules:
    """Return rules whose summaries stay: each new one covers only the messages since the last.

    Args:
        rules: rules with a policy that writes summaries.

    Raises:
        BadArguments: the rules write no summary.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = append_only(ck.policies.Rules("summary:keep_tokens=2000", above))
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> sum(item.message.role == "summary" for item in replay.sent(-1))
        23
    """
    return _replace_summaries(rules, partial(_with_settings, summaries_stay=True))


def keep_first_request(rules: Rules) -> Rules:
    """Return rules that keep the first user request, and all before it, in front of the summary.

    Args:
        rules: rules with a policy that writes summaries.

    Raises:
        BadArguments: the rules write no summary.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = keep_first_request(ck.policies.Rules("summary:keep_tokens=2000", above))
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [item.message.role for item in replay.sent(-1)][:4]
        ['system', 'system', 'user', 'summary']
    """
    return _replace_summaries(rules, partial(_with_settings, request_stays=True))


def _with_settings(
    part: Summary | HierarchicalSummary, **more: Any
) -> Summary | HierarchicalSummary:
    if isinstance(part, HierarchicalSummary):
        return replace(part, inner=replace(part.inner, **more))
    return replace(part, **more)


def _replace_summaries(
    rules: Rules, make_policy: Callable[[Summary | HierarchicalSummary], BasePolicy]
) -> Rules:
    """Return rules where each policy that writes summaries is replaced by `make_policy` of it."""
    has_summary = False

    def replace_in(part: Any) -> Any:
        nonlocal has_summary
        if isinstance(part, (Summary, HierarchicalSummary)):
            has_summary = True
            return make_policy(part)
        if isinstance(part, PolicyWithParts):
            return replace(part, parts=tuple(map(replace_in, part.parts)))
        return part

    new = replace_in(rules.bare)
    if not has_summary:
        raise BadArguments(
            f"The rules {rules.label!r} write no summary: give rules with a summary policy."
        )
    return rules.but(policy=new, config=None)


@dataclass(frozen=True)
class DraftAndFinalSummariser:
    """A summariser in two steps: one writes a draft, the other the summary with the draft."""

    prepare: Callable[[SummariserInput], Message | str | int | None]
    commit: Callable[[SummariserInput], Message | str | int | None]
    name = "prepared"

    def __call__(self, passage: SummariserInput) -> Message | str | int | None:
        """Return the second summariser's summary of the passage and the draft, if there is one."""
        text = get_summary_text(self.prepare(passage))
        if not text.strip():
            return self.commit(passage)
        draft = f"A draft of the summary, to be checked and finished:\n{text}"
        instructions = f"{passage.instructions}\n\n{draft}".strip()
        return self.commit(replace(passage, instructions=instructions))


def draft_then_finish_summaries(
    rules: Rules,
    draft: Callable[[SummariserInput], Any],
    finish: Callable[[SummariserInput], Any] | None = None,
) -> Rules:
    """Return rules whose summaries are drafted by one summariser and finished by another.

    Args:
        rules: rules with a policy that writes summaries.
        draft: writes the draft: ``(passage) -> text``.
        finish: writes the summary, with the draft among its instructions; None: the rules' own.

    Raises:
        BadArguments: the rules write no summary, or their policy has a summariser of its own.

    Example:
        >>> import ctxkit as ck
        >>> rules = ck.policies.Rules("summary", ck.policies.triggers.Above(80_000))
        >>> drafted = draft_then_finish_summaries(rules, lambda passage: "Goals and open questions")
        >>> drafted.summariser.name
        'prepared'
    """
    committer = rules.summariser if finish is None else finish
    new = rules.but(summariser=DraftAndFinalSummariser(draft, committer))
    if new.policy == new.bare:
        raise BadArguments(
            f"The rules {rules.label!r} do not use another summariser: give a policy that writes "
            "summaries and has no summariser of its own."
        )
    return new


@dataclass(frozen=True)
class TaskBoundaryTrigger(ValidatedSettings, BaseTrigger):
    """Due where a new user request begins a task and the prompt is over a share of the window."""

    word = "task_boundary"

    share: PositiveShare = 0.5
    """Share of the window below which it is never due."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call with a new request and a prompt over the share."""
        log, over_share = forecast.log, Share(self.share)
        call = over_share.first(forecast, start, stop)
        while call < stop and not (call and is_new_request(log, log.upto[call] - 1, call)):
            call = over_share.first(forecast, call + 1, stop)
        return call


def add_task_boundary_trigger(rules: Rules, min_window_share: float = 0.5) -> Rules:
    """Return rules that also compact where a new task begins, from a share of the window on.

    Args:
        rules: rules with a policy and a trigger.
        min_window_share: minimum share of the window that the prompt fills, above 0 and up to 1.

    Raises:
        BadArguments: the rules compact nothing.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(8_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=2000", above, window=10_000)
        >>> rules = add_task_boundary_trigger(rules, min_window_share=0.4)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> {edit.trigger for edit in replay.edits}
        {'task_boundary'}
    """
    if rules.policy is None or rules.trigger is None:
        raise BadArguments(
            f"The rules {rules.label!r} compact nothing: give rules with a policy and a trigger."
        )
    return rules.but(trigger=TaskBoundaryTrigger(min_window_share) | rules.trigger, config=None)


def keep_rules(rules: Rules, tokens: int = 400) -> Rules:
    """Return rules whose compactions carry on the user's demands verbatim.

    Behind each compaction stands a message with the user's rules ("never push to main", "answer in
    German", a version, an id) that are no longer in the prompt. No model is called.

    Args:
        rules: rules that compact.
        tokens: maximum tokens of that message's rules; those that bind or forbid come first.

    Raises:
        BadArguments: the rules compact nothing.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = keep_rules(ck.policies.Rules("window:keep_tokens=2000", above))
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> digest = next(m.text for m in replay.view() if m.kind == "memory")
        >>> "the shop must never be closed" in digest
        True
    """
    if rules.bare is None:
        raise BadArguments(f"The rules {rules.label!r} compact nothing: give rules with a policy.")
    name = f"{rules.label} + keep_rules"
    return rules.but(policy=rules.bare | KeepUserRules(tokens=tokens), name=name, config=None)
