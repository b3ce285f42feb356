"""Write `docs/frontier.csv`: the Pareto front of all presets on the sessions of CTXKIT_SESSIONS.

`python -m benchmarks.frontier [RUNS.jsonl]`; with a file, an interrupted sweep is continued.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

import ctxkit as ck
from ctxkit.experiments import summarise_runs_with_pareto_front
from ctxkit.metrics.bootstrap_and_paired_tests import average_cost_uncertainty_usd
from ctxkit.plots import frontier

DOCS = Path(__file__).parent.parent / "docs"
LONG_PROMPT_TOKENS = 50_000
"""Sessions with a prompt of so many tokens are a group: most others are never compacted."""


def main(runs_file: str | None) -> int:
    folder = os.environ.get("CTXKIT_SESSIONS")
    if not folder:
        sys.exit("Set CTXKIT_SESSIONS to a folder of recorded sessions.")
    sessions = [
        member
        for session in ck.read_all(folder)
        for member in (session, *session.children)
        if member.has_text and member.calls
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        runs = ck.sweep(sessions, "all", workers, runs_file, loss=True)
    failed = runs[runs["error"].notna()]
    for _, row in failed.iterrows():
        print(f"failed: {row['session']} under {row['rules']}: {row['error']}")
    peaks = runs.groupby("session")["peak_tokens"].max()
    runs_by_group = {
        "all": runs,
        f"peak of {LONG_PROMPT_TOKENS:,} tokens or more": runs[
            runs["session"].isin(peaks[peaks >= LONG_PROMPT_TOKENS].index)
        ],
    }
    rows = pd.concat(
        [_mark_front(group).assign(sessions=name) for name, group in runs_by_group.items()]
    )
    rows = rows[
        [
            "sessions",
            "rules",
            "on_pareto_front",
            *[c for c in rows.columns if c not in ("sessions", "rules", "on_pareto_front")],
        ]
    ]
    rows.round(4).to_csv(DOCS / "frontier.csv", index=False)
    print(frontier(list(runs_by_group.values())[1]).to_text())
    print(f"{len(runs):,} runs over {len(sessions)} sessions, {len(failed)} failed")
    return 0


def _mark_front(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rules with their front, and the uncertainty in dollars of each mean cost."""
    rows = summarise_runs_with_pareto_front(runs)
    return rows.assign(cost_uncertainty_usd=rows["rules"].map(average_cost_uncertainty_usd(runs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
