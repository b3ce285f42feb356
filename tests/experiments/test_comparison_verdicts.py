"""A comparison at a glance: words, what folds, what is on the front."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit._internal import display_width
from ctxkit.experiments import rules_comparison_on_one_session as comparison
from ctxkit.experiments import setting_verdicts_and_summary_table as verdicts
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
        ck.sweep([], "none", max_loss=2, progress=False)  # before there are found no sessions
    for no_share in (20, 1.01, -0.01, True):
        with pytest.raises(ck.BadArguments, match="max_loss is a share from 0 to 1"):
            ck.compare(SAMPLE, ["none"], max_loss=no_share)


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


ROW = {
    "rules": "a", "cost_usd": 2.0, "cost_low_usd": 1.5, "cost_high_usd": 2.5, "real_run_low_usd": None,
    "real_run_high_usd": None, "vs_recorded": None, "is_thrashing": False, "error": None,
    "first_call_over_window": None, "peak_tokens": 50_000, "window_tokens": 200_000,
    "compactions_n": 3, "not_paid_back_n": 0, "needed_later_loss": 0.25,
}  # fmt: skip
GOOD, PLAIN = [("cheapest within the bound", "good")], [("cheapest of all, 50 % lost", "")]


@pytest.mark.parametrize(
    ("change", "ends", "front", "verdict"),
    [
        ({}, [], False, ("", "", ())),
        ({}, [], True, ("Pareto front", "", ("Pareto front",))),
        ({}, GOOD, True, ("cheapest within the bound", "good", ("cheapest within the bound",))),
        ({"error": "E: no", "is_thrashing": True}, GOOD, True, ("failed", "bad", ("E: no",))),
        ({"is_thrashing": True}, PLAIN, False,
         ("cheapest of all; thrashes", "bad", ("cheapest of all; thrashes",))),
        ({"first_call_over_window": 1234}, [], True,
         ("over window at call 1,234", "grey", ("over window at call 1,234", "Pareto front"))),
        ({"first_call_over_window": 7, "is_thrashing": True, "vs_recorded": "cheaper"}, [], False,
         ("over window at call 7", "grey",
          ("over window at call 7", "thrashes", "cheaper than the record"))),
        ({"rules": "recorded", "vs_recorded": "cheaper"}, [], False, ("as it was", "", ("as it was",))),
        ({"vs_recorded": "dearer"}, [], False,
         ("dearer than the record", "", ("dearer than the record",))),
        ({"vs_recorded": "within noise"}, [], False, ("within noise", "", ("within noise",))),
        ({"vs_recorded": "within noise"}, GOOD, False,
         ("cheapest within the bound, within noise", "",
          ("cheapest within the bound", "within noise"))),
        ({"vs_recorded": "within noise"}, PLAIN, False,
         ("cheapest of all, 50 % lost", "", ("cheapest of all, 50 % lost", "within noise"))),
        ({"vs_recorded": "cheaper"}, GOOD, False,
         ("cheapest within the bound", "good",
          ("cheapest within the bound", "cheaper than the record"))),
    ],
)  # fmt: skip
def test_a_verdict_names_the_most_important_first(change, ends, front, verdict):
    assert verdicts._judge_setting(ROW | change, ends, front=front) == verdict


def make_row(names=("a",), recorded_usd=4.0, **change):
    verdict = verdicts.SettingVerdict("word", "good", ("word", "more"))
    cells = verdicts._make_summary_row(list(names), ROW | change, verdict, recorded_usd)
    return dict(
        zip(("name", "usd", "change", "peak", "window", "n", "lost", "word"), cells, strict=True)
    )


def test_the_cells_of_a_setting_have_its_figures_and_what_they_rest_on():
    row = make_row()
    texts = [cell.text for cell in row.values()]
    assert texts == ["a", "$2.00", "-50 %", "50.0k", "25 %", "3", "25 %", "word"]
    assert [c.value for c in row.values()] == [None, 2.0, -0.5, 50_000, 0.25, 3.0, 0.25, None]
    assert row["usd"].hover == "$1.50 to $2.50 by what the cache model misses"
    assert (row["window"].hover, row["word"].hover) == ("of 200.0k tokens", "word; more")
    both = make_row(real_run_low_usd=1.0, real_run_high_usd=3.0)["usd"].hover
    assert both.endswith("model misses; of real runs $1.00 to $3.00")
    assert make_row(cost_high_usd=1.5)["usd"].hover == ""  # a record has no interval
    assert make_row(not_paid_back_n=2)["n"].hover == "2 of them never paid"
    assert make_row()["n"].hover == ""
    for unknown in ({"recorded_usd": None}, {"recorded_usd": 0.0}, {"rules": "recorded"}):
        assert make_row(**unknown)["change"].text == ""
    assert make_row(cost_usd=None)["usd"].text == make_row(cost_usd=None)["change"].text == ""
    for missing in ({"window_tokens": None}, {"window_tokens": 0}, {"peak_tokens": None}):
        assert make_row(**missing)["window"][:3] == ("", None, "the window is not known")


def test_a_group_is_named_by_none_else_by_its_shortest_name():
    assert make_row(["long", "abc", "none"])["name"].text == "none, abc, long"
    assert make_row(["b" * 9, "a" * 9])["name"].text == f"{'b' * 9}, {'a' * 9}"  # 20 characters
    assert make_row(["b" * 10, "a" * 9])["name"].text == f"{'a' * 9} and 1 more"
    assert make_row(["b" * 30])["name"].text == "b" * 30
    assert make_row(["b" * 10, "a" * 9])["name"].hover == f"{'b' * 10}, {'a' * 9}"


def test_what_failed_or_does_not_fit_is_grey():
    def list_tones(verdict, **change):
        row = verdicts._make_summary_row(["a"], ROW | change, verdict, 4.0)
        return {cell.tone for cell in row[:-1]}

    assert list_tones(verdicts.SettingVerdict("x", "bad")) == {""}
    assert list_tones(verdicts.SettingVerdict("x", "grey")) == {"grey"}
    assert list_tones(verdicts.SettingVerdict("failed", "bad"), error="E") == {"grey"}


def test_figures_of_the_detail_are_written_by_their_kind():
    wanted = {
        ("token_savings", 0.099): "9.9 %", ("token_savings", 0.1): "10 %",
        ("message_savings", -0.05): "-5.0 %", ("is_thrashing", True): "yes",
        ("is_thrashing", False): "no", ("vs_recorded", "dearer"): "dearer",
        ("cost_usd", 1234.5): "$1,234.50", ("calls_n", 1234): "1,234", ("cost_usd", None): "",
    }  # fmt: skip
    assert {k: comparison._format_value(*k) for k in wanted} == wanted
    column, row = "real_run_low_usd", {"real_run_low_usd": 1.0, "real_run_high_usd": 2.5}
    assert comparison._format_cell(column, row) == "$1.00–2.50"
    assert comparison._format_cell(column, {**row, "real_run_high_usd": 1.0}) == "$1.00"
    assert comparison._format_cell(column, {**row, "real_run_low_usd": None}) == ""
    order = [
        comparison._sort_value("vs_recorded", v) for v in ("cheaper", "within noise", "dearer")
    ]
    assert order == [-1, 0, 1]
    assert comparison._sort_value("vs_recorded", None) is None
    assert comparison._sort_value("cost_usd", 3) == 3.0


def test_prices_of_the_log_that_differ_from_the_table_are_named():
    def describe(log_usd, list_usd):
        frame = ck.experiments.Comparison({"cost_usd": [log_usd], "list_price_usd": [list_usd]})
        return frame._describe_prices()

    assert describe(100.0, 101.0) == describe(100.0, 99.0) == ""
    assert describe(None, 1.0) == describe(1.0, None) == ""
    sentence = " By the table of prices, as replays are billed, the record would cost ${}."
    assert describe(100.0, 98.5) == sentence.format("98.5")
    assert describe(100.0, 1234.5) == sentence.format("1,234")


def test_a_comparison_says_why_no_dollars_are_known():
    from builders import assistant, session, user
    from experiments.test_cost_and_loss_scores import talk
    from msgspec.structs import replace

    silent = session(*(m for _ in range(4) for m in (user("word " * 50), assistant("ok"))))
    for made, cause in (
        (
            replace(talk(3, model="nobody-knows"), model="nobody-knows"),
            "model 'nobody-knows' has no price",
        ),
        (talk(3, model="named-by-a-call"), "model 'named-by-a-call' has no price"),
        (silent, "the log has no usage"),
    ):
        found = ck.compare(made, ["none"], progress=False)
        assert found.verdict.endswith(f" As {cause}, settings are compared by size and loss alone.")
        assert found.verdict.startswith("Nothing can be chosen")
    assert " As " not in ck.compare(talk(3), ["none"], progress=False).verdict
