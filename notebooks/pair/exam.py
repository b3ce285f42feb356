"""How much of its task the reader can do in worlds whose numbers it never saw: `python notebooks/pair/exam.py`."""

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

from ctxkit.course.pair.histories import conversation
from ctxkit.course.pair.pieces import message
from ctxkit.course.pair.reader import WEIGHTS, Network
from ctxkit.course.pair.task import world

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.course.pair.histories import HistoryStep

KINDS = ("read", "again", "answer")


def held_out(worlds: int = 20, seed: int = 1_000) -> Iterator[list[HistoryStep]]:
    """Yield conversations like those of the pair: half as the first run sees them, half as a mask of three leaves them.

    Of the masked ones all that is asked for is the last step of a prompt: conversations of 1 to 12 questions.
    """
    random = Random(seed)
    for n in range(worlds):
        yield conversation(world(seed=seed + n), random=random)
    for n in range(worlds):
        for questions in range(1, 13):
            yield conversation(world(seed=seed + n, questions=questions), 3, random=random)


def exam(network: Network, conversations: Iterable[list[HistoryStep]]) -> pd.DataFrame:
    """Return for each kind of step how many there were, and how many were right to the last piece."""
    asked, right = Counter[str](), Counter[str]()
    for said in conversations:
        pieces = [n for role, text, _ in said for n in message(role, text)]
        network.forget()
        best, at = network.read(pieces).argmax(axis=1), 0
        for role, text, kind in said:
            end = at + len(message(role, text))
            if kind:
                asked[kind] += 1
                right[kind] += bool((best[at : end - 1] == pieces[at + 1 : end]).all())
            at = end
    rows = {kind: {"steps": asked[kind], "right": right[kind]} for kind in KINDS}
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    with np.load(Path(sys.argv[1]) if sys.argv[1:] else WEIGHTS) as kept:
        print(exam(Network(dict(kept)), held_out()).to_string())
