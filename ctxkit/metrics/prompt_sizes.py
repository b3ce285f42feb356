"""Recorded or estimated sizes of the prompts that calls sent, and the prefixes that they share."""

# A run's prompts differ from the log's by piecewise constants: between two compactions the engine
# keeps one offset (or, after a pruning, an array of sizes) per segment. `RunPromptSizes` finds a
# call's segment by bisection, so a run needs O(segments) memory; the search for a size in a segment
# uses the running maximum of the log.

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import TYPE_CHECKING, Any

from ctxkit.engine.replay import find_prompt_source
from ctxkit.tokens.message_sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import Run
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.messages import Provenance
    from ctxkit.session.session import Session


def get_prompt_sizes(session: Session) -> tuple[list[int | None], Provenance | None]:
    """Return the prompt size of each call, and the source of the sizes.

    Sizes are None for calls that failed before they were billed and for sums over whole turns; all
    sizes and the source are None where the log has neither usage nor content. Without usage, sizes
    are counted like the prompts of a replay.
    """
    recorded = [c.message.prompt_tokens for c in session.calls]
    if any(recorded):
        modelled = any(c.message.details.get("usage_source") == "derived" for c in session.calls)
        return recorded, "derived" if modelled else "recorded"
    source = find_prompt_source(session)
    if source is not None:
        return source.prompt_sizes(len(recorded)), "estimated"
    if session.has_sizes:
        return list(measure_sizes(session).modelled), "estimated"
    return [None] * len(recorded), None


def has_prompt_sizes(session: Session) -> bool:
    """Return True if the size of at least one prompt is recorded or can be counted."""
    return get_prompt_sizes(session)[1] is not None


class SentPromptSizes:
    """The prompt sizes of a run or a replay, and the prefix that each shares with earlier ones.

    Args:
        prompts: tokens of each call's prompt.
        shared: tokens of the prefix that each shares with the prompts before it.
    """

    def __init__(self, prompts: Sequence[int], shared: Sequence[int] = ()) -> None:
        self._prompts, self._shared = prompts, shared

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt(self, call: int) -> int:
        """Return the tokens of a call's prompt; 0 if a record does not state them."""
        return self._prompts[call]

    def find_first_reaching(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt has at least `full` tokens."""
        return next((c for c in range(start, stop) if self.prompt(c) >= full), None)

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        return self._shared[call]


class RunPromptSizes(SentPromptSizes):
    """The prompt sizes of a run, as offsets to those of its log; O(1) memory per compaction."""

    def __init__(self, run: Run) -> None:
        self.log: MessageLog = run.log
        self._sizes = run.log.tokens.C
        self._marks = list(run.billed.spans())
        self._starts = [mark[0] for mark in self._marks]
        self._in_common = run.shared_when_cold

    def __len__(self) -> int:
        return len(self._sizes)

    def _mark(self, call: int) -> tuple[int, int, Any, Any]:
        return self._marks[bisect_right(self._starts, call) - 1]

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        # The most frequently called method, so `_mark` is inlined.
        start, _, offset, _ = self._marks[bisect_right(self._starts, call) - 1]
        return self._sizes[call] + offset if type(offset) is int else int(offset[call - start])

    def find_first_reaching(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt has at least `full` tokens."""
        _, end, offset, _ = self._mark(start)
        if type(offset) is not int or end < stop:
            return super().find_first_reaching(full, start, stop)
        call = self.log.tokens.above(ceil(full - offset) - 1, start, stop)
        return call if call < stop else None

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        start, _, offset, seam = self._mark(call)
        shared_tokens, at = self._in_common.get(call), call - start
        if type(offset) is int:
            prompt = self._sizes[call] + offset
            if shared_tokens is None and seam is not None and not at:
                shared_tokens = seam
        else:
            prompt = int(offset[at])
            if shared_tokens is None:
                shared_tokens = prompt - int(seam[at])
        if shared_tokens is None:
            fixed = self.log.fixed_at
            shrunk = max(fixed[call - 1] - fixed[call], 0) if call else 0
            shared_tokens = max(self.prompt(call - 1) - shrunk, 0) if call else 0
        return min(shared_tokens, prompt)

    def spans(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """Yield segments of calls whose prompts differ from the log's by one offset.

        Each segment is first call, stop, offset (None: not constant), and whether the first call
        shares only a part of the previous prompt.
        """
        for start, stop, offset, seam in self._marks:
            yield start, stop, offset if type(offset) is int else None, seam is not None
