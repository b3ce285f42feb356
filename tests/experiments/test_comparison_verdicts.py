"""A comparison at a glance: words, what folds, what is on the front."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit._internal import display_width
from ctxkit.experiments.setting_verdicts_and_summary_table import (
    choose_setting_from_frame,
    find_pareto_rows,
    group_equal_rows,
    judge_settings,
)

SAMPLE = ck.samples.path("billing")


@pytest.fixture(scope="module")
def found():
    return ck.compare(SAMPLE, ["none", "adk", "pi", "strands", "inspect_edit"], progress=False)


def test_each_setting_has_its_word(found):
    words = dict(zip(found.index, (v.word for v in judge_settings(found)), strict=True))
    assert words["none"] == "over window at call 211"
    assert words["pi"] == "thrashes"


def test_an_end_that_thrashes_is_called_both():
    found = ck.compare(SAMPLE, ["claude_code", "pi"], progress=False)
    said = dict(zip(found.index, judge_settings(found), strict=True))
    assert said["claude_code"].word == "cheapest of all; thrashes"
    assert said["pi"].word == "loses least; thrashes"
    assert said["claude_code"].tone == said["pi"].tone == "bad"
    assert "loses least; thrashes" in found._repr_html_()


def test_the_best_fits_and_does_not_thrash_but_the_record_always_can_be():
    import pandas as pd

    columns = ("rules", "cost_usd", "needed_later_loss", "is_thrashing", "first_call_over_window")
    frame = pd.DataFrame(
        [
            ("recorded", 3.0, 0.3, True, 7),
            ("thrashing", 1.0, 0.1, True, None),
            ("too large", 0.5, 0.0, False, 9),
            ("lossy", 1.5, 0.4, False, None),
            ("sound", 2.0, 0.2, False, None),
            ("dear", 4.0, 0.0, False, None),
        ],
        columns=columns,
    ).assign(error=None)

    def names(rows, max_loss=None):
        choice = choose_setting_from_frame(rows, max_loss)
        return tuple(end.name for end in (choice.best, choice.cheapest, choice.loses_least))

    assert names(frame) == ("sound", "thrashing", "dear")
    assert names(frame, 0.4) == ("lossy", "thrashing", "dear")
    assert names(frame[frame["rules"] != "sound"]) == ("recorded", "thrashing", "dear")
    failed = frame.assign(error=[*[None] * 4, "ValueError", None])
    assert names(failed) == ("recorded", "thrashing", "dear")


def test_the_others_have_one_word(found):
    words = dict(zip(found.index, (v.word for v in judge_settings(found)), strict=True))
    assert words["strands"] == "cheapest of all, 81 % lost"
    assert words["inspect_edit"] == "loses least, within noise"
    assert words["recorded"] == "cheapest within the bound"


def test_the_one_that_forgot_most_is_never_green(found):
    said = dict(zip(found.index, judge_settings(found), strict=True))
    assert found.loc["strands", "vs_recorded"] == "cheaper"
    assert said["strands"].tone == ""
    assert found.loc["inspect_edit", "vs_recorded"] == "within noise"
    assert said["inspect_edit"].tone == ""
    within = dict(zip(found.index, judge_settings(found, max_loss=0.9), strict=True))
    assert within["strands"].tone == "good"
    assert within["strands"].word == "cheapest"


def test_the_verdict_stands_above_the_table_with_both_ends(found):
    assert found.verdict == (
        "Nothing that loses no more than 45 % (as the record did) is cheaper than the record: "
        "$3.29, 45 % lost. Cheapest of all: strands, $1.19, 81 % lost. Loses least: inspect_edit, "
        "$3.44, 0 % lost."
    )
    text = found.to_text()
    assert " ".join(text.split()).startswith(found.verdict)
    page = found._repr_html_()
    assert 0 < page.index(found.verdict) < page.index("<table")


def test_the_rows_stand_by_cost(found):
    dollars = [row[1].value for row in found.summary.rows]
    assert dollars == sorted(dollars)
    assert found.index[0] == "recorded"  # the frame itself stays as it was


def test_the_bound_is_the_users_and_what_is_no_share_is_refused(found):
    made = ck.compare(SAMPLE, ["strands", "none"], progress=False, max_loss=0.85)
    assert made.verdict.startswith("Cheapest of those that lose no more than 85 %: strands, $1.19")
    with pytest.raises(ck.BadArguments, match="max_loss is a share from 0 to 1"):
        ck.compare(SAMPLE, ["none"], max_loss=20)


def test_a_comparison_without_losses_says_that_they_are_unknown():
    made = ck.compare(SAMPLE, ["strands", "none"], loss=False, progress=False)
    assert made.verdict == "Cheapest: strands, $1.19, loss unknown."


def test_reservations_are_shown_where_they_are_asked_for(found):
    assert "Replays keep the recorded trajectory" not in found.to_text()
    assert "Replays keep the recorded trajectory" in " ".join(found.to_text(why=True).split())


def test_the_call_is_the_first_that_does_not_fit(found):
    sizes = [c.message.usage.prompt_tokens for c in found.replays["none"].calls]
    assert (
        next(i for i, n in enumerate(sizes) if n > 48_000)
        == found.loc["none", "first_call_over_window"]
    )
    assert (
        found["first_call_over_window"].notna().tolist()
        == (found["peak_tokens"] > found["window_tokens"]).tolist()
    )


def test_what_does_not_fit_is_on_no_front_and_grey(found):
    assert not any(
        on
        for on, out in zip(
            find_pareto_rows(found), found["first_call_over_window"].notna(), strict=True
        )
        if out
    )
    from ctxkit.plots import frontier_data

    (out,) = (p for p in frontier_data(found) if p.over)
    assert {out.rules, *out.alike} == {"none", "adk"}
    assert not out.on_front


def test_equal_rows_fold_and_the_record_stands_alone(found):
    assert [len(g) for g in group_equal_rows(found)] == [1, 2, 1, 1, 1]
    text = found.to_text()
    assert "none, adk " in text
    assert "none, adk<" in found._repr_html_()
    assert max(map(display_width, text.split("\n"))) <= 80


def test_settings_with_other_windows_have_rows_of_their_own():
    rules = ["none", "adk", "fased:context_window=400000"]
    made = ck.compare(SAMPLE, rules, loss=False, progress=False)
    rows = {row[0].text: row for row in made.summary.rows}
    # neither compacts, so both send the same prompts, but only one of them would be refused
    assert rows["none, adk"][1].text == rows["fased"][1].text
    peak = made.loc["none", "peak_tokens"]
    assert rows["none, adk"][4].value == pytest.approx(peak / 48_000)
    assert rows["fased"][4].value == pytest.approx(peak / 400_000)
    assert rows["none, adk"][-1].text == "over window at call 211"
    assert "over window" not in rows["fased"][-1].text


def test_rules_set_to_a_larger_window_are_held_against_it():
    made = ck.compare(SAMPLE, ["fased:context_window=200000"], loss=False, progress=False)
    assert made["window_tokens"].tolist() == [48_000, 200_000]
    assert made["first_call_over_window"].isna().all()


def test_names_of_the_frontier_do_not_cover_each_other(found):
    import re

    drawn = ck.plots.frontier(found).to_html()
    boxes = []
    for x, y, anchor, text in re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<', drawn
    ):
        wide = 5.8 * len(text)
        left = float(x) - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        boxes.append((left, float(y) - 9, left + wide, float(y) + 2, text))
    assert any(b[4] == "strands" for b in boxes)
    assert any(b[4].startswith("$") for b in boxes)
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]), (a, b)


def test_a_row_of_many_settings_tells_their_number():
    names = ["none", "adk", "boise", "langchain_summary"]
    made = ck.compare(SAMPLE, names, loss=False, progress=False)
    assert "none and 3 more" in made._repr_html_()
