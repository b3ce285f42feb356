"""One threshold for many sessions: against brute force, the tool's default, price steps and later sessions."""

from __future__ import annotations

from statistics import fmean

import pytest
from builders import assistant, session, user
from widgets.reports.hostile_logs import EVIL, list_leaks

import ctxkit as ck
from ctxkit import studies
from ctxkit.errors import BadArguments
from ctxkit.metrics import GrowthProfile, SharedThreshold, optimal_trigger_floor_and_wait
from ctxkit.metrics.threshold_replays import (
    LaterSessionsTrial,
    SessionThresholdCosts,
    ThresholdCostAndLoss,
    choose_threshold,
    is_near_price_step,
    list_spaced_and_step_thresholds,
    measure_costs_by_threshold,
    validate_on_later_sessions,
)
from ctxkit.metrics.trigger_setting_instructions_by_agent import (
    PRESETS_BY_FORMAT,
    find_default_trigger,
)
from ctxkit.session import Message, Session, Usage


def rows(*costs: dict[int, tuple[float, float | None]], steps=()) -> list[SessionThresholdCosts]:
    return [
        SessionThresholdCosts(
            f"s{i}", 5, 4, 1_000, steps, {n: ThresholdCostAndLoss(*c) for n, c in by_size.items()}
        )
        for i, by_size in enumerate(costs)
    ]


@pytest.fixture(scope="module")
def developer() -> list[Session]:
    return studies.forecast_and_threshold_holdout.make_developers(7)["dev-6"]


@pytest.fixture(scope="module")
def answer(developer) -> SharedThreshold:
    return ck.when(developer)


def test_the_cheapest_within_the_loss_of_the_default_is_chosen():
    measured = rows({10: (1.0, 0.3), 20: (2.0, 0.1), 30: (3.0, 0.1)})
    assert choose_threshold(measured, 30) == 20
    assert choose_threshold(measured, 30, 0.25) == 10
    assert choose_threshold(measured, 10) == 10


def test_a_choice_leaves_a_part_of_the_allowed_loss_to_chance():
    measured = rows({10: (1.0, 0.29), 20: (2.0, 0.26), 30: (3.0, 0.1)})
    assert choose_threshold(measured, 30, 0.2) == 20  # aims at 0.16 more than the default's 0.1


def test_losses_are_means_over_sessions_that_use_something_again():
    measured = rows(
        {10: (1.0, 0.4), 20: (2.0, 0.2)},
        {10: (1.0, 0.0), 20: (2.0, 0.2)},
        {10: (1, None), 20: (2, None)},
    )
    assert choose_threshold(measured, 20) == 10


def test_of_equal_costs_the_default_is_the_answer():
    assert choose_threshold(rows({10: (1.0, 0.0), 20: (1.0, 0.0), 30: (1.0, 0.0)}), 20) == 20


def test_no_threshold_lies_near_a_price_step_even_if_it_is_the_default():
    costs = {95: (2.0, 0.0), 96: (0.5, 0.0), 104: (1.0, 0.0)}
    assert choose_threshold(rows(costs) + rows(costs, steps=(100,)), 104) == 95
    assert choose_threshold(rows({**costs, 105: (1.5, 0.0)}, steps=(100,)), 104) == 105
    assert choose_threshold(rows({99: (1.0, 0.0)}, steps=(100,)), 99) is None


def test_sizes_just_below_steps_are_candidates():
    sizes = list_spaced_and_step_thresholds(400_000, 360_000, {272_000})
    assert {258_000, 360_000, 400_000} <= set(sizes)
    assert sizes == tuple(sorted(sizes))
    assert not is_near_price_step(258_000, {272_000})


def test_a_size_within_the_floor_of_a_session_is_no_threshold(developer):
    profile = GrowthProfile(developer[0])
    measured = measure_costs_by_threshold(profile, (30_000, 90_000), floor=50_000)
    assert list(measured.costs) == [90_000]
    assert measured.keep < measured.floor == 50_000


def test_a_session_costs_what_compare_says(developer):
    s = developer[1]
    timing = ck.when(s)
    measured = measure_costs_by_threshold(GrowthProfile(s), (timing.best,))
    assert measured.costs[timing.best].usd == pytest.approx(timing.session_usd)
    losses = {c.name: c.loss for c in timing.trigger_costs}
    assert measured.costs[timing.best].loss == pytest.approx(losses["best"])


def test_one_session_gets_the_answer_of_one(developer):
    one = developer[0]
    settings = {"context_window": 300_000, "floor": 50_000, "summary_tokens": 900}
    answer = optimal_trigger_floor_and_wait.when_to_compact(one)
    assert ck.when(one) == ck.when([one]) == answer
    other = optimal_trigger_floor_and_wait.when_to_compact(one, **settings)
    assert (other.window, other.floor) == (300_000, 50_000)
    assert ck.when([one], **settings) == other


def test_the_answer_is_the_best_of_all_sizes_by_hand(developer, answer):
    default = find_default_trigger("claude-code", 1_000_000)
    assert (answer.default, answer.window, answer.sessions_n) == (default, 1_000_000, 8)
    means = {
        n: (
            fmean(m.costs[n].usd for m in answer.session_costs),
            fmean(m.costs[n].loss for m in answer.session_costs),
        )
        for n in answer.session_costs[0].costs
        if all(n in m.costs for m in answer.session_costs)
    }
    most = means[default][1] + 0.8 * 0.05
    fits = {
        n: usd
        for n, (usd, loss) in means.items()
        if loss <= most and not is_near_price_step(n, {100_000})
    }
    assert fits[answer.best] == pytest.approx(min(fits.values()))
    assert answer.saved_usd.mean == pytest.approx(means[default][0] - means[answer.best][0])
    assert answer.saved_usd.low < answer.saved_usd.mean < answer.saved_usd.high
    assert answer.more_loss.mean == pytest.approx(means[answer.best][1] - means[default][1])


def test_it_prints_the_setting_in_80_columns(answer):
    text = answer.to_text(why=True)
    assert text.startswith(
        "Compact at 92,000 tokens, not at the default of 967,000: a session costs"
    )
    assert "/autocompact 125k" in text
    assert "Prompts above 100,000 tokens are dearer" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_later_half_has_no_say_in_what_is_tried_on_it(answer):
    half = answer.session_costs[:4]
    # to the later half the default is free, and all other sizes are dear
    dear = [
        m._replace(
            costs={n: ThresholdCostAndLoss(9.0 * (n != answer.default), 1.0) for n in m.costs}
        )
        for m in answer.session_costs[4:]
    ]
    assert choose_threshold([*half, *dear], answer.default, 0.05) == answer.default
    tried = validate_on_later_sessions([*half, *dear], answer.default, 0.05)
    assert (
        tried.size
        == answer.later_sessions_trial.size
        == choose_threshold(half, answer.default, 0.05)
        != answer.default
    )
    assert tried.loss == 1.0


def test_few_sessions_have_no_interval_and_no_trial(developer):
    few = ck.when(developer[:3])
    assert few.saved_usd.low is None
    assert few.later_sessions_trial is None
    assert "Fewer than five sessions" in str(few)


def test_without_more_loss_the_default_stays(developer):
    strict = ck.when(developer, extra_loss=0.0)
    assert not strict.is_change
    assert strict.setting == ""
    assert str(strict).startswith("Keep the default of 967,000 tokens: over 8 sessions no other")


def test_the_tool_of_most_calls_is_answered_for(developer):
    import msgspec

    other = msgspec.structs.replace(developer[0], format="codex", id="other")
    mixed = ck.when([other, *developer[:3]])
    assert mixed.format == "claude-code"
    assert "Sessions of codex are not in this answer" in str(mixed)
    assert ck.when([other, other, *developer[:3]], tool="codex").format == "codex"
    with pytest.raises(BadArguments, match="no session of pi; there are: claude-code"):
        ck.when(developer[:2], tool="pi")


def test_sessions_that_cannot_be_replayed_are_named(developer):
    bare = session(user("hi"), assistant("there"))
    with pytest.raises(BadArguments, match=r"None of 2 sessions can be replayed: .*no usage"):
        ck.when([bare, bare])
    odd = Session(id="odd", format="claude-code", log=bare.log)
    assert "1 session left out" in str(ck.when([odd, *developer[:2]]))
    model = next(m.model for m in developer[0].messages if m.model)
    level = [assistant("x", usage=Usage(input_tokens=900), model=model) for _ in range(3)]
    steady = [
        Session(id=f"{i}", title=f"steady {i}", format="claude-code", log=(user("go"), *level))
        for i in range(2)
    ]
    assert ck.when([*steady, *developer[:2]]).notes == (
        "2 sessions left out: The prompts do not grow, so nothing has to be compacted.",
    )
    with pytest.raises(BadArguments, match="from 0 to 1"):
        ck.when(developer, extra_loss=2)


def test_a_session_that_cannot_be_compacted_at_the_default_is_left_out(developer):
    """The default is 117,000 tokens, and no prompt of the third session is below 150,000."""
    from msgspec.structs import replace

    larger = tuple(
        replace(m, usage=replace(m.usage, input_tokens=m.usage.input_tokens + 150_000))
        if isinstance(m, Message) and m.usage
        else m
        for m in developer[0].log
    )
    sessions = [*developer[:2], replace(developer[0], id="larger", log=larger)]
    answer = ck.when(sessions, context_window=150_000)
    assert (answer.default, answer.sessions_n) == (117_000, 2)
    assert answer.notes == (
        "1 session left out: a compaction leaves more than the default, or no price.",
    )
    assert ck.when(developer[:2], context_window=150_000).notes == ()


@pytest.mark.parametrize("name", PRESETS_BY_FORMAT)
def test_every_default_lies_in_its_window(name):
    for window in (128_000, 200_000, 1_000_000):
        assert 0 < find_default_trigger(name, window) < window


def test_an_unknown_tool_has_no_default():
    assert find_default_trigger("kimi-cli", 200_000) is None


def test_text_of_a_log_stays_text(developer):
    import msgspec

    evil = [
        msgspec.structs.replace(s, id=f"{EVIL}{i}", format=EVIL)
        for i, s in enumerate(developer[:2])
    ]
    shown = ck.when(evil)
    assert list_leaks(str(shown)) == []
    assert list_leaks(shown._repr_html_(), html=True) == []


COSTS = {100: (1.0, 0.30), 200: (1.5, 0.12), 300: (2.0, 0.10), 400: (2.5, 0.10)}
"""Dollars and loss of each session by threshold."""


def make_threshold(*, n=2, best=200, default=400, costs=COSTS, held_out=None, **more):
    measured = tuple(rows(*[costs] * n, steps=more.pop("steps", ())))
    return SharedThreshold(
        "claude-code", best, default, is_default_known=more.pop("is_known", True),
        window=1_000, session_costs=measured, extra_loss=more.pop("extra_loss", 0.05), later_sessions_trial=held_out,
        **more,
    )  # fmt: skip


ANSWERS = {
    "Compact at 200 tokens, not at the default of 400: a session costs $1.00 less; 2.0 points more"
    " of what is used again is at stake. Over 2 sessions.": {},
    "Compact at 300 tokens, not at the window's own limit of 400: a session costs $0.50 less; no"
    " more of what is used again is at stake. Over 1 session.": {
        "n": 1,
        "best": 300,
        "is_known": False,
    },
    "Compact at 400 tokens, not at the default of 200: a session costs -$1.00 more, as the default"
    " lies at a price step; 2.0 points less of what is used again is at stake. Over 2 sessions.": {
        "best": 400,
        "default": 200,
    },
    "Compact at 200 tokens, not at the default of 400: a session costs $1.00 ($1.00 to $1.00) less;"
    " 2.0 points (+2.0 to +2.0) more of what is used again is at stake. Over 5 sessions.": {"n": 5},
    "Compact at 200 tokens, not at the default of 400: a session costs $1.00 less. Over 2"
    " sessions.": {"costs": {n: (usd, None) for n, (usd, _) in COSTS.items()}},
    "Keep the default of 200 tokens: over 2 sessions no other threshold costs less with at most 5"
    " points more loss.": {"default": 200},
    "Keep the default of 200 tokens: over 2 sessions no other threshold costs less with no more"
    " loss.": {"default": 200, "extra_loss": 0.0},
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_answer_says_what_a_session_saves_and_loses(answer):
    threshold = make_threshold(**ANSWERS[answer])
    assert threshold.answer == answer
    assert bool(threshold.setting) is threshold.is_change is answer.startswith("Compact")


def test_the_sentences_say_how_far_the_answer_carries():
    tried = LaterSessionsTrial(300, 3, 4, 1.25, 2.5, 0.1, 0.2)
    default = tried._replace(size=400)
    unknown = tried._replace(loss=None)
    plain = "Tried: the first 3 sessions alone choose {}. On the later 4 "
    for trial, words in (
        (None, "Not tried on later sessions: that needs two in each half."),
        (
            tried,
            plain.format(300)
            + "it costs $1.25 a session, not $2.50, with 10 % at stake, not 20 %.",
        ),
        (default, plain.format(400) + "that is the default itself: nothing is saved."),
        (unknown, plain.format(300) + "it costs $1.25 a session, not $2.50."),
    ):
        assert make_threshold(held_out=trial).sentences()[0] == words
    few, five = make_threshold(notes=("A note.",)).sentences(), make_threshold(n=5).sentences()
    assert few[1] == "2 of 2 sessions reach the default, 2 the threshold."  # of 1,000 tokens
    assert few[2].startswith("Fewer than five sessions")
    assert few[-1] == "A note."
    assert not any(s.startswith("Fewer than five") for s in five)
    assert "With no more loss than the default's it would be 300, which saves $0.50 a session." in few  # fmt: skip
    assert "In dollars alone it would be 100, but 20.0 points more is at stake." in few
    assert not any("dearer" in s for s in few)
    stepped = make_threshold(steps=(700, 1_000)).sentences()
    assert "Prompts above 700 tokens are dearer: no threshold within 5 % of that." in stepped
    lossless = make_threshold(best=100, costs={100: (1.0, 0.3), 400: (2.5, 0.1)}).sentences()
    assert "With no more loss than the default's it would be the default, 400." in lossless


def test_the_table_names_the_best_the_default_and_the_cheapest():
    table = make_threshold(is_known=False).table
    cells = [[cell.text for cell in row] for row in table.rows]
    assert [row[:3] for row in cells] == [
        ["dollars alone", "100", "$1.00"],
        ["best", "200", "$1.50"],
        ["", "300", "$2.00"],
        ["window", "400", "$2.50"],
    ]
    assert [row[3] for row in cells] == ["$1.50", "$1.00", "$0.50", ""]
    assert [row[4] for row in cells] == ["30 %", "12 %", "10 %", "10 %"]
    assert [row[0].tone for row in table.rows] == ["", "good", "", ""]
    assert not any(cell.hover for row in table.rows for cell in row)


def test_the_text_and_the_page_say_the_answer_the_setting_the_reasons_and_the_table():
    known, unknown = (
        make_threshold(notes=("A <note>.",), is_known=is_known) for is_known in (True, False)
    )
    assert [(h.name, h.hover, h.number, h.firm) for h in known.table.heads] == [
        ("", "where the context is compacted", False, True),
        ("threshold", "tokens of the prompt at which it is compacted", True, False),
        ("a session", "mean dollars of a session", True, False),
        ("saved", "mean dollars that a session saves, with its 90 % interval", True, False),
        ("at stake", "share of what is used again that is removed before its use", True, False),
    ]
    parts = [known.setting, known.sentences()[0], "A <note>.", known.table.to_text()]
    text = known.to_text()
    assert text.startswith("Compact at 200 tokens, not at the default of 400:")
    assert [text.count(part) for part in parts] == [1, 1, 1, 1]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert repr(known) == text
    basis = known.to_text(why=True).removeprefix(text)
    assert " ".join(basis.split()) == known.assumptions()
    assert "Window 1,000; the default is that of the tool's preset." in known.assumptions()
    assert "the default is not known, so the window's limit stands for it." in unknown.assumptions()
    page = known._repr_html_()
    marks = [f">{known.answer}</strong>", "Set it in Claude Code", "<ul><li>", "<li>A &lt;note&gt;.</li></ul>", "<table", "What these figures rest on", known.assumptions()[:9]]  # fmt: skip
    assert [page.index(mark) for mark in marks] == sorted(page.index(mark) for mark in marks)
    costs = [known.session_costs[0]._replace(keep=n) for n in (1, 2, 9)]
    assert known._replace(session_costs=costs).keep == 2


def test_the_figures_of_an_answer_are_plain_values():
    trial = LaterSessionsTrial(300, 3, 4, 1.25, 2.5, 0.1, 0.2)
    costs = {200: (1.5, 0.1), 400: (2.5, 0.1)}
    figures = make_threshold(n=5, costs=costs, held_out=trial, notes=("A note.",)).to_dict()
    sessions = figures.pop("sessions")
    assert figures == {
        "tool": "claude-code",
        "best": 200,
        "default": 400,
        "window": 1_000,
        "sessions_n": 5,
        "saved_usd": {"mean": 1.0, "low": 1.0, "high": 1.0},
        "more_loss": {"mean": 0.0, "low": 0.0, "high": 0.0},
        "held_out": {
            "size": 300,
            "earlier_n": 3,
            "later_n": 4,
            "usd": 1.25,
            "default_usd": 2.5,
            "loss": 0.1,
            "default_loss": 0.2,
        },
        "notes": ("A note.",),
    }
    assert len(sessions) == 5
    assert sessions[0]["costs"] == [
        {"threshold": 200, "usd": 1.5, "loss": 0.1},
        {"threshold": 400, "usd": 2.5, "loss": 0.1},
    ]
    lossless = {n: (usd, None) for n, (usd, _) in costs.items()}
    untried = make_threshold(costs=lossless).to_dict()
    assert (untried["held_out"], untried["more_loss"]) == (None, None)
    assert untried["saved_usd"] == {"mean": 1.0, "low": None, "high": None}
