"""Measure the answers that have a page of their own: `python docs/make_answers.py [PAGE ...]`.

Each page holds what was measured between two comments; the script writes that part again, from made
data with seeds, or from public data beside CTXKIT_SESSIONS. Its pictures are made here, too.
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
    exam_accuracy_by_visibility,
    forecast_coverage,
    threshold_holdout,
    user_constraints_in_summaries,
)
from ctxkit.experiments.studies import (
    idle_ledger_accuracy as idle_pauses,
)
from ctxkit.experiments.studies.rule_survival import (
    HELD_OUT_WORDINGS,
    RULES_PER_TALK,
    make_rule_conversations,
    measure_rule_survival,
)
from ctxkit.metrics.cost.idle_ledger import find_pauses
from ctxkit.metrics.growth_profile import GrowthProfile
from ctxkit.metrics.optimal_trigger import EXTRA_LOSS
from ctxkit.metrics.threshold_costs import ALLOWANCE_USED, LATER_SESSIONS
from ctxkit.widgets.reports.compaction_card import make_card

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.engine.cache_model.training_counts import SessionCounts

DOCS = Path(__file__).parent
_MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)
RULE_TALKS, CONSTRAINT_TALKS = 10, 4
IDLE_DEVELOPERS, IDLE_SEEDS = 20, (0, 3, 4, 5, 6, 7)
"""Developers of each seed; how lengths are smoothed was chosen on those of seeds 1 and 2."""
THRESHOLD_DEVELOPERS = 20
THRESHOLD_SEEDS, THRESHOLD_SESSIONS = (13, 14, 15), 16
"""Of the developers of `when`; how much of the allowed loss a choice uses was chosen on others."""
FORECAST_DEVELOPERS, FORECAST_SESSIONS = 50, 16
PICTURED_DEVELOPER = 6
"""The made developer whose answer is the picture of `when` for a folder."""
EXAM_COMMAND = "exam billing.jsonl -r pi -r claude_code -r strands"
"""The command of the picture of exams."""
LIMIT_SAMPLES = ("billing", "incident", "research", "chat")
"""Samples in the picture of limits."""


def make_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first stand to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def measure_rules() -> str:
    """Measure how many rules outlive made talks, with and without `keep_rules`."""
    frame = measure_rule_survival(make_rule_conversations(RULE_TALKS))
    kept = frame["with_empty"].min()
    cheap = (frame["more_tokens"] <= 0.02).sum()
    missed = frame[frame["more_tokens"] > 0.02]
    names = ", ".join(f"`{r.rules}` {r.more_tokens:.1%}" for r in missed.itertuples())
    columns = ["kept_empty", "with_empty", "kept_extract", "with_extract"]
    rows = [
        [
            f"`{r['rules']}`",
            f"{r['compactions_n']:.1f}",
            *(f"{r[c]:.0%}" for c in columns),
            f"{r['more_tokens']:+.1%}",
        ]
        for r in frame.to_dict("records")
    ]
    head = ["preset", "compactions", "empty summary", "with `keep_rules`"]
    head += ["extract", "with `keep_rules`", "tokens"]
    return (
        f"With `keep_rules` at least {kept:.0%} of the rules are kept under each of {len(frame)} presets;"
        f" {cheap} of them send at most 2 % more tokens"
        + (f", the others, which keep tiny contexts, more ({names})" if names else "")
        + f". {RULE_TALKS} talks (seeds 0-0 to 0-{RULE_TALKS - 1}), {RULES_PER_TALK} rules each, windows of"
        f" 64,000 tokens, {len(HELD_OUT_WORDINGS)} wordings that the extractor was not written on.\n\n"
        + make_table(head, rows)
    )


def measure_constraints() -> str:
    """Measure the same on COMPINT's constraints, and the marks of its summaries beside people's."""
    frame = measure_rule_survival(
        user_constraints_in_summaries.make_constraint_talks(CONSTRAINT_TALKS)
    )
    marks = user_constraints_in_summaries.compare_marks(
        user_constraints_in_summaries.read_judged_summaries()
    )
    cheap = (frame["more_tokens"] <= 0.02).sum()
    empty, extract = frame["kept_empty"], frame["kept_extract"]
    least = frame[["with_empty", "with_extract"]].min().min()
    carried = "all" if least == 1 else f"at least {least:.0%}"
    return (
        f"COMPINT's {RULES_PER_TALK} constraints, stated in the first turns of {CONSTRAINT_TALKS} talks:"
        f" with `keep_rules` {carried} are kept"
        f" under each of {len(frame)} presets, {cheap} at 2 % more tokens or less. They are not held out:"
        " the extractor at first found 11 of the 15, and orders like “when you cite something, use"
        f" ...” were added for the others. Without it an empty summary keeps none under {(empty == 0).sum()}"
        f" presets and at most {empty.max():.0%}. Extracts keep all under {(extract == 1).sum()}: more than"
        " the models of the paper do (0 to 64 %, mean 17 %; only keeping the newest messages: 0 %). So the"
        " order of presets is not that of the paper, which compares models; no model was called here.\n\n"
        f"Of {marks.lost_n} published summaries in which a person did not find the constraint,"
        f" {marks.marked_lost_n} are marked so; of {marks.retained_n} in which one did, only {marks.marked_retained_n}:"
        " **marks miss rules that a summary says in other words**. The shares of summaries that are marked"
        f" as keeping it order the paper's {marks.compactors_n} compactors as it does, by a rank"
        f" correlation of {marks.order_correlation:.2f}.\n\n"
        "COMPINT: arXiv 2608.11242, MIT, the 15 constraints and 50 judged summaries of its repository"
        " (commit 5485922), read from CTXKIT_STUDIES. Its talks of 100,000 tokens are not at hand: not"
        " measured on them."
    )


def measure_exam() -> str:
    """Measure whether answers that are marked as shown are given, on published answers."""
    answers = exam_accuracy_by_visibility.read_answers()
    result = exam_accuracy_by_visibility.compare_with_answers(answers)
    low, high = result.difference_interval
    orders = (
        f"Ways with a readable prompt and published answers: {result.policies_n}. An order of ways is"
        " reported from five on, so there is none here."
    )
    return (
        f"{_judge(result.ratio >= 2)} (asked for: at least twice as often): of {result.shown} questions"
        f" marked as shown {result.right_shown} were answered right"
        f" ({result.right_shown / result.shown:.0%}), of {result.gone} marked as gone"
        f" {result.right_gone} ({result.right_gone / result.gone:.0%}). Noise: over"
        f" {result.histories_n} histories the difference of both shares is {low:.0%} to {high:.0%}"
        " (90 % interval, histories drawn with replacement); with the answers shuffled within each"
        f" history it is {result.shuffled_difference:+.0%}. {orders}\n\n"
        "Data: 600 questions over eight made histories, Pi's default compaction by a real model, its"
        " answers (algal/pi-openai-server-compaction, MIT)."
    )


def measure_pauses() -> str:
    """Measure how well writes after pauses and the order of choices are predicted."""
    developers, habits = {}, {}
    for seed in IDLE_SEEDS:
        made = idle_pauses.make_developers(IDLE_DEVELOPERS, seed)
        developers |= {f"{seed}-{name}": sessions for name, sessions in made.items()}
        known = idle_pauses.list_pause_lengths(IDLE_DEVELOPERS, seed)
        habits |= {f"{seed}-{name}": lengths for name, lengths in known.items()}
    every = [session for sessions in developers.values() for session in sessions]
    pauses = {name: [p for s in ss for p in find_pauses(s)] for name, ss in developers.items()}
    result = idle_pauses.measure_idle(pauses, habits)
    real = read_real_sessions()
    errors, rights = (
        idle_pauses.measure_write_errors(real),
        idle_pauses.check_choice_rankings(real),
    )
    writers = len({s.id for s in real if idle_pauses.measure_write_errors([s])})
    made_errors = idle_pauses.measure_write_errors(every)
    unknown = "not established"
    held_back = f"({result.pauses_n} pauses, {result.developers_n} developers)"
    rows = [
        [
            "next call's write, median error",
            "10 %",
            f"{median(errors):.1%} ({len(errors)} pauses, {writers} sessions)",
            f"{median(made_errors):.1%} ({len(made_errors)} pauses)",
        ],
        [
            "order of the choices, length known",
            "80 %",
            f"{sum(rights) / len(rights):.0%} ({len(rights)} pauses)",
            f"{_share(idle_pauses.check_choice_rankings(every))}",
        ],
        [
            "order predicted, against mean prices over the true habit",
            "80 %",
            unknown,
            f"{result.habit_share:.0%} {held_back}",
        ],
        [
            "order predicted, against mean prices over the pauses held back",
            "80 %",
            unknown,
            f"{result.later_share:.0%}; who knows the habit: {result.later_limit:.0%}",
        ],
        [
            "order predicted, against each pause's own length",
            "80 %",
            unknown,
            f"{result.single_share:.0%}; who knows the habit: {result.single_limit:.0%}",
        ],
        [
            "cheapest choice predicted, against mean prices over the pauses held back",
            "",
            unknown,
            f"{result.cheapest_share:.0%}",
        ],
    ]
    return (
        f"**{_judge(result.later_share >= 0.8)}**: before a pause's length is known, the order of the"
        " four choices by mean price over the pauses held back is predicted for"
        f" {result.later_share:.0%} of them, not 80 %. Who knows each developer's habit exactly"
        f" reaches {result.later_limit:.0%}, as a few dozen pauses are left to chance. Against mean"
        f" prices over the true habit {result.habit_share:.0%} are right. The order by each pause's own"
        f" length nobody can predict: {result.single_share:.0%} here, {result.single_limit:.0%} for who"
        f" knows the habit. The predicted choice costs {result.extra_cost:.1%} more than the one that"
        " mean prices over the pauses held back name. What the next call writes is predicted within"
        f" 10 %, and once a pause is over its order of choices is right in"
        f" {sum(rights) / len(rights):.0%}.\n\n"
        + make_table(["measure", "asked for", "recorded logs", "made developers"], rows)
        + f"\n\nRecorded logs: those of CTXKIT_SESSIONS, of fewer than ten developers: not established."
        f" Made: {result.developers_n} developers with habits of their own (seeds"
        f" {', '.join(map(str, IDLE_SEEDS))}, {IDLE_DEVELOPERS} each), the cache as documented; learnt on"
        " the first half of each one's pauses, tried on the second. How lengths are smoothed was chosen"
        " on other developers (seeds 1 and 2)."
    )


def _judge(is_met: bool) -> str:
    return "Met" if is_met else "Missed"


def _share(rights: Sequence[bool]) -> str:
    return f"{sum(rights) / len(rights):.0%} ({len(rights)} pauses)"


def read_real_sessions() -> list[ck.Session]:
    """Return the recorded sessions of CTXKIT_SESSIONS."""
    sessions = []
    for path in sorted(Path(os.environ["CTXKIT_SESSIONS"]).glob("*/*")):
        with suppress(ck.CtxkitError):
            sessions += ck.read_all(path, progress=False)
    return sessions


def measure_forecasts() -> str:
    """Measure how many later sessions are in the intervals that earlier ones gave."""
    made = forecast_coverage.measure_archive_coverage(
        threshold_holdout.make_developers(FORECAST_DEVELOPERS, sessions=FORECAST_SESSIONS)
    )
    dollars = {tool: c for (tool, figure), c in made.items() if figure == "usd"}
    is_met = all(0.7 <= c.share <= 0.9 for c in made.values())
    by_tool = ", ".join(f"{c.share:.0%} (`{tool}`)" for tool, c in sorted(dollars.items()))
    return (
        f"{'Met' if is_met else '**Missed**'} (asked for: 70 to 90 %): of the dollars of later"
        f" sessions the 80 % interval held {by_tool}, in archives of made developers.\n\n"
        + make_table(
            ["made: tool, of a session", *_COVERAGE_HEAD],
            [_coverage_row(f"{tool}, {figure}", c) for (tool, figure), c in sorted(made.items())],
        )
        + f"\n\nMade: {FORECAST_DEVELOPERS} developers with tools, models and habits of their own (seeds"
        f" 0-0 to 0-{FORECAST_DEVELOPERS - 1}), {FORECAST_SESSIONS} sessions each, written as files; the"
        " forecast is made in the middle. Habits do not drift. Loss has no interval from so few"
        " sessions where one lost nothing.\n\n" + measure_recorded_forecasts()
    )


def measure_recorded_forecasts() -> str:
    """Measure the same on the table of recorded sessions, which holds no prices."""
    figures: dict[str, Callable[[SessionCounts], float | None]] = {
        "calls": lambda row: float(row.calls),
        "prompt tokens": forecast_coverage.count_carried_tokens,
        "dollars of carried tokens": forecast_coverage.price_carried_tokens,
    }
    results = {n: forecast_coverage.measure_coverage(f) for n, f in figures.items()}
    return (
        make_table(
            ["recorded: of a session", *_COVERAGE_HEAD],
            [_coverage_row(name, r) for name, r in results.items()],
        )
        + "\n\nRecorded: the table of sessions that ships with the kit (public logs, no text): each"
        " developer's sessions of a tool, eight or more, cut in two; the first half predicts the"
        " second. The order is that of time for Codex and Pi, and that of the table for the others,"
        " which holds no times: a drift of habits is seen in part only. Carried tokens are those that"
        " a call shares with the one before, at list prices for what the cache read and missed; new"
        " tokens and replies are not in the table, so whole dollars of recorded sessions are not"
        " established."
    )


_COVERAGE_HEAD = ("inside", "sessions", "developers", "worst developer")


def _coverage_row(name: str, result: forecast_coverage.ForecastCoverage) -> list[object]:
    sessions = f"{result.inside} of {result.sessions_n}"
    return [name, f"{result.share:.0%}", sessions, result.developers_n, _worst(result)]


def _worst(result: forecast_coverage.ForecastCoverage) -> str:
    inside, of = min((c for c in result.by_developer.values() if c[1]), key=lambda c: c[0] / c[1])
    return f"{inside} of {of}"


def make_threshold_developers() -> dict[str, list[ck.Session]]:
    """Make the developers of `when`, named by seed and number."""
    return {
        f"{seed}-{i}": sessions
        for seed in THRESHOLD_SEEDS
        for i, sessions in enumerate(
            threshold_holdout.make_developers(
                THRESHOLD_DEVELOPERS, seed, THRESHOLD_SESSIONS
            ).values()
        )
    }


def measure_thresholds() -> str:
    """Measure whether thresholds from a developer's first sessions pay on the later ones."""
    developers = make_threshold_developers()
    shares = (0.0, EXTRA_LOSS, EXTRA_LOSS / ALLOWANCE_USED)
    strict, bounded, whole = threshold_holdout.try_thresholds(developers, shares).values()
    few_developers = threshold_holdout.make_developers(THRESHOLD_DEVELOPERS)
    (few,) = threshold_holdout.try_thresholds(few_developers, (EXTRA_LOSS,)).values()
    n, near = len(developers), sum(t.near_step for t in (*strict, *bounded))
    wins = sum(t.saves_within(0.0) for t in strict)
    within, without_reserve, few_within = (
        sum(t.saves_within(EXTRA_LOSS) for t in trials) for trials in (bounded, whole, few)
    )
    same = sum(t.is_default for t in strict)
    possible = sum(t.is_possible for t in strict)
    points = f"{100 * EXTRA_LOSS:g} points"
    return (
        f"{'**Missed**' if wins < 0.7 * n else 'Met'} (asked for: 70 % of developers): with no more loss"
        " than the tool's default at all, the threshold costs less on the later sessions of"
        f" {wins} of {n} developers; for {same} the answer is to keep the default. Even chosen with the"
        f" later sessions known, a threshold does so for {possible} of {n} only. All these developers"
        " go back to earlier files, so an earlier compaction saves dollars and sooner or later takes"
        " more.\n\n"
        f"With up to {points} more loss, which is what `when` allows, it costs less and stays within"
        f" that bound on the later sessions of {within} of {n} ({within / n:.0%}). The choice aims at"
        f" {ALLOWANCE_USED:.0%} of the bound; one that used all of it would stay within it for"
        f" {without_reserve}. From {threshold_holdout.SESSIONS // 2} sessions and not"
        f" {THRESHOLD_SESSIONS // 2} it does for {few_within} of {len(few)}"
        f" ({few_within / len(few):.0%}), so a few sessions are too few. Thresholds within 5 % of a"
        f" price step: {near}.\n\n"
        + make_table(
            [
                "developer",
                "default",
                "threshold",
                "a session",
                "by default",
                "lost",
                "by default",
                "",
            ],
            [_trial_row(t) for t in bounded],
        )
        + f"\n\nAll {n} developers, with up to {points} more loss; dollars and loss"
        " are means of the later half of the sessions, which the choice did not see."
        f" Made: tools, models and habits of their own (seeds {THRESHOLD_SEEDS[0]} to"
        f" {THRESHOLD_SEEDS[-1]}, {THRESHOLD_DEVELOPERS} each), {THRESHOLD_SESSIONS} sessions each, the"
        f" cache as documented; with {threshold_holdout.SESSIONS} sessions: seed 0. How often an earlier"
        " file is read again (0 to 15 % of the calls) is assumed, and decides what is lost. Recorded"
        f" logs: those of CTXKIT_SESSIONS have {count_real_developers()} developers with four sessions"
        " that can be replayed: not established."
    )


def count_real_developers() -> int:
    """Return the folders of CTXKIT_SESSIONS that hold four sessions of one repository to replay."""
    with (Path(os.environ["CTXKIT_SESSIONS"]) / "manifest.csv").open(encoding="utf-8") as file:
        repositories = {row["file"]: row["repository"] for row in csv.DictReader(file)}
    counts: Counter[tuple[str, str]] = Counter()
    for session in read_real_sessions():
        with suppress(ck.BadArguments):
            GrowthProfile(session)
            place = Path(session.path_ or "").relative_to(os.environ["CTXKIT_SESSIONS"])
            counts[session.format, repositories.get(str(place), str(place))] += 1
    return sum(n >= 2 * LATER_SESSIONS for n in counts.values())


def _trial_row(trial: threshold_holdout.DeveloperThresholdHoldOut) -> list[str]:
    name = f"{trial.developer}: {trial.tool}, {trial.model}"
    tried = trial.held_out
    if tried is None:
        return [name, f"{trial.default:,}", *[""] * 5, "no choice"]
    word = "saves" if trial.saves_within(EXTRA_LOSS) else "loses more"
    if tried.usd >= tried.default_usd:
        word = "the default" if trial.is_default else "saves nothing"
    return [
        name,
        f"{trial.default:,}",
        f"{tried.size:,}",
        f"${tried.usd:,.2f}",
        f"${tried.default_usd:,.2f}",
        f"{tried.loss or 0:.1%}",
        f"{tried.default_loss or 0:.1%}",
        word,
    ]


MEASURES: dict[str, Callable[[], str]] = {
    "keep-rules": lambda: f"{measure_rules()}\n\n{measure_constraints()}",
    "exam": measure_exam,
    "idle": measure_pauses,
    "forecasts": measure_forecasts,
    "when": measure_thresholds,
}
"""The pages, and what measures them."""


def draw_pictures() -> dict[str, str]:
    """Return the pictures of the pages by name."""
    billing = ck.read(ck.samples.path("billing"))
    pictures = {}
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(ck.samples.path("billing"), name)
        lines = run_command(EXAM_COMMAND, Path(name))
    pictures["exam"] = draw_terminal(f"ctxkit {EXAM_COMMAND}", lines)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "sessions").mkdir()
        for sample in LIMIT_SAMPLES:
            shutil.copy(ck.samples.path(sample), Path(name) / "sessions")
        lines = run_command("limits sessions", Path(name))
    pictures["limits"] = draw_terminal("ctxkit limits sessions", lines)
    pictures["card"] = make_card(billing).to_svg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "sessions"
        folder.mkdir()
        for session in threshold_holdout.make_developers(PICTURED_DEVELOPER + 1)[
            f"dev-{PICTURED_DEVELOPER}"
        ]:
            ck.write(session, folder / f"{session.id}.jsonl")
        lines = run_command("when sessions", Path(name))
    pictures["when-folder"] = draw_terminal("ctxkit when sessions", lines)
    with tempfile.TemporaryDirectory() as name:
        make_archive(Path(name) / "archive")
        lines = run_command("forecasts archive", Path(name))
    pictures["forecasts"] = draw_terminal("ctxkit forecasts archive", lines)
    return pictures


def make_archive(folder: Path) -> None:
    """Write sessions of a made developer, with a forecast from the first half of them."""
    folder.mkdir()
    ((_, sessions),) = idle_pauses.make_developers(1, sessions=24).items()
    for session in sessions:
        ck.write(session, folder / f"{session.id}.jsonl")
    starts = sorted(s.messages[0].time or 0.0 for s in sessions)
    ck.experiments.write_forecast(folder, now=starts[12])


def replace_measured(text: str, measured: str) -> str:
    """Return a page with another measure."""
    return _MEASURED.sub(lambda found: f"{found[1]}{measured}\n{found[2]}", text, count=1)


def main() -> None:
    """Write the measures of the pages that are named, or of all, and all pictures.

    `pictures` names none, and so only the pictures are made.
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
