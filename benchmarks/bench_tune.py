"""A step of the tuner on a long session: replay, new figure, tables; against the replay that writes
its summaries.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctxkit as ck

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 15


def seconds(work: Callable[[int], Any], times: int) -> float:
    """Return the median CPU seconds of a piece of work."""
    out = []
    for i in range(times):
        start = time.process_time()
        work(i)
        out.append(time.process_time() - start)
    return statistics.median(out)


def run() -> list[dict]:
    """Return a row for Pi's rules on the session that Pi tests its own compaction with, else on the
    sample.
    """
    real = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
    session = ck.read(real if real.is_file() else ck.samples.path())
    tuner = ck.tune(session, "pi")
    slider = tuner.sliders["reserve_tokens"]
    start = slider.value

    def move(i: int) -> None:
        slider.value = start + (i + 1) * 500

    def replay(i: int) -> None:
        ck.replay(session, ck.presets.pi(reserve_tokens=start + (i + 1) * 500))

    ours, peer = seconds(move, STEPS), seconds(replay, 3)
    tuner.exact.value = True
    written = ck.replay(session, tuner.rules)
    sent = [c.message.usage and c.message.usage.prompt_tokens for c in written.calls]
    told = zip(tuner.trial.prompts, sent, strict=True)
    assert all(n == known for n, known in told if known is not None)  # one failed unbilled
    name = (
        f"a slider's step, {len(session.messages)} messages, against a replay from the file's"
        " session"
    )
    return [
        {
            "name": name,
            "ours": ours,
            "peer": peer,
            "ratio": peer / ours,
            "goal": "ours <= 0.1",
            "unit": "s",
        }
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
