"""Policies as dataclasses with validated settings, and prunings with a schedule."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ctxkit._internal.setting_value_validation import coerce_setting, is_number
from ctxkit.errors import BadArguments, short_repr
from ctxkit.policies.policy_base_and_chains import BasePolicy, flatten_chain
from ctxkit.policies.protocols import (
    name_of,
)
from ctxkit.policies.schedules.pruning_schedule import Schedule

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.tokens.token_counters import ContextBudget


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

    A subclass that overrides `__call__`, or the `schedule` of another pruning, is run call by call
    instead, also for its costs; so is one whose `steps` hold such a part.

    Example:
        >>> import ctxkit as ck
        >>> from dataclasses import dataclass
        >>> from ctxkit.policies import ScheduledPruning
        >>> from ctxkit.policies.schedules import UNDO_CHANGE
        >>> @dataclass(frozen=True, kw_only=True, repr=False)
        ... class ClearOld(ScheduledPruning):
        ...     keep_last: int = 3
        ...     def schedule(self, view, budget):
        ...         for p, call, old in view.window("tool", lambda n: n - self.keep_last):
        ...             view.change(p, "[cleared]" if old else UNDO_CHANGE, since=call)
        >>> rules = ck.policies.Rules(pruning=ClearOld(), window=200_000)
        >>> incident = ck.read(ck.samples.path("incident"))
        >>> [sum(m.tokens for m in s.sent(-1)) for s in (incident, ck.replay(incident, rules))]
        [75761, 8081]
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

    Example:
        >>> from ctxkit.policies import EarlierTurnsFilter
        >>> EarlierTurnsFilter().filters_history
        True
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
