"""An agent that does not look does what was predicted; one that looks shows what was missed."""

from __future__ import annotations

import pytest
from trust_studies import list_closed_loop_rules

import ctxkit as ck
from ctxkit import studies
from ctxkit._internal import format_change
from ctxkit.agent import GIVE_UP_TEXT

SMALL = {"questions": 24, "services": 12, "lines": 60}
ATTACHES = ck.presets.claude_code(context_window=37_000)
"""It puts files beside its summary: no model wrote them, so no bill may count them as output."""
RULES = [
    "none",
    *(ck.presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (1, 3)),
    *(r for r in list_closed_loop_rules()[4:] if getattr(r, "name", "") != "claude_code"),
    ATTACHES,
]


@pytest.fixture(scope="module")
def small():
    return studies.closed_loop.make_port_lookup_task(**SMALL)


@pytest.fixture(scope="module")
def blind(small):
    return ck.studies.closed_loop.loop(RULES, small, blind=True)


@pytest.fixture(scope="module")
def seeing(small):
    return ck.studies.closed_loop.loop(RULES, small)


def test_with_its_eyes_closed_all_comes_true(blind):
    assert (blind["tokens_predicted"] == blind["tokens_real"]).all()
    assert (blind["calls_predicted"] == blind["calls_real"]).all()
    assert blind["usd_error"].abs().max() < 1e-6
    assert (blind["rereads_n"] == 0).all()
    assert blind["tokens_predicted"].nunique() >= 4  # the rules did something


def test_the_foretelling_of_other_rules_does_not_come_true(blind):
    managed = blind.drop(index="none")
    shifted = managed["tokens_predicted"].to_numpy()[[*range(1, len(managed)), 0]]
    assert (shifted != managed["tokens_real"]).any()
    off = abs(
        managed["usd_predicted"].sample(frac=1, random_state=1).to_numpy() / managed["usd_real"] - 1
    )
    assert off.max() > 0.1


def test_with_its_eyes_open_it_looks_again_for_what_is_gone(seeing, blind):
    assert (
        seeing.loc["none", ["rereads_n", "out_of_sight", "calls_error", "usd_error"]].tolist()
        == [0] * 4
    )
    mask = seeing.loc["mask 3"]
    assert mask["calls_real"] == mask["calls_predicted"] + mask["rereads_n"]
    assert 0 < mask["rereads_n"] <= mask["out_of_sight"]
    assert mask["usd_error"] > mask["calls_error"] > 0.1
    assert (seeing["calls_predicted"] == blind["calls_predicted"]).all()


def test_what_was_out_of_sight_foretells_what_is_read_again(seeing):
    kept = seeing.drop(index="mask 1")  # two numbers never stand together: it gives up
    assert kept["out_of_sight"].corr(kept["rereads_n"]) > 0.7
    assert seeing.loc["mask 1", "unanswered_n"] > 0
    assert (kept["unanswered_n"] == 0).all()


def test_worlds_and_lives_are_the_same_each_time(small):
    assert studies.closed_loop.make_port_lookup_task(**SMALL) == small
    assert studies.closed_loop.make_port_lookup_task(**SMALL, seed=8) != small
    one, two = (ck.studies.closed_loop.run_scripted_agent(RULES[2], small) for _ in range(2))
    assert [m.parts for m in one.messages] == [m.parts for m in two.messages]
    answers = [m.text for m in one.messages if m.role == "assistant" and m.text]
    sums = [sum(small.ports[n] for n in names) for names in small.services_by_question]
    assert answers == [f"The sum is {n}." for n in sums]
    assert GIVE_UP_TEXT not in answers


def test_it_sees_numbers_wherever_they_stand(small):
    session = ck.studies.closed_loop.run_scripted_agent("none", small)
    assert studies.closed_loop.find_visible_services(session.messages) == {
        name for names in small.services_by_question for name in names
    }
    assert all(
        m.model == ck.studies.closed_loop.PRICED_MODEL
        for m in session.messages
        if m.role == "assistant"
    )
    assert ck.score(session, loss=False)["cost_usd"] > 0


def test_the_pictures_show_the_distance(seeing):
    text = ck.studies.charts.chart_predicted_and_real_outcomes(seeing).to_text()
    assert format_change(seeing.loc["mask 3", "usd_error"]) in text
    for figure in ("calls", "tokens"):
        chart = ck.studies.charts.chart_predicted_and_real_outcomes(seeing, figure)
        assert "<svg" in chart.to_html()
        assert len(chart.to_plotly()["data"]) == len(seeing) + 2


def test_the_bar_of_a_loop_can_be_left_out(monkeypatch):
    made = []
    monkeypatch.setattr(
        studies.closed_loop,
        "make_progress_bar",
        lambda rules, **options: made.append(options) or rules,
    )
    world = studies.closed_loop.make_port_lookup_task(questions=2, services=3, lines=4)
    for progress in (True, False):
        studies.closed_loop.loop(["none"], world, progress=progress)
    options = {"desc": "closed loop", "unit": "rules"}
    assert made == [{**options, "disable": False}, {**options, "disable": True}]
