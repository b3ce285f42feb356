"""The choice between settings and the advice on them: bounds, ties, order of objections and words."""

from __future__ import annotations

import pandas as pd
import pytest
from builders import assistant, session, user
from example_sessions import make_growing
from experiments.test_cost_and_loss_scores import talk

import ctxkit as ck
from ctxkit.experiments import setting_advice as advice
from ctxkit.experiments import setting_choice_and_sweep_display as choice

A = choice.SettingOutcome("a", 1.0, 0.5)
B = choice.SettingOutcome("b", 2.0, 0.2)
C = choice.SettingOutcome("c", 3.0, 0.0)
UNKNOWN = choice.SettingOutcome("u", 0.5, None)
RECORD = choice.SettingOutcome("recorded", 2.5, 0.3)
WORDS = {
    "a": "a, $1.00, 50 % lost",
    "b": "b, $2.00, 20 % lost",
    "c": "c, $3.00, 0 % lost",
    "u": "u, $0.50, loss unknown",
}


def thrash(outcome):
    return outcome._replace(flaw="it thrashes")


NOTHING = "Nothing can be chosen: no setting that fits the window has a known cost"


@pytest.mark.parametrize(
    ("outcomes", "arguments", "sentence"),
    [
        ([], {}, f"{NOTHING}."),
        ([RECORD], {"record": RECORD}, f"{NOTHING}, the record $2.50, 30 % lost."),
        ([A], {}, f"Cheapest: {WORDS['a']}."),
        ([C, A, B], {}, f"Cheapest: {WORDS['a']}. Loses least: {WORDS['c']}."),
        (
            [A, B, C],
            {"max_loss": 0.2},
            (f"Cheapest of those that lose no more than 20 %: {WORDS['b']}."
            f" Cheapest of all: {WORDS['a']}. Loses least: {WORDS['c']}."),
        ),
        (
            [A, B],
            {"max_loss": 0.2, "bound_origin": "as agreed"},
            (f"Cheapest of those that lose no more than 20 % (as agreed): {WORDS['b']}."
            f" Cheapest of all: {WORDS['a']}."),
        ),
        (
            [thrash(A), B],
            {},
            (f"Cheapest that does not thrash: {WORDS['b']}."
            f" Cheapest of all: {WORDS['a']}, but it thrashes."),
        ),
        ([thrash(A)], {}, f"Cheapest: {WORDS['a']}, but it thrashes."),
        (
            [A._replace(caution="it thrashes in 1 of 3 runs")],
            {},
            f"Cheapest: {WORDS['a']}, but it thrashes in 1 of 3 runs.",
        ),
        (
            [A, B],
            {"max_loss": 0.1},
            (f"No setting loses no more than 10 %. Cheapest of all: {WORDS['a']}."
            f" Loses least: {WORDS['b']}."),
        ),
        (
            [A, thrash(B)],
            {"max_loss": 0.2},
            ("No setting loses no more than 20 % and has no drawback."
            f" Cheapest of all: {WORDS['a']}. Loses least: {WORDS['b']}, but it thrashes."),
        ),
        (
            [thrash(B)],
            {"max_loss": 0.3},
            ("No setting loses no more than 30 % and has no drawback."
            f" Cheapest of all: {WORDS['b']}, but it thrashes. No other loses less."),
        ),
        (
            [RECORD, C],
            {"record": RECORD},
            ("Nothing that loses no more than 30 % (as the record did) is cheaper than the record:"
            f" $2.50, 30 % lost. Loses least: {WORDS['c']}."),
        ),
        (
            [RECORD, C],
            {"record": RECORD, "max_loss": 0.3},
            ("Nothing that loses no more than 30 % is cheaper than the record: $2.50, 30 % lost."
            f" Loses least: {WORDS['c']}."),
        ),
        (
            [UNKNOWN, B],
            {"max_loss": 0.2},
            (f"Cheapest of those that lose no more than 20 %: {WORDS['b']}."
            f" Cheapest of all: {WORDS['u']}."),
        ),
        ([UNKNOWN], {"max_loss": 0.2}, f"No setting loses no more than 20 %. Cheapest of all: {WORDS['u']}."),
    ],
)  # fmt: skip
def test_the_choice_is_a_sentence(outcomes, arguments, sentence):
    assert choice.choose_setting(outcomes, **arguments).sentence == sentence


def test_of_equal_settings_the_one_that_loses_less_or_costs_less_comes_first():
    same_cost = [A, A._replace(name="safe", loss=0.1)]
    assert choice.choose_setting(same_cost).cheapest.name == "safe"
    same_loss = [C._replace(name="dear", usd=9.0), C]
    assert choice.choose_setting(same_loss).loses_least.name == "c"


@pytest.mark.parametrize(
    ("outcomes", "max_loss", "words"),
    [
        ([A, B, C], 0.2, {"a": [("cheapest of all, 50 % lost", "")],
                          "b": [("cheapest within the bound", "good")],
                          "c": [("loses least", "good")]}),
        ([A, B], 0.6, {"a": [("cheapest", "good")], "b": [("loses least", "good")]}),
        ([thrash(A), B], None, {"a": [("cheapest of all, 50 % lost", "")],
                                "b": [("cheapest that does not thrash", "good"),
                                      ("loses least", "good")]}),
        ([UNKNOWN, B], 0.2, {"u": [("cheapest of all", "")], "other": []}),
        ([C], None, {"c": [("cheapest", "good"), ("loses least", "good")]}),
    ],
)  # fmt: skip
def test_each_end_has_its_words(outcomes, max_loss, words):
    made = choice.choose_setting(outcomes, max_loss)
    assert {name: made.name_ends(name) for name in words} == words


def test_what_thrashes_is_called_so_behind_its_other_words():
    ends = [("cheapest of all, 81 % lost", ""), ("loses least", "good")]
    assert choice.make_thrashing_verdict(ends) == ("cheapest of all, loses least; thrashes", "bad")
    assert choice.make_thrashing_verdict([]) == ("thrashes", "bad")


@pytest.mark.parametrize("max_loss", [-0.1, 1.1, True])
def test_a_bound_is_a_share(max_loss):
    with pytest.raises(ck.BadArguments, match="share from 0 to 1"):
        choice.check_max_loss(max_loss)
    for bound in (0, 1, 0.2, None):
        choice.check_max_loss(bound)


def test_thrashing_in_half_of_the_runs_rules_a_setting_out():
    thrashing = {"once": [1], "half": [1, 0], "third": [1, 0, 0], "never": [0, 0]}
    runs = pd.DataFrame(
        [{"rules": n, "is_thrashing": bool(v) or None} for n, vs in thrashing.items() for v in vs]
    )
    noted = choice._note_thrashing([A._replace(name=name) for name in thrashing], runs)
    assert [(o.flaw, o.caution) for o in noted] == [
        ("it thrashes", ""),
        ("it thrashes in 1 of 2 runs", ""),
        ("", "it thrashes in 1 of 3 runs"),
        ("", ""),
    ]


def make_runs(sessions_n, **columns):
    rows = [
        {
            "session": f"s{i}",
            "rules": r,
            "first_call_over_window": None,
            "error": None,
            "note": None,
        }
        for r in ("x", "y", "z", "v", "w")
        for i in range(sessions_n)
    ]
    return pd.DataFrame(rows).astype(object).assign(**columns)


def test_a_sweep_says_what_failed_did_not_fit_or_is_too_little():
    assert choice._describe_sweep(make_runs(5)) == []
    assert choice._describe_sweep(make_runs(4)) == ["4 sessions say little about others."]
    assert choice._describe_sweep(make_runs(1)) == ["1 session says little about others."]
    over = make_runs(5, first_call_over_window=[*[None] * 4, 3, 3, *[None] * 19])
    assert choice._describe_sweep(over) == ["Left out: 2 settings over the window."]
    failed = make_runs(5, error=["E", "E", *[None] * 23])
    assert choice._describe_sweep(failed) == ["2 of 25 runs failed and are in no mean."]
    # of four notes three are shown, each with the number of settings and not of runs
    notes = make_runs(2, note=["a", "a", "b", "a", "c", None, "d", None, None, None])
    assert choice._describe_sweep(notes)[:-1] == [
        "In 2 of 5 settings a",
        "In 1 of 5 settings b",
        "In 1 of 5 settings c",
    ]


ROW = {
    "rules": "a", "sessions_n": 5, "cost_usd": 4.0, "saved_usd": 2.0, "saved_usd_low": 0.5,
    "saved_usd_high": 3.0, "cost_uncertainty_usd": 1.0, "largest_session_share": 0.5,
    "saved_usd_without_largest": 1.25, "max_loss": 0.2, "needed_later_loss": 0.2,
    "needed_later_loss_low": 0.1, "needed_later_loss_high": 0.3, "not_paid_back_n": 1.5,
    "sessions_saving_n": 3, "indistinguishable_from": "",
}  # fmt: skip
BOUNDS = [advice._SessionBound("s", 100, 50, 0.1), advice._SessionBound("other", 100, 50, None)]


@pytest.mark.parametrize(
    ("change", "peak", "objection"),
    [
        ({}, 50, ""),
        ({"sessions_n": 4}, 50, "4 sessions say little about the next one"),
        ({"sessions_n": 1}, 50, "1 session says little about the next one"),
        ({"saved_usd_low": None}, 50, "it is within noise of no management in dollars"),
        ({"saved_usd_low": 0.0}, 50, "it is within noise of no management in dollars"),
        ({"saved_usd": 1.0}, 50, "it is within noise of no management: its dollars are known within $1.00 alone"),
        ({"largest_session_share": 0.51}, 50, "one session makes 51 % of what it saves ($1.25 a session without it)"),
        ({}, 49, "in 1 session it keeps less than what must stay"),
        ({"needed_later_loss": 0.21}, 50, "it loses more than the 20 % that compacting at the window puts at stake, and a little"),
        ({"max_loss": None, "needed_later_loss": 0.9}, 50, ""),
        ({"saved_usd_low": -1.0, "saved_usd": -1.0, "largest_session_share": None}, 9, "it is within noise of no management in dollars"),
        ({"saved_usd": 0.9, "largest_session_share": 0.9}, 9, "it is within noise of no management: its dollars are known within $1.00 alone"),
        ({"largest_session_share": 0.9, "needed_later_loss": 0.9}, 9, "one session makes 90 % of what it saves ($1.25 a session without it)"),
        ({"needed_later_loss": 0.9}, 9, "in 1 session it keeps less than what must stay"),
    ],
)  # fmt: skip
def test_the_first_objection_in_the_order_of_severity_is_named(change, peak, objection):
    peaks = {"rules": ["a", "a", "b"], "session": ["s", "s", "s"], "peak_tokens": [1, peak, 1]}
    assert advice._find_objection(ROW | change, pd.DataFrame(peaks), BOUNDS) == objection


def test_no_management_is_advised_where_all_sessions_fit_the_window():
    def object_to(peak, sessions_n=5):
        rules = [advice.NO_MANAGEMENT, "a"]
        runs = pd.DataFrame({"rules": rules, "session": ["s", "s"], "peak_tokens": [peak, 999]})
        return advice._find_objection_to_none(sessions_n, runs, BOUNDS)

    assert object_to(100) == ""
    assert object_to(101) == "1 session would not fit the window"
    assert object_to(101, 4) == "4 sessions say little about the next one"


def test_cheaper_settings_closer_than_the_uncertainty_are_alternatives():
    best = pd.DataFrame({"rules": ["a", "b", "c", "d"], "cost_usd": [1.0, 1.5, 2.0, 2.0]})

    def list_near(uncertainty):
        row = {"rules": "c", "cost_usd": 2.0, "cost_uncertainty_usd": uncertainty}
        return advice._indistinguishable_from(row, best)

    assert [list_near(usd) for usd in (0.0, 0.5, 0.6, 1.1)] == ["", "", "b", "a, b"]


def test_the_savings_are_those_of_sessions_with_both_costs():
    none = advice.NO_MANAGEMENT
    rows = [(none, "s", 5.0), ("a", "s", 1.0), ("a", "s", 2.0), (none, "t", 3.0), ("a", "t", None),
            ("a", "u", 1.0), (none, "v", 2.0), ("a", "v", 4.0)]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["rules", "session", "cost_usd"])
    assert advice._list_savings(runs, "a") == [3.5, -2.0]


def test_the_advice_is_a_sentence():
    text = (
        "a: $4.00 a session ($2.00 less than no management, 90 % interval $0.50 to $3.00;"
        " 3 of 5 sessions carry it{}); 20 % of what was used again had been cut away (10 % to"
        " 30 %); 1.5 compactions a session were not paid back.{}"
    )
    share = ", the largest 50 % of it"
    write = advice._write_advice
    assert write(ROW, "") == text.format(share, "")
    assert write(ROW, "so") == f"Not advised, as so: {text.format(share, '')}"
    assert write(ROW | {"largest_session_share": None}, "") == text.format("", "")
    near = " In dollars, known within $1.00, it is like x."
    assert write(ROW | {"indistinguishable_from": "x"}, "") == text.format(share, near)
    unknown = " The error of these dollars is not known."
    assert write(ROW | {"cost_uncertainty_usd": None}, "") == text.format(share, unknown)
    assert write(ROW | {"sessions_n": 4}, "") == (
        "a: $4.00 a session ($2.00 less than no management); 20 % of what was used again had been"
        " cut away; 1.5 compactions a session were not paid back."
    )
    assert write({**ROW, "rules": advice.NO_MANAGEMENT, "sessions_n": 1}, "") == (
        "no management: $4.00 a session and nothing out of sight, while the window holds it all;"
        " over 1 session."
    )


def test_the_advised_setting_is_the_first_advised_else_the_cheapest():
    def get(rules, advised):
        return advice.get_advised_setting(pd.DataFrame({"rules": rules, "advised": advised}))

    assert get(["a", "b", "c"], [False, True, True]) == "b"
    assert get(["a", "b"], [False, False]) == "a"
    assert get([advice.NO_MANAGEMENT, "b"], [True, False]) == "none"


def test_sessions_without_usage_have_no_part_in_advice():
    silent = session(user("word " * 400), assistant("ok"), id="silent", notes=("No usage.",))
    noted = make_growing(4, id="noted", cached=False, notes=("One.", "Two."))
    table = ck.advise([silent, noted], "none", progress=False)
    assert set(table["session_notes"]) == {"noted: One. noted: Two."}
    assert set(table["sessions_n"]) == {1}
    with pytest.raises(ck.BadArguments, match="usage and prices; of the 1 given none has them all"):
        ck.advise(silent, "none", progress=False)
    free = ck.advise(talk(4, model="nobody-knows"), "none", progress=False)
    assert free.empty
    assert "Nothing is advised: no setting has a cost on every session." in repr(free)


def make_advice(sessions_n, **columns):
    rows = [{**ROW, "sessions_n": sessions_n, "rules": r, "cost_usd": usd, "needed_later_loss": loss,
             "advised": False, "advice": f"About {r}."}
            for r, usd, loss in (("a", 1.0, 0.5), ("b", 2.0, 0.2), ("c", 3.0, 0.0))]  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


def test_the_display_of_advice_begins_with_what_is_advised():
    shown = choice.display_advice(make_advice(5, advised=[False, True, True]))
    assert shown.verdict == "About b."
    assert shown.notes == (choice._SAVED_NOTE, "About a.", "About c.")
    assert len(shown.table.heads) == len(choice.ADVICE_COLUMNS)
    none = choice.display_advice(make_advice(5))
    bound = "20 % (5 points above the 15 % that compacting at the window puts at stake)"
    best = f"Cheapest of those that lose no more than {bound}: {WORDS['b']}."
    ends = f" Cheapest of all: {WORDS['a']}. Loses least: {WORDS['c']}."
    assert none.verdict == f"Nothing is advised; the table says why. {best}{ends}"
    assert choice.display_advice(make_advice(5).head(0)).verdict == (
        "Nothing is advised: no setting has a cost on every session."
    )
    few = choice.display_advice(make_advice(4, max_loss=None))
    assert few.verdict == (
        f"Cheapest: {WORDS['a']}. Loses least: {WORDS['c']}. This holds for these 4 sessions and"
        " says little about the next: advice needs 5."
    )
    assert len(few.table.heads) == len(choice.ADVICE_COLUMNS) - 3
    one = choice.display_advice(make_advice(1))
    assert " This holds for this one session and says little about the next" in one.verdict
