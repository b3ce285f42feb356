"""Sessions made from a seed: the sample's story under other names, with fifteen facts of its own."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.course.generator.billing_service_coding_session import make_billing_session
from ctxkit.errors import BadArguments

SAMPLE_FACTS = dict(ck.read(ck.samples.path()).details["facts"])


@pytest.fixture(scope="module")
def made():
    return {seed: ck.course.make_session(seed) for seed in (1, 2, "x")}


def test_a_seed_makes_the_same_session_again(made):
    again = ck.course.make_session(1)
    assert again.log == made[1].log
    assert again.details == made[1].details
    assert again.log != made[2].log


@pytest.mark.parametrize("seed", [1, 2, "x"])
def test_its_facts_are_others_and_all_are_shown_where_nothing_is_compacted(made, seed):
    kept = ck.course.facts_kept(ck.replay(made[seed], "none"))
    assert len(kept) == sum(kept.values()) == 15
    same = set(kept) & set(SAMPLE_FACTS)
    assert len(same) <= 2, same


SAMPLE_NAMES = (
    "BILL-4127", "ISK", '"IS"', "Iceland", "fin-import-7", "INV-2026-118842", "Petra", "X-Bill-Trace",
    "UnknownCurrency", "Invoice.id", "32 invoices", "1203", "1171", "Python 3.9",
)  # fmt: skip


def list_texts(session):
    """Return all that a session's messages say, and the arguments of its calls."""
    calls = str([c.arguments for m in session.messages for c in m.tool_calls])
    return "\n".join([*(m.text for m in session.messages), calls])


def test_no_name_of_the_sample_is_left(made):
    sample, text = list_texts(ck.read(ck.samples.path())), list_texts(made[1])
    assert [name for name in SAMPLE_NAMES if name not in sample] == []
    assert [name for name in SAMPLE_NAMES if name in text] == []


def test_bills_and_pauses_are_like_those_of_the_sample(made):
    rows = ck.frame([make_billing_session(), *made.values()], per="session")
    assert rows["compactions_n"].between(1, 3).all()
    assert rows["cost_usd"].between(2, 5).all()
    assert rows["cost_usd"].nunique() == len(rows)


@pytest.mark.parametrize("seed", [None, 1.5, True, [], "", "x" * 201])
def test_what_is_no_seed_is_refused_in_a_sentence(seed):
    with pytest.raises(BadArguments):
        ck.course.make_session(seed)
