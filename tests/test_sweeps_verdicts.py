"""A comparison at a glance: words, what folds, what is on the front."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit._internal.tables import display_width
from ctxkit.experiments.comparison import find_pareto_rows, group_equal_rows, judge_settings

SAMPLE = ck.samples.path("billing")


@pytest.fixture(scope="module")
def found():
    return ck.compare(SAMPLE, ["none", "adk", "pi", "strands", "inspect_edit"], progress=False)


def test_each_setting_has_its_word(found):
    words = dict(zip(found.index, (v.word for v in judge_settings(found)), strict=True))
    assert words["none"] == "over the window from call 211"
    assert words["pi"] == "thrashes"
    assert words["strands"] == "cheapest on the front"
    assert words["inspect_edit"] == "on the front, within noise"


def test_green_is_only_a_front_whose_cost_is_told_apart_from_the_record(found):
    said = dict(zip(found.index, judge_settings(found), strict=True))
    assert found.loc["strands", "vs_recorded"] == "cheaper"
    assert said["strands"].tone == "good"
    assert found.loc["inspect_edit", "vs_recorded"] == "within noise"
    assert said["inspect_edit"].tone == ""


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
    from ctxkit.plots.sweep_charts import frontier_data

    (out,) = (p for p in frontier_data(found) if p.over)
    assert {out.rules, *out.alike} == {"none", "adk"}
    assert not out.on_front


def test_equal_rows_fold_and_the_record_stands_alone(found):
    assert [len(g) for g in group_equal_rows(found)] == [1, 2, 1, 1, 1]
    text = found.to_text()
    assert "none, adk " in text
    assert "none, adk<" in found._repr_html_()
    assert max(map(display_width, text.split("\n"))) <= 80


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
