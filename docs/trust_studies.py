"""Chapter of docs/trust.md on published studies: how far a replay can be trusted."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

import ctxkit as ck
from ctxkit import presets
from ctxkit.experiments.cost_and_loss_scores import classify_replayed_policy, score_session
from ctxkit.experiments.studies import (
    closed_loop,
    mask_token_errors_and_visibility_exams,
    policy_ratios_and_noise_floors,
)
from ctxkit.experiments.studies.published_runs_and_tables import table
from ctxkit.metrics.run_elongation_from_studies import (
    INTERVAL_LEVEL,
    NOISE_FLOOR,
    estimate_elongation,
)
from ctxkit.presets.registry_and_setting_checks import resolve_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.metrics.run_elongation_from_studies import PolicyKind
    from ctxkit.policies import Rules


_WIDTH = 100
_BEFORE: tuple[PolicyKind, ...] = ("raw", "mask", "summary")
_HEAD = """A replay keeps the recorded steps and changes the prompts. Three studies measure how
far that is valid ([notebook 09](../notebooks/09-how-far-can-a-replay-be-trusted.ipynb); figures in
`ck.studies`). Intervals are 80 % intervals."""
_BILL = """{runs} runs of SWE-agent saw their last {kept} observations and recorded the tokens they
sent (SWE-bench Verified, June 2024). A mask is replayed over the same messages; its only constant,
billed tokens per character or per token of o200k, is the median of the *other* runs. The table has
the absolute value of predicted / recorded - 1 by observations kept:"""
_BILL_NOISE = """Against the record of another run, the error is {noise:.0%}. Runs whose last reply
is not in the file are left out."""
_BEHAVIOUR = """The same tasks were run under several policies (The Complexity Trap, arXiv
2508.21433; five models; OH marks OpenHands, the others are SWE-agent). Runs that failed before the
first call are left out."""
_BEHAVIOUR_COLUMNS = (
    ("`turns`, `dollars`", "with the policy / without one, in total over the tasks that both have"),
    ("`each`", "median absolute change in the turns of one task"),
    ("`size`", "predicted / recorded prompt tokens, by a growth model of runs without a policy"),
    ("`prompt`", "the same for the mean prompt, on which the number of turns has no effect"),
)
_GROWTH = """The growth model assumes that a run grows evenly. Under a mask or summaries it predicts
SWE-agent's prompts within 25 %, but it fails for OpenHands' masked prompts: where their total is
right, two errors cancel."""
_FACTORS = """The table has `elongation` ([scores](scores.md)) with the interval expected for a
further model (`metrics.run_elongation_from_studies`). A score widens this interval to include the
closed-loop runs below with the same kind of policy. With each model left out in turn, the
{level:.0%} interval of the others contained {held} of {models}. A single family has three or four
studies, too few for this test. Two settings of one kind of policy are assumed to differ no more
than two models under one setting."""
_NOISE = """The same policy was run twice over 50 tasks of OpenHands:"""
_RESAMPLED = """If tasks are resampled, 80 % of the ratios of two runs' totals are within:"""
_FLOOR = """Scores use {floor:.0%}, the floor over 50 tasks. This holds for many runs; a single run
shows nothing."""
_LOOP = """A scripted agent needs numbers that are in files, and reads each file that its prompt
does not show (`experiments.studies.closed_loop`). If it ignores its prompt, predicted and real
dollars differ by at most {blind:.1%}. If it uses its prompt:"""
_MISSED = """The rank correlation of predicted and real dollars over {n} policies is {order:+.2f}.
The correlation of items needed but not visible in the replay with files read again is {hint:+.2f},
so the loss shows where the dollars are too low. The test is hard: half of the questions go far
back."""


def list_closed_loop_rules() -> list[Any]:
    """Return the rules of the closed loop: masks, summaries, a trim."""
    window = 16_000
    rules = [presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (2, 5, 10, 20)]
    rules += [presets.pi(context_window=window, reserve_tokens=4_000, keep_recent_tokens=3_000)]
    rules += [presets.claude_code(context_window=40_000)]
    return [*rules, "strands", presets.tyrum(context_window=window, reserved_input_tokens=2_000)]


def list_table_rules() -> list[Rules | str]:
    """Return the rules of the table of closed-loop runs, in its order."""
    return [*list_closed_loop_rules(), "clear:keep_last=3"]


def measure_closed_loops(rules: Sequence[Rules | str]) -> str:
    """Return the table of closed-loop runs by policy family (`run_elongation_from_studies`)."""
    runs = closed_loop.loop(rules)
    record = closed_loop.run_scripted_agent("none")
    lines = ["# Calls of a scripted agent under rules, and without: `make trust`."]
    lines += ["kind;rules;calls_predicted;calls_real"]
    for rules_of_run, row in zip(rules, _to_records(runs.reset_index()), strict=True):
        replayed = ck.replay(
            record, resolve_rules(rules_of_run).but(counter=ck.tokens.get_counter("chars/4"))
        )
        is_pruned = bool(replayed.details["replay"].get("pruning"))
        kind = classify_replayed_policy(score_session(replayed, loss=False), pruned=is_pruned)
        counts = f"{row['calls_predicted']};{row['calls_real']}"
        lines.append(f"{kind};{row['rules']};{counts}")
    return "\n".join(lines) + "\n"


def format_chapter() -> str:
    """Return the chapter in Markdown, from the committed tables and a new closed-loop run."""
    head = f"## How far a replay can be trusted\n\n{_fill_text(_HEAD)}"
    first_sections = f"{head}\n{_format_known_steps()}\n{_format_behaviour()}\n{_format_factors()}"
    return f"{first_sections}\n{_format_noise_floor()}\n{_format_closed_loop()}"


def _format_known_steps() -> str:
    runs = table("masks")
    units: tuple[mask_token_errors_and_visibility_exams.Unit, ...] = ("chars", "o200k")
    error_rows = [
        _to_records(
            mask_token_errors_and_visibility_exams.summarise_errors_by_window(runs, unit).fillna(
                {"window": mask_token_errors_and_visibility_exams.NO_MASK}
            )
        )
        for unit in units
    ]
    shuffled = runs["sent"].sample(frac=1, random_state=1).to_numpy()
    noise = np.median(
        np.abs(
            mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(
                runs, mask_token_errors_and_visibility_exams.RECORDED_WINDOW, "o200k", shuffled
            )
        )
    )
    rows = [
        (by_chars["window"] or "none", *_format_errors(by_chars), *_format_errors(by_tokens))
        for by_chars, by_tokens in zip(*error_rows, strict=True)
    ]
    head = ("kept", "characters: median", "90th percentile", "o200k: median", "90th percentile")
    text = _fill_text(
        _BILL, runs=len(runs), kept=mask_token_errors_and_visibility_exams.RECORDED_WINDOW
    )
    closing = _fill_text(_BILL_NOISE, noise=noise)
    return f"### The cost of known steps\n\n{text}\n{_format_table(head, rows)}\n{closing}"


def _format_errors(row: dict[str, Any]) -> tuple[str, str]:
    median_and_interval = f"{row['median']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
    return median_and_interval, f"{row['nine_tenths']:.1%}"


def _format_behaviour() -> str:
    ratios = table("ratios")
    raw = ratios[ratios["before"] == "raw"].sort_values(["after", "scaffold", "model", "tasks"])
    rows = [
        (
            f"{'OH ' * (row['scaffold'] == 'openhands')}{row['model']}",
            f"{row['after']} {row['setting']}",
            row["tasks"],
            _format_interval(row, "turns"),
            f"{row['each']:.0%}",
            *(_format_interval(row, column) for column in ("usd", "bill")),
            f"{row['prompt']:.2f}",
        )
        for row in _to_records(raw)
    ]
    head = ("model", "policy", "tasks", "turns", "each", "dollars", "size", "prompt")
    text, closing = _fill_text(_BEHAVIOUR), _fill_text(_GROWTH)
    columns = _format_table(("column", "meaning"), _BEHAVIOUR_COLUMNS)
    return (
        f"### The behaviour under another policy\n\n{text}\n{columns}\n"
        f"{_format_table(head, rows)}\n{closing}"
    )


def _format_factors() -> str:
    left_out = policy_ratios_and_noise_floors.cross_validate_elongation()
    rows = [
        (before, after, *(f"{f.factor:.2f} ({f.low:.2f} to {f.high:.2f})" for f in elongations))
        for before in _BEFORE
        for after in (*_BEFORE, "hybrid", "other")
        for elongations in [
            [estimate_elongation(after, before, f) for f in ("gemini", "qwen", "other")]
        ]
        if elongations[0].studies
    ]
    counts = {"held": left_out["held"].sum(), "models": len(left_out)}
    text = _fill_text(_FACTORS, level=INTERVAL_LEVEL, **counts)
    head = ("record", "replay", "Gemini", "Qwen", "any model")
    return f"### The factor in every comparison\n\n{text}\n{_format_table(head, rows)}"


def _format_noise_floor() -> str:
    repeats, floors = table("repeats"), table("floors")
    pairs = [
        (row["policy"], f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
        for row in _to_records(repeats[repeats["figure"] == "usd"])
    ]
    by_tasks = floors.pivot_table(index="tasks", columns="figure", values="floor").reset_index()
    rows = [
        (row["tasks"], f"{row['turns']:.0%}", f"{row['usd']:.0%}") for row in _to_records(by_tasks)
    ]
    pair_table = (
        f"{_fill_text(_NOISE)}\n{_format_table(('policy', 'dollars, second / first'), pairs)}"
    )
    floor_table = f"{_fill_text(_RESAMPLED)}\n{_format_table(('tasks', 'turns', 'dollars'), rows)}"
    closing = _fill_text(_FLOOR, floor=NOISE_FLOOR)
    return f"### The noise floor\n\n{pair_table}\n{floor_table}\n{closing}"


def _format_closed_loop() -> str:
    rules = ["none", *list_closed_loop_rules()]
    blind, seeing = closed_loop.loop(rules, blind=True), closed_loop.loop(rules)
    counts = ("calls_predicted", "calls_real", "out_of_sight", "rereads_n")
    rows = [
        (
            row["rules"],
            *(row[column] for column in counts),
            *(f"${row[f'usd_{source}']:.2f}" for source in ("predicted", "real")),
            f"{row['usd_error']:+.0%}",
        )
        for row in _to_records(seeing.reset_index())
    ]
    head = (
        *("policy", "calls predicted", "calls real", "not visible", "read again"),
        *("dollars predicted", "dollars real", "error"),
    )
    rank_correlation = seeing["usd_predicted"].rank().corr(seeing["usd_real"].rank())
    loss_correlation = seeing["out_of_sight"].corr(seeing["rereads_n"])
    text = _fill_text(_LOOP, blind=blind["usd_error"].abs().max())
    closing = _fill_text(_MISSED, order=rank_correlation, hint=loss_correlation, n=len(seeing))
    return f"### The closed loop\n\n{text}\n{_format_table(head, rows)}\n{closing}"


def _fill_text(text: str, **figures: Any) -> str:
    """Return a text with its figures filled in, wrapped to one paragraph."""
    paragraph = " ".join(text.format(**figures).split())
    return fill(paragraph, _WIDTH, break_on_hyphens=False) + "\n"


def _format_interval(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def _to_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _format_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
