"""Base classes of policies: chains, fallbacks, checked settings, scheduled prunings."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

from ctxkit._internal.value_kinds import coerce_setting, is_number
from ctxkit.errors import BadArguments, ModelError, short_repr
from ctxkit.policies.history.history import History
from ctxkit.policies.protocols import FunctionWrapper, Named, is_call_overridden, name_of
from ctxkit.policies.schedules.pruning_schedule import Schedule
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.policies.protocols import Forecast, Policy
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.tokens.counters import ContextBudget


class BasePolicy(Named):
    """The base of policies and prunings: what one may say besides its call, and ``a | b``."""

    if TYPE_CHECKING:  # as in `WithName`

        @property
        def keeps(self) -> int | None:
            """Tokens left at least, which a trigger must lie above; None: no such number."""

        def __call__(self, history: History, room: ContextBudget, /) -> History | Sequence[Message]:
            """Return the history as it shall be shown; see `Policy`."""
    else:
        keeps = None

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call in start..stop at which it can do anything, or `stop`."""
        return start

    def using(self, summariser: Any) -> BasePolicy:  # noqa: ARG002
        """Return itself with a summariser, ``(passage) -> text``, where it lacks one."""
        return self

    def focused(self, focus: str) -> BasePolicy:  # noqa: ARG002
        """Return itself with what the user wants a summary to look at, where it writes one."""
        return self

    def __or__(self, other: Policy) -> Chain:
        return Chain.of(self, other)

    def __ror__(self, other: Policy) -> Chain:
        return Chain.of(other, self)


class FunctionPolicy(FunctionWrapper, BasePolicy):
    """A plain function, or any callable that is no part: it says nothing but its call."""

    def __call__(self, history: History, room: ContextBudget) -> Any:
        """Return what the function returns."""
        return self.function(history, room)


@runtime_checkable
class _TakesSummariser(Protocol):
    def using(self, summariser: Any, /) -> object: ...


def as_policy(given: object, what: str = "policy") -> BasePolicy:
    """Return a policy or a pruning as a part; a function is wrapped.

    Raises:
        BadArguments: it cannot be called, or wants to be lent a summariser, which only parts are.
    """
    if not callable(given):
        raise BadArguments(
            f"The {what} {short_repr(given)} cannot be called with a history and a room."
        )
    if isinstance(given, BasePolicy):
        return given
    if isinstance(given, _TakesSummariser) and not isinstance(given, type):
        raise BadArguments(
            f"The {what} {name_of(given)} has a method `using`, for which only parts are asked: "
            "derive its class from ctxkit.policies.BasePolicy."
        )
    return FunctionPolicy(given)


def apply_policy(policy: Policy, history: History, room: ContextBudget) -> History:
    """Return what a policy makes of a history; a list of messages that it gives back is taken for
    what shall be shown.

    Raises:
        BadArguments: it gave back something else, or a history of another session or call.
        UnsoundHistory: a tool call lost its result, or a message that stays is gone.
    """
    new = policy(history, room)
    return history if new is history else coerce_to_history(new, history, policy)


def coerce_to_history(new: object, history: History, policy: Policy) -> History:
    """Return what a policy gave back for a history as a history of the same call; see `applied`."""
    if isinstance(new, History):
        if new.log is not history.log or new.call != history.call:
            raise BadArguments(
                f"Policy {name_of(policy)} returned a history of another session or call."
            )
        return new
    if isinstance(new, (list, tuple)) and all(isinstance(m, Message) for m in new):
        return history.become(new, name_of(policy), method=name_of(policy))
    what = "None" if new is None else type(new).__name__
    raise BadArguments(
        f"Policy {name_of(policy)} returned {what}; it must return a history, such as the one it"
        " was given."
    )


@dataclass(frozen=True)
class CompositePolicy(BasePolicy):
    """The base of what is joined from several policies."""

    parts: tuple[BasePolicy, ...]

    def __init__(self, parts: Sequence[Policy]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_policy, parts)))

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which any part can do anything."""
        able = (
            start if is_call_overridden(p, "first") else p.first(forecast, start, stop)
            for p in self.parts
        )
        return min(able, default=stop)

    def using(self, summariser: Any) -> Self:
        """Return it with a summariser for parts that have none."""
        return replace(self, parts=tuple(p.using(summariser) for p in self.parts))

    def focused(self, focus: str) -> Self:
        """Return it with what the user wants a summary to look at, for parts that write one."""
        return replace(self, parts=tuple(p.focused(focus) for p in self.parts))


class Chain(CompositePolicy):
    """Each policy works on what the one before left."""

    @classmethod
    def of(cls, *parts: Policy) -> Self:
        """Return one flat chain of parts and chains."""
        return cls(tuple(p for part in parts for p in flatten_chain(as_policy(part))))

    @property
    def name(self) -> str:
        """The names of its parts."""
        return " | ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return what the last part leaves."""
        for part in self.parts:
            history = apply_policy(part, history, room)
        return history


def flatten_chain(part: BasePolicy) -> tuple[BasePolicy, ...]:
    """Return the parts of a chain; any other part, or a chain with its own call, by itself."""
    if isinstance(part, Chain) and type(part).__call__ is Chain.__call__:
        return part.parts
    return (part,)


@dataclass(frozen=True, init=False)
class Fallback(CompositePolicy):
    """The first policy that helps; the next one where it did nothing, failed, or left too much."""

    fits: bool = False
    """Go on, each stage on the history as it was, until the prompt is within the room's limit."""

    def __init__(self, parts: Sequence[Policy], fits: bool = False) -> None:
        if not parts:
            raise BadArguments("A ladder needs at least one policy.")
        super().__init__(parts)
        object.__setattr__(self, "fits", fits)

    @property
    def name(self) -> str:
        """The names of its parts."""
        return " else ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return what the first part that helps leaves; with `fits` the last where none fits."""
        new, failed = history, None
        for part in self.parts:
            try:
                tried = apply_policy(part, history, room)
            except ModelError as error:
                failed = error
                continue
            if tried is not history:
                new = tried.instead_of("" if failed is None else str(failed))
                if not self.fits or new.tokens <= room.limit:
                    return new
        if new is history and failed is not None:
            raise failed
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


class Validated:
    """The base of dataclasses that refuse values of another type than they name.

    A single name, or a list, where several names are meant becomes a tuple: ``deny="bash"`` is
    ``deny=("bash",)``; whole numbers of any kind become plain ones.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @wraps(own)
            def checked(self: Any) -> None:
                _validate(self)
                own(self)

            cls.__post_init__ = checked  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _validate(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConfiguredPolicy(Validated, BasePolicy):
    """A policy made of settings; `repr` shows those that are not at their default."""

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in non_default_settings(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _validate(part: Any) -> None:
    need = f"{type(part).__name__} needs {{words}} for "
    for f in fields(part):
        value = getattr(part, f.name)
        made = coerce_setting(value, str(f.type), need + f.name)
        if made is not value:
            object.__setattr__(part, f.name, made)


def non_default_settings(part: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not at their default."""
    out = {}
    for f in fields(part):
        made = f.default if f.default_factory is MISSING else f.default_factory()
        default = None if made is MISSING else made
        if f.repr and getattr(part, f.name) != default:
            out[f.name] = getattr(part, f.name)
    return out


def at_least(part: Any, low: float, *names: str) -> None:
    """Refuse settings below a limit.

    Raises:
        BadArguments: one is; the sentence names it.
    """
    for name in names:
        value = getattr(part, name)
        if value is not None and not (is_number(value) and value >= low):  # NaN fails too
            raise BadArguments(
                f"{type(part).__name__} needs {name} of at least {low}, not {short_repr(value)}."
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class ScheduledPruning(ConfiguredPolicy):
    """A pruning made of settings, whose one method says what becomes of each message, and when.

    A member in five lines::

        @dataclass(frozen=True, kw_only=True, repr=False)
        class Failures(Scheduled):
            keep_last: int = 3

            def schedule(self, view, room):
                for p, call, old in view.window("tool", lambda n: n - self.keep_last):
                    view.change(p, "[failed]" if old else AS_IT_CAME, since=call)

    A class that overrides `__call__` below an inherited `schedule`, or a `schedule` below another
    one's, is asked call by call: then the call alone counts, for the bill too. So does one whose
    `steps` hold such a part.
    """

    counts: ClassVar[bool] = True
    """It may go by all messages, also by those that a part before puts at the end of calls, which
    no schedule says: behind a part that `appends` it is asked call by call. One that looks at
    replies and results alone says False.
    """

    @property
    def appends(self) -> bool:
        """True where it may put a message at the end of a call."""
        return False

    @property
    def filters_history(self) -> bool:
        """True where it filters what was said before the turn under way: its schedule is given a
        `PastView`, so the turn's own calls and results stay until the turn is over.
        """
        return False

    @property
    def steps(self) -> tuple[BasePolicy, ...]:
        """Parts of which its schedule gives each call one, as `stepped` does for one call."""
        return ()

    def schedule(self, view: ScheduleView, room: ContextBudget) -> None:
        """Say what becomes of the messages at the calls that are new to the view."""
        raise NotImplementedError

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return what this call is sent."""
        if not all(map(is_fully_scheduled, self.steps)):
            return self.stepped(history, room)
        first = self.begin(history)
        begun = history if first == history.call else history.at(first)  # what was done stays
        return Schedule(begun, (self,), room).left(history.call, name_of(self))

    def begin(self, history: History) -> int:
        """Return the first call on which it can depend what a call is sent: itself."""
        return history.call

    def stepped(self, history: History, room: ContextBudget) -> History:  # noqa: ARG002  as those who say
        """Return what this call is sent where a step has to be called."""
        raise BadArguments(
            f"A step of {type(self).__name__} has a call of its own: say in `stepped` what a call"
            " is sent."
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class HistoryFilter(ScheduledPruning):
    """A view: what is left of the messages that were said before the turn under way.

    The turn's own input, calls and results stay as they are until the turn is over. With the next
    turn they are history, and are filtered then: once a turn the prompt changes from the first
    message that a filter touches, and what stood behind it in a provider's cache is sent anew.
    A view bounds no single long turn; prunings and compactions do.
    """

    @property
    def filters_history(self) -> bool:
        """True."""
        return True


def is_fully_scheduled(part: Any) -> bool:
    """Return True where a part's `schedule` says all that its call does.

    No class redefined the call, or a schedule below another one (which of the two speaks last of a
    message depends on how many calls both are asked about); nor did that of a step.
    """
    if (
        not isinstance(part, ScheduledPruning)
        or type(part).__call__ is not ScheduledPruning.__call__
    ):
        return False
    said = sum("schedule" in vars(kind) for kind in type(part).__mro__)  # its own and the base's
    return said <= 2 and all(map(is_fully_scheduled, part.steps))


def split_pruning(
    pruning: BasePolicy | None,
) -> tuple[tuple[ScheduledPruning, ...], tuple[BasePolicy, ...]]:
    """Return the parts of a pruning that say a schedule, and those from the first on
    that does not, or that counts what one before it appends.
    """
    parts = () if pruning is None else flatten_chain(pruning)
    known, appended = list[ScheduledPruning](), False
    for part in parts:
        if not (isinstance(part, ScheduledPruning) and is_fully_scheduled(part)) or (
            part.counts and appended
        ):
            break
        known.append(part)
        appended = appended or part.appends
    return tuple(known), parts[len(known) :]
