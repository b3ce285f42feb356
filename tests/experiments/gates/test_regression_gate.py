"""The gate of rules: what got worse is told, what is noise is not, and a baseline is checked."""

from __future__ import annotations

import json

import msgspec
import pytest
from experiments.test_cost_and_loss_scores import talk
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.experiments.gates.regression_gate import (
    FIGURES,
    FigureChange,
    FigureWithNoise,
    GateReport,
    SessionFigures,
    compare_with_baseline,
    format_figure,
    load_baseline,
    measure_rules,
)

SAMPLE = ck.samples.path("billing")


@pytest.fixture(scope="module")
def session():
    return ck.read(SAMPLE)


@pytest.fixture(scope="module")
def kept(session, tmp_path_factory):
    path = tmp_path_factory.mktemp("gate") / "base.json"
    made = ck.gate(session, ["pi", "codex"], path, update=True)
    assert made.ok
    return path


def test_what_did_not_change_passes(session, kept):
    report = ck.gate(session, ["pi", "codex"], kept)
    assert report.ok
    assert {c.state for c in report.changes} == {"same"}
    assert "none got worse" in report.to_text()


def test_sessions_of_one_id_are_each_held(tmp_path):
    short, long = (talk(n, id="same") for n in (20, 30))
    ck.gate([short, long], "none", tmp_path / "b.json", update=True)
    found = load_baseline(tmp_path / "b.json")["none"]
    assert list(found) == ["same", "same (2)"]
    assert (
        found["same"].figures["peak_tokens"].value < found["same (2)"].figures["peak_tokens"].value
    )


def test_rules_that_fit_no_other_window_are_held_without_noise(session, tmp_path):
    rules = "pi:reserve_tokens=150_000"  # more than the window of the sample
    assert ck.gate(session, rules, tmp_path / "b.json", update=True).ok
    cost = load_baseline(tmp_path / "b.json")["pi"][session.id].figures["cost_usd"]
    assert cost.value > 0
    assert cost.noise == 0


def test_the_figures_are_those_of_the_comparison(session, kept):
    row = ck.compare(session, ["pi"], progress=False).loc["pi"]
    found = load_baseline(kept)["pi"][session.id].figures
    for name in (
        "cost_usd",
        "peak_tokens",
        "needed_later_loss",
        "retained",
        "is_thrashing",
        "not_paid_back_n",
    ):
        assert found[name].value == pytest.approx(float(row[name])), name


def test_facts_kept_are_those_that_stand_in_the_replay(session, kept):
    from ctxkit.metrics import planted_facts_and_compaction_audits

    shares = []
    for seed in range(3):
        said = planted_facts_and_compaction_audits.make_facts(12, seed)
        replay = ck.replay(
            planted_facts_and_compaction_audits.plant_facts(session, said, seed), "codex"
        )
        shares.append(
            sum(planted_facts_and_compaction_audits.check_facts_in_prompt(replay, said).values())
            / 12
        )
    assert load_baseline(kept)["codex"][session.id].figures["facts_kept"].value == pytest.approx(
        sum(shares) / 3
    )


def test_rules_that_got_worse_are_named_with_by_how_much(session, tmp_path):
    path = tmp_path / "own.json"
    ck.gate(session, "codex", path, update=True)
    told = json.loads(path.read_text())
    told["entries"]["codex"]["billing"]["figures"]["cost_usd"] = [1.0, 0.0]
    path.write_text(json.dumps(told))
    report = ck.gate(session, "codex", path)
    (worse,) = report.worse
    assert (worse.figure, worse.before, worse.state) == ("cost_usd", 1.0, "worse")
    assert f"+{worse.now - 1:.4f}" in report.to_text()
    with pytest.raises(AssertionError, match="1 of 8 figures got worse"):
        report.check()
    assert ck.gate(session, "codex", path, tolerance=0.99).ok is False
    told["entries"]["codex"]["billing"]["figures"]["cost_usd"] = [3.2, 0.2]
    path.write_text(json.dumps(told))
    assert [c.state for c in ck.gate(session, "codex", path).changes if c.figure == "cost_usd"] == [
        "noise"
    ]


def test_the_noise_is_what_a_window_1_percent_other_moves(session):
    from ctxkit.engine import find_context_window

    found = measure_rules([session], ["pi"])["pi"][session.id].figures["cost_usd"]
    limit = find_context_window(session)
    rules = ck.presets.pi()
    costs = [
        ck.compare(session, [rules.but(window=int(limit * s))], progress=False)["cost_usd"].iloc[1]
        for s in (0.99, 1.01)
    ]
    assert found.noise == pytest.approx(max(abs(c - found.value) for c in costs))


def test_a_run_that_fails_now_is_a_fault(session, kept):
    def broken(history, budget):
        raise ValueError("no")

    from ctxkit.policies import Rules

    told = json.loads(kept.read_text())
    told["entries"]["own"] = told["entries"]["pi"]
    other = kept.with_name("broken.json")
    other.write_text(json.dumps(told))
    from ctxkit.policies import Above

    report = ck.gate(session, Rules(policy=broken, trigger=Above(10_000), name="own"), other)
    assert not report.ok
    assert "own failed on billing: " in report.to_text()


def test_a_session_that_changed_is_not_compared(session, kept):
    shorter = msgspec.structs.replace(session, log=session.log[:200])
    report = ck.gate(shorter, "pi", kept)
    assert not report.ok
    assert "no session of the baseline is here unchanged" in report.to_text()
    both = ck.gate([session, msgspec.structs.replace(shorter, id="new")], "pi", kept)
    assert both.ok
    assert "1 session not in the baseline" in both.to_text()


def test_rules_that_the_baseline_does_not_have_are_a_fault(session, kept):
    assert "The baseline has no figures of none" in ck.gate(session, "none", kept).to_text()


def test_an_update_keeps_what_it_does_not_measure(session, kept, tmp_path):
    path = tmp_path / "b.json"
    path.write_bytes(kept.read_bytes())
    ck.gate(session, "none", path, update=True)
    assert set(load_baseline(path)) == {"pi", "codex", "none"}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (b"", "is no baseline of a gate"),
        (b"[1, 2]", "is no baseline of a gate"),
        (b"\xff\xfe", "is no baseline of a gate"),
        (b"[" * 99999, "is no baseline of a gate"),
        (b'{"gate": 0, "scores": 4}', "made by another version"),
        (b'{"gate": 1, "scores": 1}', "made by another version"),
    ],
)
def test_what_is_no_baseline_is_a_sentence(session, tmp_path, damage, told):
    path = tmp_path / "b.json"
    path.write_bytes(damage)
    with pytest.raises(ck.BadArguments, match=told):
        ck.gate(session, "pi", path)
    assert path.read_bytes() == damage


def test_a_baseline_with_a_damaged_figure_is_a_sentence(session, kept, tmp_path):
    path = tmp_path / "b.json"
    path.write_text(kept.read_text().replace('"cost_usd": [', '"cost_usd": ["x",', 1))
    with pytest.raises(ck.BadArguments, match="is damaged"):
        ck.gate(session, "pi", path)


def test_without_a_baseline_there_is_a_sentence(session, tmp_path):
    with pytest.raises(ck.BadArguments, match="make it with --update"):
        ck.gate(session, "pi", tmp_path / "none.json")
    with pytest.raises(ck.StoreError):
        ck.gate(session, "pi", tmp_path / "no" / "b.json", update=True)


numbers = st.floats(0, 1e6)


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=4), st.sampled_from(FIGURES)
)
def test_a_change_below_the_noise_is_never_worse_and_one_above_always(values, figure):
    sign = 1 if figure.worse == "up" else -1
    before = {
        "r": {
            str(i): SessionFigures(key="k", figures={figure.name: FigureWithNoise(v, n)})
            for i, (v, n, _) in enumerate(values)
        }
    }

    def now(share):
        moved = {
            str(i): FigureWithNoise(v + sign * (n + m + 1) * share, n)
            for i, (v, n, m) in enumerate(values)
        }
        return {
            "r": {i: SessionFigures(key="k", figures={figure.name: m}) for i, m in moved.items()}
        }

    assert [c.state for c in compare_with_baseline(before, now(1)).changes] == ["worse"]
    assert [c.state for c in compare_with_baseline(before, now(-1)).changes] == ["better"]
    still = {
        "r": {
            str(i): SessionFigures(key="k", figures={figure.name: FigureWithNoise(v + n / 2, n)})
            for i, (v, n, _) in enumerate(values)
        }
    }
    assert {c.state for c in compare_with_baseline(before, still).changes} <= {"same", "noise"}


def test_a_figure_that_is_gone_is_worse_but_what_was_retained_where_nothing_was_cut_is_not():
    before = {
        "r": {
            "s": SessionFigures(
                key="k",
                figures={"cost_usd": FigureWithNoise(1.0), "retained": FigureWithNoise(0.5)},
            )
        }
    }
    found = compare_with_baseline(before, {"r": {"s": SessionFigures(key="k")}}).changes
    assert [(c.figure, c.state) for c in found] == [("cost_usd", "gone")]


def test_a_small_change_is_not_told_as_none():
    shown = [format_figure(n, "share", sign="+") for n in (0.0, 0.0004, -0.25)]
    assert shown == ["±0 %", "+0.040 %", "-25.0 %"]


def test_changes_are_the_means_of_unchanged_sessions_and_noise_is_theirs():
    def entries(*figures):
        return {
            "r": {f"s{i}": SessionFigures(key="k", figures={"cost_usd": FigureWithNoise(*f)})
                  for i, f in enumerate(figures)}
        }  # fmt: skip

    def compare(tolerance, *now):
        (change,) = compare_with_baseline(
            entries((1.0, 0.5), (3.0, 0.1)), entries(*now), tolerance
        ).changes
        return change

    change = compare(0.0, (2.0, 0.1), (4.0, 0.3))
    assert change == ("r", "cost_usd", 2, 2.0, 3.0, pytest.approx(0.4), "worse")
    assert compare(0.5, (2.0, 0.1), (4.0, 0.3))[-2:] == (1.0, "noise")  # half of the old mean
    assert compare(0.49, (2.0, 0.1), (4.0, 0.3))[-2:] == (0.98, "worse")
    assert compare(0.0, (0.0, 0.1), (2.0, 0.3))[-1] == "better"
    assert compare(0.0, (1.0, 0.0), (3.0, 0.0))[-1] == "same"


def test_what_could_not_be_compared_is_listed_by_its_reason():
    def entry(key="k", error=None):
        return SessionFigures(key=key, figures={"cost_usd": FigureWithNoise(1.0)}, error=error)

    old = {"r": {"a": entry(), "b": entry(), "c": entry(), "e": entry(error="X: y")}}
    now = {
        "r": {"a": entry(), "b": entry("new"), "d": entry(), "f": entry(), "e": entry(error="X: y")}
    }
    report = compare_with_baseline(old, now)
    assert report.notes == (
        "r: 1 session changed, not compared: b.",
        "r: 2 sessions not in the baseline, not compared: d, f.",
        "r: 1 session in the baseline alone, not compared: c.",
    )
    assert report.faults == ()  # e failed before, too
    failed = compare_with_baseline(
        old, {"r": {"a": entry(error="E: no"), "g": entry(error="E: n")}}
    )
    assert failed.faults == ("r failed on a: E: no", "r failed on g: E: n")


@pytest.mark.parametrize(
    ("states", "faults", "untested", "sentence"),
    [
        ((), (), (), "The gate is passed: nothing is at fault."),
        (("same", "better"), (), (), "The gate is passed: 2 figures, none got worse."),
        (("same",), (), ("x",), "Nothing got worse, but not all was tested: see above."),
        (("worse", "same", "gone"), (), ("x",), "The gate is not passed: 2 of 3 figures got worse."),
        (("same",), ("f",), (), "The gate is not passed: 1 fault."),
        (("worse",), ("f", "g"), (), "The gate is not passed: 1 of 1 figures got worse and 2 faults."),
    ],
)  # fmt: skip
def test_the_verdict_is_a_sentence(states, faults, untested, sentence):
    changes = tuple(FigureChange("r", "cost_usd", 1, 1.0, 2.0, 0.1, s) for s in states)
    report = GateReport(changes, faults, untested=untested)
    assert report.sentence == sentence
    assert report.ok is not any(word in sentence for word in ("not passed",))
    assert len(report.worse) == sum(s in ("worse", "gone") for s in states)
    assert report.to_text().endswith("\n".join([*faults, *untested, sentence]))
    assert ("better" in report.to_text()) is ("better" in states)


def test_figures_are_written_by_their_kind():
    wanted = {
        (1234.5, "usd"): "1,234.5000", (1234.56, "count"): "1,234.6", (0.1234, "share"): "12.3 %",
        (0.0004, "share"): "0.040 %", (0.0005, "share"): "0.1 %", (0.0, "share"): "0.0 %",
        (None, "share"): "-",
    }  # fmt: skip
    assert {k: format_figure(*k) for k in wanted} == wanted
    assert [format_figure(n, "usd", "+") for n in (0.5, -0.5)] == ["+0.5000", "-0.5000"]


@pytest.mark.parametrize("tolerance", [-0.1, 1.0])
def test_a_tolerance_is_a_share_below_one(session, tmp_path, tolerance):
    with pytest.raises(ck.BadArguments, match=f"between 0 and 1, not {tolerance}"):
        ck.gate(session, "none", tmp_path / "b.json", tolerance=tolerance)


def test_a_baseline_says_how_many_runs_it_holds_and_which_failed(tmp_path):
    def broken(_history, _budget):
        raise ValueError("no")

    from ctxkit.policies import Above, Rules

    rules = ["none", Rules(policy=broken, trigger=Above(10), name="own")]
    path = tmp_path / "b.json"
    made = ck.gate([talk(3, id="s")], rules, path, update=True)
    assert made.notes == (
        "own fails on s: ValueError: no", f"The baseline {str(path)!r} holds 2 runs now.",
    )  # fmt: skip
    assert made.ok
    one = ck.gate(talk(3, id="s"), "none", tmp_path / "c.json", update=True)
    assert one.notes[0].endswith("holds 1 run now.")
    # rules that failed are not named as never tested
    assert [text.partition(" never")[0] for text in made.untested] == ["none"]
