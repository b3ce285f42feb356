"""The studies' section of docs/trust.md and its charts."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit._internal.palette import TEXT_COLOUR
from ctxkit.experiments.studies import behaviour, closed_loop, masks
from ctxkit.experiments.studies.published_runs import table
from ctxkit.metrics.elongation import INTERVAL_LEVEL, NOISE_FLOOR, estimate_elongation
from ctxkit.plots.chart import Chart
from ctxkit.plots.figure_data import Trace
from ctxkit.plots.xy_figure import Axes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.metrics.elongation import PolicyKind


__all__ = [
    "chart_behaviour",
    "chart_closed_loop",
    "chart_mask_errors",
    "closed_rules",
    "render_page",
]
__dir__ = public_dir(__all__)


_WIDTH = 100
_BEFORE: tuple[PolicyKind, ...] = ("raw", "mask", "summary")
_HEAD = """A replay keeps the recorded steps and changes what each was shown. Three studies say how
far that goes: the bill of known steps, the steps of real runs under other policies, and agents that
take other steps when something is out of sight. Notebook 09 shows them; `ck.studies` has the
figures, and `make studies` makes its tables from the published runs. Intervals are of 80 %."""
_BILL = """{runs} runs of SWE-agent that were shown their last {kept} observations and wrote down
what they sent (SWE-bench Verified, June 2024). The kit replays a mask over the same messages; one
constant, billed tokens a character or a token of o200k, is the median of the *other* runs. Size of
foretold / recorded - 1, median and nine of ten, by the number of observations that are kept:"""
_BILL_NOISE = """Each run judged by another run's record: {noise:.0%}. Runs with a last call whose
reply is not in the file are left out."""
_BEHAVIOUR = """Published runs of the same tasks under several policies (The Complexity Trap, arXiv
2508.21433; five models; OpenHands is marked OH, all else is SWE-agent). `turns` and `dollars` are
totals of managed runs over those of the same model without management, over tasks that both have;
intervals are from tasks drawn again. `each` is the median change of a single task's turns, up or
down. `size` is what a growth model, told the unmanaged runs alone, foretells of all prompt tokens,
over what was recorded; `prompt` is the same of the mean prompt, so what lies between the two is the
turns. Runs that failed before they began (no tokens) are left out: counted in, 36 masked runs of
Gemini Flash with one turn each would make masks seem to shorten its runs by an eighth."""
_GROWTH = """The growth model is the weak part: a run is taken to grow evenly (see
`experiments.studies.behaviour`). It fits SWE-agent's prompts under a mask or summaries within a
quarter and OpenHands' masked ones not at all; where a total is right all the same, two errors
cancel."""
_FACTORS = """`longer` of a row of scores: calls of real runs over those of the record, with the
interval in which a further model is expected (`metrics.elongation`), by the policy of the record,
that of the replay, and the family of the model; a family has its own where three studies are of
it. Two settings of one family of policies are taken to lie no further apart than models under one
setting. Each model left out in turn, the {level:.0%} interval of the others, of any family, held
{held} of {models}. A family's own interval is narrower and rests on three or four studies, too few
to try it so."""
_NOISE = """Dollars of a second run of the same policy over the first, OpenHands, 50 tasks: {pairs}.
From these pairs, tasks drawn again and of each task either run taken for the second, 80 of 100
pairs of totals lie within:"""
_FLOOR = """A row is told apart from the record where the whole interval of its cost lies more than
{floor:.0%} away from it: the floor over 50 tasks. That is a statement on many runs like this one; a
single run shows nothing."""
_LOOP = """An agent without a key: asked for numbers that stand in files, it reads those that its
prompt does not show, for the first time or again (see `experiments.studies.closed_loop`); engine,
tools, edits and bill are those of any live session. With its eyes closed its steps are the same
under any policy: foretold and real dollars then differ by {blind:.1%} at most. With its eyes
open:"""
_MISSED = """The order of the dollars foretold agrees with that of the real ones by {order:+.2f}
(rank correlation over {n} policies); what the replay showed to be out of sight when it was needed
agrees with what was read again by {hint:+.2f}. So a replay's loss says where its dollars are too
low. The world is harsh: half of the questions go far back."""


def closed_rules() -> list[Any]:
    """Return the rules of the closed-loop study: masks, summaries and a trim."""
    from ctxkit import presets

    window = 16_000
    rules = [presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (2, 5, 10, 20)]
    rules += [presets.pi(context_window=window, reserve_tokens=4_000, keep_recent_tokens=3_000)]
    rules += [presets.claude_code(context_window=40_000)]
    return [*rules, "strands", presets.tyrum(context_window=window, reserved_input_tokens=2_000)]


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
    counts = ("calls_foretold", "calls_real", "out_of_sight", "again")
    rows = [
        (
            r["rules"],
            *(r[c] for c in counts),
            *(f"${r[f'usd_{x}']:.2f}" for x in ("foretold", "real")),
            f"{r['missed_usd']:+.0%}",
        )
        for r in _to_records(seeing.reset_index())
    ]
    head = (
        *("policy", "calls foretold", "real", "out of sight", "read again"),
        *("dollars foretold", "real", "missed"),
    )
    order = seeing["usd_foretold"].rank().corr(seeing["usd_real"].rank())
    hint = seeing["out_of_sight"].corr(seeing["again"])
    text = _fill_text(_LOOP, blind=blind["missed_usd"].abs().max())
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


_UNITS: dict[masks.Unit, str] = {
    "chars": "sized in characters",
    "o200k": "sized in tokens of o200k",
}
_MODELS = {
    "gemini-2.5-flash": "flash",
    "gemini-2.5-flash, thinking": "flash+",
    "qwen3-coder-480b": "coder",
    "qwen3-32b": "32b",
    "qwen3-32b, thinking": "32b+",
}
_MIN_TASKS = 50
"""Tasks above which an experiment is a main study."""


def chart_mask_errors(runs: pd.DataFrame) -> Chart:
    """Chart the error of the bill by the window of the mask that is replayed.

    Args:
        runs: the table `masks`.
    """
    errors = {unit: masks.by_window(runs, unit).dropna() for unit in _UNITS}
    traces = [
        _make_trace(f"{what}, {unit_text}", rows, column, look)
        for look, (unit, unit_text, column, what) in enumerate(
            (u, t, c, w)
            for u, t in _UNITS.items()
            for c, w in (("median", "median"), ("nine_tenths", "nine of ten"))
        )
        for rows in [errors[unit]]
    ]
    return Chart(
        title="The bill of a mask, by the window that is replayed",
        caption=f"Size of foretold / recorded prompt tokens - 1 over {len(runs)} runs that were "
        f"shown their last {masks.RECORDED_WINDOW} observations; the constant is fitted on the "
        "other tasks.",
        drawing=Axes(
            x="observations that the mask keeps", y="error", traces=tuple(traces), y_share=True
        ),
        head=("window", *(f"{t}: median" for t in _UNITS.values()), "80 %", "nine of ten"),
        rows=tuple(
            _make_error_row(*each)
            for each in zip(*(f.to_dict("records") for f in errors.values()), strict=True)
        ),
    )


def _make_trace(name: str, rows: pd.DataFrame, column: str, look: int) -> Trace:
    x, y = rows["window"].tolist(), rows[column].tolist()
    return Trace(name=name, x=x, y=y, look=look, hover=lambda i: f"{name}\nlast {x[i]}: {y[i]:.1%}")


def _make_error_row(chars: dict[str, Any], o200k: dict[str, Any]) -> tuple[str, ...]:
    share = f"{o200k['low']:.1%}–{o200k['high']:.1%}"
    ends = (share, f"{o200k['nine_tenths']:.1%}")
    return (str(chars["window"]), f"{chars['median']:.1%}", f"{o200k['median']:.1%}", *ends)


def chart_behaviour(ratios: pd.DataFrame, figure: str = "turns") -> Chart:
    """Chart turns or dollars of managed runs over those of unmanaged ones, with 80 % intervals.

    Args:
        ratios: the table `ratios`.
        figure: `turns` or `usd`.
    """
    main_runs = ratios[(ratios["before"] == "raw") & (ratios["tasks"] > _MIN_TASKS)]
    main_runs = main_runs.sort_values(["after", "scaffold", "model", "setting"]).reset_index(
        drop=True
    )
    rows: list[dict[str, Any]] = [
        {str(k): v for k, v in r.items()} for r in main_runs.to_dict("records")
    ]
    names = tuple(map(_name_run, rows))
    ends = [0, len(rows) - 1]
    even = Trace(
        name="as without", x=ends, y=[1.0, 1.0], look=7, colour=TEXT_COLOUR, dash="longdash"
    )
    traces = [even]
    for look, (after, group) in enumerate(main_runs.groupby("after", sort=True)):
        traces += _make_interval_traces(str(after), group, figure, look, names)
    word = {"turns": "Turns", "usd": "Dollars"}[figure]
    band = f" A second run of the same policy over 50 tasks lies within {NOISE_FLOOR:.0%}." * (
        figure == "usd"
    )
    return Chart(
        title=f"{word} of managed runs over those of the same model without management",
        caption=f"Totals over the same tasks (The Complexity Trap), with 80 % intervals.{band}",
        drawing=Axes(
            x="model (OH: flash in OpenHands; all else: SWE-agent; M: results kept)",
            y=f"{word.lower()}, as a multiple",
            traces=tuple(traces),
            ticks=names,
            y_small=True,
        ),
        head=("policy", "model", "tasks", word.lower(), "80 %"),
        rows=tuple(_make_ratio_row(r, n, figure) for r, n in zip(rows, names, strict=True)),
        shown=20,
    )


def _name_run(row: dict[str, Any]) -> str:
    if row["scaffold"] == "openhands":
        return f"OH {row['setting'].split(' ')[0].replace('=', '')}"
    return _MODELS[row["model"]]


def _make_ratio_row(row: dict[str, Any], name: str, figure: str) -> tuple[str, ...]:
    ends = f"{row[f'{figure}_low']:.2f}–{row[f'{figure}_high']:.2f}"
    return (row["after"], name, str(row["tasks"]), f"{row[figure]:.2f}", ends)


def _make_interval_traces(
    after: str, rows: pd.DataFrame, figure: str, look: int, names: tuple[str, ...]
) -> list[Trace]:
    x, y = rows.index.tolist(), rows[figure].tolist()

    def hover(i: int) -> str:
        row = rows.iloc[i]
        ends = f"{row[f'{figure}_low']:.2f} to {row[f'{figure}_high']:.2f}"
        return f"{after}, {names[x[i]]}\n{y[i]:.2f} ({ends})\n{row['tasks']} tasks"

    ends = rows[[f"{figure}_low", f"{figure}_high"]].to_numpy().tolist()
    spans = [
        Trace(name=after, x=[i, i], y=pair, look=look, dash="solid", follows=True)
        for i, pair in zip(x, ends, strict=True)
    ]
    return [Trace(name=after, x=x, y=y, kind="points", look=look, hover=hover), *spans]


def chart_closed_loop(runs: pd.DataFrame, figure: str = "usd") -> Chart:
    """Chart the predicted and the real figure of each policy.

    Args:
        runs: result of `closed_loop.loop`.
        figure: `usd`, `calls` or `tokens`.
    """
    names = tuple(map(str, runs.index))
    predicted, real = (runs[f"{figure}_{x}"].astype(float).tolist() for x in ("foretold", "real"))
    sign = "$" * (figure == "usd")
    digits = ".2f" if figure == "usd" else ",.0f"

    def make_hover(values: list[float]) -> Any:
        return lambda i: f"{names[i]}\n{sign}{values[i]:{digits}}"

    x = list(range(len(names)))
    word = {"usd": "dollars", "calls": "calls", "tokens": "prompt tokens"}[figure]
    gaps = [
        Trace(name="missed", x=[i, i], y=[a, b], look=1, dash="dot", follows=True)
        for i, a, b in zip(x, predicted, real, strict=True)
    ]
    return Chart(
        title=f"Foretold and real {word} of an agent that looks again for what is gone",
        caption="One record without management, replayed under each policy; and the same agent "
        "run under it. The distance is what an open loop misses.",
        drawing=Axes(
            x="policy",
            y=word,
            traces=(
                *gaps,
                Trace(
                    name="foretold by the replay",
                    x=x,
                    y=predicted,
                    kind="points",
                    look=0,
                    hover=make_hover(predicted),
                ),
                Trace(name="real", x=x, y=real, kind="points", look=1, hover=make_hover(real)),
            ),
            ticks=names,
            y_small=figure == "usd",
        ),
        head=("policy", f"{word} foretold", "real", "missed"),
        rows=tuple(
            (n, f"{sign}{a:{digits}}", f"{sign}{b:{digits}}", f"{round(b / a - 1, 9) + 0.0:+.0%}")
            for n, a, b in zip(names, predicted, real, strict=True)
        ),
        shown=24,
    )
