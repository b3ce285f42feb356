"""A step of the tuner on a long session, with replay, new figure and tables, against a replay that
writes its summaries.
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


def measure_seconds(work: Callable[[int], Any], repeats: int) -> float:
    """Return the median CPU seconds of a piece of work."""
    seconds = []
    for i in range(repeats):
        start = time.process_time()
        work(i)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def run() -> list[dict]:
    """Return a row for Pi's rules on the log of Pi's own compaction tests, or on the sample."""
    log = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
    session = ck.read(log if log.is_file() else ck.samples.path())
    tuner = ck.tune(session, "pi")
    slider = tuner.sliders["reserve_tokens"]
    start_value = slider.value

    def move_slider(i: int) -> None:
        slider.value = start_value + (i + 1) * 500

    def replay(i: int) -> None:
        ck.replay(session, ck.presets.pi(reserve_tokens=start_value + (i + 1) * 500))

    ours, peer = measure_seconds(move_slider, STEPS), measure_seconds(replay, 3)
    tuner.exact.value = True
    replayed = ck.replay(session, tuner.rules)
    recorded_prompts = [c.message.usage and c.message.usage.prompt_tokens for c in replayed.calls]
    pairs = zip(tuner.trial.prompts, recorded_prompts, strict=True)
    assert all(
        modelled == recorded for modelled, recorded in pairs if recorded is not None
    )  # one failed unbilled
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
