"""A rule counts by what it says: another wording gives it, another value or a lifted ban does not."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.metrics import (
    LosableItem,
    RuleParaphraseMatcher,
    extract_items,
    fact_retention_by_meaning_and_values,
    item_index_and_rule_matching,
    loss_tables,
)

RULE = "Never write to the table billing_runs directly, and support Python 3.9 only"


def gives(text: str, rule: str = RULE) -> bool:
    return RuleParaphraseMatcher([(0, LosableItem("constraint", rule))]).in_text(text) == {0}


@pytest.mark.parametrize(
    "text",
    [
        RULE,
        "- Do not write directly to table `billing_runs`; only Python 3.9 is supported.",
        "The table billing_runs must not be written to directly (Python 3.9 only)",
    ],
)
def test_another_wording_gives_the_rule(text):
    assert gives("## Rules\nThe tests run at night.\n" + text)


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "Python 3.9 and billing_runs are named here, and nothing else is said.",
        "Never write to the table billing_runs directly, and support Python 3.12 only",
        "Write to the table billing_runs directly, and support Python 3.9",
        "Never write to the table invoice_runs directly, and support Python 3.9 only",
    ],
)
def test_another_value_a_lifted_ban_or_a_bare_name_does_not(text):
    assert not gives(text)


def test_a_sentence_does_not_end_at_the_dot_of_a_number():
    found = {
        f.text
        for f in extract_items(user(f"{RULE}. Thank you very much."))
        if f.family == "constraint"
    }
    assert found == {RULE}


def told_in(summary: str) -> tuple[float, float]:
    old = [user(RULE + "."), assistant("I see."), user("The runs are monthly."), assistant("Yes.")]
    s = session(*old, summarised(old, summary), user("go on"), assistant("on it"))
    [constraint] = [
        fate
        for item, fate in loss_tables.analyse_loss(s).fates().items()
        if item.family == "constraint"
    ]
    return loss_tables.compute_loss_columns(s)["user_rules_kept"], constraint


def test_a_summary_in_other_words_keeps_a_rule_and_an_empty_one_loses_it():
    assert told_in("Do not write directly to table billing_runs; Python 3.9 only.") == (
        1.0,
        "retained",
    )
    assert told_in("ok") == (0.0, "lost")


@given(st.text(alphabet="never write to the tab.le billing runs 39", max_size=200))
def test_any_text_is_asked_without_an_error_and_gives_no_rule_by_chance(text):
    assert gives(text) <= ("billing_runs" in text)


WORDS = ("table", "billing", "runs", "write", "tests", "python", "keep", "never", "Run")
VALUES = ("3", "3.9", "39", "src/a.py", "billing_runs", "10%", "v2")
SAYINGS = st.lists(st.sampled_from(WORDS + VALUES), min_size=1, max_size=7).map(" ".join)


@given(st.lists(SAYINGS, max_size=8, unique=True), st.lists(SAYINGS, max_size=5))
def test_many_rules_are_given_as_each_alone_is(rules, said):
    text = ". ".join(said)
    given = RuleParaphraseMatcher(
        (n, LosableItem("constraint", rule)) for n, rule in enumerate(rules)
    )
    assert given.in_text(text) == {n for n, rule in enumerate(rules) if gives(text, rule)}


def texts_of(rules: list[str]) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    """Rules, and texts of some of their sentences in lines."""
    texts = st.lists(st.sampled_from(rules), max_size=3).map("ß.\n".join)
    return st.tuples(st.just(rules), st.lists(texts, max_size=6))


@given(st.lists(SAYINGS, min_size=1, max_size=8, unique=True).flatmap(texts_of), st.integers(1, 90))
@example((["table runs"], ["ß" * 20, "table runs", ""]), 90)  # ß is two letters in lower case
def test_many_texts_are_searched_as_each_alone_is(rules_and_texts, at_once):
    rules, texts = rules_and_texts
    matcher = RuleParaphraseMatcher(
        (n, LosableItem("constraint", rule)) for n, rule in enumerate(rules)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_index_and_rule_matching, "_SEARCHED_AT_ONCE", at_once)
        assert list(matcher.in_texts(texts)) == list(map(matcher.in_text, texts))


@given(SAYINGS, st.lists(SAYINGS, max_size=4).map(". ".join))
def test_a_rule_is_given_only_with_all_its_values(said, text):
    told = fact_retention_by_meaning_and_values.extract_exact_values(said)
    if gives(text, said):
        assert not fact_retention_by_meaning_and_values.find_missing_values(told, text.casefold())
    elif gives(text + f"\n{said}", said):
        assert not fact_retention_by_meaning_and_values.find_missing_values(
            told, f"{text}\n{said}".casefold()
        )
