"""Tables, scores and reports of small sessions: every public function of experiments.

`python tests/experiments/table_scenarios.py` writes their references anew after a table was changed
on purpose; the difference is then read as code is.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        ck.experiments.mark_pareto_front(runs),
        ck.experiments.summarise_runs(runs),
        ck.experiments.compare_settings(runs, "none", runs["rules"].iloc[0], "cost_usd"),
    ]


SCENARIOS: dict[str, Callable[[], Any]] = {
    "advise": lambda: ck.advise(_make_sessions(5, cached=False), _trim(), progress=False),
    "advise for few": lambda: ck.advise(_make_sessions(2, cached=False), _trim(), progress=False),
    "compare": lambda: ck.compare(make_with_user_rules(), ["none", "swe_agent_mask"], progress=False),
    "compare by cost": lambda: ck.compare(make_growing(12), [*RULES, "codex"], progress=False, max_loss=0.4),
    "exam": _exam,
    "exam by a model": lambda: _exam(repeats=3, seed=2),
    "forecasts": _forecast,
    "grid": lambda: [
        rules.parameters
        for rules in ck.grid("pi", reserve_tokens=[4000, 9000], keep_recent_tokens=[2000, 8000])
    ],
    "index_or_paste": _store_table,
    "mark_pareto_front": _mark_front,
    "score": lambda: ck.score(make_compacted()),
    "score of a replay": lambda: ck.score(make_pruned_replay()),
    "score of tools": lambda: ck.score(make_with_tools(), reuse=True),
    "score of user rules": lambda: ck.score(make_with_user_rules()),
    "sections": lambda: ck.experiments.sections(talk()),
    "sections under rules": lambda: ck.experiments.sections(talk(turns=12), "pi"),
    "sweep": _sweep,
    "sweep of a grid": lambda: ck.sweep(
        make_growing(14),
        ck.grid("pi", context_window=[20_000], keep_recent_tokens=[2000, 8000], reserve_tokens=[4000]),
        progress=False, loss=True, max_loss=0.2, reuse=True,
    ),
    "validate": lambda: ck.validate({"COMPACT_TRIGGER": "10", "KEEP_LAST_TURNS": "2"}),
    "with_memory": lambda: ck.experiments.with_memory(
        ck.samples.path("chat"), "pi:context_window=16_000,reserve_tokens=4_000,keep_recent_tokens=1_000"
    ),
    "without": lambda: [m.text for m in ck.experiments.without(talk(), "gitignore").messages],
}  # fmt: skip
"""The results by name, which begins with that of the function."""
DATA = {"SCORE_COLUMNS", "SCORE_COLUMN_NAMES", "SECTION_COLUMNS"}
"""Tables of columns, which have pages of their own."""
TOGETHER = {
    "mark_pareto_front": {"summarise_runs", "compare_settings"},
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
