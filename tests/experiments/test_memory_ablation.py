"""What a memory would have been worth: measured on a real talk, dearer by what it sends, and never out of its budget."""

from __future__ import annotations

import pytest
from builders import assistant, session, user

import ctxkit as ck
from ctxkit.policies import LessonRecall
from ctxkit.presets import resolve_rules

SMALL = "pi:context_window=16_000,reserve_tokens=4_000,keep_recent_tokens=3_000"
SAMPLE = ck.samples.path()


@pytest.fixture(scope="module")
def table():
    return ck.experiments.with_memory(SAMPLE, SMALL).set_index("variant")


def test_memory_saves_what_was_needed_and_costs_what_it_sends(table):
    """T22, T25: Promoted at compactions, recalled by a digest: what it would have saved, and what it costs."""
    without, with_, more = (
        table.loc[way] for way in ("without memory", "with memory", "difference")
    )
    assert with_["needed_lost_n"] < without["needed_lost_n"]
    assert with_["promoted_n"] > 5
    assert with_["cost_usd"] > without["cost_usd"]
    assert more["cost_usd"] == pytest.approx(with_["cost_usd"] - without["cost_usd"])
    assert more["prompt_tokens"] > 0
    assert with_["compactions_n"] == without["compactions_n"]
    assert set(table["source"]) == {"derived"}


def test_each_figure_is_that_of_a_comparison(table):
    names = ["needed_lost_n", "needed_later_loss", "user_rules_kept", "cost_usd", "prompt_tokens"]
    plain = resolve_rules(SMALL)
    compared = ck.compare(SAMPLE, [plain, plain | LessonRecall()], progress=False)
    without, recalling = compared[names].values.tolist()[-2:]
    assert without == table.loc["without memory", names].tolist()
    assert recalling == table.loc["with memory", names].tolist()
    assert without != recalling


def test_nothing_recalled_costs_nothing(table):
    none = ck.experiments.with_memory(SAMPLE, SMALL, LessonRecall(items=0)).set_index("variant")
    assert none.loc["difference", "cost_usd"] == 0
    assert none.loc["difference", "needed_lost_n"] == 0
    assert none.loc["with memory", "recalled_tokens"] == 0
    assert none.loc["without memory", "cost_usd"] == table.loc["without memory", "cost_usd"]


@pytest.mark.parametrize(
    ("requests_n", "rule_at", "compactions_n", "unknown"),
    [(27, 16, [1, 2, 1], [True, False, True]), (28, 22, [2, 2, 0], [False, True, True])],
)
def test_a_figure_that_is_known_without_memory_or_with_it_alone_has_no_difference(
    requests_n, rule_at, compactions_n, unknown
):
    """With the digest the second compaction comes before the 27th call, without it before the 28th.

    Where the 28th request is short, it comes with the digest only, and takes the 17th request with
    its rule. Where it is long, both come, and only the later one takes the 23rd request.
    """
    log = []
    for i in range(requests_n):
        rule = "Never push to main. " if i == rule_at else ""  # stays at the first compaction
        log += [
            user(f"Read src/part{i}.py. {rule}" + "word " * 700),
            assistant(f"I decided to use port {4000 + i} for src/part{i}.py"),
        ]
    table = ck.experiments.with_memory(session(*log, user("Go on."), assistant()), SMALL)
    assert table["compactions_n"].tolist() == compactions_n
    assert table["user_rules_kept"].isna().tolist() == unknown


def test_rules_that_recall_already_are_refused():
    with (
        pytest.warns(UserWarning, match="without a trigger"),
        pytest.raises(ck.BadArguments, match="recall already"),
    ):
        ck.experiments.with_memory(SAMPLE, "summary:keep_turns=2 | recall")
    with pytest.raises(ck.BadArguments, match="name rules that compact"):
        ck.experiments.with_memory(SAMPLE, ck.policies.Rules())


def test_where_nothing_is_compacted_memory_holds_nothing():
    log = [m for i in range(3) for m in (user(f"I decided to use port {4000 + i}."), assistant())]
    table = ck.experiments.with_memory(session(*log), SMALL)
    assert table["compactions_n"].tolist() == [0, 0, 0]
    assert table["promoted_n"].isna().tolist() == [True, False, True]
    assert table["promoted_n"].iloc[1] == table["recalled_tokens"].iloc[1] == 0
