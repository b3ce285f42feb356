"""Reading of plotly.js from plotly's wheel, without importing plotly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ctxkit._internal.installed_distribution import DISTRIBUTION
from ctxkit.errors import CtxkitError


def read_plotly_library() -> bytes:
    """Return the minified JavaScript of plotly.

    Raises:
        CtxkitError: plotly is not installed.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise CtxkitError(f"A page with charts needs plotly: install {DISTRIBUTION} again.")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_bytes()
