"""Frames of scores that are written down, for reports whose every figure is known."""

from __future__ import annotations

import pandas as pd

from ctxkit.experiments import SCORE_COLUMNS


def scores(*rows, **settings):
    """A frame of scores; what a row lacks is missing in it; `settings` are columns that were varied."""
    frame = pd.DataFrame(
        {c.name: pd.array([row.get(c.name) for row in rows], dtype=c.dtype) for c in SCORE_COLUMNS}
    )
    for place, (name, values) in enumerate(settings.items(), 2):
        frame.insert(place, name, values)
    return frame


RECORDED = {
    "session": "s-1", "rules": "recorded", "calls_n": 1_200, "prompt_tokens": 2_500_000, "peak_tokens": 90_000, "cost_usd": 3.5,
    "vs_recorded": None, "input_usd": 2.0, "output_usd": 1.25, "summaries_usd": 0.25, "compactions_n": 2, "not_paid_back_n": 1,
    "token_savings": 0.5, "message_savings": 0.625, "summary_tokens": 4_100, "refilled_share": 0.05, "is_thrashing": False,
    "items_n": 40, "retained": 0.5, "recoverable": 0.2, "lost": 0.3, "reused_items_n": 10, "needed_lost_n": 1, "needed_later_loss": 0.1,
    "next_interval_loss": 0.25, "regret": 0.02, "at_stake_items_n": 8, "summary_recall": 0.75, "user_rules_kept": 1.0,
    "weighted_loss": 0.15, "counter": "o200k_base", "counter_error": 0.02,
}  # fmt: skip
TIGHT = {
    "session": "s-1", "rules": "<tight>", "calls_n": 1_200, "prompt_tokens": 1_250_000, "peak_tokens": 45_000, "cost_usd": 1.75,
    "real_run_low_usd": 1.8, "real_run_high_usd": 2.4, "vs_recorded": "cheaper", "compactions_n": 5, "is_thrashing": True,
    "counter": "o200k_base", "counter_error": 0.02, "note": "<odd>",
}  # fmt: skip
BROKEN = {"session": "s-1", "rules": "broken", "error": "no <window>"}


def sweep_rows():
    """Two settings on two sessions, and a third setting that failed on both."""
    figures = {
        ("one", "big"): {"cost_usd": 2.0, "needed_later_loss": 0.02, "not_paid_back_n": 0},
        ("two", "big"): {"cost_usd": 4.0, "needed_later_loss": 0.04, "not_paid_back_n": 3},
        ("one", "small"): {"cost_usd": 1.0, "needed_later_loss": 0.3, "not_paid_back_n": 2},
        ("two", "small"): {"cost_usd": 1.0, "needed_later_loss": 0.5, "not_paid_back_n": 2},
    }
    counted = {
        "counter": "o200k_base",
        "prompt_tokens": 10_000,
        "peak_tokens": 5_000,
        "compactions_n": 3,
    }
    rows = [{"session": s, "rules": r} | counted | more for (s, r), more in figures.items()]
    rows += [{"session": s, "rules": "bad", "error": "no window"} for s in ("one", "two")]
    rows[1]["note"] = "is odd"
    return rows
