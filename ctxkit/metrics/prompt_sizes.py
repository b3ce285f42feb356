"""Sizes of the prompts that calls sent, recorded or estimated, and the prefixes that they share."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import TYPE_CHECKING, Any

from ctxkit.session.messages import Message
from ctxkit.session.session import apply_edit
from ctxkit.tokens.counters import estimate_message_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import Run
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.messages import Provenance
    from ctxkit.session.session import Session


_MAX_COUNT_FACTOR = 1.3
"""A factor between what was sent and an estimate that counting alone can explain."""
_MASKED_LINE_TOKENS = 12
"""Tokens of the line that a history processor puts in the place of a result."""


def get_prompt_sizes(session: Session) -> tuple[list[int | None], Provenance | None]:
    """Return the prompt size of each call and where the sizes come from; None throughout where the
    log cannot tell.

    Calls that failed before they were billed are missing. Sums over whole turns are no sizes of a
    prompt.
    """
    recorded = [
        None
        if c.message.usage is None or c.message.kind == "turn"
        else c.message.usage.prompt_tokens
        for c in session.calls
    ]
    if any(recorded):
        modelled = any(c.message.details.get("usage_source") == "derived" for c in session.calls)
        return recorded, "derived" if modelled else "recorded"
    if session.behind is not None:
        return session.behind.prompt_sizes(len(recorded)), "estimated"
    if session.has_sizes:
        return _scaled(
            estimate_prompt_sizes(session), session.details.get("input_tokens")
        ), "estimated"
    return [None] * len(recorded), None


def estimate_prompt_sizes(session: Session) -> list[int]:
    """Return the plain estimate of what each call was shown: edits applied, without what no log
    shows.

    Where a history processor is known to have masked older results (see `formats.swe_agent`), they
    are masked.
    """
    out: list[int] = []
    shown: list[Message] = []
    total, gone, kept = 0, 0, _unmasked_results(session)
    results: list[int] = []
    for entry in session.path:
        if isinstance(entry, Message):
            if entry.role == "assistant":
                out.append(total - gone)
            if entry.visible:
                size = estimate_message_tokens(entry)
                shown.append(entry)
                total += size
                if kept and entry.role == "tool":
                    results.append(size)
                    gone += (
                        max(results[-kept - 1] - _MASKED_LINE_TOKENS, 0)
                        if len(results) > kept
                        else 0
                    )
        else:
            shown = apply_edit(shown, entry)
            total = sum(map(estimate_message_tokens, shown))
    return out


def _scaled(sizes: list[int], sent: object) -> list[int | None]:
    """Return sizes that sum to what the run says it sent, if counting alone explains the gap."""
    whole = sum(sizes)
    if (
        not isinstance(sent, int)
        or not whole
        or not 1 / _MAX_COUNT_FACTOR < sent / whole < _MAX_COUNT_FACTOR
    ):
        return list(sizes)
    return [round(n * sent / whole) for n in sizes]


def _unmasked_results(session: Session) -> int:
    """Results that a history processor kept whole at each call; 0: all."""
    told = session.details.get("history_processor", {})
    return int(told.get("n", 0)) if session.format != "replay" else 0


class SentPrompts:
    """The prompts of the calls of a run or a replay, and what each shares with others before it."""

    def __init__(self, prompts: Sequence[int], shared: Sequence[int] = ()) -> None:
        self._prompts, self._shared = prompts, shared

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt; 0 where a record does not say them."""
        return self._prompts[call]

    def reaches(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt is at least so large."""
        return next((c for c in range(start, stop) if self.prompt(c) >= full), None)

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        return self._shared[call]


class RunPrompts(SentPrompts):
    """Those of a run, from where its sizes stop following from the log's: O(1) a compaction."""

    def __init__(self, done: Run) -> None:
        self.log: MessageLog = done.log
        self._sizes = done.log.tokens.C
        self._marks = list(done.billed.stretches())
        self._starts = [mark[0] for mark in self._marks]
        self._in_common = done.in_common

    def __len__(self) -> int:
        return len(self._sizes)

    def _mark(self, call: int) -> tuple[int, int, Any, Any]:
        return self._marks[bisect_right(self._starts, call) - 1]

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        start, _, off, _ = self._marks[bisect_right(self._starts, call) - 1]  # asked most of all
        return self._sizes[call] + off if type(off) is int else int(off[call - start])

    def reaches(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt is at least so large."""
        _, end, off, _ = self._mark(start)
        if type(off) is not int or end < stop:
            return super().reaches(full, start, stop)
        found = self.log.tokens.above(ceil(full - off) - 1, start, stop)
        return found if found < stop else None

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        start, _, off, kept = self._mark(call)
        known, at = self._in_common.get(call), call - start
        if type(off) is int:
            prompt = self._sizes[call] + off
            if known is None and kept is not None and not at:
                known = kept
        else:
            prompt = int(off[at])
            if known is None:
                known = prompt - int(kept[at])
        if known is None:
            known = self.prompt(call - 1) if call else 0
        return min(known, prompt)

    def stretches(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """Yield calls a..b with what each has more than the log's own (None: each its own), and
        whether the first shares less with the one before than all of that.
        """
        for start, stop, off, kept in self._marks:
            yield start, stop, off if type(off) is int else None, kept is not None
