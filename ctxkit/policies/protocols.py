"""Protocols of policies, prunings, triggers and guards, and names of methods without a model."""

# This module imports nothing of the package, so that light commands can use it.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.messages import Message
    from ctxkit.tokens.token_counters import ContextBudget


@runtime_checkable
class Policy(Protocol):
    """A compaction policy: a callable ``(history, budget) -> history``; a function is enough.

    A policy has no state between calls. What it needs of the past is in the history (`since`, the
    columns, `log`), so that a replay, which jumps from compaction to compaction, and a live session
    give the same result. Derive from `BasePolicy` for more: chains with ``|``, a lent summariser.

    Example:
        >>> import ctxkit as ck
        >>> def halve(history, budget):
        ...     return history.drop(history.safe(len(history) // 2), "the older half")
        >>> isinstance(halve, ck.policies.Policy)
        True
        >>> rules = ck.policies.Rules(halve, ck.policies.triggers.Above(8_000))
        >>> [edit.kind for edit in ck.replay(ck.read(ck.samples.path("chat")), rules).edits]
        ['dropped', 'dropped']
    """

    def __call__(self, history: History, budget: ContextBudget, /) -> History | Sequence[Message]:
        """Return the history from this call on; the same object where nothing changes.

        Args:
            history: the messages of the coming call, and the log behind them.
            budget: the limit and reserve in tokens.
        """


@runtime_checkable
class Pruning(Protocol):
    """A policy for the prompt of one call: the history itself stays as it is.

    Derive from `ScheduledPruning` (`validated_settings_and_scheduled_prunings`) where the effect on
    each message can be said ahead: a replay then computes all prompts at once instead of calling
    it at each call.

    Example:
        >>> import ctxkit as ck
        >>> def last_ten(history, budget):
        ...     return history.drop(history.safe(max(len(history) - 10, 0)), "older than ten")
        >>> chat = ck.read(ck.samples.path("chat"))
        >>> pruned = ck.replay(chat, ck.policies.Rules(pruning=last_ten))
        >>> len(chat.sent(-1)), len(pruned.sent(-1))
        (89, 12)
    """

    def __call__(self, history: History, budget: ContextBudget, /) -> History | Sequence[Message]:
        """Return the prompt of this call as a history.

        Args:
            history: the messages that the call would be sent without pruning.
            budget: the limit and reserve in tokens.
        """


@runtime_checkable
class Trigger(Protocol):
    """A callable ``(history, budget) -> bool``: is a compaction due? A function is enough.

    Derive from `triggers.BaseTrigger` to search many calls at once, and for ``|``, ``&``, ``~``.

    Example:
        >>> import ctxkit as ck
        >>> def long_history(history, budget):
        ...     return len(history) > 60
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", long_history)
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        1
    """

    def __call__(self, history: History, budget: ContextBudget, /) -> bool:
        """Return True where a compaction is due before this call.

        Args:
            history: the messages of the coming call.
            budget: the limit and reserve in tokens.
        """


class PromptForecast(Protocol):
    """The prompts of coming calls if nothing is compacted, as triggers search them.

    Each search returns the first call in start..stop that meets its condition, or `stop`. Calls
    count from 0, and `stop` is one past the last one. Sizes are in tokens. An object of this kind
    is handed to a trigger; nothing needs to be built by hand.

    Example:
        >>> from ctxkit.policies.triggers import BaseTrigger
        >>> class LongPrompt(BaseTrigger):
        ...     def first(self, forecast, start, stop):
        ...         return forecast.above(forecast.budget.limit // 2, start, stop)
        >>> import ctxkit as ck
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", LongPrompt(), window=16_000)
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        1
    """

    history: History
    """The history in force when the search begins."""
    budget: ContextBudget
    """The limit and reserve in tokens, and the counter of sizes."""

    @property
    def log(self) -> MessageLog:
        """The log; its columns of calls may be read up to the call in question."""

    def above(self, limit: float, start: int, stop: int, /, estimated: bool = False) -> int:
        """Return the first call whose prompt has more than `limit` tokens, or `stop`.

        Args:
            limit: tokens.
            start: first call that is searched.
            stop: one past the last call that is searched.
            estimated: compare the messages by `Rules.estimator`, not the prompt in counted tokens.
        """

    def count(self, n: int, roles: tuple[str, ...], start: int, stop: int, /) -> int:
        """Return the first call whose prompt has at least `n` messages of some roles, or `stop`.

        Args:
            n: minimum number of messages.
            roles: roles that count; empty: all.
            start: first call that is searched.
            stop: one past the last call that is searched.
        """

    def turns(self, n: int, start: int, stop: int, /) -> int:
        """Return the first call with `n` turns begun since the last compaction, or `stop`.

        Args:
            n: number of turns.
            start: first call that is searched.
            stop: one past the last call that is searched.
        """

    def spent(self, limit: float, start: int, stop: int, /, *, agent: str | None = None) -> int:
        """Return the first call by which prompts sum up to `limit` since the last compaction.

        Args:
            limit: the sum, in tokens; `stop` where no call reaches it.
            start: first call that is searched.
            stop: one past the last call that is searched.
            agent: the agent whose calls count; None: all agents.
        """

    def turn_spent(self, limit: float, start: int, stop: int, /) -> int:
        """Return the first call at which a turn's prompts exceed `limit` tokens, or `stop`.

        The prompts of the turn are added up. The turn is the current one, or the one just ended.

        Args:
            limit: the sum of a turn that is still allowed, in tokens.
            start: first call that is searched.
            stop: one past the last call that is searched.
        """

    def prompts(self, start: int, stop: int, /) -> NDArray[Any]:
        """Return the prompt tokens of each call start..stop.

        Args:
            start: first call.
            stop: one past the last call.
        """


@runtime_checkable
class Guard(Protocol):
    """Postpones a compaction that is due (`first`) or refuses its result (`refuses`).

    Derive from `guards.BaseGuard`, and define one of the two.

    Example:
        >>> import ctxkit as ck
        >>> class NotAtFirst(ck.policies.guards.BaseGuard):
        ...     def first(self, past, forecast, start, stop):
        ...         return min(max(start, 30), stop)
        >>> rules = ck.policies.Rules(
        ...     "window:keep_tokens=4000", ck.policies.triggers.Above(4_000), guards=NotAtFirst()
        ... )
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        13
    """

    def first(
        self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int, /
    ) -> int:
        """Return the first call in start..stop at which a due compaction may happen, or `stop`.

        Args:
            past: the log and the compactions so far.
            forecast: the prompts of the calls start..stop if nothing is compacted.
            start: the call at which a compaction is due, from 0.
            stop: one past the last call that is searched.
        """

    def refuses(self, past: PastCompactions, was: History, new: History, /) -> str | None:
        """Return why the result of a compaction is refused; None: it is accepted.

        Args:
            past: the log and the compactions so far.
            was: the history before the compaction.
            new: its result.
        """


class PastCompactions(Protocol):
    """The run so far, as guards read it: the log, and the compactions that took effect.

    Example:
        >>> import ctxkit as ck
        >>> class AtMostOne(ck.policies.guards.BaseGuard):
        ...     def first(self, past, forecast, start, stop):
        ...         return stop if past.compactions else start
        >>> rules = ck.policies.Rules(
        ...     "window:keep_tokens=2000", ck.policies.triggers.Above(4_000), guards=AtMostOne()
        ... )
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        1
    """

    log: MessageLog
    begin: int
    """The first call of the run."""

    @property
    def compactions(self) -> Sequence[PastCompaction]:
        """The compactions that took effect, in order."""


class PastCompaction(Protocol):
    """A compaction that took effect."""

    @property
    def call(self) -> int:
        """The call before which it happened."""

    @property
    def before(self) -> int:
        """Tokens of the prompt before it."""

    @property
    def after(self) -> int:
        """Tokens of the prompt after it."""

    @property
    def messages_before(self) -> int:
        """Messages in the prompt before it."""

    @property
    def messages_after(self) -> int:
        """Messages in the prompt after it."""


class HasName:
    """Base of policies, triggers and guards: the name in tables, plots and notes."""

    if TYPE_CHECKING:  # read-only: a subclass may define an attribute, a field or a property

        @property
        def name(self) -> str:
            """The name; empty: the name of the class."""
    else:
        name = ""


@dataclass(frozen=True, repr=False)
class FunctionWrapper:
    """A plain function used as a policy or trigger; equal for equal functions."""

    function: Any

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.function)

    def __repr__(self) -> str:
        return repr(self.function)


def is_only_call_overridden(part: object, method: str) -> bool:
    """Return True where a subclass redefines `__call__`, but not the method that predicts it.

    The inherited method describes a `__call__` that no longer exists, so it must not be used. A
    method inherited from a base without a `__call__` describes the first one that is defined.

    Args:
        part: a policy, trigger or guard.
        method: name of the method that predicts `__call__`, such as `first`.
    """
    # Compare the places in the method resolution order: a lower place is nearer to the class.
    classes = type(part).__mro__
    call_definitions = [n for n, cls in enumerate(classes) if "__call__" in vars(cls)]
    defines_method = (n for n, cls in enumerate(classes) if method in vars(cls))
    return len(call_definitions) > 1 and call_definitions[0] < next(defines_method, len(classes))


def name_of(part: object) -> str:
    """Return the `name` of an object, the name of a function, else the name of the class."""
    name = getattr(part, "name", None) or getattr(part, "__name__", None)
    return name if isinstance(name, str) else type(part).__name__


FUNCTION_METHOD = "function"
"""Method of an edit whose text a plain function wrote: it costs nothing that is known."""
INTENT_METHOD = "intents"
"""Method of a summary that lists a line per tool call: the tool, its target and its outcome."""
EVIDENCE_METHOD = "evidence"
"""Method of a summary that lists the team's state, files written, commands and open failures."""
MODEL_FREE_METHODS = frozenset(
    {
        INTENT_METHOD,
        EVIDENCE_METHOD,
        FUNCTION_METHOD,
        "intent",
        "lossless",
        "digest",
        "tombstones",
        "superseded",
    }
)
"""Methods whose texts no model writes: policies that work them out from the record, plain functions
and fuseraft's own words in its logs. Any other summary of a log is billed as a model's.
"""
