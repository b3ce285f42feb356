"""What three writers of summaries keep, on the recorded sessions of a folder: `python
benchmarks/summary_recall.py FOLDER`.

Each session is cut in a window of two thirds of its largest prompt (at least 40,000 and at most
100,000 tokens), under the rules of three systems, with the default extract, with "ok", and with a
list of every item.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import ctxkit as ck
from ctxkit.metrics.losable_items import extract_items

RULES = (ck.presets.pi, ck.presets.codex, ck.presets.claude_code)
FIGURES = ["needed_later_loss", "summary_recall", "user_rules_kept"]


def ok(_passage):
    return "ok"


def every(passage):
    """Every item of what goes, and every earlier summary."""
    earlier = [m.text for m in passage.messages if m.role == "summary"]
    return "\n".join(
        [*earlier, *dict.fromkeys(i.text for m in passage.messages for i in extract_items(m))]
    )


def rows(file: Path):
    for session in ck.read_all(file, progress=False):
        peak = ck.score(session, loss=False)["peak_tokens"]
        if not session.has_text or peak is pd.NA or peak < 45_000:
            continue
        window = min(max(peak * 2 // 3, 40_000), 100_000)
        for preset in RULES:
            for name, writer in (("default", None), ("ok", ok), ("every item", every)):
                try:
                    rules = preset(
                        context_window=window, **({"summariser": writer} if writer else {})
                    )
                    row = ck.score(ck.replay(session, rules))
                except ck.CtxkitError:
                    continue
                if row["compactions_n"]:
                    yield {
                        "session": session.id,
                        "rules": preset.__name__,
                        "writer": name,
                        **row[FIGURES],
                    }


if __name__ == "__main__":
    files = sorted(p for p in Path(sys.argv[1]).rglob("*.json*") if p.is_file())
    told = pd.DataFrame([row for file in files for row in rows(file)])
    told[FIGURES] = told[FIGURES].apply(pd.to_numeric, errors="coerce")
    whole = told.groupby(["session", "rules"])["writer"].transform("nunique") == 3
    print(
        told[whole]
        .groupby(["rules", "writer"])[FIGURES]
        .agg(["mean", "count"])
        .round(3)
        .to_string()
    )
