"""Write docs/trust.md, the measured errors of the figures: `python docs/make_trust.py`.

The sessions are those of CTXKIT_SESSIONS. `python docs/make_trust.py --teach FOLDER ...` remakes the
training table of the cache model (`ctxkit/engine/cache_model/taught.json`) from folders of logs, one
folder per repository (`owner+name`); the table has no text of the logs. To add a chapter, name a
function that returns Markdown in `CHAPTERS`.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import trust_cache  # noqa: E402  beside this file
import trust_calibration  # noqa: E402
import trust_compactions  # noqa: E402
import trust_developers  # noqa: E402
import trust_studies  # noqa: E402

from ctxkit.engine.cache_model.training_counts import load_training_counts  # noqa: E402
from ctxkit.metrics import run_elongation_from_studies  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

CHAPTERS: tuple[Callable[[Path], str], ...] = (
    trust_cache.format_chapter,
    trust_compactions.format_chapter,
    lambda _folder: trust_studies.format_chapter(),
)
"""Functions that return the chapters in order, called with the folder of sessions."""
HEAD = """# What the figures are worth

`ck.score(session)` gives the error of the predicted cost of one session (`prediction_error`); this
page gives it for many. Each figure is compared with data that were not used to compute it, and
`tests/truth/` checks that it fails on noise. `python docs/make_trust.py` writes the page.
"""


def format_page(folder: Path) -> str:
    """Return the page in Markdown."""
    rows = load_training_counts()
    nested = trust_calibration.judge_with_chosen_constants(rows, "alone")
    opening = f"{HEAD}\n{trust_developers.format_summary(rows, nested)}"
    return opening + "".join(f"\n{chapter(folder)}" for chapter in CHAPTERS)


def main() -> None:
    """Write the page, or the training table of the cache model."""
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--teach"]:
        trust_cache.write_training_table([Path(folder) for folder in sys.argv[2:]])
        return
    loops_file = Path(run_elongation_from_studies.__file__ or "").with_name("elongation_loops.csv")
    loops_file.write_text(
        trust_studies.measure_closed_loops(trust_studies.list_table_rules()), encoding="utf-8"
    )
    run_elongation_from_studies.load_closed_loop_runs.cache_clear()
    folder = Path(os.environ["CTXKIT_SESSIONS"])
    (HERE / "trust.md").write_text(format_page(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
