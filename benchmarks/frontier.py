"""The frontier of all presets over the sessions that `CTXKIT_SESSIONS` names: `docs/frontier.csv`.

`python -m benchmarks.frontier [RUNS.jsonl]`; with a file, an interrupted sweep is gone on with.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

import ctxkit as ck
from ctxkit.experiments import mark_pareto_front
from ctxkit.metrics.bootstrap_and_paired_tests import average_cost_model_uncertainty
from ctxkit.plots import frontier

DOCS = Path(__file__).parent.parent / "docs"
LONG = 50_000
"""Sessions whose largest prompt is at least so many tokens are told apart: most others are never
compacted.
"""


def main(kept: str | None) -> int:
    folder = os.environ.get("CTXKIT_SESSIONS")
    if not folder:
        sys.exit("Set CTXKIT_SESSIONS to a folder of recorded sessions.")
    found = [x for s in ck.read_all(folder) for x in (s, *s.children) if x.has_text and x.calls]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        runs = ck.sweep(found, "all", workers, kept, loss=True)
    failed = runs[runs["error"].notna()]
    for _, row in failed.iterrows():
        print(f"failed: {row['session']} under {row['rules']}: {row['error']}")
    most = runs.groupby("session")["peak_tokens"].max()
    parts = {
        "all": runs,
        f"peak of {LONG:,} tokens or more": runs[runs["session"].isin(most[most >= LONG].index)],
    }
    rows = pd.concat([_front(part).assign(sessions=name) for name, part in parts.items()])
    rows = rows[
        [
            "sessions",
            "rules",
            "on_pareto_front",
            *[c for c in rows.columns if c not in ("sessions", "rules", "on_pareto_front")],
        ]
    ]
    rows.round(4).to_csv(DOCS / "frontier.csv", index=False)
    print(frontier(list(parts.values())[1]).to_text())
    print(f"{len(runs):,} runs over {len(found)} sessions, {len(failed)} failed")
    return 0


def _front(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the front, and within how many dollars the cache model knows each mean cost."""
    rows = mark_pareto_front(runs)
    return rows.assign(cost_uncertainty_usd=rows["rules"].map(average_cost_model_uncertainty(runs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
