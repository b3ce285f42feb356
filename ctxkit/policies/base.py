"""Base classes of policies: chains, fallbacks, validated settings, scheduled prunings."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

from ctxkit._internal.setting_value_validation import coerce_setting, is_number
from ctxkit.errors import BadArguments, ModelError, short_repr
from ctxkit.policies.history.history import History
from ctxkit.policies.protocols import (
    FUNCTION_METHOD,
    FunctionWrapper,
    HasName,
    is_only_call_overridden,
    name_of,
)
from ctxkit.policies.schedules.pruning_schedule import Schedule
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.policies.protocols import Policy, PromptForecast
    from ctxkit.policies.schedules.schedule_view_of_new_calls import ScheduleView
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
class CompositePolicy(BasePolicy):
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


class Chain(CompositePolicy):
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
class Fallback(CompositePolicy):
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


Natural: TypeAlias = int
"""A whole number of 0 or more."""
Positive: TypeAlias = int
"""A whole number of 1 or more."""
Proportion: TypeAlias = float
"""A number between 0 and 1."""
PositiveShare: TypeAlias = float
"""A number above 0 and up to 1."""
AboveZero: TypeAlias = float
"""A number above 0, infinity too."""


class ValidatedSettings:
    """Base of dataclasses that check their fields against the annotations, and convert them.

    For a tuple of names, a single name or a list becomes a tuple: ``deny="bash"`` is
    ``deny=("bash",)``. Whole numbers of any type become int.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        post_init = cls.__dict__.get("__post_init__")
        if post_init is not None:

            @wraps(post_init)
            def validated_post_init(self: Any) -> None:
                _validate_fields(self)
                post_init(self)

            cls.__post_init__ = validated_post_init  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _validate_fields(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class DataclassPolicy(ValidatedSettings, BasePolicy):
    """A policy defined by settings; `repr` shows those that differ from their default."""

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in get_non_default_settings(self).items())
        return f"{type(self).__name__}({', '.join(settings)})"


def _validate_fields(part: Any) -> None:
    need = f"{type(part).__name__} needs {{words}} for "
    for f in fields(part):
        value = getattr(part, f.name)
        converted = coerce_setting(value, str(f.type), need + f.name)
        if converted is not value:
            object.__setattr__(part, f.name, converted)


def get_non_default_settings(part: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that differ from their default."""
    out = {}
    for f in fields(part):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        default = None if default is MISSING else default
        if f.repr and getattr(part, f.name) != default:
            out[f.name] = getattr(part, f.name)
    return out


def check_at_least(part: Any, low: float, *names: str) -> None:
    """Check that settings are at least `low`.

    Args:
        part: an object with settings.
        low: the smallest value that is allowed.
        names: names of the settings.

    Raises:
        BadArguments: one is lower; the message names it.
    """
    for name in names:
        value = getattr(part, name)
        if value is not None and not (is_number(value) and value >= low):  # NaN fails too
            raise BadArguments(
                f"{type(part).__name__} needs {name} of at least {low}, not {short_repr(value)}."
            )


# Two ways to prune a prompt. A `__call__` is run at each call, on that call's history: simple, and
# O(calls x messages). A `schedule` says once, for many calls, which messages change and from which
# call on; prompts and costs follow from the changes (see `schedules.pruning_schedule`). Both must
# agree, so a class that redefines one below the other is run by its `__call__` only. A chain is
# split accordingly: a leading run of schedules, then everything else, call by call.


@dataclass(frozen=True, kw_only=True, repr=False)
class ScheduledPruning(DataclassPolicy):
    """Base of prunings whose `schedule` says which messages change, and from which call on.

    A pruning in five lines::

        @dataclass(frozen=True, kw_only=True, repr=False)
        class ClearOld(ScheduledPruning):
            keep_last: int = 3

            def schedule(self, view, budget):
                for p, call, old in view.window("tool", lambda n: n - self.keep_last):
                    view.change(p, "[cleared]" if old else UNDO_CHANGE, since=call)

    A subclass that overrides `__call__`, or the `schedule` of another pruning, is run call by call
    instead, also for its costs; so is one whose `steps` hold such a part.
    """

    counts: ClassVar[bool] = True
    """The schedule counts all messages of a prompt. Messages that a part before appends have no
    position, so behind a part that `appends` it is run call by call. Set it to False where only
    replies and tool results matter.
    """

    @property
    def appends(self) -> bool:
        """True where it may append a message to a call."""
        return False

    @property
    def filters_history(self) -> bool:
        """True where it filters earlier turns only: its schedule gets an `EarlierTurnsView`, so
        calls and results of the current turn stay until the turn is over.
        """
        return False

    @property
    def steps(self) -> tuple[BasePolicy, ...]:
        """Parts that its schedule uses as stages, as `stepped` does for one call."""
        return ()

    def schedule(self, view: ScheduleView, budget: ContextBudget) -> None:
        """Change or hide messages at the new calls by calling methods of the view.

        Args:
            view: the messages and the new calls, `view.start` to `view.stop`.
            budget: the limit and reserve in tokens.
        """
        raise NotImplementedError

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return what this call is sent."""
        if not all(map(is_fully_scheduled, self.steps)):
            return self.stepped(history, budget)
        first = self.begin(history)
        start = history if first == history.call else history.at(first)
        return Schedule(start, (self,), budget).prompt_at(history.call, name_of(self))

    def begin(self, history: History) -> int:
        """Return the first call that the prompt of this call depends on: this one."""
        return history.call

    def stepped(self, history: History, budget: ContextBudget) -> History:  # noqa: ARG002
        """Prune one call, where a step defines its own `__call__` and so cannot be scheduled.

        Args:
            history: the messages of the call.
            budget: the limit and reserve in tokens.

        Returns:
            The prompt of the call.

        Raises:
            BadArguments: a step defines its own `__call__`, and the class does not define
                `stepped`.
        """
        raise BadArguments(
            f"A step of {type(self).__name__} defines its own `__call__`: define `stepped`, which"
            " prunes one call."
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class EarlierTurnsFilter(ScheduledPruning):
    """Base of prunings that filter the messages of earlier turns only.

    The input, calls and results of the current turn stay until the turn is over; the next turn
    filters them. So the prompt changes once per turn, from the first filtered message on, and the
    provider's cache does not serve what follows. A filter does not bound a single long
    turn; other prunings and compactions do.
    """

    @property
    def filters_history(self) -> bool:
        """True: it filters earlier turns only."""
        return True


def is_fully_scheduled(part: Any) -> bool:
    """Return True where the `schedule` of a part describes its `__call__` completely.

    No class redefines `__call__`, or overrides the schedule of another pruning (the order of the
    two schedules' changes would depend on the batches of calls); the same holds for its steps.
    """
    if (
        not isinstance(part, ScheduledPruning)
        or type(part).__call__ is not ScheduledPruning.__call__
    ):
        return False
    schedules = sum("schedule" in vars(cls) for cls in type(part).__mro__)  # its own, the base's
    return schedules <= 2 and all(map(is_fully_scheduled, part.steps))


def split_pruning(
    pruning: BasePolicy | None,
) -> tuple[tuple[ScheduledPruning, ...], tuple[BasePolicy, ...]]:
    """Split a pruning into the leading parts with a schedule, and the rest, run call by call.

    The rest begins with the first part without a schedule, or that counts appended messages.

    Args:
        pruning: a policy or a chain; None: nothing is pruned.

    Returns:
        (parts whose prompts can be computed at once, parts that are run at each call).
    """
    parts = () if pruning is None else flatten_chain(pruning)
    scheduled, has_appended = list[ScheduledPruning](), False
    for part in parts:
        if not (isinstance(part, ScheduledPruning) and is_fully_scheduled(part)) or (
            part.counts and has_appended
        ):
            break
        scheduled.append(part)
        has_appended = has_appended or part.appends
    return tuple(scheduled), parts[len(scheduled) :]
