"""Base classes of policies: chains, fallbacks, validated settings, scheduled prunings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ctxkit.errors import BadArguments, ModelError, short_repr
from ctxkit.policies.history.history import History
from ctxkit.policies.protocols import (
    FUNCTION_METHOD,
    FunctionWrapper,
    HasName,
    is_only_call_overridden,
    name_of,
)
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.policies.protocols import Policy, PromptForecast
    from ctxkit.tokens.token_counters import ContextBudget


class BasePolicy(HasName):
    """Base class of policies and prunings; ``a | b`` chains them.

    A subclass defines ``__call__(history, budget)``; see `Policy`. `keeps`, `first`, `using` and
    `focused` are optional.

    Example:
        >>> import ctxkit as ck
        >>> class LastTen(ck.policies.BasePolicy):
        ...     def __call__(self, history, budget):
        ...         return history.drop(history.safe(max(len(history) - 10, 0)), "older than ten")
        >>> (LastTen() | ck.policies.parse("clear:keep_last=3")).name
        'LastTen | Clear'
    """

    if TYPE_CHECKING:  # as in `HasName`

        @property
        def keeps(self) -> int | None:
            """Tokens that a compaction always leaves; a trigger must be above. None: unknown."""

        def __call__(
            self, history: History, budget: ContextBudget, /
        ) -> History | Sequence[Message]:
            """Return the history after the policy; see `Policy`."""
    else:
        keeps = None

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call in start..stop at which it can have an effect, or `stop`.

        Args:
            forecast: the prompts of the calls start..stop if nothing is compacted.
            start: first call that is searched, from 0.
            stop: one past the last call that is searched.
        """
        return start

    def using(self, summariser: Any) -> BasePolicy:  # noqa: ARG002
        """Return the policy with a summariser, ``(passage) -> text``, where it has none."""
        return self

    def focused(self, focus: str) -> BasePolicy:  # noqa: ARG002
        """Return the policy with a focus, a topic that its summaries should cover."""
        return self

    def __or__(self, other: Policy) -> Chain:
        return Chain.of(self, other)

    def __ror__(self, other: Policy) -> Chain:
        return Chain.of(other, self)


class FunctionPolicy(FunctionWrapper, BasePolicy):
    """A plain function, or any other callable, as a policy.

    Example:
        >>> import ctxkit as ck
        >>> def drop_oldest_ten(history, budget):
        ...     return history.drop(slice(0, 10))
        >>> ck.policies.as_rules(drop_oldest_ten).label
        'drop_oldest_ten'
    """

    def __call__(self, history: History, budget: ContextBudget) -> Any:
        """Return what the function returns."""
        return self.function(history, budget)


@runtime_checkable
class _TakesSummariser(Protocol):
    def using(self, summariser: Any, /) -> object: ...


def as_policy(candidate: object, what: str = "policy") -> BasePolicy:
    """Return a policy or a pruning as a `BasePolicy`; a function is wrapped.

    Args:
        candidate: a policy, a pruning, or a function ``(history, budget) -> history``.
        what: the word for it in an error.

    Returns:
        The candidate itself where it derives from `BasePolicy`.

    Raises:
        BadArguments: it cannot be called, or has a method `using` without deriving from
            `BasePolicy`.
    """
    if not callable(candidate):
        raise BadArguments(
            f"The {what} {short_repr(candidate)} cannot be called:"
            " give a function (history, budget)."
        )
    if isinstance(candidate, BasePolicy):
        return candidate
    if isinstance(candidate, _TakesSummariser) and not isinstance(candidate, type):
        raise BadArguments(
            f"The {what} {name_of(candidate)} has a method `using`, which is for policies only: "
            "derive its class from ctxkit.policies.BasePolicy."
        )
    return FunctionPolicy(candidate)


def apply_policy(policy: Policy, history: History, budget: ContextBudget) -> History:
    """Return the history after a policy; a list of messages that it returns becomes the prompt.

    Args:
        policy: any callable ``(history, budget) -> history``.
        history: the messages before it.
        budget: the tokens that it may fill.

    Returns:
        The history itself where the policy changes nothing.

    Raises:
        BadArguments: it returned something else, or a history of another session or call.
        UnsoundHistory: a tool call lost its result, or a protected message is gone.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.tokens import default_counter
        >>> counter = default_counter()
        >>> session = ck.read(ck.samples.path("chat"))
        >>> log = ck.policies.MessageLog.of(session.messages, counter)
        >>> history = ck.policies.History.start(log, call=len(session.calls))
        >>> budget = ck.ContextBudget(8_000, 1_000, counter)
        >>> new = apply_policy(ck.policies.Summary(keep_tokens=2_000), history, budget)
        >>> new.tokens < history.tokens
        True
    """
    new = policy(history, budget)
    return history if new is history else coerce_to_history(new, history, policy)


def coerce_to_history(new: object, history: History, policy: Policy) -> History:
    """Return the result of a policy as a history of the same call; see `apply_policy`.

    Args:
        new: what the policy returned: a history or a list of messages.
        history: the history that it was given.
        policy: the policy, for the error.

    Returns:
        A history of the same log and call.

    Raises:
        BadArguments: `new` is neither, or is a history of another session or call.
    """
    if isinstance(new, History):
        if new.log is not history.log or new.call != history.call:
            raise BadArguments(
                f"Policy {name_of(policy)} returned a history of another session or call."
            )
        return new
    if isinstance(new, (list, tuple)) and all(isinstance(m, Message) for m in new):
        is_function = isinstance(policy, FunctionPolicy)
        method = FUNCTION_METHOD if is_function else name_of(policy)
        return history.become(new, name_of(policy), method=method)
    what = "None" if new is None else type(new).__name__
    raise BadArguments(
        f"Policy {name_of(policy)} returned {what}; it must return a history, such as the one it"
        " was given."
    )


@dataclass(frozen=True)
class PolicyWithParts(BasePolicy):
    """Base of policies that are composed of others."""

    parts: tuple[BasePolicy, ...]

    def __init__(self, parts: Sequence[Policy]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_policy, parts)))

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which any part can have an effect."""
        firsts = (
            start if is_only_call_overridden(p, "first") else p.first(forecast, start, stop)
            for p in self.parts
        )
        return min(firsts, default=stop)

    def using(self, summariser: Any) -> Self:
        """Return the policy with a summariser for the parts that have none."""
        return replace(self, parts=tuple(p.using(summariser) for p in self.parts))

    def focused(self, focus: str) -> Self:
        """Return the policy with a focus for the parts that write summaries."""
        return replace(self, parts=tuple(p.focused(focus) for p in self.parts))


class Chain(PolicyWithParts):
    """Policies in a row: each works on the result of the one before; written ``a | b``.

    Args:
        parts: policies, in order.

    Example:
        >>> import ctxkit as ck
        >>> chain = ck.policies.parse("clear:keep_last=3 | window:keep_tokens=4000")
        >>> chain.name
        'Clear | Window'
        >>> rules = ck.policies.Rules(chain, ck.policies.triggers.Above(8_000))
        >>> [edit.kind for edit in ck.replay(ck.read(ck.samples.path("chat")), rules).edits]
        ['dropped']
    """

    @classmethod
    def of(cls, *parts: Policy) -> Self:
        """Return one flat chain of policies and chains."""
        return cls(tuple(p for part in parts for p in flatten_chain(as_policy(part))))

    @property
    def name(self) -> str:
        """The names of the parts, joined by ``|``."""
        return " | ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history after all parts, in order."""
        for part in self.parts:
            history = apply_policy(part, history, budget)
        return history


def flatten_chain(part: BasePolicy) -> tuple[BasePolicy, ...]:
    """Return the parts of a chain; of any other policy, or a chain with its own call, itself."""
    if isinstance(part, Chain) and type(part).__call__ is Chain.__call__:
        return part.parts
    return (part,)


@dataclass(frozen=True, init=False)
class Fallback(PolicyWithParts):
    """Policies in order of preference: the first one that has an effect is used.

    The next one is tried where a policy changes nothing, raises a ModelError or, with `fits`,
    leaves a prompt above the window.

    Args:
        parts: policies, the preferred one first.
        fits: continue until the prompt fits the window; each policy starts from the original
            history.

    Raises:
        BadArguments: there is no policy.

    Example:
        >>> import ctxkit as ck
        >>> parse = ck.policies.parse
        >>> ck.policies.Fallback([parse("summary"), parse("window")]).name
        'Summary else Window'
    """

    fits: bool = False
    """Continue, each part on the original history, until the prompt fits the window."""

    def __init__(self, parts: Sequence[Policy], fits: bool = False) -> None:
        if not parts:
            raise BadArguments("A fallback needs at least one policy.")
        super().__init__(parts)
        object.__setattr__(self, "fits", fits)

    @property
    def name(self) -> str:
        """The names of the parts, joined by ``else``."""
        return " else ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the result of the first part with an effect, or with `fits` the last one."""
        new, last_error = history, None
        # Each part starts from the original history; without an effect the last error is raised.
        for part in self.parts:
            try:
                result = apply_policy(part, history, budget)
            except ModelError as error:
                last_error = error
                continue
            if result is not history:
                new = result.instead_of("" if last_error is None else str(last_error))
                if not self.fits or new.tokens <= budget.limit:
                    return new
        if new is history and last_error is not None:
            raise last_error
        return new
