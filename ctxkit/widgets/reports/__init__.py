"""`ctxkit.export`: reports as one offline HTML file or as a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import expand_home
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import as_session
from ctxkit.plots.chart import write_page

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from ctxkit.formats.sessions_from_arguments import SessionLike

__all__ = ["export"]
__dir__ = make_dunder_dir(__all__)

_SCORED = {"session", "rules", "prompt_tokens", "cost_usd", "prediction_error", "error"}
"""Columns by which a frame is known to hold scores."""


def export(x: SessionLike | pd.DataFrame, path: str | Path) -> Path:
    """Write a report of a session, a comparison or a sweep and return its path; an existing file is
    replaced.

    It says first what it rests on: how well the cache was predicted, the share of unexplained cache
    misses, the counter, and that a replay is an open loop.

    Args:
        x: a session or replay, the path of a log, a list of messages, what `compare` returned, or
            what `sweep` returned.
        path: a file that ends in `.html`: one page with everything in it (about 5 MB with charts)
            that opens offline; or in `.ipynb`: a notebook with the same content, its outputs and
            its data, whose cells run.

    Returns:
        The path of the file, with `~` expanded.

    Raises:
        BadArguments: `x` is nothing that can be exported, the path ends otherwise, or cannot be
            written.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = ck.export(ck.samples.path("billing"), f"{folder}/report.html")
        >>> page.name
        'report.html'
    """
    target = expand_home(path)
    kind = target.suffix.lower()
    if kind not in (".html", ".htm", ".ipynb"):
        raise BadArguments(
            "A report is a page or a notebook: give a path that ends in .html or .ipynb, not"
            f" {target.name!r}."
        )
    text = _render_notebook(x) if kind == ".ipynb" else _render_html(x)
    return write_page(target, text)


def _render_html(x: Any) -> str:
    kind = _export_kind(x)
    if kind == "session":
        from ctxkit.widgets.reports.html_reports import render_session_report

        return render_session_report(as_session(x))
    if kind == "comparison":
        from ctxkit.widgets.reports.html_reports import render_comparison_report

        return render_comparison_report(x)
    from ctxkit.widgets.reports.html_reports import render_sweep_report

    return render_sweep_report(x)


def _render_notebook(x: Any) -> str:
    from ctxkit.widgets.reports.report_as_notebook import (
        encode_notebook,
        make_comparison_cells,
        make_session_cells,
        make_sweep_cells,
    )

    kind = _export_kind(x)
    if kind == "session":
        return encode_notebook(make_session_cells(as_session(x)))
    return encode_notebook(
        make_comparison_cells(x) if kind == "comparison" else make_sweep_cells(x)
    )


def _export_kind(x: Any) -> str:
    """Say what is to be exported.

    Raises:
        BadArguments: it is neither a session nor scores.
    """
    import pandas as pd

    if isinstance(x, pd.DataFrame) and set(x.columns) >= _SCORED:
        if x.empty:
            raise BadArguments("There are no runs to export: the frame is empty.")
        from ctxkit.experiments.rules_comparison_on_one_session import Comparison

        return "comparison" if isinstance(x, Comparison) else "sweep"
    if isinstance(x, pd.DataFrame):
        raise BadArguments(
            "Of frames only a comparison (ctxkit.compare) or a sweep (ctxkit.sweep) can be"
            " exported."
        )
    return "session"
