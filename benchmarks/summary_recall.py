"""Summary recall of three summarisers on the recorded sessions of a folder.

    python benchmarks/summary_recall.py FOLDER

Each session is compacted in a window of two thirds of its largest prompt (at least 40,000 and at
most 100,000 tokens), under the rules of three systems, with the default extract, with "ok", and
with a list of every item.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import ctxkit as ck
from ctxkit.metrics.losable_items import extract_items

RULES = (ck.presets.pi, ck.presets.codex, ck.presets.claude_code)
FIGURES = ["needed_later_loss", "summary_recall", "user_rules_kept"]


def summarise_as_ok(_passage):
    return "ok"


def summarise_every_item(passage):
    """Return every item of the messages that are summarised, after all earlier summaries."""
    earlier_summaries = [message.text for message in passage.messages if message.role == "summary"]
    return "\n".join(
        [
            *earlier_summaries,
            *dict.fromkeys(
                item.text for message in passage.messages for item in extract_items(message)
            ),
        ]
    )


def iter_rows(file: Path):
    for session in ck.read_all(file, progress=False):
        peak = ck.score(session, loss=False)["peak_tokens"]
        if not session.has_text or peak is pd.NA or peak < 45_000:
            continue
        window = min(max(peak * 2 // 3, 40_000), 100_000)
        for preset in RULES:
            for name, writer in (
                ("default", None),
                ("ok", summarise_as_ok),
                ("every item", summarise_every_item),
            ):
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
    frame = pd.DataFrame([row for file in files for row in iter_rows(file)])
    frame[FIGURES] = frame[FIGURES].apply(pd.to_numeric, errors="coerce")
    has_all_writers = frame.groupby(["session", "rules"])["writer"].transform("nunique") == 3
    print(
        frame[has_all_writers]
        .groupby(["rules", "writer"])[FIGURES]
        .agg(["mean", "count"])
        .round(3)
        .to_string()
    )
