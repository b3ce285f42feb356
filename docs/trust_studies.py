"""The chapter on published studies: how far a replay can be trusted."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

import ctxkit as ck
from ctxkit import presets
from ctxkit.experiments.cost_and_loss_scores import classify_replayed_policy, score_session
from ctxkit.experiments.studies import behaviour, closed_loop, masks
from ctxkit.experiments.studies.published_runs import table
from ctxkit.metrics.elongation import INTERVAL_LEVEL, NOISE_FLOOR, estimate_elongation
from ctxkit.presets.registry import resolve_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.metrics.elongation import PolicyKind


_WIDTH = 100
_BEFORE: tuple[PolicyKind, ...] = ("raw", "mask", "summary")
_HEAD = """A replay keeps the recorded steps and changes what each was shown. Three studies say how
far that goes: the bill of known steps, the steps of real runs under other policies, and agents that
take other steps when something is out of sight. Notebook 09 shows them; `ck.studies` has the
figures, and `make studies` makes its tables from the published runs. Intervals are of 80 %."""
_BILL = """{runs} runs of SWE-agent that were shown their last {kept} observations and wrote down
what they sent (SWE-bench Verified, June 2024). The kit replays a mask over the same messages; one
constant, billed tokens a character or a token of o200k, is the median of the *other* runs. Size of
predicted / recorded - 1, median and nine of ten, by the number of observations that are kept:"""
_BILL_NOISE = """Each run judged by another run's record: {noise:.0%}. Runs with a last call whose
reply is not in the file are left out."""
_BEHAVIOUR = """Published runs of the same tasks under several policies (The Complexity Trap, arXiv
2508.21433; five models; OpenHands is marked OH, all else is SWE-agent). `turns` and `dollars` are
totals of managed runs over those of the same model without management, over tasks that both have;
intervals are from tasks drawn again. `each` is the median change of a single task's turns, up or
down. `size` is what a growth model, told the unmanaged runs alone, predicts of all prompt tokens,
over what was recorded; `prompt` is the same of the mean prompt, so what is between the two is the
turns. Runs that failed before they began (no tokens) are left out: counted in, 36 masked runs of
Gemini Flash with one turn each would make masks seem to shorten its runs by an eighth."""
_GROWTH = """The growth model is the weak part: a run is taken to grow evenly
(`experiments.studies.behaviour`). It fits SWE-agent's prompts under a mask or summaries within a
quarter and OpenHands' masked ones not at all; where a total is right all the same, two errors
cancel."""
_FACTORS = """`elongation` of a row of scores: calls of real runs over those of the record, with the
interval in which a further model is expected (`metrics.elongation`), by the policy of the record,
that of the replay, and the family of the model; a family has its own where three studies are of
it. In a row of scores the interval is widened to the closed-loop runs below, of the family of the
replay's policy. Two settings of one family of policies are taken to lie no further apart than
models under one setting. Each model left out in turn, the {level:.0%} interval of the others, of
any family, held {held} of {models}. A family's own interval is narrower and rests on three or four
studies, too few to try it so."""
_NOISE = """Dollars of a second run of the same policy over the first, OpenHands, 50 tasks: {pairs}.
From these pairs, tasks drawn again and of each task either run taken for the second, 80 of 100
pairs of totals are within:"""
_FLOOR = """A row differs from the record where the whole interval of its cost lies more than
{floor:.0%} away from it: the floor over 50 tasks. That is a statement on many runs like this one; a
single run shows nothing."""
_LOOP = """An agent without a key: asked for numbers that are in files, it reads those that its
prompt does not show, for the first time or again (`experiments.studies.closed_loop`); engine,
tools, edits and bill are those of any live session. With its eyes closed its steps are the same
under any policy: predicted and real dollars then differ by {blind:.1%} at most. With its eyes
open:"""
_MISSED = """The order of the dollars predicted agrees with that of the real ones by {order:+.2f}
(rank correlation over {n} policies); what the replay showed to be out of sight when it was needed
agrees with what was read again by {hint:+.2f}. So a replay's loss says where its dollars are too
low. The world is harsh: half of the questions go far back."""


def closed_rules() -> list[Any]:
    """Return the rules that the closed loop is shown with: masks, summaries, a trim."""
    window = 16_000
    rules = [presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (2, 5, 10, 20)]
    rules += [presets.pi(context_window=window, reserve_tokens=4_000, keep_recent_tokens=3_000)]
    rules += [presets.claude_code(context_window=40_000)]
    return [*rules, "strands", presets.tyrum(context_window=window, reserved_input_tokens=2_000)]


def measure_closed_loops() -> str:
    """Return the table of `metrics.elongation`: closed-loop runs by family of policies."""
    rules = [*closed_rules(), "clear:keep_last=3"]
    seeing = closed_loop.loop(rules)
    record = closed_loop.run_scripted_agent("none")
    lines = ["# Calls of a scripted agent under rules, and without: `make trust`."]
    lines += ["kind;rules;calls_predicted;calls_real"]
    for each, row in zip(rules, _to_records(seeing.reset_index()), strict=True):
        replayed = ck.replay(
            record, resolve_rules(each).but(counter=ck.tokens.get_counter("chars/4"))
        )
        is_pruned = bool(replayed.details["replay"].get("pruning"))
        kind = classify_replayed_policy(score_session(replayed, loss=False), pruned=is_pruned)
        counts = f"{row['calls_predicted']};{row['calls_real']}"
        lines.append(f"{kind};{row['rules']};{counts}")
    return "\n".join(lines) + "\n"


def render_page() -> str:
    """Return the section as Markdown, from the committed tables and a new closed-loop run."""
    head = f"## How far a replay can be trusted\n\n{_fill_text(_HEAD)}"
    first_sections = f"{head}\n{_render_bill()}\n{_render_behaviour()}\n{_render_factors()}"
    return f"{first_sections}\n{_render_noise_floor()}\n{_render_closed_loop()}"


def _render_bill() -> str:
    runs = table("masks")
    units: tuple[masks.Unit, ...] = ("chars", "o200k")
    error_rows = [
        _to_records(masks.by_window(runs, u).fillna({"window": masks.NO_MASK})) for u in units
    ]
    shuffled = runs["sent"].sample(frac=1, random_state=1).to_numpy()
    noise = np.median(
        np.abs(masks.measure_prediction_errors(runs, masks.RECORDED_WINDOW, "o200k", shuffled))
    )
    rows = [
        (a["window"] or "none", *_format_errors(a), *_format_errors(b))
        for a, b in zip(*error_rows, strict=True)
    ]
    head = ("kept", "characters", "nine of ten", "o200k", "nine of ten")
    text = _fill_text(_BILL, runs=len(runs), kept=masks.RECORDED_WINDOW)
    after = _fill_text(_BILL_NOISE, noise=noise)
    return f"### The bill of known steps\n\n{text}\n{_format_table(head, rows)}\n{after}"


def _format_errors(row: dict[str, Any]) -> tuple[str, str]:
    ends = f"{row['median']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
    return ends, f"{row['nine_tenths']:.1%}"


def _render_behaviour() -> str:
    ratios = table("ratios")
    raw = ratios[ratios["before"] == "raw"].sort_values(["after", "scaffold", "model", "tasks"])
    rows = [
        (
            f"{'OH ' * (r['scaffold'] == 'openhands')}{r['model']}",
            f"{r['after']} {r['setting']}",
            r["tasks"],
            _format_interval(r, "turns"),
            f"{r['each']:.0%}",
            *(_format_interval(r, c) for c in ("usd", "bill")),
            f"{r['prompt']:.2f}",
        )
        for r in _to_records(raw)
    ]
    head = ("model", "policy", "tasks", "turns", "each", "dollars", "size", "prompt")
    text, after = _fill_text(_BEHAVIOUR), _fill_text(_GROWTH)
    return f"### The behaviour under another policy\n\n{text}\n{_format_table(head, rows)}\n{after}"


def _render_factors() -> str:
    left_out = behaviour.leave_one_out()
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


def _render_noise_floor() -> str:
    seen, floors = table("repeats"), table("floors")
    pairs = ", ".join(
        f"{r['policy']} {r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})"
        for r in _to_records(seen[seen["figure"] == "usd"])
    )
    by_tasks = floors.pivot_table(index="tasks", columns="figure", values="floor").reset_index()
    rows = [(r["tasks"], f"{r['turns']:.0%}", f"{r['usd']:.0%}") for r in _to_records(by_tasks)]
    text, after = _fill_text(_NOISE, pairs=pairs), _fill_text(_FLOOR, floor=NOISE_FLOOR)
    floor_table = _format_table(("tasks", "turns", "dollars"), rows)
    return f"### The noise floor\n\n{text}\n{floor_table}\n{after}"


def _render_closed_loop() -> str:
    rules = ["none", *closed_rules()]
    blind, seeing = closed_loop.loop(rules, blind=True), closed_loop.loop(rules)
    counts = ("calls_predicted", "calls_real", "out_of_sight", "rereads_n")
    rows = [
        (
            r["rules"],
            *(r[c] for c in counts),
            *(f"${r[f'usd_{x}']:.2f}" for x in ("predicted", "real")),
            f"{r['usd_error']:+.0%}",
        )
        for r in _to_records(seeing.reset_index())
    ]
    head = (
        *("policy", "calls predicted", "real", "out of sight", "read again"),
        *("dollars predicted", "real", "error"),
    )
    order = seeing["usd_predicted"].rank().corr(seeing["usd_real"].rank())
    hint = seeing["out_of_sight"].corr(seeing["rereads_n"])
    text = _fill_text(_LOOP, blind=blind["usd_error"].abs().max())
    after = _fill_text(_MISSED, order=order, hint=hint, n=len(seeing))
    return f"### The closed loop\n\n{text}\n{_format_table(head, rows)}\n{after}"


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
