"""Published constraints: read and not run, put into talks, and judged summaries beside our marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxkit import studies
from ctxkit.errors import BadArguments
from ctxkit.policies import SentenceKind, parse_rules_and_statements

PAGE = Path(__file__).parents[3] / "docs" / "keep-rules.md"
RULE = "Never mail the tax office."
ROWS = (  # compactor, summary, what a person said
    ("gpt_5.4_mini_pi_mono_prompt", "The user said: never mail the tax office.", True),
    ("gemma_4_anthropic_prompt", "The report was sent.", False),
    ("recent_5", "The user wants post kept from the authorities.", True),
)


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / studies.user_rule_survival_and_human_labels.COMPINT
    source.mkdir()
    rules = [{"id": i, "sssc": f"Never mail office number {i}."} for i in range(15)]
    (source / "sssc.py").write_text(f"import nothing_that_exists\nROWS = {rules!r}\n")
    labelled = [
        {"id": str(i), "sssc_message": RULE, "compacted_summary": s, "label": kept}
        for i, (_, s, kept) in enumerate(ROWS)
    ]
    key = [{"id": str(i), "compactor": name} for i, (name, _, _) in enumerate(ROWS)]
    for name, rows in (("balanced_blind_labeled", labelled), ("balanced_key", key)):
        (source / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_constraints_are_read_and_the_file_is_not_run(folder):
    assert (
        studies.user_rule_survival_and_human_labels.read_constraints(folder)[3]
        == "Never mail office number 3."
    )
    (folder / studies.user_rule_survival_and_human_labels.COMPINT / "sssc.py").write_text(
        "ROWS = []"
    )
    with pytest.raises(BadArguments, match="no list of constraints"):
        studies.user_rule_survival_and_human_labels.read_constraints(folder)


def test_talks_state_each_constraint_once_with_its_framing(folder):
    (talk,) = studies.user_rule_survival_and_human_labels.make_constraint_conversations(1, folder)
    text = "\n".join(m.text for m in talk.session.messages[:70])
    assert [
        text.count(studies.user_rule_survival_and_human_labels.FRAMING + key) for key in talk.keys
    ] == [1] * 15


def test_marks_are_compared_with_what_people_said(folder):
    agreement = studies.user_rule_survival_and_human_labels.compare_marks_with_human_labels(
        studies.user_rule_survival_and_human_labels.read_judged_summaries(folder)
    )
    assert agreement[:4] == (2, 1, 1, 1)
    assert agreement.compactors_n == 3
    # published 6.0, 64.4 and 0.1 have ranks 2, 3, 1; marks 0, 1 and 0 ranks 1.5, 3, 1.5
    assert agreement.order_correlation == pytest.approx(1.5 / (2 * 1.5) ** 0.5)


def test_data_that_are_not_there_are_one_sentence(tmp_path):
    with pytest.raises(BadArguments, match="CTXKIT_STUDIES"):
        studies.user_rule_survival_and_human_labels.read_constraints(tmp_path)


def test_the_published_order_has_all_eight_compactors():
    assert len(studies.user_rule_survival_and_human_labels.PUBLISHED_RETENTION) == 8
    mean = (
        sum(map(sum, studies.user_rule_survival_and_human_labels.PUBLISHED_RETENTION.values())) / 24
    )
    assert mean == pytest.approx(17, abs=0.5)


@pytest.mark.parametrize(
    "order",
    [
        "When you name a customer, give the number.",
        "End every answer with the time.",
        "Sign all replies as Ann.",
        "For the rest of this session, speak of euros.",
    ],
)
def test_orders_about_replies_or_for_a_case_are_rules(order):
    assert [s.kind for s in parse_rules_and_statements(order)] == [SentenceKind.BINDS]


@pytest.mark.parametrize(
    "text",
    [
        "When you left, the test was green.",
        "When I run it, it fails.",
        "After you changed it, we saw the error.",
        "Before I opened the file, I read the log.",
        "While you worked, you changed two files.",
        "Once I saved it, that worked.",
    ],
)
def test_what_tells_of_a_case_is_no_order(text):
    assert SentenceKind.BINDS not in {s.kind for s in parse_rules_and_statements(text)}


def test_the_page_names_what_is_not_measured():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "Its conversations of 100,000 tokens were not available" in text
    assert "These constraints are not held out" in text


@pytest.mark.long
def test_the_page_has_what_is_measured_of_published_constraints(published):
    import make_answers

    if not (published / studies.user_rule_survival_and_human_labels.COMPINT).exists():
        pytest.skip(
            f"the published data hold no {studies.user_rule_survival_and_human_labels.COMPINT}"
        )
    assert make_answers.measure_constraint_survival() in PAGE.read_text(encoding="utf-8")
