"""Published answers to exam questions after real compactions, beside where the kit finds them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.experiments.exam_questions import find_answer_source
from ctxkit.experiments.studies.published_runs import find_published_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd


__all__ = ["COMPACTION_EXAM", "AccuracyByVisibility", "compare_with_answers", "read_answers"]
__dir__ = public_dir(__all__)

COMPACTION_EXAM = "compaction-exam"
"""Folder with `fixtures.json` and `trials.jsonl` of algal/pi-openai-server-compaction, commit
8a3de2f, `benchmarks/product-defaults`, MIT."""
_DRAWS = 2_000


def read_answers(root: Path | None = None) -> pd.DataFrame:
    """Read each question after Pi's default compaction, with where its answer is.

    The prompt is the recorded summary and the messages that it left. The other published way, the
    provider's own compaction, leaves an encrypted text, of which nobody can say what it shows.

    Args:
        root: the folder of published runs; None: as `published_runs.find_published_file`.

    Returns:
        One row per question: `history`, `policy`, `expected`, `answer` (shown or gone), `right`.

    Raises:
        BadArguments: the data are not there.
    """
    import pandas as pd

    folder = find_published_file(COMPACTION_EXAM, root)
    fixtures = json.loads((folder / "fixtures.json").read_text(encoding="utf-8"))
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    trials = {trial["fixtureId"]: trial for trial in map(json.loads, lines)}
    rows = [row for f in fixtures for row in _iter_rows(f, trials[f["id"]])]
    return pd.DataFrame(rows)


def _iter_rows(fixture: dict[str, Any], trial: dict[str, Any]) -> Iterator[dict[str, Any]]:
    compaction = trial["piDefault"]
    remaining = [
        *fixture["messages"][compaction["summarizedMessageCount"] :],
        *fixture["sharedTail"],
    ]
    folded = json.dumps([compaction["summary"], remaining]).casefold()
    scores = {s["questionId"]: s for s in trial["evaluations"]["pi_default"]["scores"]}
    for question in fixture["questions"]:
        yield {
            "history": fixture["id"],
            "policy": "pi_default",
            "expected": question["expected"],
            "answer": find_answer_source(question["expected"], None, folded),
            "right": scores[question["id"]]["correct"],
        }


class AccuracyByVisibility(NamedTuple):
    """Right answers among those marked as shown and as gone."""

    histories_n: int
    policies_n: int
    shown: int
    right_shown: int
    gone: int
    right_gone: int
    difference_interval: tuple[float, float]
    """90 % interval of the difference of both shares, histories drawn with replacement."""
    shuffled_difference: float
    """The mean difference where answers are shuffled within each history: chance alone."""

    @property
    def ratio(self) -> float:
        """Share of right answers if shown / if gone; infinite if none of the others is right."""
        gone = self.right_gone / self.gone
        return self.right_shown / self.shown / gone if gone else float("inf")


def compare_with_answers(answers: pd.DataFrame, seed: int = 0) -> AccuracyByVisibility:
    """Compare marks with answers: are those marked as shown answered right more often?

    Args:
        answers: from `read_answers`.
        seed: of the resampling.
    """
    rng = np.random.default_rng(seed)
    histories = [g for _, g in answers.groupby("history")]
    visible, gone = (answers[answers["answer"] == a]["right"] for a in ("shown", "gone"))
    picks = rng.integers(0, len(histories), (_DRAWS, len(histories)))
    counts = np.array([_count(h["answer"] == "shown", h["right"]) for h in histories])
    sums = counts[picks].sum(axis=1)
    differences = sums[:, 1] / sums[:, 0] - sums[:, 3] / sums[:, 2]
    low, high = np.quantile(differences, [0.05, 0.95])
    return AccuracyByVisibility(
        histories_n=len(histories),
        policies_n=answers["policy"].nunique(),
        shown=len(visible),
        right_shown=int(visible.sum()),
        gone=len(gone),
        right_gone=int(gone.sum()),
        difference_interval=(float(low), float(high)),
        shuffled_difference=_shuffle(histories, seed),
    )


def _count(is_visible: Any, right: Any) -> tuple[int, int, int, int]:
    return (
        int(is_visible.sum()),
        int((is_visible & right).sum()),
        int((~is_visible).sum()),
        int((~is_visible & right).sum()),
    )


def _shuffle(histories: list[pd.DataFrame], seed: int, repeats: int = 50) -> float:
    rng, differences = random.Random(seed), []  # noqa: S311  no secret
    for _ in range(repeats):
        total = np.zeros(4)
        for history in histories:
            right = history["right"].tolist()
            rng.shuffle(right)
            total += _count(history["answer"].to_numpy() == "shown", np.array(right))
        differences.append(total[1] / total[0] - total[3] / total[2])
    return float(np.mean(differences))
