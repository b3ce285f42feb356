"""Rules: one complete setting of a context manager; the recorded compactions as rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003  read by dataclasses
from dataclasses import dataclass, field, fields, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctxkit.errors import BadArguments, did_you_mean, short_repr
from ctxkit.policies.history.message_log import MessageLog  # noqa: TC001  as above
from ctxkit.policies.policy_base_and_chains import BasePolicy, Chain, as_policy
from ctxkit.policies.protocols import FunctionWrapper, Guard, Policy, Pruning, Trigger, name_of
from ctxkit.policies.triggers import Always, BaseTrigger, Either, Recorded, TokensSpent, as_trigger
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE
from ctxkit.tokens.token_counters import ContextBudget, TokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import PromptForecast


InputT = TypeVar("InputT")
StoredT = TypeVar("StoredT")


class ConvertingField(Generic[InputT, StoredT]):
    """A field of a frozen dataclass that converts the value it is set to.

    The converted value is stored in the instance, so reading it costs no call.

    Args:
        convert: converts a value that is set.
        default: the value that is converted where none is set.
    """

    def __init__(self, convert: Callable[[InputT], StoredT], default: Any = None) -> None:
        self._convert, self._default = convert, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: object, value: InputT) -> None:
        # a dataclass sets a missing value to the class attribute, which is this field itself
        default: InputT = self._default
        instance.__dict__[self._name] = self._convert(default if value is self else value)

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> StoredT: ...

    def __repr__(self) -> str:
        return repr(self._default)


def as_guards(guards: object) -> tuple[Guard, ...]:
    """Return one guard, or several, as a tuple.

    Raises:
        BadArguments: one of them is no guard.
    """
    many = as_tuple(guards)
    for guard in many:
        if not isinstance(guard, Guard):
            raise BadArguments(
                f"{short_repr(guard)} is no guard: a guard has `first` and `refuses` (see"
                " policies.guards)."
            )
    return many


def as_tuple(value: object) -> tuple[Any, ...]:
    """Return a tuple or a list as a tuple, anything else as a tuple of one.

    A named tuple that is itself a policy, trigger or guard counts as one.
    """
    is_single = callable(value) or isinstance(value, Guard)
    return tuple(value) if isinstance(value, (list, tuple)) and not is_single else (value,)


def unwrap_function(part: object) -> Any:
    """Return the function that a policy or trigger wraps; anything else as it is."""
    return part.function if isinstance(part, FunctionWrapper) else part


_DEFAULT_TRIGGER = Always()
"""The trigger of rules without one."""


def _parse_or_wrap_policy(value: object, what: str) -> BasePolicy | None:
    value = _parse_policy(value) if isinstance(value, str) else value
    return None if value is None else as_policy(value, what)


def _to_trigger(value: object) -> BaseTrigger | None:
    return None if value is None else as_trigger(value)


def _to_warnings(value: object) -> tuple[BaseTrigger, ...]:
    return tuple(as_trigger(each, "warning") for each in as_tuple(value))


def _to_counter(value: TokenCounter | str | None) -> TokenCounter | None:
    if not isinstance(value, str):
        return value
    from ctxkit.tokens import get_counter

    return get_counter(value)


@dataclass(frozen=True)
class Rules:
    """One complete setting of a context manager: policy, trigger, pruning, guards and window.

    Rules are frozen; `but` returns changed ones, and ``a | b`` combines two: b's policy works on
    the result of a's. A policy without a trigger runs before every call, with a warning. Where
    `window` is None, the limit is the model's, as far as the log or the price table knows it, else
    200,000 tokens.

    Raises:
        BadArguments: the parts cannot work together; the message says why.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(8_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", above, window=16_000)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.tokens_before, edit.tokens_after) for edit in replay.edits]
        [(8127, 3705)]
    """

    policy: ConvertingField[Policy | str | None, BasePolicy | None] = ConvertingField(
        partial(_parse_or_wrap_policy, what="policy")
    )
    """What a compaction does: ``(history, budget) -> history``; its result stays in the session."""
    trigger: ConvertingField[Trigger | None, BaseTrigger | None] = ConvertingField(_to_trigger)
    """When a compaction is due: ``(history, budget) -> bool``; None: before every call."""
    pruning: ConvertingField[Pruning | str | None, BasePolicy | None] = ConvertingField(
        partial(_parse_or_wrap_policy, what="pruning")
    )
    """Changes of one prompt only: ``(history, budget) -> history``; the session stays as it is."""
    guards: ConvertingField[Guard | Sequence[Guard], tuple[Guard, ...]] = ConvertingField(
        as_guards, ()
    )
    """Guards that postpone a due compaction, or refuse its result."""
    window: int | None = None
    """The model's context window in tokens, prompt and reply together."""
    assumed: bool = False
    """The window is a default, not a request: a prompt that does not fit is sent anyway."""
    unknown_window: int = 200_000
    """Tokens of the window where neither the rules nor the model's name determine it."""
    reserve: int = 0
    """Tokens of the window that stay free for the reply."""
    counter: ConvertingField[TokenCounter | str | None, TokenCounter | None] = ConvertingField(
        _to_counter
    )
    """Counts new text, and text without a recorded size: a counter or a name; None: the default."""
    estimator: ConvertingField[TokenCounter | str | None, TokenCounter | None] = ConvertingField(
        _to_counter
    )
    """The system's own size estimate (`history.estimated`), where it differs from billed tokens."""
    summariser: Any = None
    """Lent to policies without a summariser: a name or ``(passage) -> text``; None: extractive."""
    cache_life: float = DEFAULT_CACHE_LIFE
    """Lifetime of the provider's prompt cache after a call, in seconds."""
    auto: bool = True
    """False: compact by hand only."""
    flush: Any = None
    """How a live session saves to memory before a compaction; see
    `policies.lesson_extraction_and_recall`.
    """
    warnings: ConvertingField[Trigger | Sequence[Trigger], tuple[BaseTrigger, ...]] = (
        ConvertingField(_to_warnings, ())
    )
    """Triggers that only leave a note, once per compaction (fuseraft's `WarnAt`)."""
    on_compacted: Callable[[Sequence[Any]], None] | None = None
    """Called with the new messages after each compaction."""
    name: str = ""
    """Name of the rules in tables and plots."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The settings under the system's own names, for tables."""
    config: Callable[[Rules], str] | None = field(default=None, compare=False, repr=False)
    """Writes the rules as their system's config file; presets that have one set it."""

    def __post_init__(self) -> None:
        self._check_parts()
        self._check_numbers()
        # Keep the policy without a lent summariser, so that `but` can lend another one.
        self.__dict__["_bare"] = self.policy
        if self.policy is not None:
            from ctxkit.policies.offline_summarisers import parse_summariser as summariser

            if self.trigger is None:
                object.__setattr__(self, "trigger", _DEFAULT_TRIGGER)
            if isinstance(self.summariser, str) or self.summariser is None:
                object.__setattr__(self, "summariser", summariser(self.summariser or "extractive"))
            elif not callable(self.summariser):
                raise BadArguments(
                    f"The summariser {short_repr(self.summariser)} cannot be called with a passage."
                )
            object.__setattr__(self, "policy", self.policy.using(self.summariser))

    @property
    def bare(self) -> BasePolicy | None:
        """The policy without the summariser that the rules lend it."""
        policy: BasePolicy | None = self.__dict__["_bare"]
        return policy

    def _check_parts(self) -> None:
        if self.policy is None and (self.trigger is not None or self.guards):
            raise BadArguments(
                "A trigger or a guard without a policy compacts nothing: name the policy too."
            )

    def _check_numbers(self) -> None:
        if self.window is not None and not self.window > 0:
            raise BadArguments(
                f"A window of {self.window} tokens holds nothing: give a number above 0."
            )
        if self.reserve < 0 or (self.window is not None and self.reserve >= self.window):
            raise BadArguments(
                f"A reserve of {self.reserve} tokens leaves no room in a window of {self.window}."
            )
        if not self.cache_life > 0:
            raise BadArguments(
                f"A cache that lives {self.cache_life} seconds is none: give a number above 0."
            )
        # A trigger below what a compaction keeps would fire again at once.
        keeps = None if self.policy is None else self.policy.keeps
        limit = self._limit()
        if keeps is not None and limit is not None and limit <= keeps:
            raise BadArguments(
                f"A compaction at {limit:,.0f} tokens that keeps {keeps:,} frees nothing: "
                "the trigger must lie above what is kept."
            )

    def _limit(self) -> float | None:
        """Return the prompt size at which the trigger fires, in tokens; None: it has none.

        Without a window, a share of it is taken to be above everything.
        """
        if self.trigger is None:
            return None
        budget = ContextBudget(self.window or maxsize, self.reserve, self.counter)  # type: ignore[arg-type]
        return self.trigger.tokens(budget)

    @property
    def label(self) -> str:
        """The name, else the names of the parts."""
        if self.name:
            return self.name
        parts = [name_of(p) for p in (self.pruning, self.policy) if p is not None]
        return " + ".join(parts) or "none"

    def warn(self) -> None:
        """Warn once of a policy without a trigger: running before every call rarely pays."""
        if self.trigger is not _DEFAULT_TRIGGER or not self.auto or self.__dict__.get("_warned"):
            return
        self.__dict__["_warned"] = True
        warnings.warn(
            f"The rules {self.label!r} have a policy without a trigger, so it is due before every "
            "call: give one, as in Rules(policy=..., trigger=triggers.Share(share=0.75)), or "
            "triggers.Always() where that is meant.",
            UserWarning,
            stacklevel=2,
        )

    def context_budget(self, log: MessageLog, limit: int | None = None) -> ContextBudget:
        """Return the context budget for a log.

        Args:
            log: the log.
            limit: the model's window in tokens, for rules without one; None: `unknown_window`.

        Raises:
            BadArguments: the window was set, and the reserve with the fixed part of the
                prompt fills it. An assumed window is never refused: the real systems continue, too.
        """
        window = self.window or limit or self.unknown_window
        if self.window is not None and not self.assumed and self.reserve + log.fixed >= window:
            raise BadArguments(
                f"A window of {window:,} tokens cannot hold the fixed part of the prompt"
                f" ({log.fixed:,} tokens) and a reserve of {self.reserve:,}: give a larger window"
                " or a smaller reserve."
            )
        return ContextBudget(window, self.reserve, self.estimator or log.counter)

    def to_config(self) -> str:
        """Return the rules as the text of a config file of their system.

        Raises:
            BadArguments: they do not come from a preset with config files, or were changed since.

        Example:
            >>> import ctxkit as ck
            >>> print(ck.presets.pi().to_config().strip())
            {
              "compaction": {
                "enabled": true,
                "reserveTokens": 16384,
                "keepRecentTokens": 20000
              }
            }
        """
        if self.config is None:
            raise BadArguments(
                f"The rules {self.label!r} belong to no system with a config file of its own: "
                "presets such as fuseraft, fased, ai and pi can be written."
            )
        return self.config(self)

    def but(self, **changes: Any) -> Rules:
        """Return the rules with other settings; a `summariser` is lent to policies without one.

        Args:
            changes: settings by name.

        Raises:
            BadArguments: there is no such setting; the message names the nearest one.

        Example:
            >>> import ctxkit as ck
            >>> ck.presets.fased().but(window=100_000).window
            100000
        """
        names = [f.name for f in fields(self)]
        for name in changes:
            if name not in names:
                raise BadArguments(f"Rules have no setting {name!r}.{did_you_mean(name, names)}")
        if "window" in changes:
            changes.setdefault("assumed", False)
        return replace(self, **{"policy": self.bare, **changes})

    def __or__(self, other: Any) -> Rules:
        """Return the rules with another policy appended, or combined with other rules.

        Policies, prunings, triggers, guards and names of both are joined; of any other setting that
        both have, the value of these rules counts.
        """
        if not isinstance(other, Rules):
            other = _parse_policy(other) if isinstance(other, str) else other
            return self.but(policy=_chain_policies(self.bare, other))
        # Settings that only the other rules have fill the gaps; policies and prunings are chained.
        default = Rules()
        values = {f.name: getattr(other, f.name) for f in fields(other)}
        changes = {
            n: v
            for n, v in values.items()
            if v != getattr(default, n) and getattr(self, n) == getattr(default, n)
        }
        changes["policy"] = _chain_policies(self.policy, other.policy)
        changes["pruning"] = _chain_policies(self.pruning, other.pruning)
        if self.trigger is not None and other.trigger is not None:
            changes["trigger"] = Either((self.trigger, other.trigger))
        changes["guards"] = (*self.guards, *other.guards)
        changes["name"] = " | ".join(n for n in (self.name, other.name) if n)
        return replace(self, **changes)


def as_rules(rules: Rules | Policy | str) -> Rules:
    """Return rules for rules, a policy (run before every call), or a policy in words.

    Args:
        rules: rules, a function ``(history, budget) -> history``, or a text as for `parse`.

    Returns:
        The rules themselves, or rules that have the policy and no trigger.

    Raises:
        BadArguments: it is none of these.

    Example:
        >>> import ctxkit as ck
        >>> ck.policies.as_rules("clear:keep_last=3 | window:keep_tokens=60000").label
        'Clear | Window'
    """
    if isinstance(rules, Rules):
        return rules
    policy: object = _parse_policy(rules) if isinstance(rules, str) else rules
    if not callable(policy):
        raise BadArguments(
            f"{short_repr(rules)} is neither rules nor a policy: give rules, or a function"
            " (history, budget) -> history."
        )
    return Rules(policy=policy)


def _chain_policies(a: Policy | None, b: Policy | None) -> Policy | None:
    return Chain.of(a, b) if a is not None and b is not None else b if a is None else a


def _parse_policy(words: str) -> Policy:
    from ctxkit.policies.registry import parse

    return parse(words)


THRESHOLD_NAMES = ("warn_at", "cutover_at")
"""Columns of a turn frame, and settings of rules, with budget thresholds."""


def get_warn_and_cutover_tokens(rules: Rules) -> dict[str, int]:
    """Return the budget thresholds `warn_at` and `cutover_at` in tokens; 0: not set.

    They are the settings of these names (fuseraft), else the limits of the first warning and the
    first trigger on tokens spent.

    Args:
        rules: any rules.

    Returns:
        `{"warn_at": tokens, "cutover_at": tokens}`.
    """
    trigger = () if rules.trigger is None else (rules.trigger,)
    triggers_by_name = {"warn_at": rules.warnings, "cutover_at": trigger}
    return {
        k: int(rules.parameters.get(k) or _first_spent_limit(by) or 0)
        for k, by in triggers_by_name.items()
    }


def _first_spent_limit(triggers: tuple[BaseTrigger, ...]) -> int | None:
    return next(
        (int(t.limit) for t in _flatten_triggers(triggers) if isinstance(t, TokensSpent)), None
    )


def _flatten_triggers(triggers: tuple[BaseTrigger, ...]) -> Iterator[BaseTrigger]:
    for t in triggers:
        yield t
        yield from _flatten_triggers(t.parts)


@dataclass(frozen=True)
class RecordedCompactionsPolicy(BasePolicy):
    """The recorded compactions as a policy: at each call, the edits recorded before it.

    Example:
        >>> import ctxkit as ck
        >>> recorded = ck.policies.triggers.Recorded()
        >>> rules = ck.policies.Rules(RecordedCompactionsPolicy(), recorded)
        >>> len(ck.replay(ck.samples.path("billing"), rules).edits)
        2
    """

    name = "recorded"

    def __call__(self, history: History, budget: ContextBudget) -> History:  # noqa: ARG002
        """Return the history after the recorded edits of this call."""
        for call, edit in history.log.recorded:
            if call == history.call:
                history = history.apply(edit)
        return history

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call with a recorded edit before it."""
        return Recorded().first(forecast, start, stop)


def recorded_rules() -> Rules:
    """Return rules that repeat the recorded compactions, with the recorded summaries.

    Returns:
        Rules named `recorded`, due where the log has a compaction.

    Example:
        >>> import ctxkit as ck
        >>> len(ck.replay(ck.samples.path("billing"), recorded_rules()).edits)
        2
    """
    return Rules(policy=RecordedCompactionsPolicy(), trigger=Recorded(), name="recorded")
