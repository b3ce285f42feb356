"""Reports as notebooks whose cells run, with their data packed inside."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from html import escape as quoted
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_line, sanitize_text
from ctxkit.errors import BadArguments
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES, build_score_frame
from ctxkit.experiments.sweep_runs import summarise_runs_with_pareto_front
from ctxkit.formats import native as reader
from ctxkit.formats import native as writer
from ctxkit.formats.log_file_content import Source
from ctxkit.metrics.context_window_report import report
from ctxkit.metrics.frames import frame as framed
from ctxkit.plots import composition, growth
from ctxkit.plots.chart import Chart
from ctxkit.session.titles import get_title
from ctxkit.widgets.reports.html_reports import (
    COMPACTION_COLUMNS,
    COST_COLUMNS,
    LOSS_COLUMNS,
    describe_figure_sources,
    describe_runs_cost_accuracy,
    describe_sweep_caveats,
    list_run_columns,
    make_frontier_chart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from ctxkit.experiments.rules_comparison_on_one_session import Comparison
    from ctxkit.session.session import Session


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


def make_session_cells(session: Session) -> Iterator[Any]:
    """Yield the cells of a session's report.

    Args:
        session: recorded or a replay; it is packed into the first code cell.

    Yields:
        Cells of nbformat with their outputs, which run as they are.
    """
    row = framed(session, per="session").iloc[0]
    yield make_markdown_cell(
        f"# {escape_markdown(get_title(session, 160))}",
        "What this report rests on:",
        sentences=describe_figure_sources(session, row),
    )
    packed = pack_session(session)
    yield make_code_cell(
        "from ctxkit.widgets.reports.report_as_notebook import unpack_session as unpack\n\n"
        f'session = unpack("{packed}")',
        hidden=True,
    )
    yield make_markdown_cell(_GO_ON)
    yield make_code_cell("import ctxkit as ck\n\nsession", session)
    if not session.calls:
        return
    yield make_markdown_cell("## How the context grew")
    yield make_code_cell("ck.plots.growth(session)", growth(session))
    yield make_markdown_cell("## What filled it")
    yield make_code_cell("ck.plots.composition(session)", composition(session))
    yield make_markdown_cell("The last call and its largest contributors.")
    yield make_code_cell("ck.report(session)", report(session))
    yield make_markdown_cell("## Compactions")
    yield _frame_cell("compaction", session, _COMPACTIONS)
    if session.edits:
        yield make_code_cell(
            'for edit in session.edits:\n    print(*(m.text for m in edit.inserted), sep="\\n")'
        )
    yield make_markdown_cell("## Turns")
    yield _frame_cell("turn", session, _TURNS)
    yield make_markdown_cell(
        "## Go on",
        "The same session under other rules: what they would have cost, and what they would have"
        " lost.",
    )
    yield make_code_cell('ck.compare(session, ["pi", "none"])')


def _frame_cell(per: str, session: Session, names: tuple[str, ...]) -> Any:
    table = framed(session, per=per)[list(names)].head(_LONG)
    cells = table.map(lambda v: sanitize_line(v, 160) if isinstance(v, str) else v)
    source = f'ck.frame(session, per="{per}")[columns].head({_LONG})'
    return make_code_cell(f"columns = [{_list_literal(names)}]\n{source}", cells)


def make_comparison_cells(frame: Comparison) -> Iterator[Any]:
    """Yield the cells of a comparison's report.

    Args:
        frame: result of `ck.compare`; its rows and the record are packed into a cell.

    Yields:
        Cells of nbformat with their outputs.
    """
    replays = getattr(frame, "replays", {})
    yield make_markdown_cell(
        f"# {escape_markdown(str(frame['session'].iloc[0]), 80)}: "
        f"{pluralize(len(frame), 'setting')} compared",
        "What these figures rest on:",
        sentences=describe_runs_cost_accuracy(frame),
    )
    yield _runs_cell(frame, replays.get("recorded"))
    yield make_markdown_cell(_GO_ON)
    yield from _figure_cells(frame)
    if "recorded" in replays and replays["recorded"].calls:
        yield make_markdown_cell(
            "## How the context grew",
            "As recorded. `ck.compare` makes the replays again, for any rules:",
        )
        yield make_code_cell(
            "import ctxkit as ck\n\nck.plots.growth(session)", growth(replays["recorded"])
        )
        yield make_code_cell(
            'again = ck.compare(session, ["pi", "none"])\nck.plots.growth(again.replays)'
        )


def _figure_cells(frame: pd.DataFrame) -> Iterator[Any]:
    figures = _clean_frame(frame).set_index("rules")
    heads = ("What each would have cost", "How the compactions held", "What was lost")
    for title, names in zip(heads, (COST_COLUMNS, COMPACTION_COLUMNS, LOSS_COLUMNS), strict=True):
        yield make_markdown_cell(f"## {title}")
        yield make_code_cell(
            f'runs.set_index("rules")[[{_list_literal(names)}]]', figures[list(names)]
        )
    yield from _failure_cells(frame)


def _list_literal(names: Iterable[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


def make_sweep_cells(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the cells of a sweep's report.

    Args:
        frame: result of `ck.sweep`; its rows are packed into a cell.

    Yields:
        Cells of nbformat with their outputs.
    """
    yield make_markdown_cell(
        "# A sweep of context settings",
        "What these figures rest on:",
        sentences=[*describe_runs_cost_accuracy(frame), *describe_sweep_caveats(frame)],
    )
    yield _runs_cell(frame, None)
    yield make_markdown_cell(_GO_ON)
    yield make_code_cell("import ctxkit as ck\n\nruns.shape", frame.shape)
    drawn = make_frontier_chart(frame)
    if drawn is not None:
        yield make_markdown_cell("## Dollars against loss")
        yield make_code_cell("ck.plots.frontier(runs)", drawn)
    yield make_markdown_cell(
        "## Settings",
        "Means over sessions with their 90 % intervals; no other setting dominates those on the "
        "Pareto front.",
    )
    yield make_code_cell(
        f"front(runs).head({_LONG})",
        summarise_runs_with_pareto_front(_clean_frame(frame)).head(_LONG),
    )
    yield from _failure_cells(frame)
    yield make_markdown_cell("## Runs")
    names = ["rules", *list_run_columns(frame)][:_WIDE]
    yield make_code_cell(
        f"columns = {names}\nruns[columns].head({_LONG})", _clean_frame(frame)[names].head(_LONG)
    )


def _failure_cells(frame: pd.DataFrame) -> Iterator[Any]:
    failed = frame["error"].notna()
    if failed.any():
        yield make_markdown_cell("## What failed")
        names = ["session", "rules", "error"]
        failures = _clean_frame(frame).loc[failed.to_numpy(), names].head(_LONG)
        yield make_code_cell(
            f'runs[runs["error"].notna()][[{_list_literal(names)}]].head({_LONG})', failures
        )


def _runs_cell(frame: pd.DataFrame, session: Session | None) -> Any:
    source = (
        "from ctxkit.widgets.reports.report_as_notebook import unpack_session as unpack, "
        "unpack_runs\n"
    )
    source += "from ctxkit.experiments import summarise_runs_with_pareto_front as front\n\n"
    source += f'runs = unpack_runs("{pack_runs(frame)}")\n'
    if session is not None:
        source += f'session = unpack("{pack_session(session)}")\n'
    return make_code_cell(source, hidden=True)


def _clean_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows as the notebook will have them, with texts of logs made safe to show."""
    return unpack_runs(pack_runs(frame)).map(
        lambda v: sanitize_line(v, 300) if isinstance(v, str) else v
    )


_SPECIAL = re.compile(r"([\\`*_\[\]()#|~$!:{}+@.-])")


def escape_markdown(text: str, limit: int = 600) -> str:
    """Return untrusted text as one line of Markdown without markup: no tag, link or formula.

    Args:
        text: untrusted text.
        limit: maximum characters before escaping.
    """
    return _SPECIAL.sub(r"\\\1", quoted(sanitize_line(text, limit), quote=False))


def make_markdown_cell(*paragraphs: str, sentences: Iterable[str] = ()) -> Any:
    """Return a Markdown cell of paragraphs and a list.

    Args:
        *paragraphs: Markdown; empty ones are left out.
        sentences: plain text, which is escaped; one item of the list each.
    """
    from nbformat.v4 import new_markdown_cell

    points = "\n".join(f"- {escape_markdown(s)}" for s in sentences)
    return new_markdown_cell("\n\n".join(filter(None, [*paragraphs, points])))


def make_code_cell(source: str, value: Any = None, *, hidden: bool = False) -> Any:
    """Return a code cell; `value` is what its last line gives, shown as its output.

    Args:
        source: Python.
        value: anything with a display; None: no output.
        hidden: fold the source away.
    """
    from nbformat.v4 import new_code_cell, new_output

    cell = new_code_cell(source.strip())
    if value is not None:
        cell.outputs = [
            new_output("execute_result", data=_mime_bundle(value), execution_count=None)
        ]
    if hidden:
        cell.metadata = {"jupyter": {"source_hidden": True}}
    return cell


def encode_notebook(cells: Iterable[Any]) -> str:
    """Return a notebook as the text of its file.

    Args:
        cells: cells of nbformat; they get ids in order.

    Returns:
        JSON with a line feed at its end.

    Raises:
        nbformat.ValidationError: a cell is no cell.
    """
    import nbformat

    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    cell_list = list(cells)
    for i, cell in enumerate(cell_list):
        cell["id"] = f"report-{i:02d}"
    whole = nbformat.v4.new_notebook(cells=cell_list, metadata=metadata)  # validates the cells
    return str(nbformat.writes(whole)) + "\n"


def _mime_bundle(value: Any) -> dict[str, Any]:
    """Return what a front end would be given, with texts that no terminal and no page takes for
    more than text.
    """
    if isinstance(value, Chart):  # without plotly's figure, which a lab would show instead
        return {
            "text/plain": sanitize_text(value.to_text()),
            "text/html": sanitize_text(value.to_html()),
        }
    display_data = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else None
    bundle: dict[str, Any] = dict(
        display_data[0] if isinstance(display_data, tuple) else display_data or {}
    )
    if not bundle:
        bundle = {"text/plain": repr(value)}
        html = value._repr_html_() if hasattr(value, "_repr_html_") else None
        if html:
            bundle["text/html"] = html
    clean = {
        kind: sanitize_text(data) if isinstance(data, str) else data
        for kind, data in bundle.items()
    }
    # The round trip turns tuples into lists, and raises on NaN and on what JSON cannot hold.
    return dict(json.loads(json.dumps(clean, allow_nan=False)))


MAX_BYTES = 64 << 20
"""A notebook with more in it can hardly be opened."""


def pack_session(session: Session) -> str:
    """Return a whole session as text that needs no quoting.

    Raises:
        BadArguments: it is too large to be in a notebook.
    """
    return _compress_text(b"".join(writer.encode_session_lines(session)))


def unpack_session(text: str) -> Session:
    """Return the session that `pack` was given."""
    return reader.read(Source("notebook", _decompress_text(text)))[0]


def pack_runs(frame: pd.DataFrame) -> str:
    """Return rows of scores as text that needs no quoting.

    Raises:
        BadArguments: they are too many to be in a notebook.
    """
    extra = [c for c in frame.columns if c not in SCORE_COLUMN_NAMES]
    # JSON has no NaN; missing values become null.
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return _compress_text(msgspec.json.encode({"extra": extra, "rows": rows}, enc_hook=_to_plain))


def unpack_runs(text: str) -> pd.DataFrame:
    """Return the rows that `pack_runs` was given, indexed by the names of their rules."""
    payload = msgspec.json.decode(_decompress_text(text))
    frame: pd.DataFrame = build_score_frame(payload["rows"], tuple(payload["extra"]))
    return frame


def _compress_text(data: bytes) -> str:
    packed = zlib.compress(data, 6)
    if len(packed) > MAX_BYTES:
        raise BadArguments(
            f"{len(packed) >> 20} MB do not fit into a notebook: export an .html report, or keep"
            " the data in a file of its own (ctxkit.write, or out= of a sweep)."
        )
    return b64encode(packed).decode("ascii")


def _decompress_text(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def _to_plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
