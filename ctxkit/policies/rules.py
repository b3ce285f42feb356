"""Rules: one complete setting of a context manager, its budget thresholds, and the recorded
compactions as rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003  read by dataclasses
from dataclasses import dataclass, field, fields, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctxkit.errors import BadArguments, did_you_mean, short_repr
from ctxkit.policies.base import BasePolicy, Chain, as_policy
from ctxkit.policies.history.log import MessageLog  # noqa: TC001  as above
from ctxkit.policies.protocols import FunctionWrapper, Guard, Policy, Pruning, Trigger, name_of
from ctxkit.policies.triggers import Always, BaseTrigger, Either, Recorded, Spent, as_trigger
from ctxkit.tokens.counters import ContextBudget, TokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Forecast


GivenT = TypeVar("GivenT")
KeptT = TypeVar("KeptT")


class ConvertedField(Generic[GivenT, KeptT]):
    """A field of a frozen dataclass that is given as one type and kept as another.

    What is kept stands in the instance like any other value, so reading it costs no call.

    Args:
        made: makes what is kept from what is given.
        default: what is given where nothing is.
    """

    def __init__(self, made: Callable[[GivenT], KeptT], default: Any = None) -> None:
        self._made, self._default = made, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: object, given: GivenT) -> None:
        default = self._default
        value = default if given is self else given  # a dataclass gives what stands in the class
        instance.__dict__[self._name] = self._made(value)

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> KeptT: ...

    def __repr__(self) -> str:
        return repr(self._default)


def as_guards(given: object) -> tuple[Guard, ...]:
    """Return one guard, or several, as a tuple.

    Raises:
        BadArguments: one is none.
    """
    several = as_tuple(given)
    for guard in several:
        if not isinstance(guard, Guard):
            raise BadArguments(
                f"{short_repr(guard)} is no guard: a guard has `first` and `refuses` (see"
                " policies.guards)."
            )
    return several


def as_tuple(given: object) -> tuple[Any, ...]:
    """Return a tuple or a list as a tuple, anything else as a tuple of one: also a named tuple
    that is itself a part or a guard.
    """
    one = callable(given) or isinstance(given, Guard)
    return tuple(given) if isinstance(given, (list, tuple)) and not one else (given,)


def unwrap_function(part: object) -> Any:
    """Return a part as the person wrote it: the function, where one was wrapped."""
    return part.function if isinstance(part, FunctionWrapper) else part


_EACH_CALL = Always()
"""The trigger of rules that were given none."""


def _to_policy(given: object, what: str) -> BasePolicy | None:
    given = _parse_policy(given) if isinstance(given, str) else given
    return None if given is None else as_policy(given, what)


def _to_trigger(given: object) -> BaseTrigger | None:
    return None if given is None else as_trigger(given)


def _to_warnings(given: object) -> tuple[BaseTrigger, ...]:
    return tuple(as_trigger(each, "warning") for each in as_tuple(given))


def _to_counter(given: TokenCounter | str | None) -> TokenCounter | None:
    if not isinstance(given, str):
        return given
    from ctxkit.tokens import get_counter

    return get_counter(given)


@dataclass(frozen=True)
class Rules:
    """Policy, trigger, pruning, guards and room; frozen, and ``a | b`` puts b's work after a's.

    A policy without a trigger is asked before every call, and warned of where it is used. Where
    `window` is None the limit is the model's, as far as the log or the price table names it, else
    200,000.

    Raises:
        BadArguments: the parts cannot work together; the sentence says why.
    """

    policy: ConvertedField[Policy | str | None, BasePolicy | None] = ConvertedField(
        partial(_to_policy, what="policy")
    )
    """What a compaction does: ``(history, room) -> history``; kept in the session."""
    trigger: ConvertedField[Trigger | None, BaseTrigger | None] = ConvertedField(_to_trigger)
    """When it is due: ``(history, room) -> bool``; None: before every call."""
    pruning: ConvertedField[Pruning | str | None, BasePolicy | None] = ConvertedField(
        partial(_to_policy, what="pruning")
    )
    """What is done for one call alone: ``(history, room) -> history``; nothing of it is kept."""
    guards: ConvertedField[Guard | Sequence[Guard], tuple[Guard, ...]] = ConvertedField(
        as_guards, ()
    )
    """What holds a due compaction back, or refuses its result."""
    window: int | None = None
    """Tokens that the model takes, prompt and reply together."""
    assumed: bool = False
    """The window is a default that nobody asked for: a prompt that does not fit is sent still."""
    reserve: int = 0
    """Tokens of it that stay free for the reply."""
    counter: ConvertedField[TokenCounter | str | None, TokenCounter | None] = ConvertedField(
        _to_counter
    )
    """Counts what is new, and what the log does not size: a counter, a name; None: the default."""
    estimator: ConvertedField[TokenCounter | str | None, TokenCounter | None] = ConvertedField(
        _to_counter
    )
    """The measure that the system believes in, where not the bill's (`history.estimated`)."""
    summariser: Any = None
    """Writes summaries where policies cannot: a name, ``(passage) -> text``; None: extractive."""
    cache_life: float = 300.0
    """Seconds that the provider's prompt cache lives after a call."""
    auto: bool = True
    """False: nothing is done but by hand."""
    flush: Any = None
    """What a live session saves to memory before a compaction: see `policies.memory`."""
    warnings: ConvertedField[Trigger | Sequence[Trigger], tuple[BaseTrigger, ...]] = ConvertedField(
        _to_warnings, ()
    )
    """Triggers that only leave a note, once until the next compaction (fuseraft's `WarnAt`)."""
    on_compacted: Callable[[Sequence[Any]], None] | None = None
    """Called with the new messages after each compaction."""
    name: str = ""
    """What tables and plots call these rules."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The settings under the system's own names, for tables."""
    config: Callable[[Rules], str] | None = field(default=None, compare=False, repr=False)
    """Writes the rules as their system's config file; presets that have one set it."""

    def __post_init__(self) -> None:
        self._check_parts()
        self._check_numbers()
        self.__dict__["_bare"] = self.policy
        if self.policy is not None:
            from ctxkit.policies.offline_summarisers import parse_summariser as summariser

            if self.trigger is None:
                object.__setattr__(self, "trigger", _EACH_CALL)
            if isinstance(self.summariser, str) or self.summariser is None:
                object.__setattr__(self, "summariser", summariser(self.summariser or "extractive"))
            elif not callable(self.summariser):
                raise BadArguments(
                    f"The summariser {short_repr(self.summariser)} cannot be called with a passage."
                )
            object.__setattr__(self, "policy", self.policy.using(self.summariser))

    @property
    def bare(self) -> BasePolicy | None:
        """The policy without the summariser that the rules lend it, so that another can be lent."""
        known: BasePolicy | None = self.__dict__["_bare"]
        return known

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
        keeps = None if self.policy is None else self.policy.keeps
        limit = self._limit()
        if keeps is not None and limit is not None and limit <= keeps:
            raise BadArguments(
                f"A compaction at {limit:,.0f} tokens that keeps {keeps:,} frees nothing: "
                "the trigger must lie above what is kept."
            )

    def _limit(self) -> float | None:
        """Return the tokens at which the trigger fires, where it is one that fires at a size.

        Where no window is named any may be meant: a share of it lies above all that is kept.
        """
        if self.trigger is None:
            return None
        room = ContextBudget(self.window or maxsize, self.reserve, self.counter)  # type: ignore[arg-type]
        return self.trigger.tokens(room)

    @property
    def label(self) -> str:
        """The name, else what its parts call themselves."""
        if self.name:
            return self.name
        parts = [name_of(p) for p in (self.pruning, self.policy) if p is not None]
        return " + ".join(parts) or "none"

    def warn(self) -> None:
        """Warn, once, of a policy without a trigger: due before every call, it rarely pays."""
        if self.trigger is not _EACH_CALL or not self.auto or self.__dict__.get("_warned"):
            return
        self.__dict__["_warned"] = True
        warnings.warn(
            f"The rules {self.label!r} have a policy without a trigger, so it is due before every "
            "call: give one, as in Rules(policy=..., trigger=triggers.Share(share=0.75)), or "
            "triggers.Always() where that is meant.",
            UserWarning,
            stacklevel=2,
        )

    def room(self, log: MessageLog, limit: int | None = None) -> ContextBudget:
        """Return the room for a log: this window, else the limit given, else 200,000 tokens.

        A window that nobody asked for is no bound: the systems believe in theirs, and go on where
        the prompt is larger.

        Raises:
            BadArguments: the window was asked for, and the reserve, or the part of the prompt that
                no policy can change, leaves no room in it.
        """
        window = self.window or limit or 200_000
        if self.window is not None and not self.assumed and self.reserve + log.fixed >= window:
            raise BadArguments(
                f"A window of {window:,} tokens cannot hold the fixed part of the prompt"
                f" ({log.fixed:,} tokens) and a reserve of {self.reserve:,}: give a larger window"
                " or a smaller reserve."
            )
        return ContextBudget(window, self.reserve, self.estimator or log.counter)

    def to_config(self) -> str:
        """Return the rules as a config file of their own system, in its syntax and spelling.

        Raises:
            BadArguments: they are no system's, or were changed since its preset made them.
        """
        if self.config is None:
            raise BadArguments(
                f"The rules {self.label!r} belong to no system with a config file of its own: "
                "presets such as fuseraft, fased, ai and pi can be written."
            )
        return self.config(self)

    def but(self, **changes: Any) -> Rules:
        """Return the rules with other settings; another `summariser` is lent to policies that have
        none of their own.

        Raises:
            BadArguments: there is no such setting; the sentence names the nearest one.
        """
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                raise BadArguments(f"Rules have no setting {name!r}.{did_you_mean(name, known)}")
        if "window" in changes:
            changes.setdefault("assumed", False)
        return replace(self, **{"policy": self.bare, **changes})

    def __or__(self, other: Any) -> Rules:
        """Return the rules with a policy behind, or joined with others, which fill the gaps."""
        if not isinstance(other, Rules):
            other = _parse_policy(other) if isinstance(other, str) else other
            return self.but(policy=_chain_policies(self.bare, other))
        default = Rules()
        own = {f.name: getattr(other, f.name) for f in fields(other)}
        changes = {
            n: v
            for n, v in own.items()
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
    """Return rules from rules, a policy (asked before every call), or the words for one.

    Raises:
        BadArguments: it is none of these.
    """
    if isinstance(rules, Rules):
        return rules
    given: object = _parse_policy(rules) if isinstance(rules, str) else rules
    if not callable(given):
        raise BadArguments(
            f"{short_repr(rules)} is neither rules nor a policy: give rules, or a function"
            " (history, room) -> history."
        )
    return Rules(policy=given)


def _chain_policies(a: Policy | None, b: Policy | None) -> Policy | None:
    return Chain.of(a, b) if a is not None and b is not None else b if a is None else a


def _parse_policy(words: str) -> Policy:
    from ctxkit.policies.registry import parse

    return parse(words)


THRESHOLD_NAMES = ("warn_at", "cutover_at")
"""The columns of a turn frame, and the settings of rules, that hold them."""


def budget_thresholds(rules: Rules) -> dict[str, int]:
    """Return `warn_at` and `cutover_at` in tokens; 0: none is set.

    They are the settings of these names, as fuseraft has them, else the first warning and the first
    trigger on tokens spent.
    """
    due = () if rules.trigger is None else (rules.trigger,)
    said = {"warn_at": rules.warnings, "cutover_at": due}
    return {
        k: int(rules.parameters.get(k) or _first_spent_limit(by) or 0) for k, by in said.items()
    }


def _first_spent_limit(triggers: tuple[BaseTrigger, ...]) -> int | None:
    return next((int(t.limit) for t in _flatten_triggers(triggers) if isinstance(t, Spent)), None)


def _flatten_triggers(triggers: tuple[BaseTrigger, ...]) -> Iterator[BaseTrigger]:
    for t in triggers:
        yield t
        yield from _flatten_triggers(t.parts)


@dataclass(frozen=True)
class RecordedCompactions(BasePolicy):
    """Does at each call what the log recorded before it."""

    name = "recorded"

    def __call__(self, history: History, room: ContextBudget) -> History:  # noqa: ARG002
        """Return the history after the recorded edits of this call."""
        for call, edit in history.log.recorded:
            if call == history.call:
                history = history.apply(edit)
        return history

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a recorded edit before it."""
        return Recorded().first(forecast, start, stop)


def recorded_rules() -> Rules:
    """Return rules that cut where the log has cuts, with the recorded summaries."""
    return Rules(policy=RecordedCompactions(), trigger=Recorded(), name="recorded")
