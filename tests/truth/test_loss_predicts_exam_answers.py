"""Loss beside what a model answered after real compactions, and beside noise.

600 questions over eight histories (exact values: ids, targets, results of tools, checkpoints). The
published accuracy after Pi's default compaction is 48.0 %.
"""

from __future__ import annotations

import random

import pytest
from truth.published_exam import predicted, trials

import ctxkit as ck
from ctxkit.metrics import planted_facts_and_compaction_audits


@pytest.fixture(scope="module")
def exam(real):
    found = trials(real)
    if not found:
        pytest.skip("studies/compaction-exam is not beside CTXKIT_SESSIONS")
    return found


@pytest.fixture(scope="module")
def replays(exam):
    return [t.replay() for t in exam]


def agreement(exam, replayed) -> tuple[int, int]:
    """Questions right where nothing was lost of 288, and wrong where something was of 312."""
    pairs = [
        (shown, right)
        for t, s in zip(exam, replayed, strict=True)
        for shown, (_, right) in zip(predicted(t, s), t.asked, strict=True)
    ]
    return pairs.count((True, True)), pairs.count((False, False))


def test_the_preset_cuts_where_the_recorded_compaction_did(exam, replays):
    for trial, replay in zip(exam, replays, strict=True):
        assert [len(edit.targets) for edit in replay.edits] == [trial.kept_from]


def test_what_is_not_lost_is_answered_and_what_is_lost_is_not(exam, replays):
    assert agreement(exam, replays) == (288, 312)
    assert 288 / 600 == 0.48  # as published


def test_a_value_that_stands_in_the_view_is_answered_and_one_that_does_not_is_not(exam, replays):
    pairs = []
    for trial, replay in zip(exam, replays, strict=True):
        before = ck.replay(trial.session, "none").view(len(replay.calls) - 1)  # the exam itself
        facts = {
            v: planted_facts_and_compaction_audits.PlantedFact("reference", v, v)
            for v, _ in trial.asked
        }
        shown = planted_facts_and_compaction_audits.check_facts_in_prompt(
            replay, facts.values(), call=len(replay.calls) - 1
        )
        pairs += [(shown[facts[v]], right) for v, right in trial.asked]
        assert all(any(v in m.text for m in before) for v, _ in trial.asked)
    assert (pairs.count((True, True)), pairs.count((False, False))) == (288, 312)


@pytest.mark.parametrize("noise", ["empty", "another's", "shuffled", "all"])
def test_another_summary_foretells_worse(exam, noise):
    chance, texts = random.Random(1), [t.summary for t in exam]
    given = {
        "empty": ["ok"] * 8,
        "another's": texts[1:4] + texts[:1] + texts[5:8] + texts[4:5],
        "shuffled": ["".join(chance.sample(t, len(t))) for t in texts],
        "all": ["\n".join(value for value, _ in t.asked) for t in exam],
    }[noise]
    right, wrong = agreement(exam, [t.replay(text) for t, text in zip(exam, given, strict=True)])
    assert (right, wrong) == {
        "empty": (240, 312),
        "another's": (240, 312),
        "shuffled": (240, 312),
        "all": (288, 0),
    }[noise]


def test_answers_in_another_order_are_not_predicted(exam, replays):
    chance = random.Random(2)
    mixed = []
    for t in exam:
        rights = [r for _, r in t.asked]
        chance.shuffle(rights)
        asked = tuple((v, r) for (v, _), r in zip(t.asked, rights, strict=True))
        mixed.append(t._replace(asked=asked))
    assert sum(agreement(mixed, replays)) < 400


def test_the_recall_of_real_summaries_lies_between_an_empty_and_a_full_one(exam, replays):
    for trial, replay in zip(exam[:2], replays[:2], strict=True):
        full = "\n".join(value for value, _ in trial.asked)
        low, real, high = (
            ck.score(s)["summary_recall"] for s in (trial.replay("ok"), replay, trial.replay(full))
        )
        assert low == 0 < real < 0.5 < high == 1
