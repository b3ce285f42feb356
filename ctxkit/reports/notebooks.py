"""Reports as notebooks: the content of a page with its data and outputs, whose cells run, to go on
with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.composition import report
from ctxkit.display.markup import line
from ctxkit.frames import frame as framed
from ctxkit.plots import composition, growth
from ctxkit.reports import parcels
from ctxkit.reports.assumptions import of_runs
from ctxkit.reports.notebook_cells import code, prose, said
from ctxkit.reports.run_tables import COST, CUTS, LOSS
from ctxkit.reports.session_report import sources
from ctxkit.reports.sweeps import caveats, front_chart, run_columns
from ctxkit.sweeps import front

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from ctxkit.session import Session
    from ctxkit.sweeps.comparisons import Comparison

_COMPACTIONS = (
    *("compaction", "call", "reason", "tokens_before", "tokens_after"),
    *("token_savings", "messages_before", "messages_after", "cost_usd", "tokens_source"),
)
_TURNS = (
    *("turn", "calls_n", "context_tokens"),
    *("turn_input_tokens", "turn_output_tokens", "cost_usd"),
)
_GO_ON = "Everything below runs again, and can be changed. The data lie in the folded cell above."
_LONG = 50
"""Rows of a table that is shown."""
_WIDE = 18
"""Columns of it."""


def session_cells(session: Session) -> Iterator[Any]:
    """Yield the cells of a session's report."""
    row = framed(session, per="session").iloc[0]
    yield prose(
        f"# {said(session.title or session.id, 160)}",
        "What this report rests on:",
        sentences=sources(session, row),
    )
    packed = parcels.pack(session)
    yield code(
        f'from ctxkit.reports.parcels import unpack\n\nsession = unpack("{packed}")', hidden=True
    )
    yield prose(_GO_ON)
    yield code("import ctxkit as ck\n\nsession", session)
    if not session.calls:
        return
    yield prose("## How the context grew")
    yield code("ck.plots.growth(session)", growth(session))
    yield prose("## What filled it")
    yield code("ck.plots.composition(session)", composition(session))
    yield prose("The last call and its largest contributors.")
    yield code("ck.report(session)", report(session))
    yield prose("## Compactions")
    yield _table("compaction", session, _COMPACTIONS)
    if session.edits:
        yield code(
            'for edit in session.edits:\n    print(*(m.text for m in edit.inserted), sep="\\n")'
        )
    yield prose("## Turns")
    yield _table("turn", session, _TURNS)
    yield prose(
        "## Go on",
        "The same session under other rules: what they would have cost, and what they would have"
        " lost.",
    )
    yield code('ck.compare(session, ["pi", "none"])')


def _table(per: str, session: Session, names: tuple[str, ...]) -> Any:
    table = framed(session, per=per)[list(names)].head(_LONG)
    shown = table.map(lambda v: line(v, 160) if isinstance(v, str) else v)
    source = f'ck.frame(session, per="{per}")[columns].head({_LONG})'
    return code(f"columns = [{_listed(names)}]\n{source}", shown)


def comparison_cells(frame: Comparison) -> Iterator[Any]:
    """Yield the cells of a comparison's report."""
    replays = getattr(frame, "replays", {})
    yield prose(
        f"# {said(str(frame['session'].iloc[0]), 80)}: {len(frame)} settings compared",
        "What these figures rest on:",
        sentences=of_runs(frame),
    )
    yield _runs_cell(frame, replays.get("recorded"))
    yield prose(_GO_ON)
    yield from _figures(frame)
    if "recorded" in replays and replays["recorded"].calls:
        yield prose(
            "## How the context grew",
            "As recorded. `ck.compare` makes the replays again, for any rules:",
        )
        yield code("import ctxkit as ck\n\nck.plots.growth(session)", growth(replays["recorded"]))
        yield code('again = ck.compare(session, ["pi", "none"])\nck.plots.growth(again.replays)')


def _figures(frame: pd.DataFrame) -> Iterator[Any]:
    shown = _clean(frame).set_index("rules")
    heads = ("What each would have cost", "How the compactions held", "What was lost")
    for title, names in zip(heads, (COST, CUTS, LOSS), strict=True):
        yield prose(f"## {title}")
        yield code(f'runs.set_index("rules")[[{_listed(names)}]]', shown[list(names)])
    yield from _failed(frame)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


def sweep_cells(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the cells of a sweep's report."""
    yield prose(
        "# A sweep of context settings",
        "What these figures rest on:",
        sentences=[*of_runs(frame), *caveats(frame)],
    )
    yield _runs_cell(frame, None)
    yield prose(_GO_ON)
    yield code("import ctxkit as ck\n\nruns.shape", frame.shape)
    drawn = front_chart(frame)
    if drawn is not None:
        yield prose("## Dollars against loss")
        yield code("ck.plots.frontier(runs)", drawn)
    yield prose(
        "## Settings",
        "Means over sessions with their 90 % intervals; those on the front are beaten by none.",
    )
    yield code(f"front(runs).head({_LONG})", front(_clean(frame)).head(_LONG))
    yield from _failed(frame)
    yield prose("## Runs")
    names = ["rules", *run_columns(frame)][:_WIDE]
    yield code(f"columns = {names}\nruns[columns].head({_LONG})", _clean(frame)[names].head(_LONG))


def _failed(frame: pd.DataFrame) -> Iterator[Any]:
    failed = frame["error"].notna()
    if failed.any():
        yield prose("## What failed")
        names = ["session", "rules", "error"]
        shown = _clean(frame).loc[failed.to_numpy(), names].head(_LONG)
        yield code(f'runs[runs["error"].notna()][[{_listed(names)}]].head({_LONG})', shown)


def _runs_cell(frame: pd.DataFrame, session: Session | None) -> Any:
    source = "from ctxkit.reports.parcels import unpack, unpack_runs\n"
    source += "from ctxkit.sweeps import front\n\n"
    source += f'runs = unpack_runs("{parcels.pack_runs(frame)}")\n'
    if session is not None:
        source += f'session = unpack("{parcels.pack(session)}")\n'
    return code(source, hidden=True)


def _clean(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows as the notebook will have them, with texts of logs made safe to show."""
    return parcels.unpack_runs(parcels.pack_runs(frame)).map(
        lambda v: line(v, 300) if isinstance(v, str) else v
    )
