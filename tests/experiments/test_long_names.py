"""Names and texts of logs and users are shown by their first characters, in every display."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.experiments import compaction_config_file_validation as validation
from ctxkit.experiments import exams_comparing_ways_to_compact as exams
from ctxkit.experiments import rules_comparison_on_one_session as comparison
from ctxkit.experiments import setting_choice_and_sweep_display as choice
from ctxkit.experiments import setting_grids_and_labels as labels
from ctxkit.experiments import setting_verdicts_and_summary_table as verdicts
from ctxkit.experiments import sweep_workers
from ctxkit.experiments.gates import compactor_fact_survival as survival
from ctxkit.experiments.gates import compactor_gate_and_subprocess as subprocesses
from ctxkit.experiments.gates import regression_gate as gates


def cut(n, letter="x"):
    """Return how a name of more than `n` characters is shown."""
    return f"{letter * (n - 1)}…"


LONG = "x" * 900


def list_call_faults():
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": LONG}]}
    reply = {"role": "user", "content": ""}
    return survival.find_message_faults([], [call, reply])


def list_result_faults():
    return survival.find_message_faults([], [{"role": "tool", "tool_call_id": LONG}])


def find_config_faults():
    agents = [{"name": LONG}, {"name": LONG}]
    return [why for _, why in validation._find_agent_faults(agents)]


def write_failed_gate():
    failed = gates.SessionFigures(key="k", error="E")
    return [gates.compare_with_baseline({"r": {}}, {"r": {LONG: failed}}).faults[0]]


def write_gate_notes():
    entry = gates.SessionFigures(key="k")
    return gates.compare_with_baseline({"r": {}}, {"r": {LONG: entry}}).notes


def say(error_of):
    with pytest.raises(ck.BadArguments) as error:
        error_of()
    return [str(error.value)]


def start_program():
    return say(lambda: subprocesses.command(LONG.replace("x", "y", 1))([]))


def parse_answer():
    return say(lambda: subprocesses.parse_compacted_messages(LONG.encode()))


def describe_cost_of_exam():
    paper = SimpleNamespace(before=(), questions=())
    return [exams._describe_cost(paper, {}, LONG, 1)]


def make_comparison():
    """Return a comparison of a session with long names everywhere."""
    record = session(user(), assistant(usage=usage(10)), id=LONG, model=LONG)
    frame = ck.compare(record, "none", loss=False, progress=False).rename(index={"none": LONG})
    frame = ck.experiments.Comparison(frame.assign(error=LONG, note=None))
    frame.replays = {"recorded": record}
    return frame


@pytest.mark.parametrize(
    ("show", "n"),
    [
        (list_call_faults, 40),
        (list_result_faults, 40),
        (find_config_faults, 60),
        (write_failed_gate, 60),
        (write_gate_notes, 100),
        (parse_answer, 60),
        (lambda: [exams._name(LONG)], 40),
        (describe_cost_of_exam, 60),
        (lambda: [choice._describe(choice.SettingOutcome(LONG, 1.0))], 60),
        (lambda: [comparison._format_value("vs_recorded", LONG)], 40),
        (lambda: gates.GateReport((), faults=(LONG,)).to_text().splitlines()[:1], 400),
        (lambda: gates.make_change_cells(
            gates.FigureChange(LONG, "cost_usd", 1, 1.0, 1.0, 0.0, "same"))[:1], 24),
        (lambda: [make_comparison()._explain_missing_costs()], 80),
        (lambda: [make_comparison().detail.rows[1][0].text], 80),
        (lambda: verdicts._judge_setting({"error": LONG}, [], front=False).all, 300),
    ],
)  # fmt: skip
def test_a_long_name_is_cut(show, n):
    (text,) = show()
    assert cut(n) in text.replace("\n", "")
    assert "x" * n not in text


def test_a_program_that_cannot_be_started_is_named_by_its_first_characters():
    (text,) = start_program()
    assert f"'y{'x' * 58}…' cannot be started" in text


def test_a_long_name_of_a_setting_is_cut_to_40_characters():
    class Named:
        def __str__(self) -> str:
            return LONG

    assert labels._format_setting(Named()) == "x" * 40
    assert labels._format_setting(12_345) == "12_345"
    assert labels._format_setting(True) == "True"


def test_a_page_of_a_comparison_cuts_titles_and_sentences():
    found = make_comparison()
    page = found._repr_html_()
    assert f'title="id {cut(120)}"' in page
    assert f">{found._make_title()}</div>" in page
    named = ck.experiments.Comparison(pd.DataFrame(found))
    assert cut(80) in named.to_text().splitlines()
    verdict = verdicts._judge_setting(
        {"error": None, "first_call_over_window": None, "is_thrashing": None, "rules": "a",
         "vs_recorded": LONG}, [], front=False)  # fmt: skip
    assert verdict.word == f"{cut(40)} than the record"


def test_the_warning_of_a_lost_worker_quotes_200_characters_of_the_error():
    share = sweep_workers.RemainingSessionWork(0, session(user()), ())
    with pytest.warns(UserWarning, match=r"^0 runs were done") as warned:
        sweep_workers._run_here(share, (), sweep_workers.SweepScoreOptions(), RuntimeError(LONG))
    assert f"(RuntimeError: {'x' * 186})." in str(warned[0].message)
    with pytest.raises(KeyboardInterrupt):
        sweep_workers._run_here(share, (), sweep_workers.SweepScoreOptions(), KeyboardInterrupt())
