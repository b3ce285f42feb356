"""What a row says of real runs: by the policy of the record, missing where its log cannot say."""

from __future__ import annotations

import msgspec
import pytest
from builders import assistant, result, session, summarised, usage, user

import ctxkit as ck
from ctxkit.experiments.cost_and_loss_scores import classify_recorded_policy
from ctxkit.metrics import run_elongation_from_studies
from ctxkit.session import ToolCall

MODEL = "claude-opus-4-5"
RULES = ["none", "swe_agent_mask:n=2", "tyrum"]
COLUMNS = [
    "elongation",
    "elongation_low",
    "elongation_high",
    "real_run_low_usd",
    "real_run_high_usd",
    "vs_recorded",
]


def made(*, calls: int = 30, cut: bool = False, **more):
    log = [user("go")]
    for i in range(calls):
        ask = ToolCall(f"c{i}", "read_file", {"path": f"src/{i}.py"})
        at = usage(5_000 + 1_000 * i)
        log += [assistant("look", ask, usage=at, model=MODEL), result("x = 1\n" * 600, f"c{i}")]
    if cut:
        log += [summarised(log[:20], tokens_before=30_000, tokens_after=9_000), user()]
        log += [assistant("done", usage=usage(9_000), model=MODEL)]
    return session(*log, model=MODEL, **more)


def test_a_record_without_management_is_raw_and_its_own_replay_is_no_longer():
    rows = ck.compare(made(), RULES, loss=False, progress=False)
    assert classify_recorded_policy(made()) == "raw"
    assert rows.loc["recorded", COLUMNS].isna().all()
    none = rows.loc["none"]
    assert none[["elongation", "elongation_low", "elongation_high"]].tolist() == [1, 1, 1]
    assert none["real_run_low_usd"] == none["real_run_high_usd"] == pytest.approx(none["cost_usd"])
    assert none["vs_recorded"] == "within noise"


def test_a_mask_and_a_summary_have_the_factors_of_their_kind():
    rows = ck.compare(made(), RULES, loss=False, progress=False)
    mask = rows.loc[
        "swe_agent_mask:n=2" if "swe_agent_mask:n=2" in rows.index else "swe_agent_mask"
    ]
    found = run_elongation_from_studies.estimate_elongation("mask", "raw")
    assert mask[COLUMNS[:3]].tolist() == pytest.approx(list(found[:3]))
    assert mask["real_run_low_usd"] == pytest.approx(mask["cost_usd"] * found.low)


def test_a_record_that_was_summarised_is_compared_as_such():
    managed = made(cut=True)
    assert classify_recorded_policy(managed) == "summary"
    rows = ck.compare(managed, ["none"], loss=False, progress=False)
    assert rows.loc["none", "elongation"] == pytest.approx(
        run_elongation_from_studies.estimate_elongation("raw", "summary").factor
    )
    assert rows.loc["none", "elongation"] < 1


def test_what_a_log_cannot_say_is_missing():
    blind = made(details={"cannot_tell": ["compactions"]})
    assert classify_recorded_policy(blind) is None
    rows = ck.compare(blind, RULES, loss=False, progress=False)
    assert rows[COLUMNS].isna().all().all()
    told = msgspec.structs.replace(
        blind, details={**blind.details, "history_processor": {"name": "swe_agent_mask"}}
    )
    assert classify_recorded_policy(told) == "mask"


def test_without_prices_the_calls_are_told_and_the_dollars_missing():
    free = made()
    log = tuple(
        msgspec.structs.replace(m, model="nobody-knows") if m.role == "assistant" else m
        for m in free.log
    )
    rows = ck.compare(
        msgspec.structs.replace(free, log=log, model="nobody-knows"),
        RULES,
        loss=False,
        progress=False,
    )
    assert rows.loc["none", "elongation"] == 1
    assert rows[COLUMNS[3:]].isna().all().all()


def test_sweeps_and_comparisons_and_scores_say_the_same():
    base = made()
    swept = ck.sweep([base], RULES, progress=False).set_index("rules")[COLUMNS]
    compared = ck.compare(base, RULES, loss=False, progress=False)
    for name, row in swept.iterrows():
        assert row.tolist() == compared.loc[name, COLUMNS].tolist()
        again = ck.score(compared.replays[name], loss=False)
        assert [again[c] for c in COLUMNS] == row.tolist()


def test_a_difference_is_told_apart_only_beyond_the_floor():
    rows = ck.compare(
        ck.samples.path(), ["none", "strands", "swe_agent_mask"], loss=False, progress=False
    )
    assert rows["vs_recorded"].dropna().to_dict() == {
        "none": "dearer",
        "strands": "cheaper",
        "swe_agent_mask": "within noise",
    }
    text = rows.to_text()
    assert "within noise" in text
    low, high = rows.loc["strands", ["real_run_low_usd", "real_run_high_usd"]]
    assert f"${low:,.2f}–{high:,.2f}" in rows.detail.to_html()
    assert f"of real runs ${low:,.2f} to ${high:,.2f}" in rows._repr_html_()
    assert "against the record" in rows._repr_html_()


def test_the_caption_names_the_longest_run_of_each_kind(monkeypatch):
    calls = (("mask", 80), ("summary", 125), ("mask", 90), ("mask", 70), ("summary", 100))
    runs = [run_elongation_from_studies.ClosedLoopRuns(kind, "rules", 100, n) for kind, n in calls]
    rows = ck.compare(made(), RULES, loss=False, progress=False)
    module = "ctxkit.experiments.rules_comparison_on_one_session"
    monkeypatch.setattr(f"{module}.load_closed_loop_runs", lambda: runs)
    kinds = "of mask (up to 0.90 times), summary (up to 1.25 times))"
    assert kinds in " ".join(rows.caption.split())


def test_real_sessions_have_bounds_around_each_cost(real):
    for name in ("claude-code/entire-7f78a542.jsonl",):
        rows = ck.compare(real / name, ["pi", "none", "strands"], loss=False, progress=False)
        told = rows.dropna(subset=["real_run_low_usd"])
        assert len(told) == 3
        assert (told["real_run_low_usd"] <= told["cost_usd"]).all() or "none" in told.index
        assert (told["real_run_low_usd"] < told["real_run_high_usd"]).all()
