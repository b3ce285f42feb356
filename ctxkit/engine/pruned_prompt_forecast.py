"""Prompts of coming calls under a pruning, and the prefix that each shares with earlier prompts."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prompt_sizes_and_prefixes import (
    PastPrompts,
    SharedPrefixFinder,
    hash_contents,
    measure_common_prefix,
)
from ctxkit.engine.run_segments_and_prompts import PrunedPromptsByCall
from ctxkit.policies.compaction_and_pruning_rules import unwrap_function
from ctxkit.policies.history.history import History
from ctxkit.policies.policy_base_and_chains import flatten_chain
from ctxkit.policies.schedules.pruned_message_states import SUM_TOKENS
from ctxkit.policies.unpruned_prompt_forecast import UnprunedForecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.message_log import ColdCacheCalls, MessageLog
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.schedules.messages_without_any_pruning import UnprunedMessages
    from ctxkit.policies.schedules.pruned_message_states import Layer
    from ctxkit.policies.unpruned_prompt_forecast import BilledSizes
    from ctxkit.tokens.token_counters import ContextBudget


# Billing of pruned prompts.
#
# A pruning changes what single calls are sent and leaves the history alone. A part that has a
# schedule says for each message from which call on it has which state; a part without one must be
# run at each call (`_CallByCallPromptSizes`, O(messages) a call). With schedules only
# (`PruningSchedulePromptSizes`), one `LayerContents` a layer holds the content and size of each
# position and is brought from call to call by the events of the schedule. The first position that
# differs from the prompt before gives the shared prefix; what comes after it is new. Cost:
# O(events + new positions + positions behind the change) over all calls. `SharedPrefixFinder` finds
# longer prefixes of prompts further back.
#
# A content is a number that is equal for equal text at the same row; 0 means hidden.
# Invariant: a schedule is computed for rising calls only, each call once.

_FIRST_CALLS = 16
"""Calls that are computed ahead at first; later half as many as are computed already."""
_MAX_FORECASTS = 16
"""Prunings whose forecasts a log caches."""
_PLAIN_TYPES = (str, int, float, bool, type(None))
"""Types of settings that are fully described by equality, as are tuples of them."""


class PrunedPromptForecast(UnprunedForecast):
    """Prompt sizes and shared prefixes of the calls of a pruned history, by the parts' schedules.

    Parts without a schedule, and all parts behind such a one, are run call by call.

    Args:
        history: the history in force before any pruning.
        budget: the limit, the reserve and the counter.
        pruning: a part, or a chain of parts.
        clock: says at which calls no cache is left.
        start: the first call.
        sent: the prompt sizes billed for the calls before, from the last edit in force on.
        past: the prompts before the first one; None: there are none, or they are unknown.
    """

    __slots__ = ("_bill", "_prompts", "_shared", "_sound", "pruned", "runs_each_call", "start")

    def __init__(
        self,
        history: History,
        budget: ContextBudget,
        pruning: BasePolicy,
        clock: ColdCacheCalls,
        start: int,
        *,
        sent: BilledSizes | None = None,
        past: PastPrompts | None = None,
    ) -> None:
        super().__init__(history, budget, sent)
        self.pruned = PrunedPromptsByCall(history.at(start), pruning, budget)
        self.runs_each_call = bool(self.pruned.rest)
        """True where a part is run at each call by itself."""
        bill = _CallByCallPromptSizes if self.runs_each_call else PruningSchedulePromptSizes
        self._bill: _CallByCallPromptSizes | PruningSchedulePromptSizes = bill(
            self.pruned, start, clock, past
        )
        self.start, self._sound = start, True
        self._prompts: list[int] = []
        self._shared: list[int] = []

    @property
    def end(self) -> int:
        """One past the last computed call."""
        return self.start + len(self._prompts)

    def _extend_to(self, call: int, stop: int) -> None:
        """Compute the calls before `call`; with schedules some more, but none from `stop` on."""
        while self.end < call:
            ahead = min(self.end + max(len(self._prompts) // 2, _FIRST_CALLS), stop)
            self._sound = False
            prompts, shared = self._bill.extend(call, max(ahead, call))
            self._sound = True
            self._prompts += prompts
            self._shared += shared

    # -- searches of triggers ----------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are not pruned."""
        if estimated:
            return super().above(limit, start, stop, estimated=True)
        for call in range(start, stop):
            if call >= self.end:
                self._extend_to(call + 1, stop)
            if self._prompts[call - self.start] > limit:
                return call
        return stop

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent's prompts since the last edit in force sum up
        to `limit` tokens or more; `agent` None: any agent's.
        """
        since, log, tokens = self.history.since, self.log, self.log.tokens
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self.start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self.start, stop):
            largest = max(sums.values(), default=0) if agent is None else sums.get(agent, 0)
            if call >= start and largest >= limit:
                return call
            owed = tokens.Q[call + 1] - tokens.Q[call] - tokens.C[call]
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call) + owed
        return stop

    # -- billing -----------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._extend_to(call + 1, call + 1)
        return self._prompts[call - self.start]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop; before its first call, as billed."""
        self._extend_to(stop, stop)
        before = min(stop, self.start)
        past = list(self.sent(start, before)) if self.sent and start < before else []
        coming = self._prompts[max(start - self.start, 0) : max(stop - self.start, 0)]
        return np.array([*past, *coming], np.int64)

    def shared(self, start: int, stop: int) -> NDArray[Any]:
        """Return the tokens of the prefix that each call shares with prompts before it.

        Args:
            start: first call, not before the first of the forecast.
            stop: one past the last call.
        """
        self._extend_to(stop, stop)
        return np.array(self._shared[start - self.start : stop - self.start], np.int64)

    # -- what was sent -----------------------------------------------------------------------------

    def past(self, call: int) -> PastPrompts:
        """Return the prompts before a call, for the forecast that follows an edit there."""
        return PastPrompts(self._bill.prefixes.before(call), self._bill.contents_at(call - 1))

    def is_forecast_of(self, history: History) -> bool:
        """Return whether it forecasts the coming calls of a history, nothing edited since."""
        mine = self.history
        is_same = mine.log is history.log and mine.head is history.head and mine.lo == history.lo
        return is_same and self.sound

    @property
    def sound(self) -> bool:
        """False where an error or an interrupt left it incomplete: it must be built again."""
        return self._sound and self.pruned.schedule.sound


def make_whole_log_forecast(
    log: MessageLog, budget: ContextBudget, pruning: BasePolicy, clock: ColdCacheCalls
) -> PrunedPromptForecast:
    """Return the forecast of all calls of a log to which no edit was made.

    Args:
        log: the messages and calls; it caches the last `_MAX_FORECASTS` forecasts.
        budget: the limit and reserve in tokens.
        pruning: the pruning of each prompt.
        clock: the calls that find a cold cache.
    """
    forecasts: dict[Any, PrunedPromptForecast] = log.prompt_size_memo.setdefault("pruned", {})
    parts = tuple(_part_identity(part) for part in flatten_chain(pruning))
    key = parts, budget.limit, budget.reserve, clock.life, len(log), log.calls
    forecast = forecasts.get(key)
    if forecast is None or not forecast.sound:
        while len(forecasts) >= _MAX_FORECASTS:
            del forecasts[next(iter(forecasts))]
        forecast = PrunedPromptForecast(History.start(log), budget, pruning, clock, 0)
        forecasts[key] = forecast
    return forecast


def _part_identity(part: BasePolicy) -> Any:
    """Return a key that is equal for parts that do the same.

    For the kit's own these are type and settings, where the settings are plain values and all that
    an instance holds. Any other part may hold more than its equality tells (a field that is not
    compared, a method of its own), so it equals itself alone; the forecast keeps it alive.
    """
    kind: Any = type(part)
    settings = vars(part)
    is_own = kind.__module__.startswith("ctxkit.") and is_dataclass(kind)
    has_fields_only = is_own and settings.keys() == {f.name for f in fields(kind)}
    if has_fields_only and _are_plain(*settings.values()):
        return kind, tuple(settings.items())
    return id(unwrap_function(part))


def _are_plain(*values: object) -> bool:
    return all(type(v) in _PLAIN_TYPES or (type(v) is tuple and _are_plain(*v)) for v in values)


class _CallByCallPromptSizes:
    """The bill where a part must be run at each call, behind those with a schedule."""

    def __init__(
        self,
        pruned: PrunedPromptsByCall,
        start: int,
        clock: ColdCacheCalls,
        past: PastPrompts | None,
    ) -> None:
        self._pruned, self._call = pruned, start
        self.prefixes = past.prefixes if past else SharedPrefixFinder(clock)
        self._last = past.last if past else None

    def extend(self, stop: int, ahead: int) -> tuple[list[int], list[int]]:
        self._pruned.schedule.extend(ahead)
        prompts, shared = list[int](), list[int]()
        for call in range(self._call, stop):
            view = self._pruned.prompt_at(call)
            last, self._last = self._last, hash_contents(view)
            prompts.append(view.tokens)
            if last is None:
                shared.append(0)
            else:
                messages = self.prefixes.count_shared(call, last, self._last)
                shared.append(view.log.fixed_before(call) + view.before(messages))
        self._call = max(stop, self._call)
        return prompts, shared

    def contents_at(self, call: int) -> NDArray[Any]:
        return hash_contents(self._pruned.prompt_at(call))


class LayerContents:
    """Contents and sizes of all positions of one layer at a call; content 0: hidden."""

    def __init__(self, layer: Layer, rows: UnprunedMessages) -> None:
        self._layer, self._rows = layer, rows
        self._contents: NDArray[Any] = np.zeros(64, np.int64)
        self._sizes: list[int] = []
        self._filled = 0
        """Positions for which both hold a value."""
        self.n = 0
        """Positions that exist at the call."""
        self.hides = False
        """True where a position was hidden at some call."""
        self._next_event = 0

    def step(self, call: int) -> list[tuple[int, int]]:
        """Continue to a call; return the positions that changed, with the contents they had."""
        n_before, events, i = self.n, self._layer.events, self._next_event
        self.n = self._rows.count_arrived(call)
        if self.n > self._filled:
            self._fill(self._filled, self._rows.count_arrived(self._layer.stop - 1))
        previous: list[tuple[int, int]] = []
        while i < len(events) and events[i].call <= call:
            _, p, old, new = events[i]
            i += 1
            if p < n_before:
                previous.append((p, old.content))
            self._contents[p], self._sizes[p] = new.content, new.tokens
            self.hides = self.hides or new.content == 0
        self._next_event = i
        return previous

    def _fill(self, start: int, n: int) -> None:
        """Add the positions start..n with their unpruned contents and sizes."""
        rows = self._rows
        if n > len(self._contents):
            more = np.zeros(max(n, 2 * len(self._contents)) - len(self._contents), np.int64)
            self._contents = np.concatenate((self._contents, more))
        self._contents[start:n] = rows.contents(start, n)
        self._sizes += rows.sizes(start, n)
        self._filled = n

    @property
    def contents(self) -> NDArray[Any]:
        """Contents of all positions."""
        return self._contents[: self.n]

    @property
    def visible(self) -> NDArray[Any]:
        """Contents of the positions that are not hidden, in order."""
        contents: NDArray[Any] = self.contents[self.contents != 0]
        return contents

    def count_visible(self, p: int) -> int:
        """Return how many positions before `p` are not hidden."""
        return int(np.count_nonzero(self._contents[:p]))

    def tokens_from(self, p: int) -> int:
        """Return the tokens of all positions from `p` on."""
        return sum(self._sizes[p : self.n])

    def past_contents(self, p: int, n: int, previous: Sequence[tuple[int, int]]) -> NDArray[Any]:
        """Return the visible contents of the positions p..n before the changes that `step` gave.

        Args:
            p: first position.
            n: one past the last position.
            previous: (position, content) before the changes; 0: the message was hidden.
        """
        contents: NDArray[Any] = self._contents[p:n].copy()
        for q, content in previous:
            contents[q - p] = content
        return contents[contents != 0] if self.hides else contents


class PruningSchedulePromptSizes:
    """The bill of a schedule, with one track for each layer that a call may be sent."""

    def __init__(
        self,
        pruned: PrunedPromptsByCall,
        start: int,
        clock: ColdCacheCalls,
        past: PastPrompts | None,
    ) -> None:
        self._schedule, self._past = pruned.schedule, past
        self.prefixes = past.prefixes if past else SharedPrefixFinder(clock)
        self._tracks: list[LayerContents] = []
        self._last: LayerContents
        """The track of the call that was billed last."""
        self._start = self._call = start
        self._adds = False
        """True where the schedule adds a message at the end of some call alone."""

    def extend(self, _stop: int, ahead: int) -> tuple[list[int], list[int]]:
        """Return the tokens of each new prompt before `ahead`, and those of its shared prefix.

        That is the longest prefix shared with an earlier prompt still in the cache, and never less
        than that shared with the prompt before. What the fixed part grows by is not shared.

        Args:
            _stop: one past the last call that is needed, for `_CallByCallPromptSizes`; not used
                here.
            ahead: one past the last call to compute.
        """
        schedule = self._schedule.extend(ahead)
        top, rows, log = schedule.top, schedule.rows, schedule.rows.log
        self._adds = top.has_appended
        if not self._tracks:
            self._tracks = [LayerContents(layer, rows) for layer in top.branches()]
        prompts, shared = list[int](), list[int]()
        fixed_before = log.fixed_at[max(self._call - 1, 0)]
        for call in range(self._call, top.stop):
            fixed = log.fixed_at[call]
            size = top.total(call, SUM_TOKENS) + fixed
            prompts.append(size)
            new = self._new_tokens(call) if call > self._start else self._first_tokens(call, size)
            shared.append(max(size - new - max(fixed - fixed_before, 0), 0))
            fixed_before = fixed
        self._call = top.stop
        return prompts, shared

    def contents_at(self, call: int) -> NDArray[Any]:
        """Return the contents of what a call was sent, in order."""
        top, n = self._schedule.top, self._schedule.rows.count_arrived(call)
        contents = self._schedule.rows.contents(0, n)
        for p in top.touched():
            if p < n:
                contents[p] = top.state(p, call).content
        return self._with_added(call, contents[contents != 0])

    def _first_tokens(self, call: int, size: int) -> int:
        """Return the tokens of the first prompt behind what it shares with the past prompts."""
        self._last = track = self._tracks[self._schedule.top.stage_at(call)]
        track.step(call)
        if self._past is None:
            return size
        contents = self._with_added(call, track.visible)
        shared = self.prefixes.count_shared(call, self._past.last, contents)
        return self._tokens_behind(call, track, shared)

    def _new_tokens(self, call: int) -> int:
        """Return the tokens of a prompt behind what it shares with the prompts before."""
        top, last = self._schedule.top, self._last
        self._last = track = self._tracks[top.stage_at(call)]
        n, previous = last.n, track.step(call)
        if last is track:
            place = previous[0][0] if previous else n
        else:  # another layer: what it left before is unchanged by the step
            place, previous = measure_common_prefix(last.contents, track.contents), []
        past = last.past_contents(place, n, previous)
        if self._adds:
            past = self._with_added(call - 1, past)
        return (
            self._diverged_tokens(call, place, past)
            if len(past)
            else self._tokens_behind(call, track, 0, place)
        )

    def _diverged_tokens(self, call: int, place: int, past: NDArray[Any]) -> int:
        """Return the tokens behind the shared prefix of a prompt that may diverge from the last.

        Args:
            call: its call.
            place: the first position at which it differs from the last prompt.
            past: contents of the last prompt from there on.
        """
        track = self._last
        contents = track.contents[place:]
        if track.hides:
            contents = contents[contents != 0]
        if self._adds:
            contents = self._with_added(call, contents)
        same = measure_common_prefix(past, contents)
        if same < len(past):
            shared = same + (track.count_visible(place) if track.hides else place)
            next_content = int(contents[same]) if same < len(contents) else 0
            if self.prefixes.record_divergence(call, shared, past[same:], next_content):
                now = self._with_added(call, track.visible)
                longest = self.prefixes.longest_shared(call, shared, now)
                return self._tokens_behind(call, track, longest)
        return self._tokens_behind(call, track, same, place)

    def _tokens_behind(self, call: int, track: LayerContents, messages: int, place: int = 0) -> int:
        """Return the tokens of a prompt behind so many visible messages from a position on."""
        n_visible = track.n - place
        if track.hides:
            visible = np.flatnonzero(track.contents[place:])
            n_visible = len(visible)
            skip = int(visible[messages]) - messages if messages < n_visible else track.n
            place += skip
        added = (
            self._schedule.top.get_appended(call) if self._adds and messages <= n_visible else None
        )
        return track.tokens_from(place + messages) + (0 if added is None else added.tokens)

    def _with_added(self, call: int, contents: NDArray[Any]) -> NDArray[Any]:
        """Return contents with the message that is at the end of a call alone."""
        added = self._schedule.top.get_appended(call)
        return contents if added is None else np.append(contents, added.content)
