"""Count the reader's right steps in worlds it never saw: `python notebooks/pair/exam.py`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd

from ctxkit.course.pair.number_lookup_task import make_lookup_task
from ctxkit.course.pair.tiny_language_model import WEIGHTS_PATH, TinyReaderNetwork, encode_message
from pair.histories import make_conversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pair.histories import HistoryStep

KINDS = ("read", "again", "answer")


def make_test_conversations(worlds: int = 20, seed: int = 1_000) -> Iterator[list[HistoryStep]]:
    """Yield conversations like those of the pair: half unmasked, half with a mask of three results.

    Of the masked ones only the last step of a prompt counts: conversations of 1 to 12 questions.
    """
    random = Random(seed)
    for n in range(worlds):
        yield make_conversation(make_lookup_task(seed=seed + n), random=random)
    for n in range(worlds):
        for questions in range(1, 13):
            world = make_lookup_task(seed=seed + n, questions=questions)
            yield make_conversation(world, 3, random=random)


def count_right_steps(
    network: TinyReaderNetwork, conversations: Iterable[list[HistoryStep]]
) -> pd.DataFrame:
    """Return for each kind of step how many there were, and how many were right to the last token."""
    total, right = Counter[str](), Counter[str]()
    for steps in conversations:
        tokens = [n for role, text, _ in steps for n in encode_message(role, text)]
        network.reset()
        best, start = network.compute_logits(tokens).argmax(axis=1), 0
        for role, text, kind in steps:
            end = start + len(encode_message(role, text))
            if kind:
                total[kind] += 1
                right[kind] += bool((best[start : end - 1] == tokens[start + 1 : end]).all())
            start = end
    rows = {kind: {"steps": total[kind], "right": right[kind]} for kind in KINDS}
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    with np.load(Path(sys.argv[1]) if sys.argv[1:] else WEIGHTS_PATH) as arrays:
        table = count_right_steps(TinyReaderNetwork(dict(arrays)), make_test_conversations())
    print(table.to_string())
