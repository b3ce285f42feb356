"""Tables, scores and reports of small sessions: every public function of experiments.

`python tests/experiments/table_scenarios.py` writes their references anew after a table was changed
on purpose; the difference is then read as code is.
"""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from example_sessions import (  # noqa: E402
    make_compacted,
    make_growing,
    make_pruned_replay,
    make_with_tools,
    make_with_user_rules,
)
from experiments.sessions_with_sections import talk  # noqa: E402
from reference_texts import write_json, write_references  # noqa: E402

import ctxkit as ck  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCES = HERE / "table_references"
PI = "pi:context_window=20_000,reserve_tokens=4_000,keep_recent_tokens={}"
RULES = [PI.format(4000), "swe_agent_mask", "none"]


def _make_sessions(n: int, **more: Any) -> list[ck.Session]:
    return [make_growing(14 + i, id=f"growing {i}", **more) for i in range(n)]


def _trim() -> list[ck.policies.Rules]:
    """Return rules that drop what is old: the first drops more."""
    pairs = ((3000, 9000), (9000, 24_000))
    return [
        ck.policies.Rules(f"window:keep_tokens={keep}", ck.policies.triggers.Above(above))
        for keep, above in pairs
    ]


def _exam(**more: Any) -> Any:
    from experiments.test_exams import ports_of
    from experiments.test_exams import talk as facts

    return ck.experiments.exam(
        facts("The mail queue has the ticket OPS-4000."),
        {"window": "window:keep_tokens=200", "none": "none"},
        model=ports_of if more else None,
        **more,
    )


def _forecast() -> Any:
    from experiments.test_forecasts import START, fill

    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder)
        fill(archive, range(12), calls=lambda day: 4 + day % 3)
        made = ck.experiments.write_forecast(archive, now=START + 30 * 86_400, source="me")
        fill(archive, (40, 41, 42), calls=lambda day: 30 if day == 42 else 5)
        return [made, ck.experiments.forecasts(archive)]


def _store_table() -> pd.DataFrame:
    from ctxkit.agent import ContextStore

    with tempfile.TemporaryDirectory() as folder:
        library = ContextStore(folder)
        library.put("spec", {"a.md": (b"spec " * 900, 4500)})
        return ck.experiments.index_or_paste(talk(), library)


def _sweep(n: int = 2) -> pd.DataFrame:
    return ck.sweep(_make_sessions(n), RULES, loss=True, progress=False)


def _mark_front() -> list[Any]:
    runs = _sweep()
    return [
        ck.experiments.summarise_runs_with_pareto_front(runs),
        ck.experiments.summarise_runs(runs),
        ck.experiments.compare_settings(runs, "none", runs["rules"].iloc[0], "cost_usd"),
    ]


FAULTY_CONFIG = """
Compaction: {TriggerTurnCount: 40, KeepRecentTurns: 50, Mode: hybrid, Colour: red}
ChangeTracking: {Path: changes.json}
Validation: {ChangeLogPath: other.json}
ContextBudget: {WarnAt: 130000, CutoverAt: 120000}
WarnTurnTokens: 120000
Selection: {Type: magentic}
Agents:
  - {Name: Dev, Isolation: Fresh, TrustScore: 3}
  - {Name: dev, FunctionChoice: maybe}
  - {Instructions: Work., ContextWindow: {ContextCapFraction: 2}}
"""


def _validate_faulty() -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orchestration.yaml"
        path.write_text(FAULTY_CONFIG)
        table = ck.validate(path, system="fuseraft")
        table["why"] = table["why"].str.replace(folder, "")
        return pd.DataFrame(table)


def _exam_candidates() -> list[Any]:
    from experiments.test_exams import ports_of
    from experiments.test_exams import talk as facts

    from ctxkit.experiments import (
        CompactorCandidate,
        measure_answerable_share,
    )

    def model(messages: Any) -> str:
        asked = messages[-1].text
        return (
            "The mail queue has the ticket OPS-4000." if asked == "Sum up." else ports_of(messages)
        )

    sentences: list[str] = []
    half = CompactorCandidate(lambda messages: messages[len(messages) // 2 :])
    candidates = {
        "prompt": ck.experiments.SummaryPromptCandidate("Sum up."),
        "half": half,
        "same": CompactorCandidate(lambda messages: messages),
        "written": lambda _: "OPS-4007 and OPS-4014",
    }
    report = ck.experiments.exam(
        facts(), candidates, model=model, repeats=2, questions=6, confirm=sentences.append
    )
    return [
        sentences,
        report,
        report.to_text(why=True),
        str(measure_answerable_share(facts(), half)),
    ]


def _exam_cost() -> list[str]:
    from experiments.test_exams import talk as facts

    sentences: list[str] = []

    def refuse(sentence: str) -> None:
        sentences.append(sentence)
        raise InterruptedError

    with suppress(InterruptedError):
        ck.experiments.exam(facts(), model="anthropic/claude-haiku-4-5", repeats=2, confirm=refuse)
    return sentences


def _forecast_under_rules() -> list[Any]:
    from experiments.test_forecasts import START, fill

    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder)
        fill(archive, range(6))
        made = ck.experiments.write_forecast(archive, "none", now=START + 30 * 86_400)
        waiting = ck.experiments.forecasts(archive)
        fill(archive, (40, 41))
        later = ck.experiments.forecasts(archive)
        return [list(made), waiting, later, later.rows()]


def _survive() -> list[Any]:
    from experiments.gates.test_compactor_gate import newest

    def forget_news(messages: Any) -> Any:
        return [m for m in messages if " now." not in (m["content"] or "") or m["role"] != "user"]

    chat = ck.read(ck.samples.path("chat"))
    found = [ck.gates.measure_fact_survival(each, chat, 3) for each in (newest(40), forget_news)]
    return [line for one in found for line in (*one.to_text().splitlines(), *one.faults)]


def _gate_rules() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        baseline = Path(folder) / "base.json"
        sessions = [make_growing(14, id="one"), make_growing(16, id="two")]
        made = ck.gate(sessions, RULES, baseline, update=True)
        dearer = [make_growing(14, id="one"), make_growing(12, id="two"), make_growing(9, id="new")]
        again = ck.gate(dearer, RULES, baseline)
        texts = [made.to_text(), again.to_text()]
        return [made.frame(), again.frame(), [t.replace(folder, "") for t in texts]]


def _compare_with_baseline() -> list[Any]:
    """Return what is said of figures that are the same, within noise, better, worse and gone."""
    from ctxkit.experiments.gates.regression_gate import (
        FIGURES,
        FigureWithNoise,
        SessionFigures,
        compare_with_baseline,
    )

    def entry(factor: float, noise: float = 0.0, **more: Any) -> SessionFigures:
        figures = {f.name: FigureWithNoise(0.4 * factor, noise) for f in FIGURES}
        return SessionFigures(key="k", figures=figures, **more)

    gone = SessionFigures(key="k", figures={FIGURES[0].name: FigureWithNoise(0.4, 0.0)})
    before = {n: {"s": entry(1.0)} for n in ("same", "noise", "half", "double", "gone", "failed")}
    now = {
        "same": {"s": entry(1.0)},
        "noise": {"s": entry(1.5, 0.3)},
        "half": {"s": entry(0.5)},
        "double": {"s": entry(2.0), "t": entry(1.0)},
        "gone": {"s": gone},
        "failed": {"s": entry(1.0, error="IndexError: no")},
        "unknown": {"s": entry(1.0)},
    }
    reports = [compare_with_baseline(before, now, tolerance) for tolerance in (0.0, 0.6)]
    return [each for r in reports for each in (r.frame(), r.to_text().splitlines())]


def _list_grids() -> list[Any]:
    from ctxkit.experiments.setting_grids_and_labels import label_rules

    grids = [
        ck.grid("pi", reserve_tokens=[4000, 9000], keep_recent_tokens=2000),
        ck.grid("codex", context_window=[100_000, -1]),
        ck.grid(ck.presets.swe_agent_mask, n=[1, 5]),
    ]
    rules = [r for grid in grids for r in grid if isinstance(r, ck.policies.Rules)]
    return [*map(repr, grids), [list(map(str, g.inert.items())) for g in grids], label_rules(rules)]


def _sections_of_headings() -> pd.DataFrame:
    text = "Be brief.\n\n# Tools\nUse them.\n\n# Habits\n" + "Keep changes small. " * 50
    log = [
        {"role": r, "content": c}
        for r, c in (("system", text), ("user", "Go"), ("assistant", "ok"))
    ]
    shorter = ck.experiments.without(log, "Habits")
    return [
        ck.experiments.sections(log),
        ck.experiments.sections(shorter),
        shorter.messages[0].text,
    ]


def _sections_with_tools() -> pd.DataFrame:
    schema = ck.session.ToolSchema(name="look", chars=2000)
    return ck.experiments.sections(msgspec.structs.replace(talk(), tools=(schema,)))


def _list_refusals() -> list[str]:
    """Return the sentence of each refusal of a wrong argument."""
    none, small = ck.Session(id="none", log=()), make_with_user_rules()
    tries: list[Callable[[], Any]] = [
        lambda: ck.advise([none], "none", progress=False),
        lambda: ck.compare(small, "none", max_loss=2),
        lambda: ck.compare(small, "clearr"),
        lambda: ck.experiments.exam(none),
        lambda: ck.experiments.exam(small, compaction=4),
        lambda: ck.experiments.exam(small, repeats=21),
        lambda: ck.experiments.exam(small, {"a": ck.experiments.SummaryPromptCandidate("x")}),
        lambda: ck.experiments.forecasts("no-such-folder"),
        lambda: ck.experiments.write_forecast("no-such-folder"),
        lambda: ck.experiments.without(talk(), "gitignor"),
        lambda: ck.experiments.with_memory(small, ck.policies.Rules()),
        lambda: ck.experiments.summarise_runs_with_pareto_front(pd.DataFrame({"rules": ["a"]})),
        lambda: ck.grid("pi", reserve_token=[1]),
        lambda: ck.grid("pi", reserve_tokens=[]),
        lambda: ck.sweep([], "none"),
        lambda: ck.sweep(small, []),
    ]
    sentences = []
    for attempt in tries:
        try:
            sentences.append(f"not refused: {attempt()!r}"[:100])
        except ck.CtxkitError as error:
            sentence = str(error).partition(" Presets are ")[0]
            sentences.append(f"{type(error).__name__}: {sentence}")
    return sentences


def _draw_studies() -> list[str]:
    """Return the charts of the published studies, and of a closed loop of two policies."""
    from plots.chart_scenarios import write_forms

    from ctxkit.experiments import studies

    loop = pd.DataFrame(
        {
            f"{figure}_{what}": [n * factor, 3.0 * n]
            for figure, n in (("usd", 1.5), ("calls", 40), ("tokens", 90_000))
            for what, factor in (("predicted", 2.0), ("real", 2.5))
        },
        index=["mask", "<b>"],
    )
    drawn = [
        studies.charts.chart_mask_errors(studies.table("masks")),
        *(
            studies.charts.chart_policy_ratios(studies.table("ratios"), name)
            for name in ("turns", "usd")
        ),
        *(
            studies.charts.chart_predicted_and_real_outcomes(loop, figure)
            for figure in ("usd", "calls")
        ),
    ]
    return [
        line
        for chart in drawn
        for line in write_forms(chart).partition("\n<figure")[0].splitlines()
    ]


def _study_pauses() -> list[Any]:
    """Return how well the ledger predicts made developers, with their habits and without."""
    from experiments.studies.test_idle_ledger_accuracy import find_made_pauses

    pauses, habits = (
        find_made_pauses(3),
        ck.studies.idle_cost_and_pause_choice_accuracy.list_habitual_pause_lengths(3),
    )
    found = [
        ck.studies.idle_cost_and_pause_choice_accuracy.measure_idle_choice_accuracy(pauses, known)
        for known in (habits, None)
    ]
    return [one._asdict() for one in found if one is not None]


def _list_made_sessions() -> list[Any]:
    """Return what the studies make by a seed: the figures of their pages rest on it."""
    module = ck.studies.forecast_and_threshold_holdout
    talks = ck.studies.user_rule_survival_and_human_labels.make_user_rule_conversations(
        2, seed=3, wordings=("Leave {key} alone.", "Ask before you push."), stated_within=20
    )
    idle = ck.studies.idle_cost_and_pause_choice_accuracy.make_developers_with_pauses(2, 5, 2)
    made = [*module.make_developers(5, sessions=2).values(), *idle.values()]
    task = ck.studies.closed_loop.make_port_lookup_task(questions=9, services=5, lines=4)
    return [
        *(_describe_session(session) for sessions in made for session in sessions),
        *([list(talk.keys), _describe_session(talk.session)] for talk in talks),
        [*task.files.items(), *task.services_by_question, task.ports, task.question(1)],
    ]


def _measure_studies() -> list[Any]:
    """Return the figures of small studies: intervals, floors, hold-outs and shuffled answers."""
    studies = ck.studies
    ratios = studies.policy_ratios_and_noise_floors
    runs = pd.DataFrame(
        [
            {"scaffold": "sweagent", "model": model, "policy": policy, "setting": setting,
             "repeat": repeat, "task": f"t{i}", "turns": (i % 7 + 2) * factor + i % 3,
             "usd": 0.1 * (i % 5 + 1) * factor + 0.01 * (i * factor % 7), "tokens": (i % 7 + 2) * (1_000 + 300 * i),
             "output": 40 + i}
            for model, n in (("gemini-2.5-flash", 60), ("qwen3-32b", 20))
            for policy, setting, repeat, factor in (
                ("hybrid", "N=3 M=2", False, 3), ("summary", "N=3 M=2", False, 2),
                ("mask", "M=2", False, 2), ("mask", "M=4", True, 5), ("mask", "M=4", False, 4),
                ("raw", "", False, 1), ("raw", "", True, 1),
            )
            for i in range(n)
        ]
    )  # fmt: skip
    pairs = ratios.pair_first_and_second_runs(runs)
    floors = ratios.estimate_noise_floors([pair for _, pair in pairs], (1, 20))
    exams = studies.mask_token_errors_and_visibility_exams
    answers = pd.DataFrame(
        {"history": f"h{i % 3}", "policy": f"p{i % 2}", "answer": "shown" if i % 5 < 2 else "gone",
         "right": i % 4 == 0 or (i % 5 < 2 and i % 3 > 0)}
        for i in range(60)
    )  # fmt: skip
    holdout = studies.forecast_and_threshold_holdout
    made = holdout.make_developers(4, sessions=4)
    trials = holdout.hold_out_thresholds({n: made[n] for n in ("dev-0", "dev-3")}, (0.0, 0.1))
    coverage = holdout.measure_coverage(holdout.count_tokens_shared_between_calls)
    pauses = studies.idle_cost_and_pause_choice_accuracy
    lengths = pauses.list_habitual_pause_lengths(2, seed=5)
    sessions = [s for ss in pauses.make_developers_with_pauses(2, 5, 2).values() for s in ss]
    errors = pauses.list_write_errors_after_expiry(sessions)
    rankings = pauses.check_idle_choice_rankings(sessions)
    return [
        ratios.compare_policies(runs),
        floors,
        ratios.measure_repeat_ratios(pairs),
        ratios.cross_validate_elongation(),
        exams.measure_accuracy_by_visibility(answers)._asdict(),
        exams.summarise_errors_by_window(studies.table("masks").head(12)),
        *({"share": share, "trials": [t._asdict() for t in ts]} for share, ts in trials.items()),
        {"inside": coverage.inside, "of": coverage.sessions_n, "developers": coverage.developers_n},
        {"errors": errors, "rankings": rankings},
        {name: [len(each), *each[:2], *each[-3:]] for name, each in lengths.items()},
    ]


def _describe_session(session: ck.Session) -> dict[str, Any]:
    """Return a session's first messages and the sums of the others."""
    usages = [c.message.usage for c in session.calls if c.message.usage]
    fields = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "output_tokens")
    head = (session.id, session.format, session.model, session.context_window)
    times, roles = (
        [m.time or 0.0 for m in session.messages],
        ("system", "user", "assistant", "tool"),
    )
    return {
        "session": [str(each) for each in head],
        "messages": [len(session.messages), len(session.calls)],
        "tokens": {name: sum(getattr(u, name) or 0 for u in usages) for name in fields},
        "times": [times[0], times[-1], sum(times) - times[0] * len(times)],
        "chars": {r: sum(_count_chars(m) for m in session.messages if m.role == r) for r in roles},
        "first": [write_json(msgspec.to_builtins(m))[:400] for m in session.messages[:5]],
        "last": [write_json(msgspec.to_builtins(m))[:400] for m in session.messages[-2:]],
    }


def _count_chars(message: ck.Message) -> int:
    return len(write_json(msgspec.to_builtins(message.parts)))


SCENARIOS: dict[str, Callable[[], Any]] = {
    "advise": lambda: ck.advise(_make_sessions(5, cached=False), _trim(), progress=False),
    "advise for few": lambda: ck.advise(_make_sessions(2, cached=False), _trim(), progress=False),
    "compare": lambda: ck.compare(make_with_user_rules(), ["none", "swe_agent_mask"], progress=False),
    "compare by cost": lambda: ck.compare(make_growing(12), [*RULES, "codex"], progress=False, max_loss=0.4),
    "exam": _exam,
    "compare over the window": lambda: ck.compare(
        make_growing(12, context_window=24_000), [*RULES, "codex"], progress=False
    ),
    "exam by a model": lambda: _exam(repeats=3, seed=2),
    "exam of candidates": _exam_candidates,
    "exam and its cost": _exam_cost,
    "forecasts": _forecast,
    "forecasts under rules": _forecast_under_rules,
    "gate of a compactor": _survive,
    "gate of rules": _gate_rules,
    "gate and its words": _compare_with_baseline,
    "grid": _list_grids,
    "index_or_paste": _store_table,
    "summarise_runs_with_pareto_front": _mark_front,
    "score": lambda: ck.score(make_compacted()),
    "score of a replay": lambda: ck.score(make_pruned_replay()),
    "score of tools": lambda: ck.score(make_with_tools(), reuse=True),
    "score of user rules": lambda: ck.score(make_with_user_rules()),
    "sections": lambda: ck.experiments.sections(talk()),
    "sections of headings": _sections_of_headings,
    "sections with tools": _sections_with_tools,
    "sections under rules": lambda: ck.experiments.sections(talk(turns=12), "pi"),
    "studies": _draw_studies,
    "studies in figures": _measure_studies,
    "studies of made sessions": _list_made_sessions,
    "studies of pauses": _study_pauses,
    "sweep": _sweep,
    "sweep of a grid": lambda: ck.sweep(
        make_growing(14),
        ck.grid("pi", context_window=[20_000], keep_recent_tokens=[2000, 8000], reserve_tokens=[4000]),
        progress=False, loss=True, max_loss=0.2, reuse=True,
    ),
    "validate": lambda: ck.validate({"COMPACT_TRIGGER": "10", "KEEP_LAST_TURNS": "2"}),
    "validate and its faults": _validate_faulty,
    "with_memory": lambda: ck.experiments.with_memory(
        ck.samples.path("chat"), "pi:context_window=16_000,reserve_tokens=4_000,keep_recent_tokens=1_000"
    ),
    "wrong arguments": _list_refusals,
    "without": lambda: [m.text for m in ck.experiments.without(talk(), "gitignore").messages],
}  # fmt: skip
"""The results by name, which begins with that of the function."""
DATA = {"SCORE_COLUMNS", "SCORE_COLUMN_NAMES", "SECTION_COLUMNS"}
"""Tables of columns, which have pages of their own."""
TOGETHER = {
    "summarise_runs_with_pareto_front": {"summarise_runs", "compare_settings"},
    "forecasts": {"write_forecast"},
    "compare": {"Comparison"},
    "exam": {"SummaryPromptCandidate"},
}
"""Names that a scenario calls beside the one that it is named by."""


def write_result(result: Any) -> str:
    """Return a result as lines: each column, then what it shows as text and as HTML."""
    if isinstance(result, (dict, str)):
        return write_json(result) + "\n"
    if isinstance(result, (list, tuple)) and not hasattr(result, "to_text"):
        return "".join(map(write_result, result))
    lines: list[str] = []
    if isinstance(result, pd.DataFrame):
        lines += [f"{c}: {write_json(_list_values(result[c]))}" for c in result.columns]
    elif isinstance(result, pd.Series):
        lines += [f"{c}: {write_json(_list_values([v])[0])}" for c, v in result.items()]
    frame = getattr(result, "frame", None)
    if callable(frame):
        return write_result(frame()) + _write_displays(result)
    return "\n".join(lines) + "\n" + _write_displays(result)


def _list_values(values: Any) -> list[Any]:
    return [
        None if pd.api.types.is_scalar(v) and pd.isna(v) else getattr(v, "item", lambda v=v: v)()
        for v in values
    ]


def _write_displays(result: Any) -> str:
    if type(result) in {pd.DataFrame, pd.Series}:
        return ""
    html = re.sub(r' (style|onclick)="[^"]*"', "", getattr(result, "_repr_html_", str)())
    return f"{result!r}\n" + html.replace("><", ">\n<") + "\n"


if __name__ == "__main__":
    write_references(
        REFERENCES,
        {name: lambda make=make: write_result(make()) for name, make in SCENARIOS.items()},
    )
