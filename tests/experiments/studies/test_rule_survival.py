"""Made talks: rules go with compactions, and `keep_rules` keeps nine of ten at two per cent more tokens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctxkit import studies
from ctxkit.engine import run_replay
from ctxkit.policies import keep_rules
from ctxkit.presets import preset

PAGE = Path(__file__).parents[3] / "docs" / "keep-rules.md"


def test_talks_are_equal_for_equal_seeds_and_state_each_rule_once():
    one, other = (
        studies.user_rule_survival_and_human_labels.make_user_rule_conversations(2, seed=3),
        studies.user_rule_survival_and_human_labels.make_user_rule_conversations(2, seed=3),
    )
    assert (
        one
        == other
        != studies.user_rule_survival_and_human_labels.make_user_rule_conversations(2, seed=4)
    )
    text = "\n".join(m.text for m in one[0].session.messages)
    assert [text.count(key) for key in one[0].keys] == [1] * 15


def test_half_of_the_requests_follow_a_remark():
    remark = re.compile(
        r"I saw the same in the \w+ module last week\.|It looked odd on my screen this morning\."
        r"|The \w+ team is on holiday\.|My colleague wrote that \w+ code years ago\."
        r"|Last time it took two hours\."
    )
    talks = studies.user_rule_survival_and_human_labels.make_user_rule_conversations(3)
    texts = [m.text for t in talks for m in t.session.messages if m.role == "user"]
    found = [remark.findall(text) for text in texts]
    assert len(texts) == 3 * 60
    assert max(map(len, found)) == 1
    assert sum(map(len, found)) == pytest.approx(90, abs=27)  # four standard deviations


def test_the_wordings_that_are_measured_are_not_those_the_extractor_was_written_on():
    assert not set(studies.user_rule_survival_and_human_labels.TUNED_WORDINGS) & set(
        studies.user_rule_survival_and_human_labels.HELD_OUT_WORDINGS
    )


def test_rules_are_kept_where_without_it_they_go():
    frame = studies.user_rule_survival_and_human_labels.compare_survival_with_keep_rules(
        studies.user_rule_survival_and_human_labels.make_user_rule_conversations(1),
        ["claude_code", "strands", "pi"],
    )
    assert (frame["kept_empty"] < 0.7).all()
    assert (frame[["with_empty", "with_extract"]] >= 0.9).all().all()
    assert (frame["more_tokens"] <= 0.02).all()


def test_an_extractor_that_finds_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(
        "ctxkit.policies.user_rule_extraction.iter_rules_and_statements", lambda _: ()
    )
    (row,) = studies.user_rule_survival_and_human_labels.compare_survival_with_keep_rules(
        studies.user_rule_survival_and_human_labels.make_user_rule_conversations(1), ["claude_code"]
    ).to_dict("records")
    assert row["with_empty"] == row["kept_empty"] < 0.5
    assert row["more_tokens"] == 0  # nothing is carried, so the prompts are the same


def test_presets_that_keep_all_that_the_user_wrote_are_left_out():
    module = studies.user_rule_survival_and_human_labels
    talks = module.make_user_rule_conversations(1)
    rows = module.compare_survival_with_keep_rules(talks, ["codex", "pi"])
    assert rows["rules"].tolist() == ["pi"]  # Codex keeps the user's last 20,000 tokens
    none = module.compare_survival_with_keep_rules(talks, ["codex"])
    assert (len(none), list(none)) == (0, list(rows))
    run = run_replay(talks[0].session, preset("codex", context_window=64_000))
    assert len(run.compactions) > 0


def test_shares_and_added_tokens_are_means_over_the_talks():
    module = studies.user_rule_survival_and_human_labels
    talks = module.make_user_rule_conversations(2)
    (row,) = module.compare_survival_with_keep_rules(talks, ["pi"]).to_dict("records")
    rules = preset("pi", context_window=64_000)
    ratios, kept = [], []
    for plain in (rules, rules.but(summariser=lambda _: module._write_empty_summary(None))):
        totals = [
            sum(int(run_replay(talk.session, r).prompts.sum()) for talk in talks)
            for r in (plain, keep_rules(plain, 400))
        ]
        ratios.append(totals[1] / totals[0])
        last_prompts = [
            "\n".join(i.message.text for i in run_replay(talk.session, plain).sent(119))
            for talk in talks
        ]
        kept.append(
            sum(k in p for t, p in zip(talks, last_prompts, strict=True) for k in t.keys) / 30
        )
    assert row["more_tokens"] == pytest.approx(max(ratios) - 1)
    assert row["more_tokens"] > 0
    assert (row["kept_extract"], row["kept_empty"]) == pytest.approx(kept)
    assert row["compactions_n"] == 1
    assert row["lowest_with"] == row["with_extract"] == row["with_empty"] == 1


@pytest.mark.long
def test_the_page_has_what_is_measured_now(monkeypatch):
    import make_answers

    assert make_answers.measure_rule_survival() in PAGE.read_text(encoding="utf-8")


def test_the_page_says_first_how_much_is_kept():
    kept = re.search(
        r"<!-- measured -->\nWith `keep_rules`, at least (\d+)%", PAGE.read_text(encoding="utf-8")
    )
    assert int(kept[1]) >= 90
    assert studies.user_rule_survival_and_human_labels.RULES_PER_CONVERSATION == 15
