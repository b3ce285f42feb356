"""What a pruning would send at all coming calls at once, for prunings whose changes stay once they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.log import Clock


def last_results(
    history: History,
    span: tuple[int, int],
    clock: Clock,
    keep: int,
    text: str | NDArray[Any],
    *,
    eligible: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt and fresh tokens of the calls of a span where all tool results but the last few are one text.

    It says the same as ``history.shorten(older results, text)`` at each of these calls, from running sums: a result
    is changed when `keep` newer ones are there, and stays so.

    Args:
        history: the history in force; it is looked at as of the last call of the span.
        span: first call, and one past the last.
        clock: tells at which calls no cache is left.
        keep: tool results that stay whole.
        text: what the older ones say; or, one a message, the tokens of what each would say.
        eligible: booleans, one a message of ``history.at(last call)``; None: all tool results may be changed.
    """
    start, stop = span
    log, whole = history.log, history.at(stop - 1)
    at = np.flatnonzero(whole.role("tool"))
    sizes = whole.sizes
    small = whole.placeholder_size(text) if isinstance(text, str) else text[at]
    may = sizes[at] > small
    may &= ~whole.stays[at]
    if eligible is not None:
        may &= eligible[at]
    saved = np.concatenate(([0], np.cumsum(np.where(may, sizes[at] - small, 0))))
    before = np.concatenate(([0], np.cumsum(sizes)))
    upto = np.array(log.upto[start:stop], np.int64)
    shown = history.head.size + upto - history.lo
    gone = np.maximum(np.searchsorted(at, shown) - keep, 0)
    whole_prompts = log.tokens.calls(start, stop) + (history.head.tokens - log.tokens.P[history.lo])
    prompts = whole_prompts - saved[gone]
    fresh = prompts.copy()
    if len(prompts) > 1:
        changing = np.concatenate((np.flatnonzero(may), [len(at)]))
        newly = changing[
            np.searchsorted(changing, gone[:-1])
        ]  # the first result that was not changed at the call before
        first = np.concatenate((before[at], [0]))[newly]
        fixed = np.array(log.fixed_at[start + 1 : stop], np.int64)
        prefix = np.minimum(fixed + first - saved[gone[:-1]], prompts[:-1])
        cached = np.where(saved[gone[1:]] > saved[gone[:-1]], prefix, prompts[:-1])
        fresh[1:] = np.maximum(prompts[1:] - cached, 0)
        cold = np.array(clock.cold[start:stop])
        fresh[cold] = prompts[cold]
    return prompts, fresh
