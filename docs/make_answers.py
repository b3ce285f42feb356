"""Measure the figures of the pages that answer one question: `python docs/make_answers.py [PAGE ...]`.

The measured part of a page is between two comments. The script writes that part, from seeded
synthetic data or from public data beside CTXKIT_SESSIONS, and draws the pictures of the page.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from make_pictures import draw_terminal, run_command

import ctxkit as ck
from ctxkit.experiments.studies import (
    forecast_and_threshold_holdout,
    mask_token_errors_and_visibility_exams,
    user_rule_survival_and_human_labels,
)
from ctxkit.experiments.studies import idle_cost_and_pause_choice_accuracy as idle_pauses
from ctxkit.experiments.studies.user_rule_survival_and_human_labels import (
    HELD_OUT_WORDINGS,
    RULES_PER_CONVERSATION,
    compare_survival_with_keep_rules,
    make_user_rule_conversations,
)
from ctxkit.metrics.context_growth_and_floor import GrowthProfile
from ctxkit.metrics.cost.pause_cost_by_choice import find_pauses
from ctxkit.metrics.optimal_trigger_floor_and_wait import EXTRA_LOSS
from ctxkit.metrics.threshold_replays import ALLOWANCE_USED, LATER_SESSIONS
from ctxkit.widgets.reports.compaction_card import make_card

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.engine.cache_model.training_counts import SessionMissCounts

DOCS = Path(__file__).parent
_MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)
RULE_CONVERSATIONS, CONSTRAINT_CONVERSATIONS = 10, 4
IDLE_DEVELOPERS, IDLE_SEEDS = 20, (0, 3, 4, 5, 6, 7)
"""Developers of each seed; the smoothing of lengths was chosen on those of seeds 1 and 2."""
THRESHOLD_DEVELOPERS = 20
THRESHOLD_SEEDS, THRESHOLD_SESSIONS = (13, 14, 15), 16
"""Of the developers of `when`; the share of the allowed loss was chosen on other developers."""
FORECAST_DEVELOPERS, FORECAST_SESSIONS = 50, 16
PICTURED_DEVELOPER = 6
"""The synthetic developer whose answer is the picture of `when` for a folder."""
EXAM_COMMAND = "exam billing.jsonl -r pi -r claude_code -r strands"
"""The command of the picture of exams."""
LIMIT_SAMPLES = ("billing", "incident", "research", "chat")
"""Samples in the picture of limits."""


def make_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def measure_rule_survival() -> str:
    """Measure how many rules survive in synthetic conversations, with and without `keep_rules`."""
    frame = compare_survival_with_keep_rules(make_user_rule_conversations(RULE_CONVERSATIONS))
    lowest_share = frame["with_empty"].min()
    cheap_presets_n = (frame["more_tokens"] <= 0.02).sum()
    costly = frame[frame["more_tokens"] > 0.02]
    names = ", ".join(f"`{row.rules}` {row.more_tokens:.1%}" for row in costly.itertuples())
    columns = ["kept_empty", "with_empty", "kept_extract", "with_extract"]
    rows = [
        [
            f"`{row['rules']}`",
            f"{row['compactions_n']:.1f}",
            *(f"{row[column]:.0%}" for column in columns),
            f"{row['more_tokens']:+.1%}",
        ]
        for row in frame.to_dict("records")
    ]
    head = ["preset", "compactions", "empty summary", "with `keep_rules`"]
    head += ["extract", "with `keep_rules`", "tokens"]
    return (
        f"With `keep_rules`, at least {lowest_share:.0%} of the rules survive under each of {len(frame)} presets."
        f" {cheap_presets_n} presets send at most 2 % more tokens"
        + (f"; the others keep smaller contexts and send more ({names})" if names else "")
        + f". Data: {RULE_CONVERSATIONS} synthetic conversations (seeds 0-0 to 0-{RULE_CONVERSATIONS - 1}) with"
        f" {RULES_PER_CONVERSATION} rules each, in {min(RULES_PER_CONVERSATION, len(HELD_OUT_WORDINGS))} wordings"
        " that were not used to write the extractor, and windows of 64,000 tokens.\n\n"
        + make_table(head, rows)
    )


def measure_constraint_survival() -> str:
    """Measure the survival of COMPINT's constraints, and compare marks with human labels."""
    frame = compare_survival_with_keep_rules(
        user_rule_survival_and_human_labels.make_constraint_conversations(CONSTRAINT_CONVERSATIONS)
    )
    marks = user_rule_survival_and_human_labels.compare_marks_with_human_labels(
        user_rule_survival_and_human_labels.read_judged_summaries()
    )
    cheap_presets_n = (frame["more_tokens"] <= 0.02).sum()
    empty, extract = frame["kept_empty"], frame["kept_extract"]
    lowest_share = frame[["with_empty", "with_extract"]].min().min()
    survival = "all" if lowest_share == 1 else f"at least {lowest_share:.0%}"
    return (
        f"The {RULES_PER_CONVERSATION} constraints of the COMPINT paper were stated in the first turns of"
        f" {CONSTRAINT_CONVERSATIONS} conversations. With `keep_rules`, {survival} survive under each of {len(frame)} presets, and"
        f" {cheap_presets_n} presets send at most 2 % more tokens. These constraints are not held out: the extractor"
        " was extended after it had found 11 of the 15. Without `keep_rules`, an empty summary keeps none"
        f" under {(empty == 0).sum()} presets and at most {empty.max():.0%} under the others; extracts keep all"
        f" under {(extract == 1).sum()} presets. The models in the paper keep 0 to 64 % (mean 17 %); no model"
        " was called here.\n\n"
        f"Of {marks.lost_n} published summaries in which a person did not find the constraint, ctxkit marks"
        f" {marks.marked_lost_n} as lost. Of {marks.retained_n} in which a person found it, ctxkit marks only"
        f" {marks.marked_retained_n} as kept: **marks miss rules that a summary paraphrases**. The marks rank"
        f" the paper's {marks.compactors_n} compactors almost as the paper does (rank correlation"
        f" {marks.order_correlation:.2f}).\n\n"
        "COMPINT is arXiv 2608.11242 (MIT); its 15 constraints and 50 judged summaries (commit 5485922) are"
        " read from CTXKIT_STUDIES. Its conversations of 100,000 tokens were not available."
    )


def measure_exam() -> str:
    """Measure the accuracy of published exam answers, by whether ctxkit marks them as shown."""
    answers = mask_token_errors_and_visibility_exams.read_exam_answers()
    result = mask_token_errors_and_visibility_exams.measure_accuracy_by_visibility(answers)
    low, high = result.difference_interval
    orders = (
        "A ranking needs five compaction methods with a readable prompt and published answers; there is"
        f" {result.policies_n}."
    )
    return (
        f"{_format_verdict(result.ratio >= 2)} (goal: at least twice as many right answers): of {result.shown}"
        f" questions marked as shown, {result.right_shown} were answered correctly"
        f" ({result.right_shown / result.shown:.0%}); of {result.gone} marked as gone, {result.right_gone}"
        f" ({result.right_gone / result.gone:.0%}). The difference between the shares is {low:.0%} to"
        f" {high:.0%} (90 % interval, bootstrap over {result.histories_n} histories). With the answers"
        f" shuffled within each history, it is {result.shuffled_difference:+.0%}. {orders}\n\n"
        "Data: 600 questions about eight synthetic histories, compacted by Pi's defaults with a real model"
        " and answered by it (algal/pi-openai-server-compaction, MIT)."
    )


def measure_pauses() -> str:
    """Measure how well cache writes after pauses and the ranking of choices are predicted."""
    developers, habits = {}, {}
    for seed in IDLE_SEEDS:
        new_developers = idle_pauses.make_developers_with_pauses(IDLE_DEVELOPERS, seed)
        developers |= {f"{seed}-{name}": sessions for name, sessions in new_developers.items()}
        new_habits = idle_pauses.list_habitual_pause_lengths(IDLE_DEVELOPERS, seed)
        habits |= {f"{seed}-{name}": lengths for name, lengths in new_habits.items()}
    all_sessions = [session for sessions in developers.values() for session in sessions]
    pauses = {
        name: [pause for session in developer_sessions for pause in find_pauses(session)]
        for name, developer_sessions in developers.items()
    }
    result = idle_pauses.measure_idle_choice_accuracy(pauses, habits)
    real_sessions = read_real_sessions()
    errors, are_right = (
        idle_pauses.list_write_errors_after_expiry(real_sessions),
        idle_pauses.check_idle_choice_rankings(real_sessions),
    )
    sessions_n = len(
        {
            session.id
            for session in real_sessions
            if idle_pauses.list_write_errors_after_expiry([session])
        }
    )
    made_errors = idle_pauses.list_write_errors_after_expiry(all_sessions)
    not_established = "not established"
    held_out = f"({result.pauses_n} pauses, {result.developers_n} developers)"
    rows = [
        [
            "cache write of the next call, median error",
            "10 %",
            f"{median(errors):.1%} ({len(errors)} pauses, {sessions_n} sessions)",
            f"{median(made_errors):.1%} ({len(made_errors)} pauses)",
        ],
        [
            "ranking of the choices, pause length known",
            "80 %",
            f"{sum(are_right) / len(are_right):.0%} ({len(are_right)} pauses)",
            f"{_format_share(idle_pauses.check_idle_choice_rankings(all_sessions))}",
        ],
        [
            "predicted ranking against mean costs over the true pause distribution",
            "80 %",
            not_established,
            f"{result.habit_share:.0%} {held_out}",
        ],
        [
            "predicted ranking against mean costs over the held-out pauses",
            "80 %",
            not_established,
            f"{result.later_share:.0%}; best possible: {result.later_limit:.0%}",
        ],
        [
            "predicted ranking against the cost of each single pause",
            "80 %",
            not_established,
            f"{result.single_share:.0%}; with the true distribution: {result.single_limit:.0%}",
        ],
        [
            "predicted cheapest choice against mean costs over the held-out pauses",
            "",
            not_established,
            f"{result.cheapest_share:.0%}",
        ],
    ]
    return (
        f"**{_format_verdict(result.later_share >= 0.8)}** (goal: 80 %): before the length of a pause is known, the"
        " predicted ranking of the four choices is that of the mean costs for"
        f" {result.later_share:.0%} of the held-out pauses; a prediction from each developer's true pause"
        f" distribution reaches {result.later_limit:.0%}. The predicted choice costs"
        f" {result.extra_cost:.1%} more than the cheapest one.\n\n"
        + make_table(["measure", "goal", "recorded logs", "synthetic developers"], rows)
        + f"\n\nRecorded logs: those of CTXKIT_SESSIONS, from fewer than ten developers. Synthetic:"
        f" {result.developers_n} developers (seeds {', '.join(map(str, IDLE_SEEDS))}, {IDLE_DEVELOPERS} each)"
        " and the cache as documented."
        " The first half of each developer's pauses predicts the second. The smoothing of pause lengths"
        " was chosen on other developers (seeds 1 and 2)."
    )


def _format_verdict(is_met: bool) -> str:
    return "Met" if is_met else "Missed"


def _format_share(are_right: Sequence[bool]) -> str:
    return f"{sum(are_right) / len(are_right):.0%} ({len(are_right)} pauses)"


def read_real_sessions() -> list[ck.Session]:
    """Return the recorded sessions of CTXKIT_SESSIONS."""
    sessions = []
    for path in sorted(Path(os.environ["CTXKIT_SESSIONS"]).glob("*/*")):
        with suppress(ck.CtxkitError):
            sessions += ck.read_all(path, progress=False)
    return sessions


def measure_forecasts() -> str:
    """Measure how many later sessions are in the intervals predicted from earlier ones."""
    coverage = forecast_and_threshold_holdout.measure_archive_coverage(
        forecast_and_threshold_holdout.make_developers(
            FORECAST_DEVELOPERS, sessions=FORECAST_SESSIONS
        )
    )
    dollars = {tool: c for (tool, figure), c in coverage.items() if figure == "usd"}
    is_met = all(0.7 <= c.share <= 0.9 for c in coverage.values())
    by_tool = ", ".join(f"{c.share:.0%} (`{tool}`)" for tool, c in sorted(dollars.items()))
    return (
        f"{'Met' if is_met else '**Missed**'} (goal: 70 to 90 %): the 80 % interval contained the dollars"
        f" of {by_tool} of the later sessions, in archives of synthetic developers.\n\n"
        + make_table(
            ["synthetic: tool, figure", *_COVERAGE_HEAD],
            [
                _format_coverage_row(f"{tool}, {figure}", c)
                for (tool, figure), c in sorted(coverage.items())
            ],
        )
        + f"\n\nSynthetic: {FORECAST_DEVELOPERS} developers with different tools, models and habits (seeds"
        f" 0-0 to 0-{FORECAST_DEVELOPERS - 1}), {FORECAST_SESSIONS} sessions each. The first half predicts"
        " the second, and habits do not change. Loss has no interval where a session lost nothing.\n\n"
        + measure_recorded_forecasts()
    )


def measure_recorded_forecasts() -> str:
    """Measure the coverage on the table of recorded sessions, which has no prices."""
    figures: dict[str, Callable[[SessionMissCounts], float | None]] = {
        "calls": lambda row: float(row.calls),
        "prompt tokens": forecast_and_threshold_holdout.count_tokens_shared_between_calls,
        "dollars of carried tokens": forecast_and_threshold_holdout.price_tokens_shared_between_calls,
    }
    results = {
        name: forecast_and_threshold_holdout.measure_coverage(figure)
        for name, figure in figures.items()
    }
    return (
        make_table(
            ["recorded: figure", *_COVERAGE_HEAD],
            [_format_coverage_row(name, result) for name, result in results.items()],
        )
        + "\n\nRecorded: the bundled table of public sessions. For each developer and tool with at least"
        " eight sessions, the first half predicts the second. Only Codex and Pi sessions are in order of"
        " time, so changes of habits are seen only in part. Carried tokens are those that a call shares"
        " with the call before, at list prices. The table has no new tokens or replies, so total dollars"
        " of recorded sessions are not established."
    )


_COVERAGE_HEAD = ("coverage", "sessions", "developers", "worst developer")


def _format_coverage_row(
    name: str, result: forecast_and_threshold_holdout.ForecastCoverage
) -> list[object]:
    sessions = f"{result.inside} of {result.sessions_n}"
    return [
        name,
        f"{result.share:.0%}",
        sessions,
        result.developers_n,
        _format_worst_developer(result),
    ]


def _format_worst_developer(result: forecast_and_threshold_holdout.ForecastCoverage) -> str:
    inside, sessions_n = min(
        (c for c in result.by_developer.values() if c[1]), key=lambda c: c[0] / c[1]
    )
    return f"{inside} of {sessions_n}"


def make_threshold_developers() -> dict[str, list[ck.Session]]:
    """Make the developers of `when`, named by seed and number."""
    return {
        f"{seed}-{i}": sessions
        for seed in THRESHOLD_SEEDS
        for i, sessions in enumerate(
            forecast_and_threshold_holdout.make_developers(
                THRESHOLD_DEVELOPERS, seed, THRESHOLD_SESSIONS
            ).values()
        )
    }


def measure_thresholds() -> str:
    """Measure whether thresholds from a developer's first sessions pay on the later ones."""
    developers = make_threshold_developers()
    shares = (0.0, EXTRA_LOSS, EXTRA_LOSS / ALLOWANCE_USED)
    strict, bounded, without_reserve_trials = forecast_and_threshold_holdout.hold_out_thresholds(
        developers, shares
    ).values()
    few_developers = forecast_and_threshold_holdout.make_developers(THRESHOLD_DEVELOPERS)
    (few_sessions_trials,) = forecast_and_threshold_holdout.hold_out_thresholds(
        few_developers, (EXTRA_LOSS,)
    ).values()
    developers_n, near_step_n = (
        len(developers),
        sum(trial.near_step for trial in (*strict, *bounded)),
    )
    saving_n = sum(trial.saves_within(0.0) for trial in strict)
    within_n, without_reserve_n, few_within_n = (
        sum(trial.saves_within(EXTRA_LOSS) for trial in trials)
        for trials in (bounded, without_reserve_trials, few_sessions_trials)
    )
    default_n = sum(trial.is_default for trial in strict)
    possible_n = sum(trial.is_possible for trial in strict)
    points = f"{100 * EXTRA_LOSS:g} points"
    return (
        f"{'**Missed**' if saving_n < 0.7 * developers_n else 'Met'} (goal: 70 % of developers): with no more loss"
        " than the tool's default, the threshold costs less on the later sessions of"
        f" {saving_n} of {developers_n} developers. For {default_n} the answer is to keep the default. Even if the"
        f" later sessions are known, such a threshold exists for only {possible_n} of {developers_n}, because an"
        " earlier compaction saves dollars but loses more.\n\n"
        f"With up to {points} more loss, the default of `when`, it costs less and stays within that bound on"
        f" the later sessions of {within_n} of {developers_n} ({within_n / developers_n:.0%}). It would succeed for"
        f" {without_reserve_n} if the choice used all of the bound, and for {few_within_n} of"
        f" {len(few_sessions_trials)} ({few_within_n / len(few_sessions_trials):.0%}) if there were"
        f" {forecast_and_threshold_holdout.SESSIONS_PER_DEVELOPER // 2} sessions to choose from instead of"
        f" {THRESHOLD_SESSIONS // 2}. {near_step_n} thresholds are within 5 % of a price step.\n\n"
        + make_table(
            [
                "developer",
                "default",
                "threshold",
                "cost per session",
                "cost at default",
                "loss",
                "loss at default",
                "result",
            ],
            [_format_trial_row(trial) for trial in bounded],
        )
        + f"\n\nThe table allows {points} more loss. Dollars and loss are means over the later half of the sessions,"
        " which the choice did not use. The developers are synthetic, with different tools, models and"
        f" habits (seeds {THRESHOLD_SEEDS[0]} to {THRESHOLD_SEEDS[-1]}, {THRESHOLD_DEVELOPERS} developers of"
        f" {THRESHOLD_SESSIONS} sessions each; those with"
        f" {forecast_and_threshold_holdout.SESSIONS_PER_DEVELOPER} sessions have seed 0). How often an earlier"
        " file is read again (0 to 15 % of the calls) is an assumption, and determines the loss."
        f" Recorded logs are not established: in CTXKIT_SESSIONS, {count_real_developers()} developers"
        " have four sessions that can be replayed."
    )


def count_real_developers() -> int:
    """Count the repositories of CTXKIT_SESSIONS with four sessions that can be replayed."""
    with (Path(os.environ["CTXKIT_SESSIONS"]) / "manifest.csv").open(encoding="utf-8") as file:
        repositories = {row["file"]: row["repository"] for row in csv.DictReader(file)}
    counts: Counter[tuple[str, str]] = Counter()
    for session in read_real_sessions():
        with suppress(ck.BadArguments):
            GrowthProfile(session)
            path = Path(session.path_ or "").relative_to(os.environ["CTXKIT_SESSIONS"])
            counts[session.format, repositories.get(str(path), str(path))] += 1
    return sum(n >= 2 * LATER_SESSIONS for n in counts.values())


def _format_trial_row(trial: forecast_and_threshold_holdout.TemporalThresholdHoldOut) -> list[str]:
    name = f"{trial.developer}: {trial.tool}, {trial.model}"
    held_out = trial.held_out
    if held_out is None:
        return [name, f"{trial.default:,}", *[""] * 5, "no choice"]
    result = "saves" if trial.saves_within(EXTRA_LOSS) else "loses more"
    if held_out.usd >= held_out.default_usd:
        result = "the default" if trial.is_default else "saves nothing"
    return [
        name,
        f"{trial.default:,}",
        f"{held_out.size:,}",
        f"${held_out.usd:,.2f}",
        f"${held_out.default_usd:,.2f}",
        f"{held_out.loss or 0:.1%}",
        f"{held_out.default_loss or 0:.1%}",
        result,
    ]


MEASURES: dict[str, Callable[[], str]] = {
    "keep-rules": lambda: f"{measure_rule_survival()}\n\n{measure_constraint_survival()}",
    "exam": measure_exam,
    "idle": measure_pauses,
    "forecasts": measure_forecasts,
    "when": measure_thresholds,
}
"""The function that measures each page, by the name of the page."""


def draw_pictures() -> dict[str, str]:
    """Return the pictures of the pages by name."""
    billing = ck.read(ck.samples.path("billing"))
    pictures = {}
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(ck.samples.path("billing"), temporary)
        lines = run_command(EXAM_COMMAND, Path(temporary))
    pictures["exam"] = draw_terminal(f"ctxkit {EXAM_COMMAND}", lines)
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "sessions").mkdir()
        for sample in LIMIT_SAMPLES:
            shutil.copy(ck.samples.path(sample), Path(temporary) / "sessions")
        lines = run_command("limits sessions", Path(temporary))
    pictures["limits"] = draw_terminal("ctxkit limits sessions", lines)
    pictures["card"] = make_card(billing).to_svg()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "sessions"
        folder.mkdir()
        for session in forecast_and_threshold_holdout.make_developers(PICTURED_DEVELOPER + 1)[
            f"dev-{PICTURED_DEVELOPER}"
        ]:
            ck.write(session, folder / f"{session.id}.jsonl")
        lines = run_command("when sessions", Path(temporary))
    pictures["when-folder"] = draw_terminal("ctxkit when sessions", lines)
    with tempfile.TemporaryDirectory() as temporary:
        make_archive(Path(temporary) / "archive")
        lines = run_command("forecasts archive", Path(temporary))
    pictures["forecasts"] = draw_terminal("ctxkit forecasts archive", lines)
    return pictures


def make_archive(folder: Path) -> None:
    """Write sessions of a synthetic developer, with a forecast from the first half of them."""
    folder.mkdir()
    ((_, sessions),) = idle_pauses.make_developers_with_pauses(1, sessions=24).items()
    for session in sessions:
        ck.write(session, folder / f"{session.id}.jsonl")
    starts = sorted(s.messages[0].time or 0.0 for s in sessions)
    ck.experiments.write_forecast(folder, now=starts[12])


def replace_measured(text: str, measured: str) -> str:
    """Return a page with its measured part replaced."""
    return _MEASURED.sub(lambda match: f"{match[1]}{measured}\n{match[2]}", text, count=1)


def main() -> None:
    """Write the measured parts of the named pages, or of all, and all pictures.

    With the argument `pictures` only the pictures are made.
    """
    warnings.simplefilter("ignore")
    names = [name for name in sys.argv[1:] if name != "pictures"]
    for name in names if sys.argv[1:] else MEASURES:
        path = DOCS / f"{name}.md"
        text = path.read_text(encoding="utf-8")
        path.write_text(replace_measured(text, MEASURES[name]()), encoding="utf-8")
        print(path)  # noqa: T201
    for name, picture in draw_pictures().items():
        (DOCS / "pictures" / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
