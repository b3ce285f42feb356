"""Lines of snapshot logs for tests: the two of the format's description, and as many more as are wanted."""

from __future__ import annotations

import json

import numpy as np

ROW = (
    r'{"ts":"2026-09-19T00:26:34.0091413\u002B00:00","session":"77d6be00","agent":"Developer","turn":3,'
    r'"turn_input_tokens":41250,"turn_output_tokens":1830,"cumulative_input_tokens":96210,"warn_at":60000,"cutover_at":100000}'
)
MARKER = (
    r'{"ts":"2026-09-19T00:26:35.1170020\u002B00:00","session":"77d6be00","agent":"system","turn":4,'
    r'"turn_input_tokens":0,"turn_output_tokens":0,"cumulative_input_tokens":0,"compaction_occurred":true}'
)


def records(n, seed=1):
    rng = np.random.default_rng(seed)
    agents = ["Planner", "Developer", "Reviewer"]
    return [
        {
            "ts": f"2026-11-{1 + i % 28:02d}T{i % 24:02d}:00:00.{int(rng.integers(10**7)):07d}+00:00",
            "session": f"{i // 100:08x}",
            "agent": agents[i % 3],
            "turn": i,
            "turn_input_tokens": int(rng.integers(1, 99999)),
            "turn_output_tokens": int(rng.integers(1, 9999)),
            "cumulative_input_tokens": i * 7,
            "warn_at": 60000,
            "cutover_at": 100000,
        }
        for i in range(n)
    ]


def text(rows):
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows)
