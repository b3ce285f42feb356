"""A head gives the same answers as a tuple and as arrays, whatever was asked of it before."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from builders import assistant, user
from random_sessions import Fours

from ctxkit.policies import (
    EditedHead,
    HeadItem,
    MessageLog,
    ReplacementMessage,
    SizeOnlySummary,
)

LOG_TEXTS = ("first question", "an answer", "second question", "another answer", "third")
COLUMNS = ("rows", "source_rows", "keys", "tokens", "estimates")


@pytest.fixture
def log() -> MessageLog:
    log = MessageLog(Fours())
    for i, text in enumerate(LOG_TEXTS):
        log.append((assistant if i % 2 else user)(text))
    return log


def list_items() -> tuple[HeadItem, ...]:
    """Return a summary in the place of two rows, a recorded row, a changed row, and another recorded one."""
    changed = ReplacementMessage(user("2nd", id="changed"))
    return (
        HeadItem(-1, 12, 15, SizeOnlySummary(12, call=1), 1),
        HeadItem(2, 4, 5),
        HeadItem(3, 1, 2, changed),
        HeadItem(4, 2, 3),
    )


def make_head(form: str) -> EditedHead:
    items = list_items()
    if form == "tuple":
        return EditedHead.of(items)
    rows = [
        (i.row, i.last_replaced if i.row < 0 else i.row, 0 if i.source is None else i.source.key, i.tokens, i.estimate)
        for i in items
    ]  # fmt: skip
    arrays = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))
    return EditedHead.of_columns(arrays, {i.source.key: i.source for i in items if i.source})


QUESTIONS = {
    "items": lambda head, log: [head.item(p).row for p in range(head.size)],
    "messages": lambda head, log: [m.text for m in head.messages(log)],
    "message": lambda head, log: [head.message(log, p).text for p in range(head.size)],
    "unchanged": lambda head, log: head.unchanged_rows(),
    "rows": lambda head, log: [head.row(p) for p in range(head.size)],
    "sums": lambda head, log: (head.sums(estimated=False), head.sums(estimated=True)),
    "before": lambda head, log: [
        head.before(p, estimated=e) for p in range(head.size + 1) for e in (False, True)
    ],
    "users": lambda head, log: head.count(log, log.roles[0]),
    "characters": lambda head, log: head.column(log, "chars").tolist(),
    "estimates": lambda head, log: head.column(log, "estimates").tolist(),
}
ANSWERS = {
    "items": [-1, 2, 3, 4],
    "unchanged": [2, 4],
    "rows": [-1, 2, 3, 4],
    "sums": ([0, 12, 16, 17, 19], [0, 15, 20, 22, 25]),
    "before": [0, 0, 12, 15, 16, 20, 17, 22, 19, 25],
    "users": 3,  # the changed row is a user's message now
    "characters": [48, 15, 3, 5],  # a sized summary has four characters a token
    "estimates": [15, 5, 2, 3],
    "messages": ["", "second question", "2nd", "third"],
    "message": ["", "second question", "2nd", "third"],
}


@pytest.mark.parametrize("form", ["tuple", "arrays"])
@pytest.mark.parametrize(("earlier", "asked"), sorted(permutations(QUESTIONS, 2)))
def test_an_answer_does_not_depend_on_the_form_or_on_what_was_asked_before(
    log, form, earlier, asked
):
    head = make_head(form)
    QUESTIONS[earlier](head, log)
    assert QUESTIONS[asked](head, log) == ANSWERS[asked]


def test_each_summary_of_a_call_has_an_id_of_its_own(log):
    """a trigger that is due twice before one call writes two summaries; views are told apart by their ids"""
    made = [SizeOnlySummary(9, call=3, step=step).message(log, -1).id for step in range(3)]
    assert made == ["summary@3", "summary@3.1", "summary@3.2"]
    assert SizeOnlySummary(9, call=4).id not in made
