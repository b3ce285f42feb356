"""Evidence on how far replays can be trusted."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {"table": "published_runs", "run_scripted_agent": "closed_loop", "loop": "closed_loop"}
_ROOMS = (
    "behaviour",
    "report",
    "closed_loop",
    "masks",
    "published_runs",
)

__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES, _ROOMS)
