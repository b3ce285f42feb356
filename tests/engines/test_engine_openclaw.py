"""OpenClaw's own planner on real sessions: halves, chunks, what is set apart, and the reserve."""

from __future__ import annotations

import json

import pytest
from engines.running import Tally, as_pi, ask, sessions, version

from ctxkit import presets
from ctxkit.texts import plans
from ctxkit.tokens import named

pytestmark = pytest.mark.engines
WINDOWS = (32_000, 64_000, 200_000)


def test_plans_of_a_summary(engines, real, tmp_path):
    tally = Tally(
        "openclaw", version("openclaw"), "halves, chunks, share, what is set apart, reserve"
    )
    count = named("pi/1").message
    for i, (path, session) in enumerate(sessions(real, 3, 600, size=1_600_000)):
        said = [
            m for m in session.messages if m.role in ("user", "assistant", "tool") and m.visible
        ]
        file = tmp_path / f"{i}.json"
        file.write_text(
            json.dumps([{**as_pi(m), "n": n} for n, m in enumerate(said)]), encoding="utf-8"
        )
        cuts = [n for n, m in enumerate(said) if m.role == "assistant"][1:]
        looked = [(n, w) for n in cuts[:: max(1, len(cuts) // 6)] for w in WINDOWS]
        ours, jobs = [], []
        for n, window in looked:
            messages, sizes = said[:n], [*map(count, said[:n])]
            chunk = plans.chunk_tokens(n, sum(sizes), window)
            others = (n * 7919) % window
            jobs.append(
                {"file": str(file), "upto": n, "window": window, "chunk": chunk, "others": others}
            )
            ours.append(planned(messages, sizes, window, chunk, others))
        for real_, mine, (n, window) in zip(
            ask("openclaw.mjs", str(engines / "openclaw/dist"), jobs=jobs),
            ours,
            looked,
            strict=True,
        ):
            for what, value in mine.items():
                same = (
                    real_[what] == pytest.approx(value) if what == "ratio" else real_[what] == value
                )
                tally.add(
                    same, "", (path.name, n, window, what, str(real_[what])[:80], str(value)[:80])
                )
    tally.done(300)


def planned(messages, sizes, window, chunk, others):
    """What the preset's rules plan."""
    rules = presets.openclaw(context_window=window, keep_recent_tokens=1000)
    kept, _, _ = plans.within_share(messages, sizes, int(window * 0.5))
    return {
        "halves": [[*rows] for rows in plans.by_share(messages, sizes)],
        "chunks": [[*rows] for rows in plans.by_size(messages, sizes, chunk)],
        "ratio": plans.ratio(len(messages), sum(sizes), window),
        "kept": sorted(kept),
        "apart": others > int(window * 0.5 * plans.MARGIN),
        "reserve": rules.reserve,
    }
