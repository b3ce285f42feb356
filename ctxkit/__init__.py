"""ctxkit, the laboratory for agent context: run an agent, read what any left, replay it."""

from __future__ import annotations

from ctxkit.faces import face

# type checkers know the name; importing `typing` would double what a bare interpreter takes
TYPE_CHECKING = False
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

_NAMES = {
    "read": "readers.reader_names",
    "read_all": "readers.reader_names",
    "write": "writers",
    "frame": "frames",
    "arrow": "frames.arrows",
    "audience": "frames.audiences",
    "report": "composition",
    "read_snapshots": "snapshots",
    "discover": "discoveries",
    "keep": "keeping",
    "find": "keeping",
    "calibrate": "metrics.calibrations",
    "load_rules": "presets.loaders",
    "validate": "gates.config_faults",
    "fit": "fitting.fits",
    "Context": "fitting.fits",
    "history_processor": "fitting.adapters",
    "replay": "replays",
    "score": "sweeps",
    "compare": "sweeps",
    "sweep": "sweeps",
    "grid": "sweeps",
    "advise": "sweeps",
    "gate": "gates",
    "sections": "worth",
    "without": "worth",
    "index_or_paste": "worth",
    "with_memory": "worth",
    "explore": "widgets",
    "tune": "widgets",
    "watch": "widgets",
    "break_even": "widgets",
    "budget": "widgets",
    "savings": "widgets",
    "thrash": "widgets",
    "export": "reports",
    "team": "teams",
    "check": "course",
    "contest": "course",
    "spend": "spending",
    "board": "boards",
    "record": "recorders",
    "recorder": "recorders",
    "Session": "session",
    "Message": "messages",
    "Edit": "messages",
    "Usage": "messages",
    "History": "history",
    "Room": "tokens",
    "CtxkitError": "errors",
    "ReadError": "errors",
    "UnknownFormat": "errors",
    "UnknownPreset": "errors",
    "UnsoundHistory": "errors",
    "BadArguments": "errors",
    "ModelError": "errors",
    "StoreError": "errors",
}
_ROOMS = (
    "course",
    "gates",
    "metrics",
    "plots",
    "policies",
    "presets",
    "prices",
    "readers",
    "samples",
    "snapshots",
    "studies",
)

__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above


__getattr__, __dir__ = face(__name__, _NAMES, _ROOMS)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%agent`, `%compact` and `%context` (for ``%load_ext ctxkit``)."""
    from ctxkit.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics again (for ``%unload_ext ctxkit``)."""
    from ctxkit.magics import unload

    unload(shell)
