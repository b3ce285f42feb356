"""What the agent did after a compaction: what it asked for again, and when it first wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.subjects import path_of
from ctxkit.tools.tool_names import looks, reads, writes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.messages import ToolCall
    from ctxkit.metrics.item_arrays import RowTimes
    from ctxkit.metrics.tellings import Shown

    Ints = NDArray[np.int64]

REREADS = 24
"""Tool calls after a cut that are looked at for repeats (the p75 of natural gaps between a call and
its repeat).
"""


class Rereads:
    """The tool calls of a session, numbered by what they ask for."""

    def __init__(self, rows: RowTimes) -> None:
        keys: dict[Any, int] = {}
        session = rows.session
        told = [(at, call) for at, m in enumerate(session.messages) for call in m.tool_calls]
        self._keys = np.array(
            [keys.setdefault(_key(call), len(keys)) for _, call in told], np.int64
        )
        replies = [at for at, m in enumerate(session.messages) if m.role == "assistant"]
        self._first = np.searchsorted([at for at, _ in told], replies)
        """For each call the first tool call from its reply on."""
        at = np.unique(self._keys, return_index=True)[1]
        new = sorted(i for i in at.tolist() if not looks(told[i][1].name))
        went_on = [*(np.searchsorted(self._first, new, "right") - 1).tolist(), None]
        self._went_on = [went_on[i] for i in np.searchsorted(new, self._first).tolist()]
        """For each call the first from it on that does what was not done before, and no look."""
        asked: dict[str, int] = {}
        """By the id of a call what it asks for; ids may be used again, then the last one counts."""
        pairs, numbers, row = list[tuple[int, int]](), iter(self._keys.tolist()), 0
        for message in session.messages:
            own = {call.id: next(numbers) for call in message.tool_calls}
            asked |= own
            answers = [asked[message.call_id]] if message.call_id in asked else []
            pairs += [(row, key) for key in (*own.values(), *answers) if message.visible]
            row += message.visible
        self._row, self._asked = np.array(pairs, np.int64).reshape(-1, 2).T
        """Each row that asks or answers, and what is asked."""
        writing = [i for i, (_, call) in enumerate(told) if writes(call.name)]
        self._writes = np.array(writing, np.int64)

    def resumed(self, call: int) -> int | None:
        """Return how many calls after a cut the agent went on; None where it never did.

        That is when it did what it had not done before, and not only looked at something.
        """
        at = self._went_on[call]
        return None if at is None else at - call

    def after(self, shown: Shown, call: int) -> tuple[float | None, int | None]:
        """Return what followed a compaction before a call.

        First the share of repeats among the next tool calls, of calls whose request or result went
        with it (None where no tool call followed); then how many tool calls came before the first
        that writes (None where none did).
        """
        start, time = int(self._first[call]), 2 * call + 1
        near = self._keys[start : start + REREADS].tolist()
        gone = shown.until[self._row] == time
        back = shown.again[shown.again[:, 2] == time, 0]
        if len(back):
            gone |= np.isin(self._row, back)
        asked = set(self._asked[gone].tolist())
        again = sum(key in asked for key in near) / len(near) if near else None
        write = int(np.searchsorted(self._writes, start))
        return again, int(self._writes[write]) - start if write < len(self._writes) else None


def _key(call: ToolCall) -> tuple[str, str]:
    """Two calls are the same where tool and arguments are; a read is the same where the path is."""
    path = path_of(call) if reads(call.name) else None
    if path is not None:
        return call.name.lower(), path
    return call.name.lower(), call.raw or json.dumps(call.arguments, sort_keys=True, default=str)
