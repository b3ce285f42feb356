"""Reports that leave the notebook: one HTML file that opens offline, or a notebook to go
on with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.faces import listed
from ctxkit.plots.chart import write_page
from ctxkit.readers.given import as_session

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.readers.given import Given

__all__ = ["export"]
__dir__ = listed(__all__)

_SCORED = {"session", "rules", "prompt_tokens", "cost_usd", "prediction_error", "error"}
"""Columns by which a frame is known to hold scores."""


def export(x: Given | pd.DataFrame, path: str | Path) -> Path:
    """Write a report of a session, a comparison or a sweep and return its path; a file there is
    replaced.

    It says first what it rests on: how well the cache was foretold, the share of unexplained cache
    misses, the counter, and that a replay is an open loop.

    Args:
        x: a session or replay, the path of a log, a list of messages, what `compare` returned, or
            what `sweep` returned.
        path: a file that ends in `.html`: one page with everything in it (about 5 MB with charts)
            that opens offline; or in `.ipynb`: a notebook with the same content, its outputs and
            its data, whose cells run.

    Raises:
        BadArguments: `x` is nothing that can be exported, the path ends otherwise, or cannot be
            written.
    """
    target = Path(path).expanduser()
    kind = target.suffix.lower()
    if kind not in (".html", ".htm", ".ipynb"):
        raise BadArguments(
            "A report is a page or a notebook: give a path that ends in .html or .ipynb, not"
            f" {target.name!r}."
        )
    text = _notebook(x) if kind == ".ipynb" else _page(x)
    return write_page(target, text)


def _page(x: Any) -> str:
    kind = _kind(x)
    if kind == "session":
        from ctxkit.reports.session_report import session_page

        return session_page(as_session(x))
    if kind == "comparison":
        from ctxkit.reports.comparison_report import comparison_page

        return comparison_page(x)
    from ctxkit.reports.sweeps import sweep_page

    return sweep_page(x)


def _notebook(x: Any) -> str:
    from ctxkit.reports.notebook_cells import notebook
    from ctxkit.reports.notebooks import comparison_cells, session_cells, sweep_cells

    kind = _kind(x)
    if kind == "session":
        return notebook(session_cells(as_session(x)))
    return notebook(comparison_cells(x) if kind == "comparison" else sweep_cells(x))


def _kind(x: Any) -> str:
    """Say what is to be exported.

    Raises:
        BadArguments: it is neither a session nor scores.
    """
    import pandas as pd

    if isinstance(x, pd.DataFrame) and set(x.columns) >= _SCORED:
        if x.empty:
            raise BadArguments("There are no runs to export: the frame is empty.")
        from ctxkit.sweeps.comparisons import Comparison

        return "comparison" if isinstance(x, Comparison) else "sweep"
    if isinstance(x, pd.DataFrame):
        raise BadArguments(
            "Of frames only a comparison (ctxkit.compare) or a sweep (ctxkit.sweep) can be"
            " exported."
        )
    return "session"
